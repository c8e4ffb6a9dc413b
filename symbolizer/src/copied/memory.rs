//! A copy as the memory that is unwound. Knows no registers.

use rawstack_format::copies::{Span, StackCopy};

use crate::unwind::Memory;

/// Bytes of a word.
const WORD: u64 = 8;

/// Memory of one copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct CopyMemory<'c> {
    pub(super) copy: StackCopy<'c>,
}

impl Memory for CopyMemory<'_> {
    #[inline]
    fn word(&self, address: u64) -> Option<u64> {
        self.copy.word(address)
    }

    fn number(&self, address: u64, size: u8) -> Option<u64> {
        let (within, bits) = (address % WORD, u32::from(size) * 8);
        if size == 0 || u64::from(size) > WORD {
            return None;
        }
        let first = address - within;
        let low = self.copy.word(first)? >> (within * 8);
        let high = if within + u64::from(size) > WORD {
            self.copy.word(first.checked_add(WORD)?)? << (64 - within * 8)
        } else {
            0
        };
        Some((low | high) & (u64::MAX >> (64 - bits)))
    }

    #[inline]
    fn return_address(&self, found: u64, cfa: u64) -> Option<u64> {
        self.copy.return_address(found, cfa)
    }

    fn part(&self, address: u64) -> Option<usize> {
        let holds = |span: &Span| {
            let within = address.checked_sub(span.start.0);
            within.is_some_and(|within| within <= span.asked)
        };
        let end = self.copy.spans().find(holds)?.end;
        self.copy.spans().position(|span| span.end == end)
    }

    fn is_stack(&self, address: u64) -> bool {
        let holds = |span: Span| (span.start.0..span.end.0).contains(&address);
        self.copy.spans().any(holds)
    }
}
