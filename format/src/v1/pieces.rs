//! Pieces of JIT maps and copies of stacks.

use rkyv::{Archive, Serialize};

use super::blobs::{BlobReader, BlobWriter, Blobs};
use super::column::{pack, pack_deltas, unpack, unpack_as, unpack_deltas};
use super::{checked_rows, row_count};
use crate::error::Invalid;
use crate::id::{Addr, StackId};
use crate::record::{JitMap, StackCopy};

/// JIT map chunk.
#[derive(Archive, Serialize)]
pub(crate) struct JitMapRoot {
    pub(crate) time_ns: u64,
    pub(crate) position: u64,
    pub(crate) pid: u32,
    pub(crate) kind: u32,
    pub(crate) bytes: Vec<u8>,
}

/// Stack copies chunk. Blobs: bytes of each copy.
#[derive(Archive, Serialize)]
pub(crate) struct StackCopiesRoot {
    pub(crate) rows: u32,
    /// Rows of the register columns: all copies' registers one after the other.
    pub(crate) registers: u32,
    pub(crate) owner: Vec<u8>,
    pub(crate) base: Vec<u8>,
    pub(crate) machine: Vec<u8>,
    pub(crate) start: Vec<u8>,
    pub(crate) coding: Vec<u8>,
    pub(crate) size: Vec<u8>,
    pub(crate) register_count: Vec<u8>,
    pub(crate) register_number: Vec<u8>,
    pub(crate) register_value: Vec<u8>,
    pub(crate) blobs: Blobs,
}

pub(crate) fn encode_jit_map(map: &JitMap) -> JitMapRoot {
    JitMapRoot {
        time_ns: map.time_ns,
        position: map.position,
        pid: map.pid,
        kind: map.kind.into(),
        bytes: map.bytes.clone(),
    }
}

pub(crate) fn decode_jit_map(a: &ArchivedJitMapRoot) -> Result<JitMap, Invalid> {
    Ok(JitMap {
        pid: a.pid.to_native(),
        kind: u8::try_from(a.kind.to_native()).map_err(|_| Invalid::Value)?,
        time_ns: a.time_ns.to_native(),
        position: a.position.to_native(),
        bytes: a.bytes.to_vec(),
    })
}

pub(crate) fn encode_copies(copies: &[StackCopy]) -> Result<StackCopiesRoot, Invalid> {
    let mut blobs = BlobWriter::default();
    copies.iter().for_each(|copy| blobs.push(&copy.bytes));
    let registers: Vec<(u16, u64)> = copies
        .iter()
        .flat_map(|c| c.registers.iter().copied())
        .collect();
    Ok(StackCopiesRoot {
        rows: row_count(copies)?,
        registers: row_count(&registers)?,
        owner: pack_deltas(copies.iter().map(|c| c.owner.0)),
        base: pack(copies.iter().map(|c| c.base.0)),
        machine: pack(copies.iter().map(|c| c.machine)),
        start: pack_deltas(copies.iter().map(|c| c.start.0)),
        coding: pack(copies.iter().map(|c| c.coding)),
        size: pack(copies.iter().map(|c| c.size)),
        register_count: pack(copies.iter().map(|c| c.registers.len() as u64)),
        register_number: pack(registers.iter().map(|&(number, _)| number)),
        register_value: pack(registers.iter().map(|&(_, value)| value)),
        blobs: blobs.finish()?,
    })
}

pub(crate) fn decode_copies(a: &ArchivedStackCopiesRoot) -> Result<Vec<StackCopy>, Invalid> {
    let rows = checked_rows(a.rows.to_native())?;
    let owners = unpack_deltas(&a.owner, rows)?;
    let bases = unpack(&a.base, rows)?;
    let machines: Vec<u16> = unpack_as(&a.machine, rows)?;
    let starts = unpack_deltas(&a.start, rows)?;
    let codings: Vec<u16> = unpack_as(&a.coding, rows)?;
    let sizes = unpack(&a.size, rows)?;
    let counts: Vec<u32> = unpack_as(&a.register_count, rows)?;
    let all = decode_registers(a)?;
    let mut rest = all.as_slice();
    let mut blobs = BlobReader::new(&a.blobs)?;
    let mut copies = Vec::with_capacity(rows);
    for row in 0..rows {
        let (registers, behind) = rest
            .split_at_checked(counts[row] as usize)
            .ok_or(Invalid::Rows)?;
        rest = behind;
        copies.push(StackCopy {
            owner: StackId(owners[row]),
            base: StackId(bases[row]),
            machine: machines[row],
            registers: registers.to_vec(),
            start: Addr(starts[row]),
            bytes: blobs.bytes()?.to_vec(),
            coding: codings[row],
            size: sizes[row],
        });
    }
    blobs.finish()?;
    if rest.is_empty() {
        Ok(copies)
    } else {
        Err(Invalid::Rows)
    }
}

fn decode_registers(a: &ArchivedStackCopiesRoot) -> Result<Vec<(u16, u64)>, Invalid> {
    let rows = checked_rows(a.registers.to_native())?;
    let numbers: Vec<u16> = unpack_as(&a.register_number, rows)?;
    Ok(numbers
        .into_iter()
        .zip(unpack(&a.register_value, rows)?)
        .collect())
}
