//! Distinct modules, frames and stacks of all archives, as a prefix tree. Knows no samples.

use std::fmt;
use std::iter;

use foldhash::HashMap;
use rawstack_format::id::{Addr, BuildId, FileOffset};
use rawstack_format::record::{Frame, FrameKind, Module, ModuleKind};

use crate::copied::CopyEnd;
use crate::jit::Placed;
use crate::resolve::file_offset::{AddressKind, lookup_offset};
use crate::text::clean;
use crate::unwind::End;

/// Declare an index into one of the tree's tables.
macro_rules! tree_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// No entry.
            pub const NONE: Self = Self(u32::MAX);

            /// The ID as an index.
            pub(crate) fn index(self) -> usize {
                self.0 as usize
            }

            fn next(length: usize) -> Self {
                u32::try_from(length).map_or(Self::NONE, Self)
            }
        }
    };
}

tree_id!(
    /// A module of the tree.
    ModuleId
);
tree_id!(
    /// A frame of the tree.
    FrameId
);
tree_id!(
    /// A node of the tree; as a stack, that of its leaf.
    NodeId
);

/// One distinct code address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TreeFrame {
    /// Whether it is in the kernel.
    pub kernel: bool,
    /// What its offset stands for.
    pub kind: AddressKind,
    /// Raw address, where the tree keeps addresses or nothing else is known.
    pub address: Addr,
    /// Module, or none.
    pub module: ModuleId,
    /// Offset in the module.
    pub offset: FileOffset,
    /// The chunk that described the frame is lost: nothing else is known.
    pub lost: bool,
    /// Where it lies in code that its process made.
    pub jit: Jit,
    /// A frame pointer led to it in a stack that was unwound: it is where the callee keeps one.
    pub guessed: bool,
    /// It is no frame, and stands at the outer end of a stack: why unwinding ended there.
    pub mark: Option<Mark>,
}

/// Why the unwinding of a stack ended before its outermost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mark {
    /// The copy ends there.
    CopyEnds,
    /// There is no unwind information for the code.
    NoUnwindInfo,
    /// What was found cannot be.
    Contradiction,
    /// It has more frames than are taken.
    TooDeep,
    /// There is no copy.
    NoCopy,
}

impl Mark {
    /// The mark of a stack that ended so; none where it is whole.
    pub fn of(end: CopyEnd<ModuleId>) -> Option<Self> {
        let CopyEnd::Unwound(end) = end else {
            return Some(Self::NoCopy);
        };
        match end {
            End::Outermost | End::Zero => None,
            End::CopyEnds => Some(Self::CopyEnds),
            End::NoUnwindInfo(_) => Some(Self::NoUnwindInfo),
            End::Contradiction(_) => Some(Self::Contradiction),
            End::TooDeep => Some(Self::TooDeep),
        }
    }

    /// What is shown in its place.
    pub fn text(self) -> &'static str {
        match self {
            Self::CopyEnds => "[stack copy ended]",
            Self::NoUnwindInfo => "[no unwind information]",
            Self::Contradiction => "[unwinding failed]",
            Self::TooDeep => "[too many frames]",
            Self::NoCopy => "[no stack copy]",
        }
    }
}

/// Whether a frame lies in code that its process made, and where in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Jit {
    /// It does not.
    No,
    /// It does, and whose process and at which time is not said: no sample has this frame.
    Anywhere,
    /// There.
    At(Placed),
}

impl TreeFrame {
    /// A frame of which nothing is known.
    fn nowhere(kernel: bool) -> Self {
        Self {
            kernel,
            kind: AddressKind::Exact,
            address: Addr(0),
            module: ModuleId::NONE,
            offset: FileOffset(0),
            lost: false,
            jit: Jit::No,
            guessed: false,
            mark: None,
        }
    }
}

/// What makes two rows the same module.
#[derive(PartialEq, Eq, Hash)]
enum Identity {
    BuildId(BuildId),
    Hash([u8; 16]),
    Path(String),
}

/// Modules, frames and stacks, each once.
#[derive(Debug, Default)]
pub struct StackTree {
    modules: Vec<(u32, Module)>,
    frames: Vec<TreeFrame>,
    nodes: Vec<(NodeId, FrameId)>,
    /// For each node, whether it or a caller is [`Jit::Anywhere`].
    unplaced: Vec<bool>,
    module_index: HashMap<ModuleKey, ModuleId>,
    frame_index: HashMap<TreeFrame, FrameId>,
    node_index: HashMap<(NodeId, FrameId), NodeId>,
    keep_addresses: bool,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ModuleKey(ModuleKind, Option<u32>, Identity);

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

impl StackTree {
    /// An empty tree. With `keep_addresses` the same code at two addresses makes two frames.
    pub fn new(keep_addresses: bool) -> Self {
        Self {
            keep_addresses,
            ..Self::default()
        }
    }

    /// Add a module of archive number `archive`.
    ///
    /// ELF files with one build ID are the same everywhere; what belongs to one boot of one machine (the kernel, its
    /// modules and programs, the vDSO, code made at run time) is kept apart by archive.
    pub(super) fn add_module(&mut self, archive: u32, module: &Module) -> ModuleId {
        let identity = match (&module.build_id, module.content_hash) {
            (Some(build_id), _) => Identity::BuildId(build_id.clone()),
            (None, Some(hash)) => Identity::Hash(hash),
            (None, None) => Identity::Path(module.path.clone()),
        };
        let of_boot = (module.kind != ModuleKind::Elf).then_some(archive);
        // Kernel modules and BPF programs may share an identity with none; their names are part of it.
        let key = ModuleKey(module.kind, of_boot, identity);
        let next = ModuleId::next(self.modules.len());
        let id = *self.module_index.entry(key).or_insert(next);
        if id == next {
            self.modules.push((archive, module.clone()));
        } else if let Some((_, held)) = self.modules.get_mut(id.index())
            && held.segments.is_empty()
        {
            held.segments.clone_from(&module.segments);
        }
        id
    }

    /// Add a frame whose module is `module`.
    pub(super) fn add_frame(&mut self, frame: &Frame, module: ModuleId) -> FrameId {
        self.add_frame_found(frame, module, false)
    }

    /// As [`add_frame`](Self::add_frame); with `guessed` one that a frame pointer led to.
    pub(super) fn add_frame_found(
        &mut self,
        frame: &Frame,
        module: ModuleId,
        guessed: bool,
    ) -> FrameId {
        let kernel = matches!(frame.kind, FrameKind::KernelLeaf | FrameKind::KernelCaller);
        let return_address = matches!(frame.kind, FrameKind::UserCaller | FrameKind::KernelCaller);
        let placed = module != ModuleId::NONE && !self.keep_addresses;
        self.intern_frame(TreeFrame {
            kernel,
            kind: if return_address {
                AddressKind::Return
            } else {
                AddressKind::Exact
            },
            address: if placed { Addr(0) } else { frame.address },
            module,
            offset: frame.offset,
            lost: false,
            jit: if self.is_anonymous(module) {
                Jit::Anywhere
            } else {
                Jit::No
            },
            guessed,
            mark: None,
        })
    }

    /// The same frame as one that a frame pointer led to.
    pub(super) fn guessed(&mut self, id: FrameId) -> FrameId {
        match self.frame(id).copied() {
            Some(frame) => self.intern_frame(TreeFrame {
                guessed: true,
                ..frame
            }),
            None => id,
        }
    }

    /// What stands at the outer end of a stack whose unwinding ended so.
    pub(super) fn mark_frame(&mut self, mark: Mark) -> FrameId {
        self.intern_frame(TreeFrame {
            mark: Some(mark),
            ..TreeFrame::nowhere(false)
        })
    }

    fn is_anonymous(&self, module: ModuleId) -> bool {
        let module = self.modules.get(module.index());
        module.is_some_and(|(_, module)| module.kind == ModuleKind::Anonymous)
    }

    /// The frame that stands for what is lost.
    pub(super) fn lost_frame(&mut self, kernel: bool) -> FrameId {
        self.intern_frame(TreeFrame {
            lost: true,
            ..TreeFrame::nowhere(kernel)
        })
    }

    fn intern_frame(&mut self, frame: TreeFrame) -> FrameId {
        let next = FrameId::next(self.frames.len());
        let id = *self.frame_index.entry(frame).or_insert(next);
        if id == next {
            self.frames.push(frame);
        }
        id
    }

    /// Add a node below `parent`, the calling frame's.
    pub(super) fn add_node(&mut self, parent: NodeId, frame: FrameId) -> NodeId {
        let next = NodeId::next(self.nodes.len());
        let id = *self.node_index.entry((parent, frame)).or_insert(next);
        if id == next {
            let of_parent = self.unplaced.get(parent.index()).copied();
            let own = self
                .frame(frame)
                .is_some_and(|frame| frame.jit == Jit::Anywhere);
            self.nodes.push((parent, frame));
            self.unplaced.push(own || of_parent.unwrap_or(false));
        }
        id
    }

    /// Whether a stack has frames of which `place` has to say where they lie.
    pub(super) fn is_unplaced(&self, leaf: NodeId) -> bool {
        self.unplaced.get(leaf.index()).copied().unwrap_or(false)
    }

    /// The same stack with each frame in code that a process made where `place` says for its address.
    pub(super) fn place(&mut self, leaf: NodeId, place: &mut dyn FnMut(u64) -> Placed) -> NodeId {
        let frames: Vec<FrameId> = self.stack(leaf).collect();
        frames.into_iter().rev().fold(NodeId::NONE, |parent, id| {
            let id = match self.frame(id).copied() {
                Some(frame) if frame.jit == Jit::Anywhere => {
                    let jit = Jit::At(place(lookup_offset(frame.offset, frame.kind).0));
                    self.intern_frame(TreeFrame { jit, ..frame })
                }
                _ => id,
            };
            self.add_node(parent, id)
        })
    }

    /// Modules in the order of their IDs, each with the number of the archive that first named it.
    pub fn modules(&self) -> &[(u32, Module)] {
        &self.modules
    }

    /// Modules in the order of their IDs, whichever archive they are of.
    pub fn modules_alone(&self) -> Vec<&Module> {
        self.modules.iter().map(|(_, module)| module).collect()
    }

    /// Frames in the order of their IDs.
    pub fn frames(&self) -> &[TreeFrame] {
        &self.frames
    }

    /// A frame.
    pub fn frame(&self, id: FrameId) -> Option<&TreeFrame> {
        self.frames.get(id.index())
    }

    /// Nodes in the order of their IDs: parent and frame. A parent's ID is smaller than its children's, but for the
    /// copies that [`mark_interrupted`](Self::mark_interrupted) makes.
    pub fn nodes(&self) -> &[(NodeId, FrameId)] {
        &self.nodes
    }

    /// Frames of a stack, leaf first.
    pub fn stack(&self, leaf: NodeId) -> impl Iterator<Item = FrameId> + '_ {
        let mut next = leaf;
        let mut left = self.nodes.len();
        iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let &(parent, frame) = self.nodes.get(next.index())?;
            next = parent;
            Some(frame)
        })
    }

    /// Take what a signal interrupted as the instruction itself: the frame that `is_trampoline` frames "return" to.
    ///
    /// The kernel pushes the interrupted address as if the signal trampoline had been called from there, so nothing
    /// may be subtracted from it, nor from the trampoline's own first byte.
    pub fn mark_interrupted(&mut self, is_trampoline: &dyn Fn(&TreeFrame) -> bool) {
        let trampolines: Vec<bool> = self.frames.iter().map(is_trampoline).collect();
        let exact = |tree: &mut Self, id: FrameId| match tree.frame(id).copied() {
            Some(frame) => tree.intern_frame(TreeFrame {
                kind: AddressKind::Exact,
                ..frame
            }),
            None => id,
        };
        for index in 0..self.nodes.len() {
            let Some(&(parent, frame)) = self.nodes.get(index) else {
                continue;
            };
            if !trampolines
                .get(frame.index())
                .is_some_and(|&trampoline| trampoline)
            {
                continue;
            }
            let own = exact(self, frame);
            let mut above = parent;
            if let Some(&(outer, interrupted)) = self.nodes.get(parent.index()) {
                let interrupted = exact(self, interrupted);
                // Other stacks may have the same frame as a plain caller, so it gets a node of its own.
                above = self.add_node(outer, interrupted);
            }
            if let Some(node) = self.nodes.get_mut(index) {
                *node = (above, own);
            }
        }
    }
}

/// What a module is called: its path, or a name in brackets for what has none.
pub fn shown_path(module: &Module) -> String {
    let path = clean(&module.path);
    match module.kind {
        ModuleKind::Kernel => "[kernel]".to_owned(),
        ModuleKind::Vdso => "[vdso]".to_owned(),
        ModuleKind::KernelModule | ModuleKind::BpfProgram => {
            format!("[{}]", path.trim_matches(['[', ']']))
        }
        ModuleKind::Anonymous if path.is_empty() || path == "//anon" => "[anonymous]".to_owned(),
        ModuleKind::Elf if path.is_empty() => "[unnamed]".to_owned(),
        ModuleKind::Elf | ModuleKind::Anonymous => path.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: FrameKind, offset: u64) -> Frame {
        Frame {
            kind,
            offset: FileOffset(offset),
            ..Frame::default()
        }
    }

    /// Check that equal stacks are one node whatever archive they come from, and that a stack reads leaf first.
    #[test]
    fn stacks_are_shared() {
        let mut tree = StackTree::new(false);
        let module = Module {
            build_id: BuildId::new(&[1]),
            ..Module::default()
        };
        let ids = [tree.add_module(0, &module), tree.add_module(1, &module)];
        assert_eq!(ids[0], ids[1]);
        let root = tree.add_frame(&frame(FrameKind::UserCaller, 1), ids[0]);
        let leaf = tree.add_frame(&frame(FrameKind::UserLeaf, 2), ids[0]);
        let root_node = tree.add_node(NodeId::NONE, root);
        let stack = tree.add_node(root_node, leaf);
        assert_eq!(tree.add_node(root_node, leaf), stack);
        assert_eq!(tree.stack(stack).collect::<Vec<_>>(), [leaf, root]);
    }

    /// Check that the kernels of two archives stay two.
    #[test]
    fn kernels_are_apart() {
        let mut tree = StackTree::new(false);
        let kernel = Module {
            kind: ModuleKind::Kernel,
            build_id: BuildId::new(&[1]),
            ..Module::default()
        };
        assert_ne!(tree.add_module(0, &kernel), tree.add_module(1, &kernel));
    }

    /// Check that the frame that a signal interrupted becomes exact in that stack and in no other.
    #[test]
    fn interrupted_frame() {
        let mut tree = StackTree::new(false);
        let module = tree.add_module(
            0,
            &Module {
                path: "libc".to_owned(),
                ..Module::default()
            },
        );
        let [main, trampoline, handler, callee] = [1, 0xf, 3, 4]
            .map(|offset| tree.add_frame(&frame(FrameKind::UserCaller, offset), module));
        let main_node = tree.add_node(NodeId::NONE, main);
        let trampoline_node = tree.add_node(main_node, trampoline);
        let signalled = tree.add_node(trampoline_node, handler);
        let plain = tree.add_node(main_node, callee);
        tree.mark_interrupted(&|frame| frame.offset == FileOffset(0xf));
        let kinds = |tree: &StackTree, leaf| -> Vec<_> {
            tree.stack(leaf)
                .map(|id| tree.frame(id).unwrap().kind)
                .collect()
        };
        assert_eq!(
            kinds(&tree, signalled),
            [AddressKind::Return, AddressKind::Exact, AddressKind::Exact]
        );
        assert_eq!(
            kinds(&tree, plain),
            [AddressKind::Return, AddressKind::Return]
        );
    }
}
