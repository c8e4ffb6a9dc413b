//! Archives to try things on, and a view of their bytes that shares no code with the writer or the reader.

use std::ops::Range;

use rawstack_format::id::{
    Addr, BuildId, FileOffset, FrameIndex, ModuleIndex, StackId, StackIndex,
};
use rawstack_format::record::{
    Batch, Completion, Drop, DropReason, End, Event, Frame, FrameKind, JitMap, KernelModule,
    KernelModules, KernelSymbol, KernelSymbols, Mapping, Mode, Module, ModuleKind, Process, Record,
    Recording, Run, Sample, Segment, StackCopy, StackNode, State, Thread, Vdso,
};
use rawstack_format::{Chunk, Counters, Damage, Reader, Selection, Writer, WriterOptions};

/// Salt of every archive here.
pub(crate) const SALT: u32 = 0x5eed_cafe;

/// xorshift64*: the same numbers each time.
#[derive(Clone)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Roughly normal, with a standard deviation of `deviation`: the sum of twelve even ones.
    pub(crate) fn normal(&mut self, deviation: u64) -> i64 {
        let sum: u64 = (0..12).map(|_| self.below(2 * deviation + 1)).sum();
        i64::try_from(sum).unwrap() - i64::try_from(12 * deviation).unwrap()
    }
}

/// Write records with running totals that follow from them.
pub(crate) fn archive(records: &[Record]) -> Vec<u8> {
    let options = options();
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    let mut counters = Counters::default();
    for record in records {
        count(record, &mut counters);
        writer.write(record, counters).unwrap();
    }
    writer.finish().unwrap()
}

/// Options with the fixed salt.
pub(crate) fn options() -> WriterOptions {
    let mut options = WriterOptions::default();
    options.salt = Some(SALT);
    options
}

/// Add what a record accounts for.
pub(crate) fn count(record: &Record, counters: &mut Counters) {
    let Record::Batch(batch) = record else { return };
    counters.ids += batch.samples.len() as u64;
    for drop in &batch.drops {
        let (counter, of_ids) = match drop.reason {
            DropReason::BufferFull => (&mut counters.buffer_full, true),
            DropReason::Contended => (&mut counters.contended, true),
            DropReason::Unwritten => (&mut counters.unwritten, true),
            DropReason::UserHalf | DropReason::SideBand => continue,
        };
        *counter += drop.count;
        counters.ids += if of_ids { drop.count } else { 0 };
    }
}

/// Read everything.
pub(crate) fn read(bytes: &[u8]) -> (Vec<Chunk>, Damage) {
    read_selected(bytes, Selection::All)
}

/// Read what `selection` says.
pub(crate) fn read_selected(bytes: &[u8], selection: Selection) -> (Vec<Chunk>, Damage) {
    let mut reader = Reader::new(bytes).unwrap().with_selection(selection);
    let mut chunks = Vec::new();
    while let Some(chunk) = reader.next().unwrap() {
        chunks.push(chunk);
    }
    (chunks, reader.damage().clone())
}

/// Byte ranges of the chunks, by the lengths in their frames.
pub(crate) fn ranges(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut at = 128;
    while at < bytes.len() {
        let stored: [u8; 4] = bytes[at + 16..at + 20].try_into().unwrap();
        let len = 64 + (u32::from_le_bytes(stored) as usize).next_multiple_of(64);
        ranges.push(at..at + len);
        at += len;
    }
    ranges
}

/// A frame and its payload, written by hand. The lengths are whatever the caller claims.
pub(crate) fn chunk(kind: u8, version: u8, seq: u32, stored: &[u8], claims: (u32, u32)) -> Vec<u8> {
    let mut payload = stored.to_vec();
    payload.resize(payload.len().next_multiple_of(64), 0);
    let mut out = vec![0xf5, b'R', b'S', 0x1a];
    out.extend(SALT.to_le_bytes());
    out.extend([kind, version, 0, 0]);
    out.extend(seq.to_le_bytes());
    out.extend(claims.0.to_le_bytes());
    out.extend(claims.1.to_le_bytes());
    out.resize(56, 0);
    out.extend(crc32c::crc32c(&payload).to_le_bytes());
    out.extend(crc32c::crc32c(&out).to_le_bytes());
    assert_eq!(out.len(), 64);
    out.extend(payload);
    out
}

/// Header of an archive without chunks.
pub(crate) fn header() -> Vec<u8> {
    let mut bytes = archive(&[]);
    bytes.truncate(128);
    bytes
}

/// One thread of recursive calls, 0 to 60 frames deep, ten leaf addresses, ticks every 200 µs give or take 1 µs;
/// `seconds` batches of 5,000 samples each.
pub(crate) fn recursion(seconds: u64, rng: &mut Rng) -> Vec<Record> {
    const PER_SECOND: u64 = 5000;
    let mut records = Vec::new();
    let (mut nodes, mut frames) = (0, 0);
    let mut known = vec![None; 61 * 11];
    for second in 0..seconds {
        let mut batch = Batch {
            first_frame: frames,
            first_stack: nodes,
            ..Batch::default()
        };
        if second == 0 {
            batch.modules.push(Module {
                path: "/opt/app".into(),
                ..Module::default()
            });
        }
        batch.first_module = u32::from(second > 0);
        for tick in 0..PER_SECOND {
            let number = second * PER_SECOND + tick;
            let (depth, leaf) = (rng.below(61), rng.below(10));
            let user = recursive_stack(&mut batch, &mut known, depth, leaf);
            let id = StackId(number + 1);
            let time_ns =
                (1_000_000_000 + number * 200_000).saturating_add_signed(rng.normal(1000) / 2);
            let (pid, tid, weight) = (4242, 4242, 200_000);
            batch.samples.push(Sample {
                id,
                owner: id,
                time_ns,
                pid,
                tid,
                weight,
                user,
                ..Sample::default()
            });
        }
        nodes += u32::try_from(batch.stacks.len()).unwrap();
        frames += u32::try_from(batch.frames.len()).unwrap();
        records.push(Record::Batch(batch));
    }
    records
}

/// The stack of `depth` return addresses and one of ten leaf addresses; adds what is new to the batch.
fn recursive_stack(
    batch: &mut Batch,
    known: &mut [Option<u32>],
    depth: u64,
    leaf: u64,
) -> StackIndex {
    let mut parent = StackIndex::NONE;
    for level in 0..=depth {
        let is_leaf = level == depth;
        let slot = usize::try_from(level * 11 + if is_leaf { leaf } else { 10 }).unwrap();
        let index = known[slot].unwrap_or_else(|| {
            let own = batch.first_stack + u32::try_from(batch.stacks.len()).unwrap();
            let offset = 0x1139 + if is_leaf { leaf * 7 } else { 100 };
            let kind = if is_leaf {
                FrameKind::UserLeaf
            } else {
                FrameKind::UserCaller
            };
            let frame = batch.first_frame + u32::try_from(batch.frames.len()).unwrap();
            let address = Addr(0x5555_5555_4000 + offset);
            batch.frames.push(Frame {
                kind,
                address,
                module: ModuleIndex(0),
                offset: FileOffset(offset),
            });
            batch.stacks.push(StackNode {
                parent,
                frame: FrameIndex(frame),
            });
            known[slot] = Some(own);
            own
        });
        parent = StackIndex(index);
    }
    parent
}

/// One record of each kind, with every field set to something of its own.
pub(crate) fn every_kind() -> Vec<Record> {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let recording = Recording {
        epoch: 3,
        mode: Mode::Immediate,
        mode_reason: "kernel 6.1 has no task work for BPF".into(),
        start_ns: 1_000_000_007,
        start_wall_ns: 1_700_000_000_000_000_009,
        writer: "rawstack-record 0.1.0".into(),
        events: vec![Event {
            name: "cpu-clock".into(),
            unit: "ns".into(),
            period: 200_000,
            frequency: 5000,
        }],
        options: vec![pair("frequency", "5000"), pair("all", "")],
        host: vec![pair("hostname", "büro"), pair("cpus", "2")],
        labels: vec![pair("service", "shop")],
    };
    vec![
        Record::Recording(recording),
        Record::KernelSymbols(kernel_symbols()),
        Record::KernelModules(KernelModules {
            modules: vec![KernelModule {
                name: "ext4".into(),
                build_id: BuildId::new(&[7; 20]),
                size: 0x9000,
                sections: vec![
                    (".text".into(), 0),
                    (".init.text".into(), 0u64.wrapping_sub(0x4000)),
                ],
            }],
        }),
        Record::Vdso(Vdso {
            build_id: BuildId::new(&[9; 20]),
            class: 64,
            image: b"\x7fELF and so on".to_vec(),
        }),
        Record::Batch(batch()),
        Record::JitMap(JitMap {
            pid: 77,
            kind: 1,
            time_ns: 1_500_000_000,
            position: 4096,
            bytes: b"7f0000001000 40 LazyCompile:~main\n".to_vec(),
        }),
        Record::Runs(vec![
            Run {
                run: 0,
                start_ns: 1_000_000_100,
                end_ns: 1_900_000_000,
                work: 12.5,
                exit: 0,
            },
            Run {
                run: 1,
                start_ns: 1_900_000_100,
                end_ns: 0,
                work: 0.0,
                exit: -1,
            },
        ]),
        Record::StackCopies(vec![StackCopy {
            owner: StackId(1 << 48 | 5),
            base: StackId(4),
            machine: 62,
            registers: vec![(7, 0x7fff_0000_1000), (16, 0x40_1136)],
            start: Addr(0x7fff_0000_1000),
            bytes: vec![0xaa; 48],
            coding: 0,
            size: 4096,
        }]),
        Record::End(End {
            end_ns: 2_000_000_000,
            end_wall_ns: 1_700_000_001_000_000_000,
            reserved: 12,
            states: [1, 2, 0, 0, 0, 0, 8, 1],
            exit: 3,
        }),
    ]
}

fn kernel_symbols() -> KernelSymbols {
    let symbol = |offset: u64, kind: u8, module: &str, name: &str| KernelSymbol {
        offset,
        kind,
        module: module.into(),
        name: name.into(),
    };
    KernelSymbols {
        part: 1,
        parts: 2,
        build_id: BuildId::new(&[1, 2, 3, 4]),
        text_size: 0x100_0000,
        symbols: vec![
            symbol(0u64.wrapping_sub(64), b'T', "", "srso_alias_untrain_ret"),
            symbol(0x10, b't', "", "__pfx_do_work"),
            symbol(0x20, b't', "", "do_work"),
            symbol(0x30, b't', "", "__pfx_other"),
            symbol(0x40, b'T', "", "other"),
            symbol(0x50, b't', "ext4", "__pfx_alone"),
            symbol(0x0, b't', "bpf", "bpf_prog_0123456789abcdef_main"),
        ],
    }
}

fn batch() -> Batch {
    let sample = Sample {
        id: StackId(1 << 48 | 5),
        owner: StackId(1 << 48 | 4),
        time_ns: 1_200_000_000,
        cpu: 1,
        pid: 77,
        tid: 78,
        event: 0,
        run: 1,
        weight: 200_000,
        state: State::Pending,
        kernel_cut: true,
        kernel: StackIndex(5),
        user: StackIndex::NONE,
        user_depth: 0,
    };
    let (address, offset) = (Addr(0x5555_5555_5136), FileOffset(0x1136));
    Batch {
        epoch: 3,
        first_module: 1,
        first_frame: 2,
        first_stack: 4,
        processes: vec![Process {
            pid: 77,
            parent: 1,
            namespace_pid: 5,
            start_ns: 900_000_000,
            since_ns: 950_000_000,
            comm: "app".into(),
            cgroup: "/system.slice/app.service".into(),
        }],
        threads: vec![Thread {
            pid: 77,
            tid: 78,
            start_ns: 910_000_000,
            since_ns: 960_000_000,
            comm: "wörk".into(),
        }],
        modules: modules(),
        mappings: vec![Mapping {
            pid: 77,
            start: Addr(0x5555_5555_5000),
            end: Addr(0x5555_5555_8000),
            offset: FileOffset(0x1000),
            protection: 5,
            device_major: 8,
            device_minor: 1,
            inode: 4711,
            since_ns: 970_000_000,
            path: "/opt/app (deleted)".into(),
            module: ModuleIndex(1),
        }],
        frames: vec![
            Frame {
                kind: FrameKind::UserLeaf,
                address,
                module: ModuleIndex(1),
                offset,
            },
            Frame {
                kind: FrameKind::UserCaller,
                address: Addr(12),
                ..Frame::default()
            },
            Frame {
                kind: FrameKind::KernelCaller,
                address: Addr(0),
                module: ModuleIndex(2),
                offset,
            },
        ],
        stacks: vec![
            StackNode {
                parent: StackIndex(3),
                frame: FrameIndex(2),
            },
            StackNode {
                parent: StackIndex::NONE,
                frame: FrameIndex(4),
            },
        ],
        samples: vec![
            sample,
            Sample {
                id: StackId(9),
                owner: StackId(9),
                user: StackIndex(4),
                ..sample
            },
        ],
        completions: vec![Completion {
            owner: StackId(1 << 48 | 4),
            time_ns: 1_300_000_000,
            state: State::Truncated,
            user: StackIndex(4),
            user_depth: 400,
        }],
        drops: vec![
            Drop {
                reason: DropReason::BufferFull,
                cpu: 1,
                count: 10,
                from_ns: 1_100_000_000,
                to_ns: 1_150_000_000,
            },
            Drop {
                reason: DropReason::SideBand,
                cpu: u32::MAX,
                count: 3,
                from_ns: 1_100_000_000,
                to_ns: 1_100_000_000,
            },
        ],
    }
}

fn modules() -> Vec<Module> {
    let segment = Segment {
        offset: FileOffset(0x1000),
        vaddr: 0x40_1000,
        file_size: 0x2345,
        flags: 5,
    };
    vec![
        Module {
            kind: ModuleKind::Elf,
            class: 64,
            machine: 62,
            page_size: 4096,
            build_id: BuildId::new(&[0xab; 20]),
            content_hash: None,
            path: "/opt/app".into(),
            segments: vec![
                segment,
                Segment {
                    flags: 7,
                    ..segment
                },
            ],
        },
        Module {
            kind: ModuleKind::Kernel,
            content_hash: Some([0xcd; 16]),
            ..Module::default()
        },
    ]
}
