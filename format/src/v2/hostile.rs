//! Tests: copies of stacks that are laid out well and say what no writer says.

use std::time::{Duration, Instant};

use rkyv::util::AlignedVec;

use super::copies::{self, StackCopiesRoot};
use crate::chunk::Kind;
use crate::content::decode;
use crate::copies::{CopiesBuilder, MAX_COPY_LEN, Missing, NewCopy, Registers};
use crate::error::Invalid;
use crate::id::{Addr, StackId};
use crate::v1::column::pack;
use crate::v1::to_bytes;

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
    let copies = builder.take();
    copies::encode(&copies, &copies.words).unwrap()
}

/// Change a sound root, read it and give the reason why it is refused.
fn refusal(change: impl FnOnce(&mut StackCopiesRoot)) -> Option<Invalid> {
    let mut root = sound();
    change(&mut root);
    let raw = to_bytes(&root, AlignedVec::new()).unwrap();
    let start = Instant::now();
    let refusal = decode(Kind::STACK_COPIES, super::VERSION, &raw).err();
    assert!(start.elapsed() < Duration::from_millis(100));
    refusal
}

/// Check that the root that the other tests change is accepted as it is, and what its runs are: all four words are new
/// in the first copy, and the last in the second.
#[test]
fn sound_root() {
    assert_eq!(refusal(|_| {}), None);
    let root = sound();
    assert_eq!((root.runs, root.words.len()), (2, 5 * 8));
    assert_eq!((root.same, root.new), (pack([0_u64, 3]), pack([4_u64, 1])));
}

/// Check that runs that do not end with their copy are refused, and runs of nothing, which could go on for ever.
#[test]
fn runs() {
    let changes: [fn(&mut StackCopiesRoot); 8] = [
        |root| root.new = pack([4_u64, 2]),
        |root| root.new = pack([3_u64, 1]),
        |root| root.same = pack([1_u64, 3]),
        |root| root.same = pack([u64::from(u32::MAX), 3]),
        |root| (root.runs, root.same, root.new) = (3, pack([0_u64, 0, 3]), pack([4_u64, 0, 1])),
        |root| (root.runs, root.same, root.new) = (3, pack([0_u64, 3, 0]), pack([4_u64, 1, 1])),
        |root| root.words = vec![0; 6 * 8],
        |root| root.words = vec![0; 4 * 8],
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert_eq!(refusal(change), Some(Invalid::Rows), "change {number}");
    }
    assert_eq!(
        refusal(|root| root.words = vec![0; 39]),
        Some(Invalid::Column)
    );
}

/// Check that a copy that lies nowhere, is larger than allowed, or misses what it does not have is refused.
#[test]
fn spans() {
    let changes: [fn(&mut StackCopiesRoot); 12] = [
        |root| root.start = pack([(1_u64 << 61) << 1, 0]),
        |root| root.end = pack([0x1000_u64 << 1, 0]),
        |root| root.end = pack([(0x3000_u64 << 1) + 2, 0]),
        |root| root.left_out = pack([0x1001_u64, 0]),
        |root| root.left_out = Vec::new(),
        |root| root.end = pack([(0x3000 + MAX_COPY_LEN) << 1, 0]),
        |root| root.registers = pack([1_u64 << 40, 1 << 16]),
        |root| root.loss = pack([1_u64, 0]),
        |root| root.loss = pack([5_u64, 0]),
        |root| root.range_len = pack([0_u64, 1]),
        |root| root.range_len = pack([4_u64, 1]),
        |root| root.range_offset = pack([u64::from(u32::MAX), 1]),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let refusal = refusal(change);
        // A longer span that is sound by itself has more words than its runs.
        let expected = if number == 4 {
            Invalid::Rows
        } else {
            Invalid::Value
        };
        assert_eq!(refusal, Some(expected), "change {number}");
    }
    assert_eq!(
        refusal(|root| root.missing = pack([2_u64, 1])),
        Some(Invalid::Value)
    );
    assert_eq!(
        refusal(|root| root.missing = pack([1_u64, 2])),
        Some(Invalid::Rows)
    );
    assert_eq!(
        refusal(|root| root.task = pack([0_u64, 1])),
        Some(Invalid::Reference)
    );
}

/// Check that row counts that nothing backs are refused, although columns of zeros take no bytes.
#[test]
fn row_counts() {
    let changes: [fn(&mut StackCopiesRoot); 6] = [
        |root| root.rows = 65_537,
        |root| root.tasks = u32::MAX,
        |root| root.ranges = 65_537,
        |root| root.runs = (1 << 18) + 1,
        |root| root.runs = u32::MAX,
        // Columns of zeros take no bytes: as many empty ranges as there may be belong to nobody.
        |root| (root.ranges, root.range_offset, root.range_len) = (65_536, Vec::new(), Vec::new()),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let refusal = refusal(change);
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
        root.rows = 1000;
        root.ranges = 0;
        root.runs = 1000;
        (root.range_offset, root.range_len, root.missing) = Default::default();
        (root.task, root.machine, root.loss, root.left_out) = Default::default();
        root.registers = Vec::new();
        root.owner = zeros(2);
        root.start = Vec::new();
        root.end = pack((0..rows).map(|row| if row == 0 { MAX_COPY_LEN << 1 } else { 0 }));
        (root.same, root.new, root.words) = (zeros(MAX_COPY_LEN / 8), Vec::new(), Vec::new());
    };
    assert_eq!(refusal(change), Some(Invalid::Rows));
}
