//! How much each stack took in each run of a command, and in each part of a run. Knows no names.

use foldhash::HashMap;
use rawstack_format::record::State;

use super::facts::ThreadId;
use super::load::Shared;
use super::pending::Joined;
use super::rows::{Adder, Apart, Profile, Row};
use super::tree::NodeId;

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

/// What makes samples one stack.
type StackKey = (NodeId, NodeId, u32, State, bool);

/// Samples by stack and run, in the order in which they were first met.
#[derive(Debug, Default)]
pub struct RunCounts {
    /// Distinct stacks; thread, CPU, weight and number are not told.
    pub stacks: Vec<Row>,
    /// Parts.
    pub parts: Vec<Part>,
    /// Cells, by stack, then part; there once [`finish`](Self::finish) was called.
    pub cells: Vec<RunCell>,
    stack_index: HashMap<StackKey, u32>,
    /// The part of the last sample: the next one is nearly always of the same.
    last: Option<(Part, u32)>,
    part_index: HashMap<Part, u32>,
    /// Cells of each stack, in the order in which they were met: as many as there are parts at most.
    of_stack: Vec<Vec<RunCell>>,
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
        let (kernel, kernel_cut) = sample.kernel_half(no_kernel);
        let stack = self.stack((kernel, sample.user, event, row.state, kernel_cut));
        let part = self.part(Part {
            archive,
            run: row.run,
            block,
        });
        let Some(cells) = self.of_stack.get_mut(stack as usize) else {
            return;
        };
        // Samples come run by run, so it is nearly always the last.
        let place = cells.iter().rposition(|cell| cell.part == part);
        let place = place.unwrap_or_else(|| {
            cells.push(RunCell {
                stack,
                part,
                samples: 0,
                weight: 0,
                squares: 0.0,
            });
            cells.len() - 1
        });
        if let Some(cell) = cells.get_mut(place) {
            let weight = row.weight as f64;
            cell.samples += 1;
            cell.weight = cell.weight.saturating_add(row.weight);
            cell.squares += weight * weight;
        }
    }

    /// The number of a stack.
    fn stack(&mut self, key: StackKey) -> u32 {
        let next = u32::try_from(self.stacks.len()).unwrap_or(u32::MAX);
        let number = *self.stack_index.entry(key).or_insert(next);
        if number == next {
            let (kernel, user, event, state, kernel_cut) = key;
            self.stacks.push(Row {
                kernel,
                user,
                thread: ThreadId(0),
                event,
                cpu: 0,
                state,
                kernel_cut,
                weight: 0,
                samples: 0,
            });
            self.of_stack.push(Vec::new());
        }
        number
    }

    /// The number of a part.
    fn part(&mut self, part: Part) -> u32 {
        if let Some((last, number)) = self.last
            && last == part
        {
            return number;
        }
        let next = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        let number = *self.part_index.entry(part).or_insert(next);
        if number == next {
            self.parts.push(part);
        }
        self.last = Some((part, number));
        number
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
        for mut cells in self.of_stack.drain(..) {
            cells.sort_unstable_by_key(|cell| cell.part);
            self.cells.append(&mut cells);
        }
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
