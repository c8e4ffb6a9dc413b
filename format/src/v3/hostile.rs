//! Tests: what copies say of uretprobes and programs, laid out well and said by no writer.

use rkyv::util::AlignedVec;

use super::copies::{self, StackCopiesRoot};
use crate::chunk::Kind;
use crate::content::decode;
use crate::copies::{CopiesBuilder, MAX_RETURNS, NewCopy, ReturnAddress};
use crate::error::Invalid;
use crate::id::{Addr, StackId};
use crate::v1::column::pack;
use crate::v1::to_bytes;

/// Two copies of one thread, of which the first has two replaced return addresses, and the second one.
fn sound() -> StackCopiesRoot {
    let returns = [0x2010, 0x2020].map(|place| ReturnAddress {
        place: Addr(place),
        address: Addr(0x40_1136),
    });
    let words = [0x2018, 0, 0x40_5555, 0x40_5555_u64];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut builder = CopiesBuilder::default();
    for (owner, returns) in [(1, &returns[..]), (2, &returns[..1])] {
        let copy = NewCopy {
            owner: StackId(owner),
            start: Addr(0x2000),
            end: Addr(0x3000),
            asked: 32,
            bytes: &bytes,
            program_since_ns: 5,
            trampoline: Addr(0x7000),
            returns,
            ..NewCopy::default()
        };
        assert!(builder.push(&copy).unwrap());
    }
    copies::encode(&builder.take()).unwrap()
}

/// Change a sound root, read it and give the reason why it is refused.
fn refusal(change: impl FnOnce(&mut StackCopiesRoot)) -> Option<Invalid> {
    let mut root = sound();
    change(&mut root);
    let raw = to_bytes(&root, AlignedVec::new()).unwrap();
    decode(Kind::STACK_COPIES, super::VERSION, &raw).err()
}

/// Check that the root that the other test changes is accepted as it is, and that what rows have in common takes no room.
#[test]
fn sound_root() {
    assert_eq!(refusal(|_| {}), None);
    let root = sound();
    assert_eq!(root.returns, 3);
    assert_eq!(root.program_since, pack([5_u64 << 1, 0]));
    assert_eq!(root.trampoline, pack([0x7000_u64 << 1, 0]));
    assert_eq!(root.return_place, pack([0x20_u64, 0x40, 0x20]));
    let words = &root.words;
    assert_eq!((words.words, &words.kind), (3, &pack([1_u8, 2, 2])));
    assert_eq!((&words.near, words.other.len()), (&vec![6], 16));
    assert!(root.stacks.words.is_empty());
}

/// Check that words are refused that are not as many as the runs say, that are of no kind or cut, or of which too many are
/// told; and a word that stands in the place of version 2.
#[test]
fn words() {
    type Change = fn(&mut StackCopiesRoot);
    let changes: [(Change, Invalid); 12] = [
        (|root| root.words.words = 4, Invalid::Column),
        (
            |root| (root.words.words, root.words.kind) = (4, pack([1_u8, 2, 2, 0])),
            Invalid::Rows,
        ),
        (
            |root| (root.words.words, root.words.kind) = (2, pack([1_u8, 2])),
            Invalid::Rows,
        ),
        (|root| root.words.words = u32::MAX, Invalid::Rows),
        (|root| root.words.kind = pack([1_u8, 2, 3]), Invalid::Value),
        (|root| root.words.kind = pack([1_u8, 2, 0]), Invalid::Rows),
        (|root| root.words.other.truncate(8), Invalid::Rows),
        (|root| root.words.other.push(0), Invalid::Column),
        (|root| root.words.near = Vec::new(), Invalid::Column),
        (|root| root.words.near = vec![0x80; 5], Invalid::Column),
        (|root| root.words.near.push(1), Invalid::Rows),
        (|root| root.stacks.words = vec![0; 8], Invalid::Rows),
    ];
    for (number, (change, expected)) in changes.into_iter().enumerate() {
        assert_eq!(refusal(change), Some(expected), "change {number}");
    }
}

/// Check that replaced return addresses that no row has, or that have no trampoline, are refused, however many are told.
#[test]
fn returns() {
    type Change = fn(&mut StackCopiesRoot);
    let changes: [(Change, Invalid); 9] = [
        (|root| root.returns = 2, Invalid::Column),
        (|root| root.returns = u32::MAX, Invalid::Rows),
        (|root| root.return_place = vec![0; 4], Invalid::Column),
        (|root| root.return_address = vec![0; 2], Invalid::Column),
        (|root| root.return_count = pack([2_u64, 2]), Invalid::Rows),
        (|root| root.return_count = pack([1_u64, 1]), Invalid::Rows),
        (|root| root.return_count = pack([3_u64, 0]), Invalid::Value),
        (|root| root.trampoline = Vec::new(), Invalid::Value),
        (
            |root| {
                let many = u32::try_from(MAX_RETURNS).unwrap() + 1;
                root.return_count = pack([many, 1]);
                (root.return_place, root.return_address) = Default::default();
                root.returns = many + 1;
            },
            Invalid::Value,
        ),
    ];
    for (number, (change, expected)) in changes.into_iter().enumerate() {
        assert_eq!(refusal(change), Some(expected), "change {number}");
    }
    let is_known = |root: &mut StackCopiesRoot| root.stacks.task = pack([0_u64, 1]);
    assert_eq!(refusal(is_known), Some(Invalid::Reference));
}
