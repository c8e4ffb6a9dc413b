//! How much each stack took in each run of a command, and in each part of a run. Knows no names.

use std::mem;

use foldhash::HashMap;

use super::load::Shared;
use super::pending::Joined;
use super::rows::{Adder, Apart, Profile, Row, number};
use super::tree::NodeId;
use crate::error::{Error, Result};

/// Parts that a run is cut into where it has to stand for several.
pub const BLOCKS: u32 = 24;
/// Runs of all archives together that are told apart, in blocks or whole.
///
/// A sample says which run it is of, so an archive can be made in which each is of another one.
pub const MAX_PARTS: usize = 1 << 14;

/// A run of a command in an archive, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Part {
    /// Number of the archive.
    pub archive: u32,
    /// Number of the run in it.
    pub run: u32,
    /// Number of the block in the run; 0 where runs are whole.
    pub block: u32,
}

/// Samples of one stack in one part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunCell {
    /// Stack, an index into [`RunCounts::stacks`].
    pub stack: u32,
    /// Part, an index into [`RunCounts::parts`].
    pub part: u32,
    /// Number of samples.
    pub samples: u64,
    /// Sum of the weights, in the event's unit.
    pub weight: u64,
    /// Sum of the weights' squares.
    pub squares: f64,
}

/// Start and end of runs, monotonic nanoseconds, by archive and run.
pub type Spans = HashMap<(u32, u32), (u64, u64)>;

/// What samples of one stack in one part sum up to.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    samples: u64,
    weight: u64,
    squares: f64,
}

impl Sum {
    fn add(&mut self, more: Self) {
        self.samples += more.samples;
        self.weight = self.weight.saturating_add(more.weight);
        self.squares += more.squares;
    }
}

/// Samples by stack and run, in the order in which they were first met.
#[derive(Debug, Default)]
pub struct RunCounts {
    /// Distinct stacks; thread, CPU, weight and number are not told.
    pub stacks: Vec<Row>,
    /// Parts.
    pub parts: Vec<Part>,
    /// Cells, by stack, then part; there once [`finish`](Self::finish) was called.
    pub cells: Vec<RunCell>,
    stack_index: HashMap<Row, u32>,
    part_index: HashMap<Part, u32>,
    /// For each node of the tree the stack that it was last the leaf of: most are of one stack only.
    by_leaf: Vec<u32>,
    /// The part of the last sample. Those of one part come together.
    part: Option<(Part, u32)>,
    /// By stack what was met of it since the part began, ...
    sums: Vec<Sum>,
    /// ... and the stacks that were.
    met: Vec<u32>,
    /// What was met in parts before.
    cell_index: HashMap<(u32, u32), Sum>,
    /// Where runs are told in blocks: when each begins and ends.
    spans: Option<Spans>,
    /// Samples of runs that are not among `spans`.
    pub outside: u64,
}

impl RunCounts {
    /// Counts of whole runs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts by [`BLOCKS`] of each of the runs in `spans`; others do not count.
    pub fn in_blocks(spans: Spans) -> Self {
        Self {
            spans: Some(spans),
            ..Self::default()
        }
    }

    /// Add one sample of event `event`.
    pub fn add(
        &mut self,
        shared: &Shared,
        sample: &Joined,
        event: u32,
        no_kernel: bool,
    ) -> Result<()> {
        let row = &sample.row;
        let archive = u32::try_from(shared.archives.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let Some(block) = self.block(archive, row.run, row.time_ns) else {
            self.outside += 1;
            return Ok(());
        };
        let part = Part {
            archive,
            run: row.run,
            block,
        };
        if self.part.is_none_or(|(held, _)| held != part) {
            self.begin(part, shared)?;
        }
        let stack = self.stack(sample.stack_row(event, no_kernel));
        let place = stack as usize;
        if self.sums.len() <= place {
            self.sums.resize(place + 1, Sum::default());
        }
        if let Some(sum) = self.sums.get_mut(place) {
            if sum.samples == 0 {
                self.met.push(stack);
            }
            let weight = row.weight as f64;
            sum.add(Sum {
                samples: 1,
                weight: row.weight,
                squares: weight * weight,
            });
        }
        Ok(())
    }

    /// Samples of `part` come next.
    fn begin(&mut self, part: Part, shared: &Shared) -> Result<()> {
        self.put_by();
        let known = number(&mut self.part_index, &mut self.parts, part);
        if self.parts.len() > MAX_PARTS {
            let path = shared.archives.last().map(|archive| archive.path.clone());
            return Err(Error::TooManyRuns {
                path: path.unwrap_or_default().into(),
                most: MAX_PARTS,
            });
        }
        self.part = Some((part, known));
        Ok(())
    }

    /// Put what was met in the part at hand to the others.
    fn put_by(&mut self) {
        let Some((_, part)) = self.part.take() else {
            return;
        };
        for stack in self.met.drain(..) {
            if let Some(sum) = self.sums.get_mut(stack as usize) {
                let cell = self.cell_index.entry((stack, part)).or_default();
                cell.add(mem::take(sum));
            }
        }
    }

    /// The number of a stack.
    fn stack(&mut self, row: Row) -> u32 {
        let leaf = if row.user == NodeId::NONE {
            row.kernel
        } else {
            row.user
        };
        let last = self.by_leaf.get(leaf.index()).copied();
        if let Some(stack) = last
            && self.stacks.get(stack as usize) == Some(&row)
        {
            return stack;
        }
        let stack = number(&mut self.stack_index, &mut self.stacks, row);
        if leaf != NodeId::NONE {
            if self.by_leaf.len() <= leaf.index() {
                self.by_leaf.resize(leaf.index() + 1, u32::MAX);
            }
            if let Some(slot) = self.by_leaf.get_mut(leaf.index()) {
                *slot = stack;
            }
        }
        stack
    }

    /// The block of a time; 0 where runs are whole, none outside of all spans.
    fn block(&self, archive: u32, run: u32, time_ns: u64) -> Option<u32> {
        let Some(spans) = &self.spans else {
            return Some(0);
        };
        let &(start, end) = spans.get(&(archive, run))?;
        let length = u128::from(end.saturating_sub(start).max(1));
        let block = u128::from(time_ns.saturating_sub(start)) * u128::from(BLOCKS) / length;
        Some(u32::try_from(block).unwrap_or(u32::MAX).min(BLOCKS - 1))
    }

    /// Sort the cells; gives the profile of what was read, without rows.
    pub fn finish(&mut self, shared: Shared) -> Profile {
        self.put_by();
        (self.stack_index, self.by_leaf, self.sums) = Default::default();
        let cells = self.cell_index.drain().map(|((stack, part), sum)| RunCell {
            stack,
            part,
            samples: sum.samples,
            weight: sum.weight,
            squares: sum.squares,
        });
        self.cells = cells.collect();
        self.cell_index = HashMap::default();
        self.cells
            .sort_unstable_by_key(|cell| (cell.stack, cell.part));
        Adder::new(Apart::NoRows).finish(shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a run's first and last instant are in its first and last block, and what is in none.
    #[test]
    fn blocks_of_a_run() {
        let spans = [((0, 1), (1000, 3400))].into_iter().collect();
        let counts = RunCounts::in_blocks(spans);
        let block = |time| counts.block(0, 1, time);
        assert_eq!(
            (block(1000), block(1099), block(1100), block(3400)),
            (Some(0), Some(0), Some(1), Some(23))
        );
        assert_eq!(counts.block(0, 0, 2000), None);
        assert_eq!(RunCounts::new().block(0, 7, 2000), Some(0));
    }
}
