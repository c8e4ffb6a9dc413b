//! Copies of stacks as the programs send them. Knows nothing of maps.

use std::mem::{offset_of, size_of};
use std::ops::Range;

use crate::event::{Addresses, Pairs, field};
use crate::skel::types::{copy_event, copy_span};

/// What became of the copy of a stack; numbers as in `src/c/event.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CopyState {
    /// It was made, or not asked for.
    Taken = 0,
    /// The ring buffer was full, but for what is left to samples.
    BufferFull = 1,
    /// The scratch space, or the list of mappings, was in use.
    Contended = 2,
    /// Nothing is mapped at the stack pointer.
    NoStack = 4,
}

impl CopyState {
    pub(crate) fn from_wire(number: u8) -> Option<Self> {
        let all = [
            Self::Taken,
            Self::BufferFull,
            Self::Contended,
            Self::NoStack,
        ];
        all.into_iter().find(|&state| state as u8 == number)
    }
}

/// A part of a stack that was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopySpan {
    /// Address of the first byte, a multiple of 8.
    pub start: u64,
    /// End of the stack that it is of: of its mapping, or where memory of other uses begins.
    pub end: u64,
    /// Bytes, a multiple of 8.
    pub asked: usize,
    /// Pages of 4096 bytes that were not in memory, from that of `start` on, a bit each.
    missing: [u64; 3],
}

impl CopySpan {
    /// Pages that were not in memory, as ranges of bytes from `start` on.
    fn missing(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        const PAGE: u64 = 4096;
        let Self { start, asked, .. } = *self;
        let first = start / PAGE * PAGE;
        let place = move |page: u64| {
            let place = (first + page * PAGE).saturating_sub(start);
            usize::try_from(place).map_or(asked, |place| place.min(asked))
        };
        let words = self.missing;
        let is_missing = move |page: &u64| {
            let word = usize::try_from(page / 64).ok().and_then(|at| words.get(at));
            word.is_some_and(|word| word >> (page % 64) & 1 != 0)
        };
        let pages = (0..words.len() as u64 * 64).filter(is_missing);
        let ranges = pages.map(move |page| place(page)..place(page + 1));
        ranges.filter(|range| !range.is_empty())
    }
}

/// A copy of a user stack: registers, and memory from below the stack pointer upwards. It comes ahead of the sample or
/// the user half of its owner.
#[derive(Clone, Copy, Debug)]
pub struct Copy<'a> {
    /// Owner.
    pub owner: u64,
    /// When it was made, on the monotonic clock, in nanoseconds.
    pub time_ns: u64,
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// Registers of the return to user space, by DWARF number.
    pub registers: Addresses<'a>,
    /// What was copied: of the stack of the stack pointer, of the one that a signal handler interrupted, and the end of the
    /// last of these. Those that there are not have no bytes.
    spans: [CopySpan; 3],
    /// Where functions with uretprobes return to; 0 where `returns` is empty.
    pub trampoline: u64,
    /// Return addresses that uretprobes replaced: the stack pointer at the function's first instruction, and the address;
    /// innermost first.
    pub returns: Pairs<'a>,
    /// Where the vDSO is mapped; 0 where that is not known.
    pub vdso: u64,
    /// Memory of all spans, one behind the other; zeros in pages that were not in memory.
    pub bytes: &'a [u8],
}

impl<'a> Copy<'a> {
    /// Take a copy apart; `None` when it is none.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let registers = bytes.get(offset_of!(copy_event, registers)..)?;
        let n_registers = usize::from(field!(bytes, copy_event, n_registers, u8));
        let spans = [0, 1, 2].map(|number| parse_span(bytes, number));
        let spans = [spans[0]?, spans[1]?, spans[2]?];
        let asked = spans
            .iter()
            .try_fold(0_usize, |all, span| all.checked_add(span.asked))?;
        let n_returns = usize::try_from(field!(bytes, copy_event, n_returns, u32)).ok()?;
        let memory = bytes.get(offset_of!(copy_event, bytes)..)?;
        let (memory, behind) = memory.split_at_checked(asked)?;
        let returns = behind.get(..n_returns.checked_mul(size_of::<[u64; 2]>())?)?;
        let trampoline = field!(bytes, copy_event, trampoline, u64);
        Some(Self {
            owner: field!(bytes, copy_event, owner, u64),
            time_ns: field!(bytes, copy_event, time_ns, u64),
            pid: field!(bytes, copy_event, pid, u32),
            tid: field!(bytes, copy_event, tid, u32),
            registers: Addresses(registers.get(..n_registers * size_of::<u64>())?),
            spans,
            trampoline: if n_returns > 0 { trampoline } else { 0 },
            returns: Pairs(Addresses(returns)),
            vdso: field!(bytes, copy_event, vdso, u64),
            bytes: memory,
        })
    }

    /// The same, with `bytes` in the place of its memory, of which they have the length.
    #[must_use]
    pub fn with_bytes<'b>(&self, bytes: &'b [u8]) -> Copy<'b>
    where
        'a: 'b,
    {
        Copy { bytes, ..*self }
    }

    /// What was copied of the stack of the stack pointer, from there on.
    pub fn first(&self) -> CopySpan {
        self.spans[0]
    }

    /// What was copied beside that.
    pub fn further(&self) -> impl Iterator<Item = CopySpan> {
        let there = self.spans.iter().skip(1).copied();
        there.filter(|span| span.asked > 0)
    }

    /// All that was copied, with its place in `bytes`.
    pub fn placed(&self) -> impl Iterator<Item = (CopySpan, Range<usize>)> {
        let mut behind = 0;
        let placed = self.spans.into_iter().map(move |span| {
            let from = behind;
            behind += span.asked;
            (span, from..behind)
        });
        placed.filter(|(span, _)| span.asked > 0)
    }

    /// What was not in memory: ranges of `bytes`, upwards, none next to another.
    pub fn missing(&self) -> Vec<Range<usize>> {
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let own = |(span, place): (CopySpan, Range<usize>)| {
            let missing = span.missing();
            missing.map(move |range| place.start + range.start..place.start + range.end)
        };
        for range in self.placed().flat_map(own) {
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => ranges.push(range),
            }
        }
        ranges
    }
}

/// A span of the copy in `bytes`.
fn parse_span(bytes: &[u8], number: usize) -> Option<CopySpan> {
    let at = offset_of!(copy_event, spans) + number * size_of::<copy_span>();
    let bytes = bytes.get(at..)?;
    let words = bytes.get(offset_of!(copy_span, missing)..)?;
    let missing = words.as_chunks::<8>().0.first_chunk::<3>()?;
    Some(CopySpan {
        start: field!(bytes, copy_span, start, u64),
        end: field!(bytes, copy_span, end, u64),
        asked: usize::try_from(field!(bytes, copy_span, asked, u64)).ok()?,
        missing: missing.map(u64::from_ne_bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that pages that are missing become ranges of the copy, whose first page is a part of one.
    #[test]
    fn missing_pages() {
        let bytes = vec![0; 4096 * 3];
        let span = |start, asked, missing| CopySpan {
            start,
            end: start + (1 << 20),
            asked,
            missing,
        };
        let copy = |spans| {
            let (owner, time_ns, pid, tid) = (1, 1, 2, 2);
            let (registers, bytes) = (Addresses(&[]), bytes.as_slice());
            let copy = Copy {
                owner,
                time_ns,
                pid,
                tid,
                registers,
                spans,
                trampoline: 0,
                returns: Pairs(Addresses(&[])),
                vdso: 0,
                bytes,
            };
            let ranges = copy.missing().into_iter();
            ranges
                .map(|range| (range.start, range.end))
                .collect::<Vec<_>>()
        };
        let none = CopySpan::default();
        let one = |start, missing| copy([span(start, 4096 * 3, missing), none, none]);
        assert_eq!(one(0x1000, [0; 3]), []);
        assert_eq!(one(0x1000, [0b110, 0, 0]), [(4096, 12288)]);
        assert_eq!(one(0x1ff8, [0b1, 0, 0]), [(0, 8)]);
        assert_eq!(one(0x1ff8, [0b1001, 0, 0]), [(0, 8), (8200, 12288)]);
        assert_eq!(one(0x1ff8, [u64::MAX, 0, 0]), [(0, 12288)]);
        assert_eq!(one(0x1000, [0, 1, 0]), []);
        let first = span(0x1ff8, 16, [0b1, 0, 0]);
        let second = span(0x9ff0, 24, [0b10, 0, 0]);
        let third = span(0x4000, 4096, [0b1, 0, 0]);
        assert_eq!(copy([first, second, third]), [(0, 8), (32, 4136)]);
        assert_eq!(copy([first, none, third]), [(0, 8), (16, 4112)]);
    }
}
