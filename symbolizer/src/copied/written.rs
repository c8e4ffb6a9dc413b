//! Unwound stacks as rows of an archive's tables, in place of the copies that they came from. Knows no files.
//!
//! New frames and nodes stand behind those of a batch, so all indices behind them grow: they are told anew for each epoch.

use std::mem;

use foldhash::HashMap;
use rawstack_format::id::{FileOffset, FrameIndex, ModuleIndex, StackId, StackIndex};
use rawstack_format::record::{Batch, Frame, FrameKind, StackNode, State};

use super::Unwinding;
use super::end::{CopyEnd, EndCounts};
use super::job::UnwoundCopies;
use super::owners::Owners;
use crate::resolve::file_offset::AddressKind;
use crate::unwind::ModuleId;

/// Rows of a batch of new frames and nodes: well below what a chunk holds.
const ROWS: usize = 1 << 13;
/// Stands for rows that are lost: no table has so many.
const LOST: u32 = u32::MAX - 1;

/// Old indices of a table, and what they became.
#[derive(Debug, Default)]
struct Shift {
    /// First old index, number, first new index.
    runs: Vec<(u32, u32, u32)>,
    next: u32,
}

impl Shift {
    /// Rows that begin at `first` come behind all others.
    fn add(&mut self, first: u32, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.runs.push((first, count, self.next));
        self.next = self.next.saturating_add(count);
    }

    fn of(&self, old: u32) -> u32 {
        let after = self.runs.partition_point(|(first, _, _)| *first <= old);
        let run = after.checked_sub(1).and_then(|at| self.runs.get(at));
        let found = run.and_then(|&(first, count, new)| {
            let within = old - first;
            (within < count).then(|| new.saturating_add(within))
        });
        found.unwrap_or(LOST)
    }
}

/// A user half that was unwound, in the epoch's tables.
#[derive(Clone, Copy, Debug)]
struct Held {
    user: StackIndex,
    frames: u32,
    end: CopyEnd<ModuleId>,
}

/// The tables of an epoch as they are written.
#[derive(Debug, Default)]
struct Tables {
    epoch: u32,
    frames: Shift,
    stacks: Shift,
    /// Frames of each node with its callers, by new index.
    depths: Vec<u32>,
    modules: HashMap<ModuleId, ModuleIndex>,
    new_frames: HashMap<Frame, u32>,
    new_nodes: HashMap<StackNode, u32>,
    owners: Owners<Held>,
}

/// Puts unwound stacks into batches.
#[derive(Debug, Default)]
pub(crate) struct Rewriter {
    tables: Tables,
    has_any: bool,
    /// User halves by how they ended.
    pub(crate) ends: EndCounts<ModuleId>,
}

impl Rewriter {
    /// The batches that stand for `batch` of archive number `archive`, with what came of the copies before it.
    pub(crate) fn rewrite(
        &mut self,
        archive: u32,
        mut batch: Batch,
        done: Option<UnwoundCopies>,
        unwinding: &mut Unwinding,
    ) -> Vec<Batch> {
        if self.tables.epoch != batch.epoch {
            self.tables = Tables {
                epoch: batch.epoch,
                ..Tables::default()
            };
        }
        for (index, module) in (batch.first_module..).zip(&batch.modules) {
            let id = unwinding.module(archive, module);
            self.tables.modules.insert(id, ModuleIndex(index));
        }
        let own = self.tables.own_rows(&mut batch);
        let mut batches = vec![own];
        if let Some(done) = done {
            self.has_any |= !done.stacks.is_empty();
            batches.extend(self.tables.add(&done, batch.first_module));
        }
        self.choose(&mut batch);
        (batch.first_frame, batch.first_stack) = (self.tables.frames.next, self.tables.stacks.next);
        batches.push(batch);
        batches.retain(|batch| !is_empty(batch));
        batches
    }

    /// Give each sample of `batch` its user half.
    fn choose(&mut self, batch: &mut Batch) {
        for row in &mut batch.samples {
            row.kernel = self.tables.stack(row.kernel);
            row.user = self.tables.stack(row.user);
            if row.state != State::Pending {
                row.user = self.user_half(row.owner, row.user);
            }
        }
        for row in &mut batch.completions {
            row.user = self.tables.stack(row.user);
            row.user = self.user_half(row.owner, row.user);
        }
    }

    fn user_half(&mut self, owner: StackId, recorded: StackIndex) -> StackIndex {
        let Some(held) = self.tables.owners.get(owner) else {
            if self.has_any && recorded != StackIndex::NONE {
                self.ends.add(CopyEnd::NoCopy);
            }
            return recorded;
        };
        self.ends.add(held.end);
        let is_longer = held.frames >= self.tables.depth(recorded);
        if held.end.is_reached() || is_longer {
            held.user
        } else {
            recorded
        }
    }
}

impl Tables {
    /// Take the tables out of `batch`, with their new indices.
    fn own_rows(&mut self, batch: &mut Batch) -> Batch {
        let mut own = Batch {
            epoch: batch.epoch,
            first_module: batch.first_module,
            first_frame: self.frames.next,
            first_stack: self.stacks.next,
            processes: mem::take(&mut batch.processes),
            threads: mem::take(&mut batch.threads),
            modules: mem::take(&mut batch.modules),
            mappings: mem::take(&mut batch.mappings),
            frames: mem::take(&mut batch.frames),
            stacks: mem::take(&mut batch.stacks),
            ..Batch::default()
        };
        let modules = u32::try_from(own.modules.len()).unwrap_or(u32::MAX);
        batch.first_module = batch.first_module.saturating_add(modules);
        self.frames.add(batch.first_frame, own.frames.len());
        self.stacks.add(batch.first_stack, own.stacks.len());
        for node in &mut own.stacks {
            node.parent = self.stack(node.parent);
            node.frame = match node.frame.get() {
                Some(frame) => FrameIndex(self.frames.of(frame)),
                None => FrameIndex::NONE,
            };
            self.depths.push(self.depth(node.parent).saturating_add(1));
        }
        own
    }

    fn stack(&self, old: StackIndex) -> StackIndex {
        old.get()
            .map_or(StackIndex::NONE, |old| StackIndex(self.stacks.of(old)))
    }

    fn depth(&self, node: StackIndex) -> u32 {
        let depth = self.depths.get(node.0 as usize);
        depth.copied().unwrap_or(0)
    }

    /// Batches with the frames and nodes of unwound stacks that are not there yet.
    fn add(&mut self, done: &UnwoundCopies, first_module: u32) -> Vec<Batch> {
        let (first_frame, first_stack) = (self.frames.next, self.stacks.next);
        let (mut frames, mut nodes) = (Vec::new(), Vec::new());
        let mut frame_numbers = Vec::with_capacity(done.frames.len());
        for found in &done.frames {
            let module = found.module.and_then(|id| self.modules.get(&id)).copied();
            let frame = Frame {
                kind: match found.kind {
                    AddressKind::Exact => FrameKind::UserLeaf,
                    AddressKind::Return => FrameKind::UserCaller,
                },
                address: found.address,
                module: module.unwrap_or_default(),
                offset: module.map_or(FileOffset(0), |_| found.offset),
            };
            let next = self.frames.next;
            let number = *self.new_frames.entry(frame).or_insert(next);
            if number == next {
                self.frames.next += 1;
                frames.push(frame);
            }
            frame_numbers.push(number);
        }
        let mut node_numbers: Vec<u32> = Vec::with_capacity(done.nodes.len());
        for (parent, frame) in &done.nodes {
            let parent = node_numbers.get(*parent as usize).copied();
            let parent = parent.map_or(StackIndex::NONE, StackIndex);
            let frame = frame_numbers.get(*frame as usize).copied();
            let frame = frame.map_or(FrameIndex::NONE, FrameIndex);
            let node = StackNode { parent, frame };
            let next = self.stacks.next;
            let number = *self.new_nodes.entry(node).or_insert(next);
            if number == next {
                self.stacks.next += 1;
                self.depths.push(self.depth(parent).saturating_add(1));
                nodes.push(node);
            }
            node_numbers.push(number);
        }
        self.hold(done, &node_numbers);
        let base = Batch {
            epoch: self.epoch,
            first_module,
            first_frame,
            first_stack,
            ..Batch::default()
        };
        pieces(base, &frames, &nodes)
    }

    /// Know what came of the copies of this batch, and of each thread's last one.
    fn hold(&mut self, done: &UnwoundCopies, nodes: &[u32]) {
        self.owners.next_batch();
        for copy in &done.stacks {
            let user = nodes.get(copy.leaf as usize).copied();
            let user = user.map_or(StackIndex::NONE, StackIndex);
            let new = Held {
                user,
                frames: self.depth(user),
                end: copy.end,
            };
            self.owners.add(copy.owner, copy.task, new);
        }
    }
}

/// Frames and nodes in batches that each fit a chunk.
fn pieces(base: Batch, frames: &[Frame], nodes: &[StackNode]) -> Vec<Batch> {
    let mut batches = Vec::new();
    let mut next = base;
    let add = |next: &mut Batch, batch: Batch| {
        next.first_frame += u32::try_from(batch.frames.len()).unwrap_or(0);
        next.first_stack += u32::try_from(batch.stacks.len()).unwrap_or(0);
        batches.push(batch);
    };
    let mut add = add;
    for frames in frames.chunks(ROWS) {
        let batch = Batch {
            frames: frames.to_vec(),
            ..next.clone()
        };
        add(&mut next, batch);
    }
    for nodes in nodes.chunks(ROWS) {
        let batch = Batch {
            stacks: nodes.to_vec(),
            ..next.clone()
        };
        add(&mut next, batch);
    }
    batches
}

fn is_empty(batch: &Batch) -> bool {
    let empty = Batch {
        epoch: batch.epoch,
        first_module: batch.first_module,
        first_frame: batch.first_frame,
        first_stack: batch.first_stack,
        ..Batch::default()
    };
    *batch == empty
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that indices behind new rows grow, and that those of rows that are lost lead nowhere.
    #[test]
    fn shifted() {
        let mut shift = Shift::default();
        shift.add(0, 3);
        shift.next += 5;
        shift.add(3, 2);
        shift.add(9, 1);
        let new = [0, 2, 3, 4, 5, 9, 10].map(|old| shift.of(old));
        assert_eq!(new, [0, 2, 8, 9, LOST, 10, LOST]);
    }
}
