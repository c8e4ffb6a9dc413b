//! Copies of stacks in an archive → stacks by address, on threads, in the order of the archive. Knows no names.
//!
//! A chunk of copies stands before the batch with the rows that it is of, and needs no other chunk. So records wait in a
//! queue (`Ahead`) while threads unwind the copies of the next few chunks; what comes out depends on nothing but the
//! archive and the files.

mod ahead;
mod end;
mod job;
mod memory;
mod owners;
mod spaces;
mod stacks;
mod totals;
mod written;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use foldhash::HashMap;
use rawstack_format::id::BuildId;
use rawstack_format::record::{Module, ModuleKind, Vdso};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::debug_file::elf::ElfFile;
use crate::debug_file::identity::is_vdso_of;
use crate::debug_file::locate::{FoundBy, ModuleFiles};
use crate::debug_file::mmap::FileBytes;
use crate::unwind::{FindFiles, ModuleId, Modules, Rules, Unwinder};

pub(crate) use ahead::{Ahead, HasRecord};
pub use end::{CopyEnd, EndCounts};
pub(crate) use job::UnwoundCopies;
pub(crate) use owners::Owners;
pub use totals::CopyTotals;
pub(crate) use written::Rewriter;

/// vDSO images that are kept of one archive; a machine has one or two.
const MAX_VDSOS: usize = 8;

/// Which user stacks are given of an archive with copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stacks {
    /// Those of the copies; where they do not lead to the outermost frame, what is known best.
    #[default]
    Auto,
    /// Those that frame pointers gave when they were recorded.
    FramePointers,
    /// Those of the copies, whatever comes of them, and no others.
    Copies,
}

/// What makes two rows the same module: ELF files everywhere, others within one archive.
type Key = (
    ModuleKind,
    Option<u32>,
    Option<BuildId>,
    Option<[u8; 16]>,
    String,
    bool,
);

/// Unwinds the copies of archives: modules with their rules, and threads.
pub struct Unwinding {
    stacks: Stacks,
    find: FindFiles,
    /// Threads; none where none can be had.
    pool: OnceLock<Option<ThreadPool>>,
    unwinder: Unwinder,
    rows: Vec<Module>,
    ids: HashMap<Key, ModuleId>,
    /// All modules up to now, for jobs.
    modules: Option<Modules>,
    /// Rules that no job is using.
    rules: Arc<Mutex<Vec<Rules>>>,
    vdsos: Vec<(u32, Vdso)>,
}

impl Unwinding {
    /// Unwind with the files that `find` finds, on as many threads as there are processors.
    pub fn new(stacks: Stacks, find: FindFiles) -> Self {
        Self {
            stacks,
            find,
            pool: OnceLock::new(),
            unwinder: Unwinder::new(),
            rows: Vec::new(),
            ids: HashMap::default(),
            modules: None,
            rules: Arc::default(),
            vdsos: Vec::new(),
        }
    }

    /// Do `work` on one of the threads, which start with the first of it.
    fn start(&self, work: impl FnOnce() + Send + 'static) {
        let pool = self
            .pool
            .get_or_init(|| ThreadPoolBuilder::new().build().ok());
        match pool {
            Some(pool) => pool.spawn(work),
            None => work(),
        }
    }

    /// Pieces of work that are done at once.
    fn threads(&self) -> usize {
        let pool = self.pool.get().and_then(Option::as_ref);
        pool.map_or(1, ThreadPool::current_num_threads)
    }

    /// Which stacks are given.
    pub fn stacks(&self) -> Stacks {
        self.stacks
    }

    /// The number of a module of archive number `archive`.
    pub(crate) fn module(&mut self, archive: u32, module: &Module) -> ModuleId {
        let is_known = module.build_id.is_some() || module.content_hash.is_some();
        let path = if is_known { "" } else { &module.path };
        let key = (
            module.kind,
            (module.kind != ModuleKind::Elf).then_some(archive),
            module.build_id.clone(),
            module.content_hash,
            path.to_owned(),
            module.segments.is_empty(),
        );
        if let Some(&id) = self.ids.get(&key) {
            return id;
        }
        let id = match module.kind {
            ModuleKind::Vdso => {
                let files = self.vdso_files(archive, module);
                self.unwinder.add(module.clone(), files)
            }
            ModuleKind::Elf => {
                let find = Arc::clone(&self.find);
                self.unwinder.add_to_find(module.clone(), find)
            }
            _ => self.unwinder.add(module.clone(), ModuleFiles::default()),
        };
        self.rows.push(module.clone());
        self.ids.insert(key, id);
        self.modules = None;
        id
    }

    /// The row of a module.
    pub(crate) fn row(&self, id: ModuleId) -> Option<&Module> {
        self.rows.get(id.0 as usize)
    }

    /// Take the image of a vDSO of archive number `archive`.
    pub(crate) fn add_vdso(&mut self, archive: u32, vdso: &Vdso) {
        let own = self.vdsos.iter().filter(|(of, _)| *of == archive);
        let is_known = own.clone().any(|(_, held)| held == vdso);
        if own.count() < MAX_VDSOS && !is_known {
            self.vdsos.push((archive, vdso.clone()));
        }
    }

    fn vdso_files(&self, archive: u32, module: &Module) -> ModuleFiles {
        let own = self.vdsos.iter().filter(|(of, _)| *of == archive);
        let found = own
            .map(|(_, vdso)| vdso)
            .find(|vdso| is_vdso_of(vdso, module));
        let image = found.and_then(|vdso| {
            let bytes = FileBytes::from(vdso.image.clone());
            ElfFile::parse(Path::new("[vdso]"), bytes).ok()
        });
        ModuleFiles {
            files: image
                .map(|image| (FoundBy::Given, image))
                .into_iter()
                .collect(),
            ..ModuleFiles::default()
        }
    }

    fn modules(&mut self) -> Modules {
        let unwinder = &self.unwinder;
        self.modules
            .get_or_insert_with(|| unwinder.modules())
            .clone()
    }
}

impl fmt::Debug for Unwinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unwinding")
            .field("stacks", &self.stacks)
            .field("rows", &self.rows)
            .finish_non_exhaustive()
    }
}
