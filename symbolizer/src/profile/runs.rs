//! How much each stack took in each run of a command, and in each part of a run. Knows no names.

use foldhash::HashMap;

use super::load::Shared;
use super::pending::Joined;
use super::rows::{Adder, Apart, Profile, Row, number};

/// Parts that a run is cut into where it has to stand for several.
pub const BLOCKS: u32 = 24;

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
    cell_index: HashMap<(u32, u32), (u64, u64, f64)>,
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
    pub fn add(&mut self, shared: &Shared, sample: &Joined, event: u32, no_kernel: bool) {
        let row = &sample.row;
        let archive = u32::try_from(shared.archives.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let Some(block) = self.block(archive, row.run, row.time_ns) else {
            self.outside += 1;
            return;
        };
        let key = sample.stack_row(event, no_kernel);
        let stack = number(&mut self.stack_index, &mut self.stacks, key);
        let part = number(
            &mut self.part_index,
            &mut self.parts,
            Part {
                archive,
                run: row.run,
                block,
            },
        );
        let cell = self.cell_index.entry((stack, part)).or_default();
        let weight = row.weight as f64;
        cell.0 += 1;
        cell.1 = cell.1.saturating_add(row.weight);
        cell.2 += weight * weight;
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
        self.stack_index = HashMap::default();
        let cells = self
            .cell_index
            .drain()
            .map(|((stack, part), (samples, weight, squares))| RunCell {
                stack,
                part,
                samples,
                weight,
                squares,
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
