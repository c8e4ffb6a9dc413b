//! Tests: roots that are laid out well and say what no writer says.

use std::time::{Duration, Instant};

use rkyv::util::AlignedVec;

use super::batch::BatchRoot;
use super::column::pack;
use super::kernel::KernelSymbolsRoot;
use super::recording::RecordingRoot;
use super::{MAX_ROWS, batch, decode, kernel, recording, to_bytes};
use crate::chunk::Kind;
use crate::error::Invalid;
use crate::id::{FrameIndex, ModuleIndex, StackId, StackIndex};
use crate::record::{
    Batch, Completion, Drop, Frame, KernelSymbol, KernelSymbols, Mapping, Module, Process,
    Recording, Sample, Segment, StackNode,
};

/// The most rows of a table, as a table states them.
const MOST_ROWS: u32 = 1 << 16;

const _: () = assert!(MOST_ROWS as usize == MAX_ROWS);

/// One row in each table.
fn sound() -> BatchRoot {
    let sample = Sample {
        id: StackId(1),
        user: StackIndex(1),
        ..Sample::default()
    };
    let node = StackNode {
        parent: StackIndex::NONE,
        frame: FrameIndex(0),
    };
    let rows = Batch {
        processes: vec![Process {
            comm: "app".into(),
            ..Process::default()
        }],
        modules: vec![Module {
            segments: vec![Segment::default()],
            ..Module::default()
        }],
        mappings: vec![Mapping {
            module: ModuleIndex(0),
            ..Mapping::default()
        }],
        frames: vec![Frame {
            module: ModuleIndex(0),
            ..Frame::default()
        }],
        stacks: vec![
            node,
            StackNode {
                parent: StackIndex(0),
                ..node
            },
        ],
        samples: vec![sample],
        completions: vec![Completion {
            user: StackIndex(1),
            ..Completion::default()
        }],
        drops: vec![Drop::default()],
        ..Batch::default()
    };
    batch::encode(&rows).unwrap()
}

/// Change a sound root, read it and give the reason why it is refused.
fn refusal(change: impl FnOnce(&mut BatchRoot)) -> Option<Invalid> {
    let mut root = sound();
    change(&mut root);
    let raw = to_bytes(&root, AlignedVec::new()).unwrap();
    let start = Instant::now();
    let refusal = decode(Kind::BATCH, &raw).err();
    assert!(start.elapsed() < Duration::from_millis(100));
    refusal
}

/// Check that the root that the other tests change is accepted as it is.
#[test]
fn sound_root() {
    assert_eq!(refusal(|_| {}), None);
}

/// Check that a stack whose parent is itself, a later node or before the first is refused, so that no walk to the root
/// can run in a circle.
#[test]
fn cyclic_stacks() {
    // A node's own distance of 0 is no parent; one that is larger than its index wraps behind it.
    for distance in [2, 3, u64::from(u32::MAX)] {
        assert_eq!(
            refusal(|root| root.stacks.parent = pack([0, distance])),
            Some(Invalid::Reference),
            "{distance}"
        );
    }
    let far = |root: &mut BatchRoot| (root.first_stack, root.stacks.parent) = (5, pack([6_u64, 1]));
    assert_eq!(refusal(far), Some(Invalid::Reference));
}

/// Check that every index behind the rows written so far is refused.
#[test]
fn references_out_of_range() {
    let changes: [fn(&mut BatchRoot); 9] = [
        |root| root.stacks.frame = pack([2_u64, 0]),
        |root| root.stacks.frame = pack([u64::from(u32::MAX), 0]),
        |root| root.frames.module = pack([2_u64]),
        |root| root.mappings.module = pack([7_u64]),
        |root| root.samples.user = pack([3_u64]),
        |root| root.samples.kernel = pack([3_u64]),
        |root| root.samples.task = pack([1_u64]),
        |root| root.completions.user = pack([1_u64 << 31]),
        |root| root.first_stack = u32::MAX - 1,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert_eq!(refusal(change), Some(Invalid::Reference), "change {number}");
    }
}

/// Check that numbers that stand for nothing are refused.
#[test]
fn values_out_of_range() {
    let changes: [fn(&mut BatchRoot); 5] = [
        |root| root.samples.state = pack([16_u64]),
        |root| root.completions.state = pack([8_u64]),
        |root| root.drops.reason = pack([5_u64]),
        |root| root.frames.kind = pack([4_u64]),
        |root| root.modules.kind = pack([6_u64]),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert_eq!(refusal(change), Some(Invalid::Value), "change {number}");
    }
    assert_eq!(
        refusal(|root| root.frames.kind = pack([256_u64])),
        Some(Invalid::Column)
    );
    assert_eq!(
        refusal(|root| root.samples.cpu = pack([1_u64 << 32])),
        Some(Invalid::Column)
    );
    let weight = |root: &mut BatchRoot| {
        (root.samples.weight_base, root.samples.weight) = (u64::MAX, pack([1_u64]))
    };
    assert_eq!(refusal(weight), Some(Invalid::Value));
}

/// Check that row counts that the columns do not back are refused, and more rows than allowed in any case, although
/// columns of zeros would take no bytes.
#[test]
fn row_counts() {
    for rows in [MOST_ROWS + 1, u32::MAX] {
        let changes: [fn(&mut BatchRoot, u32); 9] = [
            |root, rows| root.samples.rows = rows,
            |root, rows| root.samples.tasks = rows,
            |root, rows| root.frames.rows = rows,
            |root, rows| root.stacks.rows = rows,
            |root, rows| root.completions.rows = rows,
            |root, rows| root.drops.rows = rows,
            |root, rows| root.processes.rows = rows,
            |root, rows| root.modules.segments = rows,
            |root, rows| root.mappings.rows = rows,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            assert_eq!(
                refusal(|root| change(root, rows)),
                Some(Invalid::Rows),
                "change {number}"
            );
        }
    }
    assert_eq!(
        refusal(|root| root.blobs.count = u32::MAX),
        Some(Invalid::Rows)
    );
    assert_eq!(
        refusal(|root| root.modules.segment_count = pack([2_u64])),
        Some(Invalid::Rows)
    );
    assert_eq!(
        refusal(|root| root.modules.segment_count = pack([0_u64])),
        Some(Invalid::Rows)
    );
    assert_eq!(
        refusal(|root| root.samples.user = vec![1; 5]),
        Some(Invalid::Column)
    );
    assert_eq!(
        refusal(|root| root.samples.user = vec![0; 9]),
        Some(Invalid::Column)
    );
}

/// Check that text that is no UTF-8, too short, too long or left over is refused, and build IDs and hashes of lengths
/// that they never have.
#[test]
fn text() {
    assert_eq!(
        refusal(|root| root.blobs.bytes = b"\xff\xfe\xfd".to_vec()),
        Some(Invalid::Text)
    );
    assert_eq!(
        refusal(|root| root.blobs.bytes = b"ap".to_vec()),
        Some(Invalid::Text)
    );
    assert_eq!(
        refusal(|root| root.blobs.bytes = b"apple".to_vec()),
        Some(Invalid::Text)
    );
    assert_eq!(refusal(|root| root.blobs.count += 1), Some(Invalid::Column));
    // Blobs: comm, cgroup, build ID, content hash, path, path.
    let lengths = |root: &mut BatchRoot, lengths: [u64; 6]| {
        root.blobs.lengths = pack(lengths);
        root.blobs.bytes = vec![b'a'; usize::try_from(lengths.iter().sum::<u64>()).unwrap()];
    };
    assert_eq!(
        refusal(|root| lengths(root, [3, 0, 65, 0, 0, 0])),
        Some(Invalid::Value)
    );
    assert_eq!(
        refusal(|root| lengths(root, [3, 0, 20, 15, 0, 0])),
        Some(Invalid::Value)
    );
    assert_eq!(refusal(|root| lengths(root, [3, 0, 20, 16, 1, 0])), None);
    assert_eq!(
        refusal(|root| root.blobs.lengths = vec![0xff; 6 * 8]),
        Some(Invalid::Column)
    );
}

/// Check that 65,536 rows of nothing take little time.
#[test]
fn most_rows() {
    let change = |root: &mut BatchRoot| {
        root.samples = batch::encode(&Batch::default()).unwrap().samples;
        (root.samples.rows, root.samples.tasks) = (MOST_ROWS, 1);
    };
    assert_eq!(refusal(change), None);
}

/// Check that a module name that would be repeated for every kernel symbol must be short, on both ways.
#[test]
fn module_names() {
    let symbol = |module: usize| KernelSymbol {
        module: "m".repeat(module),
        ..KernelSymbol::default()
    };
    let part = |module| KernelSymbols {
        symbols: vec![symbol(module)],
        ..KernelSymbols::default()
    };
    assert_eq!(
        kernel::encode_symbols(&part(65)).err(),
        Some(Invalid::Value)
    );
    let mut root: KernelSymbolsRoot = kernel::encode_symbols(&part(64)).unwrap();
    let read = |root: &KernelSymbolsRoot| {
        let raw = to_bytes(root, AlignedVec::new()).unwrap();
        decode(Kind::KERNEL_SYMBOLS, &raw).err()
    };
    assert_eq!(read(&root), None);
    (root.blobs.lengths, root.blobs.bytes) = (pack([0_u64, 65, 0]), vec![b'm'; 65]);
    assert_eq!(read(&root), Some(Invalid::Value));
    root.module = pack([1_u64]);
    (root.blobs.lengths, root.blobs.bytes) = (pack([0_u64, 64, 0]), vec![b'm'; 64]);
    assert_eq!(read(&root), Some(Invalid::Reference));
}

/// Check that a recording with an unknown mode, or with more pairs than text, is refused.
#[test]
fn recordings() {
    let read = |change: fn(&mut RecordingRoot)| {
        let mut root = recording::encode(&Recording::default()).unwrap();
        change(&mut root);
        let raw = to_bytes(&root, AlignedVec::new()).unwrap();
        decode(Kind::RECORDING, &raw).err()
    };
    assert_eq!(read(|_| {}), None);
    assert_eq!(read(|root| root.mode = 3), Some(Invalid::Value));
    assert_eq!(read(|root| root.labels = 1), Some(Invalid::Text));
    assert_eq!(read(|root| root.labels = u32::MAX), Some(Invalid::Rows));
    assert_eq!(read(|root| root.events = 1), Some(Invalid::Text));
}
