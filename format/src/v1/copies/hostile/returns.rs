//! Replaced return addresses, programs, and words by what they are.

use super::{Change, refusal};
use crate::copies::{CopiesBuilder, MAX_RETURNS, NewCopy, ReturnAddress};
use crate::error::Invalid;
use crate::id::{Addr, StackId};
use crate::v1::column::pack;
use crate::v1::copies::words::pack_kinds;
use crate::v1::copies::{StackCopiesRoot, encode};

/// Two copies of one thread, of which the first has two replaced return addresses, and the second one.
fn sound() -> StackCopiesRoot {
    let returns = [0x2010, 0x2020].map(|place| ReturnAddress {
        place: Addr(place),
        address: Addr(0x40_1136),
    });
    let words = [0x2018, 0, 1, 0x40_5555, 0x40_5555_u64];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut builder = CopiesBuilder::default();
    for (owner, returns) in [(1, &returns[..]), (2, &returns[..1])] {
        let copy = NewCopy {
            owner: StackId(owner),
            start: Addr(0x2000),
            end: Addr(0x3000),
            asked: 40,
            bytes: &bytes,
            program_since_ns: 5,
            trampoline: Addr(0x7000),
            returns,
            ..NewCopy::default()
        };
        assert!(builder.push(&copy).unwrap());
    }
    encode(&builder.take()).unwrap()
}

/// Check that the root that the other test changes is accepted as it is, and that what rows have in common takes no room.
#[test]
fn sound_root() {
    assert_eq!(refusal(sound(), |_| {}), None);
    let root = sound();
    assert_eq!(root.returns.returns, 3);
    assert_eq!(root.rows.program_since, pack([5_u64 << 1, 0]));
    assert_eq!(root.rows.trampoline, pack([0x7000_u64 << 1, 0]));
    assert_eq!(root.returns.place, pack([0x20_u64, 0x40, 0x20]));
    let words = &root.words;
    assert_eq!(
        (words.words, &words.kind),
        (5, &pack_kinds(&[1, 0, 3, 2, 2]))
    );
    assert_eq!((&words.near, words.other.len()), (&vec![6], 16));
}

/// Check that words are refused that are not as many as the runs say, of which it is not said what they are, that are cut, or
/// of which too many are told.
#[test]
fn words() {
    let changes: [(Change, Invalid); 14] = [
        (|root| root.words.words = 4, Invalid::Column),
        (|root| root.words.words = 9, Invalid::Column),
        (|root| root.words.words = 6, Invalid::Rows),
        (
            |root| {
                (root.words.words, root.words.kind) = (4, pack_kinds(&[1, 0, 3, 2]));
            },
            Invalid::Rows,
        ),
        (|root| root.words.words = u32::MAX, Invalid::Rows),
        (|root| root.words.kind[1] |= 0x40, Invalid::Value),
        (|root| root.words.kind = Vec::new(), Invalid::Column),
        (
            |root| root.words.kind = pack_kinds(&[1, 0, 3, 2, 3]),
            Invalid::Rows,
        ),
        (
            |root| root.words.kind = pack_kinds(&[1, 0, 2, 2, 2]),
            Invalid::Rows,
        ),
        (|root| root.words.other.truncate(8), Invalid::Rows),
        (|root| root.words.other.push(0), Invalid::Column),
        (|root| root.words.near = Vec::new(), Invalid::Column),
        (|root| root.words.near = vec![0x80; 5], Invalid::Column),
        (|root| root.words.near.push(1), Invalid::Rows),
    ];
    for (number, (change, expected)) in changes.into_iter().enumerate() {
        assert_eq!(refusal(sound(), change), Some(expected), "change {number}");
    }
}

/// Check that replaced return addresses that no row has, or that have no trampoline, are refused, however many are told.
#[test]
fn returns() {
    let changes: [(Change, Invalid); 9] = [
        (|root| root.returns.returns = 2, Invalid::Column),
        (|root| root.returns.returns = u32::MAX, Invalid::Rows),
        (|root| root.returns.place = vec![0; 4], Invalid::Column),
        (|root| root.returns.address = vec![0; 2], Invalid::Column),
        (|root| root.returns.count = pack([2_u64, 2]), Invalid::Rows),
        (|root| root.returns.count = pack([1_u64, 1]), Invalid::Rows),
        (|root| root.returns.count = pack([3_u64, 0]), Invalid::Value),
        (|root| root.rows.trampoline = Vec::new(), Invalid::Value),
        (
            |root| {
                let many = u32::try_from(MAX_RETURNS).unwrap() + 1;
                root.returns.count = pack([many, 1]);
                (root.returns.place, root.returns.address) = Default::default();
                root.returns.returns = many + 1;
            },
            Invalid::Value,
        ),
    ];
    for (number, (change, expected)) in changes.into_iter().enumerate() {
        assert_eq!(refusal(sound(), change), Some(expected), "change {number}");
    }
    let is_known = |root: &mut StackCopiesRoot| root.rows.task = pack([0_u64, 1]);
    assert_eq!(refusal(sound(), is_known), Some(Invalid::Reference));
}
