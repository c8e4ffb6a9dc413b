//! Rows into batches of an archive: each distinct row once in an epoch. Knows nothing of perf.

use std::hash::Hash;
use std::io::Write;
use std::mem;

use foldhash::{HashMap, HashSet};
use rawstack_format::id::{FrameIndex, ModuleIndex, StackIndex};
use rawstack_format::record::{
    Batch, Drop, EPOCH_CHUNKS, End, Frame, Mapping, Module, Process, Record, Recording, Sample,
    StackNode, State, Thread,
};
use rawstack_format::{Counters, MAX_RAW_LEN, MAX_ROWS, Writer, bound};

use crate::error::{Error, Result};

/// Frames and stack nodes after which tables start anew.
const MAX_NODES: usize = 1 << 20;

/// Writes an archive from samples that come one by one.
pub(super) struct ArchiveBuilder<'w, W> {
    writer: &'w mut Writer<W>,
    is_begun: bool,
    recording: Recording,
    batch: Batch,
    /// Bound of what the batch takes.
    bound: usize,
    batches: u32,
    counters: Counters,
    states: [u64; 8],
    tables: Tables,
}

/// What the epoch has.
#[derive(Default)]
struct Tables {
    modules: HashMap<u32, ModuleIndex>,
    frames: HashMap<Frame, FrameIndex>,
    nodes: HashMap<StackNode, StackIndex>,
    /// Mappings, processes and threads that are written.
    mappings: HashSet<u32>,
    processes: HashSet<Told>,
    threads: HashSet<Told>,
}

/// Whose facts, and since when they hold.
type Told = (u32, u64);

impl<'w, W: Write> ArchiveBuilder<'w, W> {
    /// An archive that goes to `writer` once it is begun.
    pub(super) fn new(writer: &'w mut Writer<W>) -> Self {
        Self {
            writer,
            is_begun: false,
            recording: Recording::default(),
            batch: Batch::default(),
            bound: bound::BASE,
            batches: 0,
            counters: Counters::default(),
            states: [0; 8],
            tables: Tables::default(),
        }
    }

    /// Whether its beginning was written.
    pub(super) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// Begin with what was recorded, and with records that stand before all samples.
    pub(super) fn begin(&mut self, recording: Recording, preamble: Vec<Record>) -> Result<()> {
        self.is_begun = true;
        self.recording = recording;
        self.write(&Record::Recording(self.recording.clone()))?;
        preamble.iter().try_for_each(|record| self.write(record))
    }

    fn write(&mut self, record: &Record) -> Result<()> {
        let written = self.writer.write(record, self.counters);
        written.map(|_| ()).map_err(Error::Import)
    }

    /// Make sure that `bytes` more fit, and a row more in each table.
    fn reserve(&mut self, bytes: usize) -> Result<()> {
        let rows = [
            self.batch.frames.len(),
            self.batch.stacks.len(),
            self.batch.samples.len(),
            self.batch.modules.len(),
            self.batch.mappings.len(),
            self.batch.processes.len(),
            self.batch.threads.len(),
            self.batch.drops.len(),
        ];
        if self.bound + bytes > MAX_RAW_LEN || rows.into_iter().max() >= Some(MAX_ROWS) {
            self.flush()?;
        }
        self.bound += bytes;
        Ok(())
    }

    /// Write the batch.
    fn flush(&mut self) -> Result<()> {
        let count = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let next = Batch {
            epoch: self.batch.epoch,
            first_module: count(self.tables.modules.len()),
            first_frame: count(self.tables.frames.len()),
            first_stack: count(self.tables.nodes.len()),
            ..Batch::default()
        };
        let batch = mem::replace(&mut self.batch, next);
        self.bound = bound::BASE;
        let is_empty = batch
            == Batch {
                epoch: batch.epoch,
                first_module: batch.first_module,
                first_frame: batch.first_frame,
                first_stack: batch.first_stack,
                ..Batch::default()
            };
        if is_empty {
            return Ok(());
        }
        let counters = &mut self.counters;
        counters.ids += batch.samples.len() as u64;
        for drop in batch.drops.iter().filter(|drop| drop.reason.counts_ids()) {
            counters.ids = counters.ids.saturating_add(drop.count);
            counters.buffer_full = counters.buffer_full.saturating_add(drop.count);
        }
        self.batches += 1;
        self.write(&Record::Batch(batch))
    }

    /// Begin a sample: where the tables are full, they start anew. Rows from before mean nothing any more; says so.
    pub(super) fn begin_sample(&mut self) -> Result<bool> {
        let full = self.tables.nodes.len() + self.tables.frames.len() > MAX_NODES;
        if !full && self.batches < EPOCH_CHUNKS {
            return Ok(false);
        }
        self.flush()?;
        self.batches = 0;
        self.tables = Tables::default();
        self.recording.epoch += 1;
        self.batch = Batch {
            epoch: self.recording.epoch,
            ..Batch::default()
        };
        self.write(&Record::Recording(self.recording.clone()))?;
        Ok(true)
    }

    /// The module of number `number`; `row` makes it where the epoch does not have it.
    pub(super) fn module(&mut self, number: u32, row: &Module) -> Result<ModuleIndex> {
        if let Some(&index) = self.tables.modules.get(&number) {
            return Ok(index);
        }
        self.reserve(row.raw_bound())?;
        let index = ModuleIndex(next(&self.tables.modules));
        self.tables.modules.insert(number, index);
        self.batch.modules.push(row.clone());
        Ok(index)
    }

    /// Say where something was mapped, once in an epoch.
    pub(super) fn mapping(&mut self, number: u32, row: &Mapping) -> Result<()> {
        if self.tables.mappings.insert(number) {
            self.reserve(row.raw_bound())?;
            self.batch.mappings.push(row.clone());
        }
        Ok(())
    }

    /// Say a process's names, once in an epoch.
    pub(super) fn process(&mut self, row: &Process) -> Result<()> {
        if self.tables.processes.insert((row.pid, row.since_ns)) {
            self.reserve(row.raw_bound())?;
            self.batch.processes.push(row.clone());
        }
        Ok(())
    }

    /// Say a thread's name, once in an epoch.
    pub(super) fn thread(&mut self, row: &Thread) -> Result<()> {
        if self.tables.threads.insert((row.tid, row.since_ns)) {
            self.reserve(row.raw_bound())?;
            self.batch.threads.push(row.clone());
        }
        Ok(())
    }

    /// The frame.
    pub(super) fn frame(&mut self, frame: Frame) -> Result<FrameIndex> {
        if let Some(&index) = self.tables.frames.get(&frame) {
            return Ok(index);
        }
        self.reserve(Frame::RAW_BOUND)?;
        let index = FrameIndex(next(&self.tables.frames));
        self.tables.frames.insert(frame, index);
        self.batch.frames.push(frame);
        Ok(index)
    }

    /// The stack of `frames`, leaf first.
    pub(super) fn stack(&mut self, frames: &[FrameIndex]) -> Result<StackIndex> {
        let mut parent = StackIndex::NONE;
        for &frame in frames.iter().rev() {
            let node = StackNode { parent, frame };
            parent = match self.tables.nodes.get(&node) {
                Some(&index) => index,
                None => {
                    self.reserve(StackNode::RAW_BOUND)?;
                    let index = StackIndex(next(&self.tables.nodes));
                    self.tables.nodes.insert(node, index);
                    self.batch.stacks.push(node);
                    index
                }
            };
        }
        Ok(parent)
    }

    /// Add a sample.
    pub(super) fn sample(&mut self, sample: Sample) -> Result<()> {
        // A task of its own may come with it.
        self.reserve(Sample::RAW_BOUND)?;
        self.count(sample.state, 1);
        self.batch.samples.push(sample);
        Ok(())
    }

    /// Add a loss.
    pub(super) fn lose(&mut self, drop: Drop) -> Result<()> {
        self.reserve(Drop::RAW_BOUND)?;
        if drop.reason.counts_ids() {
            self.count(State::Dropped, drop.count);
        }
        self.batch.drops.push(drop);
        Ok(())
    }

    fn count(&mut self, state: State, more: u64) {
        if let Some(count) = self.states.get_mut(state as usize) {
            *count = count.saturating_add(more);
        }
    }

    /// Write what is left; with `end_ns` also that the recording ended by itself.
    pub(super) fn finish(mut self, end_ns: Option<u64>) -> Result<()> {
        self.flush()?;
        if let Some(end_ns) = end_ns {
            let end = End {
                end_ns,
                reserved: self.states.iter().copied().fold(0, u64::saturating_add),
                states: self.states,
                exit: -1,
                ..End::default()
            };
            self.write(&Record::End(end))?;
        }
        Ok(())
    }
}

fn next<K: Hash + Eq, V>(table: &HashMap<K, V>) -> u32 {
    u32::try_from(table.len()).unwrap_or(u32::MAX)
}
