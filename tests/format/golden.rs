//! The archive of version 1 that stays readable, and the layout that stays the same.

use std::path::PathBuf;
use std::{env, fs};

use rawstack_format::record::Record;
use zstd::bulk::decompress;

use crate::common::{archive, ranges, read};
use crate::every_kind::every_kind;

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

/// Check that the seeds of the fuzz target `read_content` are the roots of the golden archive, each behind its kind.
#[test]
fn fuzz_seeds() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/seeds/read_content");
    let golden = golden();
    for range in ranges(&golden) {
        let chunk = &golden[range];
        let kind = chunk[8];
        let seed = [&[kind], &unpack(chunk)[..]].concat();
        let path = dir.join(format!("kind-{kind}"));
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
