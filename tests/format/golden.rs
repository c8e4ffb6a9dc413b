//! The archive of version 1 that stays readable, and the layout that stays the same.

use std::path::PathBuf;
use std::{env, fs};

use rawstack_format::record::Record;
use zstd::bulk::decompress;

use crate::common::{archive, ranges, read};
use crate::every_kind::{copies, every_kind};

fn golden_path() -> PathBuf {
    archives().join("every-kind.rawstack")
}

fn archives() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/archives/v1")
}

/// The golden archive. `UPDATE_GOLDEN=1` writes it anew: only for a version that was never released.
fn golden() -> Vec<u8> {
    let path = golden_path();
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, archive(&every_kind())).unwrap();
    }
    fs::read(path).unwrap()
}

/// Check that the archive as it was once written gives the same rows today.
#[test]
fn rows() {
    let (chunks, damage) = read(&golden());
    assert!(
        damage.is_none() && damage.ended && damage.unknown_chunks == 0,
        "{damage:?}"
    );
    let records: Vec<Record> = chunks
        .into_iter()
        .filter_map(|chunk| chunk.record)
        .collect();
    assert_eq!(records, every_kind());
}

/// Check that stack copies of version 1 are read as today's, all else in their archive as ever.
#[test]
fn copies_of_version_1() {
    let bytes = fs::read(archives().join("every-kind-copies-1.rawstack")).unwrap();
    let (chunks, damage) = read(&bytes);
    assert!(damage.is_none() && damage.ended && damage.unknown_chunks == 0);
    let mut expected = every_kind();
    let copies = chunks
        .iter()
        .zip(&mut expected)
        .filter_map(|(chunk, expected)| {
            let record = chunk.record.as_ref().unwrap();
            let Record::StackCopies(copies) = record else {
                assert_eq!(record, expected);
                return None;
            };
            assert_eq!(chunk.info.version, 1);
            Some(copies)
        });
    let copies: Vec<_> = copies.collect();
    assert_eq!((copies.len(), copies[0].len()), (1, 1));
    let mut reader = copies[0].reader();
    let copy = reader.next().unwrap();
    assert_eq!((copy.owner.0, copy.machine), (1 << 48 | 5, 62));
    assert_eq!(
        (copy.start.0, copy.end.0),
        (0x7fff_0000_1000, 0x7fff_0000_2000)
    );
    assert_eq!((copy.asked, copy.copied(), copy.is_cut()), (48, 48, true));
    let registers = [7, 16, 0].map(|number| copy.register(number));
    assert_eq!(registers, [Some(0x7fff_0000_1000), Some(0x40_1136), None]);
    let mut bytes = Vec::new();
    copy.unpack(&mut bytes);
    assert_eq!(bytes, [0xaa; 48]);
}

/// Check that stack copies of version 2 are read as today's, without what it could not say.
#[test]
fn copies_of_version_2() {
    copies_of_version(2);
}

fn copies_of_version(version: u8) {
    let name = format!("every-kind-copies-{version}.rawstack");
    let bytes = fs::read(archives().join(name)).unwrap();
    let (chunks, damage) = read(&bytes);
    assert!(damage.is_none() && damage.ended && damage.unknown_chunks == 0);
    let is_copies = |record: &Record| matches!(record, Record::StackCopies(_));
    let mut expected = every_kind();
    let place = expected.iter().position(is_copies).unwrap();
    expected[place] = Record::StackCopies(copies(version));
    assert_eq!(chunks[place].info.version, version);
    let records: Vec<Record> = chunks
        .into_iter()
        .filter_map(|chunk| chunk.record)
        .collect();
    assert_eq!(records, expected);
}

/// Check that stack copies of version 3 are read as today's, without what it could not say.
#[test]
fn copies_of_version_3() {
    copies_of_version(3);
}

/// Check that every frame and every rkyv root is written today byte for byte as it was once: whoever changes a layout
/// must give it a new version. What zstd makes of a root may change, so lengths and checksums are left out.
#[test]
fn bytes() {
    let (old, new) = (golden(), archive(&every_kind()));
    let (old_ranges, new_ranges) = (ranges(&old), ranges(&new));
    assert_eq!(old_ranges.len(), new_ranges.len());
    assert_eq!(old[..128], new[..128]);
    for (old_range, new_range) in old_ranges.into_iter().zip(new_ranges) {
        let (old, new) = (&old[old_range], &new[new_range]);
        assert_eq!((&old[..16], &old[20..56]), (&new[..16], &new[20..56]));
        // The index states positions, which follow zstd.
        if old[8] != 10 {
            assert_eq!(unpack(old), unpack(new), "kind {}", old[8]);
        }
    }
}

/// Check that the seeds of the fuzz target `read_content` are the roots of the golden archive, each behind its kind + 12 for each version above 1.
#[test]
fn fuzz_seeds() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/seeds/read_content");
    let golden = golden();
    for range in ranges(&golden) {
        let chunk = &golden[range];
        let (kind, version) = (chunk[8], chunk[9]);
        let seed = [&[kind + 12 * (version - 1)], &unpack(chunk)[..]].concat();
        let path = dir.join(match version {
            1 => format!("kind-{kind}"),
            _ => format!("kind-{kind}-version-{version}"),
        });
        if env::var_os("UPDATE_GOLDEN").is_some() {
            fs::create_dir_all(&dir).unwrap();
            fs::write(&path, &seed).unwrap();
        }
        assert_eq!(fs::read(path).unwrap(), seed);
    }
}

/// The root in a chunk.
fn unpack(chunk: &[u8]) -> Vec<u8> {
    let len = |at: usize| u32::from_le_bytes(chunk[at..at + 4].try_into().unwrap()) as usize;
    decompress(&chunk[64..64 + len(16)], len(20)).unwrap()
}
