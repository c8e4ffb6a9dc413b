//! Upper bounds of what rows take in a chunk, so that a writer can close a batch before it is too large.
//!
//! A batch takes at most [`BASE`] and the bounds of its rows; it fits a chunk while that sum is at most
//! [`MAX_RAW_LEN`] and no table has more than [`MAX_ROWS`] rows. Adding the bound
//! of each row while rows come in costs an addition a row.

use std::mem;

use super::MAX_ROWS;
use super::batch::ArchivedBatchRoot;
use super::kernel::padding_distance;
use crate::MAX_RAW_LEN;
use crate::record::{
    Batch, Completion, Drop, Frame, JitMap, KernelSymbol, KernelSymbols, Mapping, Module, Process,
    Sample, StackNode, Thread,
};

/// A batch without rows, in bytes.
pub const BASE: usize = size_of::<ArchivedBatchRoot>() + 64;

/// A blob's length.
const BLOB: usize = 4;

impl Sample {
    /// Most bytes that a sample takes in a chunk.
    pub const RAW_BOUND: usize = 4 * 8 + 9 * 4 + 1;
}

impl Completion {
    /// Most bytes that a completion takes in a chunk.
    pub const RAW_BOUND: usize = 2 * 8 + 2 * 4 + 1;
}

impl Drop {
    /// Most bytes that a drop takes in a chunk.
    pub const RAW_BOUND: usize = 3 * 8 + 4 + 1;
}

impl Frame {
    /// Most bytes that a frame takes in a chunk.
    pub const RAW_BOUND: usize = 2 * 8 + 4 + 1;
}

impl StackNode {
    /// Most bytes that a stack node takes in a chunk.
    pub const RAW_BOUND: usize = 2 * 4;
}

impl Process {
    /// Most bytes that this row takes in a chunk.
    pub fn raw_bound(&self) -> usize {
        3 * 4 + 2 * 8 + 2 * BLOB + self.comm.len() + self.cgroup.len()
    }
}

impl Thread {
    /// Most bytes that this row takes in a chunk.
    pub fn raw_bound(&self) -> usize {
        2 * 4 + 2 * 8 + BLOB + self.comm.len()
    }
}

impl Module {
    /// Most bytes that this row takes in a chunk.
    pub fn raw_bound(&self) -> usize {
        let ids = self.build_id.as_ref().map_or(0, |id| id.as_bytes().len())
            + self.content_hash.map_or(0, |h| h.len());
        1 + 1 + 2 + 4 + 4 + 3 * BLOB + ids + self.path.len() + self.segments.len() * (3 * 8 + 4)
    }
}

impl Mapping {
    /// Most bytes that this row takes in a chunk.
    pub fn raw_bound(&self) -> usize {
        5 * 8 + 5 * 4 + BLOB + self.path.len()
    }
}

impl Batch {
    /// Most bytes that this batch takes in a chunk. Looks at every row that holds text.
    pub fn raw_bound(&self) -> usize {
        BASE + self.processes.iter().map(Process::raw_bound).sum::<usize>()
            + self.threads.iter().map(Thread::raw_bound).sum::<usize>()
            + self.modules.iter().map(Module::raw_bound).sum::<usize>()
            + self.mappings.iter().map(Mapping::raw_bound).sum::<usize>()
            + self.frames.len() * Frame::RAW_BOUND
            + self.stacks.len() * StackNode::RAW_BOUND
            + self.samples.len() * Sample::RAW_BOUND
            + self.completions.len() * Completion::RAW_BOUND
            + self.drops.len() * Drop::RAW_BOUND
    }
}

/// Room that is left for what a chunk does not share with its parts: root, build ID, alignment.
const PART_BASE: usize = 4096;

impl KernelSymbols {
    /// Cut into parts that fit a chunk each, and number them. Without symbols there is one part.
    pub fn split(self) -> Vec<Self> {
        const ROOM: usize = MAX_RAW_LEN - PART_BASE;
        let bound = |s: &KernelSymbol| 8 + 1 + 4 + 1 + 2 * BLOB + s.name.len() + s.module.len();
        let mut lists = Vec::new();
        let mut list: Vec<KernelSymbol> = Vec::new();
        let (mut rows, mut room) = (0, ROOM);
        for symbol in self.symbols {
            // A symbol and its padding take one row, and the padding was counted with the longer name.
            if list
                .last()
                .is_none_or(|last| padding_distance(last, &symbol) == 0)
            {
                let needed = bound(&symbol);
                if needed > room || rows == MAX_ROWS {
                    lists.push(mem::take(&mut list));
                    (rows, room) = (0, ROOM);
                }
                room = room.saturating_sub(needed);
                rows += 1;
            }
            list.push(symbol);
        }
        lists.push(list);
        let parts = u32::try_from(lists.len()).unwrap_or(u32::MAX);
        let (build_id, text_size) = (self.build_id, self.text_size);
        let part = |(part, symbols)| Self {
            part,
            parts,
            build_id: build_id.clone(),
            text_size,
            symbols,
        };
        (0..).zip(lists).map(part).collect()
    }
}

impl JitMap {
    /// Cut into pieces that fit a chunk each.
    pub fn split(self) -> Vec<Self> {
        const PIECE: usize = MAX_RAW_LEN - PART_BASE;
        if self.bytes.len() <= PIECE {
            return vec![self];
        }
        let mut position = self.position;
        let piece = |bytes: &[u8]| {
            let piece = Self {
                bytes: bytes.to_vec(),
                position,
                ..self
            };
            position += bytes.len() as u64;
            piece
        };
        self.bytes.chunks(PIECE).map(piece).collect()
    }
}
