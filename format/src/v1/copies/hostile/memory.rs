//! Runs, ranges and rows.

use super::{Change, refusal};
use crate::copies::{CopiesBuilder, MAX_COPY_LEN, Missing, NewCopy, Registers};
use crate::error::Invalid;
use crate::id::{Addr, StackId};
use crate::v1::column::pack;
use crate::v1::copies::{StackCopiesRoot, encode};

/// Two copies of one thread: a register and four words, of which one is missing; then the same with another word.
fn sound() -> StackCopiesRoot {
    let mut registers = Registers::default();
    assert!(registers.set(16, 0x1136));
    let mut changed = [7; 32];
    changed[24..].fill(8);
    let missing = [Missing { offset: 8, len: 8 }];
    let copy = NewCopy {
        owner: StackId(1),
        registers,
        start: Addr(0x2000),
        end: Addr(0x3000),
        asked: 32,
        bytes: &[7; 32],
        missing: &missing,
        ..NewCopy::default()
    };
    let mut builder = CopiesBuilder::default();
    assert!(builder.push(&copy).unwrap());
    let second = NewCopy {
        owner: StackId(2),
        bytes: &changed,
        ..copy
    };
    assert!(builder.push(&second).unwrap());
    encode(&builder.take()).unwrap()
}

/// Check that the root that the other tests change is accepted as it is, and what its runs are: all four words are new
/// in the first copy, and the last in the second.
#[test]
fn sound_root() {
    assert_eq!(refusal(sound(), |_| {}), None);
    let root = sound();
    assert_eq!((root.words.runs, root.words.words), (2, 5));
    assert_eq!(
        (root.words.same, root.words.new),
        (pack([0_u64, 3]), pack([4_u64, 1]))
    );
}

/// Check that runs that do not end with their copy are refused, and runs of nothing, which could go on for ever.
#[test]
fn runs() {
    let changes: [Change; 6] = [
        |root| root.words.new = pack([4_u64, 2]),
        |root| root.words.new = pack([3_u64, 1]),
        |root| root.words.same = pack([1_u64, 3]),
        |root| root.words.same = pack([u64::from(u32::MAX), 3]),
        |root| {
            (root.words.runs, root.words.same, root.words.new) =
                (3, pack([0_u64, 0, 3]), pack([4_u64, 0, 1]))
        },
        |root| {
            (root.words.runs, root.words.same, root.words.new) =
                (3, pack([0_u64, 3, 0]), pack([4_u64, 1, 1]))
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert_eq!(
            refusal(sound(), change),
            Some(Invalid::Rows),
            "change {number}"
        );
    }
}

/// Check that a copy that lies nowhere, is larger than allowed, or misses what it does not have is refused.
#[test]
fn spans() {
    let changes: [Change; 12] = [
        |root| root.rows.start = pack([(1_u64 << 61) << 1, 0]),
        |root| root.rows.end = pack([0x1000_u64 << 1, 0]),
        |root| root.rows.end = pack([(0x3000_u64 << 1) + 2, 0]),
        |root| root.rows.left_out = pack([0x1001_u64, 0]),
        |root| root.rows.left_out = Vec::new(),
        |root| root.rows.end = pack([(0x3000 + MAX_COPY_LEN) << 1, 0]),
        |root| root.rows.registers = pack([1_u64 << 40, 1 << 16]),
        |root| root.rows.loss = pack([1_u64, 0]),
        |root| root.rows.loss = pack([5_u64, 0]),
        |root| root.extents.range_len = pack([0_u64, 1]),
        |root| root.extents.range_len = pack([4_u64, 1]),
        |root| root.extents.range_offset = pack([u64::from(u32::MAX), 1]),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let refusal = refusal(sound(), change);
        // A longer span that is sound by itself has more words than its runs.
        let expected = if number == 4 {
            Invalid::Rows
        } else {
            Invalid::Value
        };
        assert_eq!(refusal, Some(expected), "change {number}");
    }
    assert_eq!(
        refusal(sound(), |root| root.extents.range_count = pack([2_u64, 1])),
        Some(Invalid::Value)
    );
    assert_eq!(
        refusal(sound(), |root| root.extents.range_count = pack([1_u64, 2])),
        Some(Invalid::Rows)
    );
    assert_eq!(
        refusal(sound(), |root| root.rows.task = pack([0_u64, 1])),
        Some(Invalid::Reference)
    );
}

/// Check that row counts that nothing backs are refused, although columns of zeros take no bytes.
#[test]
fn row_counts() {
    let changes: [Change; 6] = [
        |root| root.rows.rows = 65_537,
        |root| root.rows.tasks = u32::MAX,
        |root| root.extents.ranges = 65_537,
        |root| root.words.runs = (1 << 18) + 1,
        |root| root.words.runs = u32::MAX,
        // Columns of zeros take no bytes: as many empty ranges as there may be belong to nobody.
        |root| {
            (
                root.extents.ranges,
                root.extents.range_offset,
                root.extents.range_len,
            ) = (65_536, Vec::new(), Vec::new())
        },
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let refusal = refusal(sound(), change);
        assert!(
            matches!(refusal, Some(Invalid::Rows | Invalid::Value)),
            "change {number}: {refusal:?}"
        );
    }
}

/// Check that a chunk of few bytes cannot stand for gigabytes of copies.
#[test]
fn unpacked_size() {
    let change = |root: &mut StackCopiesRoot| {
        let rows = 1000_usize;
        let zeros = |value: u64| pack(vec![value; rows]);
        root.rows.rows = 1000;
        root.extents.ranges = 0;
        root.words.runs = 1000;
        (
            root.extents.range_offset,
            root.extents.range_len,
            root.extents.range_count,
        ) = Default::default();
        (
            root.rows.task,
            root.rows.machine,
            root.rows.loss,
            root.rows.left_out,
        ) = Default::default();
        root.rows.registers = Vec::new();
        root.rows.owner = zeros(2);
        root.rows.start = Vec::new();
        root.rows.end = pack((0..rows).map(|row| if row == 0 { MAX_COPY_LEN << 1 } else { 0 }));
        (root.words.same, root.words.new) = (zeros(MAX_COPY_LEN / 8), Vec::new());
        (root.words.words, root.words.kind, root.words.other) = Default::default();
    };
    assert_eq!(refusal(sound(), change), Some(Invalid::Rows));
}
