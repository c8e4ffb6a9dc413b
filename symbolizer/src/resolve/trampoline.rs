//! Signal trampolines: code that a signal handler returns to and that nothing ever called.

use std::slice;

use foldhash::HashSet;
use rawstack_format::id::FileOffset;
use rawstack_format::record::Module;

use super::file_offset::to_svma;
use crate::debug_file::elf::ElfFile;
use crate::debug_file::locate::ModuleFiles;

/// Code of the trampolines: `mov $15,%rax; syscall` on x86-64, `mov x8,#139; svc #0` on arm64.
const CODE: [&[u8]; 2] = [
    &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05],
    &[0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4],
];
/// Their names, where the code itself is not at hand.
const NAMES: [&[u8]; 4] = [
    b"__restore_rt",
    b"__restore",
    b"__kernel_rt_sigreturn",
    b"__kernel_sigreturn",
];

/// The trampolines of all modules.
#[derive(Debug, Default)]
pub struct Trampolines<'f> {
    modules: Vec<(Option<&'f ElfFile>, HashSet<FileOffset>)>,
}

impl<'f> Trampolines<'f> {
    /// Look for them in `modules`, each with its files.
    pub fn find(modules: &[&Module], files: &'f [ModuleFiles]) -> Self {
        let find = |(module, files): (&&Module, &'f ModuleFiles)| {
            let code = files.code();
            let named = if code.is_none() {
                by_name(module, files)
            } else {
                HashSet::default()
            };
            (code, named)
        };
        Self {
            modules: modules.iter().zip(files).map(find).collect(),
        }
    }

    /// Whether `offset` of module number `module` is the first byte of one, which no call returns to.
    pub fn has(&self, module: usize, offset: FileOffset) -> bool {
        let Some((code, named)) = self.modules.get(module) else {
            return false;
        };
        let starts = |pattern: &&[u8]| {
            let there = code.and_then(|file| file.range(offset.0, pattern.len() as u64));
            there == Some(*pattern)
        };
        named.contains(&offset) || CODE.iter().any(starts)
    }
}

/// Offsets of symbols of those names, through the recorded segments.
fn by_name(module: &Module, files: &ModuleFiles) -> HashSet<FileOffset> {
    let mut found = HashSet::default();
    for (_, file) in &files.files {
        file.for_each_symbol(&mut |symbol| {
            if NAMES.contains(&symbol.name) {
                found.extend(module.segments.iter().filter_map(|segment| {
                    let offset = FileOffset(
                        symbol
                            .svma
                            .checked_sub(segment.vaddr)?
                            .checked_add(segment.offset.0)?,
                    );
                    let back = to_svma(slice::from_ref(segment), offset, module.page_size)?;
                    (back.0 == symbol.svma).then_some(offset)
                }));
            }
        });
    }
    found
}
