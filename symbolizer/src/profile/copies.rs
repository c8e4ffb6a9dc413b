//! Which user half a sample gets in an archive with copies of stacks: that of the copy, the recorded one, or both as one.
//! Knows no memory and no files.

use foldhash::HashMap;
use rawstack_format::id::{FileOffset, ModuleIndex, StackId};
use rawstack_format::record::{Frame, FrameKind};

use super::tree::{FrameId, Mark, ModuleId, NodeId, StackTree, TreeFrame};
use crate::copied::{CopyEnd, Owners, Stacks, Unwinding, UnwoundCopies};
use crate::resolve::file_offset::AddressKind;
use crate::unwind::FoundBy;

/// Stacks that were put together of two, at most.
const MAX_CHOSEN: usize = 1 << 18;

/// The user half of a sample, and how it ended; none where it has nothing to do with copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UserHalf {
    pub(super) user: NodeId,
    pub(super) end: Option<CopyEnd<ModuleId>>,
}

/// What came of a copy.
#[derive(Clone, Copy, Debug)]
struct Held {
    user: NodeId,
    end: CopyEnd<ModuleId>,
}

/// Stacks of the copies of the batch at hand, and the last of each thread.
#[derive(Debug, Default)]
pub(super) struct CopiedStacks {
    stacks: Stacks,
    /// Copies have come.
    has_any: bool,
    owners: Owners<Held>,
    chosen: HashMap<(NodeId, NodeId, Mark), NodeId>,
}

impl CopiedStacks {
    /// No copy has come.
    pub(super) fn new(stacks: Stacks) -> Self {
        Self {
            stacks,
            ..Self::default()
        }
    }

    /// Take what came of the copies before a batch of archive number `archive`.
    pub(super) fn take(
        &mut self,
        archive: u32,
        done: &UnwoundCopies,
        unwinding: &Unwinding,
        tree: &mut StackTree,
    ) {
        self.has_any |= !done.stacks.is_empty();
        let mut modules = HashMap::default();
        let mut module_of = |id, tree: &mut StackTree| {
            *modules.entry(id).or_insert_with(|| {
                let row = unwinding.row(id);
                row.map_or(ModuleId::NONE, |row| tree.add_module(archive, row))
            })
        };
        let mut frames = Vec::with_capacity(done.frames.len());
        for found in &done.frames {
            let module = found.module.map(|id| module_of(id, tree));
            let frame = Frame {
                kind: match found.kind {
                    AddressKind::Exact => FrameKind::UserLeaf,
                    AddressKind::Return => FrameKind::UserCaller,
                },
                address: found.address,
                module: ModuleIndex::NONE,
                offset: module.map_or(FileOffset(0), |_| found.offset),
            };
            let module = module.unwrap_or(ModuleId::NONE);
            let is_guessed = found.by == FoundBy::FramePointer;
            frames.push(tree.add_frame_found(&frame, module, is_guessed));
        }
        let mut nodes: Vec<NodeId> = Vec::with_capacity(done.nodes.len());
        for (parent, frame) in &done.nodes {
            let parent = nodes.get(*parent as usize).copied();
            let frame = frames.get(*frame as usize).copied();
            let parent = parent.unwrap_or(NodeId::NONE);
            nodes.push(tree.add_node(parent, frame.unwrap_or(FrameId::NONE)));
        }
        self.owners.next_batch();
        for copy in &done.stacks {
            let user = nodes.get(copy.leaf as usize).copied();
            let end = copy.end.map(|id| module_of(id, tree));
            let user = user.unwrap_or(NodeId::NONE);
            self.owners.add(copy.owner, copy.task, Held { user, end });
        }
    }

    /// The user half of `owner`, of which `recorded` was recorded.
    pub(super) fn user_half(
        &mut self,
        owner: StackId,
        recorded: NodeId,
        tree: &mut StackTree,
    ) -> UserHalf {
        let has_frames = recorded != NodeId::NONE;
        let held = match self.owners.get(owner) {
            Some(held) => held,
            None if self.has_any && has_frames => Held {
                user: NodeId::NONE,
                end: CopyEnd::NoCopy,
            },
            None => {
                return UserHalf {
                    user: recorded,
                    end: None,
                };
            }
        };
        let user = match Mark::of(held.end) {
            None => held.user,
            Some(mark) => self.choose(recorded, held.user, mark, tree),
        };
        UserHalf {
            user,
            end: Some(held.end),
        }
    }

    /// The best of a recorded stack and one whose unwinding did not come to its end.
    fn choose(
        &mut self,
        recorded: NodeId,
        unwound: NodeId,
        mark: Mark,
        tree: &mut StackTree,
    ) -> NodeId {
        let key = (recorded, unwound, mark);
        if let Some(&known) = self.chosen.get(&key) {
            return known;
        }
        let frames = |leaf| -> Vec<FrameId> { tree.stack(leaf).collect() };
        let (recorded, mut own) = (frames(recorded), frames(unwound));
        let is_cut = matches!(mark, Mark::CopyEnds | Mark::TooDeep);
        let more = match self.stacks {
            Stacks::Copies => None,
            _ if is_cut => continued(&recorded, &own, tree),
            _ => None,
        };
        let mut root = NodeId::NONE;
        if let Some(more) = more {
            own.extend(more.iter().map(|&id| tree.guessed(id)));
        } else {
            let frame = tree.mark_frame(mark);
            root = tree.add_node(NodeId::NONE, frame);
            if self.stacks != Stacks::Copies && own.len() < recorded.len() {
                own = recorded;
            }
        }
        let chosen = own.iter().rev();
        let chosen = chosen.fold(root, |parent, &id| tree.add_node(parent, id));
        if self.chosen.len() >= MAX_CHOSEN {
            self.chosen.clear();
        }
        self.chosen.insert(key, chosen);
        chosen
    }
}

/// Callers that `recorded` has of the outermost frame of `unwound`, where it goes through that frame.
///
/// Of several such frames, as recursion makes them, it is the one as far from the leaf as in `unwound`, or nearer.
fn continued<'r>(
    recorded: &'r [FrameId],
    unwound: &[FrameId],
    tree: &StackTree,
) -> Option<&'r [FrameId]> {
    let place = |id: &FrameId| {
        let TreeFrame {
            kind,
            module,
            offset,
            address,
            ..
        } = *tree.frame(*id)?;
        Some((kind, module, offset, address))
    };
    let outermost = place(unwound.last()?)?;
    let near = recorded.get(..unwound.len()).unwrap_or(recorded);
    let at = near.iter().rposition(|id| place(id) == Some(outermost))?;
    let more = recorded.get(at + 1..)?;
    (!more.is_empty()).then_some(more)
}
