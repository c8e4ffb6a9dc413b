//! Spans.

use super::{Change, refusal};
use crate::copies::{CopiesBuilder, MAX_COPY_LEN, MAX_FURTHER, NewCopy, Span};
use crate::error::Invalid;
use crate::id::{Addr, StackId};
use crate::v1::column::pack;
use crate::v1::copies::{StackCopiesRoot, encode};

/// Two copies of one thread: the first has two words, the last two of its stack and one of another, the second has the first
/// two words alone.
fn sound() -> StackCopiesRoot {
    let words = [1_u64, 2, 3, 4, 5];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let span = |start, end, asked| Span {
        start: Addr(start),
        end: Addr(end),
        asked,
    };
    let further = [span(0x2ff0, 0x3000, 16), span(0x9000, 0x9100, 8)];
    let first = NewCopy {
        owner: StackId(1),
        start: Addr(0x2000),
        end: Addr(0x3000),
        asked: 16,
        further: &further,
        bytes: &bytes,
        ..NewCopy::default()
    };
    let second = NewCopy {
        owner: StackId(2),
        further: &[],
        bytes: &bytes[..16],
        ..first
    };
    let mut builder = CopiesBuilder::default();
    assert!(builder.push(&first).unwrap() && builder.push(&second).unwrap());
    encode(&builder.take()).unwrap()
}

/// Check that the root that the other test changes is accepted as it is, and that the end of a row's own stack takes no room.
#[test]
fn sound_root() {
    assert_eq!(refusal(sound(), |_| {}), None);
    let root = sound();
    assert_eq!(
        (root.extents.spans, &root.extents.span_count),
        (2, &pack([2_u64, 0]))
    );
    assert_eq!(root.extents.span_start, pack([3_u64, 0xc00 << 1]));
    assert_eq!(root.extents.span_end, pack([0_u64, 0x6100 << 1]));
    assert_eq!(root.extents.span_asked, pack([2_u64, 1]));
}

/// Check that spans that no row has, that are empty or beyond their stack, or that are too many or too long together, are
/// refused, however many are told.
#[test]
fn spans() {
    let changes: [(Change, Invalid); 13] = [
        (|root| root.extents.spans = 3, Invalid::Column),
        (|root| root.extents.spans = u32::MAX, Invalid::Rows),
        (
            |root| root.extents.span_start = pack([3_u64]),
            Invalid::Column,
        ),
        (
            |root| root.extents.span_end = pack([1_u64; 3]),
            Invalid::Column,
        ),
        (
            |root| root.extents.span_count = pack([1_u64, 0]),
            Invalid::Rows,
        ),
        (
            |root| root.extents.span_count = pack([2_u64, 1]),
            Invalid::Rows,
        ),
        (
            |root| root.extents.span_asked = pack([2_u64, 0]),
            Invalid::Value,
        ),
        (
            |root| root.extents.span_asked = pack([3_u64, 1]),
            Invalid::Value,
        ),
        // Sound by itself, with more words than the runs have.
        (
            |root| root.extents.span_asked = pack([2_u64, 2]),
            Invalid::Rows,
        ),
        (
            |root| root.extents.span_end = pack([1_u64 << 1, 0]),
            Invalid::Value,
        ),
        (
            |root| root.extents.span_start = pack([3_u64, 1 << 62]),
            Invalid::Value,
        ),
        (
            |root| {
                root.extents.span_end = pack([0_u64, 0x10_0000 << 1]);
                root.extents.span_asked = pack([2, MAX_COPY_LEN / 8 - 3]);
            },
            Invalid::Value,
        ),
        (
            |root| {
                let many = MAX_FURTHER as u64 + 1;
                root.extents.spans = u32::try_from(many).unwrap();
                root.extents.span_count = pack([many, 0]);
                root.extents.span_start = pack(vec![3_u64; MAX_FURTHER + 1]);
                root.extents.span_end = Vec::new();
                root.extents.span_asked = pack(vec![1_u64; MAX_FURTHER + 1]);
            },
            Invalid::Value,
        ),
    ];
    for (number, (change, expected)) in changes.into_iter().enumerate() {
        assert_eq!(refusal(sound(), change), Some(expected), "change {number}");
    }
    let with_loss = |root: &mut StackCopiesRoot| {
        let rows = &mut root.rows;
        (rows.loss, rows.end) = (pack([1_u64, 0]), rows.start.clone());
    };
    assert!(refusal(sound(), with_loss).is_some());
}
