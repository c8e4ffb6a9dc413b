//! An ELF file's headers as plain rows: class and byte order are taken out here and nowhere else.

use std::borrow::Cow;
use std::ffi::CStr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::result;
use std::str;

use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader, Sym};
use rawstack_format::id::{BuildId, FileOffset};
use rawstack_format::record::Segment;

use super::mmap::FileBytes;
use super::packed;
use super::section::{self, Section, SectionError};
use crate::error::{Error, Result};

/// Section headers that are read at most: more belong to object files, not to what runs.
const MAX_SECTIONS: usize = 1 << 18;
/// Program headers that are read at most.
const MAX_SEGMENTS: usize = 1 << 12;
/// Longest name of a symbol that is read, in bytes.
const MAX_NAME: usize = 1 << 16;
/// Bytes of notes that are gone through for a build ID.
const MAX_NOTES: u64 = 16 << 20;
/// `PT_LOAD` and `PT_NOTE`.
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
/// `PT_GNU_EH_FRAME`.
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
/// Executable segment.
pub const PF_X: u32 = 1;
/// `e_type` of an object file.
pub const ET_REL: u16 = 1;

/// An opened ELF file.
#[derive(Debug)]
pub struct ElfFile {
    /// Where it was opened.
    pub path: PathBuf,
    /// 32 or 64.
    pub class: u8,
    /// `e_machine`.
    pub machine: u16,
    /// `e_type`.
    pub kind: u16,
    /// Byte order.
    pub big_endian: bool,
    /// Sections in file order.
    pub sections: Vec<Section>,
    /// PT_LOAD segments in file order.
    pub segments: Vec<Segment>,
    /// `PT_GNU_EH_FRAME`: where `.eh_frame_hdr` is, also in a file without section headers.
    pub frame_header: Option<Segment>,
    /// `e_entry`.
    pub entry: u64,
    /// GNU build ID.
    pub build_id: Option<BuildId>,
    bytes: FileBytes,
}

/// One row of a symbol table.
#[derive(Clone, Copy, Debug)]
pub struct RawSymbol<'a> {
    /// Name.
    pub name: &'a [u8],
    /// `st_value`.
    pub svma: u64,
    /// `st_size`.
    pub size: u64,
    /// `STT_*`.
    pub kind: u8,
    /// `STB_*`.
    pub bind: u8,
    /// Section index, reserved values included.
    pub section: u16,
}

/// Name and checksum of a separate debug file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugLink {
    /// File name without folders.
    pub name: String,
    /// CRC-32 of the file.
    pub crc: u32,
}

/// Name and build ID of the file that holds what several debug files share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlternateLink {
    /// Path, relative to the folder of the file where it is not absolute.
    pub name: String,
    /// Build ID of the alternate file.
    pub build_id: BuildId,
}

impl ElfFile {
    /// Open and read the headers of the file at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = FileBytes::open(path).map_err(|source| Error::Open {
            path: path.to_owned(),
            source,
        })?;
        // Kernel modules are compressed as a whole.
        let plain = packed::unpack(&bytes).map(FileBytes::from);
        Self::parse(path, plain.unwrap_or(bytes))
    }

    /// Read the headers of an image that came from elsewhere, `name` being for messages.
    pub fn parse(name: &Path, bytes: FileBytes) -> Result<Self> {
        let failed = || Error::NotElf {
            path: name.to_owned(),
        };
        let mut file = Self {
            path: name.to_owned(),
            class: if bytes.get(4) == Some(&1) { 32 } else { 64 },
            machine: 0,
            kind: 0,
            big_endian: false,
            sections: Vec::new(),
            segments: Vec::new(),
            frame_header: None,
            entry: 0,
            build_id: None,
            bytes: FileBytes::from(Vec::new()),
        };
        let read = match file.class {
            32 => file.read_headers::<elf::FileHeader32<Endianness>>(&bytes),
            _ => file.read_headers::<elf::FileHeader64<Endianness>>(&bytes),
        };
        read.map_err(|_| failed())?;
        file.bytes = bytes;
        Ok(file)
    }

    fn read_headers<H: FileHeader<Endian = Endianness>>(
        &mut self,
        data: &[u8],
    ) -> object::Result<()> {
        let header = H::parse(data)?;
        let endian = header.endian()?;
        self.big_endian = header.is_big_endian();
        self.machine = header.e_machine(endian).0;
        self.kind = header.e_type(endian).0;
        self.entry = header.e_entry(endian).into();
        let segments = header.program_headers(endian, data).unwrap_or_default();
        let mut notes_left = MAX_NOTES;
        for segment in segments.iter().take(MAX_SEGMENTS) {
            let row = Segment {
                offset: FileOffset(segment.p_offset(endian).into()),
                vaddr: segment.p_vaddr(endian).into(),
                file_size: segment.p_filesz(endian).into(),
                flags: segment.p_flags(endian).0,
            };
            match segment.p_type(endian).0 {
                PT_LOAD => self.segments.push(row),
                PT_GNU_EH_FRAME => self.frame_header = Some(row),
                _ => {}
            }
        }
        if let Ok(table) = header.sections(endian, data) {
            let names = header.section_strings_index(endian, data);
            let names = names.and_then(|index| table.section(index)?.data(endian, data));
            let names = names.unwrap_or_default();
            for row in table.iter().take(MAX_SECTIONS) {
                let name = name_at(names, row.sh_name(endian));
                self.sections.push(section_row(endian, row, name));
                if self.build_id.is_none()
                    && let Ok(Some(notes)) = row.notes(endian, data)
                    && let Some(left) = notes_left.checked_sub(row.sh_size(endian).into())
                {
                    notes_left = left;
                    self.build_id = find_build_id::<H>(endian, notes);
                }
            }
        }
        for segment in segments.iter().take(MAX_SEGMENTS) {
            if self.build_id.is_none()
                && segment.p_type(endian).0 == PT_NOTE
                && let Ok(Some(notes)) = segment.notes(endian, data)
                && let Some(left) = notes_left.checked_sub(segment.p_filesz(endian).into())
            {
                notes_left = left;
                self.build_id = find_build_id::<H>(endian, notes);
            }
        }
        Ok(())
    }

    /// The whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Let go of the memory that holds `part` of the file until it is needed again.
    pub fn release(&self, part: &[u8]) {
        self.bytes.release(part);
    }

    /// `size` bytes at `offset`.
    pub fn range(&self, offset: u64, size: u64) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        self.bytes.get(start..end)
    }

    /// The first section of this name.
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| &*section.name == name)
    }

    /// Plain content of a debug section, also under its older `.zdebug_` name; empty where there is none.
    pub fn debug_section(&self, name: &str) -> result::Result<Cow<'_, [u8]>, SectionError> {
        let older = || self.section(&format!(".z{}", name.strip_prefix('.')?));
        match self.section(name).or_else(older) {
            Some(found) => section::content(self, found),
            None => Ok(Cow::Borrowed(&[])),
        }
    }

    /// Whether DWARF compilation units are inside.
    pub fn has_dwarf(&self) -> bool {
        [".debug_info", ".zdebug_info"].iter().any(|name| {
            self.section(name)
                .is_some_and(|found| found.size > 0 && !found.is_nobits())
        })
    }

    /// Whether the full symbol table is inside.
    pub fn has_symtab(&self) -> bool {
        self.section(".symtab")
            .is_some_and(|found| found.size > 0 && !found.is_nobits())
    }

    /// Whether the code itself is left out (`objcopy --only-keep-debug`): then the PT_LOAD table lies about the file. Stubs do
    /// not count, since packed files keep them.
    pub fn is_debug_only(&self) -> bool {
        let mut code = self
            .sections
            .iter()
            .filter(|section| section.is_code() && !section.is_linkage_table())
            .peekable();
        code.peek().is_some() && code.all(Section::is_nobits)
    }

    /// Executable ranges of addresses, by sections where there are any, else by segments.
    pub fn code_ranges(&self) -> Vec<Range<u64>> {
        let by_section = self
            .sections
            .iter()
            .filter(|section| section.is_code() && section.size > 0);
        let mut ranges: Vec<_> = by_section
            .map(|section| section.svma..section.svma.saturating_add(section.size))
            .collect();
        if ranges.is_empty() {
            let loads = self
                .segments
                .iter()
                .filter(|segment| segment.flags & PF_X != 0);
            ranges = loads
                .map(|segment| segment.vaddr..segment.vaddr.saturating_add(segment.file_size))
                .collect();
        }
        ranges.sort_by_key(|range| (range.start, range.end));
        ranges
    }

    /// Plain size of the compilation units, in bytes.
    pub fn dwarf_size(&self) -> u64 {
        let found = [".debug_info", ".zdebug_info"]
            .iter()
            .find_map(|name| self.section(name));
        found.map_or(0, |found| section::plain_size(self, found))
    }

    /// The content of `.gnu_debugaltlink`.
    pub fn alternate_link(&self) -> Option<AlternateLink> {
        let section = self.section(".gnu_debugaltlink")?;
        let content = section::content(self, section).ok()?;
        let length = content.iter().position(|&byte| byte == 0)?;
        let name = str::from_utf8(content.get(..length)?).ok()?;
        Some(AlternateLink {
            name: name.to_owned(),
            build_id: BuildId::new(content.get(length.checked_add(1)?..)?)?,
        })
    }

    /// The content of `.gnu_debuglink`.
    pub fn debug_link(&self) -> Option<DebugLink> {
        let section = self.section(".gnu_debuglink")?;
        let content = section::content(self, section).ok()?;
        let length = content.iter().position(|&byte| byte == 0)?;
        let name = str::from_utf8(content.get(..length)?).ok()?;
        let crc: [u8; 4] = content
            .get(length.checked_add(4)? & !3..)?
            .first_chunk()
            .copied()?;
        let crc = if self.big_endian {
            u32::from_be_bytes(crc)
        } else {
            u32::from_le_bytes(crc)
        };
        // A link is a file name: one with folders is not followed out of the place where it stands.
        (!name.is_empty() && !name.contains('/')).then(|| DebugLink {
            name: name.to_owned(),
            crc,
        })
    }

    /// Go through `.symtab` and `.dynsym`, whatever there is of them; a damaged table ends early.
    pub fn for_each_symbol<'a>(&'a self, each: &mut dyn FnMut(RawSymbol<'a>)) {
        match self.class {
            32 => self.read_symbols::<elf::FileHeader32<Endianness>>(each),
            _ => self.read_symbols::<elf::FileHeader64<Endianness>>(each),
        };
    }

    fn read_symbols<'a, H: FileHeader<Endian = Endianness>>(
        &'a self,
        each: &mut dyn FnMut(RawSymbol<'a>),
    ) -> Option<()> {
        let data: &'a [u8] = &self.bytes;
        let header = H::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, data).ok()?;
        let is_object = self.kind == ET_REL;
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            let Ok(table) = sections.symbols(endian, data, kind) else {
                continue;
            };
            let names = sections.section(table.string_section());
            let names = names.and_then(|section| section.data(endian, data));
            let names = names.unwrap_or_default();
            for symbol in table.symbols() {
                let value: u64 = symbol.st_value(endian).into();
                let section = usize::from(symbol.st_shndx(endian).0);
                // In object files a symbol counts from its section.
                let base = self.sections.get(section).filter(|_| is_object);
                each(RawSymbol {
                    name: name_at(names, symbol.st_name(endian)),
                    svma: value.wrapping_add(base.map_or(0, |section| section.svma)),
                    size: symbol.st_size(endian).into(),
                    kind: symbol.st_type().0,
                    bind: symbol.st_bind().0,
                    section: symbol.st_shndx(endian).0,
                });
            }
        }
        Some(())
    }
}

/// The name at `offset` of a string table, cut where it is endless; empty where it is outside.
fn name_at(names: &[u8], offset: u32) -> &[u8] {
    let rest = names.get(offset as usize..).unwrap_or_default();
    let window = rest.get(..MAX_NAME).unwrap_or(rest);
    match CStr::from_bytes_until_nul(window) {
        Ok(name) => name.to_bytes(),
        Err(_) if window.len() < rest.len() => window,
        Err(_) => &[],
    }
}

fn section_row<S: SectionHeader<Endian = Endianness>>(
    endian: Endianness,
    row: &S,
    name: &[u8],
) -> Section {
    Section {
        name: String::from_utf8_lossy(name.get(..64).unwrap_or(name)).into(),
        kind: row.sh_type(endian).0,
        flags: row.sh_flags(endian).0,
        svma: row.sh_addr(endian).into(),
        offset: row.sh_offset(endian).into(),
        size: row.sh_size(endian).into(),
        link: row.sh_link(endian),
        entry_size: row.sh_entsize(endian).into(),
        placed: None,
    }
}

fn find_build_id<H: FileHeader<Endian = Endianness>>(
    endian: Endianness,
    mut notes: NoteIterator<'_, H>,
) -> Option<BuildId> {
    while let Ok(Some(note)) = notes.next() {
        if note.name() == b"GNU" && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
            return BuildId::new(note.desc());
        }
    }
    None
}
