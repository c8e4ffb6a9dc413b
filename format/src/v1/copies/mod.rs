//! Stack copies as columns, in groups by what they tell.

use rkyv::{Archive, Serialize};

use crate::copies::StackCopies;
use crate::error::Invalid;

pub(super) mod extents;
#[cfg(test)]
mod hostile;
pub(super) mod returns;
pub(super) mod rows;
pub(super) mod words;

use extents::Extents;
use returns::Returns;
use rows::Rows;
use words::Words;

/// Stack copies chunk.
#[derive(Archive, Serialize)]
pub(crate) struct StackCopiesRoot {
    pub(crate) rows: Rows,
    pub(crate) extents: Extents,
    pub(crate) returns: Returns,
    pub(crate) words: Words,
}

pub(crate) fn encode(copies: &StackCopies) -> Result<StackCopiesRoot, Invalid> {
    copies.check()?;
    Ok(StackCopiesRoot {
        rows: rows::encode(copies)?,
        extents: extents::encode(copies)?,
        returns: returns::encode(copies)?,
        words: words::encode(copies)?,
    })
}

pub(crate) fn decode(a: &ArchivedStackCopiesRoot) -> Result<StackCopies, Invalid> {
    let mut copies = rows::decode(&a.rows)?;
    extents::decode(&a.extents, &mut copies)?;
    returns::decode(&a.returns, &mut copies)?;
    words::decode(&a.words, &mut copies)?;
    copies.check()?;
    Ok(copies)
}
