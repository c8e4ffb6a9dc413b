//! Modules: what mapped code came from, each read once.

use std::collections::BTreeMap;
use std::rc::Rc;

use hashbrown::HashMap;
use rawstack_format::id::BuildId;
use rawstack_format::record::{Module, ModuleKind};

use crate::helper::{FileFacts, FileRequest, Helper};
use crate::kernel::KernelMap;
use crate::program::Mapping;

/// Modules, and files, that are remembered however long none of them was in a stack.
const MANY: usize = 4096;
/// Processes through which it is tried to read a file.
const MAX_TRIES: u8 = 8;

/// Number of a module, for the whole recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ModuleNumber(pub(crate) u32);

/// Major and minor device number, inode.
type FileNumber = (u32, u32, u64);

/// What tells two modules apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Identity {
    BuildId(BuildId),
    /// Device, inode and path of a file without a build ID, ...
    File(FileNumber, Rc<[u8]>),
    /// ... or of one that could not be read.
    Unread(FileNumber, Rc<[u8]>),
    Kernel,
    KernelModule(usize),
    BpfProgram(String),
    Vdso,
    Anonymous(Rc<[u8]>),
}

/// What is known of a file.
#[derive(Clone, Copy, Debug)]
struct Looked {
    number: ModuleNumber,
    /// How often it could not be read, and the last process through which that was tried; 0: it was read.
    tries: u8,
    pid: u32,
}

impl Looked {
    /// Whether it could be read through process `pid`: another may still be there, or have it mapped where the first had
    /// unmapped it.
    fn may_learn(self, pid: u32) -> bool {
        (1..MAX_TRIES).contains(&self.tries) && self.pid != pid
    }
}

/// All modules met so far.
#[derive(Debug)]
pub(crate) struct Modules {
    helper: Rc<Helper>,
    page_size: u32,
    modules: BTreeMap<ModuleNumber, Module>,
    next: u32,
    by_identity: HashMap<Identity, ModuleNumber>,
    /// Files looked at, so that each is opened once: device, inode, path.
    by_file: HashMap<(FileNumber, Rc<[u8]>), Looked>,
}

impl Modules {
    /// None yet. `page_size` in bytes.
    pub(crate) fn new(helper: Rc<Helper>, page_size: u32) -> Self {
        Self {
            helper,
            page_size,
            modules: BTreeMap::new(),
            next: 0,
            by_identity: HashMap::new(),
            by_file: HashMap::new(),
        }
    }

    /// The module of that number.
    pub(crate) fn get(&self, number: ModuleNumber) -> Option<&Module> {
        self.modules.get(&number)
    }

    /// Those that are not forgotten, in the order in which they were met.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Module> {
        self.modules.values()
    }

    /// How many were met. One that was forgotten and met again counts twice.
    pub(crate) fn met(&self) -> u32 {
        self.next
    }

    /// Whether there are so many that those not in use should be forgotten.
    pub(crate) fn are_many(&self) -> bool {
        self.modules.len() > MANY || self.by_file.len() > MANY
    }

    /// Forget all but these.
    pub(crate) fn keep_only(&mut self, is_used: impl Fn(ModuleNumber) -> bool) {
        self.modules.retain(|&number, _| is_used(number));
        self.by_identity.retain(|_, number| is_used(*number));
        self.by_file.retain(|_, looked| is_used(looked.number));
    }

    fn add(&mut self, identity: Identity, make: impl FnOnce() -> Module) -> ModuleNumber {
        *self.by_identity.entry(identity).or_insert_with(|| {
            let number = ModuleNumber(self.next);
            self.next += 1;
            self.modules.insert(number, make());
            number
        })
    }

    /// The module that process `pid` has mapped here. Has the file's headers read the first time.
    pub(crate) fn of_mapping(&mut self, pid: u32, mapping: &Mapping) -> ModuleNumber {
        let path = &mapping.path;
        if **path == *b"[vdso]" {
            return self.add(Identity::Vdso, || Module {
                kind: ModuleKind::Vdso,
                path: "[vdso]".to_owned(),
                ..Module::default()
            });
        }
        if is_anonymous(path) {
            let name = String::from_utf8_lossy(path).into_owned();
            return self.add(Identity::Anonymous(Rc::clone(path)), || Module {
                kind: ModuleKind::Anonymous,
                path: name,
                ..Module::default()
            });
        }
        if let Some(number) = mapping
            .build_id
            .as_ref()
            .and_then(|id| self.by_identity.get(&Identity::BuildId((**id).clone())))
        {
            return *number;
        }
        let file_key = (mapping.file, Rc::clone(path));
        let looked = self.by_file.get(&file_key).copied();
        if let Some(looked) = looked.filter(|looked| !looked.may_learn(pid)) {
            return looked.number;
        }
        let tries = looked.map_or(0, |looked| looked.tries);
        self.of_file(pid, mapping, tries)
    }

    /// The module of a file that is to be read: it was tried `tries` times before.
    fn of_file(&mut self, pid: u32, mapping: &Mapping, tries: u8) -> ModuleNumber {
        let answer = self.helper.file(FileRequest {
            pid,
            addresses: mapping.file_at.clone(),
            path: mapping.path.to_vec(),
            file: mapping.file,
            build_id: mapping.build_id.as_ref().map(|id| id.as_bytes().to_vec()),
            seen_ns: mapping.seen_ns,
        });
        let file = answer.as_ref().and_then(Option::as_ref);
        let module = self.module(mapping, file);
        let key = (mapping.file, Rc::clone(&mapping.path));
        let identity = match (&module.build_id, file) {
            (Some(id), _) => Identity::BuildId(id.clone()),
            (None, Some(_)) => Identity::File(key.0, Rc::clone(&key.1)),
            (None, None) => Identity::Unread(key.0, Rc::clone(&key.1)),
        };
        let tries = if file.is_some() { 0 } else { tries + 1 };
        let number = self.add(identity, || module);
        // One that there was no answer for is asked for again, at its next sample.
        if answer.is_some() && mapping.file.2 != 0 {
            self.by_file.insert(key, Looked { number, tries, pid });
        }
        number
    }

    fn module(&self, mapping: &Mapping, file: Option<&FileFacts>) -> Module {
        let elf = file.map(FileFacts::elf).unwrap_or_default();
        let build_id = mapping.build_id.as_deref().cloned().or(elf.build_id);
        let content_hash = match &build_id {
            None => file.and_then(|file| file.content_hash),
            Some(_) => None,
        };
        let path = String::from_utf8_lossy(&mapping.path);
        Module {
            kind: ModuleKind::Elf,
            class: elf.class,
            machine: elf.machine,
            page_size: self.page_size,
            build_id,
            content_hash,
            path: path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned(),
            segments: elf.segments,
        }
    }

    /// The kernel proper.
    pub(crate) fn of_kernel(&mut self, kernel: &KernelMap) -> ModuleNumber {
        self.add(Identity::Kernel, || Module {
            kind: ModuleKind::Kernel,
            build_id: kernel.build_id.clone(),
            path: "[kernel]".to_owned(),
            ..Module::default()
        })
    }

    /// A kernel module, by its number in `kernel`.
    pub(crate) fn of_kernel_module(&mut self, kernel: &KernelMap, number: usize) -> ModuleNumber {
        self.add(Identity::KernelModule(number), || {
            let module = kernel.modules().nth(number).cloned().unwrap_or_default();
            Module {
                kind: ModuleKind::KernelModule,
                build_id: module.build_id,
                path: module.name,
                ..Module::default()
            }
        })
    }

    /// A BPF program, by its name.
    pub(crate) fn of_bpf_program(&mut self, name: &str) -> ModuleNumber {
        self.add(Identity::BpfProgram(name.to_owned()), || Module {
            kind: ModuleKind::BpfProgram,
            path: name.to_owned(),
            ..Module::default()
        })
    }
}

/// Memory that no file is behind: `[heap]`, `//anon`, `[uprobes]`, nothing.
pub(crate) fn is_anonymous(path: &[u8]) -> bool {
    !path.starts_with(b"/")
        || path.starts_with(b"//")
        || path.starts_with(b"/dev/zero")
        || path.starts_with(b"/SYSV")
}
