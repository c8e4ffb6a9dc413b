//! Which memory a copy has: its spans, and what of them is missing. Knows no words.

use std::iter;
use std::ops::Range;

use super::{MAX_COPY_LEN, MAX_FURTHER, Missing, Row, Span, StackCopies, WORD};
use crate::error::Invalid;

/// Memory of one row.
#[derive(Clone, Copy)]
pub(super) struct Extent<'a> {
    pub(super) row: &'a Row,
    /// Spans behind the first.
    pub(super) further: &'a [Span],
    pub(super) missing: &'a [Missing],
}

impl<'a> Extent<'a> {
    /// The same, checked.
    pub(super) fn checked(self) -> Result<Self, Invalid> {
        self.row.check()?;
        let is_sound = |span: &Span| {
            let size = span.end.0.checked_sub(span.start.0);
            span.start.0.is_multiple_of(WORD)
                && span.asked.is_multiple_of(WORD)
                && (1..=MAX_COPY_LEN).contains(&span.asked)
                && size.is_some_and(|size| span.asked <= size)
        };
        let is_sound = self.further.len() <= MAX_FURTHER
            && self.further.iter().all(is_sound)
            && self.asked() <= MAX_COPY_LEN;
        is_sound.then_some(self).ok_or(Invalid::Value)
    }

    /// All spans. A byte may be in several: the stack of a signal handler may lie on the interrupted one.
    pub(super) fn spans(self) -> impl Iterator<Item = Span> + 'a {
        iter::once(self.row.first()).chain(self.further.iter().copied())
    }

    /// Bytes that were asked for.
    pub(super) fn asked(self) -> u64 {
        self.spans().map(|span| span.asked).sum()
    }

    /// Words of the row: registers, and memory that is not missing. Missing ranges must rise, and have room.
    pub(super) fn words(self) -> Result<u64, Invalid> {
        let asked = self.asked();
        let (mut end, mut words) = (0, asked / WORD);
        for range in self.missing {
            let is_sound = range.offset >= end
                && range.len > 0
                && range.offset.is_multiple_of(WORD)
                && range.len.is_multiple_of(WORD)
                && range.len <= asked
                && range.offset <= asked - range.len;
            if !is_sound {
                return Err(Invalid::Value);
            }
            end = range.offset + range.len;
            words -= range.len / WORD;
        }
        Ok(words + u64::from(self.row.registers.count_ones()))
    }

    /// What is there, in the order of the spans: offset among all that was asked for, and addresses.
    pub(super) fn present(self) -> impl Iterator<Item = (u64, Range<u64>)> + 'a {
        let mut from = 0;
        let end = Missing {
            offset: self.asked(),
            len: 0,
        };
        let gaps = self.missing.iter().copied().chain(iter::once(end));
        let between = gaps.map(move |gap| {
            let range = from..gap.offset;
            from = gap.offset + gap.len;
            range
        });
        between.flat_map(move |range| self.placed(range))
    }

    /// Where bytes by offset belong.
    fn placed(self, range: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> + 'a {
        let mut behind = 0;
        self.spans().filter_map(move |span| {
            let first = behind;
            behind += span.asked;
            let (from, to) = (range.start.max(first), range.end.min(behind));
            let address = |offset| span.start.0 + (offset - first);
            (from < to).then(|| (from, address(from)..address(to)))
        })
    }
}

/// Gives the rows of a chunk, one after the other, what is theirs.
pub(super) struct Extents<'a> {
    spans: &'a [Span],
    missing: &'a [Missing],
}

impl<'a> Extents<'a> {
    pub(super) fn new(copies: &'a StackCopies) -> Self {
        Self {
            spans: &copies.spans,
            missing: &copies.missing,
        }
    }

    /// The memory of the next row, checked but for its missing ranges.
    pub(super) fn take(&mut self, row: &'a Row) -> Result<Extent<'a>, Invalid> {
        let spans = self.spans.split_at_checked(row.spans as usize);
        let (further, spans) = spans.ok_or(Invalid::Rows)?;
        let missing = self.missing.split_at_checked(row.missing as usize);
        let (own, missing) = missing.ok_or(Invalid::Rows)?;
        *self = Self { spans, missing };
        let extent = Extent {
            row,
            further,
            missing: own,
        };
        extent.checked()
    }

    /// Whether nothing is left.
    pub(super) fn is_done(&self) -> bool {
        self.spans.is_empty() && self.missing.is_empty()
    }
}
