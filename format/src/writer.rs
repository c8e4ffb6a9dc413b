//! Records to chunks. Knows nothing of files.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::mem;

use rkyv::util::AlignedVec;

use crate::chunk::{ChunkInfo, Counters, FRAME_LEN, Frame, Kind, MAX_RAW_LEN, span_us};
use crate::compress::Compressor;
use crate::error::{Error, Result};
use crate::header::{HEADER_LEN, Header};
use crate::index::Index;
use crate::record::{Batch, Record};
use crate::v1;

/// How to write.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WriterOptions {
    /// zstd level, 1 to 19. On columns of samples a higher one than 1 takes longer and saves
    /// nothing.
    pub level: i32,
    /// Salt of the archive; drawn at random where `None`. Only tests give one, for the same bytes each time.
    pub salt: Option<u32>,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            level: 1,
            salt: None,
        }
    }
}

/// Writes an archive, chunk by chunk, each with one call of `inner`'s `write_all`.
///
/// A write that fails leaves the writer as it was: the next chunk takes the same sequence number and position, so
/// `inner` has to take back what it wrote in part, as [`ArchiveFile`](crate::ArchiveFile) does.
pub struct Writer<W> {
    inner: W,
    salt: u32,
    position: u64,
    next_seq: Option<u32>,
    counters: Counters,
    compressor: Compressor,
    raw: AlignedVec,
    chunk: Vec<u8>,
    index: Index,
}

impl<W: io::Write> Writer<W> {
    /// Start an archive: write its header.
    pub fn new(mut inner: W, options: WriterOptions) -> Result<Self> {
        let compressor = Compressor::new(options.level).map_err(Error::Compress)?;
        let salt = options.salt.unwrap_or_else(random_salt);
        let header = Header::new(salt).to_bytes();
        inner.write_all(&header).map_err(|source| Error::Write {
            position: 0,
            source,
        })?;
        Ok(Self {
            inner,
            salt,
            position: HEADER_LEN as u64,
            next_seq: Some(0),
            counters: Counters::default(),
            compressor,
            raw: AlignedVec::new(),
            chunk: Vec::new(),
            index: Index::default(),
        })
    }

    /// Write one record as one chunk. `counters` are the running totals with this record in them.
    ///
    /// A record that is too large or contradicts itself is refused before anything is written.
    pub fn write(&mut self, record: &Record, counters: Counters) -> Result<ChunkInfo> {
        self.raw = v1::encode(record, mem::take(&mut self.raw)).map_err(Error::InvalidRecord)?;
        self.write_raw(v1::kind(record), times(record), counters)
    }

    /// Position behind the last chunk, in bytes.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// What the chunks go to.
    pub fn get_ref(&self) -> &W {
        &self.inner
    }

    /// What the chunks go to. Nothing may be written to it.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.inner
    }

    /// Write the index as the last chunk and give back what the chunks went to.
    pub fn finish(mut self) -> Result<W> {
        self.raw = self
            .index
            .to_raw(mem::take(&mut self.raw))
            .map_err(Error::InvalidRecord)?;
        self.write_raw(Kind::INDEX, (0, 0), self.counters)?;
        self.inner.flush().map_err(|source| Error::Write {
            position: self.position,
            source,
        })?;
        Ok(self.inner)
    }

    /// Write `self.raw` as one chunk.
    fn write_raw(
        &mut self,
        kind: Kind,
        times: (u64, u64),
        counters: Counters,
    ) -> Result<ChunkInfo> {
        if self.raw.len() > MAX_RAW_LEN {
            let len = mem::take(&mut self.raw).len();
            return Err(Error::ChunkTooLarge { len });
        }
        let seq = self.next_seq.ok_or(Error::TooManyChunks)?;
        self.chunk.clear();
        self.chunk.resize(FRAME_LEN, 0);
        let blocks = v1::block_ends(kind, &self.raw);
        self.compressor
            .compress(&self.raw, &blocks, &mut self.chunk)
            .map_err(Error::Compress)?;
        let stored_len = self.chunk.len() - FRAME_LEN;
        self.chunk
            .resize(self.chunk.len().next_multiple_of(FRAME_LEN), 0);
        let info = ChunkInfo {
            position: self.position,
            kind,
            version: v1::VERSION,
            seq,
            stored_len: length(stored_len),
            raw_len: length(self.raw.len()),
            first_ns: times.0,
            last_ns: times
                .0
                .saturating_add(u64::from(span_us(times.0, times.1)) * 1000),
            counters,
        };
        let payload_crc = crc32c::crc32c(&self.chunk[FRAME_LEN..]);
        let frame = Frame {
            salt: self.salt,
            info,
            payload_crc,
        }
        .to_bytes();
        self.chunk[..FRAME_LEN].copy_from_slice(&frame);
        self.inner
            .write_all(&self.chunk)
            .map_err(|source| Error::Write {
                position: self.position,
                source,
            })?;
        self.position += self.chunk.len() as u64;
        self.next_seq = seq.checked_add(1);
        self.counters = counters;
        self.index.push(&info);
        Ok(info)
    }
}

impl<W> fmt::Debug for Writer<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("position", &self.position)
            .field("next_seq", &self.next_seq)
            .finish_non_exhaustive()
    }
}

/// A length that the caller has bounded by [`MAX_STORED_LEN`](crate::MAX_STORED_LEN).
fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// A number that differs from archive to archive: the standard library seeds its hash tables from the system.
fn random_salt() -> u32 {
    let [a, b, c, d, ..] = RandomState::new().hash_one(0).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
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
        Record::KernelSymbols(_)
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
