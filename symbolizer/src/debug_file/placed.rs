//! Object files that are placed at run time, as kernel modules are: sections get addresses, and debug information is
//! relocated to them. Knows no kernel.

use super::elf::ElfFile;
use super::relocations::{self, Relocation};
use super::section;

/// `SHF_ALLOC`.
const ALLOC: u64 = 2;
/// `EM_386`, `EM_X86_64`, `EM_AARCH64`.
const I386: u16 = 3;
const X86_64: u16 = 62;
const AARCH64: u16 = 183;

/// Give the sections of `file` the addresses that `address_of` knows by name, and relocate its debug information.
///
/// A section without a known address is not in memory (`.init.text` after the start): it stays at 0, where there is no
/// code, so that nothing is taken for a part of it.
pub fn place(file: &mut ElfFile, address_of: &dyn Fn(&str) -> Option<u64>) {
    for section in &mut file.sections {
        if section.flags & ALLOC != 0 {
            section.svma = address_of(&section.name).unwrap_or(0);
        }
    }
    // What is not in memory cannot hold code.
    for section in &mut file.sections {
        if section.svma == 0 {
            section.flags &= !section::CODE;
        }
    }
    let mut plain: Vec<Option<Vec<u8>>> = file.sections.iter().map(|_| None).collect();
    relocations::for_each(file, &mut |row| {
        let number = row.section as usize;
        let Some(target) = file.sections.get(number) else {
            return;
        };
        if !target.name.starts_with(".debug_") && !target.name.starts_with(".zdebug_") {
            return;
        }
        let Some(slot) = plain.get_mut(number) else {
            return;
        };
        if slot.is_none() {
            *slot = section::content(file, target)
                .ok()
                .map(|content| content.into_owned());
        }
        if let Some(content) = slot {
            apply(file, &row, content);
        }
    });
    for (section, plain) in file.sections.iter_mut().zip(plain) {
        section.placed = plain;
    }
}

/// Put the value of a relocation into `content`; kinds that debug information has no use for are left alone.
fn apply(file: &ElfFile, row: &Relocation<'_>, content: &mut [u8]) -> Option<()> {
    let size = match (file.machine, row.kind) {
        (X86_64, 1) | (AARCH64, 257) => 8,
        (X86_64, 10 | 11) | (AARCH64, 258) | (I386, 1) => 4,
        _ => return None,
    };
    let start = usize::try_from(row.offset).ok()?;
    let place = content.get_mut(start..start.checked_add(size)?)?;
    let held = place
        .iter()
        .rev()
        .fold(0u64, |number, &byte| number << 8 | u64::from(byte));
    // i386 keeps what is added in the place itself.
    let added = if file.machine == I386 {
        held
    } else {
        row.addend.cast_unsigned()
    };
    let section = file.sections.get(usize::from(row.of_section));
    let base = section.map_or(0, |section| section.svma);
    let value = base.wrapping_add(row.value).wrapping_add(added);
    let bytes = value.to_le_bytes();
    place.copy_from_slice(bytes.get(..size)?);
    Some(())
}
