//! Archives with pieces missing, moved or foreign.

use std::io::{self, Read};

use rawstack_format::{
    Cause, Counters, Error, Index, Kind, Reader, Selection, Writer, WriterOptions,
};

use crate::common::{Rng, archive, chunk, count, header, ranges, read, read_selected, recursion};
use crate::every_kind::every_kind;

/// Check that chunks that were cut out are told by their sequence numbers and their IDs, with no byte blamed.
#[test]
fn missing_chunks() {
    let records = recursion(6, &mut Rng(5));
    let mut bytes = archive(&records);
    let ranges = ranges(&bytes);
    bytes.drain(ranges[2].start..ranges[3].end);
    let (chunks, damage) = read(&bytes);
    assert_eq!(chunks.len(), 5);
    assert_eq!(
        (damage.lost_chunks, damage.lost_ids, damage.gap_bytes),
        (2, 10_000, 0)
    );
    let gap = damage.gaps[0];
    assert_eq!(
        (gap.first_seq, gap.next_seq, gap.cause),
        (2, Some(4), Cause::Sequence)
    );
    assert_eq!(
        (gap.start, gap.end),
        (ranges[2].start as u64, ranges[2].start as u64)
    );
}

/// Check that a hole whose length is a multiple of 64 loses only the chunks that it touches, although the chunk before
/// it now claims bytes of the one behind it.
#[test]
fn hole_across_two_chunks() {
    let mut bytes = archive(&recursion(6, &mut Rng(6)));
    let ranges = ranges(&bytes);
    let from = ranges[2].end - 640;
    bytes.drain(from..ranges[3].start + 640);
    let (chunks, damage) = read(&bytes);
    let seqs: Vec<u32> = chunks.iter().map(|chunk| chunk.info.seq).collect();
    assert_eq!(seqs, [0, 1, 4, 5, 6]);
    assert_eq!(
        (damage.lost_chunks, damage.lost_ids, damage.gap_count),
        (2, 10_000, 1)
    );
}

/// Check that a chunk that comes a second time, or too early, is not read, and that what follows is.
#[test]
fn repeated_chunk() {
    let mut bytes = archive(&recursion(4, &mut Rng(7)));
    let ranges = ranges(&bytes);
    let again = bytes[ranges[1].clone()].to_vec();
    bytes.splice(ranges[2].end..ranges[2].end, again);
    let (chunks, damage) = read(&bytes);
    let seqs: Vec<u32> = chunks.iter().map(|chunk| chunk.info.seq).collect();
    assert_eq!(seqs, [0, 1, 2, 3, 4]);
    assert_eq!(
        (damage.gap_bytes, damage.lost_chunks, damage.lost_ids),
        (ranges[1].len() as u64, 0, 0)
    );
    assert_eq!(damage.gaps[0].cause, Cause::Sequence);
}

/// Check that a chunk of another archive, with another salt, is taken for damage and not for data.
#[test]
fn foreign_chunk() {
    let mut other = WriterOptions::default();
    other.salt = Some(1);
    let mut writer = Writer::new(Vec::new(), other).unwrap();
    writer.write(&every_kind()[0], Counters::default()).unwrap();
    let foreign = writer.finish().unwrap();
    let mut bytes = archive(&every_kind());
    let end = bytes.len();
    bytes.extend(&foreign[128..]);
    let (chunks, damage) = read(&bytes);
    assert_eq!(chunks.len(), every_kind().len() + 1);
    assert_eq!(
        (damage.tail_bytes, damage.gaps[0].start),
        ((foreign.len() - 128) as u64, end as u64)
    );
    assert_eq!(damage.gaps[0].cause, Cause::NoFrame);
}

/// Check that a tail of zeros, which a power cut leaves behind, costs nothing of what is before it.
#[test]
fn tail_of_zeros() {
    let mut bytes = archive(&every_kind());
    bytes.resize(bytes.len() + 10_000, 0);
    let (chunks, damage) = read(&bytes);
    assert_eq!(
        (chunks.len(), damage.tail_bytes),
        (every_kind().len() + 1, 10_000)
    );
    assert!(damage.ended);
}

/// Check that unknown kinds and later versions of known kinds are skipped and counted, not blamed.
#[test]
fn unknown_chunks() {
    let mut bytes = header();
    let stored = b"anything at all";
    bytes.extend(chunk(200, 1, 0, stored, (15, 40)));
    bytes.extend(chunk(Kind::BATCH.0, 2, 1, stored, (15, 40)));
    let (chunks, damage) = read(&bytes);
    assert_eq!(chunks.len(), 2);
    assert!(chunks.iter().all(|chunk| chunk.record.is_none()));
    assert_eq!(
        (damage.unknown_chunks, damage.gap_count, damage.ended),
        (2, 0, false)
    );
    assert_eq!(chunks[0].info.kind.to_string(), "kind-200");
}

/// Check that a recording that ended says so whether or not an index follows, and one without its end does not.
#[test]
fn ended() {
    let bytes = archive(&every_kind());
    let ranges = ranges(&bytes);
    let [end, index] = [ranges.len() - 2, ranges.len() - 1].map(|chunk| ranges[chunk].clone());
    assert!(read(&bytes).1.ended);
    assert!(read(&bytes[..index.start]).1.ended);
    assert!(!read(&bytes[..end.start]).1.ended);
}

/// Check that a selection unpacks the kinds that it names and sees the frames of all.
#[test]
fn selections() {
    let bytes = archive(&every_kind());
    let only = Selection::Only(vec![Kind::VDSO, Kind::END]);
    let (chunks, damage) = read_selected(&bytes, only);
    let unpacked: Vec<Kind> = chunks
        .iter()
        .filter(|c| c.record.is_some())
        .map(|c| c.info.kind)
        .collect();
    assert_eq!(unpacked, [Kind::VDSO, Kind::END]);
    assert_eq!(chunks.len(), every_kind().len() + 1);
    assert!(damage.is_none() && damage.unknown_chunks == 0);
}

/// Check that the index names every chunk before it, and that an archive without or with half of it has none.
#[test]
fn index() {
    let bytes = archive(&recursion(20, &mut Rng(8)));
    let ranges = ranges(&bytes);
    let index = Index::find(&mut io::Cursor::new(&bytes)).unwrap().unwrap();
    let positions: Vec<usize> = index
        .entries
        .iter()
        .map(|entry| entry.position as usize)
        .collect();
    let starts: Vec<usize> = ranges[..20].iter().map(|range| range.start).collect();
    assert_eq!((index.stride, positions), (1, starts));
    assert_eq!(index.entries[3].kind, Kind::BATCH);
    for len in [0, 64, 128, ranges[20].start, bytes.len() - 64] {
        assert_eq!(
            Index::find(&mut io::Cursor::new(&bytes[..len])).unwrap(),
            None,
            "length {len}"
        );
    }
}

/// A stream that gives a few bytes at a time, interrupted now and then, and fails at its end.
struct Trickle<'a> {
    bytes: &'a [u8],
    turn: usize,
}

impl Read for Trickle<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.turn += 1;
        if self.turn.is_multiple_of(3) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if self.bytes.is_empty() {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let len = out.len().min(self.bytes.len()).min(self.turn % 50 + 1);
        out[..len].copy_from_slice(&self.bytes[..len]);
        self.bytes = &self.bytes[len..];
        Ok(len)
    }
}

/// Check that a pipe that gives a few bytes at a time is read as a file is, and that its failure is an error.
#[test]
fn slow_stream() {
    let records = every_kind();
    let bytes = archive(&records);
    let mut reader = Reader::new(Trickle {
        bytes: &bytes,
        turn: 0,
    })
    .unwrap();
    for record in &records {
        assert_eq!(
            reader.next().unwrap().unwrap().record.as_ref(),
            Some(record)
        );
    }
    assert!(reader.next().unwrap().is_some());
    let error = reader.next().unwrap_err();
    assert!(
        matches!(error, Error::Read { position, .. } if position == bytes.len() as u64),
        "{error}"
    );
}

/// Check that the running totals stand in the frames and that what they cannot hold stops at the largest value.
#[test]
fn totals() {
    let mut counters = Counters::default();
    let records = every_kind();
    records
        .iter()
        .for_each(|record| count(record, &mut counters));
    let (chunks, _) = read(&archive(&records));
    assert_eq!(chunks.last().unwrap().info.counters, counters);
    assert_eq!(
        counters,
        Counters {
            ids: 12,
            buffer_full: 10,
            contended: 0,
            unwritten: 0
        }
    );
}
