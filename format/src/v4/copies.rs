//! Stack copies with further spans, behind the columns of version 3.

use rkyv::{Archive, Serialize};

use crate::copies::{Span, StackCopies, WORD};
use crate::error::Invalid;
use crate::id::Addr;
use crate::v1::column::{apply, difference, pack, unpack, unpack_as};
use crate::v1::{checked_rows, row_count};
use crate::v3::copies::{
    StackCopiesRoot as Stacks, decode_wordless, encode as encode_stacks, with_words,
};

/// Stack copies chunk.
#[derive(Archive, Serialize)]
pub(crate) struct StackCopiesRoot {
    pub(crate) stacks: Stacks,
    /// Rows of spans.
    pub(crate) spans: u32,
    pub(crate) span_count: Vec<u8>,
    /// In words, to the row's `end`: where a stack is longer than a copy, its last part begins at the same place each time.
    pub(crate) span_start: Vec<u8>,
    /// To the row's `end`.
    pub(crate) span_end: Vec<u8>,
    /// In words.
    pub(crate) span_asked: Vec<u8>,
}

pub(crate) fn encode(copies: &StackCopies) -> Result<StackCopiesRoot, Invalid> {
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    let mut spans = copies.spans.iter();
    for row in &copies.rows {
        for span in spans.by_ref().take(row.spans as usize) {
            starts.push(difference(row.end.0 / WORD, span.start.0 / WORD));
            ends.push(difference(row.end.0, span.end.0));
        }
    }
    Ok(StackCopiesRoot {
        stacks: encode_stacks(copies)?,
        spans: row_count(&copies.spans)?,
        span_count: pack(copies.rows.iter().map(|row| row.spans)),
        span_start: pack(starts),
        span_end: pack(ends),
        span_asked: pack(copies.spans.iter().map(|span| span.asked / WORD)),
    })
}

pub(crate) fn decode(a: &ArchivedStackCopiesRoot) -> Result<StackCopies, Invalid> {
    let mut copies = decode_wordless(&a.stacks)?;
    let counts: Vec<u32> = unpack_as(&a.span_count, copies.rows.len())?;
    let rows = checked_rows(a.spans.to_native())?;
    let starts = unpack(&a.span_start, rows)?;
    let ends = unpack(&a.span_end, rows)?;
    let asked: Vec<u32> = unpack_as(&a.span_asked, rows)?;
    let mut spans = starts.into_iter().zip(ends).zip(asked);
    for (row, count) in copies.rows.iter_mut().zip(counts) {
        row.spans = count;
        for ((start, end), asked) in spans.by_ref().take(count as usize) {
            let start = apply(row.end.0 / WORD, start).checked_mul(WORD);
            copies.spans.push(Span {
                start: Addr(start.ok_or(Invalid::Value)?),
                end: Addr(apply(row.end.0, end)),
                asked: u64::from(asked) * WORD,
            });
        }
    }
    // What is left over belongs to no row.
    if spans.next().is_some() {
        return Err(Invalid::Rows);
    }
    with_words(copies, &a.stacks)
}
