//! What comes out of unwinding a stack: frames, and how it ended.

use rawstack_format::id::{Addr, FileOffset};

use super::module::ModuleId;
use crate::resolve::file_offset::AddressKind;

/// How a frame was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FoundBy {
    /// It is the leaf: its address was a register.
    Registers,
    /// A rule of the callee's module led to it.
    Rule,
    /// The callee has no unwind information, and the frame pointer led to it: right where the callee keeps one.
    FramePointer,
}

/// One frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UnwoundFrame {
    /// Code address, as the processor used it.
    pub address: Addr,
    /// Module that was mapped there; none in memory that belongs to no file.
    pub module: Option<ModuleId>,
    /// File offset in the module; without one, the address.
    pub offset: FileOffset,
    /// Whether it is the instruction itself (leaf, interrupted by a signal) or the one behind a call.
    pub kind: AddressKind,
    /// How it was found.
    pub by: FoundBy,
}

/// What in a stack cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Contradiction {
    /// The caller's stack pointer is not above the callee's.
    NoProgress,
    /// A return address leads to where nothing executable was mapped.
    UnmappedCode,
    /// A rule needs a register whose value is not known.
    UnknownRegister,
    /// The unwind information itself is damaged or beyond the limits.
    BadRule,
}

/// How a stack ended. `M` stands for a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum End<M = ModuleId> {
    /// At the outermost frame: its rule says that it has no caller.
    Outermost,
    /// At a return address, or in code without unwind information a frame pointer, of 0; or where `makecontext()` lets a stack
    /// begin. It may be the outermost frame.
    Zero,
    /// What is needed next was not copied.
    CopyEnds,
    /// The code has no unwind information, and its frame pointer leads nowhere. The module, where there is one.
    NoUnwindInfo(Option<M>),
    /// Something cannot be.
    Contradiction(Contradiction),
    /// More frames than are taken.
    TooDeep,
}

impl<M> End<M> {
    /// The same with another module.
    pub(crate) fn map<N>(self, module: impl FnOnce(M) -> N) -> End<N> {
        match self {
            Self::Outermost => End::Outermost,
            Self::Zero => End::Zero,
            Self::CopyEnds => End::CopyEnds,
            Self::NoUnwindInfo(held) => End::NoUnwindInfo(held.map(module)),
            Self::Contradiction(what) => End::Contradiction(what),
            Self::TooDeep => End::TooDeep,
        }
    }

    /// Name in JSON and text.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Outermost => "outermost",
            Self::Zero => "zero",
            Self::CopyEnds => "copy_ends",
            Self::NoUnwindInfo(_) => "no_unwind_info",
            Self::Contradiction(_) => "contradiction",
            Self::TooDeep => "too_deep",
        }
    }
}

/// An unwound stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwound {
    /// Frames, leaf first.
    pub frames: Vec<UnwoundFrame>,
    /// How it ended.
    pub end: End,
}
