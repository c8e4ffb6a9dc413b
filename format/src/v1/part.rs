//! The last chunk of a part of a merged archive: what the part was, and what was missing in it.

use rkyv::{Archive, Serialize};

use super::blobs::{BlobReader, BlobWriter, Blobs};
use super::column::{pack, unpack, unpack_as};
use super::{checked_rows, row_count};
use crate::damage::{Cause, Damage, Gap, MAX_GAPS};
use crate::error::Invalid;
use crate::record::Part;

/// Causes of gaps, in the order of their numbers. Those of content follow.
const CAUSES: [Cause; 6] = [
    Cause::NoFrame,
    Cause::Cut,
    Cause::Length,
    Cause::Checksum,
    Cause::Compression,
    Cause::Sequence,
];

/// Reasons why content was refused, in the order of their numbers behind [`FIRST_CONTENT`].
const CONTENTS: [Invalid; 6] = [
    Invalid::Layout,
    Invalid::Rows,
    Invalid::Column,
    Invalid::Text,
    Invalid::Value,
    Invalid::Reference,
];

/// Number of the first reason why content was refused.
const FIRST_CONTENT: usize = 16;

/// Part chunk. Blob: name.
#[derive(Archive, Serialize)]
pub(crate) struct PartRoot {
    pub(crate) bytes: u64,
    pub(crate) gap_count: u64,
    pub(crate) gap_bytes: u64,
    pub(crate) tail_bytes: u64,
    pub(crate) lost_chunks: u64,
    pub(crate) lost_ids: u64,
    pub(crate) unknown_chunks: u64,
    pub(crate) whole_chunks: u64,
    pub(crate) lost_parts: u32,
    pub(crate) major: u32,
    pub(crate) minor: u32,
    /// Bit 0: the last part; bit 1: a copy of the header was damaged; bit 2: the recording ended by itself;
    /// bit 3: a merged archive ended with it before its last part.
    pub(crate) flags: u32,
    pub(crate) gaps: u32,
    pub(crate) gap_start: Vec<u8>,
    pub(crate) gap_end: Vec<u8>,
    pub(crate) gap_first_seq: Vec<u8>,
    /// Number + 1; 0 where there is none.
    pub(crate) gap_next_seq: Vec<u8>,
    pub(crate) gap_lost_ids: Vec<u8>,
    pub(crate) gap_cause: Vec<u8>,
    pub(crate) blobs: Blobs,
}

pub(crate) fn encode(part: &Part) -> Result<PartRoot, Invalid> {
    let damage = &part.damage;
    let gaps = damage.gaps.get(..MAX_GAPS).unwrap_or(&damage.gaps);
    let mut blobs = BlobWriter::default();
    blobs.push(part.name.as_bytes());
    Ok(PartRoot {
        bytes: part.bytes,
        gap_count: damage.gap_count,
        gap_bytes: damage.gap_bytes,
        tail_bytes: damage.tail_bytes,
        lost_chunks: damage.lost_chunks,
        lost_ids: damage.lost_ids,
        unknown_chunks: damage.unknown_chunks,
        whole_chunks: damage.whole_chunks,
        lost_parts: u32::try_from(damage.lost_parts).unwrap_or(u32::MAX),
        major: part.format.0.into(),
        minor: part.format.1.into(),
        flags: u32::from(part.is_last)
            | u32::from(damage.header_copy) << 1
            | u32::from(damage.ended) << 2
            | u32::from(part.is_cut) << 3,
        gaps: row_count(gaps)?,
        gap_start: pack(gaps.iter().map(|gap| gap.start)),
        gap_end: pack(gaps.iter().map(|gap| gap.end)),
        gap_first_seq: pack(gaps.iter().map(|gap| gap.first_seq)),
        gap_next_seq: pack(
            gaps.iter()
                .map(|gap| gap.next_seq.map_or(0, |seq| u64::from(seq) + 1)),
        ),
        gap_lost_ids: pack(gaps.iter().map(|gap| gap.lost_ids)),
        gap_cause: pack(gaps.iter().map(|gap| number(gap.cause))),
        blobs: blobs.finish()?,
    })
}

pub(crate) fn decode(a: &ArchivedPartRoot) -> Result<Part, Invalid> {
    let small = |number: u32| u16::try_from(number).map_err(|_| Invalid::Value);
    let flags = a.flags.to_native();
    if flags > 15 {
        return Err(Invalid::Value);
    }
    let mut blobs = BlobReader::new(&a.blobs)?;
    let name = blobs.string()?;
    blobs.finish()?;
    Ok(Part {
        name,
        bytes: a.bytes.to_native(),
        format: (small(a.major.to_native())?, small(a.minor.to_native())?),
        is_last: flags & 1 != 0,
        is_cut: flags & 8 != 0,
        damage: Damage {
            header_copy: flags & 2 != 0,
            gaps: decode_gaps(a)?,
            gap_count: a.gap_count.to_native(),
            gap_bytes: a.gap_bytes.to_native(),
            tail_bytes: a.tail_bytes.to_native(),
            lost_chunks: a.lost_chunks.to_native(),
            lost_ids: a.lost_ids.to_native(),
            lost_parts: a.lost_parts.to_native().into(),
            unknown_chunks: a.unknown_chunks.to_native(),
            whole_chunks: a.whole_chunks.to_native(),
            ended: flags & 4 != 0,
        },
    })
}

fn decode_gaps(a: &ArchivedPartRoot) -> Result<Vec<Gap>, Invalid> {
    let rows = checked_rows(a.gaps.to_native())?;
    if rows > MAX_GAPS {
        return Err(Invalid::Rows);
    }
    let starts = unpack(&a.gap_start, rows)?;
    let ends = unpack(&a.gap_end, rows)?;
    let firsts: Vec<u32> = unpack_as(&a.gap_first_seq, rows)?;
    let nexts = unpack(&a.gap_next_seq, rows)?;
    let lost_ids = unpack(&a.gap_lost_ids, rows)?;
    let causes = unpack(&a.gap_cause, rows)?;
    let gap = |row: usize| {
        let next = |next: u64| u32::try_from(next).map_err(|_| Invalid::Value);
        let (start, end) = (starts[row], ends[row]);
        if end < start {
            return Err(Invalid::Value);
        }
        Ok(Gap {
            start,
            end,
            first_seq: firsts[row],
            next_seq: nexts[row].checked_sub(1).map(next).transpose()?,
            lost_ids: lost_ids[row],
            cause: cause(causes[row])?,
        })
    };
    (0..rows).map(gap).collect()
}

fn number(cause: Cause) -> u64 {
    let place = match cause {
        Cause::Content(content) => CONTENTS
            .iter()
            .position(|held| *held == content)
            .map(|place| place + FIRST_CONTENT),
        other => CAUSES.iter().position(|held| *held == other),
    };
    place.unwrap_or_default() as u64
}

fn cause(number: u64) -> Result<Cause, Invalid> {
    let place = usize::try_from(number).map_err(|_| Invalid::Value)?;
    let content = || CONTENTS.get(place.checked_sub(FIRST_CONTENT)?);
    let found = CAUSES.get(place).copied();
    found
        .or_else(|| content().copied().map(Cause::Content))
        .ok_or(Invalid::Value)
}
