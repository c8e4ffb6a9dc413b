//! Archives with fixed rows.

use std::fs;
use std::mem;
use std::path::{Path, PathBuf};

use rawstack_format::id::{
    Addr, BuildId, FileOffset, FrameIndex, ModuleIndex, StackId, StackIndex,
};
use rawstack_format::record::{
    Batch, Completion, Drop, DropReason, End, Event, Frame, FrameKind, KernelModule, KernelModules,
    KernelSymbol, KernelSymbols, Mapping, Mode, Module, ModuleKind, Process, Record, Recording,
    Sample, Segment, StackNode, State, Thread,
};
use rawstack_format::{Counters, Writer, WriterOptions};

use super::fixtures::GOLDEN_ID;

/// Bias at which the golden program is mapped in the archives.
const BIAS: u64 = 0x5555_0000_0000;

/// Rows of one archive.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    records: Vec<Record>,
    batch: Batch,
    states: [u64; 8],
    next_id: u64,
    /// Indices of the next rows of the epoch.
    modules: u32,
    frames: u32,
    stacks: u32,
}

impl Archive {
    /// An archive that starts as recorders start one.
    pub(crate) fn new() -> Self {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let recording = Recording {
            epoch: 0,
            mode: Mode::Deferred,
            mode_reason: "the kernel has task work for BPF".to_owned(),
            start_ns: 1_000_000_000,
            start_wall_ns: 1_764_000_000_000_000_000,
            writer: "rawstack-record 0.1.0".to_owned(),
            events: vec![Event {
                name: "cpu-clock".to_owned(),
                unit: "ns".to_owned(),
                period: 1_000_000,
                frequency: 0,
            }],
            options: vec![pair("frequency", "1000"), pair("all", "true")],
            host: vec![
                pair("hostname", "web-1"),
                pair("kernel_release", "6.18.0"),
                pair("cpus", "2"),
                pair("evil", "a\u{1b}[2Jb"),
            ],
            labels: vec![pair("deploy", "42")],
        };
        Self {
            records: vec![Record::Recording(recording)],
            ..Self::default()
        }
    }

    /// What the archive says of the recording.
    pub(crate) fn recording(&mut self) -> &mut Recording {
        match self.records.first_mut() {
            Some(Record::Recording(recording)) => recording,
            other => panic!("the first record is {other:?}"),
        }
    }

    /// Say that another event was recorded, too: samples call it by the next number.
    pub(crate) fn event(&mut self, name: &str, unit: &str) {
        self.recording().events.push(Event {
            name: name.to_owned(),
            unit: unit.to_owned(),
            ..Event::default()
        });
    }

    /// Add a record between batches.
    pub(crate) fn record(&mut self, record: Record) {
        self.end_batch();
        self.records.push(record);
    }

    /// Add a module.
    pub(crate) fn module(&mut self, module: Module) -> ModuleIndex {
        self.batch.modules.push(module);
        self.modules += 1;
        ModuleIndex(self.modules - 1)
    }

    /// Add a mapping.
    pub(crate) fn mapping(&mut self, mapping: Mapping) {
        self.batch.mappings.push(mapping);
    }

    /// Add a frame.
    pub(crate) fn frame(
        &mut self,
        kind: FrameKind,
        module: ModuleIndex,
        offset: u64,
    ) -> FrameIndex {
        let user = matches!(kind, FrameKind::UserLeaf | FrameKind::UserCaller);
        let address = Addr(if user { BIAS + offset } else { 0 });
        self.batch.frames.push(Frame {
            kind,
            address,
            module,
            offset: FileOffset(offset),
        });
        self.frames += 1;
        FrameIndex(self.frames - 1)
    }

    /// Add a stack, leaf first.
    pub(crate) fn stack(&mut self, frames: &[FrameIndex]) -> StackIndex {
        let mut parent = StackIndex::NONE;
        for &frame in frames.iter().rev() {
            self.batch.stacks.push(StackNode { parent, frame });
            parent = StackIndex(self.stacks);
            self.stacks += 1;
        }
        parent
    }

    /// A stack of one module: the first offset is the instruction itself.
    pub(crate) fn user_stack(&mut self, module: ModuleIndex, offsets: &[u64]) -> StackIndex {
        let frames: Vec<_> = offsets
            .iter()
            .enumerate()
            .map(|(depth, &offset)| {
                let kind = if depth == 0 {
                    FrameKind::UserLeaf
                } else {
                    FrameKind::UserCaller
                };
                self.frame(kind, module, offset)
            })
            .collect();
        self.stack(&frames)
    }

    /// Add a process with a main thread.
    pub(crate) fn process(&mut self, pid: u32, comm: &str, cgroup: &str) {
        self.batch.processes.push(Process {
            pid,
            comm: comm.to_owned(),
            cgroup: cgroup.to_owned(),
            ..Process::default()
        });
        self.thread(pid, pid, comm);
    }

    /// Add a thread.
    pub(crate) fn thread(&mut self, pid: u32, tid: u32, comm: &str) {
        self.batch.threads.push(Thread {
            pid,
            tid,
            comm: comm.to_owned(),
            ..Thread::default()
        });
    }

    /// Add a sample of process 1's only thread, with this user half and no other.
    pub(crate) fn user_sample(&mut self, user: StackIndex) {
        self.sample(Sample {
            pid: 1,
            tid: 1,
            user,
            ..Sample::default()
        });
    }

    /// Add a sample; ID, time and what is left open are filled in.
    pub(crate) fn sample(&mut self, sample: Sample) -> StackId {
        self.next_id += 1;
        let id = StackId(self.next_id);
        let owner = if sample.owner == StackId(0) {
            id
        } else {
            sample.owner
        };
        let time_ns = if sample.time_ns == 0 {
            1_000_000_000 + self.next_id * 1_000_000
        } else {
            sample.time_ns
        };
        let weight = if sample.weight == 0 {
            1_000_000
        } else {
            sample.weight
        };
        self.states[sample.state as usize] += 1;
        self.batch.samples.push(Sample {
            id,
            owner,
            time_ns,
            weight,
            ..sample
        });
        id
    }

    /// Add the outcome of `rows` samples.
    pub(crate) fn complete(&mut self, completion: Completion, rows: u64) {
        self.states[State::Pending as usize] -= rows;
        self.states[completion.state as usize] += rows;
        self.batch.completions.push(completion);
    }

    /// Add a loss.
    pub(crate) fn lose(&mut self, drop: Drop) {
        if drop.reason.counts_ids() {
            self.states[State::Dropped as usize] += drop.count;
        }
        self.batch.drops.push(drop);
    }

    /// End the batch at hand.
    pub(crate) fn end_batch(&mut self) {
        let next = Batch {
            epoch: self.batch.epoch,
            first_module: self.modules,
            first_frame: self.frames,
            first_stack: self.stacks,
            ..Batch::default()
        };
        let done = mem::replace(&mut self.batch, next);
        let rows = done.samples.len()
            + done.completions.len()
            + done.drops.len()
            + done.stacks.len()
            + done.modules.len();
        if rows > 0 {
            self.records.push(Record::Batch(done));
        }
    }

    /// Start the next epoch: all tables are empty.
    pub(crate) fn next_epoch(&mut self) {
        self.end_batch();
        self.batch = Batch {
            epoch: self.batch.epoch + 1,
            ..Batch::default()
        };
        (self.modules, self.frames, self.stacks) = (0, 0, 0);
    }

    /// The bytes; with `ended` the totals come last.
    pub(crate) fn bytes(mut self, ended: bool) -> Vec<u8> {
        self.end_batch();
        if ended {
            self.records.push(Record::End(End {
                end_ns: 3_000_000_000,
                end_wall_ns: 1_764_000_002_000_000_000,
                reserved: self.states.iter().sum(),
                states: self.states,
                exit: -1,
            }));
        }
        let mut options = WriterOptions::default();
        options.salt = Some(7);
        let mut writer = Writer::new(Vec::new(), options).unwrap();
        let mut counters = Counters::default();
        for record in &self.records {
            if let Record::Batch(batch) = record {
                counters.ids += batch.samples.len() as u64;
                counters.ids += batch
                    .drops
                    .iter()
                    .filter(|drop| drop.reason.counts_ids())
                    .map(|drop| drop.count)
                    .sum::<u64>();
            }
            writer.write(record, counters).unwrap();
        }
        writer.finish().unwrap()
    }

    /// Write the whole archive to a file in `folder`.
    pub(crate) fn write(self, folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, self.bytes(true)).unwrap();
        path
    }
}

/// The golden program as a recorder describes it.
pub(crate) fn golden_module() -> Module {
    Module {
        class: 64,
        machine: 62,
        page_size: 4096,
        build_id: BuildId::from_hex(GOLDEN_ID),
        path: "/opt/app/golden".to_owned(),
        segments: vec![Segment {
            offset: FileOffset(0x1000),
            vaddr: 0x40_1000,
            file_size: 0x200,
            flags: 5,
        }],
        ..Module::default()
    }
}

/// Kernel symbols and modules.
pub(crate) fn kernel_records() -> [Record; 2] {
    let symbol = |offset: u64, kind: u8, module: &str, name: &str| KernelSymbol {
        offset,
        kind,
        module: module.to_owned(),
        name: name.to_owned(),
    };
    let symbols = KernelSymbols {
        part: 0,
        parts: 1,
        build_id: BuildId::new(&[0xbe, 0xef]),
        text_size: 0x10_0000,
        symbols: vec![
            symbol(0, b'T', "", "_stext"),
            symbol(0x1000, b't', "", "do_idle"),
            symbol(0x2000, b'T', "", "entry_SYSCALL_64"),
            symbol(0x3000, b'T', "", "vfs_read"),
            symbol(0x10, b't', "xfs", "xfs_file_read_iter"),
            symbol(0, b't', "bpf", "bpf_prog_1234_tick"),
        ],
    };
    let module = KernelModule {
        name: "xfs".to_owned(),
        build_id: None,
        size: 0x1000,
        sections: Vec::new(),
    };
    [
        Record::KernelSymbols(symbols),
        Record::KernelModules(KernelModules {
            modules: vec![module],
        }),
    ]
}

fn named(kind: ModuleKind, path: &str) -> Module {
    Module {
        kind,
        path: path.to_owned(),
        page_size: 4096,
        ..Module::default()
    }
}

/// The archive of the golden files: every state, both halves, two epochs, modules of every kind, hostile names.
pub(crate) fn golden() -> Archive {
    let mut archive = Archive::new();
    kernel_records()
        .into_iter()
        .for_each(|record| archive.record(record));
    archive.process(100, "server", "/system/web.service");
    archive.thread(100, 101, "worker");
    archive.process(200, "ev\u{1b}[31mil", "/user");
    first_epoch(&mut archive);
    archive.next_epoch();
    second_epoch(&mut archive);
    archive
}

fn first_epoch(archive: &mut Archive) {
    let program = archive.module(golden_module());
    let kernel = archive.module(named(ModuleKind::Kernel, "[kernel]"));
    let xfs = archive.module(named(ModuleKind::KernelModule, "xfs"));
    // work ← recurse (three times) ← _start, with the leaf in code inlined twice.
    let inlined = archive.user_stack(program, &[0x1016, 0x105f, 0x104f, 0x104f, 0x104f, 0x10a3]);
    // The call of stop() never returns: its return address is the next function's first byte.
    let noreturn = archive.user_stack(program, &[0x1002, 0x107f, 0x10aa]);
    let read = [(kernel, 0x3010), (xfs, 0x20), (kernel, 0x2020)]
        .map(|(module, offset)| archive.frame(FrameKind::KernelCaller, module, offset));
    let read = archive.stack(&read);
    let server = Sample {
        pid: 100,
        tid: 100,
        ..Sample::default()
    };
    let worker = Sample {
        pid: 100,
        tid: 101,
        cpu: 1,
        ..Sample::default()
    };
    for _ in 0..3 {
        archive.sample(Sample {
            user: inlined,
            ..server
        });
    }
    archive.sample(Sample {
        user: noreturn,
        ..worker
    });
    archive.sample(Sample {
        kernel: read,
        user: inlined,
        ..worker
    });
    let pending = archive.sample(Sample {
        kernel: read,
        state: State::Pending,
        ..worker
    });
    archive.sample(Sample {
        kernel: read,
        state: State::Pending,
        owner: pending,
        ..worker
    });
    archive.sample(Sample {
        user: noreturn,
        state: State::Truncated,
        user_depth: 300,
        ..server
    });
    archive.sample(Sample {
        user: inlined,
        state: State::Faulted,
        user_depth: u32::MAX,
        ..server
    });
    archive.end_batch();
    outcomes(archive, program, pending);
}

/// What comes later: the outcome of two samples, and losses.
fn outcomes(archive: &mut Archive, program: ModuleIndex, pending: StackId) {
    let user = archive.user_stack(program, &[0x1002, 0x10a3]);
    archive.complete(
        Completion {
            owner: pending,
            time_ns: 1_020_000_000,
            state: State::Complete,
            user,
            user_depth: 0,
        },
        2,
    );
    archive.lose(Drop {
        reason: DropReason::BufferFull,
        cpu: 0,
        count: 4,
        from_ns: 1_011_000_000,
        to_ns: 1_012_000_000,
    });
    archive.lose(Drop {
        reason: DropReason::SideBand,
        cpu: u32::MAX,
        count: 1,
        from_ns: 1_013_000_000,
        to_ns: 1_013_000_000,
    });
}

fn second_epoch(archive: &mut Archive) {
    let bpf = archive.module(named(ModuleKind::BpfProgram, "bpf_prog_1234_tick"));
    let program = archive.module(golden_module());
    let anonymous = archive.module(named(ModuleKind::Anonymous, ""));
    let gone = archive.module(Module {
        build_id: BuildId::new(&[0xde, 0xad]),
        path: "/tmp/go\u{7}ne<b>.so".to_owned(),
        ..golden_module()
    });
    let evil = archive.user_stack(program, &[0x10ad, 0x10ab]);
    let nowhere = archive.user_stack(gone, &[0x1234, 0x1300]);
    let jit = archive.user_stack(anonymous, &[0x7000]);
    let unmapped = archive.user_stack(ModuleIndex::NONE, &[0x10]);
    let tick = [(bpf, 0x8), (ModuleIndex::NONE, 0x1004)]
        .map(|(module, offset)| archive.frame(FrameKind::KernelLeaf, module, offset));
    let tick = archive.stack(&tick);
    let row = Sample {
        pid: 200,
        tid: 200,
        cpu: 1,
        run: 1,
        ..Sample::default()
    };
    for user in [evil, nowhere, jit, unmapped] {
        archive.sample(Sample { user, ..row });
    }
    archive.sample(Sample {
        kernel: tick,
        ..row
    });
    archive.sample(Sample {
        kernel: tick,
        kernel_cut: true,
        state: State::Truncated,
        ..row
    });
    for state in [
        State::Exited,
        State::Execed,
        State::ScheduleFailed,
        State::Dropped,
        State::Pending,
    ] {
        archive.sample(Sample { state, ..row });
    }
}
