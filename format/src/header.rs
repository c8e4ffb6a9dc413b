//! The archive's header: hand-coded, so that every version of this program can read that of every other.

use crate::chunk::{FRAME_LEN, u16_at, u32_at, u64_at};
use crate::error::{Error, Result};

/// Length of the header as this version writes it, in bytes: two equal copies of 64. Chunks start behind.
pub const HEADER_LEN: usize = 2 * FRAME_LEN;

/// Longest header that is accepted, in bytes.
const MAX_HEADER_LEN: u32 = 1 << 16;

const MAGIC: [u8; 8] = *b"RAWSTACK";

/// rkyv roots are little-endian (1), with pointers of 32 bits, aligned (1), written by rkyv 0.8 (8).
const ENCODING: [u8; 4] = [1, 32, 1, 8];

/// Bits of `incompat` that have a name, whether or not this version can read such an archive.
const FEATURES: [(u32, &str); 3] = [(0, "dictionary"), (1, "encryption"), (2, "parts")];

/// Bit of `incompat`: the archive is a merged one, whose frames say which part their chunk belongs to.
const PARTS: u64 = 1 << 2;

/// Bits of `incompat` that this version can read.
const KNOWN_FEATURES: u64 = PARTS;

/// What stands at the start of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Major version of the format: a reader refuses one that it does not know.
    pub major: u16,
    /// Minor version: a higher one adds what readers may ignore.
    pub minor: u16,
    /// Length of the header with all its copies, in bytes: chunks start there.
    pub header_len: u32,
    /// Features that a reader may ignore when it does not know them.
    pub compat: u64,
    /// Features that a reader has to know.
    pub incompat: u64,
    /// Number drawn for this archive: every frame repeats it, so that no piece of another archive is taken for its own.
    pub salt: u32,
}

impl Header {
    /// Major version that this crate writes.
    pub const MAJOR: u16 = 1;
    /// Minor version that this crate writes.
    pub const MINOR: u16 = 0;

    /// Whether it is a merged archive: its frames say which part their chunk belongs to.
    pub fn has_parts(&self) -> bool {
        self.incompat & PARTS != 0
    }

    /// The header of a new archive, `merged` or not.
    pub(crate) fn new(salt: u32, merged: bool) -> Self {
        Self {
            major: Self::MAJOR,
            minor: Self::MINOR,
            // The length is a constant of 128.
            header_len: 2 * 64,
            compat: 0,
            incompat: if merged { PARTS } else { 0 },
            salt,
        }
    }

    /// Both copies.
    pub(crate) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        out[0..8].copy_from_slice(&MAGIC);
        out[8..10].copy_from_slice(&self.major.to_le_bytes());
        out[10..12].copy_from_slice(&self.minor.to_le_bytes());
        out[12..16].copy_from_slice(&self.header_len.to_le_bytes());
        out[16..24].copy_from_slice(&self.compat.to_le_bytes());
        out[24..32].copy_from_slice(&self.incompat.to_le_bytes());
        out[32..36].copy_from_slice(&self.salt.to_le_bytes());
        out[36..40].copy_from_slice(&ENCODING);
        let crc = crc32c::crc32c(&out[..60]);
        out[60..64].copy_from_slice(&crc.to_le_bytes());
        out.copy_within(..FRAME_LEN, FRAME_LEN);
        out
    }

    /// Read the first bytes of an archive, at most [`HEADER_LEN`] of them; says also whether a copy is damaged or cut.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<(Self, bool)> {
        let copies = [bytes.get(..FRAME_LEN), bytes.get(FRAME_LEN..HEADER_LEN)];
        let mut whole = copies.into_iter().flatten().filter(|copy| is_whole(copy));
        if let Some(copy) = whole.next() {
            return Ok((Self::parse(copy)?, whole.next().is_none()));
        }
        let has_magic = |copy: Option<&[u8]>| copy.is_some_and(|copy| copy.starts_with(&MAGIC));
        Err(if has_magic(copies[0]) || has_magic(copies[1]) {
            Error::HeaderDamaged
        } else if bytes.len() < FRAME_LEN
            && MAGIC.starts_with(&bytes[..bytes.len().min(MAGIC.len())])
        {
            Error::HeaderCut { len: bytes.len() }
        } else {
            Error::NotAnArchive
        })
    }

    /// Read one copy whose checksum holds.
    fn parse(copy: &[u8]) -> Result<Self> {
        let header = Self {
            major: u16_at(copy, 8),
            minor: u16_at(copy, 10),
            header_len: u32_at(copy, 12),
            compat: u64_at(copy, 16),
            incompat: u64_at(copy, 24),
            salt: u32_at(copy, 32),
        };
        let encoding = [copy[36], copy[37], copy[38], copy[39]];
        let unknown = header.incompat & !KNOWN_FEATURES;
        if header.major != Self::MAJOR {
            Err(Error::Version {
                major: header.major,
                minor: header.minor,
            })
        } else if unknown != 0 {
            Err(Error::UnknownFeatures { bits: unknown })
        } else if encoding != ENCODING {
            Err(Error::Encoding { found: encoding })
        } else if !header.has_valid_len() {
            Err(Error::HeaderDamaged)
        } else {
            Ok(header)
        }
    }

    fn has_valid_len(&self) -> bool {
        let aligned = usize::try_from(self.header_len)
            .is_ok_and(|len| len >= HEADER_LEN && len % FRAME_LEN == 0);
        aligned && self.header_len <= MAX_HEADER_LEN
    }
}

/// Whether a copy of the header has its magic and its checksum.
fn is_whole(copy: &[u8]) -> bool {
    copy.starts_with(&MAGIC) && u32_at(copy, 60) == crc32c::crc32c(&copy[..60])
}

/// Names of the features in `bits`, the unnamed ones by number.
pub(crate) fn feature_names(bits: u64) -> String {
    let name = |bit| match FEATURES.iter().find(|(named, _)| *named == bit) {
        Some((_, name)) => format!("{name} (bit {bit})"),
        None => format!("feature bit {bit}"),
    };
    let names: Vec<String> = (0..u64::BITS)
        .filter(|bit| bits >> bit & 1 == 1)
        .map(name)
        .collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Give both copies a changed header's bytes, with checksums that hold.
    fn with(change: impl Fn(&mut Header)) -> [u8; HEADER_LEN] {
        let mut header = Header::new(7, false);
        change(&mut header);
        header.to_bytes()
    }

    /// Check that either copy alone is enough and that the damage is told.
    #[test]
    fn one_copy_is_enough() {
        let bytes = Header::new(7, false).to_bytes();
        assert_eq!(
            Header::from_bytes(&bytes).unwrap(),
            (Header::new(7, false), false)
        );
        for bit in 0..HEADER_LEN * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                Header::from_bytes(&flipped).unwrap(),
                (Header::new(7, false), true),
                "bit {bit}"
            );
        }
        assert_eq!(
            Header::from_bytes(&bytes[..100]).unwrap(),
            (Header::new(7, false), true)
        );
    }

    /// Check that a cut, a damaged and a foreign header are told apart.
    #[test]
    fn refused() {
        let bytes = Header::new(7, false).to_bytes();
        assert!(matches!(
            Header::from_bytes(&bytes[..63]),
            Err(Error::HeaderCut { len: 63 })
        ));
        assert!(matches!(
            Header::from_bytes(&[]),
            Err(Error::HeaderCut { len: 0 })
        ));
        assert!(matches!(
            Header::from_bytes(b"ELF"),
            Err(Error::NotAnArchive)
        ));
        assert!(matches!(
            Header::from_bytes(&[0; HEADER_LEN]),
            Err(Error::NotAnArchive)
        ));
        let mut both = bytes;
        both[20] ^= 1;
        both[84] ^= 1;
        assert!(matches!(
            Header::from_bytes(&both),
            Err(Error::HeaderDamaged)
        ));
        assert!(matches!(
            Header::from_bytes(&with(|h| h.major = 2)),
            Err(Error::Version { major: 2, minor: 0 })
        ));
        assert!(matches!(
            Header::from_bytes(&with(|h| h.header_len = 65)),
            Err(Error::HeaderDamaged)
        ));
        assert!(matches!(
            Header::from_bytes(&with(|h| h.header_len = u32::MAX)),
            Err(Error::HeaderDamaged)
        ));
    }

    /// Check that unknown compatible features are ignored and unknown incompatible ones are refused by name.
    #[test]
    fn features() {
        let bytes = with(|h| (h.compat, h.minor) = (u64::MAX, 9));
        assert_eq!(Header::from_bytes(&bytes).unwrap().0.compat, u64::MAX);
        let error = Header::from_bytes(&with(|h| h.incompat = 1 << 40 | 2)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the archive needs what this program does not know: encryption (bit 1), feature bit 40"
        );
    }
}
