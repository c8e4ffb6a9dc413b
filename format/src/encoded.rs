//! One record as the payload of a chunk, apart from any archive: it can be kept, and put into one archive or several.

use std::fmt;
use std::mem;

use rkyv::util::AlignedVec;

use crate::chunk::{ChunkInfo, Counters, FRAME_LEN, Kind, MAX_RAW_LEN, span_us};
use crate::compress::Compressor;
use crate::content;
use crate::error::{Error, Result};
use crate::index::Index;
use crate::record::{Batch, Record};
use crate::v1;

/// The least level for copies of stacks: it saves a tenth of them.
const COPIES_LEVEL: i32 = 3;

/// Turns records into payloads.
pub struct Encoder {
    compressor: Compressor,
    level: i32,
    raw: AlignedVec,
    /// Where a payload is made, before it gets memory of its own length.
    payload: Vec<u8>,
}

/// A record, encoded and compressed.
#[derive(Clone, PartialEq, Eq)]
pub struct Encoded {
    kind: Kind,
    /// Version of that kind's layout.
    version: u8,
    /// Length of the zstd frame; the payload is padded to a multiple of [`FRAME_LEN`].
    stored_len: u32,
    raw_len: u32,
    /// Earliest and latest time inside, 0 where there is none.
    times: (u64, u64),
    payload: Box<[u8]>,
    payload_crc: u32,
}

impl Encoder {
    /// Compress at zstd's `level`, 1 to 19.
    pub fn new(level: i32) -> Result<Self> {
        Ok(Self {
            compressor: Compressor::new().map_err(Error::Compress)?,
            level,
            raw: AlignedVec::new(),
            payload: Vec::new(),
        })
    }

    /// Encode a record. One that is too large or contradicts itself is refused.
    pub fn encode(&mut self, record: &Record) -> Result<Encoded> {
        self.raw =
            content::encode(record, mem::take(&mut self.raw)).map_err(Error::InvalidRecord)?;
        self.encode_raw(content::kind(record), times(record))
    }

    pub(crate) fn encode_index(&mut self, index: &Index) -> Result<Encoded> {
        self.raw = index
            .to_raw(mem::take(&mut self.raw))
            .map_err(Error::InvalidRecord)?;
        self.encode_raw(Kind::INDEX, (0, 0))
    }

    fn encode_raw(&mut self, kind: Kind, times: (u64, u64)) -> Result<Encoded> {
        if self.raw.len() > MAX_RAW_LEN {
            let len = mem::take(&mut self.raw).len();
            return Err(Error::ChunkTooLarge { len });
        }
        let blocks = v1::block_ends(kind, &self.raw);
        let level = match kind {
            Kind::STACK_COPIES => self.level.max(COPIES_LEVEL),
            _ => self.level,
        };
        self.payload.clear();
        self.compressor
            .compress(&self.raw, (level, &blocks), &mut self.payload)
            .map_err(Error::Compress)?;
        let stored_len = self.payload.len();
        self.payload
            .resize(stored_len.next_multiple_of(FRAME_LEN), 0);
        Ok(Encoded {
            kind,
            version: content::VERSION,
            stored_len: length(stored_len),
            raw_len: length(self.raw.len()),
            times,
            payload_crc: crc32c::crc32c(&self.payload),
            payload: self.payload.as_slice().into(),
        })
    }
}

impl Encoded {
    /// A whole chunk as it was read: what `info` says of it, and its zstd frame with the padding behind it.
    pub(crate) fn copied(info: &ChunkInfo, payload: &[u8], payload_crc: u32) -> Self {
        Self {
            kind: info.kind,
            version: info.version,
            stored_len: info.stored_len,
            raw_len: info.raw_len,
            times: (info.first_ns, info.last_ns),
            payload: payload.into(),
            payload_crc,
        }
    }

    /// What is inside.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Length of the chunk in an archive, with frame and padding, in bytes.
    pub fn len_in_file(&self) -> u64 {
        (FRAME_LEN + self.payload.len()) as u64
    }

    /// The zstd frame and the padding behind it.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    pub(crate) fn payload_crc(&self) -> u32 {
        self.payload_crc
    }

    /// What the frame says of it when it stands at `position` in part 0, with this number and these totals.
    pub(crate) fn info(&self, position: u64, seq: u32, counters: Counters) -> ChunkInfo {
        let (first_ns, last_ns) = self.times;
        ChunkInfo {
            position,
            kind: self.kind,
            version: self.version,
            part: 0,
            seq,
            stored_len: self.stored_len,
            raw_len: self.raw_len,
            first_ns,
            last_ns: first_ns.saturating_add(u64::from(span_us(first_ns, last_ns)) * 1000),
            counters,
        }
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoded")
            .field("kind", &self.kind)
            .field("raw_len", &self.raw_len)
            .field("stored_len", &self.stored_len)
            .finish_non_exhaustive()
    }
}

/// A length that the caller has bounded by [`MAX_STORED_LEN`](crate::MAX_STORED_LEN).
fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Earliest and latest time of what is inside; (0, 0) where there is none.
fn times(record: &Record) -> (u64, u64) {
    match record {
        Record::Recording(recording) => (recording.start_ns, recording.start_ns),
        Record::Batch(batch) => batch_times(batch),
        Record::JitMap(map) => (map.time_ns, map.time_ns),
        Record::Runs(runs) => range(
            runs.iter()
                .flat_map(|run| [run.start_ns, run.end_ns.max(run.start_ns)]),
        ),
        Record::End(end) => (end.end_ns, end.end_ns),
        Record::Part(_)
        | Record::KernelSymbols(_)
        | Record::KernelModules(_)
        | Record::Vdso(_)
        | Record::StackCopies(_) => (0, 0),
    }
}

/// Times of samples, completions and drops; of the tables only where there is nothing else, since their rows may tell
/// of what began long before.
fn batch_times(batch: &Batch) -> (u64, u64) {
    let samples = batch.samples.iter().map(|s| s.time_ns);
    let completions = batch.completions.iter().map(|c| c.time_ns);
    let drops = batch.drops.iter().flat_map(|d| [d.from_ns, d.to_ns]);
    if batch.samples.is_empty() && batch.completions.is_empty() && batch.drops.is_empty() {
        let processes = batch.processes.iter().map(|p| p.since_ns);
        let threads = batch.threads.iter().map(|t| t.since_ns);
        let mappings = batch.mappings.iter().map(|m| m.since_ns);
        range(processes.chain(threads).chain(mappings))
    } else {
        range(samples.chain(completions).chain(drops))
    }
}

fn range(times: impl Iterator<Item = u64> + Clone) -> (u64, u64) {
    (times.clone().min().unwrap_or(0), times.max().unwrap_or(0))
}
