//! The profile: distinct stacks with the time they took, by thread, event and CPU.

use foldhash::HashMap;
use rawstack_format::record::{State, Vdso};

use super::facts::{FactsTable, ThreadId};
use super::load::Shared;
use super::pending::Joined;
use super::summary::Summary;
use super::tree::{NodeId, StackTree};
use crate::resolve::KernelSymbolTable;

/// Samples that have everything in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// Kernel half.
    pub kernel: NodeId,
    /// User half.
    pub user: NodeId,
    /// Thread.
    pub thread: ThreadId,
    /// Event, an index into [`Profile::events`].
    pub event: u32,
    /// CPU, 0 where CPUs are not told apart.
    pub cpu: u32,
    /// How the stack ended.
    pub state: State,
    /// Whether the kernel half is cut.
    pub kernel_cut: bool,
    /// Sum of the weights, in the event's unit.
    pub weight: u64,
    /// Number of samples.
    pub samples: u64,
}

/// An event that was sampled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventFacts {
    /// Name.
    pub name: String,
    /// Unit of the weights.
    pub unit: String,
}

/// One or several archives, added up.
#[derive(Debug)]
pub struct Profile {
    /// Each archive's own facts.
    pub archives: Vec<Summary>,
    /// Modules, frames and stacks.
    pub tree: StackTree,
    /// Threads.
    pub facts: FactsTable,
    /// Events.
    pub events: Vec<EventFacts>,
    /// Samples, added up; sorted.
    pub rows: Vec<Row>,
    /// Kernel symbols of each archive.
    pub kernels: Vec<KernelSymbolTable>,
    /// vDSO images, each with the number of its archive.
    pub vdsos: Vec<(u32, Vdso)>,
}

/// What samples of one row have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    kernel: NodeId,
    user: NodeId,
    thread: ThreadId,
    event: u32,
    cpu: u32,
    state: State,
    kernel_cut: bool,
}

/// Adds samples up.
#[derive(Debug, Default)]
pub struct Adder {
    rows: HashMap<Key, (u64, u64)>,
    by_cpu: bool,
}

impl Adder {
    /// Samples of different CPUs stay apart if `by_cpu`.
    pub fn new(by_cpu: bool) -> Self {
        Self {
            by_cpu,
            ..Self::default()
        }
    }

    /// Add one sample of event `event`.
    pub fn add(&mut self, sample: &Joined, event: u32, no_kernel: bool) {
        let kernel = if no_kernel {
            NodeId::NONE
        } else {
            sample.kernel
        };
        let cpu = if self.by_cpu { sample.row.cpu } else { 0 };
        let Joined {
            row, user, thread, ..
        } = *sample;
        let kernel_cut = row.kernel_cut && !no_kernel;
        let key = Key {
            kernel,
            user,
            thread,
            event,
            cpu,
            state: row.state,
            kernel_cut,
        };
        let total = self.rows.entry(key).or_default();
        total.0 = total.0.saturating_add(row.weight);
        total.1 += 1;
    }

    /// The profile of what was read and added.
    pub fn finish(self, shared: Shared) -> Profile {
        let rows = self.rows.into_iter().map(|(key, (weight, samples))| {
            let Key {
                kernel,
                user,
                thread,
                event,
                cpu,
                state,
                kernel_cut,
            } = key;
            Row {
                kernel,
                user,
                thread,
                event,
                cpu,
                state,
                kernel_cut,
                weight,
                samples,
            }
        });
        let mut rows: Vec<Row> = rows.collect();
        rows.sort_unstable();
        let Shared {
            archives,
            tree,
            facts,
            events,
            kernels,
            vdsos,
        } = shared;
        Profile {
            archives,
            tree,
            facts,
            events,
            rows,
            kernels,
            vdsos,
        }
    }
}
