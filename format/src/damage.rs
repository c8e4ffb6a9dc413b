//! The account of what is damaged or missing in an archive. Damage is data, not an error.

use crate::error::Invalid;

/// Gaps that [`Damage::gaps`] lists; all are counted.
pub const MAX_GAPS: usize = 1024;

/// What a reader found damaged or missing so far; final once [`Reader::next`](crate::Reader::next) gave `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// One of the header's two copies is damaged or cut.
    pub header_copy: bool,
    /// The first [`MAX_GAPS`] gaps, in the order of the file.
    pub gaps: Vec<Gap>,
    /// All gaps.
    pub gap_count: u64,
    /// Bytes in all gaps.
    pub gap_bytes: u64,
    /// Bytes behind the last whole chunk: of a chunk that was cut, or damaged. They are a gap, too.
    pub tail_bytes: u64,
    /// Chunks that are missing by their sequence numbers. What is missing at the end cannot be known.
    pub lost_chunks: u64,
    /// IDs that the missing chunks accounted for, as far as the totals of the frames around them tell. Exact where
    /// batches are unpacked; else the samples of the first batch behind a gap count as lost, too.
    pub lost_ids: u64,
    /// Whole parts of a merged archive that are missing before this one.
    pub lost_parts: u64,
    /// Whole chunks of a kind or kind version that this program does not know. They were skipped.
    pub unknown_chunks: u64,
    /// Whole chunks, unknown ones included.
    pub whole_chunks: u64,
    /// The last chunk but for an index is [`End`](crate::record::End): the recording ended by itself.
    pub ended: bool,
}

impl Damage {
    /// Whether every byte of the archive is as it was written. A recording that did not end by itself may be.
    pub fn is_none(&self) -> bool {
        self.gap_count == 0 && !self.header_copy && self.lost_parts == 0
    }

    /// Add what happened to a copy of what this is the account of: to a part of a merged archive since it was merged.
    /// Gaps of the copy stand behind the others; their places are those in the copy.
    pub fn add_copy(&mut self, copy: &Self) {
        self.header_copy |= copy.header_copy;
        let room = MAX_GAPS.saturating_sub(self.gaps.len());
        self.gaps.extend(copy.gaps.iter().take(room));
        for (sum, more) in [
            (&mut self.gap_count, copy.gap_count),
            (&mut self.gap_bytes, copy.gap_bytes),
            (&mut self.tail_bytes, copy.tail_bytes),
            (&mut self.lost_chunks, copy.lost_chunks),
            (&mut self.lost_ids, copy.lost_ids),
            (&mut self.lost_parts, copy.lost_parts),
        ] {
            *sum = sum.saturating_add(more);
        }
        self.unknown_chunks = self.unknown_chunks.min(copy.unknown_chunks);
        self.whole_chunks = self.whole_chunks.min(copy.whole_chunks);
        self.ended &= copy.ended;
    }

    pub(crate) fn push(&mut self, gap: Gap) {
        self.gap_count += 1;
        self.gap_bytes += gap.end - gap.start;
        self.lost_ids = self.lost_ids.saturating_add(gap.lost_ids);
        if self.gaps.len() < MAX_GAPS {
            self.gaps.push(gap);
        }
    }
}

/// A piece of the archive between two whole chunks that is not as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gap {
    /// First byte.
    pub start: u64,
    /// Byte behind the last. Equal to `start` where chunks were cut out and nothing else was harmed.
    pub end: u64,
    /// First sequence number that is missing.
    pub first_seq: u32,
    /// Sequence number behind the last that is missing; `None` at the end of the archive.
    pub next_seq: Option<u32>,
    /// IDs that the missing chunks accounted for; at the end of the archive at least that many.
    pub lost_ids: u64,
    /// What was found first.
    pub cause: Cause,
}

/// What is wrong with a piece of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// No frame where one should stand.
    NoFrame,
    /// The archive ends within a chunk.
    Cut,
    /// The frame states a length that no chunk may have.
    Length,
    /// The checksum of the content does not hold.
    Checksum,
    /// The zstd frame is not acceptable or cannot be unpacked.
    Compression,
    /// The content is refused.
    Content(Invalid),
    /// A sequence number that does not follow.
    Sequence,
}

impl Cause {
    /// Name in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoFrame => "no-frame",
            Self::Cut => "cut",
            Self::Length => "length",
            Self::Checksum => "checksum",
            Self::Compression => "compression",
            Self::Content(_) => "content",
            Self::Sequence => "sequence",
        }
    }
}
