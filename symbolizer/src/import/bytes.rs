//! Numbers out of bytes in the order of the recorded machine. Knows nothing of what they mean.

use linux_perf_event_reader::Endianness;

/// Bytes that are read from the front.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'b> {
    rest: &'b [u8],
    endian: Endianness,
}

impl<'b> Cursor<'b> {
    pub(super) fn new(bytes: &'b [u8], endian: Endianness) -> Self {
        Self {
            rest: bytes,
            endian,
        }
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        let bytes = self.take(2)?.try_into().ok()?;
        Some(match self.endian {
            Endianness::LittleEndian => u16::from_le_bytes(bytes),
            Endianness::BigEndian => u16::from_be_bytes(bytes),
        })
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        let bytes = self.take(4)?.try_into().ok()?;
        Some(match self.endian {
            Endianness::LittleEndian => u32::from_le_bytes(bytes),
            Endianness::BigEndian => u32::from_be_bytes(bytes),
        })
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        let bytes = self.take(8)?.try_into().ok()?;
        Some(match self.endian {
            Endianness::LittleEndian => u64::from_le_bytes(bytes),
            Endianness::BigEndian => u64::from_be_bytes(bytes),
        })
    }

    /// What is left.
    pub(super) fn rest(&self) -> &'b [u8] {
        self.rest
    }

    /// A string with its length in front, up to its first zero.
    pub(super) fn string(&mut self) -> Option<String> {
        let length = usize::try_from(self.u32()?).ok()?;
        Some(text(self.take(length)?))
    }
}

/// Bytes up to the first zero, as text.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}
