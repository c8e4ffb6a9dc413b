//! The tables of one epoch: what the indices in an archive's rows stand for in the tree.

use rawstack_format::id::{FrameIndex, ModuleIndex, StackIndex};
use rawstack_format::record::{Batch, Module, ModuleKind};

use super::tree::{FrameId, ModuleId, NodeId, StackTree};

/// References that lead nowhere, by what they should have led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostReferences {
    /// Modules.
    pub modules: u64,
    /// Frames.
    pub frames: u64,
    /// Stack nodes.
    pub stacks: u64,
}

impl LostReferences {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.modules
            .saturating_add(self.frames)
            .saturating_add(self.stacks)
    }
}

/// Rows of a table, by index, with gaps where chunks are lost.
#[derive(Debug)]
struct Table<T> {
    runs: Vec<(u32, Vec<T>)>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { runs: Vec::new() }
    }
}

impl<T: Copy> Table<T> {
    /// Add `row` at `index`; rows come with rising indices.
    fn add(&mut self, index: u32, row: T) {
        match self.runs.last_mut() {
            Some((first, rows)) if u64::from(*first) + rows.len() as u64 == u64::from(index) => {
                rows.push(row)
            }
            _ => self.runs.push((index, vec![row])),
        }
    }

    fn get(&self, index: u32) -> Option<T> {
        let after = self.runs.partition_point(|(first, _)| *first <= index);
        let (first, rows) = self.runs.get(after.checked_sub(1)?)?;
        rows.get((index - first) as usize).copied()
    }
}

/// Tables of the epoch at hand.
#[derive(Debug, Default)]
pub(super) struct EpochTables {
    epoch: Option<u32>,
    modules: Table<ModuleId>,
    frames: Table<FrameId>,
    stacks: Table<NodeId>,
    kernel: Option<ModuleId>,
    pub(super) lost: LostReferences,
}

impl EpochTables {
    /// Take the table rows of `batch` into the tree; a new epoch starts with empty tables.
    pub(super) fn take(&mut self, archive: u32, batch: &Batch, tree: &mut StackTree) {
        if self.epoch != Some(batch.epoch) {
            *self = Self {
                epoch: Some(batch.epoch),
                kernel: self.kernel,
                lost: self.lost,
                ..Self::default()
            };
        }
        for (index, module) in (batch.first_module..).zip(&batch.modules) {
            self.modules.add(index, tree.add_module(archive, module));
        }
        for (index, frame) in (batch.first_frame..).zip(&batch.frames) {
            let kernel = matches!(frame.kind as u8, 2 | 3);
            let module = match frame.module {
                ModuleIndex::NONE if kernel => Some(self.kernel(archive, tree)),
                ModuleIndex::NONE => Some(ModuleId::NONE),
                known => self.modules.get(known.0),
            };
            let id = match module {
                Some(module) => tree.add_frame(frame, module),
                None => {
                    self.lost.modules += 1;
                    tree.lost_frame(kernel)
                }
            };
            self.frames.add(index, id);
        }
        for (index, node) in (batch.first_stack..).zip(&batch.stacks) {
            let parent = match node.parent {
                StackIndex::NONE => NodeId::NONE,
                parent => self.node(parent, tree),
            };
            let frame = match node.frame {
                FrameIndex::NONE => None,
                frame => self.frames.get(frame.0),
            };
            let frame = frame.unwrap_or_else(|| {
                self.lost.frames += 1;
                tree.lost_frame(false)
            });
            self.stacks.add(index, tree.add_node(parent, frame));
        }
    }

    /// Frames of the kernel that name no module count from `_stext`: they are the kernel's.
    fn kernel(&mut self, archive: u32, tree: &mut StackTree) -> ModuleId {
        *self.kernel.get_or_insert_with(|| {
            let module = Module {
                kind: ModuleKind::Kernel,
                path: "[kernel]".to_owned(),
                ..Module::default()
            };
            tree.add_module(archive, &module)
        })
    }

    /// The node that `index` stands for, or one that says that it is lost.
    pub(super) fn node(&mut self, index: StackIndex, tree: &mut StackTree) -> NodeId {
        let Some(index) = index.get() else {
            return NodeId::NONE;
        };
        self.stacks.get(index).unwrap_or_else(|| {
            self.lost.stacks += 1;
            let frame = tree.lost_frame(false);
            tree.add_node(NodeId::NONE, frame)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rawstack_format::id::FileOffset;
    use rawstack_format::record::{Frame, StackNode};

    fn batch(epoch: u32, first: u32, offset: u64) -> Batch {
        Batch {
            epoch,
            first_module: first,
            first_frame: first,
            first_stack: first,
            modules: vec![Module {
                path: format!("m{first}"),
                ..Module::default()
            }],
            frames: vec![Frame {
                module: ModuleIndex(first),
                offset: FileOffset(offset),
                ..Frame::default()
            }],
            stacks: vec![StackNode {
                frame: FrameIndex(first),
                ..StackNode::default()
            }],
            ..Batch::default()
        }
    }

    /// Check that an index means the row of its own epoch, and that one into a gap is lost and counted.
    #[test]
    fn epochs_and_gaps() {
        let (mut tables, mut tree) = (EpochTables::default(), StackTree::new(false));
        tables.take(0, &batch(0, 0, 1), &mut tree);
        let old = tables.node(StackIndex(0), &mut tree);
        tables.take(0, &batch(0, 5, 2), &mut tree);
        let five = tables.node(StackIndex(5), &mut tree);
        assert_eq!(tree.stack(five).count(), 1);
        let gap = tables.node(StackIndex(3), &mut tree);
        assert!(tree.frame(tree.stack(gap).next().unwrap()).unwrap().lost);
        assert_eq!(tables.lost.total(), 1);
        tables.take(0, &batch(1, 0, 3), &mut tree);
        assert_ne!(tables.node(StackIndex(0), &mut tree), old);
        assert_eq!(tables.node(StackIndex::NONE, &mut tree), NodeId::NONE);
    }
}
