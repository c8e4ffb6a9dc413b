//! A module with its files: file offset → rule. Knows no processes.

use std::fmt;
use std::iter;
use std::sync::{Arc, OnceLock};

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

/// Finds the files of a module, from any thread.
pub type FindFiles = Arc<dyn Fn(&Module) -> ModuleFiles + Send + Sync>;

/// A module, and what unwinding takes from its files. These are looked for when the first frame is met.
pub(crate) struct UnwindModule {
    module: Module,
    find: Option<FindFiles>,
    found: OnceLock<Found>,
}

/// Files of a module.
#[derive(Debug)]
struct Found {
    files: ModuleFiles,
    tables: Vec<FrameTable>,
}

impl Found {
    fn of(files: ModuleFiles) -> Self {
        let tables = watch::reading(files.paths(), || {
            let numbered = files.files.iter().enumerate();
            numbered
                .flat_map(|(number, (_, file))| FrameTable::all(number, file))
                .collect()
        });
        Self { files, tables }
    }
}

impl UnwindModule {
    /// `module` with its `files`.
    pub(super) fn new(module: Module, files: ModuleFiles) -> Self {
        Self {
            module,
            find: None,
            found: OnceLock::from(Found::of(files)),
        }
    }

    /// `module` with the files that `find` will find.
    pub(super) fn to_find(module: Module, find: FindFiles) -> Self {
        Self {
            module,
            find: Some(find),
            found: OnceLock::new(),
        }
    }

    fn found(&self) -> &Found {
        self.found.get_or_init(|| {
            let find = |find: &FindFiles| {
                // A library that panics costs the module its files.
                watch::reading(iter::empty(), || guarded(|| find(&self.module)))
            };
            let files = self.find.as_ref().and_then(find);
            Found::of(files.unwrap_or_default())
        })
    }

    /// Whether there is call frame information.
    pub(super) fn has_tables(&self) -> bool {
        !self.found().tables.is_empty()
    }

    /// The rule for a frame whose address has this offset.
    pub(super) fn rule(
        &self,
        offset: FileOffset,
        kind: AddressKind,
        machine: Machine,
        context: &mut UnwindContext<usize>,
    ) -> Rule {
        let found = self.found();
        watch::reading(found.files.paths(), || {
            let find = || found.rule(&self.module, (offset, kind), machine, context);
            guarded(find).unwrap_or(Rule::Bad)
        })
    }
}

impl Found {
    fn rule(
        &self,
        module: &Module,
        (offset, kind): (FileOffset, AddressKind),
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
        if code.is_some_and(|code| by_code::is_context_start(code, machine, offset.0)) {
            return Rule::ContextStart;
        }
        let Some(svma) = self.svma(module, lookup_offset(offset, kind), code) else {
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
        // Any file of the module knows these, also one whose other code was left out.
        let files = self.files.files.iter().map(|(_, file)| file);
        let mut files = files.filter(|file| file.machine == machine.number());
        let by_code = |file| by_code::stub(file, machine, svma);
        if let Some(rule) = files.clone().find_map(by_code) {
            rule
        } else if files.any(|file| by_code::is_entry(file, svma)) {
            Rule::Outermost
        } else {
            Rule::FramePointer
        }
    }

    /// By the segments that were recorded, else by those of the file that holds the code.
    fn svma(&self, module: &Module, offset: FileOffset, code: Option<&ElfFile>) -> Option<u64> {
        let recorded = to_svma(&module.segments, offset, module.page_size);
        let found = recorded.or_else(|| to_svma(&code?.segments, offset, module.page_size));
        found.map(|svma| svma.0.wrapping_sub(self.files.moved))
    }
}

impl fmt::Debug for UnwindModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnwindModule")
            .field("module", &self.module)
            .field("found", &self.found)
            .finish_non_exhaustive()
    }
}
