//! The stacks of a chunk as a prefix tree of their frames, each once. Knows no archive.

use foldhash::HashMap;

use crate::unwind::UnwoundFrame;

/// No node.
pub(crate) const NO_NODE: u32 = u32::MAX;
/// Nodes of one chunk at most, and frames of the last stacks of all its threads. Real ones have some thousand; what is made
/// to have more would fill memory.
const MAX_NODES: usize = 1 << 18;

/// Distinct frames and stacks.
#[derive(Debug, Default)]
pub(super) struct StackSet {
    pub(super) frames: Vec<UnwoundFrame>,
    /// Parent, or [`NO_NODE`], and frame. A parent stands before its children.
    pub(super) nodes: Vec<(u32, u32)>,
    frame_index: HashMap<UnwoundFrame, u32>,
    node_index: HashMap<(u32, u32), u32>,
    /// The last stack of each thread, outermost frame first, with its nodes: the next is mostly the same.
    last: HashMap<u32, Vec<(UnwoundFrame, u32)>>,
    /// Frames in `last`, at least.
    held: usize,
}

impl StackSet {
    /// The node of the leaf of a stack of thread `tid`, whose `frames` stand leaf first; none where there is no room.
    pub(super) fn add(&mut self, tid: u32, frames: &[UnwoundFrame]) -> Option<u32> {
        self.held += frames.len();
        if self.held > MAX_NODES {
            // Too much, or long since replaced: forgetting costs a look-up of each frame.
            self.last.clear();
            self.held = frames.len();
        }
        let last = self.last.entry(tid).or_default();
        let same = last.iter().zip(frames.iter().rev());
        let same = same.take_while(|((held, _), frame)| held == *frame).count();
        last.truncate(same);
        let mut parent = last.last().map_or(NO_NODE, |(_, node)| *node);
        for frame in frames.iter().rev().skip(same) {
            if self.nodes.len() >= MAX_NODES {
                return None;
            }
            let next = number(self.frames.len());
            let id = *self.frame_index.entry(*frame).or_insert(next);
            if id == next {
                self.frames.push(*frame);
            }
            let next = number(self.nodes.len());
            let node = *self.node_index.entry((parent, id)).or_insert(next);
            if node == next {
                self.nodes.push((parent, id));
            }
            last.push((*frame, node));
            parent = node;
        }
        Some(parent)
    }
}

fn number(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(NO_NODE)
}

#[cfg(test)]
mod tests {
    use rawstack_format::id::{Addr, FileOffset};

    use super::*;
    use crate::resolve::file_offset::AddressKind;
    use crate::unwind::FoundBy;

    fn stack(addresses: &[u64]) -> Vec<UnwoundFrame> {
        let frame = |&address: &u64| UnwoundFrame {
            address: Addr(address),
            module: None,
            offset: FileOffset(address),
            kind: AddressKind::Return,
            by: FoundBy::Rule,
        };
        addresses.iter().map(frame).collect()
    }

    /// Check that equal stacks are one node, whichever came before them, and that common callers are shared.
    #[test]
    fn shared_nodes() {
        let mut set = StackSet::default();
        let [first, second, third] = [&[1, 2, 3][..], &[4, 2, 3], &[2, 3]].map(self::stack);
        let leaf = set.add(7, &first);
        assert_eq!(leaf, set.add(8, &first));
        assert_ne!(leaf, set.add(7, &second));
        let short = set.add(7, &third);
        assert_eq!(set.add(7, &first), leaf);
        assert_eq!((set.nodes.len(), set.frames.len()), (4, 4));
        assert_eq!(set.nodes[leaf.unwrap() as usize].0, short.unwrap());
        assert_eq!(set.add(7, &[]), Some(NO_NODE));
    }

    /// Check that stacks that have nothing in common do not fill memory: there is a point from which on none is taken.
    #[test]
    fn bounded() {
        let mut set = StackSet::default();
        let taken = (0..64_u64).take_while(|number| {
            let deep: Vec<u64> = (0..1 << 16).map(|depth| number << 32 | depth).collect();
            set.add(7, &stack(&deep)).is_some()
        });
        assert_eq!(taken.count(), MAX_NODES >> 16);
        assert_eq!(set.nodes.len(), MAX_NODES);
        let held = |set: &StackSet| set.last.values().map(Vec::len).sum::<usize>();
        let deep: Vec<u64> = (0..1 << 16).collect();
        let mut set = StackSet::default();
        (0..64).for_each(|tid| _ = set.add(tid, &stack(&deep)));
        assert!(held(&set) <= MAX_NODES && set.nodes.len() == deep.len());
    }
}
