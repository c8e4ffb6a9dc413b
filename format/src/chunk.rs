//! The 64-byte frame of a chunk. Knows nothing of compression or of what is inside.

use std::fmt;

/// Length of a chunk's frame and of a header, in bytes. Also their alignment in the file.
pub const FRAME_LEN: usize = 64;

/// Largest raw length of a chunk's content, in bytes.
pub const MAX_RAW_LEN: usize = 1 << 20;

/// Largest length of a chunk's zstd frame, in bytes: what cannot be compressed grows a little.
pub const MAX_STORED_LEN: usize = MAX_RAW_LEN + (MAX_RAW_LEN >> 4);

/// First four bytes of every frame: not ASCII, so that no text looks like it.
pub(crate) const MARKER: [u8; 4] = [0xf5, b'R', b'S', 0x1a];

/// What a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind(pub u8);

impl Kind {
    /// [`Recording`](crate::record::Recording).
    pub const RECORDING: Self = Self(1);
    /// [`KernelSymbols`](crate::record::KernelSymbols).
    pub const KERNEL_SYMBOLS: Self = Self(2);
    /// [`KernelModules`](crate::record::KernelModules).
    pub const KERNEL_MODULES: Self = Self(3);
    /// [`Vdso`](crate::record::Vdso).
    pub const VDSO: Self = Self(4);
    /// [`Batch`](crate::record::Batch).
    pub const BATCH: Self = Self(5);
    /// [`JitMap`](crate::record::JitMap).
    pub const JIT_MAP: Self = Self(6);
    /// [`Run`](crate::record::Run)s.
    pub const RUNS: Self = Self(7);
    /// [`StackCopies`](crate::copies::StackCopies).
    pub const STACK_COPIES: Self = Self(8);
    /// [`End`](crate::record::End).
    pub const END: Self = Self(9);
    /// [`Index`](crate::Index): comes without a record.
    pub const INDEX: Self = Self(10);
    /// [`Part`](crate::record::Part).
    pub const PART: Self = Self(11);

    /// Name in text and JSON, `None` for a kind that this version does not know.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::RECORDING => "recording",
            Self::KERNEL_SYMBOLS => "kernel-symbols",
            Self::KERNEL_MODULES => "kernel-modules",
            Self::VDSO => "vdso",
            Self::BATCH => "batch",
            Self::JIT_MAP => "jit-map",
            Self::RUNS => "runs",
            Self::STACK_COPIES => "stack-copies",
            Self::END => "end",
            Self::INDEX => "index",
            Self::PART => "part",
            _ => return None,
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "kind-{}", self.0),
        }
    }
}

/// Running totals up to and including a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// IDs accounted for: sample rows, and what drops with
    /// [`counts_ids`](crate::record::DropReason::counts_ids) count.
    pub ids: u64,
    /// Dropped for [`BufferFull`](crate::record::DropReason::BufferFull). This and the next two stop at 2³²−1.
    pub buffer_full: u64,
    /// Dropped for [`Contended`](crate::record::DropReason::Contended).
    pub contended: u64,
    /// Dropped for [`Unwritten`](crate::record::DropReason::Unwritten).
    pub unwritten: u64,
}

/// What a chunk's frame says, and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Position of the frame in the archive, in bytes; a multiple of [`FRAME_LEN`].
    pub position: u64,
    /// What is inside.
    pub kind: Kind,
    /// Version of that kind's layout, from 1.
    pub version: u8,
    /// Part of a merged archive that the chunk belongs to, from 0; 0 in others.
    pub part: u16,
    /// Sequence number, from 0.
    pub seq: u32,
    /// Length of the zstd frame, in bytes.
    pub stored_len: u32,
    /// Length of the content, in bytes.
    pub raw_len: u32,
    /// Earliest time inside, 0 where the content has no times.
    pub first_ns: u64,
    /// A time that is not before the latest inside: it is stored in microseconds, rounded up.
    pub last_ns: u64,
    /// Running totals.
    pub counters: Counters,
}

impl ChunkInfo {
    /// Length of the chunk in the archive with frame and padding, in bytes.
    pub fn len_in_file(&self) -> u64 {
        FRAME_LEN as u64 + u64::from(self.stored_len).next_multiple_of(FRAME_LEN as u64)
    }
}

/// Microseconds from `first_ns` to `last_ns`, rounded up, at most what a `u32` holds.
pub(crate) fn span_us(first_ns: u64, last_ns: u64) -> u32 {
    u32::try_from(last_ns.saturating_sub(first_ns).div_ceil(1000)).unwrap_or(u32::MAX)
}

/// A frame as it stands in the file, without its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) salt: u32,
    pub(crate) info: ChunkInfo,
    pub(crate) payload_crc: u32,
}

impl Frame {
    /// Whether `bytes` begin with the marker and `salt`: cheap, for the search after damage.
    pub(crate) fn is_marked(bytes: &[u8], salt: u32) -> bool {
        bytes.len() >= FRAME_LEN && bytes[..4] == MARKER && bytes[4..8] == salt.to_le_bytes()
    }

    /// The bytes. Drop counters that do not fit stop at their largest value.
    pub(crate) fn to_bytes(self) -> [u8; FRAME_LEN] {
        let counter = |n: u64| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
        let ChunkInfo {
            first_ns,
            last_ns,
            counters,
            ..
        } = self.info;
        let mut out = [0; FRAME_LEN];
        out[0..4].copy_from_slice(&MARKER);
        out[4..8].copy_from_slice(&self.salt.to_le_bytes());
        out[8] = self.info.kind.0;
        out[9] = self.info.version;
        out[10..12].copy_from_slice(&self.info.part.to_le_bytes());
        out[12..16].copy_from_slice(&self.info.seq.to_le_bytes());
        out[16..20].copy_from_slice(&self.info.stored_len.to_le_bytes());
        out[20..24].copy_from_slice(&self.info.raw_len.to_le_bytes());
        out[24..32].copy_from_slice(&first_ns.to_le_bytes());
        out[32..36].copy_from_slice(&span_us(first_ns, last_ns).to_le_bytes());
        out[36..40].copy_from_slice(&counter(counters.buffer_full));
        out[40..44].copy_from_slice(&counter(counters.contended));
        out[44..48].copy_from_slice(&counter(counters.unwritten));
        out[48..56].copy_from_slice(&counters.ids.to_le_bytes());
        out[56..60].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = crc32c::crc32c(&out[..60]);
        out[60..64].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Read a frame that stands at `position`; `None` where marker, salt or checksum differ.
    pub(crate) fn from_bytes(bytes: &[u8], salt: u32, position: u64) -> Option<Self> {
        if !Self::is_marked(bytes, salt) || u32_at(bytes, 60) != crc32c::crc32c(&bytes[..60]) {
            return None;
        }
        let first_ns = u64_at(bytes, 24);
        let info = ChunkInfo {
            position,
            kind: Kind(bytes[8]),
            version: bytes[9],
            part: u16_at(bytes, 10),
            seq: u32_at(bytes, 12),
            stored_len: u32_at(bytes, 16),
            raw_len: u32_at(bytes, 20),
            first_ns,
            last_ns: first_ns.saturating_add(u64::from(u32_at(bytes, 32)) * 1000),
            counters: Counters {
                ids: u64_at(bytes, 48),
                buffer_full: u32_at(bytes, 36).into(),
                contended: u32_at(bytes, 40).into(),
                unwritten: u32_at(bytes, 44).into(),
            },
        };
        Some(Self {
            salt,
            info,
            payload_crc: u32_at(bytes, 56),
        })
    }
}

/// The little-endian `u16` at `at`. The caller has checked the length, as for the next two.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The little-endian `u32` at `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

/// The little-endian `u64` at `at`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Frame {
        let counters = Counters {
            ids: 1 << 40,
            buffer_full: 7,
            contended: 8,
            unwritten: u64::MAX,
        };
        let info = ChunkInfo {
            position: 128,
            kind: Kind::BATCH,
            version: 1,
            part: 0x1234,
            seq: 9,
            stored_len: 100,
            raw_len: 1000,
            first_ns: 5,
            last_ns: 1006,
            counters,
        };
        Frame {
            salt: 0x1234_5678,
            info,
            payload_crc: 42,
        }
    }

    /// Check that a frame is read as written, its last time rounded up and its counters stopped at their largest.
    #[test]
    fn frame_round_trip() {
        let mut want = frame();
        let got = Frame::from_bytes(&want.to_bytes(), want.salt, 128).unwrap();
        want.info.last_ns = 2005;
        want.info.counters.unwritten = u64::from(u32::MAX);
        assert_eq!(got, want);
        assert_eq!(got.info.len_in_file(), 192);
    }

    /// Check that a frame with any one bit changed, or with another salt, is no frame.
    #[test]
    fn frame_flips() {
        let bytes = frame().to_bytes();
        for bit in 0..FRAME_LEN * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                Frame::from_bytes(&flipped, frame().salt, 0),
                None,
                "bit {bit}"
            );
        }
        assert_eq!(Frame::from_bytes(&bytes, 1, 0), None);
    }
}
