//! Version 1 of every record kind: rows to rkyv roots and back.
//!
//! rkyv has no schema evolution, so a layout here never changes: a changed kind gets a new version in a new module, and
//! this one stays to read what was written. Roots are flat: `Vec<u8>` columns and plain numbers, nothing else. Reading
//! is the checked access of rkyv, then the copy into rows with every number checked; rkyv's own deserialisation is not
//! used.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use rkyv::api::high::{HighSerializer, HighValidator, to_bytes_in};
use rkyv::bytecheck::CheckBytes;
use rkyv::rancor;
use rkyv::ser::allocator::ArenaHandle;
use rkyv::util::AlignedVec;
use rkyv::{Portable, Serialize};

use crate::chunk::Kind;
use crate::error::Invalid;
use crate::record::Record;

mod batch;
mod blobs;
pub mod bound;
pub(crate) mod column;
mod copies;
#[cfg(test)]
mod hostile;
mod kernel;
mod layout;
mod part;
mod pieces;
mod recording;
mod samples;
mod stacks;
mod tables;

/// Version of every kind in this module.
pub(crate) const VERSION: u8 = 1;

/// Most rows of one table in one chunk. Columns of zeros take no bytes, so the length of a chunk does not bound them.
pub const MAX_ROWS: usize = 1 << 16;

/// A hash table for small keys: seeded at random, so that no archive can choose its collisions.
type Map<K, V> = HashMap<K, V, RandomState>;

/// Number of rows as it is stored.
pub(crate) fn row_count<T>(rows: &[T]) -> Result<u32, Invalid> {
    u32::try_from(rows.len())
        .ok()
        .filter(|_| rows.len() <= MAX_ROWS)
        .ok_or(Invalid::Rows)
}

/// Number of rows as it is used.
pub(crate) fn checked_rows(rows: u32) -> Result<usize, Invalid> {
    let rows = rows as usize;
    if rows <= MAX_ROWS {
        Ok(rows)
    } else {
        Err(Invalid::Rows)
    }
}

/// Turn `record` into the bytes of its root, in `raw`'s memory.
pub(crate) fn encode(record: &Record, raw: AlignedVec) -> Result<AlignedVec, Invalid> {
    match record {
        Record::Recording(recording) => to_bytes(&recording::encode(recording)?, raw),
        Record::KernelSymbols(symbols) => to_bytes(&kernel::encode_symbols(symbols)?, raw),
        Record::KernelModules(modules) => to_bytes(&kernel::encode_modules(modules)?, raw),
        Record::Vdso(vdso) => to_bytes(&kernel::encode_vdso(vdso)?, raw),
        Record::Batch(batch) => to_bytes(&batch::encode(batch)?, raw),
        Record::JitMap(map) => to_bytes(&pieces::encode_jit_map(map), raw),
        Record::Runs(runs) => to_bytes(&recording::encode_runs(runs)?, raw),
        Record::StackCopies(copies) => to_bytes(&copies::encode(copies)?, raw),
        Record::End(end) => to_bytes(&recording::encode_end(end), raw),
        Record::Part(part) => to_bytes(&part::encode(part)?, raw),
    }
}

/// Turn the bytes of a root of `kind` into a record; `None` for a kind that this version does not have.
pub(crate) fn decode(kind: Kind, raw: &AlignedVec) -> Result<Option<Record>, Invalid> {
    Ok(Some(match kind {
        Kind::RECORDING => Record::Recording(recording::decode(access(raw)?)?),
        Kind::KERNEL_SYMBOLS => Record::KernelSymbols(kernel::decode_symbols(access(raw)?)?),
        Kind::KERNEL_MODULES => Record::KernelModules(kernel::decode_modules(access(raw)?)?),
        Kind::VDSO => Record::Vdso(kernel::decode_vdso(access(raw)?)?),
        Kind::BATCH => Record::Batch(batch::decode(access(raw)?)?),
        Kind::JIT_MAP => Record::JitMap(pieces::decode_jit_map(access(raw)?)?),
        Kind::RUNS => Record::Runs(recording::decode_runs(access(raw)?)?),
        Kind::STACK_COPIES => Record::StackCopies(copies::decode(access(raw)?)?),
        Kind::END => Record::End(recording::decode_end(access(raw)?)),
        Kind::PART => Record::Part(part::decode(access(raw)?)?),
        _ => return Ok(None),
    }))
}

/// Positions in a root's bytes where a new zstd block pays: around the columns that hold most of what zstd cannot find.
pub(crate) fn block_ends(kind: Kind, raw: &AlignedVec) -> Vec<usize> {
    match kind {
        Kind::BATCH => access(raw).map_or(Vec::new(), |root| batch::block_ends(root, raw)),
        _ => Vec::new(),
    }
}

/// Serialize a root.
pub(crate) fn to_bytes<T>(root: &T, mut raw: AlignedVec) -> Result<AlignedVec, Invalid>
where
    T: for<'a> Serialize<HighSerializer<AlignedVec, ArenaHandle<'a>, rancor::Error>>,
{
    raw.clear();
    to_bytes_in(root, raw).map_err(|_| Invalid::Layout)
}

/// Check the bytes of a root, whose integrity a checksum has shown, and look at it.
pub(crate) fn access<T>(raw: &AlignedVec) -> Result<&T, Invalid>
where
    T: Portable + for<'a> CheckBytes<HighValidator<'a, rancor::Error>>,
{
    rkyv::access::<T, rancor::Error>(raw).map_err(|_| Invalid::Layout)
}
