//! Any record comes back as it was, or is refused by the writer.

use proptest::collection;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use rawstack_format::id::{FrameIndex, ModuleIndex, StackId, StackIndex};
use rawstack_format::record::{
    Batch, Frame, JitMap, KernelSymbol, KernelSymbols, Mapping, Record, Sample, StackNode,
};
use rawstack_format::{Counters, Encoder, Error, Invalid, MAX_RAW_LEN, MAX_ROWS, Writer};

use crate::common::{Rng, archive, count, options, read};
use crate::draw::Draw;
use crate::every_kind::every_kind;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    /// Check that any records come back as they were, that the bytes are the same each time, and that a batch is never
    /// larger than its bound.
    #[test]
    fn records(draws in collection::vec(collection::vec(any::<u64>(), 0..600), 1..5)) {
        let records: Vec<Record> = draws.into_iter().map(|draw| Draw(draw.into_iter()).record()).collect();
        let bytes = archive(&records);
        let (chunks, damage) = read(&bytes);
        prop_assert!(damage.is_none(), "{:?}", damage);
        for (chunk, record) in chunks.iter().zip(&records) {
            if let Record::Batch(batch) = record {
                prop_assert!(chunk.info.raw_len as usize <= batch.raw_bound());
            }
        }
        let got: Vec<Record> = chunks.into_iter().filter_map(|chunk| chunk.record).collect();
        prop_assert_eq!(&got, &records);
        prop_assert_eq!(archive(&records), bytes);
    }
}

/// Check that a batch of the most extreme rows up to its bound fits a chunk, and that one row beyond the limit of rows
/// is refused with nothing written.
#[test]
fn largest_batches() {
    let mut rng = Rng(10);
    let mut sample = || Sample {
        id: StackId(rng.next()),
        owner: StackId(rng.next()),
        time_ns: rng.next(),
        cpu: rng.next() as u32,
        pid: rng.next() as u32,
        tid: rng.next() as u32,
        event: rng.next() as u32,
        run: rng.next() as u32,
        weight: rng.next(),
        user_depth: rng.next() as u32,
        ..Sample::default()
    };
    let mut batch = Batch::default();
    while batch.raw_bound() + Sample::RAW_BOUND <= MAX_RAW_LEN {
        batch.samples.push(sample());
    }
    let mut writer = Writer::new(Vec::new(), options()).unwrap();
    let info = writer
        .write(&Record::Batch(batch), Counters::default())
        .unwrap();
    assert!(
        info.raw_len as usize > MAX_RAW_LEN * 8 / 10,
        "the bound is loose: {}",
        info.raw_len
    );
    let position = writer.position();
    let many = Batch {
        samples: vec![Sample::default(); MAX_ROWS + 1],
        ..Batch::default()
    };
    let error = writer
        .write(&Record::Batch(many), Counters::default())
        .unwrap_err();
    assert!(
        matches!(error, Error::InvalidRecord(Invalid::Rows)),
        "{error}"
    );
    let large = JitMap {
        bytes: vec![0; MAX_RAW_LEN],
        ..JitMap::default()
    };
    let error = writer
        .write(&Record::JitMap(large), Counters::default())
        .unwrap_err();
    assert!(
        matches!(error, Error::ChunkTooLarge { len } if len > MAX_RAW_LEN),
        "{error}"
    );
    assert_eq!(writer.position(), position);
}

/// Check that a writer refuses a batch that no reader would take.
#[test]
fn refused_batches() {
    let node = StackNode {
        parent: StackIndex::NONE,
        frame: FrameIndex(0),
    };
    let frame = Frame::default();
    let own = StackNode {
        parent: StackIndex(0),
        frame: FrameIndex(0),
    };
    let mapping = Mapping {
        module: ModuleIndex(0),
        ..Mapping::default()
    };
    let sample = Sample {
        user: StackIndex(7),
        ..Sample::default()
    };
    let refused = [
        Batch {
            stacks: vec![node],
            ..Batch::default()
        },
        Batch {
            frames: vec![frame],
            stacks: vec![own],
            ..Batch::default()
        },
        Batch {
            mappings: vec![mapping],
            ..Batch::default()
        },
        Batch {
            samples: vec![sample],
            ..Batch::default()
        },
        Batch {
            first_stack: u32::MAX,
            frames: vec![frame],
            stacks: vec![node],
            ..Batch::default()
        },
    ];
    let mut writer = Writer::new(Vec::new(), options()).unwrap();
    for batch in refused {
        let error = writer
            .write(&Record::Batch(batch), Counters::default())
            .unwrap_err();
        assert!(
            matches!(error, Error::InvalidRecord(Invalid::Reference)),
            "{error}"
        );
    }
}

/// Check that 140,000 kernel symbols, half of them padding, are cut into parts that fit and come back in order.
#[test]
fn kernel_symbols_in_parts() {
    let symbol = |offset: u64, name: String| KernelSymbol {
        offset,
        kind: b't',
        module: String::new(),
        name,
    };
    let pair = |n: u64| {
        [
            symbol(n * 64, format!("__pfx_function_{n}")),
            symbol(n * 64 + 16, format!("function_{n}")),
        ]
    };
    let symbols: Vec<KernelSymbol> = (0..70_000).flat_map(pair).collect();
    let parts = KernelSymbols {
        text_size: 5,
        symbols: symbols.clone(),
        ..KernelSymbols::default()
    }
    .split();
    assert!(parts.len() <= 4, "{} parts", parts.len());
    let count = parts.len() as u32;
    assert!(
        parts
            .iter()
            .zip(0..)
            .all(|(part, n)| (part.part, part.parts, part.text_size) == (n, count, 5))
    );
    let records: Vec<Record> = parts.into_iter().map(Record::KernelSymbols).collect();
    let (chunks, damage) = read(&archive(&records));
    assert!(damage.is_none());
    let back = chunks
        .into_iter()
        .filter_map(|chunk| chunk.record)
        .flat_map(|record| match record {
            Record::KernelSymbols(part) => part.symbols,
            other => panic!("{other:?}"),
        });
    assert!(back.eq(symbols));
    assert_eq!(KernelSymbols::default().split().len(), 1);
}

/// Check that a large JIT map is cut into pieces that fit and follow each other.
#[test]
fn jit_map_in_pieces() {
    let mut rng = Rng(11);
    let bytes: Vec<u8> = (0..3_000_000).map(|_| rng.next() as u8).collect();
    let pieces = JitMap {
        pid: 3,
        position: 7,
        bytes: bytes.clone(),
        ..JitMap::default()
    }
    .split();
    let records: Vec<Record> = pieces.into_iter().map(Record::JitMap).collect();
    let mut back = Vec::new();
    for chunk in read(&archive(&records)).0 {
        let Some(Record::JitMap(piece)) = chunk.record else {
            continue;
        };
        assert_eq!((piece.pid, piece.position), (3, 7 + back.len() as u64));
        back.extend(piece.bytes);
    }
    assert_eq!(back, bytes);
}

/// Check that encoded records can be put into any archives, in part and in another order, and that each archive is as
/// if its records had been written to it alone.
#[test]
fn encoded_once() {
    let records = every_kind();
    let mut encoder = Encoder::new(1).unwrap();
    let encoded: Vec<_> = records
        .iter()
        .map(|record| encoder.encode(record).unwrap())
        .collect();
    for (skip, step) in [(0, 1), (1, 2), (3, 3)] {
        let mut writer = Writer::new(Vec::new(), options()).unwrap();
        let mut counters = Counters::default();
        let chosen = || (skip..records.len()).rev().step_by(step);
        for at in chosen() {
            count(&records[at], &mut counters);
            let before = writer.position();
            writer.append(&encoded[at], counters).unwrap();
            assert_eq!(writer.position() - before, encoded[at].len_in_file());
        }
        let alone: Vec<Record> = chosen().map(|at| records[at].clone()).collect();
        assert_eq!(writer.finish().unwrap(), archive(&alone));
    }
}
