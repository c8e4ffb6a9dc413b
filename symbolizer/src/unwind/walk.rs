//! Stacks, one by one or many in parallel. What comes out depends on nothing but what goes in.

use std::sync::{Arc, Mutex, PoisonError};

use rawstack_format::id::{Addr, FileOffset};
use rawstack_format::record::Module;
use rayon::prelude::*;

use super::machine::Registers;
use super::memory::{Memory, StackMemory};
use super::module::{FindFiles, ModuleId, UnwindModule};
use super::outcome::{Contradiction, End, FoundBy, Unwound, UnwoundFrame};
use super::rule::Rule;
use super::rules::Rules;
use super::space::AddressSpace;
use super::step::step;
use crate::debug_file::locate::ModuleFiles;
use crate::resolve::file_offset::AddressKind;

/// Frames that a stack has at most: 64 KiB hold no more than 8,192.
pub const MAX_FRAMES: usize = 1 << 16;
/// Stacks that a thread takes at once.
const AT_ONCE: usize = 32;

/// A stack to unwind.
#[derive(Clone, Copy, Debug)]
pub struct CopiedStack<'s> {
    /// Registers of its leaf.
    pub registers: Registers,
    /// What was copied.
    pub memory: StackMemory<'s>,
    /// What was mapped in its process.
    pub space: &'s AddressSpace,
}

/// Where the walk of a stack begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf<'s, M> {
    /// Registers of its leaf.
    pub(crate) registers: Registers,
    /// What was copied.
    pub(crate) memory: &'s M,
    /// What was mapped in its process.
    pub(crate) space: &'s AddressSpace,
    /// Frames that it may have, one at least; never more than [`MAX_FRAMES`].
    pub(crate) most: usize,
}

/// The modules of an [`Unwinder`] at one time, for threads.
#[derive(Clone, Debug)]
pub(crate) struct Modules(Arc<[Arc<UnwindModule>]>);

impl Modules {
    /// Unwind a stack: put its frames into `frames`, and give its end.
    pub(crate) fn unwind<M: Memory>(
        &self,
        rules: &mut Rules,
        leaf: &Leaf<'_, M>,
        frames: &mut Vec<UnwoundFrame>,
    ) -> End {
        frames.clear();
        walk(&self.0, rules, leaf, frames).unwrap_or_else(|end| end)
    }
}

/// Modules, and the rules that were worked out for them.
#[derive(Debug, Default)]
pub struct Unwinder {
    modules: Vec<Arc<UnwindModule>>,
    rules: Vec<Mutex<Rules>>,
}

impl Unwinder {
    /// Nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// Add a module with its files.
    pub fn add(&mut self, module: Module, files: ModuleFiles) -> ModuleId {
        self.push(UnwindModule::new(module, files))
    }

    /// Add a module whose files `find` finds, once they are needed.
    pub fn add_to_find(&mut self, module: Module, find: FindFiles) -> ModuleId {
        self.push(UnwindModule::to_find(module, find))
    }

    fn push(&mut self, module: UnwindModule) -> ModuleId {
        let id = ModuleId(u32::try_from(self.modules.len()).unwrap_or(u32::MAX));
        self.modules.push(Arc::new(module));
        id
    }

    /// The modules that there are now.
    pub(crate) fn modules(&self) -> Modules {
        Modules(self.modules.as_slice().into())
    }

    /// Whether a module has call frame information.
    pub fn has_tables(&self, id: ModuleId) -> bool {
        let module = usize::try_from(id.0)
            .ok()
            .and_then(|id| self.modules.get(id));
        module.is_some_and(|module| module.has_tables())
    }

    /// Unwind `stacks` with the threads of the current pool, in their order.
    pub fn unwind_all(&mut self, stacks: &[CopiedStack<'_>]) -> Vec<Unwound> {
        let threads = rayon::current_num_threads();
        if self.rules.len() < threads {
            self.rules.resize_with(threads, Mutex::default);
        }
        let (modules, rules) = (self.modules(), &self.rules);
        let some = |stacks: &[CopiedStack<'_>]| -> Vec<Unwound> {
            let own = rules.get(rayon::current_thread_index().unwrap_or(0));
            let mut none = Rules::default();
            let mut locked = own.map(|own| own.lock().unwrap_or_else(PoisonError::into_inner));
            let rules = locked.as_deref_mut().unwrap_or(&mut none);
            stacks
                .iter()
                .map(|stack| unwind(&modules, rules, stack))
                .collect()
        };
        let parts: Vec<Vec<Unwound>> = stacks.par_chunks(AT_ONCE).map(some).collect();
        parts.into_iter().flatten().collect()
    }
}

/// A frame's place: module, offset, what the address stands for.
fn frame_at(
    address: u64,
    kind: AddressKind,
    by: FoundBy,
    space: &AddressSpace,
) -> Option<UnwoundFrame> {
    let mapped = space.find(address)?;
    let offset = match mapped.module {
        Some(_) => mapped.offset_of(address),
        None => FileOffset(address),
    };
    Some(UnwoundFrame {
        address: Addr(address),
        module: mapped.module,
        offset,
        kind,
        by,
    })
}

fn unwind(modules: &Modules, rules: &mut Rules, stack: &CopiedStack<'_>) -> Unwound {
    let mut frames = Vec::with_capacity(24);
    let leaf = Leaf {
        registers: stack.registers,
        memory: &stack.memory,
        space: stack.space,
        most: MAX_FRAMES,
    };
    let end = modules.unwind(rules, &leaf, &mut frames);
    Unwound { frames, end }
}

fn walk<M: Memory>(
    modules: &[Arc<UnwindModule>],
    rules: &mut Rules,
    leaf: &Leaf<'_, M>,
    frames: &mut Vec<UnwoundFrame>,
) -> Result<End, End> {
    let Leaf {
        mut registers,
        memory,
        space,
        most,
    } = *leaf;
    let most = most.min(MAX_FRAMES);
    let machine = registers.machine();
    let address_bits = space.address_bits();
    let unknown = End::Contradiction(Contradiction::UnknownRegister);
    let unmapped = End::Contradiction(Contradiction::UnmappedCode);
    let leaf = registers.get(machine.instruction()).ok_or(unknown)?;
    let Some(mut frame) = frame_at(leaf, AddressKind::Exact, FoundBy::Registers, space) else {
        frames.push(UnwoundFrame {
            address: Addr(leaf),
            module: None,
            offset: FileOffset(leaf),
            kind: AddressKind::Exact,
            by: FoundBy::Registers,
        });
        return Err(unmapped);
    };
    loop {
        frames.push(frame);
        if frames.len() >= most {
            return Ok(End::TooDeep);
        }
        let rule = match frame.module {
            Some(module) => rules.rule(modules, (module, frame.offset, frame.kind), machine),
            None => &Rule::FramePointer,
        };
        let by = match rule {
            Rule::FramePointer => FoundBy::FramePointer,
            _ => FoundBy::Rule,
        };
        let in_module = |end| match end {
            End::NoUnwindInfo(_) => End::NoUnwindInfo(frame.module),
            other => other,
        };
        let mut next = step(rule, &registers, memory).map_err(in_module)?;
        let found = next.registers.get(machine.instruction()).ok_or(unknown)?;
        let address = machine.plain_address(found, address_bits);
        if address == 0 {
            return Ok(End::Zero);
        }
        next.registers.set(machine.instruction(), address);
        let is_leaf = frames.len() == 1;
        if !next.is_exact && !is_progress(&registers, &next.registers, is_leaf, memory) {
            return Err(End::Contradiction(Contradiction::NoProgress));
        }
        let kind = if next.is_exact {
            AddressKind::Exact
        } else {
            AddressKind::Return
        };
        registers = next.registers;
        frame = match frame_at(address, kind, by, space) {
            Some(frame) => frame,
            None if by == FoundBy::FramePointer => return Err(End::NoUnwindInfo(frame.module)),
            None => return Err(unmapped),
        };
    }
}

/// Whether the caller's stack pointer is above the callee's, where both lie in one stack. A leaf may have pushed nothing.
fn is_progress(callee: &Registers, caller: &Registers, is_leaf: bool, memory: &dyn Memory) -> bool {
    let stack_pointer = callee.machine().stack_pointer();
    let (Some(below), Some(above)) = (callee.get(stack_pointer), caller.get(stack_pointer)) else {
        return false;
    };
    if above > below || (is_leaf && above == below) {
        return true;
    }
    // Below: only on another stack.
    memory.part(above) != memory.part(below)
}
