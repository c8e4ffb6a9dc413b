//! All that addresses are told apart by: processes with their mappings, modules, the kernel.

use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use rawstack_format::id::{Addr, FileOffset};
use rawstack_format::record::{FrameKind, ModuleKind};

use crate::helper::Helper;
use crate::kernel::{KernelMap, Place};
use crate::module::{ModuleNumber, Modules};
use crate::process::Processes;
use crate::program::{Mapping, Program};
use crate::tables::{FrameRow, Space};

/// Shortest time between two questions to a program about addresses that no mapping of it is known for.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Longest time, of one whose answers never had such an address.
const ASK_SELDOM: Duration = Duration::from_secs(32);
/// Programs whose answers are kept.
const MAX_ASKED: usize = 64;

/// What a program said that it has mapped.
#[derive(Debug)]
struct Asked {
    at: Instant,
    /// Until it is asked again.
    pause: Duration,
    mappings: Vec<Rc<Mapping>>,
    /// One of the addresses was in them.
    has_helped: bool,
}

impl Asked {
    /// How long to wait after one more answer: twice as long after each that did not help.
    fn next_pause(known: Option<&Self>) -> Duration {
        match known {
            Some(known) if !known.has_helped => ASK_SELDOM.min(known.pause * 2),
            _ => ASK_AGAIN,
        }
    }
}

/// The program that was running in a process at some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Running {
    /// Number that no other program of the recording has; 0 where there was none.
    pub(crate) program: u32,
    /// When it began; 0: before the recording.
    pub(crate) since_ns: u64,
    /// Version of its mappings; `None` at a time before their last change.
    pub(crate) version: Option<u32>,
}

/// Where a user address lies.
#[derive(Clone, Debug)]
pub(crate) struct UserPlace {
    /// Module and offset in it.
    pub(crate) module: Option<(ModuleNumber, u64)>,
    /// The mapping that says so, unless the process itself had to be asked.
    pub(crate) mapping: Option<Rc<Mapping>>,
    /// All that the process has mapped as code is known, and this is not in it.
    pub(crate) is_no_code: bool,
}

/// Processes, modules and the kernel.
pub(crate) struct World {
    /// Processes.
    pub(crate) processes: Processes,
    /// Modules.
    pub(crate) modules: Modules,
    /// The kernel.
    pub(crate) kernel: KernelMap,
    /// Who reads what belongs to others.
    pub(crate) helper: Rc<Helper>,
    /// What programs have mapped that had an address in no known mapping.
    asked: HashMap<u32, Asked>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World")
            .field("modules", &self.modules)
            .finish_non_exhaustive()
    }
}

impl World {
    /// Nothing known yet but the kernel. `page_size` in bytes.
    pub(crate) fn new(helper: Rc<Helper>, kernel: KernelMap, page_size: u32) -> Self {
        Self {
            processes: Processes::new(Rc::clone(&helper)),
            modules: Modules::new(Rc::clone(&helper), page_size),
            kernel,
            helper,
            asked: HashMap::new(),
        }
    }

    /// The program that was running in process `pid` at `time_ns`.
    pub(crate) fn running(&mut self, pid: u32, time_ns: u64) -> Running {
        let program = self.processes.process(pid).program(time_ns);
        program.map_or_else(Running::default, |program| Running {
            program: program.number,
            since_ns: program.since_ns,
            version: program.version(time_ns),
        })
    }

    /// The process has the vDSO mapped at `address`, 0 where that is not known. Nobody tells of that mapping, but for those
    /// who were there before the recording.
    pub(crate) fn know_vdso(&mut self, pid: u32, time_ns: u64, address: u64) {
        // Programs of 32 bits have another one, with addresses of 32 bits.
        let end = address.checked_add(self.kernel.vdso_len);
        if let Some(end) = end.filter(|_| address > u64::from(u32::MAX)) {
            self.processes.know_vdso(pid, time_ns, address..end);
        }
    }

    /// All that process `pid` had mapped as code at `time_ns`. Of what overlaps the later made counts, and of what was
    /// made at one time the later one.
    pub(crate) fn code(&mut self, pid: u32, time_ns: u64) -> Vec<Rc<Mapping>> {
        let program = self.processes.process(pid).program(time_ns);
        let number = program.map_or(0, |program| program.number);
        let mut code = program.map_or_else(Vec::new, |program| program.mappings_at(time_ns));
        for at in 0..code.len() {
            let copied = self.copied_code(pid, number, &Rc::clone(&code[at]));
            code.extend(copied);
        }
        code
    }

    /// What the process says of memory that code may have been copied to, from files.
    fn copied_code(&mut self, pid: u32, program: u32, over: &Mapping) -> Vec<Rc<Mapping>> {
        if !over.is_over_file || self.ask(pid, program, over.addresses.start).is_none() {
            return Vec::new();
        }
        let asked = self.asked.get(&program);
        let said = asked.map_or(&[][..], |asked| &asked.mappings);
        let is_within = |mapping: &&Rc<Mapping>| {
            let (own, all) = (&mapping.addresses, &over.addresses);
            own.start < all.end && all.start < own.end && mapping.file.2 != 0
        };
        said.iter()
            .filter(is_within)
            .map(|mapping| said_since(mapping, over))
            .collect()
    }

    /// Forget the modules that `is_used` does not name, if there are many.
    pub(crate) fn forget_modules(&mut self, is_used: impl Fn(ModuleNumber) -> bool) {
        if self.modules.are_many() {
            self.modules.keep_only(is_used);
        }
    }

    /// The kernel's address space.
    pub(crate) fn kernel_space(&self) -> Space {
        Space {
            program: 0,
            version: self.kernel.version(),
        }
    }

    /// Where the user address of process `pid` lay at `time_ns`.
    pub(crate) fn locate_user(&mut self, pid: u32, time_ns: u64, address: u64) -> UserPlace {
        let program = self.processes.process(pid).program(time_ns);
        let number = program.map_or(0, |program| program.number);
        let is_whole = program.is_some_and(Program::is_whole);
        let mapping = program.and_then(|program| program.mapping(address, time_ns));
        let Some(mapping) = mapping.map(Rc::clone) else {
            let module = self.locate_stray(pid, number, address);
            let is_no_code = is_whole && module.is_none();
            return UserPlace {
                module,
                mapping: None,
                is_no_code,
            };
        };
        // What the process says of such a place counts more: the file's parts around it tell.
        let copied = mapping
            .is_over_file
            .then(|| self.ask(pid, number, address))
            .flatten();
        let mapping = copied.filter(|copied| copied.file.2 != 0).map_or_else(
            || Rc::clone(&mapping),
            |copied| said_since(&copied, &mapping),
        );
        let module = self.module_of(pid, &mapping);
        let offset = self.offset(module, &mapping, address);
        UserPlace {
            module: Some((module, offset)),
            mapping: Some(mapping),
            is_no_code: false,
        }
    }

    /// The module that process `pid` has mapped here.
    pub(crate) fn module_of(&mut self, pid: u32, mapping: &Mapping) -> ModuleNumber {
        let module = self.modules.of_mapping(pid, mapping);
        let kind = self.modules.get(module).map(|module| module.kind);
        // Pages of the kernel's own making have names in brackets.
        if kind == Some(ModuleKind::Anonymous) && !mapping.path.starts_with(b"[") {
            self.processes.mark_jit(pid);
        }
        module
    }

    /// Where an address lies that the side-band told of no mapping for: what the process itself says, if it is asked.
    fn locate_stray(
        &mut self,
        pid: u32,
        program: u32,
        address: u64,
    ) -> Option<(ModuleNumber, u64)> {
        let mapping = self.ask(pid, program, address)?;
        let module = self.modules.of_mapping(pid, &mapping);
        Some((module, self.offset(module, &mapping, address)))
    }

    /// The mapping by what the process said a while ago. A walk through code without frame pointers meets many words that
    /// are no addresses: each process is asked for all its mappings, and not about each word.
    fn ask(&mut self, pid: u32, program: u32, address: u64) -> Option<Rc<Mapping>> {
        let now = Instant::now();
        let known = self.asked.get(&program);
        if known.is_none_or(|known| now.duration_since(known.at) >= known.pause) {
            let pause = Asked::next_pause(known);
            if self.asked.len() >= MAX_ASKED {
                self.asked.clear();
            }
            let maps = self.helper.maps(pid).unwrap_or_default();
            let mapping = |line| Rc::new(Mapping::from_maps(line, maps.read_ns));
            let asked = Asked {
                at: now,
                pause,
                mappings: maps.lines.into_iter().map(mapping).collect(),
                has_helped: false,
            };
            self.asked.insert(program, asked);
        }
        let asked = self.asked.get_mut(&program)?;
        let holds = |mapping: &&Rc<Mapping>| mapping.addresses.contains(&address);
        let found = asked.mappings.iter().find(holds).map(Rc::clone);
        asked.has_helped |= found.is_some();
        found
    }

    /// The offset of an address in the module that is mapped there.
    fn offset(&self, module: ModuleNumber, mapping: &Mapping, address: u64) -> u64 {
        match self.modules.get(module).map(|module| module.kind) {
            Some(ModuleKind::Anonymous) => address,
            _ => address
                .wrapping_sub(mapping.addresses.start)
                .wrapping_add(mapping.offset),
        }
    }

    /// The row of a kernel address.
    pub(crate) fn kernel_row(&mut self, kind: FrameKind, address: u64) -> FrameRow {
        let (module, offset) = match self.kernel.locate(address) {
            Place::Kernel(offset) => (Some(self.modules.of_kernel(&self.kernel)), offset),
            Place::Module(number, offset) => (
                Some(self.modules.of_kernel_module(&self.kernel, number)),
                offset,
            ),
            Place::Bpf(name, offset) => (Some(self.modules.of_bpf_program(&name)), offset),
            Place::Unknown(offset) => (None, offset),
            Place::Hidden => (None, 0),
        };
        FrameRow {
            kind,
            address: Addr(0),
            module,
            offset: FileOffset(offset),
        }
    }
}

/// What a process says of memory that was mapped `over` a file: it cannot be older than that.
fn said_since(said: &Rc<Mapping>, over: &Mapping) -> Rc<Mapping> {
    Rc::new(Mapping {
        since_ns: over.since_ns,
        ..(**said).clone()
    })
}
