//! Archives with one wrong bit, and with many.

use std::thread::{available_parallelism, scope};

use rawstack_format::record::{JitMap, Record};
use rawstack_format::{Chunk, Selection};

use crate::common::{Rng, archive, ranges, read, read_selected, recursion};
use crate::every_kind::every_kind;

/// An archive of exactly 64 KiB: samples, every kind, and bytes that cannot be compressed to fill it up.
fn archive_of_64_kib() -> Vec<u8> {
    let mut rng = Rng(3);
    let mut records = recursion(4, &mut rng);
    records.extend(every_kind());
    let filler: Vec<u8> = (0..32 * 1024)
        .map(|_| rng.next().to_le_bytes()[7])
        .collect();
    let fitting = (0..512).map(|n| {
        let bytes = filler[..filler.len() - n * 64].to_vec();
        let filler = Record::JitMap(JitMap {
            bytes,
            ..JitMap::default()
        });
        archive(&[&records[..], &[filler]].concat())
    });
    let found = fitting.into_iter().find(|bytes| bytes.len() <= 64 * 1024);
    found
        .filter(|bytes| bytes.len() == 64 * 1024)
        .expect("lengths go down in steps of 64")
}

/// Check each of the 524,288 flips of one bit: it is told, and nothing but the chunk with the bit is lost.
#[test]
fn every_bit() {
    let bytes = archive_of_64_kib();
    assert!(
        bytes.len() >= 64 * 1024 && bytes.len() < 80 * 1024,
        "{}",
        bytes.len()
    );
    let (all, _) = read(&bytes);
    let frames: Vec<Chunk> = all
        .iter()
        .map(|chunk| {
            let mut chunk = chunk.clone();
            chunk.record = None;
            chunk
        })
        .collect();
    let threads = available_parallelism().map_or(1, usize::from);
    scope(|scope| {
        for thread in 0..threads {
            let (all, frames, mut bytes) = (&all, &frames, bytes.clone());
            scope.spawn(move || {
                for bit in (thread..bytes.len() * 8).step_by(threads) {
                    bytes[bit / 8] ^= 1 << (bit % 8);
                    // Rows are unpacked for some: they are nothing but a function of the bytes that the checksum
                    // has shown to be the same.
                    if bit % 997 == 0 {
                        check(&bytes, bit, all, Selection::All);
                    } else {
                        check(&bytes, bit, frames, Selection::Frames);
                    }
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
            });
        }
    });
}

/// Check what is read of `bytes`, where `bit` is wrong, against the chunks of the sound archive.
fn check(bytes: &[u8], bit: usize, sound: &[Chunk], selection: Selection) {
    let (chunks, damage) = read_selected(bytes, selection);
    let position = (bit / 8) as u64;
    if position < 128 {
        assert!(damage.header_copy && damage.gap_count == 0, "bit {bit}");
        assert_eq!(chunks, sound, "bit {bit}");
        return;
    }
    let hit = sound.partition_point(|chunk| chunk.info.position <= position) - 1;
    let info = sound[hit].info;
    assert_eq!(chunks[..hit], sound[..hit], "bit {bit}");
    assert_eq!(chunks[hit..], sound[hit + 1..], "bit {bit}");
    assert_eq!(damage.gap_count, 1, "bit {bit}: {damage:?}");
    let gap = damage.gaps[0];
    assert_eq!(
        (gap.start, gap.end),
        (info.position, info.position + info.len_in_file()),
        "bit {bit}"
    );
    assert_eq!(gap.first_seq, info.seq, "bit {bit}");
    assert_eq!(
        damage.lost_chunks,
        u64::from(gap.next_seq.is_some()),
        "bit {bit}"
    );
}

/// Check that 20,000 random bursts of damage lose nothing but the chunks that they hit.
#[test]
fn random_bursts() {
    let sound_bytes = archive_of_64_kib();
    let (sound, _) = read_selected(&sound_bytes, Selection::Frames);
    let ranges = ranges(&sound_bytes);
    let mut rng = Rng(4);
    for round in 0..20_000 {
        let mut bytes = sound_bytes.clone();
        let mut hit = vec![false; sound.len()];
        for _ in 0..=rng.below(4) {
            let start = 128 + rng.below(bytes.len() as u64 - 128) as usize;
            let end = bytes.len().min(start + 1 + rng.below(3000) as usize);
            let fill = [None, Some(0), Some(0xff)][rng.below(3) as usize];
            for (at, old) in bytes.iter_mut().enumerate().take(end).skip(start) {
                let byte = fill.unwrap_or_else(|| rng.next().to_le_bytes()[7]);
                let chunk = ranges.partition_point(|range| range.start <= at) - 1;
                hit[chunk] |= byte != *old;
                *old = byte;
            }
        }
        let (chunks, damage) = read_selected(&bytes, Selection::Frames);
        let expected: Vec<&Chunk> = sound
            .iter()
            .zip(&hit)
            .filter(|(_, hit)| !**hit)
            .map(|(chunk, _)| chunk)
            .collect();
        assert!(chunks.iter().eq(expected), "round {round}");
        let hit_bytes: usize = ranges
            .iter()
            .zip(&hit)
            .filter(|(_, hit)| **hit)
            .map(|(range, _)| range.len())
            .sum();
        assert_eq!(damage.gap_bytes, hit_bytes as u64, "round {round}");
    }
}
