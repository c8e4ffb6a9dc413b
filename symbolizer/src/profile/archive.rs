//! One archive while it is read: its tables, the samples that wait, and the copies that are being unwound.

use foldhash::HashMap;
use rawstack_format::Chunk;
use rawstack_format::record::{Batch, Record, Recording, State};

use super::chunks::Chunks;
use super::copies::{CopiedStacks, UserHalf};
use super::facts::ThreadFacts;
use super::filter::Filter;
use super::load::{EachSample, Shared};
use super::pending::{JoinQueue, Joined};
use super::rows::EventFacts;
use super::summary::{MergedFacts, Summary};
use super::tables::EpochTables;
use super::tree::NodeId;
use crate::copied::{Ahead, Stacks, Unwinding};
use crate::error::{Error, Result};
use crate::resolve::KernelSymbolTable;

/// vDSO images that are kept of one archive; a machine has one or two.
const MAX_VDSOS: usize = 8;
/// Events that are told apart.
const MAX_EVENTS: usize = 4096;

/// One archive, or one part of a merged one, while it is read.
pub(super) struct Archive<'s> {
    number: u32,
    shared: &'s mut Shared,
    filter: &'s Filter,
    tables: EpochTables,
    queue: JoinQueue,
    /// For each of the recording's events its index among all, and whether it is selected.
    events: Vec<(u32, bool)>,
    /// Whether threads are selected, by ID, as far as asked.
    threads: Vec<Option<bool>>,
    /// Records whose copies are being unwound, and those behind them.
    ahead: Ahead<Record>,
    copied: CopiedStacks,
    /// Stacks of a process with frames in code that it made, and where they were placed at which version.
    placed: HashMap<(u32, NodeId), (u32, NodeId)>,
}

impl<'s> Archive<'s> {
    /// The next archive, with nothing read.
    pub(super) fn begin(
        shared: &'s mut Shared,
        filter: &'s Filter,
        path: &str,
        chunks: &Chunks,
    ) -> Self {
        let number = u32::try_from(shared.archives.len()).unwrap_or(u32::MAX);
        let header = chunks.header();
        let mut summary = Summary::new(path.to_owned());
        summary.format = (header.major, header.minor);
        summary.merged = header.has_parts().then(MergedFacts::default);
        shared.archives.push(summary);
        shared.kernels.push(KernelSymbolTable::default());
        shared.facts.next_archive();
        let unwinding = shared.unwinding.as_ref();
        let stacks = unwinding.map_or(Stacks::FramePointers, Unwinding::stacks);
        Self {
            number,
            ahead: Ahead::new(number),
            copied: CopiedStacks::new(stacks),
            shared,
            filter,
            tables: EpochTables::default(),
            queue: JoinQueue::default(),
            events: Vec::new(),
            threads: Vec::new(),
            placed: HashMap::default(),
        }
    }

    /// Read one part from its chunk `first` on, or all where there are no parts; gives the first chunk of the next part.
    pub(super) fn read(
        &mut self,
        chunks: &mut Chunks,
        first: Option<Chunk>,
        each: &mut EachSample<'_>,
        failed: &dyn Fn(rawstack_format::Error) -> Error,
    ) -> Result<Option<Chunk>> {
        let mut part = None;
        let mut next = first;
        let behind = loop {
            let chunk = match next.take() {
                Some(chunk) => Some(chunk),
                None => chunks.next().map_err(failed)?,
            };
            let Some(chunk) = chunk else { break None };
            if *part.get_or_insert(chunk.info.part) != chunk.info.part {
                break Some(chunk);
            }
            self.summary().add_chunk(&chunk.info);
            if let Some(record) = chunk.record {
                self.come(record, chunk.info.stored_len, each)?;
            }
        };
        self.come_to_end(each)?;
        self.give(true, each)?;
        let (lost, orphans, overtaken) =
            (self.tables.lost, self.queue.orphans, self.queue.overtaken);
        let summary = self.summary();
        summary.lost_references = lost;
        summary.orphan_completions = orphans;
        summary.overtaken = overtaken;
        let own = chunks.last_part().filter(|_| behind.is_some());
        summary.finish(own.unwrap_or(chunks.damage()), behind.is_none());
        if let Some(kernel) = self.shared.kernels.last_mut() {
            kernel.finish();
        }
        Ok(behind)
    }

    /// Take a record of so many stored bytes, at once or once the copies before it are unwound.
    fn come(&mut self, record: Record, stored_len: u32, each: &mut EachSample<'_>) -> Result<()> {
        let Some(unwinding) = &mut self.shared.unwinding else {
            self.take(record);
            return self.give(false, each);
        };
        match record {
            Record::StackCopies(copies) => self.ahead.copies((copies, stored_len), unwinding),
            record => self.ahead.push(record, unwinding),
        }
        self.take_ready(false, each)
    }

    fn come_to_end(&mut self, each: &mut EachSample<'_>) -> Result<()> {
        if let Some(unwinding) = &mut self.shared.unwinding {
            self.ahead.end(unwinding);
        }
        self.take_ready(true, each)
    }

    fn take_ready(&mut self, all: bool, each: &mut EachSample<'_>) -> Result<()> {
        while let Some(unwinding) = &self.shared.unwinding
            && let Some((record, unwound)) = self.ahead.pop(all, unwinding)
        {
            if let Some(unwound) = unwound {
                let tree = &mut self.shared.tree;
                self.copied.take(self.number, &unwound, unwinding, tree);
                self.summary().copies.merge(&unwound.totals);
            }
            if let Some(record) = record {
                self.take(record);
                self.give(false, each)?;
            }
        }
        Ok(())
    }

    fn summary(&mut self) -> &mut Summary {
        let index = self.shared.archives.len() - 1;
        &mut self.shared.archives[index]
    }

    fn take(&mut self, record: Record) {
        match record {
            Record::Recording(recording) => self.recording(recording),
            Record::KernelSymbols(part) => {
                if let Some(kernel) = self.shared.kernels.last_mut() {
                    kernel.extend(part.symbols);
                }
            }
            Record::KernelModules(part) => {
                if let Some(kernel) = self.shared.kernels.last_mut() {
                    kernel.add_modules(&part.modules);
                }
                self.summary().kernel_modules.extend(part.modules);
            }
            Record::Vdso(vdso) => {
                let image = (self.number, vdso);
                let mine = self
                    .shared
                    .vdsos
                    .iter()
                    .filter(|(archive, _)| *archive == image.0);
                if mine.count() < MAX_VDSOS && !self.shared.vdsos.contains(&image) {
                    self.shared.vdsos.push(image);
                }
            }
            Record::Batch(batch) => self.batch(batch),
            Record::Runs(runs) => self.summary().add_runs(runs),
            Record::End(end) => self.summary().end = Some(end),
            Record::Part(part) => self.summary().part = Some(part),
            Record::JitMap(piece) => self.shared.jit.take(self.number, &piece),
            Record::StackCopies(copies) => self.summary().copies.add_all(&copies),
            _ => {}
        }
    }

    fn recording(&mut self, recording: Recording) {
        for event in recording
            .events
            .iter()
            .take(MAX_EVENTS)
            .skip(self.events.len())
        {
            let facts = EventFacts {
                name: event.name.clone(),
                unit: event.unit.clone(),
            };
            self.add_event(facts);
        }
        self.summary().recording.get_or_insert(recording);
    }

    fn add_event(&mut self, facts: EventFacts) -> (u32, bool) {
        let selected = self.filter.has_event(&facts.name);
        let events = &mut self.shared.events;
        let index = events
            .iter()
            .position(|held| *held == facts)
            .unwrap_or_else(|| {
                events.push(facts);
                events.len() - 1
            });
        let event = (u32::try_from(index).unwrap_or(0), selected);
        self.events.push(event);
        event
    }

    /// The event that samples call `index`; one whose row is lost gets a name of its number.
    fn event(&mut self, index: u32) -> (u32, bool) {
        let index = (index as usize).min(MAX_EVENTS);
        while self.events.len() <= index {
            let name = format!("event-{}", self.events.len());
            self.add_event(EventFacts {
                name,
                unit: "samples".to_owned(),
            });
        }
        self.events.get(index).copied().unwrap_or((0, false))
    }

    fn batch(&mut self, mut batch: Batch) {
        let number = self.number;
        self.tables.take(number, &batch, &mut self.shared.tree);
        batch
            .processes
            .iter()
            .for_each(|row| self.shared.facts.add_process(row));
        batch
            .threads
            .iter()
            .for_each(|row| self.shared.facts.add_thread(row));
        batch
            .samples
            .sort_by_key(|row| (row.time_ns, row.cpu, row.id));
        for row in &batch.samples {
            let tree = &mut self.shared.tree;
            let kernel = self.tables.node(row.kernel, tree);
            let user = self.tables.node(row.user, tree);
            let half = match row.state {
                // Its user half, and the copy of it, are still to come.
                State::Pending => UserHalf { user, end: None },
                _ => self.copied.user_half(row.owner, user, tree),
            };
            let thread = self.shared.facts.at(number, row.pid, row.tid, row.time_ns);
            self.queue.push(Joined {
                row: *row,
                kernel,
                user: half.user,
                thread,
                end: half.end,
            });
        }
        for completion in &batch.completions {
            let tree = &mut self.shared.tree;
            let user = self.tables.node(completion.user, tree);
            let half = self.copied.user_half(completion.owner, user, tree);
            self.queue.complete(completion, half);
        }
        batch
            .drops
            .iter()
            .for_each(|drop| self.summary().add_drop(drop));
    }

    /// Give out what need not wait, or everything.
    fn give(&mut self, all: bool, each: &mut EachSample<'_>) -> Result<()> {
        while let Some(mut sample) = self.queue.pop(all) {
            sample.user = self.place(&sample);
            self.summary().add_sample(&sample.row, sample.end);
            sample.take_as_whole();
            let (event, selected) = self.event(sample.row.event);
            let since = sample.row.time_ns.saturating_sub(self.summary().start_ns());
            let row = &sample.row;
            if selected && self.filter.has(row.cpu, row.run, since) && self.has_thread(&sample) {
                each(self.shared, &sample, event)?;
            }
        }
        Ok(())
    }

    /// The user half with its frames in code that the process made: in whose, and in what was there at the time.
    fn place(&mut self, sample: &Joined) -> NodeId {
        let Joined { row, user, .. } = *sample;
        if !self.shared.tree.is_unplaced(user) {
            return user;
        }
        let Shared { tree, jit, .. } = &mut *self.shared;
        let version = jit.version(self.number, row.pid, row.time_ns);
        let known = self.placed.get(&(row.pid, user));
        if let Some(&(held, placed)) = known
            && version == Some(held)
        {
            return placed;
        }
        let placed = tree.place(user, &mut |address| {
            jit.place(self.number, row.pid, address, row.time_ns)
        });
        if let Some(version) = version {
            self.placed.insert((row.pid, user), (version, placed));
        }
        placed
    }

    fn has_thread(&mut self, sample: &Joined) -> bool {
        let index = sample.thread.0 as usize;
        if self.threads.len() <= index {
            self.threads.resize(index + 1, None);
        }
        let facts = self.shared.facts.threads();
        let ask = || {
            facts
                .get(index)
                .is_some_and(|thread: &ThreadFacts| self.filter.has_thread(thread))
        };
        match self.threads.get_mut(index) {
            Some(known) => *known.get_or_insert_with(ask),
            None => false,
        }
    }
}
