//! The copies of one chunk → stacks, on whichever thread. Knows no tables of an archive.

use std::sync::{Arc, Mutex, PoisonError};

use foldhash::HashMap;
use rawstack_format::copies::{CopyLoss, StackCopies, StackCopy};
use rawstack_format::id::StackId;

use super::end::CopyEnd;
use super::memory::CopyMemory;
use super::spaces::{Known, Space, Version};
use super::stacks::{NO_NODE, StackSet};
use super::totals::CopyTotals;
use crate::unwind::{
    AddressSpace, End, Leaf, MAX_FRAMES, Machine, ModuleId, Modules, Registers, Rules, UnwoundFrame,
};

/// Versions of address spaces other than the last one that are made for one chunk; behind them the last one stands in.
const MAX_VERSIONS: usize = 256;

/// Frames that the copies of a chunk may have, besides those for its bytes: one stack may be as deep as any.
const FRAMES_AT_LEAST: usize = MAX_FRAMES;
/// Frames for each byte that the chunk takes in the archive. Copies of the deepest recursion have some 250, those of usual
/// programs less than one. What is made to have more would take seconds for each kilobyte.
const FRAMES_PER_BYTE: usize = 256;

/// Frames that all stacks of a chunk together may have that takes `stored_len` bytes in the archive.
pub(super) fn most_frames(stored_len: u32) -> usize {
    let stored_len = usize::try_from(stored_len).unwrap_or(usize::MAX);
    stored_len
        .saturating_mul(FRAMES_PER_BYTE)
        .saturating_add(FRAMES_AT_LEAST)
}

/// A chunk of copies, and what is needed to unwind it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) copies: StackCopies,
    /// Frames that all stacks together may have.
    pub(super) most_frames: usize,
    pub(super) known: Known,
    /// When user halves were taken; those that are not named were taken behind all changes of mappings.
    pub(super) times: HashMap<StackId, u64>,
    pub(super) modules: Modules,
    pub(super) rules: Arc<Mutex<Vec<Rules>>>,
}

/// What came of one copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnwoundCopy {
    /// ID whose user half it is.
    pub(crate) owner: StackId,
    /// Process and thread.
    pub(crate) task: (u32, u32),
    /// How it ended.
    pub(crate) end: CopyEnd<ModuleId>,
    /// Node of its leaf, or [`NO_NODE`].
    pub(crate) leaf: u32,
}

/// What came of a chunk of copies.
#[derive(Debug, Default)]
pub(crate) struct UnwoundCopies {
    /// How many copies there were.
    pub(crate) totals: CopyTotals,
    /// Distinct frames.
    pub(crate) frames: Vec<UnwoundFrame>,
    /// Prefix tree: parent, or [`NO_NODE`], and frame; a parent stands before its children.
    pub(crate) nodes: Vec<(u32, u32)>,
    /// In the order of the copies.
    pub(crate) stacks: Vec<UnwoundCopy>,
}

impl Job {
    /// Unwind all copies.
    pub(super) fn run(self) -> UnwoundCopies {
        let lock = || self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rules = lock().pop().unwrap_or_default();
        let mut done = UnwoundCopies::default();
        let mut worker = Worker {
            job: &self,
            rules: &mut rules,
            set: StackSet::default(),
            frames: Vec::new(),
            frames_left: self.most_frames,
            versions: HashMap::default(),
        };
        let mut reader = self.copies.reader();
        while let Some(copy) = reader.next() {
            done.totals.add(&copy);
            let (end, leaf) = worker.unwind(copy);
            done.stacks.push(UnwoundCopy {
                owner: copy.owner,
                task: (copy.pid, copy.tid),
                end,
                leaf,
            });
        }
        (done.frames, done.nodes) = (worker.set.frames, worker.set.nodes);
        lock().push(rules);
        done
    }
}

struct Worker<'j> {
    job: &'j Job,
    rules: &'j mut Rules,
    set: StackSet,
    frames: Vec<UnwoundFrame>,
    frames_left: usize,
    /// Earlier versions of address spaces, by process.
    versions: HashMap<(u32, Version), AddressSpace>,
}

impl Worker<'_> {
    fn unwind(&mut self, copy: StackCopy<'_>) -> (CopyEnd<ModuleId>, u32) {
        if copy.loss != CopyLoss::None {
            return (CopyEnd::Lost(copy.loss), NO_NODE);
        }
        let Some(registers) = registers(&copy) else {
            return (CopyEnd::Unwound(End::NoUnwindInfo(None)), NO_NODE);
        };
        let nothing = Space::default();
        let space = self.job.known.get(&copy.pid);
        let space = space.map_or(&nothing, |space| space);
        let (last, mut mapped) = space.last();
        let time = self.job.times.get(&copy.owner).copied();
        let version = space.version(copy.program_since_ns, time.unwrap_or(u64::MAX));
        if version != last {
            let key = (copy.pid, version);
            if self.versions.len() < MAX_VERSIONS || self.versions.contains_key(&key) {
                mapped = self
                    .versions
                    .entry(key)
                    .or_insert_with(|| space.at(version));
            }
        }
        let memory = CopyMemory { copy };
        let leaf = Leaf {
            registers,
            memory: &memory,
            space: mapped,
            most: self.frames_left,
        };
        let end = self.job.modules.unwind(self.rules, &leaf, &mut self.frames);
        self.frames_left -= self.frames.len().min(self.frames_left);
        match self.set.add(copy.tid, &self.frames) {
            Some(leaf) => (CopyEnd::Unwound(end), leaf),
            None => (CopyEnd::Unwound(End::TooDeep), NO_NODE),
        }
    }
}

/// The registers of a copy; nothing where no stack of that machine can be unwound.
fn registers(copy: &StackCopy<'_>) -> Option<Registers> {
    let machine = Machine::of(copy.machine)?;
    let mut registers = Registers::new(machine);
    for number in 0..=machine.instruction() {
        if let Some(value) = copy.register(number.into()) {
            registers.set(number, value);
        }
    }
    Some(registers)
}
