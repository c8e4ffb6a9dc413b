//! Symbols that are packed into a stripped program (`.gnu_debugdata`): an ELF file in an xz stream.
//!
//! It leaves out what `.dynsym` names, so both are needed.

use std::path::PathBuf;

use super::elf::ElfFile;
use super::files::{FoundBy, ModuleFiles};
use super::mmap::FileBytes;
use super::packed;
use super::section;

/// Sizes to which such a section may grow: that of a library of 100 MB has 3 MB.
const MAX_SIZE: u64 = 256 << 20;

/// Add the packed symbols of the files of a module, where its full symbol table is not at hand.
pub(super) fn add(found: &mut ModuleFiles) {
    if found.files.iter().any(|(_, file)| file.has_symtab()) {
        return;
    }
    let packed = found.files.iter().find_map(|(_, file)| unpack(file));
    found
        .files
        .extend(packed.map(|file| (FoundBy::MiniDebugInfo, file)));
}

fn unpack(file: &ElfFile) -> Option<ElfFile> {
    let found = file.section(".gnu_debugdata")?;
    let stream = section::content(file, found).ok()?;
    let plain = packed::xz(&stream, MAX_SIZE)?;
    let mut name = file.path.clone().into_os_string();
    name.push("(.gnu_debugdata)");
    ElfFile::parse(&PathBuf::from(name), FileBytes::from(plain)).ok()
}
