//! Whole files that are compressed: kernel modules, and symbols packed into programs. Bounded in size and memory.

use std::io::Read;

use flate2::bufread::GzDecoder;
use lzma_rust2::XzReader;

use crate::guard::guarded;

/// Size to which a compressed file may grow.
const MAX_SIZE: u64 = 1 << 30;
/// Above this a file may grow to at most [`MAX_RATIO`] times its size.
const FREE_SIZE: u64 = 32 << 20;
const MAX_RATIO: u64 = 64;
/// Memory for an xz stream, in KiB: the highest preset has a dictionary of 64 MiB.
const MAX_DICTIONARY: u32 = 66 << 10;

/// The plain bytes of `stored` where it begins as a compressed file does; nothing where it does not, or is damaged.
pub(super) fn unpack(stored: &[u8]) -> Option<Vec<u8>> {
    match stored {
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => xz(stored, MAX_SIZE),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let decoder = zstd::stream::read::Decoder::with_buffer(stored).ok()?;
            read(decoder, stored, MAX_SIZE)
        }
        [0x1f, 0x8b, 8, ..] => read(GzDecoder::new(stored), stored, MAX_SIZE),
        _ => None,
    }
}

/// The plain bytes of an xz stream, where they are no more than `most` and no bomb.
pub(super) fn xz(stored: &[u8], most: u64) -> Option<Vec<u8>> {
    let reader = XzReader::new_mem_limit(stored, true, MAX_DICTIONARY);
    guarded(|| read(reader, stored, most)).flatten()
}

fn read(mut decoder: impl Read, stored: &[u8], most: u64) -> Option<Vec<u8>> {
    let ratio = (stored.len() as u64).saturating_mul(MAX_RATIO);
    let most = most.min(ratio.max(FREE_SIZE));
    let mut plain = Vec::new();
    decoder
        .by_ref()
        .take(most.saturating_add(1))
        .read_to_end(&mut plain)
        .ok()?;
    (plain.len() as u64 <= most).then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that what is not compressed is left alone, and that damage gives nothing.
    #[test]
    fn other_bytes() {
        assert_eq!(unpack(b"\x7fELF and so on"), None);
        assert_eq!(unpack(b""), None);
        for magic in [&b"\xfd7zXZ\0"[..], b"\x28\xb5\x2f\xfd", b"\x1f\x8b\x08"] {
            assert_eq!(unpack(&[magic, b"no such stream"].concat()), None);
        }
    }

    /// Check that a stream that grows beyond its ratio is given up.
    #[test]
    fn bomb() {
        let plain = vec![0; 48 << 20];
        let stored = zstd::bulk::compress(&plain, 1).unwrap();
        assert!(stored.len() < 1 << 16);
        assert_eq!(unpack(&stored), None);
        let small = zstd::bulk::compress(&plain[..1 << 20], 1).unwrap();
        assert_eq!(unpack(&small).map(|plain| plain.len()), Some(1 << 20));
    }
}
