//! Frames and stack nodes as columns.

use rkyv::{Archive, Serialize};

use super::column::{apply, difference, pack, pack_deltas32, unpack, unpack_as, unpack_deltas32};
use super::{Map, checked_rows, row_count};
use crate::error::Invalid;
use crate::id::{Addr, FileOffset, FrameIndex, ModuleIndex, StackIndex};
use crate::record::{Frame, FrameKind, StackNode};

/// Frame table.
#[derive(Archive, Serialize)]
pub(crate) struct Frames {
    pub(crate) rows: u32,
    pub(crate) kind: Vec<u8>,
    pub(crate) module: Vec<u8>,
    /// Difference to the offset of the last frame in the same module.
    pub(crate) offset: Vec<u8>,
    /// Difference to the bias of the last frame in the same module.
    pub(crate) bias: Vec<u8>,
}

/// Stack node table.
#[derive(Archive, Serialize)]
pub(crate) struct Stacks {
    pub(crate) rows: u32,
    /// Own index minus the parent's; 0 for none.
    pub(crate) parent: Vec<u8>,
    pub(crate) frame: Vec<u8>,
}

/// Index as stored: none is 0, so that what mostly is none takes no space.
pub(crate) fn index_code(index: u32) -> u32 {
    index.wrapping_add(1)
}

/// Undo [`index_code`].
pub(crate) fn index_of(code: u32) -> u32 {
    code.wrapping_sub(1)
}

/// Last frame of a module: its offset, and what its address adds to that, which is the same for a whole mapping.
#[derive(Clone, Copy, Default)]
struct Before {
    offset: u64,
    bias: u64,
}

/// What a frame's bias counts from: the offset, but nothing for the kernel's frames, which have no address.
fn bias_base(kind: FrameKind, offset: u64) -> u64 {
    match kind {
        FrameKind::UserLeaf | FrameKind::UserCaller => offset,
        FrameKind::KernelLeaf | FrameKind::KernelCaller => 0,
    }
}

pub(crate) fn encode_frames(frames: &[Frame]) -> Result<Frames, Invalid> {
    let mut before: Map<u32, Before> = Map::default();
    let (mut offsets, mut biases) = (Vec::new(), Vec::new());
    for frame in frames {
        let known = before.entry(frame.module.0).or_default();
        let offset = frame.offset.0;
        let now = Before {
            offset,
            bias: frame.address.0.wrapping_sub(bias_base(frame.kind, offset)),
        };
        offsets.push(difference(known.offset, offset));
        biases.push(difference(known.bias, now.bias));
        *known = now;
    }
    Ok(Frames {
        rows: row_count(frames)?,
        kind: pack(frames.iter().map(|f| f.kind as u8)),
        module: pack(frames.iter().map(|f| index_code(f.module.0))),
        offset: pack(offsets),
        bias: pack(biases),
    })
}

pub(crate) fn decode_frames(a: &ArchivedFrames) -> Result<Vec<Frame>, Invalid> {
    let rows = checked_rows(a.rows.to_native())?;
    let kinds: Vec<u8> = unpack_as(&a.kind, rows)?;
    let modules: Vec<u32> = unpack_as(&a.module, rows)?;
    let offsets = unpack(&a.offset, rows)?;
    let biases = unpack(&a.bias, rows)?;
    let mut before: Map<u32, Before> = Map::default();
    let mut frames = Vec::with_capacity(rows);
    for row in 0..rows {
        let module = index_of(modules[row]);
        let known = before.entry(module).or_default();
        let kind = frame_kind(kinds[row])?;
        let offset = apply(known.offset, offsets[row]);
        let bias = apply(known.bias, biases[row]);
        *known = Before { offset, bias };
        frames.push(Frame {
            kind,
            address: Addr(bias.wrapping_add(bias_base(kind, offset))),
            module: ModuleIndex(module),
            offset: FileOffset(offset),
        });
    }
    Ok(frames)
}

fn frame_kind(number: u8) -> Result<FrameKind, Invalid> {
    Ok(match number {
        0 => FrameKind::UserLeaf,
        1 => FrameKind::UserCaller,
        2 => FrameKind::KernelLeaf,
        3 => FrameKind::KernelCaller,
        _ => return Err(Invalid::Value),
    })
}

pub(crate) fn encode_stacks(stacks: &[StackNode], first: u32) -> Result<Stacks, Invalid> {
    let parents = stacks
        .iter()
        .zip(first..)
        .map(|(node, own)| match node.parent.get() {
            Some(parent) => own.wrapping_sub(parent),
            None => 0,
        });
    Ok(Stacks {
        rows: row_count(stacks)?,
        parent: pack(parents),
        frame: pack_deltas32(stacks.iter().map(|node| node.frame.0)),
    })
}

pub(crate) fn decode_stacks(a: &ArchivedStacks, first: u32) -> Result<Vec<StackNode>, Invalid> {
    let rows = checked_rows(a.rows.to_native())?;
    let parents: Vec<u32> = unpack_as(&a.parent, rows)?;
    let frames = unpack_deltas32(&a.frame, rows)?;
    let node = |((distance, frame), own): ((u32, u32), u32)| {
        let parent = match distance {
            0 => StackIndex::NONE,
            _ => StackIndex(own.checked_sub(distance).ok_or(Invalid::Reference)?),
        };
        Ok(StackNode {
            parent,
            frame: FrameIndex(frame),
        })
    };
    parents
        .into_iter()
        .zip(frames)
        .zip(first..)
        .map(node)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that no entry is the code 0 and that every index comes back.
    #[test]
    fn index_codes() {
        assert_eq!(index_code(ModuleIndex::NONE.0), 0);
        for index in [0, 1, u32::MAX - 1, u32::MAX] {
            assert_eq!(index_of(index_code(index)), index);
        }
    }
}
