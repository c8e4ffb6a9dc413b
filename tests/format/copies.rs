//! Copies of stacks come back as they were taken, in chunks that need no other.

use proptest::collection;
use proptest::prelude::{ProptestConfig, any, prop_assert_eq, proptest};
use rawstack_format::copies::{
    CopiesBuilder, CopyLoss, MAX_COPY_LEN, MAX_RETURNS, NewCopy, ReturnAddress, StackCopies,
    StackCopy,
};
use rawstack_format::id::{Addr, StackId};
use rawstack_format::record::Record;
use rawstack_format::{Invalid, MAX_RAW_LEN};

use crate::common::{Rng, archive, read};
use crate::draw::{Draw, DrawnCopy};

/// A copy as it is lent, with memory of its own.
fn kept(copy: &StackCopy<'_>) -> DrawnCopy {
    let mut bytes = Vec::new();
    copy.unpack(&mut bytes);
    DrawnCopy {
        owner: copy.owner.0,
        task: (copy.pid, copy.tid),
        registers: copy.registers(),
        loss: copy.loss,
        start: copy.start.0,
        left_out: copy.end.0 - copy.start.0 - copy.asked,
        further: copy.further.to_vec(),
        bytes,
        missing: copy.missing.to_vec(),
        program_since_ns: copy.program_since_ns,
        trampoline: copy.trampoline().unwrap_or_default().0,
        returns: copy.return_addresses().to_vec(),
    }
}

/// Write chunks, read them, and give the copies.
fn written(chunks: Vec<StackCopies>) -> Vec<DrawnCopy> {
    let records: Vec<Record> = chunks.into_iter().map(Record::StackCopies).collect();
    let (chunks, damage) = read(&archive(&records));
    assert!(damage.is_none(), "{damage:?}");
    let mut copies = Vec::new();
    for chunk in chunks {
        let Some(Record::StackCopies(chunk)) = chunk.record else {
            continue;
        };
        let mut reader = chunk.reader();
        while let Some(copy) = reader.next() {
            copies.push(kept(&copy));
        }
    }
    copies
}

/// Build chunks as a recorder does.
fn chunks<'a>(copies: impl IntoIterator<Item = &'a DrawnCopy>) -> Vec<StackCopies> {
    let (mut builder, mut chunks) = (CopiesBuilder::default(), Vec::new());
    for copy in copies {
        if !builder.push(&copy.taken()).unwrap() {
            chunks.push(builder.take());
            assert!(builder.push(&copy.taken()).unwrap());
        }
        assert!(builder.raw_bound() <= MAX_RAW_LEN);
    }
    chunks.push(builder.take());
    chunks
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// Check that copies come back byte for byte, and that looking up a word at any address gives what the bytes say,
    /// and nothing where any of its bytes is missing.
    #[test]
    fn as_taken(numbers in collection::vec(any::<u64>(), 0..900)) {
        let mut draw = Draw(numbers.into_iter());
        let copies: Vec<DrawnCopy> = (0..12).map(|_| draw.drawn_copy()).collect();
        prop_assert_eq!(&written(chunks(&copies)), &copies);
        for chunk in chunks(&copies) {
            let mut reader = chunk.reader();
            while let Some(copy) = reader.next() {
                check_words(&copy);
            }
        }
    }
}

fn check_words(copy: &StackCopy<'_>) {
    let drawn = kept(copy);
    let mut first = 0;
    for span in copy.spans() {
        let is_missing = |at: u64| {
            let holds = |gap: &rawstack_format::copies::Missing| {
                (gap.offset..gap.offset + gap.len).contains(&at)
            };
            at >= first + span.asked || copy.missing.iter().any(holds)
        };
        for at in first..first + span.asked + 16 {
            let expected = (!(at..at + 8).any(is_missing)).then(|| {
                let at = at as usize;
                u64::from_le_bytes(drawn.bytes[at..at + 8].try_into().unwrap())
            });
            let word = copy.word(span.start.0 + (at - first));
            assert_eq!(word, expected, "at {at} of {drawn:?}");
        }
        first += span.asked;
    }
    assert_eq!(first, drawn.bytes.len() as u64);
    for address in [0, copy.start.0 - 1, copy.start.0 - 8, u64::MAX] {
        assert_eq!(copy.word(address), None);
    }
}

/// Copies of one thread, a walk up and down a stack of 40 KiB with junk in it: each differs from the one before in
/// what is above the deeper of both.
fn walk(rng: &mut Rng, count: usize) -> Vec<DrawnCopy> {
    let end = 0x7fff_ffff_f000_u64;
    let mut memory: Vec<u64> = (0..5120).map(|_| rng.next()).collect();
    let mut depth = 2000;
    let copy = |number| {
        let to = 100 + rng.below(5000) as usize;
        for word in &mut memory[5120 - to.max(depth)..5120 - to.min(depth)] {
            *word = rng.next();
        }
        depth = to;
        let bytes = memory[5120 - to..]
            .iter()
            .flat_map(|word| word.to_le_bytes());
        DrawnCopy {
            owner: number as u64 + 1,
            task: (7, 7),
            start: end - to as u64 * 8,
            bytes: bytes.collect(),
            ..DrawnCopy::default()
        }
    };
    (0..count).map(copy).collect()
}

/// Check that copies of many chunks come back, that each chunk is as full as it can be, and that each can be read
/// without the others.
#[test]
fn many_chunks() {
    let copies = walk(&mut Rng(5), 400);
    let mut chunks = chunks(&copies);
    assert!(chunks.len() >= 3, "{} chunks", chunks.len());
    assert_eq!(written(chunks.clone()), copies);
    let lost = chunks.remove(1).len();
    let first = chunks[0].len();
    let without: Vec<DrawnCopy> = [&copies[..first], &copies[first + lost..]].concat();
    assert_eq!(written(chunks), without);
}

/// Check that a copy of the largest size that has nothing in common with anything fits, as do those behind it.
#[test]
fn largest_copy() {
    let mut rng = Rng(6);
    let mut copy = |owner: u64| DrawnCopy {
        owner,
        start: 0x7f00_0000_0000,
        bytes: (0..MAX_COPY_LEN / 8)
            .flat_map(|_| rng.next().to_le_bytes())
            .collect(),
        ..DrawnCopy::default()
    };
    let mut copies = vec![copy(1), copy(2)];
    // Every second word is another: the most runs.
    let mut third = copies[1].clone();
    for word in third.bytes.chunks_exact_mut(16) {
        word[0] ^= 1;
    }
    copies.push(third);
    let chunks = chunks(&copies);
    assert_eq!(
        chunks.iter().map(StackCopies::len).collect::<Vec<_>>(),
        [1, 1, 1]
    );
    assert_eq!(written(chunks), copies);
    let longer = vec![0; MAX_COPY_LEN as usize + 8];
    let refused = NewCopy {
        end: Addr(1 << 30),
        asked: longer.len() as u64,
        bytes: &longer,
        ..NewCopy::default()
    };
    assert_eq!(CopiesBuilder::default().push(&refused), Err(Invalid::Value));
}

/// Check that what was left out of copies takes next to no room, and that a chunk of such copies is full all the same.
#[test]
fn left_out() {
    let copies: Vec<DrawnCopy> = (0..40)
        .map(|number| DrawnCopy {
            owner: number + 1,
            start: 0x7f00_0000_0000 + (number << 16),
            bytes: (0..1 << 13).flat_map(|_| 1_u64.to_le_bytes()).collect(),
            ..DrawnCopy::default()
        })
        .collect();
    let chunks = chunks(&copies);
    assert_eq!(
        chunks.iter().map(StackCopies::len).collect::<Vec<_>>(),
        [32, 8]
    );
    assert_eq!(written(chunks.clone()), copies);
    let records: Vec<Record> = chunks.into_iter().map(Record::StackCopies).collect();
    let len = archive(&records).len();
    assert!(len < 8192, "{len} bytes");
}

/// Check that what is behind the bytes that were read is missing, to the last whole word, and that a copy that
/// contradicts itself is refused and changes nothing.
#[test]
fn ends() {
    let mut builder = CopiesBuilder::default();
    let copy = NewCopy {
        owner: StackId(1),
        start: Addr(0x1000),
        end: Addr(0x2000),
        asked: 64,
        bytes: &[7; 21],
        ..NewCopy::default()
    };
    assert_eq!(builder.push(&copy), Ok(true));
    let gap = |offset, len| rawstack_format::copies::Missing { offset, len };
    let refused = [
        NewCopy {
            start: Addr(0x1001),
            ..copy
        },
        NewCopy {
            end: Addr(0x1010),
            ..copy
        },
        NewCopy { asked: 12, ..copy },
        NewCopy {
            bytes: &[7; 72],
            ..copy
        },
        NewCopy {
            loss: CopyLoss::NoStack,
            ..copy
        },
        NewCopy {
            missing: &[gap(8, 4)],
            ..copy
        },
        NewCopy {
            missing: &[gap(8, 8), gap(8, 8)],
            ..copy
        },
        NewCopy {
            missing: &[gap(0, 0)],
            ..copy
        },
    ];
    for refused in refused {
        assert!(builder.push(&refused).is_err(), "{refused:?}");
    }
    assert_eq!(builder.len(), 1);
    let chunk = builder.take();
    let mut reader = chunk.reader();
    let copy = reader.next().unwrap();
    assert_eq!(copy.missing, [gap(16, 48)]);
    assert!(copy.is_cut() && copy.copied() == 16);
    assert_eq!(copy.word(0x1008), Some(0x0707_0707_0707_0707));
    assert_eq!(copy.word(0x1009), None);
    assert!(reader.next().is_none());
}

/// Check that what stands for a return address is it, unless it is the trampoline's: then it is the replaced one of the frame,
/// on either architecture, and none where none is of the frame.
#[test]
fn replaced_return_addresses() {
    let pair = |place, address| ReturnAddress {
        place: Addr(place),
        address: Addr(address),
    };
    let returns = [pair(0x1008, 0x40_1111), pair(0x1020, 0x40_2222)];
    let copy = NewCopy {
        start: Addr(0x1000),
        end: Addr(0x2000),
        asked: 64,
        bytes: &[0; 64],
        trampoline: Addr(0x7f00_0000),
        returns: &returns,
        ..NewCopy::default()
    };
    let mut builder = CopiesBuilder::default();
    let without = NewCopy {
        owner: StackId(1),
        trampoline: Addr(0),
        returns: &[],
        ..copy
    };
    let many = vec![returns[0]; MAX_RETURNS + 1];
    let refused = [
        NewCopy {
            trampoline: Addr(0),
            ..copy
        },
        NewCopy {
            returns: &[],
            ..copy
        },
        NewCopy {
            returns: &many,
            ..copy
        },
    ];
    for refused in refused {
        assert_eq!(builder.push(&refused), Err(Invalid::Value), "{refused:?}");
    }
    assert!(builder.push(&copy).unwrap() && builder.push(&without).unwrap());
    let chunk = builder.take();
    let mut reader = chunk.reader();
    let copy = reader.next().unwrap();
    assert_eq!(copy.return_addresses(), returns);
    let found = [
        (0x40_5555, 0x1010, Some(0x40_5555)),
        (0x7f00_0000, 0x1010, Some(0x40_1111)),
        (0x7f00_0000, 0x1028, Some(0x40_2222)),
        (0x7f00_0000, 0x1020, Some(0x40_2222)),
        (0x7f00_0000, 0x1018, None),
        (0x7f00_0000, 0, None),
    ];
    for (found, cfa, expected) in found {
        assert_eq!(
            copy.return_address(found, cfa),
            expected,
            "{found:#x}, {cfa:#x}"
        );
    }
    let copy = reader.next().unwrap();
    assert_eq!(
        (copy.trampoline(), copy.return_addresses().len()),
        (None, 0)
    );
    assert_eq!(copy.return_address(0x7f00_0000, 0x1010), Some(0x7f00_0000));
}

/// Check that copies of a stack that hardly changes cost what changes: some bytes each, of 40 KiB.
#[test]
fn cost() {
    let mut rng = Rng(7);
    let mut copy = walk(&mut rng, 1).remove(0);
    let count = 2000;
    let copies: Vec<DrawnCopy> = (0..count)
        .map(|number| {
            copy.owner = number + 1;
            let at = rng.below(copy.bytes.len() as u64 / 8) as usize * 8;
            copy.bytes[at..at + 8].copy_from_slice(&rng.next().to_le_bytes());
            copy.clone()
        })
        .collect();
    let records: Vec<Record> = chunks(&copies)
        .into_iter()
        .map(Record::StackCopies)
        .collect();
    let each = archive(&records).len() as u64 / count;
    assert!(each < 40, "{each} bytes a copy");
}
