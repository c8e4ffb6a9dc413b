//! Which memory copies have: their further spans, and what is missing.

use rkyv::{Archive, Serialize};

use crate::copies::{Missing, Span, StackCopies, WORD};
use crate::error::Invalid;
use crate::id::Addr;
use crate::v1::column::{apply, difference, pack, unpack, unpack_as};
use crate::v1::{checked_rows, row_count};

/// Further spans and missing ranges.
#[derive(Archive, Serialize)]
pub(crate) struct Extents {
    /// Rows of spans.
    pub(crate) spans: u32,
    /// Rows of missing ranges.
    pub(crate) ranges: u32,
    /// A row for each copy, as the next.
    pub(crate) span_count: Vec<u8>,
    pub(crate) range_count: Vec<u8>,
    /// In words, to the row's `end`: where a stack is longer than a copy, its last part begins at the same place each time.
    pub(crate) span_start: Vec<u8>,
    /// To the row's `end`.
    pub(crate) span_end: Vec<u8>,
    /// In words, like those below.
    pub(crate) span_asked: Vec<u8>,
    pub(crate) range_offset: Vec<u8>,
    pub(crate) range_len: Vec<u8>,
}

pub(super) fn encode(copies: &StackCopies) -> Result<Extents, Invalid> {
    let (rows, missing) = (&copies.rows, &copies.missing);
    let (mut starts, mut ends) = (Vec::new(), Vec::new());
    let mut spans = copies.spans.iter();
    for row in rows {
        for span in spans.by_ref().take(row.spans as usize) {
            starts.push(difference(row.end.0 / WORD, span.start.0 / WORD));
            ends.push(difference(row.end.0, span.end.0));
        }
    }
    Ok(Extents {
        spans: row_count(&copies.spans)?,
        ranges: row_count(missing)?,
        span_count: pack(rows.iter().map(|row| row.spans)),
        range_count: pack(rows.iter().map(|row| row.missing)),
        span_start: pack(starts),
        span_end: pack(ends),
        span_asked: pack(copies.spans.iter().map(|span| span.asked / WORD)),
        range_offset: pack(missing.iter().map(|range| range.offset / WORD)),
        range_len: pack(missing.iter().map(|range| range.len / WORD)),
    })
}

pub(super) fn decode(a: &ArchivedExtents, copies: &mut StackCopies) -> Result<(), Invalid> {
    decode_spans(a, copies)?;
    let counts: Vec<u32> = unpack_as(&a.range_count, copies.rows.len())?;
    for (row, count) in copies.rows.iter_mut().zip(counts) {
        row.missing = count;
    }
    copies.missing = decode_missing(a)?;
    Ok(())
}

fn decode_spans(a: &ArchivedExtents, copies: &mut StackCopies) -> Result<(), Invalid> {
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
    spans.next().map_or(Ok(()), |_| Err(Invalid::Rows))
}

fn decode_missing(a: &ArchivedExtents) -> Result<Vec<Missing>, Invalid> {
    let ranges = checked_rows(a.ranges.to_native())?;
    let offsets: Vec<u32> = unpack_as(&a.range_offset, ranges)?;
    let lens: Vec<u32> = unpack_as(&a.range_len, ranges)?;
    let range = |(offset, len)| Missing {
        offset: u64::from(offset) * WORD,
        len: u64::from(len) * WORD,
    };
    Ok(offsets.into_iter().zip(lens).map(range).collect())
}
