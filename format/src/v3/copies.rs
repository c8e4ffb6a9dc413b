//! Stack copies with what unwinding needs of uretprobes and of the program, and words by what they are: behind the columns
//! of version 2. Version 4 holds this one.

use rkyv::{Archive, Serialize};

use super::words::{self, Words};
use crate::copies::{ReturnAddress, StackCopies};
use crate::error::Invalid;
use crate::id::Addr;
use crate::v1::column::{apply, difference, pack, unpack, unpack_as};
use crate::v1::{checked_rows, row_count};
use crate::v2::copies::{StackCopiesRoot as Stacks, decode_unchecked, encode as encode_stacks};

/// Stack copies chunk.
#[derive(Archive, Serialize)]
pub(crate) struct StackCopiesRoot {
    /// Without words.
    pub(crate) stacks: Stacks,
    pub(crate) words: Words,
    /// Rows of replaced return addresses.
    pub(crate) returns: u32,
    /// To that of the task's last row, as the trampoline.
    pub(crate) program_since: Vec<u8>,
    pub(crate) trampoline: Vec<u8>,
    pub(crate) return_count: Vec<u8>,
    /// To the row's `start`.
    pub(crate) return_place: Vec<u8>,
    pub(crate) return_address: Vec<u8>,
}

/// What a task's rows have in common.
#[derive(Clone, Copy, Default)]
struct Before {
    program_since: u64,
    trampoline: u64,
}

/// What version 3 can say of copies.
pub(crate) fn encode(copies: &StackCopies) -> Result<StackCopiesRoot, Invalid> {
    copies.check()?;
    let mut before = vec![Before::default(); copies.tasks.len()];
    let (mut since, mut trampolines, mut places) = (Vec::new(), Vec::new(), Vec::new());
    let mut returns = copies.returns.iter();
    for row in &copies.rows {
        let known = &mut before[row.task as usize];
        since.push(difference(known.program_since, row.program_since_ns));
        trampolines.push(difference(known.trampoline, row.trampoline.0));
        *known = Before {
            program_since: row.program_since_ns,
            trampoline: row.trampoline.0,
        };
        let own = returns.by_ref().take(row.returns as usize);
        places.extend(own.map(|own| difference(row.start.0, own.place.0)));
    }
    Ok(StackCopiesRoot {
        stacks: encode_stacks(copies, &[])?,
        words: words::encode(copies)?,
        returns: row_count(&copies.returns)?,
        program_since: pack(since),
        trampoline: pack(trampolines),
        return_count: pack(copies.rows.iter().map(|row| row.returns)),
        return_place: pack(places),
        return_address: pack(copies.returns.iter().map(|own| own.address.0)),
    })
}

pub(crate) fn decode(a: &ArchivedStackCopiesRoot) -> Result<StackCopies, Invalid> {
    with_words(decode_wordless(a)?, a)
}

/// All but the words, and check only that columns have their rows.
pub(crate) fn decode_wordless(a: &ArchivedStackCopiesRoot) -> Result<StackCopies, Invalid> {
    let mut copies = decode_unchecked(&a.stacks)?;
    let rows = copies.rows.len();
    let since = unpack(&a.program_since, rows)?;
    let trampolines = unpack(&a.trampoline, rows)?;
    let counts: Vec<u32> = unpack_as(&a.return_count, rows)?;
    let returns = checked_rows(a.returns.to_native())?;
    let mut places = unpack(&a.return_place, returns)?.into_iter();
    let mut addresses = unpack(&a.return_address, returns)?.into_iter();
    let mut before = vec![Before::default(); copies.tasks.len()];
    for (at, row) in copies.rows.iter_mut().enumerate() {
        let known = before.get_mut(row.task as usize);
        let known = known.ok_or(Invalid::Reference)?;
        known.program_since = apply(known.program_since, since[at]);
        known.trampoline = apply(known.trampoline, trampolines[at]);
        row.program_since_ns = known.program_since;
        row.trampoline = Addr(known.trampoline);
        row.returns = counts[at];
        let own = places.by_ref().zip(addresses.by_ref());
        let own = own
            .take(counts[at] as usize)
            .map(|(place, address)| ReturnAddress {
                place: Addr(apply(row.start.0, place)),
                address: Addr(address),
            });
        copies.returns.extend(own);
    }
    // What is left over belongs to no row.
    if places.next().is_some() {
        return Err(Invalid::Rows);
    }
    // Words have one place.
    if !copies.words.is_empty() {
        return Err(Invalid::Rows);
    }
    Ok(copies)
}

/// The same with the words, and all checked.
pub(crate) fn with_words(
    mut copies: StackCopies,
    a: &ArchivedStackCopiesRoot,
) -> Result<StackCopies, Invalid> {
    copies.words = words::decode(&a.words, &copies)?;
    copies.check()?;
    Ok(copies)
}
