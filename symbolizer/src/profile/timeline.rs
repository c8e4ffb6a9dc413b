//! When samples were taken, by whom and where: counted in cells of stack, thread, CPU and span, in bounded memory.
//!
//! Knows no names. The time of a cell counts from the start of its archive.

use std::mem;

use foldhash::HashMap;

use super::facts::ThreadId;
use super::load::Shared;
use super::pending::Joined;
use super::rows::{Adder, Profile, Row, number};

/// Cells that are told apart; beyond them time is told less finely.
const MAX_CELLS: usize = 2_000_000;
/// Spans of a cell, in nanoseconds, from the finest.
const SPANS_NS: [u64; 14] = [
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    10_000_000_000,
    60_000_000_000,
    600_000_000_000,
    3_600_000_000_000,
];

/// Samples of one stack, thread and CPU within one span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// Number of the span since the start.
    pub slot: u32,
    /// Thread.
    pub thread: ThreadId,
    /// CPU.
    pub cpu: u32,
    /// Stack, an index into [`Timeline::stacks`].
    pub stack: u32,
    /// Number of samples.
    pub samples: u32,
    /// Sum of the weights, in the event's unit.
    pub weight: u64,
}

impl Cell {
    fn place(&self) -> (u32, ThreadId, u32, u32) {
        (self.slot, self.thread, self.cpu, self.stack)
    }
}

/// What of a cell is still told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Detail {
    /// Index into [`SPANS_NS`].
    span: usize,
    no_cpus: bool,
    no_threads: bool,
}

/// Cells, sorted, and the stacks they count.
#[derive(Debug, Default)]
pub struct Timeline {
    /// Distinct stacks, as rows of all their samples' time; thread and CPU are not told.
    pub stacks: Vec<Row>,
    /// Cells, by time.
    pub cells: Vec<Cell>,
    index: HashMap<Row, u32>,
    detail: Detail,
}

impl Timeline {
    /// Add one sample of event `event`.
    pub fn add(&mut self, shared: &Shared, sample: &Joined, event: u32, no_kernel: bool) {
        let row = &sample.row;
        let key = sample.stack_row(event, no_kernel);
        let stack = number(&mut self.index, &mut self.stacks, key);
        if let Some(row_of_stack) = self.stacks.get_mut(stack as usize) {
            row_of_stack.weight = row_of_stack.weight.saturating_add(row.weight);
            row_of_stack.samples = row_of_stack.samples.saturating_add(1);
        }
        let start = shared
            .archives
            .last()
            .map_or(0, |archive| archive.start_ns());
        let slot = row.time_ns.saturating_sub(start) / self.span_ns();
        self.cells.push(Cell {
            slot: u32::try_from(slot).unwrap_or(u32::MAX),
            thread: if self.detail.no_threads {
                ThreadId(0)
            } else {
                sample.thread
            },
            cpu: if self.detail.no_cpus { 0 } else { row.cpu },
            stack,
            samples: 1,
            weight: row.weight,
        });
        if self.cells.len() >= 2 * MAX_CELLS {
            self.shrink(MAX_CELLS);
        }
    }

    /// Length of a cell's span, in nanoseconds.
    pub fn span_ns(&self) -> u64 {
        SPANS_NS
            .get(self.detail.span)
            .copied()
            .unwrap_or(SPANS_NS[0])
    }

    /// The profile of what was read and added, whose rows are the stacks.
    pub fn finish(&mut self, shared: Shared) -> Profile {
        self.shrink(MAX_CELLS);
        self.index = HashMap::default();
        let mut profile = Adder::default().finish(shared);
        profile.rows.clone_from(&self.stacks);
        profile
    }

    /// Put equal cells together and tell less until there are `most` at most, as far as that goes: stacks stay apart.
    fn shrink(&mut self, most: usize) {
        self.merge();
        while self.cells.len() > most {
            let before = self.span_ns();
            if self.detail.span + 1 < SPANS_NS.len() {
                self.detail.span += 1;
                let (before, after) = (u128::from(before), u128::from(self.span_ns()));
                for cell in &mut self.cells {
                    let slot = u128::from(cell.slot) * before / after;
                    cell.slot = u32::try_from(slot).unwrap_or(u32::MAX);
                }
            } else if !mem::replace(&mut self.detail.no_cpus, true) {
                self.cells.iter_mut().for_each(|cell| cell.cpu = 0);
            } else if !mem::replace(&mut self.detail.no_threads, true) {
                self.cells
                    .iter_mut()
                    .for_each(|cell| cell.thread = ThreadId(0));
            } else {
                break;
            }
            self.merge();
        }
    }

    fn merge(&mut self) {
        self.cells.sort_unstable();
        self.cells.dedup_by(|next, held| {
            let fits = held.samples.checked_add(next.samples);
            let (true, Some(samples)) = (next.place() == held.place(), fits) else {
                return false;
            };
            held.samples = samples;
            held.weight = held.weight.saturating_add(next.weight);
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(slot: u32, thread: u32, cpu: u32, stack: u32) -> Cell {
        Cell {
            slot,
            thread: ThreadId(thread),
            cpu,
            stack,
            samples: 1,
            weight: 10,
        }
    }

    /// Check that time is told less finely first, then CPUs, then threads, that nothing is lost, and that stacks stay.
    #[test]
    fn less_is_told() {
        let all = || {
            let of = |n: u32| cell(n % 7 * 1000, n % 3, n % 2, n % 5);
            (0..4200).map(of).collect::<Vec<_>>()
        };
        let mut counts = Vec::new();
        for most in [210, 200, 29, 14, 1] {
            let mut timeline = Timeline {
                cells: all(),
                ..Timeline::default()
            };
            timeline.shrink(most);
            let sum = |of: fn(&Cell) -> u64| timeline.cells.iter().map(of).sum::<u64>();
            assert_eq!(sum(|cell| u64::from(cell.samples)), 4200);
            assert_eq!(sum(|cell| cell.weight), 42_000);
            let Detail {
                span,
                no_cpus,
                no_threads,
            } = timeline.detail;
            counts.push((timeline.cells.len(), span > 0, no_cpus, no_threads));
        }
        let expected = [
            (210, false, false, false),
            (30, true, false, false),
            (15, true, true, false),
            (5, true, true, true),
            (5, true, true, true),
        ];
        assert_eq!(counts[0], expected[0]);
        assert!(
            counts[1].0 <= 200 && counts[1].1 && !counts[1].2,
            "{counts:?}"
        );
        assert_eq!(counts[2..], expected[2..]);
    }
}
