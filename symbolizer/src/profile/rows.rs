//! The profile: distinct stacks with the time they took, by thread, event and CPU.

use std::fmt;
use std::hash::{BuildHasher, Hash};

use foldhash::HashMap;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
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
type Key = (NodeId, NodeId, ThreadId, u32, u32, State, bool);

impl Row {
    fn key(&self) -> Key {
        (
            self.kernel,
            self.user,
            self.thread,
            self.event,
            self.cpu,
            self.state,
            self.kernel_cut,
        )
    }
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

/// The number of `key`, new where it is not known yet.
pub(super) fn number<K: Copy + Eq + Hash>(
    index: &mut HashMap<K, u32>,
    keys: &mut Vec<K>,
    key: K,
) -> u32 {
    let next = u32::try_from(keys.len()).unwrap_or(u32::MAX);
    let number = *index.entry(key).or_insert(next);
    if number == next {
        keys.push(key);
    }
    number
}

/// Adds samples up. Each row is held once, and 5 bytes to find it by: there may be millions.
#[derive(Default)]
pub struct Adder {
    rows: Vec<Row>,
    index: HashTable<u32>,
    hasher: FixedState,
    apart: Apart,
    /// For each thread the first one with the same part of its facts.
    stands_for: Vec<ThreadId>,
    first: HashMap<(u32, u32, u32, String), ThreadId>,
}

impl fmt::Debug for Adder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Adder({} rows)", self.rows.len())
    }
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
        let new = Row {
            kernel,
            user,
            thread: self.representative(shared, sample.thread),
            event,
            cpu: if by_cpu { row.cpu } else { 0 },
            state: row.state,
            kernel_cut,
            weight: row.weight,
            samples: 1,
        };
        self.add_row(new);
    }

    fn add_row(&mut self, new: Row) {
        let Self {
            rows,
            index,
            hasher,
            ..
        } = self;
        let key_of = |&row: &u32| rows.get(row as usize).map(Row::key);
        let key = Some(new.key());
        let hash = hasher.hash_one(key);
        if let Some(&known) = index.find(hash, |row| key_of(row) == key) {
            if let Some(row) = rows.get_mut(known as usize) {
                row.weight = row.weight.saturating_add(new.weight);
                row.samples += 1;
            }
            return;
        }
        // A row beyond 4 billion is not found again: it is there more than once, and no sum is wrong.
        if let Ok(next) = u32::try_from(rows.len()) {
            index.insert_unique(hash, next, |row| hasher.hash_one(key_of(row)));
        }
        rows.push(new);
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
        let Self {
            mut rows, index, ..
        } = self;
        drop(index);
        rows.sort_unstable();
        let Shared {
            archives,
            tree,
            facts,
            events,
            kernels,
            vdsos,
            jit,
            unwinding: _,
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
