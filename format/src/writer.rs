//! Records to chunks. Knows nothing of files.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io;

use crate::chunk::{ChunkInfo, Counters, Frame};
use crate::encoded::{Encoded, Encoder};
use crate::error::{Error, Result};
use crate::header::{HEADER_LEN, Header};
use crate::index::Index;
use crate::record::Record;

/// How to write.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WriterOptions {
    /// zstd level, 1 to 19. On columns of samples a higher one than 1 takes longer and saves
    /// nothing.
    pub level: i32,
    /// Salt of the archive; drawn at random where `None`. Only tests give one, for the same bytes each time.
    pub salt: Option<u32>,
    /// Whether the archive is a merged one, of [parts](Writer::next_part).
    pub merged: bool,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            level: 1,
            salt: None,
            merged: false,
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
    part: u16,
    merged: bool,
    counters: Counters,
    encoder: Encoder,
    chunk: Vec<u8>,
    index: Index,
}

impl<W: io::Write> Writer<W> {
    /// Start an archive: write its header.
    pub fn new(mut inner: W, options: WriterOptions) -> Result<Self> {
        let encoder = Encoder::new(options.level)?;
        let salt = options.salt.unwrap_or_else(random_salt);
        let header = Header::new(salt, options.merged).to_bytes();
        inner.write_all(&header).map_err(|source| Error::Write {
            position: 0,
            source,
        })?;
        Ok(Self {
            inner,
            salt,
            position: HEADER_LEN as u64,
            next_seq: Some(0),
            part: 0,
            merged: options.merged,
            counters: Counters::default(),
            encoder,
            chunk: Vec::new(),
            index: Index::default(),
        })
    }

    /// Write one record as one chunk. `counters` are the running totals with this record in them.
    ///
    /// A record that is too large or contradicts itself is refused before anything is written.
    pub fn write(&mut self, record: &Record, counters: Counters) -> Result<ChunkInfo> {
        let encoded = self.encoder.encode(record)?;
        self.append(&encoded, counters)
    }

    /// Write what was encoded before, by whatever encoder, as one chunk. `counters` as for [`write`](Self::write).
    pub fn append(&mut self, encoded: &Encoded, counters: Counters) -> Result<ChunkInfo> {
        let seq = self.next_seq.ok_or(Error::TooManyChunks)?;
        let info = ChunkInfo {
            part: self.part,
            ..encoded.info(self.position, seq, counters)
        };
        let frame = Frame {
            salt: self.salt,
            info,
            payload_crc: encoded.payload_crc(),
        };
        self.chunk.clear();
        self.chunk.extend_from_slice(&frame.to_bytes());
        self.chunk.extend_from_slice(encoded.payload());
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

    /// End the part at hand: chunks from here on are of the next one, whose epochs, IDs and totals begin anew.
    ///
    /// Fails in an archive that is not [`merged`](WriterOptions::merged), and when all 65,536 numbers are used.
    pub fn next_part(&mut self) -> Result<()> {
        let next = self.part.checked_add(1).filter(|_| self.merged);
        self.part = next.ok_or(Error::TooManyParts)?;
        self.counters = Counters::default();
        Ok(())
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

    /// Write the index as the last chunk. Where that fails, it can be tried again.
    pub fn end(&mut self) -> Result<()> {
        let encoded = self.encoder.encode_index(&self.index)?;
        self.append(&encoded, self.counters)?;
        self.inner.flush().map_err(|source| Error::Write {
            position: self.position,
            source,
        })
    }

    /// Write the index as the last chunk and give back what the chunks went to.
    pub fn finish(mut self) -> Result<W> {
        self.end()?;
        Ok(self.inner)
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

/// A number that differs from archive to archive: the standard library seeds its hash tables from the system.
fn random_salt() -> u32 {
    let [a, b, c, d, ..] = RandomState::new().hash_one(0).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
