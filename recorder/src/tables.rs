//! The tables of one epoch: frames, and stacks as a prefix tree. Every row is there once, compared by content.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use rawstack_bpf::Addresses;
use rawstack_format::id::{Addr, FileOffset};
use rawstack_format::record::FrameKind;
use std::hash::BuildHasher;

use crate::budget::TableLimits;
use crate::module::ModuleNumber;

/// No parent: the outermost frame.
pub(crate) const ROOT: u32 = u32::MAX;

/// One code address, with the module by its number for the whole recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FrameRow {
    /// Leaf or caller, user or kernel.
    pub(crate) kind: FrameKind,
    /// Raw user address, or 0.
    pub(crate) address: Addr,
    /// Module, where one is known.
    pub(crate) module: Option<ModuleNumber>,
    /// Offset in the module.
    pub(crate) offset: FileOffset,
}

/// Whose stack it is: the same addresses mean other code elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Space {
    /// Number of the program, 0 for the kernel.
    pub(crate) program: u32,
    /// Version of its mappings.
    pub(crate) version: u32,
}

/// A whole stack, remembered under the hash of its addresses.
#[derive(Clone, Copy, Debug)]
struct Known {
    hash: u64,
    space: Space,
    leaf: u32,
    /// Frames that it has: the first of its addresses.
    frames: usize,
}

/// The tables.
#[derive(Debug)]
pub(crate) struct Tables {
    limits: TableLimits,
    hasher: FixedState,
    frames: Vec<FrameRow>,
    /// The addresses themselves, of kernel frames too: only to compare, never written.
    raw: Vec<u64>,
    /// Parent, frame, and the frame's raw address once more: comparing a stack then takes one look at each node.
    nodes: Vec<(u32, u32, u64)>,
    frame_index: HashTable<u32>,
    node_index: HashTable<u32>,
    stacks: HashTable<Known>,
}

/// A row of a table, and whether it is new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Its index in the epoch.
    pub(crate) index: u32,
    /// It was just added.
    pub(crate) is_new: bool,
}

impl Tables {
    /// Empty tables.
    pub(crate) fn new(limits: TableLimits) -> Self {
        Self {
            limits,
            hasher: FixedState::default(),
            frames: Vec::new(),
            raw: Vec::new(),
            nodes: Vec::new(),
            frame_index: HashTable::new(),
            node_index: HashTable::new(),
            stacks: HashTable::new(),
        }
    }

    /// Whether the next epoch should start.
    pub(crate) fn is_full(&self) -> bool {
        let TableLimits { nodes, frames } = self.limits;
        self.nodes.len() >= nodes || self.frames.len() >= frames || self.stacks.len() >= nodes
    }

    /// Hash of a stack.
    pub(crate) fn hash(&self, space: Space, addresses: &Addresses<'_>) -> u64 {
        self.hasher.hash_one((space, addresses.as_bytes()))
    }

    /// The stack with these addresses in this space, if the epoch has it: all of it is compared.
    pub(crate) fn find(&self, hash: u64, space: Space, addresses: &Addresses<'_>) -> Option<u32> {
        let same = |known: &Known| {
            known.hash == hash && known.space == space && self.is_stack(known, addresses)
        };
        self.stacks.find(hash, same).map(|known| known.leaf)
    }

    /// Whether the stack is the one with these addresses, leaf first.
    fn is_stack(&self, known: &Known, addresses: &Addresses<'_>) -> bool {
        let mut node = known.leaf;
        for address in addresses.iter().take(known.frames) {
            match self.nodes.get(node as usize) {
                Some(&(parent, _, raw)) if raw == address => node = parent,
                _ => return false,
            }
        }
        node == ROOT
    }

    /// Remember a stack just put together of the first `frames` addresses.
    pub(crate) fn remember(&mut self, hash: u64, space: Space, leaf: u32, frames: usize) {
        let known = Known {
            hash,
            space,
            leaf,
            frames,
        };
        self.stacks.insert_unique(hash, known, |known| known.hash);
    }

    /// The frame's row. `raw` is its address in memory, which tells frames apart but is not part of the row.
    pub(crate) fn frame(&mut self, row: FrameRow, raw: u64) -> Row {
        let hash = self.hasher.hash_one((row, raw));
        let (frames, raws, hasher) = (&self.frames, &self.raw, &self.hasher);
        let content = |index: u32| (frames.get(index as usize), raws.get(index as usize));
        if let Some(&index) = self
            .frame_index
            .find(hash, |&index| content(index) == (Some(&row), Some(&raw)))
        {
            return Row {
                index,
                is_new: false,
            };
        }
        let index = next_index(self.frames.len());
        let rehash = |&index: &u32| match content(index) {
            (Some(row), Some(raw)) => hasher.hash_one((row, raw)),
            _ => 0,
        };
        self.frame_index.insert_unique(hash, index, rehash);
        self.frames.push(row);
        self.raw.push(raw);
        Row {
            index,
            is_new: true,
        }
    }

    /// The node of `frame` under `parent`.
    pub(crate) fn node(&mut self, parent: u32, frame: u32) -> Row {
        let hash = self.hasher.hash_one((parent, frame));
        let (nodes, hasher) = (&self.nodes, &self.hasher);
        let is_same = |&index: &u32| {
            nodes
                .get(index as usize)
                .is_some_and(|node| (node.0, node.1) == (parent, frame))
        };
        if let Some(&index) = self.node_index.find(hash, is_same) {
            return Row {
                index,
                is_new: false,
            };
        }
        let index = next_index(self.nodes.len());
        let rehash = |&index: &u32| {
            nodes
                .get(index as usize)
                .map_or(0, |node| hasher.hash_one((node.0, node.1)))
        };
        self.node_index.insert_unique(hash, index, rehash);
        let raw = self.raw.get(frame as usize).copied().unwrap_or_default();
        self.nodes.push((parent, frame, raw));
        Row {
            index,
            is_new: true,
        }
    }

    /// The rows of a stack, outermost first, with their raw addresses.
    pub(crate) fn rows(&self, mut node: u32) -> Vec<(FrameRow, u64)> {
        let mut rows = Vec::new();
        while let Some(&(parent, frame, raw)) = self.nodes.get(node as usize) {
            if let Some(row) = self.frames.get(frame as usize) {
                rows.push((*row, raw));
            }
            node = parent;
        }
        rows.reverse();
        rows
    }
}

fn next_index(length: usize) -> u32 {
    // SANITY: an epoch ends long before
    u32::try_from(length).expect("tables of an epoch stay small")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> Tables {
        Tables::new(TableLimits {
            nodes: 100,
            frames: 100,
        })
    }

    fn frame(address: u64) -> FrameRow {
        let kind = FrameKind::UserCaller;
        FrameRow {
            kind,
            address: Addr(address),
            module: None,
            offset: FileOffset(address),
        }
    }

    fn stack(tables: &mut Tables, addresses: &[u64]) -> u32 {
        addresses.iter().rev().fold(ROOT, |parent, &address| {
            let row = tables.frame(frame(address), address);
            tables.node(parent, row.index).index
        })
    }

    /// Check that stacks with a common outer part share its nodes, and equal ones are the same node.
    #[test]
    fn prefixes_are_shared() {
        let mut tables = tables();
        let first = stack(&mut tables, &[1, 2, 3]);
        let second = stack(&mut tables, &[4, 2, 3]);
        assert_ne!(first, second);
        assert_eq!(tables.nodes.len(), 4);
        assert_eq!(stack(&mut tables, &[1, 2, 3]), first);
        let raws: Vec<u64> = tables.rows(second).iter().map(|(_, raw)| *raw).collect();
        assert_eq!(raws, [3, 2, 4]);
    }

    /// Check that a frame of the same row at another raw address is another frame.
    #[test]
    fn raw_addresses_tell_frames_apart() {
        let mut tables = tables();
        let row = FrameRow {
            kind: FrameKind::KernelCaller,
            ..frame(0)
        };
        assert_ne!(tables.frame(row, 1).index, tables.frame(row, 2).index);
        assert!(!tables.frame(row, 1).is_new);
    }
}
