//! Offsets in modules → functions, inlined functions and source lines. Knows debug files; knows no archive chunks.
//!
//! [`Symbolizer`] takes all wanted offsets of all modules at once and works on them in parallel. The order of the
//! answers, of the names and of everything else is that of the questions, whatever the threads do.

mod cached;
mod damage;
mod demangle;
mod dwarf;
mod elf_symbols;
mod fde;
pub mod file_offset;
mod go;
mod jit;
mod kernel;
mod module;
mod plt;
mod reason;
mod short_name;
mod stored;
mod symbols;
pub mod trampoline;

use std::iter;

use rawstack_format::id::FileOffset;
use rawstack_format::record::{Module, ModuleKind};
use rayon::prelude::*;

use crate::cache::Cache;
use crate::debug_file::locate::{Locator, ModuleFiles};
use crate::error::{Error, Result};
use crate::guard::guarded;
use crate::jit::JitTable;
use crate::watch;
use cached::ElfResolver;
pub use damage::Damage;
pub use jit::JitQuery;
pub use kernel::KernelSymbolTable;
use module::ModuleAnswers;
pub use module::{MissingPieces, ResolveOptions};
pub use reason::UnresolvedReason;
pub use symbols::{Answer, NamedFrame, Origin, Place, Symbols};

/// Resolves batches of offsets.
#[derive(Debug)]
pub struct Symbolizer {
    pool: rayon::ThreadPool,
    options: ResolveOptions,
    cache: Option<Cache>,
}

/// The questions about one module.
#[derive(Debug)]
pub struct Query<'q> {
    /// The module as recorded.
    pub module: &'q Module,
    /// Its files.
    pub files: &'q ModuleFiles,
    /// Offsets to look up, sorted and without repetition; `lookup_offset` has been applied.
    pub offsets: &'q [FileOffset],
    /// Symbols of its kernel.
    pub kernel: &'q KernelSymbolTable,
}

/// The answers about one module.
#[derive(Debug, Default)]
pub struct Answered {
    /// One for each offset.
    pub answers: Vec<Answer>,
    /// Whether debug information was damaged, beyond the limits or given up.
    pub damaged: bool,
    /// What was wrong with it.
    pub damage: Option<Damage>,
    /// What the debug information refers to and is not there.
    pub missing: MissingPieces,
}

impl Symbolizer {
    /// A symbolizer with threads of its own, as many as there are processors.
    pub fn new(options: ResolveOptions) -> Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new()
            .stack_size(demangle::STACK_SIZE)
            .build();
        let pool = pool.map_err(|why| Error::Threads { why })?;
        Ok(Self {
            pool,
            options,
            cache: None,
        })
    }

    /// The same with answers of earlier commands at hand: what it gives is the same.
    pub fn with_cache(self, cache: Option<Cache>) -> Self {
        Self { cache, ..self }
    }

    /// Whether it tells functions of one name apart.
    pub fn tells_origins(&self) -> bool {
        self.options.origins
    }

    /// Find the files of `modules`, in parallel; `progress` is called after each.
    pub fn locate(
        &self,
        locator: &Locator,
        modules: &[&Module],
        progress: &(dyn Fn() + Sync),
    ) -> Vec<ModuleFiles> {
        let locate = |module: &&Module| {
            let found = match module.kind {
                ModuleKind::Elf
                | ModuleKind::Vdso
                | ModuleKind::Kernel
                | ModuleKind::KernelModule => {
                    watch::reading(iter::empty(), || locator.locate(module))
                }
                ModuleKind::BpfProgram | ModuleKind::Anonymous => ModuleFiles::default(),
            };
            progress();
            found
        };
        self.pool
            .install(|| modules.par_iter().with_max_len(1).map(locate).collect())
    }

    /// Answer all `queries`; `progress` is called after each.
    pub fn resolve(
        &self,
        queries: &[Query<'_>],
        progress: &(dyn Fn() + Sync),
    ) -> (Symbols, Vec<Answered>) {
        let jit = JitQuery {
            table: &JitTable::default(),
            wanted: &[],
        };
        let (symbols, answered, _) = self.resolve_all(queries, &jit, progress);
        (symbols, answered)
    }

    /// Answer all `queries`, and those about code that processes made; `progress` is called after each.
    pub fn resolve_all(
        &self,
        queries: &[Query<'_>],
        jit: &JitQuery<'_>,
        progress: &(dyn Fn() + Sync),
    ) -> (Symbols, Vec<Answered>, Vec<Answer>) {
        let one = |query: &Query<'_>| {
            let found = watch::reading(query.files.paths(), || self.resolve_one(query));
            progress();
            found
        };
        self.pool.install(|| {
            let found: Vec<ModuleAnswers> = queries.par_iter().with_max_len(1).map(one).collect();
            let mut symbols = Symbols::default();
            let answered = found.into_iter().map(|module| Answered {
                answers: symbols.merge(&module),
                damaged: module.damaged,
                damage: module.damage,
                missing: module.missing.clone(),
            });
            let answered = answered.collect();
            let jit = symbols.merge(&jit::resolve_jit(jit));
            symbols.finish();
            (symbols, answered, jit)
        })
    }

    /// Answer one query; a library that panics costs the module its debug information, or at worst its names.
    fn resolve_one(&self, query: &Query<'_>) -> ModuleAnswers {
        let resolver = ElfResolver {
            options: self.options,
            cache: self.cache.as_ref(),
        };
        let symbols_only = ElfResolver {
            options: ResolveOptions {
                dwarf: false,
                ..self.options
            },
            cache: None,
        };
        let first = guarded(|| Self::answer(query, &resolver));
        let found = first.or_else(|| {
            let second = guarded(|| Self::answer(query, &symbols_only))?;
            Some(ModuleAnswers {
                damaged: true,
                damage: Some(Damage::Reader),
                ..second
            })
        });
        found.unwrap_or_else(|| ModuleAnswers {
            damaged: true,
            damage: Some(Damage::Reader),
            ..ModuleAnswers::unresolved(query.offsets.len(), UnresolvedReason::DamagedDebugInfo)
        })
    }

    fn answer(query: &Query<'_>, resolver: &ElfResolver<'_>) -> ModuleAnswers {
        let Query {
            module,
            files,
            offsets,
            kernel,
        } = *query;
        match module.kind {
            ModuleKind::Elf | ModuleKind::Vdso => resolver.resolve(module, files, offsets),
            ModuleKind::Kernel | ModuleKind::KernelModule | ModuleKind::BpfProgram => {
                kernel::resolve_kernel(module, files, kernel, offsets, resolver)
            }
            // Whose code it is depends on process and time: see `JitQuery`.
            ModuleKind::Anonymous => {
                ModuleAnswers::unresolved(offsets.len(), UnresolvedReason::NoJitMap)
            }
        }
    }
}
