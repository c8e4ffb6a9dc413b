//! One epoch's rows: what the archive needs to know of a stack is put into the batch when it is first used.

use std::mem;

use hashbrown::{HashMap, HashSet};
use rawstack_bpf::Addresses;
use rawstack_format::id::{Addr, FileOffset, FrameIndex, ModuleIndex, StackIndex};
use rawstack_format::record::{Batch, Frame, FrameKind, Process, Sample, StackNode, Thread};

use crate::budget::TableLimits;
use crate::history::State;
use crate::module::ModuleNumber;
use crate::process::Names;
use crate::tables::{FrameRow, ROOT, Space, Tables};
use crate::world::{Running, World};

mod mappings;

/// Rows of one kind in one batch when one had to be split: keeps it within a chunk whatever the paths' lengths.
const SPLIT_ROWS: usize = 64;

/// Modules after which an epoch is full.
const MAX_MODULES: usize = 4096;
/// Processes, threads and mappings after which an epoch is full: about 4 MiB.
const MAX_TASKS: usize = 128 << 10;

/// An epoch and the batch that is being filled.
#[derive(Debug)]
pub(crate) struct Epoch {
    number: u32,
    tables: Tables,
    batch: Batch,
    bytes: usize,
    next_module: u32,
    modules: HashMap<ModuleNumber, u32>,
    /// Version of the facts that were written, by PID.
    processes: HashMap<u32, u32>,
    threads: HashMap<u32, u32>,
    /// Program, first address and end of the mappings that were written, with their times.
    mappings: HashMap<(u32, u64, u64), u64>,
    /// Programs all of whose mappings were written, with the version of these.
    programs: HashMap<u32, u32>,
    /// Rows of kernel symbols that cover frames of this epoch, and those of them that are not yet written.
    symbols: HashSet<u32>,
    new_symbols: Vec<u32>,
}

impl Epoch {
    /// An empty epoch.
    pub(crate) fn new(number: u32, limits: TableLimits) -> Self {
        Self {
            number,
            tables: Tables::new(limits),
            batch: Batch {
                epoch: number,
                ..Batch::default()
            },
            bytes: 0,
            next_module: 0,
            modules: HashMap::new(),
            processes: HashMap::new(),
            threads: HashMap::new(),
            mappings: HashMap::new(),
            programs: HashMap::new(),
            symbols: HashSet::new(),
            new_symbols: Vec::new(),
        }
    }

    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Whether its tables are full.
    pub(crate) fn is_full(&self) -> bool {
        let tasks = self.processes.len() + self.threads.len() + self.mappings.len();
        self.tables.is_full() || self.modules.len() >= MAX_MODULES || tasks >= MAX_TASKS
    }

    /// Whether a frame of it lies in this module.
    pub(crate) fn uses(&self, module: ModuleNumber) -> bool {
        self.modules.contains_key(&module)
    }

    /// The batch that is being filled.
    pub(crate) fn batch(&mut self) -> &mut Batch {
        &mut self.batch
    }

    /// About how many raw bytes the batch has.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.batch.samples.len() * Sample::RAW_BOUND
    }

    /// Take the batch out, in parts that each fit a chunk; later rows go into another.
    pub(crate) fn cut(&mut self) -> Vec<Batch> {
        self.bytes = 0;
        let next = Batch {
            epoch: self.number,
            first_module: self.next_module,
            first_frame: self.batch.first_frame + index(&self.batch.frames),
            first_stack: self.batch.first_stack + index(&self.batch.stacks),
            ..Batch::default()
        };
        split(mem::replace(&mut self.batch, next))
    }

    /// The user half of a stack of process `pid`, as mapped at `time_ns`.
    pub(crate) fn user_stack(
        &mut self,
        world: &mut World,
        pid: u32,
        time_ns: u64,
        addresses: &Addresses<'_>,
    ) -> StackIndex {
        if addresses.is_empty() {
            return StackIndex::NONE;
        }
        let Running {
            program, version, ..
        } = world.running(pid, time_ns);
        // A time before the last change of mappings: the version cannot stand for what was mapped then.
        let Some(version) = version else {
            return StackIndex(self.add_user_stack(world, pid, time_ns, addresses).0);
        };
        let space = Space { program, version };
        let hash = self.tables.hash(space, addresses);
        if let Some(known) = self.tables.find(hash, space, addresses) {
            return StackIndex(known);
        }
        let (leaf, frames) = self.add_user_stack(world, pid, time_ns, addresses);
        self.tables.remember(hash, space, leaf, frames);
        StackIndex(leaf)
    }

    /// Put a stack together: its leaf node and the number of its frames.
    ///
    /// Code without frame pointers keeps anything in that register, and the walk may have taken what lay there for a
    /// return address. What is known to be no code ends the stack.
    fn add_user_stack(
        &mut self,
        world: &mut World,
        pid: u32,
        time_ns: u64,
        addresses: &Addresses<'_>,
    ) -> (u32, usize) {
        let mut places = Vec::with_capacity(addresses.len());
        for address in addresses.iter() {
            let place = world.locate_user(pid, time_ns, address);
            if place.is_no_code && !places.is_empty() {
                break;
            }
            places.push((address, place));
        }
        let frames = places.len();
        let running = world.running(pid, time_ns);
        let leaf =
            places
                .into_iter()
                .rev()
                .enumerate()
                .fold(ROOT, |parent, (depth, (address, place))| {
                    let kind = if depth + 1 == frames {
                        FrameKind::UserLeaf
                    } else {
                        FrameKind::UserCaller
                    };
                    if let (Some(mapping), Some((module, _))) = (&place.mapping, place.module) {
                        self.put_mapping(world, (pid, running), mapping, module);
                    }
                    let (module, offset) = place.module.unzip();
                    let offset = FileOffset(offset.unwrap_or(0));
                    self.put_node(
                        world,
                        parent,
                        FrameRow {
                            kind,
                            address: Addr(address),
                            module,
                            offset,
                        },
                        address,
                    )
                });
        (leaf, frames)
    }

    /// The kernel half of a stack.
    pub(crate) fn kernel_stack(
        &mut self,
        world: &mut World,
        addresses: &Addresses<'_>,
    ) -> StackIndex {
        if addresses.is_empty() {
            return StackIndex::NONE;
        }
        let space = world.kernel_space();
        let hash = self.tables.hash(space, addresses);
        if let Some(known) = self.tables.find(hash, space, addresses) {
            return StackIndex(known);
        }
        let last = addresses.len() - 1;
        let leaf = addresses
            .iter()
            .rev()
            .enumerate()
            .fold(ROOT, |parent, (depth, address)| {
                let kind = if depth == last {
                    FrameKind::KernelLeaf
                } else {
                    FrameKind::KernelCaller
                };
                let row = world.kernel_row(kind, address);
                self.put_node(world, parent, row, address)
            });
        self.tables.remember(hash, space, leaf, addresses.len());
        StackIndex(leaf)
    }

    /// A stack of the epoch before, as one of this.
    pub(crate) fn carry(&mut self, world: &World, before: &Self, stack: StackIndex) -> StackIndex {
        let Some(node) = stack.get() else {
            return StackIndex::NONE;
        };
        let rows = before.tables.rows(node);
        StackIndex(rows.into_iter().fold(ROOT, |parent, (row, raw)| {
            self.put_node(world, parent, row, raw)
        }))
    }

    fn put_node(&mut self, world: &World, parent: u32, row: FrameRow, raw: u64) -> u32 {
        let frame = self.tables.frame(row, raw);
        if frame.is_new {
            let module = row
                .module
                .map_or(ModuleIndex::NONE, |number| self.put_module(world, number));
            self.bytes += Frame::RAW_BOUND;
            let FrameRow {
                kind,
                address,
                offset,
                ..
            } = row;
            if matches!(row.kind, FrameKind::KernelLeaf | FrameKind::KernelCaller) {
                self.put_symbols(world, raw);
            }
            self.batch.frames.push(Frame {
                kind,
                address,
                module,
                offset,
            });
        }
        let node = self.tables.node(parent, frame.index);
        if node.is_new {
            self.bytes += StackNode::RAW_BOUND;
            let parent = if parent == ROOT {
                StackIndex::NONE
            } else {
                StackIndex(parent)
            };
            self.batch.stacks.push(StackNode {
                parent,
                frame: FrameIndex(frame.index),
            });
        }
        node.index
    }

    fn put_symbols(&mut self, world: &World, address: u64) {
        for row in world.kernel.symbols_at(address) {
            if self.symbols.insert(row) {
                self.new_symbols.push(row);
            }
        }
    }

    /// Kernel symbols that the batches cut since need, not yet taken.
    pub(crate) fn take_symbols(&mut self) -> Vec<u32> {
        mem::take(&mut self.new_symbols)
    }

    /// What [`take_symbols`](Self::take_symbols) would give.
    pub(crate) fn symbols_to_come(&self) -> Vec<u32> {
        self.new_symbols.clone()
    }

    fn put_module(&mut self, world: &World, number: ModuleNumber) -> ModuleIndex {
        if let Some(&index) = self.modules.get(&number) {
            return ModuleIndex(index);
        }
        let module = world.modules.get(number).cloned().unwrap_or_default();
        self.bytes += module.raw_bound();
        self.batch.modules.push(module);
        let index = self.next_module;
        self.next_module += 1;
        self.modules.insert(number, index);
        ModuleIndex(index)
    }

    /// Put in what the archive should know of a sample's process and thread, at its time and since then.
    pub(crate) fn put_task(&mut self, world: &mut World, pid: u32, tid: u32, time_ns: u64) {
        let processes = &mut world.processes;
        processes.process(pid);
        processes.mark_ran(pid);
        processes.complete(pid, time_ns);
        let process = processes.process(pid);
        let version = process.names.version();
        let written = self.processes.insert(pid, version);
        if written != Some(version) {
            let row = |state: &State<Names>| Process {
                pid,
                parent: process.parent,
                namespace_pid: process.namespace_pid,
                start_ns: process.start_ns,
                since_ns: state.since_ns,
                comm: String::from_utf8_lossy(&state.facts.comm).into_owned(),
                cgroup: state.facts.cgroup.to_string(),
            };
            for row in process.names.behind(written, time_ns).map(row) {
                self.bytes += row.raw_bound();
                self.batch.processes.push(row);
            }
        }
        let thread = processes.thread(pid, tid);
        let version = thread.name.version();
        let written = self.threads.insert(tid, version);
        if written != Some(version) {
            let row = |state: &State<Vec<u8>>| Thread {
                pid,
                tid,
                start_ns: thread.start_ns,
                since_ns: state.since_ns,
                comm: String::from_utf8_lossy(&state.facts).into_owned(),
            };
            for row in thread.name.behind(written, time_ns).map(row) {
                self.bytes += row.raw_bound();
                self.batch.threads.push(row);
            }
            processes.mark_sampled(pid, tid);
        }
    }
}

fn index<T>(rows: &[T]) -> u32 {
    u32::try_from(rows.len()).unwrap_or(u32::MAX)
}

/// Split a batch that would not fit a chunk: long paths first, each in parts, then the rest.
fn split(mut batch: Batch) -> Vec<Batch> {
    let mut parts = Vec::new();
    if batch.raw_bound() <= rawstack_format::MAX_RAW_LEN {
        return vec![batch];
    }
    let empty = Batch {
        epoch: batch.epoch,
        first_frame: batch.first_frame,
        first_stack: batch.first_stack,
        ..Batch::default()
    };
    let mut first_module = batch.first_module;
    for modules in mem::take(&mut batch.modules).chunks(SPLIT_ROWS) {
        parts.push(Batch {
            first_module,
            modules: modules.to_vec(),
            ..empty.clone()
        });
        first_module += index(modules);
    }
    for mappings in mem::take(&mut batch.mappings).chunks(SPLIT_ROWS) {
        parts.push(Batch {
            first_module,
            mappings: mappings.to_vec(),
            ..empty.clone()
        });
    }
    batch.first_module = first_module;
    parts.push(batch);
    parts
}
