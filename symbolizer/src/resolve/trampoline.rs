//! Signal trampolines: code that a signal handler returns to and that nothing ever called.

use std::{iter, slice};

use foldhash::HashSet;
use rawstack_format::id::FileOffset;
use rawstack_format::record::Module;

use super::file_offset::to_svma;
use crate::debug_file::locate::ModuleFiles;
use crate::watch;

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

/// The trampolines of all modules, as far as frames lie in them.
#[derive(Debug, Default)]
pub struct Trampolines {
    modules: Vec<HashSet<FileOffset>>,
}

impl Trampolines {
    /// Look for them among the `offsets` of each of `modules`, with its files.
    pub fn find(modules: &[&Module], files: &[ModuleFiles], offsets: &[Vec<FileOffset>]) -> Self {
        let find = |((module, files), offsets): ((&&Module, &ModuleFiles), &Vec<FileOffset>)| {
            let Some(code) = files.code() else {
                return watch::reading(files.paths(), || by_name(module, files));
            };
            let starts = |offset: &FileOffset| {
                let begins = |pattern: &&[u8]| {
                    let there = code.range(offset.0, pattern.len() as u64);
                    there == Some(*pattern)
                };
                CODE.iter().any(begins)
            };
            watch::reading(iter::once(code.path.as_path()), || {
                offsets.iter().copied().filter(starts).collect()
            })
        };
        Self {
            modules: modules.iter().zip(files).zip(offsets).map(find).collect(),
        }
    }

    /// Whether `offset` of module number `module` is the first byte of one, which no call returns to.
    pub fn has(&self, module: usize, offset: FileOffset) -> bool {
        let found = self.modules.get(module);
        found.is_some_and(|offsets| offsets.contains(&offset))
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
