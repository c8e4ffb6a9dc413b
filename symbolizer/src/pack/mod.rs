//! Parts of modules' files to take elsewhere: what names and unwinding need of them, by build ID.
//!
//! A packed file is an ELF file with the headers of the original, its notes, symbol tables and call frame information;
//! code, data and debug information are left out. A set of them is a `.build-id` tree, in a folder or in a tar file.

mod elf;
mod store;

use std::borrow::Cow;

use rawstack_format::record::{Module, ModuleKind};

use crate::debug_file::elf::ElfFile;
use crate::debug_file::identity::tree_path;
use crate::debug_file::locate::{FoundBy, ModuleFiles};
pub use elf::packed;
pub use store::Store;

/// A file of a set.
#[derive(Debug)]
pub struct PackedFile<'f> {
    /// Place in the set, without `..`.
    pub name: String,
    /// Content.
    pub bytes: Cow<'f, [u8]>,
    /// Bytes of the original.
    pub original: u64,
}

/// What of the `files` of `module` belongs into a set: parts of them, or with `whole` all of them. Nothing of what an
/// archive has itself, and of a kernel's files.
pub fn of_module<'f>(module: &Module, files: &'f ModuleFiles, whole: bool) -> Vec<PackedFile<'f>> {
    if module.kind != ModuleKind::Elf {
        return Vec::new();
    }
    let mut packed: Vec<PackedFile<'f>> = Vec::new();
    let is_file = |rule: FoundBy| rule != FoundBy::MiniDebugInfo;
    for (_, file) in files.files.iter().filter(|(rule, _)| is_file(*rule)) {
        let Some((name, whole)) = place(module, file, whole) else {
            continue;
        };
        if packed.iter().any(|held| held.name == name) {
            continue;
        }
        let parts = (!whole).then(|| elf::packed(file)).flatten();
        packed.push(PackedFile {
            name,
            bytes: parts.map_or(Cow::Borrowed(file.bytes()), Cow::Owned),
            original: file.bytes().len() as u64,
        });
    }
    packed
}

/// Where a file is put, and whether all of it: one without build ID is known by its content.
fn place(module: &Module, file: &ElfFile, whole: bool) -> Option<(String, bool)> {
    let Some((folder, name)) = module.build_id.as_ref().and_then(tree_path) else {
        let hash = module.content_hash?;
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        return Some((format!("no-build-id/{hex}"), true));
    };
    let suffix = if file.is_debug_only() { ".debug" } else { "" };
    Some((format!(".build-id/{folder}/{name}{suffix}"), whole))
}
