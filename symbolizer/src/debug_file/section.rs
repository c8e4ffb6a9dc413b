//! Section contents, decompressed under limits of our own. Knows nothing of what a section means.

use std::borrow::Cow;
use std::io::Read;

use super::elf::ElfFile;
use flate2::bufread::ZlibDecoder;

/// `SHF_EXECINSTR`.
pub(super) const CODE: u64 = 4;
/// `SHF_COMPRESSED`.
const COMPRESSED: u64 = 1 << 11;
/// `SHT_NOBITS`.
const NOBITS: u32 = 8;
/// `ELFCOMPRESS_ZLIB` and `ELFCOMPRESS_ZSTD`.
const ZLIB: u32 = 1;
const ZSTD: u32 = 2;
/// A section may always grow to this size, whatever its ratio.
const FREE_SIZE: u64 = 16 << 20;
/// Above [`FREE_SIZE`] at most this many bytes a stored byte: debug information compresses 2 to 8 times.
const MAX_RATIO: u64 = 48;
/// No section grows beyond this.
const MAX_SIZE: u64 = 8 << 30;

/// One section header, class and byte order taken out.
#[derive(Clone, Debug)]
pub struct Section {
    /// Name, cut at 64 bytes.
    pub name: Box<str>,
    /// `sh_type`.
    pub kind: u32,
    /// `sh_flags`.
    pub flags: u64,
    /// `sh_addr`.
    pub svma: u64,
    /// `sh_offset`.
    pub offset: u64,
    /// `sh_size`.
    pub size: u64,
    /// `sh_link`.
    pub link: u32,
    /// `sh_entsize`.
    pub entry_size: u64,
    /// Plain content with relocations applied, where the file was placed.
    pub placed: Option<Vec<u8>>,
}

impl Section {
    /// Whether the section holds code.
    pub fn is_code(&self) -> bool {
        self.flags & CODE != 0
    }

    /// Whether it holds stubs that lead to functions of other modules (a procedure linkage table).
    pub fn is_linkage_table(&self) -> bool {
        self.is_code() && (self.name.starts_with(".plt") || &*self.name == ".iplt")
    }

    /// Whether the file leaves the section's bytes out.
    pub fn is_nobits(&self) -> bool {
        self.kind == NOBITS
    }
}

/// Why a section's content cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SectionError {
    /// Its bytes are not all within the file.
    #[error("section lies outside the file")]
    OutsideFile,
    /// The compression header is cut or names an unknown method.
    #[error("unknown compression of a section")]
    UnknownCompression,
    /// The stated size is beyond what is accepted.
    #[error("section claims to grow to {0} bytes")]
    TooLarge(u64),
    /// The compressed bytes are damaged, or give another size than stated.
    #[error("damaged compressed section")]
    Damaged,
}

/// The plain content of `section` in `file`.
pub fn content<'a>(file: &'a ElfFile, section: &'a Section) -> Result<Cow<'a, [u8]>, SectionError> {
    if section.is_nobits() {
        return Ok(Cow::Borrowed(&[]));
    }
    if let Some(placed) = &section.placed {
        return Ok(Cow::Borrowed(placed));
    }
    let stored = file
        .range(section.offset, section.size)
        .ok_or(SectionError::OutsideFile)?;
    if section.flags & COMPRESSED != 0 {
        let header =
            CompressionHeader::read(file, stored).ok_or(SectionError::UnknownCompression)?;
        return inflate(header).map(Cow::Owned);
    }
    if section.name.starts_with(".zdebug_") {
        let header = CompressionHeader::read_gnu(stored).ok_or(SectionError::UnknownCompression)?;
        return inflate(header).map(Cow::Owned);
    }
    Ok(Cow::Borrowed(stored))
}

/// Size of the plain content of `section`, as its header claims.
pub fn plain_size(file: &ElfFile, section: &Section) -> u64 {
    let stored = || file.range(section.offset, section.size);
    let header = if section.flags & COMPRESSED != 0 {
        stored().and_then(|stored| CompressionHeader::read(file, stored))
    } else if section.name.starts_with(".zdebug_") {
        stored().and_then(CompressionHeader::read_gnu)
    } else {
        None
    };
    header.map_or(section.size, |header| header.size)
}

/// Method, size and bytes of a compressed section.
struct CompressionHeader<'a> {
    method: u32,
    size: u64,
    bytes: &'a [u8],
}

impl<'a> CompressionHeader<'a> {
    /// `Elf32_Chdr` or `Elf64_Chdr`.
    fn read(file: &ElfFile, stored: &'a [u8]) -> Option<Self> {
        let word = |at: usize| -> Option<u32> {
            let bytes: [u8; 4] = stored.get(at..at.checked_add(4)?)?.try_into().ok()?;
            Some(if file.big_endian {
                u32::from_be_bytes(bytes)
            } else {
                u32::from_le_bytes(bytes)
            })
        };
        let (size, length) = if file.class == 64 {
            let (low, high) = if file.big_endian { (12, 8) } else { (8, 12) };
            (u64::from(word(low)?) | u64::from(word(high)?) << 32, 24)
        } else {
            (u64::from(word(4)?), 12)
        };
        Some(Self {
            method: word(0)?,
            size,
            bytes: stored.get(length..)?,
        })
    }

    /// The older `.zdebug_*` layout: "ZLIB", then the size in big-endian order.
    fn read_gnu(stored: &'a [u8]) -> Option<Self> {
        let size = stored.strip_prefix(b"ZLIB")?.first_chunk::<8>()?;
        Some(Self {
            method: ZLIB,
            size: u64::from_be_bytes(*size),
            bytes: stored.get(12..)?,
        })
    }
}

/// Decompress, with the size checked before a byte is allocated.
fn inflate(header: CompressionHeader<'_>) -> Result<Vec<u8>, SectionError> {
    let stored = header.bytes.len() as u64;
    let allowed = FREE_SIZE
        .max(stored.saturating_mul(MAX_RATIO))
        .min(MAX_SIZE);
    let size = usize::try_from(header.size).map_err(|_| SectionError::TooLarge(header.size))?;
    if header.size > allowed {
        return Err(SectionError::TooLarge(header.size));
    }
    let mut plain = Vec::new();
    plain
        .try_reserve_exact(size)
        .map_err(|_| SectionError::TooLarge(header.size))?;
    match header.method {
        ZLIB => fill(ZlibDecoder::new(header.bytes), header.size, &mut plain)?,
        ZSTD => {
            let decoder = zstd::stream::read::Decoder::with_buffer(header.bytes)
                .map_err(|_| SectionError::Damaged)?;
            fill(decoder, header.size, &mut plain)?;
        }
        _ => return Err(SectionError::UnknownCompression),
    }
    if plain.len() == size {
        Ok(plain)
    } else {
        Err(SectionError::Damaged)
    }
}

/// Read at most `size` bytes and one more, so that a longer stream is noticed and not kept.
fn fill(decoder: impl Read, size: u64, plain: &mut Vec<u8>) -> Result<(), SectionError> {
    let mut limited = decoder.take(size);
    limited
        .read_to_end(plain)
        .map_err(|_| SectionError::Damaged)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use flate2::read::ZlibEncoder;
    use zstd::bulk;

    use super::*;

    /// Check that a size beyond the limits is refused before anything is allocated.
    #[test]
    fn absurd_size() {
        let header = CompressionHeader {
            method: ZLIB,
            size: 1 << 46,
            bytes: &[0x78, 0x9c],
        };
        assert_eq!(
            inflate(header).unwrap_err(),
            SectionError::TooLarge(1 << 46)
        );
    }

    /// Check that both methods give back what was compressed, and that a wrong size is damage.
    #[test]
    fn both_methods() {
        let plain = b"names names names names".repeat(50);
        let mut zlib = Vec::new();
        ZlibEncoder::new(&plain[..], flate2::Compression::fast())
            .read_to_end(&mut zlib)
            .unwrap();
        let zst = bulk::compress(&plain, 3).unwrap();
        for (method, bytes) in [(ZLIB, &zlib), (ZSTD, &zst)] {
            let size = plain.len() as u64;
            assert_eq!(
                inflate(CompressionHeader {
                    method,
                    size,
                    bytes
                })
                .unwrap(),
                plain
            );
            let longer = CompressionHeader {
                method,
                size: size + 1,
                bytes,
            };
            assert_eq!(inflate(longer).unwrap_err(), SectionError::Damaged);
        }
        let unknown = CompressionHeader {
            method: 9,
            size: 1,
            bytes: &zlib,
        };
        assert_eq!(
            inflate(unknown).unwrap_err(),
            SectionError::UnknownCompression
        );
    }
}
