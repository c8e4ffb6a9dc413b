//! Archives made to harm their reader. All tests here share a process, whose peak memory each of them checks.

// A failed test is what a panic is for, and the sizes here are known.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

// The other tests use the rest of it.
#[allow(dead_code)]
mod common;

use std::fs;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use rawstack_format::{Cause, Damage, FRAME_LEN, Kind, MAX_RAW_LEN, MAX_STORED_LEN, Reader};

use common::{chunk, header, read};

/// Check that a chunk is refused for `cause`, in less than 100 ms and 64 MiB.
fn check_refused(stored: &[u8], raw_len: usize, cause: Cause) {
    let claims = (stored.len() as u32, raw_len as u32);
    let mut bytes = header();
    bytes.extend(chunk(Kind::BATCH.0, 1, 0, stored, claims));
    check_damage(&bytes, cause);
}

/// Check that nothing is read of an archive but damage that begins with `cause`.
fn check_damage(bytes: &[u8], cause: Cause) -> Damage {
    let start = Instant::now();
    let (chunks, damage) = read(bytes);
    assert!(
        start.elapsed() < Duration::from_millis(100),
        "{:?}",
        start.elapsed()
    );
    assert!(chunks.is_empty());
    assert_eq!((damage.gap_count, damage.gaps[0].cause), (1, cause));
    check_memory();
    damage
}

/// Check that this process never held more than 64 MiB.
fn check_memory() {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 64 * 1024, "peak memory {kib} KiB");
}

/// A zstd frame of `len` zeros, with its length stated or not.
fn zstd_zeros(len: usize, stated: bool) -> Vec<u8> {
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 3).unwrap();
    if stated {
        encoder.set_pledged_src_size(Some(len as u64)).unwrap();
    }
    io::copy(&mut io::repeat(0).take(len as u64), &mut encoder).unwrap();
    encoder.finish().unwrap()
}

/// Check that 32 KiB that unpack to a gibibyte are refused, whatever their frame claims.
#[test]
fn gibibyte_of_zeros() {
    let bomb = zstd_zeros(1 << 30, true);
    assert!(bomb.len() < 40_000);
    check_refused(&bomb, MAX_RAW_LEN, Cause::Compression);
    check_refused(&bomb, 1 << 30, Cause::Length);
    check_refused(&zstd_zeros(1 << 30, false), MAX_RAW_LEN, Cause::Compression);
}

/// Check that a zstd frame that states no content size, or another one than the chunk's frame, is refused.
#[test]
fn content_size() {
    check_refused(&zstd_zeros(1000, false), 1000, Cause::Compression);
    check_refused(&zstd_zeros(1000, true), 999, Cause::Compression);
    check_refused(&zstd_zeros(1000, true), 1001, Cause::Compression);
}

/// Check that a zstd frame that asks for a window of two gibibytes is refused.
#[test]
fn window_of_two_gibibytes() {
    // No single segment, content size in 8 bytes, window descriptor 21 << 3 (windowLog 31), one empty last block.
    let mut stored = vec![0x28, 0xb5, 0x2f, 0xfd, 0xc0, 21 << 3];
    stored.extend(1000_u64.to_le_bytes());
    stored.extend([1, 0, 0]);
    check_refused(&stored, 1000, Cause::Compression);
}

/// Check that two zstd frames, a skippable frame, bytes behind the frame, a dictionary and nothing at all are refused.
#[test]
fn not_one_frame() {
    let one = zstd_zeros(500, true);
    check_refused(
        &[one.clone(), one.clone()].concat(),
        1000,
        Cause::Compression,
    );
    check_refused(&[one.clone(), vec![0]].concat(), 500, Cause::Compression);
    check_refused(
        &[&[0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4], &one[..]].concat(),
        500,
        Cause::Compression,
    );
    let mut dictionary = one.clone();
    dictionary[4] |= 1;
    check_refused(&dictionary, 500, Cause::Compression);
    for len in 0..one.len() {
        check_refused(&one[..len], 500, Cause::Compression);
    }
}

/// Check that absurd lengths are refused before anything of that size is read or held.
#[test]
fn absurd_lengths() {
    for claims in [
        (u32::MAX, 1000),
        (1000, u32::MAX),
        (MAX_STORED_LEN as u32 + 1, 1000),
        (1000, MAX_RAW_LEN as u32 + 1),
    ] {
        let mut bytes = header();
        bytes.extend(chunk(Kind::BATCH.0, 1, 0, &[0; 1000], claims));
        check_damage(&bytes, Cause::Length);
    }
}

/// Check that content that is no root of its kind is refused although every checksum holds.
#[test]
fn no_root() {
    for content in [&[][..], &[0; 7], &[0xff; 560], &[0x7f; 4096]] {
        let mut stored = Vec::new();
        let mut encoder = zstd::stream::Encoder::new(&mut stored, 3).unwrap();
        encoder
            .set_pledged_src_size(Some(content.len() as u64))
            .unwrap();
        io::copy(&mut &content[..], &mut encoder).unwrap();
        encoder.finish().unwrap();
        for kind in 1..=8 {
            let mut bytes = header();
            bytes.extend(chunk(
                kind,
                1,
                0,
                &stored,
                (stored.len() as u32, content.len() as u32),
            ));
            let (chunks, damage) = read(&bytes);
            assert!(
                chunks.is_empty() && matches!(damage.gaps[0].cause, Cause::Content(_)),
                "kind {kind}: {damage:?}"
            );
        }
    }
}

/// Check that a million tiny chunks, each of them refused, are read in little memory, with a bounded list of gaps and
/// all of them counted.
#[test]
fn million_tiny_chunks() {
    /// Gives the header, then chunks with rising numbers, unknown and refused in turn.
    struct Tiny {
        rest: Vec<u8>,
        seq: u32,
    }
    impl Read for Tiny {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            if self.rest.is_empty() && self.seq < 1_000_000 {
                let kind = if self.seq.is_multiple_of(2) {
                    200
                } else {
                    Kind::BATCH.0
                };
                self.rest = chunk(kind, 1, self.seq, &[1], (1, 10));
                self.seq += 1;
            }
            let len = out.len().min(self.rest.len());
            out[..len].copy_from_slice(&self.rest[..len]);
            self.rest.drain(..len);
            Ok(len)
        }
    }
    let mut reader = Reader::new(Tiny {
        rest: header(),
        seq: 0,
    })
    .unwrap();
    let mut count = 0;
    while reader.next().unwrap().is_some() {
        count += 1;
    }
    let damage = reader.damage();
    assert_eq!(
        (count, damage.unknown_chunks, damage.gap_count),
        (500_000, 500_000, 500_000)
    );
    assert_eq!((damage.gaps.len(), damage.lost_chunks), (1024, 499_999));
    check_memory();
}

/// Check that frames that stand every 64 bytes and claim a mebibyte each, so that looking into each chunk would take
/// hours, are given up on in time.
#[test]
fn nested_claims() {
    /// Gives the header, then one frame again and again.
    struct Nested {
        header: Vec<u8>,
        frame: Vec<u8>,
        position: usize,
    }
    impl Read for Nested {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            for byte in out.iter_mut() {
                let within = self.position % FRAME_LEN;
                *byte = *self
                    .header
                    .get(self.position)
                    .unwrap_or(&self.frame[within]);
                self.position += 1;
            }
            Ok(out.len())
        }
    }
    let frame = chunk(Kind::BATCH.0, 1, 0, &[], (MAX_RAW_LEN as u32, 100));
    let nested = Nested {
        header: header(),
        frame,
        position: 0,
    };
    let start = Instant::now();
    let mut reader = Reader::new(nested.take(16 << 20)).unwrap();
    assert!(reader.next().unwrap().is_none());
    assert_eq!(reader.damage().gap_bytes, (16 << 20) - 128);
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    check_memory();
}
