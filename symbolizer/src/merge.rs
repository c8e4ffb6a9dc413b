//! Several archives as one: each stays a part with its own tables, IDs, boot and totals. Knows no stacks and no names.
//!
//! Whole chunks are copied as they are, one at a time, so memory does not grow with what is merged and nothing can change
//! on the way. What an input lost is written behind its chunks.

use std::io::Write;
use std::path::{Path, PathBuf};

use rawstack_format::record::{Part, Record};
use rawstack_format::{Chunk, ChunkInfo, Counters, Damage, Header, Kind, Reader, Writer};

use crate::copied::Unwinding;
use crate::error::{Error, Result};
use crate::profile::load;
use crate::scrub::{Piece, Scrub};
use crate::text::clean;

type Input = Reader<load::Input>;

/// Archives to merge, in order, each known to begin as one.
#[derive(Debug)]
pub struct Inputs {
    paths: Vec<PathBuf>,
    /// Standard input, which cannot be opened twice.
    standard: Option<Input>,
    salt: u32,
    drops_copies: bool,
    unwinding: Option<Unwinding>,
}

/// What was merged.
#[derive(Debug, Default)]
pub struct Merged {
    /// Archives that were no merged ones, and parts of those that were.
    pub parts: u64,
    /// Chunks that were taken.
    pub chunks: u64,
    /// Chunks of copies that were left out.
    pub dropped: u64,
    /// Parts that were not whole: their names, and what was missing.
    pub damaged: Vec<(String, Damage)>,
    /// What there is to say of stacks that were unwound.
    pub unwound: Vec<String>,
}

impl Inputs {
    /// Read the headers of `paths` (`-`: standard input).
    pub fn open(paths: Vec<PathBuf>) -> Result<Self> {
        let mut standard = None;
        let is_standard = |path: &&PathBuf| path.as_path() == Path::new("-");
        if paths.iter().filter(is_standard).count() > 1 {
            return Err(Error::StandardInputTwice);
        }
        // The same archives make the same salt, and others another.
        let mut salt = u32::try_from(paths.len()).unwrap_or(u32::MAX);
        for path in &paths {
            let input = open(path)?;
            salt = (salt.rotate_left(5) ^ input.header().salt).wrapping_mul(0x9e37_79b1);
            if path == Path::new("-") {
                standard = Some(input);
            }
        }
        Ok(Self {
            paths,
            standard,
            salt,
            drops_copies: false,
            unwinding: None,
        })
    }

    /// Leave out copies of stacks: memory of the recorded programs.
    #[must_use]
    pub fn dropping_copies(mut self, drops_copies: bool) -> Self {
        self.drops_copies = drops_copies;
        self
    }

    /// Leave out copies of stacks, and put what they are unwound to in their place.
    #[must_use]
    pub fn unwinding_copies(mut self, unwinding: Option<Unwinding>) -> Self {
        self.drops_copies |= unwinding.is_some();
        self.unwinding = unwinding;
        self
    }

    /// Salt for the merged archive.
    pub fn salt(&self) -> u32 {
        self.salt
    }

    /// Copy all whole chunks to `writer`, which is one of a merged archive; `done` is called behind each input.
    pub fn merge<W: Write>(mut self, writer: &mut Writer<W>, done: &dyn Fn()) -> Result<Merged> {
        let mut merger = Merger {
            writer,
            merged: Merged::default(),
            counters: Counters::default(),
            is_closed: false,
            drops_copies: self.drops_copies,
            scrub: self.unwinding.take().map(Scrub::new),
        };
        let last = self.paths.len().saturating_sub(1);
        for (number, path) in self.paths.iter().enumerate() {
            let standard = self.standard.take_if(|_| path == Path::new("-"));
            let input = match standard {
                Some(input) => input,
                None => open(path)?,
            };
            merger.take(input.keeping_stored(), path, number == last)?;
            done();
        }
        let told = merger.scrub.map(|scrub| scrub.told);
        merger.merged.unwound = told.unwrap_or_default();
        Ok(merger.merged)
    }
}

fn open(path: &Path) -> Result<Input> {
    Reader::new(load::input(path)?).map_err(|source| Error::Archive {
        path: path.to_owned(),
        source,
    })
}

fn is_part(record: &Record) -> bool {
    matches!(record, Record::Part(_))
}

struct Merger<'w, W> {
    writer: &'w mut Writer<W>,
    merged: Merged,
    /// Totals of the part at hand.
    counters: Counters,
    /// The last part is closed, and no other begun.
    is_closed: bool,
    /// Copies of stacks are left out.
    drops_copies: bool,
    /// Puts what they are unwound to in their place.
    scrub: Option<Scrub>,
}

/// A part while it is copied.
#[derive(Default)]
struct Open {
    /// Its number in the input.
    number: u16,
    /// What the input, a merged archive, says of it.
    told: Option<Part>,
    /// Bytes of its chunks.
    bytes: u64,
    /// End of its last chunk in the input.
    end: u64,
}

impl Open {
    /// The part that the chunk is of, with nothing taken.
    fn at(info: &ChunkInfo) -> Self {
        Self {
            number: info.part,
            ..Self::default()
        }
    }

    /// What it was: as a merged archive says, or as is seen. `damage` is what the input's reader found in it.
    fn tell(mut self, header: &Header, path: &Path, damage: Damage) -> Part {
        match self.told.take() {
            Some(mut told) => {
                told.damage.add_copy(&damage);
                told.is_last = false;
                told
            }
            None => self.describe(header, path, damage),
        }
    }

    /// What a merged archive does not say of it, or what an archive that is none is.
    fn describe(&self, header: &Header, path: &Path, damage: Damage) -> Part {
        let path = path.display();
        let (name, bytes) = if header.has_parts() {
            let number = u32::from(self.number) + 1;
            (format!("part {number} of {path}"), self.bytes)
        } else {
            (path.to_string(), self.end.saturating_add(damage.tail_bytes))
        };
        Part {
            name,
            bytes,
            format: (header.major, header.minor),
            damage,
            ..Part::default()
        }
    }
}

impl<W: Write> Merger<'_, W> {
    /// Copy one input.
    fn take(&mut self, mut input: Input, path: &Path, is_last: bool) -> Result<()> {
        let failed = |source| Error::Archive {
            path: path.to_owned(),
            source,
        };
        let mut open = None;
        while let Some(chunk) = input.next().map_err(failed)? {
            let mut part = open.take().unwrap_or_else(|| Open::at(&chunk.info));
            if part.number != chunk.info.part {
                let damage = input.last_part().cloned().unwrap_or_default();
                let told = part.tell(input.header(), path, damage);
                self.close(told)?;
                part = Open::at(&chunk.info);
            }
            part.bytes = part.bytes.saturating_add(chunk.info.len_in_file());
            part.end = chunk.info.position.saturating_add(chunk.info.len_in_file());
            self.chunk(chunk, &mut part)?;
            open = Some(part);
        }
        let part = open.unwrap_or_default();
        let is_whole = part.told.as_ref().is_some_and(|told| told.is_last);
        let mut told = part.tell(input.header(), path, input.damage().clone());
        told.is_cut |= input.header().has_parts() && !is_whole;
        told.is_last = is_last;
        self.close(told)
    }

    /// Copy one chunk of `part`.
    fn chunk(&mut self, mut chunk: Chunk, part: &mut Open) -> Result<()> {
        let is_copies = chunk.info.kind == Kind::STACK_COPIES;
        self.merged.dropped += u64::from(is_copies && self.drops_copies);
        if let Some(Record::Part(told)) = chunk.record.take_if(|held| is_part(held)) {
            part.told = Some(told);
            return Ok(());
        }
        if chunk.info.kind == Kind::INDEX {
            return Ok(());
        }
        match self.scrub.take() {
            Some(mut scrub) => {
                let done = scrub.take(chunk, &mut |piece, counters| self.put(piece, counters));
                self.scrub = Some(scrub);
                done
            }
            None if is_copies && self.drops_copies => Ok(()),
            None => match chunk.stored {
                Some(stored) => self.put(Piece::Stored(Box::new(stored)), chunk.info.counters),
                None => Ok(()),
            },
        }
    }

    fn put(&mut self, piece: Piece, counters: Counters) -> Result<()> {
        self.begin()?;
        self.counters = counters;
        let written = match piece {
            Piece::Stored(stored) => self.writer.append(&stored, counters),
            Piece::Record(record) => self.writer.write(&record, counters),
        };
        written.map_err(Error::Merge)?;
        self.merged.chunks += 1;
        Ok(())
    }

    /// Make sure that what comes is not of a part that is closed.
    fn begin(&mut self) -> Result<()> {
        if self.is_closed {
            self.writer.next_part().map_err(Error::Merge)?;
            self.counters = Counters::default();
            self.is_closed = false;
        }
        Ok(())
    }

    /// Say behind a part's chunks what it was.
    fn close(&mut self, part: Part) -> Result<()> {
        if let Some(mut scrub) = self.scrub.take() {
            let name = clean(&part.name);
            let done = scrub.end(&name, &mut |piece, counters| self.put(piece, counters));
            self.scrub = Some(scrub);
            done?;
        }
        self.begin()?;
        if !part.damage.is_none() || !part.damage.ended || part.is_cut {
            let damaged = (part.name.clone(), part.damage.clone());
            self.merged.damaged.push(damaged);
        }
        let record = Record::Part(part);
        let written = self.writer.write(&record, self.counters);
        written.map_err(Error::Merge)?;
        self.is_closed = true;
        self.merged.parts += 1;
        Ok(())
    }
}
