//! An ELF file without what neither names nor unwinding need. Section numbers and addresses stay what they are.

use std::ops::Range;

use crate::debug_file::elf::ElfFile;

/// Bytes of a section header, and where in it type, offset, size and alignment stand.
const HEADER: usize = 64;
const KIND: usize = 4;
const FLAGS: usize = 8;
const OFFSET: usize = 24;
const SIZE: usize = 32;
/// `SHT_SYMTAB`, `SHT_NOTE`, `SHT_DYNSYM`, `SHT_SYMTAB_SHNDX`.
const KINDS: [u32; 4] = [2, 7, 11, 18];
/// `SHT_NULL`, `SHT_NOBITS`.
const NULL: u32 = 0;
const NOBITS: u32 = 8;
/// `SHF_ALLOC`.
const LOADED: u64 = 2;
/// Sections that are kept by name, beside symbol tables, their names, notes, and stubs: these have neither symbols nor unwind
/// information, and what they do is read in their code.
const NAMES: [&str; 7] = [
    ".eh_frame",
    ".eh_frame_hdr",
    ".debug_frame",
    ".zdebug_frame",
    ".gnu_debugdata",
    ".gnu_debuglink",
    ".rela.plt",
];
/// The names of a Go program that has no symbol table.
const GO_NAMES: &str = ".gopclntab";
/// Bytes at the start of a file that stay where they are, with the notes in them.
const HEAD: usize = 4096;
/// Where parts begin.
const ALIGNMENT: usize = 16;

/// The parts of `file` that are needed; nothing of one that is not a 64-bit little-endian file with section headers,
/// which has to be taken whole.
pub fn packed(file: &ElfFile) -> Option<Vec<u8>> {
    if file.class != 64 || file.big_endian {
        return None;
    }
    let bytes = file.bytes();
    let word = |at: usize| Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let table = u64::from_le_bytes(*bytes.get(40..)?.first_chunk()?);
    let table = file.range(table, (file.sections.len() * HEADER) as u64)?;
    let names = usize::from(word(62)?);
    // From this number on, headers say elsewhere how many there are.
    if table.is_empty() || names >= 0xff00 || usize::from(word(58)?) != HEADER {
        return None;
    }
    let kept = kept(file, names);
    let mut out = head(file, &kept)?;
    let in_place = out.len();
    let mut headers = Vec::with_capacity(table.len());
    let (rows, _) = table.as_chunks::<HEADER>();
    for ((section, row), keep) in file.sections.iter().zip(rows).zip(&kept) {
        let mut row = *row;
        if *keep {
            let content = file.range(section.offset, section.size)?;
            let end = section.offset.checked_add(section.size)?;
            if end > in_place as u64 {
                out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
                put(&mut row, OFFSET, &(out.len() as u64).to_le_bytes());
                out.extend_from_slice(content);
            }
        } else if section.flags & LOADED != 0 {
            put(&mut row, KIND, &NOBITS.to_le_bytes());
        } else {
            put(&mut row, KIND, &NULL.to_le_bytes());
            put(&mut row, FLAGS, &[0; 8]);
            put(&mut row, SIZE, &[0; 8]);
        }
        headers.extend_from_slice(&row);
    }
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
    let at = (out.len() as u64).to_le_bytes();
    put(&mut out, 40, &at);
    out.extend_from_slice(&headers);
    Some(out)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

/// For each section, whether it is kept; `names` is the number of that with the sections' names.
fn kept(file: &ElfFile, names: usize) -> Vec<bool> {
    let has_symtab = file.has_symtab();
    let wanted = |name: &str| NAMES.contains(&name) || (name == GO_NAMES && !has_symtab);
    let by_itself = file.sections.iter().map(|section| {
        let is_wanted =
            KINDS.contains(&section.kind) || wanted(&section.name) || section.is_linkage_table();
        is_wanted && !section.is_nobits()
    });
    let mut kept: Vec<bool> = by_itself.collect();
    let linked = file
        .sections
        .iter()
        .zip(&kept)
        .filter(|(section, keep)| **keep && KINDS.contains(&section.kind));
    let linked: Vec<usize> = linked.map(|(section, _)| section.link as usize).collect();
    for number in linked.into_iter().chain([names]) {
        if let (Some(keep), Some(section)) = (kept.get_mut(number), file.sections.get(number)) {
            *keep = number > 0 && !section.is_nobits() && section.kind != NULL;
        }
    }
    kept
}

/// The file header and the program headers, and with them the notes that are kept there.
fn head(file: &ElfFile, kept: &[bool]) -> Option<Vec<u8>> {
    let bytes = file.bytes();
    let word = |at: usize| {
        Some(u64::from(u16::from_le_bytes(
            *bytes.get(at..)?.first_chunk()?,
        )))
    };
    let start = u64::from_le_bytes(*bytes.get(32..)?.first_chunk()?);
    let programs = start..start.checked_add(word(54)?.checked_mul(word(56)?)?)?;
    let notes = file
        .sections
        .iter()
        .zip(kept)
        .filter(|(section, keep)| **keep && section.kind == 7);
    let notes =
        notes.map(|(section, _)| section.offset..section.offset.saturating_add(section.size));
    let is_near = |range: &Range<u64>| range.end <= HEAD as u64;
    if !is_near(&programs) {
        return None;
    }
    let end = notes
        .filter(is_near)
        .map(|range| range.end)
        .fold(programs.end.max(64), u64::max);
    Some(file.range(0, end)?.to_vec())
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::path::Path;

    use super::*;
    use crate::debug_file::mmap::FileBytes;

    /// Check that a packed file has the symbols, frame entries and build ID of the original and neither code nor debug
    /// information, that packing it again changes nothing, and that every cut of it is refused or read.
    #[test]
    fn this_program() {
        let original = ElfFile::open(&env::current_exe().unwrap()).unwrap();
        let bytes = packed(&original).unwrap();
        let open =
            |bytes: &[u8]| ElfFile::parse(Path::new("packed"), FileBytes::from(bytes.to_vec()));
        let file = open(&bytes).unwrap();
        assert!(bytes.len() < original.bytes().len() / 2);
        assert_eq!(file.build_id, original.build_id);
        assert_eq!(file.segments, original.segments);
        assert!(file.is_debug_only() && !file.has_dwarf());
        let symbols = |file: &ElfFile| {
            let mut found = Vec::new();
            file.for_each_symbol(&mut |row| found.push((row.name.to_vec(), row.svma, row.section)));
            found
        };
        assert!(symbols(&file) == symbols(&original));
        for name in [".eh_frame", ".eh_frame_hdr"] {
            assert!(file.debug_section(name).unwrap() == original.debug_section(name).unwrap());
        }
        assert!(packed(&file).unwrap() == bytes);
        for cut in (0..bytes.len()).step_by(bytes.len() / 100) {
            if let Ok(file) = open(&bytes[..cut]) {
                _ = packed(&file);
            }
        }
    }
}
