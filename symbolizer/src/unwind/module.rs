//! A module with its files: file offset → rule. Knows no processes.

use gimli::UnwindContext;
use rawstack_format::id::FileOffset;
use rawstack_format::record::Module;

use super::by_code;
use super::fde::FrameTable;
use super::machine::Machine;
use super::rule::Rule;
use crate::debug_file::elf::ElfFile;
use crate::debug_file::locate::ModuleFiles;
use crate::guard::guarded;
use crate::resolve::file_offset::{AddressKind, lookup_offset, to_svma};
use crate::watch;

/// A module of an [`Unwinder`](super::Unwinder).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId(pub u32);

/// A module, and what unwinding takes from its files.
#[derive(Debug)]
pub(super) struct UnwindModule {
    module: Module,
    files: ModuleFiles,
    tables: Vec<FrameTable>,
}

impl UnwindModule {
    /// `module` with its `files`.
    pub(super) fn new(module: Module, files: ModuleFiles) -> Self {
        let tables = watch::reading(files.paths(), || {
            let numbered = files.files.iter().enumerate();
            numbered
                .flat_map(|(number, (_, file))| FrameTable::all(number, file))
                .collect()
        });
        Self {
            module,
            files,
            tables,
        }
    }

    /// Whether there is call frame information.
    pub(super) fn has_tables(&self) -> bool {
        !self.tables.is_empty()
    }

    /// The rule for a frame whose address has this offset.
    pub(super) fn rule(
        &self,
        offset: FileOffset,
        kind: AddressKind,
        machine: Machine,
        context: &mut UnwindContext<usize>,
    ) -> Rule {
        watch::reading(self.files.paths(), || {
            let find = || self.find(offset, kind, machine, context);
            guarded(find).unwrap_or(Rule::Bad)
        })
    }

    fn find(
        &self,
        offset: FileOffset,
        kind: AddressKind,
        machine: Machine,
        context: &mut UnwindContext<usize>,
    ) -> Rule {
        let code = self
            .files
            .code()
            .filter(|code| code.machine == machine.number());
        // Also where there is a row: that of arm64 kernels leads to the interrupted function's caller.
        if code.is_some_and(|code| by_code::is_sigreturn(code, machine, offset.0)) {
            return by_code::sigreturn(machine);
        }
        let Some(svma) = self.svma(lookup_offset(offset, kind), code) else {
            return Rule::FramePointer;
        };
        for table in &self.tables {
            let Some((_, file)) = self.files.files.get(table.file) else {
                continue;
            };
            if file.machine != machine.number() {
                continue;
            }
            let found = table.row(file, svma, context, |row| Rule::of(&row, machine, svma));
            match found {
                Ok(Some(rule)) => return rule,
                Ok(None) => {}
                Err(_) => return Rule::Bad,
            }
        }
        let by_code = code.and_then(|code| by_code::stub(code, machine, svma));
        by_code.unwrap_or_else(|| {
            if code.is_some_and(|code| by_code::is_entry(code, svma)) {
                Rule::Outermost
            } else {
                Rule::FramePointer
            }
        })
    }

    /// By the segments that were recorded, else by those of the file that holds the code.
    fn svma(&self, offset: FileOffset, code: Option<&ElfFile>) -> Option<u64> {
        let page_size = self.module.page_size;
        let recorded = to_svma(&self.module.segments, offset, page_size);
        let found = recorded.or_else(|| to_svma(&code?.segments, offset, page_size));
        found.map(|svma| svma.0.wrapping_sub(self.files.moved))
    }
}
