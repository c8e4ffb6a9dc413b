//! What of a unit is measured before the library reads it: it takes every count as it is stated.

use gimli::{Dwarf, Encoding, Format, Reader, Section};

use super::Slice;
use super::bytes::{Bytes, Step};

/// Longest header of a line program, in bytes: one file takes 20.
const MAX_LINE_HEADER: u64 = 4 << 20;
/// Folders and files of one line program.
const MAX_FOLDERS: u64 = 1 << 16;
const MAX_FILES: u64 = 1 << 18;

/// Bytes of the table of abbreviations at `offset`; nothing where it has no end within `most`.
pub(super) fn abbreviations_length(
    dwarf: &Dwarf<Slice<'_>>,
    offset: usize,
    most: usize,
) -> Option<usize> {
    let section = dwarf.debug_abbrev.reader();
    let rest = section.slice().get(offset..)?;
    let mut bytes = Bytes::new(rest.get(..most).unwrap_or(rest), section.endian());
    while bytes.uleb()? != 0 {
        bytes.uleb()?;
        bytes.byte()?;
        loop {
            let (name, form) = (bytes.uleb()?, bytes.uleb()?);
            if form == u64::from(gimli::constants::DW_FORM_implicit_const.0) {
                bytes.sleb()?;
            }
            if name == 0 && form == 0 {
                break;
            }
        }
    }
    Some(bytes.position())
}

/// Whether the header of the line program at `offset` holds what a compiler would write.
pub(super) fn is_line_header_sane(dwarf: &Dwarf<Slice<'_>>, offset: usize) -> bool {
    // What is cut short is refused by the library, before it takes any memory.
    line_header(dwarf, offset).unwrap_or(true)
}

fn line_header(dwarf: &Dwarf<Slice<'_>>, offset: usize) -> Option<bool> {
    let section = dwarf.debug_line.reader();
    let mut bytes = Bytes::new(section.slice().get(offset..)?, section.endian());
    let (format, word) = match bytes.number(4)? {
        0xffff_ffff => (Format::Dwarf64, 8),
        _ => (Format::Dwarf32, 4),
    };
    if word == 8 {
        bytes.skip(8)?;
    }
    let version = u16::try_from(bytes.number(2)?).ok()?;
    let mut address_size = 8;
    if version >= 5 {
        address_size = bytes.byte()?;
        bytes.skip(1)?;
    }
    if bytes.number(word)? > MAX_LINE_HEADER {
        return Some(false);
    }
    if version < 5 {
        return Some(true);
    }
    bytes.skip(5)?;
    let instructions = bytes.byte()?;
    bytes.skip(usize::from(instructions).checked_sub(1)?)?;
    let encoding = Encoding {
        address_size,
        format,
        version,
    };
    let folders = entry_format(&mut bytes, encoding)?;
    let count = bytes.uleb()?;
    if count > MAX_FOLDERS {
        return Some(false);
    }
    for _ in 0..count {
        folders
            .iter()
            .try_for_each(|&step| bytes.step(step, encoding))?;
    }
    entry_format(&mut bytes, encoding)?;
    Some(bytes.uleb()? <= MAX_FILES)
}

/// How the entries of a table of folders or files are stepped over.
fn entry_format(bytes: &mut Bytes<'_>, encoding: Encoding) -> Option<Vec<Step>> {
    let count = bytes.byte()?;
    (0..count)
        .map(|_| {
            bytes.uleb()?;
            let form = u16::try_from(bytes.uleb()?).ok()?;
            Step::of(gimli::DwForm(form), encoding)
        })
        .collect()
}
