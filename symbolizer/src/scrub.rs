//! The chunks of an archive with its copies of stacks as plain stacks by address: what was in memory is left out. Knows no
//! order of files and writes none itself.

use rawstack_format::record::{Batch, Record};
use rawstack_format::{Chunk, Counters, Encoded};

use crate::copied::{Ahead, EndCounts, HasRecord, Rewriter, Unwinding, UnwoundCopies};
use crate::error::Result;
use crate::profile::ModuleId;
use crate::profile::tree::shown_path;
use crate::report::unwound;

/// What is to be written.
#[derive(Debug)]
pub(crate) enum Piece {
    /// A chunk as it was.
    Stored(Box<Encoded>),
    /// A new one.
    Record(Box<Record>),
}

/// Writes a piece, with the totals up to it.
pub(crate) type Write<'w> = dyn FnMut(Piece, Counters) -> Result<()> + 'w;

/// A chunk on its way.
#[derive(Debug)]
struct Item {
    record: Option<Record>,
    stored: Option<Encoded>,
    counters: Counters,
}

impl HasRecord for Item {
    fn record(&self) -> Option<&Record> {
        self.record.as_ref()
    }
}

/// Turns the chunks of one archive after the other.
#[derive(Debug)]
pub(crate) struct Scrub {
    unwinding: Unwinding,
    archive: u32,
    ahead: Ahead<Item>,
    rewriter: Rewriter,
    /// Totals of what was written last.
    counters: Counters,
    /// One line on each archive with stacks that do not reach their outermost frame.
    pub(crate) told: Vec<String>,
}

impl Scrub {
    /// Nothing has come.
    pub(crate) fn new(unwinding: Unwinding) -> Self {
        Self {
            unwinding,
            archive: 0,
            ahead: Ahead::new(0),
            rewriter: Rewriter::default(),
            counters: Counters::default(),
            told: Vec::new(),
        }
    }

    /// Take a chunk; `write` gets what is ready.
    pub(crate) fn take(&mut self, chunk: Chunk, write: &mut Write<'_>) -> Result<()> {
        let item = match chunk.record {
            Some(Record::StackCopies(copies)) => {
                let stored_len = chunk.info.stored_len;
                self.ahead.copies((copies, stored_len), &mut self.unwinding);
                return self.give(false, write);
            }
            record => Item {
                record,
                stored: chunk.stored,
                counters: chunk.info.counters,
            },
        };
        self.ahead.push(item, &mut self.unwinding);
        self.give(false, write)
    }

    /// The archive called `name` ends here.
    pub(crate) fn end(&mut self, name: &str, write: &mut Write<'_>) -> Result<()> {
        self.ahead.end(&mut self.unwinding);
        self.give(true, write)?;
        let mut ends = EndCounts::default();
        for (end, count) in self.rewriter.ends.iter() {
            ends.add_many(end.map(|id| ModuleId(id.0)), count);
        }
        let path = |id: ModuleId| {
            let row = self.unwinding.row(crate::unwind::ModuleId(id.0));
            row.map_or_else(String::new, shown_path)
        };
        let total = ends.total();
        if total > 0 {
            self.told.push(match unwound::line(&ends, &path) {
                Some(line) => format!(
                    "{name}: {line}; what is longer of these and the recorded ones was kept"
                ),
                None => format!("{name}: all of {total} user stacks reach their end"),
            });
        }
        self.archive += 1;
        self.ahead = Ahead::new(self.archive);
        self.rewriter = Rewriter::default();
        self.counters = Counters::default();
        Ok(())
    }

    fn give(&mut self, all: bool, write: &mut Write<'_>) -> Result<()> {
        while let Some((item, unwound)) = self.ahead.pop(all, &self.unwinding) {
            match item {
                Some(Item {
                    record: Some(Record::Batch(batch)),
                    counters,
                    ..
                }) => self.batch(batch, unwound, counters, write)?,
                Some(item) => {
                    self.counters = item.counters;
                    if let Some(stored) = item.stored {
                        write(Piece::Stored(Box::new(stored)), item.counters)?;
                    }
                }
                None => {}
            }
        }
        Ok(())
    }

    fn batch(
        &mut self,
        batch: Batch,
        unwound: Option<UnwoundCopies>,
        counters: Counters,
        write: &mut Write<'_>,
    ) -> Result<()> {
        let rewriter = &mut self.rewriter;
        let batches = rewriter.rewrite(self.archive, batch, unwound, &mut self.unwinding);
        let before = self.counters;
        let last = batches.len().saturating_sub(1);
        for (number, batch) in batches.into_iter().enumerate() {
            let totals = if number == last { counters } else { before };
            write(Piece::Record(Box::new(Record::Batch(batch))), totals)?;
        }
        self.counters = counters;
        Ok(())
    }
}
