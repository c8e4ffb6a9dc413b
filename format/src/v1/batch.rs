//! The root of a batch chunk, and the checks that hold for rows on both ways.

use rkyv::{Archive, Serialize};

use super::blobs::{BlobReader, BlobWriter, Blobs};
use super::samples::{
    Completions, Drops, Samples, decode_completions, decode_drops, decode_samples,
    encode_completions, encode_drops, encode_samples,
};
use super::stacks::{Frames, Stacks, decode_frames, decode_stacks, encode_frames, encode_stacks};
use super::tables::{
    Mappings, Modules, Processes, Threads, decode_mappings, decode_modules, decode_processes,
    decode_threads, encode_mappings, encode_modules, encode_processes, encode_threads,
};
use crate::error::Invalid;
use crate::record::Batch;

/// Samples from which on a plane of a column gets a zstd block of its own: the block costs about 100 bytes.
const MIN_BLOCK: usize = 512;

/// Batch chunk.
#[derive(Archive, Serialize)]
pub(crate) struct BatchRoot {
    pub(crate) epoch: u32,
    pub(crate) first_module: u32,
    pub(crate) first_frame: u32,
    pub(crate) first_stack: u32,
    pub(crate) processes: Processes,
    pub(crate) threads: Threads,
    pub(crate) modules: Modules,
    pub(crate) mappings: Mappings,
    /// Byte strings of processes, threads, modules and mappings, in this order.
    pub(crate) blobs: Blobs,
    pub(crate) frames: Frames,
    pub(crate) stacks: Stacks,
    pub(crate) completions: Completions,
    pub(crate) drops: Drops,
    pub(crate) samples: Samples,
}

pub(crate) fn encode(batch: &Batch) -> Result<BatchRoot, Invalid> {
    check(batch)?;
    let mut blobs = BlobWriter::default();
    Ok(BatchRoot {
        epoch: batch.epoch,
        first_module: batch.first_module,
        first_frame: batch.first_frame,
        first_stack: batch.first_stack,
        processes: encode_processes(&batch.processes, &mut blobs)?,
        threads: encode_threads(&batch.threads, &mut blobs)?,
        modules: encode_modules(&batch.modules, &mut blobs)?,
        mappings: encode_mappings(&batch.mappings, &mut blobs)?,
        blobs: blobs.finish()?,
        frames: encode_frames(&batch.frames)?,
        stacks: encode_stacks(&batch.stacks, batch.first_stack)?,
        completions: encode_completions(&batch.completions)?,
        drops: encode_drops(&batch.drops)?,
        samples: encode_samples(&batch.samples)?,
    })
}

pub(crate) fn decode(a: &ArchivedBatchRoot) -> Result<Batch, Invalid> {
    let mut blobs = BlobReader::new(&a.blobs)?;
    let first_stack = a.first_stack.to_native();
    first_stack
        .checked_add(a.stacks.rows.to_native())
        .ok_or(Invalid::Reference)?;
    let batch = Batch {
        epoch: a.epoch.to_native(),
        first_module: a.first_module.to_native(),
        first_frame: a.first_frame.to_native(),
        first_stack,
        processes: decode_processes(&a.processes, &mut blobs)?,
        threads: decode_threads(&a.threads, &mut blobs)?,
        modules: decode_modules(&a.modules, &mut blobs)?,
        mappings: decode_mappings(&a.mappings, &mut blobs)?,
        frames: decode_frames(&a.frames)?,
        stacks: decode_stacks(&a.stacks, first_stack)?,
        samples: decode_samples(&a.samples)?,
        completions: decode_completions(&a.completions)?,
        drops: decode_drops(&a.drops)?,
    };
    blobs.finish()?;
    check(&batch)?;
    Ok(batch)
}

/// Positions in the bytes of a root where another column of samples begins or ends.
pub(crate) fn block_ends(a: &ArchivedBatchRoot, raw: &[u8]) -> Vec<usize> {
    let rows = a.samples.rows.to_native() as usize;
    if rows < MIN_BLOCK {
        return Vec::new();
    }
    let columns = [&a.samples.user[..], &a.samples.time[..]];
    let planes = columns.iter().flat_map(|column| column.chunks_exact(rows));
    let position = |plane: &[u8]| (plane.as_ptr() as usize).wrapping_sub(raw.as_ptr() as usize);
    let mut ends: Vec<usize> = planes
        .flat_map(|plane| [position(plane), position(plane) + plane.len()])
        .collect();
    ends.dedup();
    ends
}

/// Check that every index points at a row that is written by the end of this batch, and a stack's parent at an earlier
/// one. Whether rows of earlier batches are really there is for the reader of the whole epoch to see: chunks get lost.
fn check(batch: &Batch) -> Result<(), Invalid> {
    let modules = end(batch.first_module, batch.modules.len())?;
    let frames = end(batch.first_frame, batch.frames.len())?;
    let stacks = end(batch.first_stack, batch.stacks.len())?;
    let is_module = |index: Option<u32>| index.is_none_or(|index| index < modules);
    let is_stack = |index: Option<u32>| index.is_none_or(|index| index < stacks);
    let ok = batch.mappings.iter().all(|m| is_module(m.module.get()))
        && batch.frames.iter().all(|f| is_module(f.module.get()))
        && batch.stacks.iter().all(|s| s.frame.0 < frames)
        && batch
            .stacks
            .iter()
            .zip(batch.first_stack..)
            .all(|(s, own)| s.parent.get().is_none_or(|p| p < own))
        && batch
            .samples
            .iter()
            .all(|s| is_stack(s.kernel.get()) && is_stack(s.user.get()))
        && batch.completions.iter().all(|c| is_stack(c.user.get()));
    if ok { Ok(()) } else { Err(Invalid::Reference) }
}

/// Index behind the last row of a table; the largest `u32` is no index.
fn end(first: u32, rows: usize) -> Result<u32, Invalid> {
    u32::try_from(rows)
        .ok()
        .and_then(|rows| first.checked_add(rows))
        .ok_or(Invalid::Reference)
}
