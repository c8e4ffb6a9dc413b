//! Functions of an ELF file by name, for probes: the one use of symbol tables on the recording side. Nothing of them
//! goes into an archive.

use std::fs::File;
use std::path::Path;

use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{ElfFile, FileHeader, ProgramHeader, Sym};
use object::read::{ReadCache, ReadRef};
use object::{Endianness, FileKind, Object, ObjectSection};

use super::plt;
use super::starts;
use super::usdt::{self, Marker};

/// Notes longer than this are no markers', in bytes.
const MAX_NOTES: u64 = 64 << 20;

/// What probes need of an ELF file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    /// Functions that it defines, and PLT entries as `NAME@plt`.
    pub(crate) functions: Vec<Function>,
    /// Static markers.
    pub(crate) markers: Vec<Marker>,
    /// Addresses where functions begin, as far as the file tells without symbols; sorted.
    starts: Vec<u64>,
    segments: Vec<Segment>,
}

/// A function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Function {
    /// Name, as the linker knows it.
    pub(crate) name: String,
    /// Version, and whether it is the one that new programs get.
    pub(crate) version: Option<(String, bool)>,
    /// Address that the file states.
    pub(crate) address: u64,
    /// It only chooses a function when the program is loaded.
    pub(crate) is_chooser: bool,
}

/// A loaded part of the file.
#[derive(Clone, Copy, Debug)]
struct Segment {
    address: u64,
    offset: u64,
    size: u64,
}

impl Image {
    /// Read one; `None` when it is no ELF file.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let data = ReadCache::new(File::open(path).ok()?);
        match FileKind::parse(&data).ok()? {
            FileKind::Elf64 => Self::parse::<FileHeader64<Endianness>, _>(&data),
            FileKind::Elf32 => Self::parse::<FileHeader32<Endianness>, _>(&data),
            _ => None,
        }
    }

    fn parse<'data, H, R>(data: R) -> Option<Self>
    where
        H: FileHeader<Endian = Endianness>,
        R: ReadRef<'data>,
    {
        let file = ElfFile::<H, R>::parse(data).ok()?;
        let endian = file.endian();
        let loaded = |segment: &&H::ProgramHeader| segment.p_type(endian) == elf::PT_LOAD;
        let segments = file.elf_program_headers().iter().filter(loaded);
        let mut image = Self {
            segments: segments
                .map(|segment| Segment {
                    address: segment.p_vaddr(endian).into(),
                    offset: segment.p_offset(endian).into(),
                    size: segment.p_filesz(endian).into(),
                })
                .collect(),
            functions: functions(&file, false),
            markers: Vec::new(),
            starts: Vec::new(),
        };
        let unwind = |segment: &&H::ProgramHeader| segment.p_type(endian) == elf::PT_GNU_EH_FRAME;
        if let Some(header) = file.elf_program_headers().iter().find(unwind) {
            let table = header.data(endian, data).unwrap_or_default();
            image.starts = starts::of(table, endian, header.p_vaddr(endian).into());
        }
        image.functions.extend(functions(&file, true));
        image.functions.extend(plt::entries(&file));
        let section = |name| file.section_by_name(name);
        if let Some(notes) = section(".note.stapsdt").filter(|notes| notes.size() <= MAX_NOTES) {
            let base = section(".stapsdt.base").map(|base| base.address());
            let word = size_of::<H::Word>();
            image.markers = usdt::markers(notes.data().unwrap_or_default(), endian, word, base);
        }
        Some(image)
    }

    /// The functions that `wanted` means: `NAME`, `NAME@VERSION`, `NAME@@VERSION`, `NAME@plt`. Each address once.
    pub(crate) fn find(&self, wanted: &str) -> Vec<&Function> {
        let mut found: Vec<&Function> = self
            .functions
            .iter()
            .filter(|function| function.is_called(wanted))
            .collect();
        found.sort_by_key(|function| function.address);
        found.dedup_by_key(|function| function.address);
        found
    }

    /// Where in the file the byte of an address lies.
    pub(crate) fn offset_of(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let within = address.checked_sub(segment.address)?;
            (within < segment.size).then(|| segment.offset.checked_add(within))?
        })
    }

    /// Whether a function begins at this offset of the file.
    pub(crate) fn is_entry(&self, offset: u64) -> bool {
        let named = self.functions.iter().map(|function| &function.address);
        let mut addresses = named.chain(&self.starts);
        addresses.any(|address| self.offset_of(*address) == Some(offset))
    }
}

impl Function {
    fn is_called(&self, wanted: &str) -> bool {
        if self.name == wanted {
            return true;
        }
        let Some((name, version)) = wanted.split_once('@') else {
            return false;
        };
        let (version, only_default) = match version.strip_prefix('@') {
            Some(version) => (version, true),
            None => (version, false),
        };
        let is_version =
            |(own, is_default): &(String, bool)| own == version && (*is_default || !only_default);
        self.name == name && self.version.as_ref().is_some_and(is_version)
    }
}

/// Functions of the symbol table, or of the dynamic one with their versions.
fn functions<'data, H, R>(file: &ElfFile<'data, H, R>, dynamic: bool) -> Vec<Function>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let endian = file.endian();
    let (table, versions) = if dynamic {
        let sections = file.elf_section_table();
        let versions = sections.versions(endian, file.data()).ok().flatten();
        (file.elf_dynamic_symbol_table(), versions)
    } else {
        (file.elf_symbol_table(), None)
    };
    let mut found = Vec::new();
    for (index, symbol) in table.enumerate() {
        let is_code = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC);
        if !is_code || symbol.is_undefined(endian) {
            continue;
        }
        let Ok(name) = table
            .symbol_name(endian, symbol)
            .map(String::from_utf8_lossy)
        else {
            continue;
        };
        let version = versions.as_ref().and_then(|versions| {
            let index = versions.version_index(endian, index);
            let version = versions.version(index.index()).ok()??;
            let name = String::from_utf8_lossy(version.name()).into_owned();
            Some((name, !index.is_hidden()))
        });
        found.push(Function {
            name: name.into_owned(),
            version,
            address: symbol.st_value(endian).into(),
            is_chooser: symbol.st_type() == elf::STT_GNU_IFUNC,
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that names, versions and default versions are told apart.
    #[test]
    fn versions() {
        let function = |version, is_default| Function {
            name: "f".to_owned(),
            version: Some((str::to_owned(version), is_default)),
            ..Function::default()
        };
        let (old, new) = (function("V1", false), function("V2", true));
        for (wanted, is_old, is_new) in [
            ("f", true, true),
            ("f@V1", true, false),
            ("f@V2", false, true),
            ("f@@V2", false, true),
            ("f@@V1", false, false),
            ("g", false, false),
            ("f@plt", false, false),
        ] {
            assert_eq!(old.is_called(wanted), is_old, "{wanted}");
            assert_eq!(new.is_called(wanted), is_new, "{wanted}");
        }
    }

    /// Check that this program finds a function of its own where it really is.
    #[test]
    fn own_function() {
        let image = Image::read(Path::new("/proc/self/exe")).unwrap();
        let main = image.find("main");
        assert_eq!(main.len(), 1);
        let offset = image.offset_of(main[0].address).unwrap();
        assert!(image.is_entry(offset) && !image.is_entry(offset + 1));
        assert_eq!(image.offset_of(u64::MAX), None);
    }
}
