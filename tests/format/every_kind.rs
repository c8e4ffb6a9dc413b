//! One record of each kind: what the golden archive holds.

use rawstack_format::copies::{
    CopiesBuilder, CopyLoss, Missing, NewCopy, Registers, ReturnAddress, Span, StackCopies, X86_64,
};
use rawstack_format::id::{
    Addr, BuildId, FileOffset, FrameIndex, ModuleIndex, StackId, StackIndex,
};
use rawstack_format::record::{
    Batch, Completion, Drop, DropReason, End, Event, Frame, FrameKind, JitMap, KernelModule,
    KernelModules, KernelSymbol, KernelSymbols, Mapping, Mode, Module, ModuleKind, Process, Record,
    Recording, Run, Sample, Segment, StackNode, State, Thread, Vdso,
};

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
        Record::StackCopies(copies()),
        Record::End(End {
            end_ns: 2_000_000_000,
            end_wall_ns: 1_700_000_001_000_000_000,
            reserved: 12,
            states: [1, 2, 0, 0, 0, 0, 8, 1],
            exit: 3,
        }),
    ]
}

/// Two copies of one thread and what is told of a third.
fn copies() -> StackCopies {
    let mut builder = CopiesBuilder::default();
    let mut registers = Registers::default();
    assert!(registers.set(7, 0x7fff_0000_1080) && registers.set(16, 0x40_1136));
    // One word that is 0, and one that was left out.
    let mut bytes = [0xaa; 48];
    bytes[16..32].fill(0);
    bytes[24] = 1;
    let first = NewCopy {
        owner: StackId(1 << 48 | 5),
        pid: 77,
        tid: 78,
        machine: X86_64,
        registers,
        start: Addr(0x7fff_0000_1000),
        end: Addr(0x7fff_0000_2000),
        asked: 64,
        bytes: &bytes,
        ..NewCopy::default()
    };
    assert!(builder.push(&first).unwrap());
    let mut changed = bytes;
    changed[8..16].fill(0xbb);
    let gap = |offset| Missing { offset, len: 16 };
    let returns = [ReturnAddress {
        place: Addr(0x7fff_0000_1088),
        address: Addr(0x40_1200),
    }];
    let span = |start, end, asked| Span {
        start: Addr(start),
        end: Addr(end),
        asked,
    };
    let further = [
        span(0x7fff_0000_1ff0, 0x7fff_0000_2000, 16),
        span(0x7ffe_0000_0000, 0x7ffe_0000_1000, 8),
    ];
    let mut longer = [0xcc; 88];
    longer[..48].copy_from_slice(&changed);
    let second = NewCopy {
        owner: StackId(1 << 48 | 6),
        program_since_ns: 1_000_000_500,
        trampoline: Addr(0x7fff_f7ff_e000),
        returns: &returns,
        further: &further,
        bytes: &longer,
        missing: &[gap(24), gap(48)],
        ..first
    };
    assert!(builder.push(&second).unwrap());
    let third = NewCopy {
        owner: StackId(9),
        pid: 78,
        tid: 78,
        machine: X86_64,
        loss: CopyLoss::BufferFull,
        ..NewCopy::default()
    };
    assert!(builder.push(&third).unwrap());
    builder.take()
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
        drops: drops(),
        ..tables()
    }
}

fn drops() -> Vec<Drop> {
    vec![
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
    ]
}

/// The tables that hold text.
fn tables() -> Batch {
    Batch {
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
        ..Batch::default()
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
