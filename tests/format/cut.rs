//! Archives that end anywhere.

use std::path::Path;
use std::thread::{available_parallelism, scope};
use std::{env, fs};

use rawstack_format::record::Record;
use rawstack_format::{Cause, Damage, Error, Reader, Selection};

use crate::common::{Rng, archive, count, ranges, read, read_selected, recursion};
use crate::every_kind::every_kind;

/// Check every cut of `bytes` with frames and checksums alone: the chunks before the cut are there as they were, and
/// the bytes behind them are told. `ends` are the positions behind the chunks.
fn check_all_cuts(bytes: &[u8]) {
    let (all, damage) = read_selected(bytes, Selection::Frames);
    assert!(
        damage.is_none(),
        "the archive is damaged already: {damage:?}"
    );
    let ends: Vec<usize> = ranges(bytes).iter().map(|range| range.end).collect();
    let threads = available_parallelism().map_or(1, usize::from);
    scope(|scope| {
        for thread in 0..threads {
            let (all, ends) = (&all, &ends);
            scope.spawn(move || {
                for cut in (64 + thread..=bytes.len()).step_by(threads) {
                    let (chunks, damage) = read_selected(&bytes[..cut], Selection::Frames);
                    let whole = ends.partition_point(|&end| end <= cut);
                    assert_eq!(chunks, all[..whole], "cut at {cut}");
                    check_tail(
                        cut,
                        whole.checked_sub(1).map_or(128, |last| ends[last]),
                        &damage,
                    );
                }
            });
        }
    });
}

/// Check that the account of a cut archive tells the bytes behind the last whole chunk, which ends at `end`.
fn check_tail(cut: usize, end: usize, damage: &Damage) {
    assert_eq!(damage.header_copy, cut < 128, "cut at {cut}");
    let tail = cut.saturating_sub(end) as u64;
    assert_eq!(
        (damage.tail_bytes, damage.gap_bytes),
        (tail, tail),
        "cut at {cut}"
    );
    assert_eq!(damage.gap_count, u64::from(tail > 0), "cut at {cut}");
    assert!(
        damage.gaps.iter().all(|gap| gap.cause == Cause::Cut),
        "cut at {cut}: {damage:?}"
    );
}

/// Check that a file that ends within the first 64 bytes is refused and says so.
#[test]
fn header() {
    let bytes = archive(&[]);
    for cut in 0..64 {
        let error = Reader::new(&bytes[..cut]).unwrap_err();
        assert!(
            matches!(error, Error::HeaderCut { len } if len == cut),
            "cut at {cut}: {error}"
        );
    }
}

/// Check at every byte of an archive with 40 chunks of all kinds that the rows of the whole chunks come back.
#[test]
fn every_byte_with_rows() {
    let mut records: Vec<Record> = every_kind().into_iter().cycle().take(40).collect();
    records.truncate(40);
    let bytes = archive(&records);
    let ends: Vec<usize> = ranges(&bytes).iter().map(|range| range.end).collect();
    assert!(ends.len() >= 32);
    for cut in 64..=bytes.len() {
        let (chunks, damage) = read(&bytes[..cut]);
        let whole = ends.partition_point(|&end| end <= cut);
        assert_eq!(chunks.len(), whole, "cut at {cut}");
        assert!(
            chunks
                .iter()
                .zip(&records)
                .all(|(chunk, record)| chunk.record.as_ref() == Some(record))
        );
        check_tail(
            cut,
            whole.checked_sub(1).map_or(128, |last| ends[last]),
            &damage,
        );
    }
}

/// Check every byte of an archive of samples with 33 chunks, half a mebibyte.
#[test]
fn every_byte_of_samples() {
    let bytes = archive(&recursion(33, &mut Rng(1)));
    assert!(bytes.len() > 400_000, "{}", bytes.len());
    check_all_cuts(&bytes);
}

/// Check every byte of an archive that was recorded for real: the one in the fixtures, or another that
/// `RAWSTACK_CUT_ARCHIVE` names.
#[test]
fn every_byte_of_a_recorded_archive() {
    let fixture = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/fixtures/archives/v1/recorded.rawstack"
    );
    let path = env::var_os("RAWSTACK_CUT_ARCHIVE").unwrap_or_else(|| fixture.into());
    let bytes = fs::read(Path::new(&path)).unwrap();
    assert!(
        ranges(&bytes).len() >= 32,
        "an archive of at least 32 chunks is needed"
    );
    check_all_cuts(&bytes);
}

/// Check that a cut within a chunk tells the IDs that this chunk accounted for, since its frame is whole.
#[test]
fn lost_ids_of_a_cut_chunk() {
    let records = recursion(3, &mut Rng(2));
    let bytes = archive(&records);
    let ranges = ranges(&bytes);
    let (_, damage) = read(&bytes[..ranges[1].end - 1]);
    let mut counters = Default::default();
    count(&records[1], &mut counters);
    assert_eq!((damage.lost_ids, damage.lost_chunks), (counters.ids, 0));
    assert_eq!(damage.gaps[0].first_seq, 1);
    let (_, damage) = read(&bytes[..ranges[1].start + 63]);
    assert_eq!(damage.lost_ids, 0);
}
