//! Return addresses that uretprobes replaced.

use rkyv::{Archive, Serialize};

use crate::copies::{ReturnAddress, StackCopies};
use crate::error::Invalid;
use crate::id::Addr;
use crate::v1::column::{apply, difference, pack, unpack, unpack_as};
use crate::v1::{checked_rows, row_count};

/// Replaced return addresses.
#[derive(Archive, Serialize)]
pub(crate) struct Returns {
    pub(crate) returns: u32,
    /// A row for each copy.
    pub(crate) count: Vec<u8>,
    /// To the row's `start`.
    pub(crate) place: Vec<u8>,
    pub(crate) address: Vec<u8>,
}

pub(super) fn encode(copies: &StackCopies) -> Result<Returns, Invalid> {
    let mut returns = copies.returns.iter();
    let mut places = Vec::new();
    for row in &copies.rows {
        let own = returns.by_ref().take(row.returns as usize);
        places.extend(own.map(|own| difference(row.start.0, own.place.0)));
    }
    Ok(Returns {
        returns: row_count(&copies.returns)?,
        count: pack(copies.rows.iter().map(|row| row.returns)),
        place: pack(places),
        address: pack(copies.returns.iter().map(|own| own.address.0)),
    })
}

pub(super) fn decode(a: &ArchivedReturns, copies: &mut StackCopies) -> Result<(), Invalid> {
    let counts: Vec<u32> = unpack_as(&a.count, copies.rows.len())?;
    let returns = checked_rows(a.returns.to_native())?;
    let places = unpack(&a.place, returns)?;
    let mut pairs = places.into_iter().zip(unpack(&a.address, returns)?);
    for (row, count) in copies.rows.iter_mut().zip(counts) {
        row.returns = count;
        let own = pairs.by_ref().take(count as usize);
        copies
            .returns
            .extend(own.map(|(place, address)| ReturnAddress {
                place: Addr(apply(row.start.0, place)),
                address: Addr(address),
            }));
    }
    // What is left over belongs to no row.
    pairs.next().map_or(Ok(()), |_| Err(Invalid::Rows))
}
