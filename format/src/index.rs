//! The optional last chunk: where chunks stand. It saves a scan; nothing depends on it.

use std::io::{self, Read, Seek, SeekFrom};

use rkyv::util::AlignedVec;
use rkyv::{Archive, Serialize};
use zstd::bulk::Decompressor;

use crate::chunk::{ChunkInfo, FRAME_LEN, Frame, Kind, MAX_STORED_LEN};
use crate::compress;
use crate::error::Invalid;
use crate::header::{HEADER_LEN, Header};
use crate::v1::{access, to_bytes};

/// Most entries of an index; a longer archive is listed with a stride.
pub(crate) const MAX_ENTRIES: usize = 1 << 14;

/// Where some chunks stand, by rising sequence number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// Every `stride`th chunk.
    pub stride: u32,
    /// The chunks.
    pub entries: Vec<IndexEntry>,
}

/// Where one chunk stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Position of its frame, in bytes.
    pub position: u64,
    /// Its earliest time.
    pub first_ns: u64,
    /// Its kind.
    pub kind: Kind,
}

/// Index chunk. Plain numbers, 24 bytes an entry.
#[derive(Archive, Serialize)]
pub(crate) struct IndexRoot {
    pub(crate) stride: u32,
    pub(crate) entries: Vec<EntryRoot>,
}

/// One entry.
#[derive(Archive, Serialize)]
pub(crate) struct EntryRoot {
    pub(crate) position: u64,
    pub(crate) first_ns: u64,
    pub(crate) kind: u64,
}

impl Index {
    /// Find the index of an archive without reading the rest; `None` where there is none, or not all of it.
    pub fn find<R: Read + Seek>(archive: &mut R) -> io::Result<Option<Self>> {
        let len = archive.seek(SeekFrom::End(0))?;
        let tail_len = len.min((2 * FRAME_LEN + MAX_STORED_LEN) as u64);
        let mut head = Vec::new();
        archive.seek(SeekFrom::Start(0))?;
        archive
            .by_ref()
            .take(HEADER_LEN as u64)
            .read_to_end(&mut head)?;
        let Ok((header, _)) = Header::from_bytes(&head) else {
            return Ok(None);
        };
        let start = (len - tail_len).next_multiple_of(FRAME_LEN as u64);
        archive.seek(SeekFrom::Start(start))?;
        let mut tail = Vec::new();
        archive.by_ref().take(tail_len).read_to_end(&mut tail)?;
        let frames = (0..tail.len() / FRAME_LEN)
            .rev()
            .map(|frame| frame * FRAME_LEN);
        let found = frames.filter_map(|at| {
            let frame = Frame::from_bytes(&tail[at..], header.salt, start + at as u64)?;
            Some((frame, &tail[at + FRAME_LEN..]))
        });
        Ok(found
            .take(1)
            .find_map(|(frame, payload)| Self::from_chunk(frame, payload)))
    }

    fn from_chunk(frame: Frame, payload: &[u8]) -> Option<Self> {
        let stored = payload.get(..frame.info.stored_len as usize)?;
        let padded = payload.get(..stored.len().next_multiple_of(FRAME_LEN))?;
        if frame.info.kind != Kind::INDEX || crc32c::crc32c(padded) != frame.payload_crc {
            return None;
        }
        let mut raw = AlignedVec::new();
        let mut decompressor = Decompressor::new().ok()?;
        let whole = compress::decompress(
            &mut decompressor,
            stored,
            frame.info.raw_len as usize,
            &mut raw,
        );
        if whole {
            Self::from_raw(&raw).ok()
        } else {
            None
        }
    }

    fn from_raw(raw: &AlignedVec) -> Result<Self, Invalid> {
        let root: &ArchivedIndexRoot = access(raw)?;
        let entry = |entry: &ArchivedEntryRoot| {
            let kind = u8::try_from(entry.kind.to_native()).map_err(|_| Invalid::Value)?;
            let (position, first_ns) = (entry.position.to_native(), entry.first_ns.to_native());
            Ok(IndexEntry {
                position,
                first_ns,
                kind: Kind(kind),
            })
        };
        let entries = root.entries.iter().map(entry).collect::<Result<_, _>>()?;
        Ok(Self {
            stride: root.stride.to_native(),
            entries,
        })
    }

    /// The bytes of the index's root, in `raw`'s memory.
    pub(crate) fn to_raw(&self, raw: AlignedVec) -> Result<AlignedVec, Invalid> {
        let entry = |entry: &IndexEntry| EntryRoot {
            position: entry.position,
            first_ns: entry.first_ns,
            kind: entry.kind.0.into(),
        };
        to_bytes(
            &IndexRoot {
                stride: self.stride,
                entries: self.entries.iter().map(entry).collect(),
            },
            raw,
        )
    }

    /// Note a chunk. When there are too many, every other entry goes.
    pub(crate) fn push(&mut self, info: &ChunkInfo) {
        self.stride = self.stride.max(1);
        if !info.seq.is_multiple_of(self.stride) {
            return;
        }
        if self.entries.len() == MAX_ENTRIES {
            self.stride *= 2;
            let mut keep = false;
            self.entries.retain(|_| {
                keep = !keep;
                keep
            });
            if !info.seq.is_multiple_of(self.stride) {
                return;
            }
        }
        self.entries.push(IndexEntry {
            position: info.position,
            first_ns: info.first_ns,
            kind: info.kind,
        });
    }
}
