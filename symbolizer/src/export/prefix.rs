//! Stacks of numbers as a prefix tree: each distinct one once, with a number of its own.

use foldhash::HashMap;

/// Parent of what has none.
const NONE: u32 = u32::MAX;

/// A prefix tree. What its numbers stand for is the format's business.
#[derive(Debug, Default)]
pub(super) struct PrefixTree {
    nodes: Vec<(u32, u32)>,
    index: HashMap<(u32, u32), u32>,
}

impl PrefixTree {
    /// The node of a stack, given root first; `None` for an empty one.
    pub(super) fn add(&mut self, stack: impl Iterator<Item = u32>) -> Option<u32> {
        let mut parent = NONE;
        for item in stack {
            let next = u32::try_from(self.nodes.len()).unwrap_or(NONE);
            let node = *self.index.entry((parent, item)).or_insert(next);
            if node == next {
                self.nodes.push((parent, item));
            }
            parent = node;
        }
        (parent != NONE).then_some(parent)
    }

    /// Nodes in the order of their numbers: parent, where there is one, and item. A parent comes before its children.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (Option<u32>, u32)> + '_ {
        let nodes = self.nodes.iter();
        nodes.map(|&(parent, item)| ((parent != NONE).then_some(parent), item))
    }

    /// The nodes of a stack, leaf first.
    pub(super) fn path(&self, leaf: u32) -> impl Iterator<Item = u32> + '_ {
        let mut next = leaf;
        std::iter::from_fn(move || {
            let node = next;
            next = self.nodes.get(node as usize)?.0;
            Some(node)
        })
    }

    /// The items of a stack, leaf first.
    pub(super) fn stack(&self, leaf: u32) -> impl Iterator<Item = u32> + '_ {
        let mut next = leaf;
        std::iter::from_fn(move || {
            let &(parent, item) = self.nodes.get(next as usize)?;
            next = parent;
            Some(item)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that equal stacks are one node, that a prefix is another, and that a stack reads leaf first.
    #[test]
    fn stacks_once() {
        let mut tree = PrefixTree::default();
        let leaf = tree.add([1, 2, 2].into_iter()).unwrap();
        assert_eq!(tree.add([1, 2, 2].into_iter()), Some(leaf));
        assert_ne!(tree.add([1, 2].into_iter()), Some(leaf));
        assert_eq!(tree.add([].into_iter()), None);
        assert_eq!(tree.stack(leaf).collect::<Vec<_>>(), [2, 2, 1]);
        assert_eq!(tree.path(leaf).collect::<Vec<_>>(), [2, 1, 0]);
        assert_eq!(
            tree.nodes().collect::<Vec<_>>(),
            [(None, 1), (Some(0), 2), (Some(1), 2)]
        );
    }
}
