//! The profile: distinct stacks with the time they took, by thread, event and CPU.

use foldhash::HashMap;
use rawstack_format::record::{State, Vdso};

use super::facts::{FactsTable, ThreadFacts, ThreadId};
use super::load::Shared;
use super::pending::Joined;
use super::summary::Summary;
use super::tree::{NodeId, StackTree};
use crate::jit::JitTable;
use crate::resolve::KernelSymbolTable;

/// Samples that have everything in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    /// Code that processes made.
    pub jit: JitTable,
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

/// What rows tell apart besides stacks, events and outcomes: the less, the fewer rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Apart {
    /// There are no rows at all: only the archives' own facts are wanted.
    NoRows,
    /// Nothing else.
    #[default]
    Stacks,
    /// Names of threads.
    Comms,
    /// Processes.
    Processes,
    /// Control groups.
    Cgroups,
    /// Threads.
    Threads,
    /// CPUs.
    Cpus,
    /// Everything that is known of threads.
    Facts,
}

impl Apart {
    /// The part of a thread's facts that counts.
    fn part(self, thread: &ThreadFacts) -> (u32, u32, u32, String) {
        let ThreadFacts {
            archive, pid, tid, ..
        } = *thread;
        match self {
            Self::NoRows | Self::Stacks => (0, 0, 0, String::new()),
            Self::Comms => (0, 0, 0, thread.comm.clone()),
            Self::Processes => (archive, pid, 0, thread.process_comm.clone()),
            Self::Cgroups => (0, 0, 0, thread.cgroup.clone()),
            Self::Threads => (archive, pid, tid, thread.comm.clone()),
            Self::Cpus => (archive, 0, 0, String::new()),
            // Not asked for: each set of facts stands for itself.
            Self::Facts => (archive, pid, tid, String::new()),
        }
    }
}

/// Adds samples up.
#[derive(Debug, Default)]
pub struct Adder {
    rows: HashMap<Key, (u64, u64)>,
    apart: Apart,
    /// For each thread the first one with the same part of its facts.
    stands_for: Vec<ThreadId>,
    first: HashMap<(u32, u32, u32, String), ThreadId>,
}

impl Adder {
    /// An adder whose rows tell `apart` what is given.
    pub fn new(apart: Apart) -> Self {
        Self {
            apart,
            ..Self::default()
        }
    }

    /// Add one sample of event `event`.
    pub fn add(&mut self, shared: &Shared, sample: &Joined, event: u32, no_kernel: bool) {
        if self.apart == Apart::NoRows {
            return;
        }
        let by_cpu = self.apart == Apart::Cpus;
        let Joined { row, user, .. } = *sample;
        let (kernel, kernel_cut) = sample.kernel_half(no_kernel);
        let key = Key {
            kernel,
            user,
            thread: self.representative(shared, sample.thread),
            event,
            cpu: if by_cpu { row.cpu } else { 0 },
            state: row.state,
            kernel_cut,
        };
        let total = self.rows.entry(key).or_default();
        total.0 = total.0.saturating_add(row.weight);
        total.1 += 1;
    }

    fn representative(&mut self, shared: &Shared, thread: ThreadId) -> ThreadId {
        if self.apart == Apart::Facts {
            return thread;
        }
        let threads = shared.facts.threads();
        while let Some(next) = threads.get(self.stands_for.len()) {
            let id = ThreadId(u32::try_from(self.stands_for.len()).unwrap_or(u32::MAX));
            let first = *self.first.entry(self.apart.part(next)).or_insert(id);
            self.stands_for.push(first);
        }
        self.stands_for
            .get(thread.0 as usize)
            .copied()
            .unwrap_or(thread)
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
            jit,
        } = shared;
        Profile {
            archives,
            tree,
            facts,
            events,
            rows,
            kernels,
            vdsos,
            jit,
        }
    }
}
