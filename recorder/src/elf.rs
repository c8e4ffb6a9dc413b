//! What an archive says of an ELF file: build ID, code segments, a hash where there is no build ID.
//!
//! Reads headers and notes, a few kilobytes. Never symbols, never DWARF.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadRef};
use object::{Endianness, FileKind};
use rawstack_format::id::{BuildId, FileOffset};
use rawstack_format::record::Segment;
use sha2::{Digest, Sha256};

/// Notes longer than this are not looked at: a build ID's takes 36 bytes.
const MAX_NOTES: u64 = 1 << 20;
/// Program headers beyond these are not looked at.
const MAX_SEGMENTS: usize = 256;
/// A file that says it has more program headers is not read: it could say four thousand million.
const MAX_PROGRAM_HEADERS: u32 = 4096;

/// What an archive says of an ELF file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ElfFacts {
    /// 32 or 64.
    pub(crate) class: u8,
    /// `e_machine`.
    pub(crate) machine: u16,
    /// Build ID, where there is one.
    pub(crate) build_id: Option<BuildId>,
    /// PT_LOAD segments that hold code.
    pub(crate) segments: Vec<Segment>,
    /// The others.
    pub(crate) data: Vec<Segment>,
}

impl ElfFacts {
    /// Read them from a file; `None` when it is no ELF file.
    pub(crate) fn read(file: &File) -> Option<Self> {
        Self::parse(&ReadCache::new(file))
    }

    /// Read them from an image in memory.
    pub(crate) fn from_image(image: &[u8]) -> Option<Self> {
        Self::parse(image)
    }

    fn parse<'data>(data: impl ReadRef<'data>) -> Option<Self> {
        match FileKind::parse(data).ok()? {
            FileKind::Elf64 => Self::parse_class::<FileHeader64<Endianness>, _>(data, 64),
            FileKind::Elf32 => Self::parse_class::<FileHeader32<Endianness>, _>(data, 32),
            _ => None,
        }
    }

    fn parse_class<'data, H, R>(data: R, class: u8) -> Option<Self>
    where
        H: FileHeader<Endian = Endianness>,
        R: ReadRef<'data>,
    {
        let header = H::parse(data).ok()?;
        let endian = header.endian().ok()?;
        if header.phnum(endian, data).ok()? > MAX_PROGRAM_HEADERS {
            return None;
        }
        let mut facts = Self {
            class,
            machine: header.e_machine(endian).0,
            ..Self::default()
        };
        for segment in header
            .program_headers(endian, data)
            .ok()?
            .iter()
            .take(MAX_SEGMENTS)
        {
            let size: u64 = segment.p_filesz(endian).into();
            match segment.p_type(endian) {
                elf::PT_LOAD => {
                    let flags = segment.p_flags(endian).0;
                    let is_code = flags & elf::PF_X.0 != 0;
                    let list = if is_code {
                        &mut facts.segments
                    } else {
                        &mut facts.data
                    };
                    list.push(Segment {
                        offset: FileOffset(segment.p_offset(endian).into()),
                        vaddr: segment.p_vaddr(endian).into(),
                        file_size: size,
                        flags,
                    });
                }
                elf::PT_NOTE if size <= MAX_NOTES && facts.build_id.is_none() => {
                    facts.build_id = build_id_note::<H, R>(segment, endian, data);
                }
                _ => {}
            }
        }
        Some(facts)
    }
}

fn build_id_note<'data, H, R>(
    segment: &H::ProgramHeader,
    endian: Endianness,
    data: R,
) -> Option<BuildId>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let mut notes = segment.notes(endian, data).ok()??;
    while let Ok(Some(note)) = notes.next() {
        if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
            return BuildId::new(note.desc());
        }
    }
    None
}

/// The build ID among bare notes, as the kernel shows its own in `/sys/kernel/notes`, in the host's byte order.
pub(crate) fn build_id_in_notes(mut notes: &[u8]) -> Option<BuildId> {
    let align = |length: u32| {
        usize::try_from(length)
            .ok()
            .map(|length| length.next_multiple_of(4))
    };
    loop {
        let [name_len, desc_len, kind] = [0, 4, 8].map(|at| {
            notes
                .get(at..)
                .and_then(|rest| rest.first_chunk())
                .map(|bytes| u32::from_ne_bytes(*bytes))
        });
        let (name_len, desc_len) = (name_len?, desc_len?);
        let (name, rest) = notes.get(12..)?.split_at_checked(align(name_len)?)?;
        let desc = rest.get(..usize::try_from(desc_len).ok()?)?;
        if kind? == elf::NT_GNU_BUILD_ID.0 && name == b"GNU\0" {
            return BuildId::new(desc);
        }
        notes = rest.get(align(desc_len)?..)?;
    }
}

/// `process.executable.build_id.htlhash` of OpenTelemetry: the first 16 bytes of SHA-256 over the file's first 4096
/// bytes, its last 4096 and its length as a big-endian `u64`.
pub(crate) fn content_hash(file: &File) -> io::Result<[u8; 16]> {
    let length = file.metadata()?.len();
    let mut hash = Sha256::new();
    for start in [0, length.saturating_sub(4096)] {
        let mut bytes = vec![0; usize::try_from(length.min(4096)).unwrap_or(4096)];
        file.read_exact_at(&mut bytes, start)?;
        hash.update(&bytes);
    }
    hash.update(length.to_be_bytes());
    let mut short = [0; 16];
    short.copy_from_slice(hash.finalize().get(..16).unwrap_or(&[0; 16]));
    Ok(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that this test's own file is read: it has code, and the linker's build ID if any is whole.
    #[test]
    fn own_file() {
        let facts = ElfFacts::read(&File::open("/proc/self/exe").unwrap()).unwrap();
        assert_eq!(usize::from(facts.class), usize::BITS as usize);
        assert!(
            facts
                .segments
                .iter()
                .any(|segment| segment.file_size > 4096)
        );
        assert!(facts.segments.iter().all(|segment| segment.flags & 1 != 0));
    }

    /// Check that the kernel's own notes give a build ID of 20 bytes, and that no cut of them panics.
    #[test]
    fn kernel_notes() {
        let notes = std::fs::read("/sys/kernel/notes").unwrap();
        assert_eq!(build_id_in_notes(&notes).unwrap().as_bytes().len(), 20);
        (0..notes.len()).for_each(|end| _ = build_id_in_notes(&notes[..end]));
    }

    /// Check the hash of a short file against its definition: first and last part overlap.
    #[test]
    fn hash_of_short_file() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, b"hello").unwrap();
        let whole = Sha256::digest([b"hellohello".as_slice(), &5u64.to_be_bytes()].concat());
        assert_eq!(content_hash(&file).unwrap(), whole[..16]);
    }
}
