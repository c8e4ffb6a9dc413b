//! Stack copies in version 1, each with its bytes whole. No recorder ever wrote them; they are read all the same, into
//! the rows of version 2.

use rkyv::Archive;

use super::blobs::{BlobReader, Blobs};
use super::checked_rows;
use super::column::{unpack, unpack_as, unpack_deltas};
use crate::copies::{CopiesBuilder, NewCopy, Registers, StackCopies};
use crate::error::Invalid;
use crate::id::{Addr, StackId};

/// Stack copies chunk. Blobs: bytes of each copy.
#[derive(Archive)]
#[cfg_attr(test, derive(rkyv::Serialize))]
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "only read, in its archived form")
)]
pub(crate) struct StackCopiesRoot {
    pub(crate) rows: u32,
    /// Rows of the register columns: all copies' registers one after the other.
    pub(crate) registers: u32,
    pub(crate) owner: Vec<u8>,
    /// ID of another copy that the bytes would differ from; without meaning where they are plain.
    pub(crate) base: Vec<u8>,
    pub(crate) machine: Vec<u8>,
    pub(crate) start: Vec<u8>,
    /// 0: plain. No other was ever defined.
    pub(crate) coding: Vec<u8>,
    /// Bytes that the stack really had.
    pub(crate) size: Vec<u8>,
    pub(crate) register_count: Vec<u8>,
    pub(crate) register_number: Vec<u8>,
    pub(crate) register_value: Vec<u8>,
    pub(crate) blobs: Blobs,
}

pub(crate) fn decode(a: &ArchivedStackCopiesRoot) -> Result<StackCopies, Invalid> {
    let rows = checked_rows(a.rows.to_native())?;
    let owners = unpack_deltas(&a.owner, rows)?;
    let machines: Vec<u16> = unpack_as(&a.machine, rows)?;
    let starts = unpack_deltas(&a.start, rows)?;
    let sizes = unpack(&a.size, rows)?;
    let counts: Vec<u32> = unpack_as(&a.register_count, rows)?;
    if unpack(&a.coding, rows)?.iter().any(|&coding| coding != 0) {
        return Err(Invalid::Value);
    }
    let all = decode_registers(a)?;
    let mut rest = all.as_slice();
    let mut blobs = BlobReader::new(&a.blobs)?;
    let mut builder = CopiesBuilder::default();
    for row in 0..rows {
        let (own, behind) = rest
            .split_at_checked(counts[row] as usize)
            .ok_or(Invalid::Rows)?;
        rest = behind;
        let bytes = blobs.bytes()?;
        let end = starts[row].checked_add(sizes[row]);
        let copy = NewCopy {
            owner: StackId(owners[row]),
            machine: machines[row],
            registers: registers(own)?,
            start: Addr(starts[row]),
            end: Addr(end.ok_or(Invalid::Value)?),
            asked: bytes.len() as u64,
            bytes,
            ..NewCopy::default()
        };
        // What was one chunk is one again.
        if !builder.push(&copy)? {
            return Err(Invalid::Rows);
        }
    }
    blobs.finish()?;
    if rest.is_empty() {
        Ok(builder.take())
    } else {
        Err(Invalid::Rows)
    }
}

fn registers(pairs: &[(u16, u64)]) -> Result<Registers, Invalid> {
    let mut registers = Registers::default();
    let all_known = pairs
        .iter()
        .all(|&(number, value)| registers.set(number, value));
    all_known.then_some(registers).ok_or(Invalid::Value)
}

fn decode_registers(a: &ArchivedStackCopiesRoot) -> Result<Vec<(u16, u64)>, Invalid> {
    let rows = checked_rows(a.registers.to_native())?;
    let numbers: Vec<u16> = unpack_as(&a.register_number, rows)?;
    Ok(numbers
        .into_iter()
        .zip(unpack(&a.register_value, rows)?)
        .collect())
}
