//! Archives to try things on, and a view of their bytes that shares no code with the writer or the reader.

use std::ops::Range;

use rawstack_format::id::{Addr, FileOffset, FrameIndex, ModuleIndex, StackId, StackIndex};
use rawstack_format::record::{
    Batch, DropReason, Frame, FrameKind, Module, Record, Sample, StackNode,
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
