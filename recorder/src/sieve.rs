//! What of a stack's memory may be needed to unwind it: addresses. All else a copy can do without. Knows nothing of
//! archives.

use std::mem;
use std::ops::Range;

use rawstack_bpf::{Copy, CopySpan};

use crate::program::Program;

/// Pages of which it is remembered whether they are code.
const KNOWN: usize = 1024;

/// Bits of a page's number that are left out.
const PAGE_SHIFT: u32 = 12;

/// A page that no address has.
const NO_PAGE: u64 = u64::MAX;

/// Bits of an address: a return address may carry a pointer authentication code above.
const ADDRESS_MASK: u64 = if cfg!(target_arch = "aarch64") {
    (1 << 48) - 1
} else {
    u64::MAX
};

/// DWARF numbers of the stack pointer and of where the code stands.
const SP: u32 = if cfg!(target_arch = "aarch64") { 31 } else { 7 };
const PC: u32 = if cfg!(target_arch = "aarch64") {
    32
} else {
    16
};

/// A part of a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'c> {
    /// First address.
    pub(crate) start: u64,
    /// End of the stack that it is of. Parts of one stack have the same.
    pub(crate) end: u64,
    /// Memory from the first address on.
    pub(crate) bytes: &'c [u8],
}

/// The parts of a copy, in the order of their bytes.
pub(crate) fn parts<'c>(copy: &Copy<'c>) -> Vec<Part<'c>> {
    let part = |(span, place): (CopySpan, Range<usize>)| Part {
        start: span.start,
        end: span.end,
        bytes: copy.bytes.get(place).unwrap_or_default(),
    };
    copy.placed().map(part).collect()
}

/// Leaves of copies only words that may be addresses of code or of the stack itself: return addresses, and what registers
/// are restored from that frames are found by.
#[derive(Debug)]
pub(crate) struct Sieve {
    /// The last copy.
    bytes: Vec<u8>,
    /// Of which mappings `pages` tells.
    of: Option<(u32, u32)>,
    /// Number of a page, and whether it may be code.
    pages: Vec<(u64, bool)>,
}

impl Default for Sieve {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            of: None,
            pages: vec![(NO_PAGE, false); KNOWN],
        }
    }
}

impl Sieve {
    /// The bytes of all `parts`, one behind the other, with zeros in the place of all that is neither an address of code nor
    /// one of a stack further out. As long as not all code of the program is known, any address may be one of code.
    pub(crate) fn sift(&mut self, program: Option<&Program>, parts: &[Part<'_>]) -> &[u8] {
        self.enter(program);
        let mut sifted = mem::take(&mut self.bytes);
        sifted.clear();
        for part in parts {
            let places = (part.start..).step_by(size_of::<u64>());
            for (word, place) in part.bytes.as_chunks::<8>().0.iter().zip(places) {
                let value = u64::from_ne_bytes(*word);
                let is_needed = self.is_needed(program, parts, (place, part.end), value);
                sifted.extend_from_slice(if is_needed { word } else { &[0; 8] });
            }
        }
        self.bytes = sifted;
        &self.bytes
    }

    /// Registers of a copy that may be needed, a bit each: by DWARF number, where the code stands and the stack pointer
    /// among them. They are of the first of the `parts`.
    pub(crate) fn registers(
        &mut self,
        program: Option<&Program>,
        parts: &[Part<'_>],
        values: impl Iterator<Item = u64>,
    ) -> u64 {
        self.enter(program);
        let first = parts.first().map_or((0, 0), |part| (part.start, part.end));
        let needed = (0..u64::BITS).zip(values).filter(|&(number, value)| {
            [SP, PC].contains(&number) || self.is_needed(program, parts, first, value)
        });
        needed.fold(0, |all, (number, _)| all | 1 << number)
    }

    /// Whether a value may be needed that stands at `place` on the stack that goes to `end`, or in a register of who has
    /// the stack from there on.
    fn is_needed(
        &mut self,
        program: Option<&Program>,
        parts: &[Part<'_>],
        (place, end): (u64, u64),
        value: u64,
    ) -> bool {
        // Frames are found by addresses of frames further out: those lie above, or on another stack, and on whole words.
        let is_whole = value.is_multiple_of(size_of::<u64>() as u64);
        let is_above = value > place && value <= end;
        let is_elsewhere =
            |part: &Part<'_>| part.end != end && (part.start..=part.end).contains(&value);
        (is_whole && (is_above || parts.iter().any(is_elsewhere)))
            || self.may_be_code(program, value)
    }

    /// Forget what is known of pages where they are another program's, or its mappings have changed.
    fn enter(&mut self, program: Option<&Program>) {
        let of = program.map(|program| (program.number, program.version));
        if self.of != of {
            self.of = of;
            self.pages.fill((NO_PAGE, false));
        }
    }

    fn may_be_code(&mut self, program: Option<&Program>, value: u64) -> bool {
        let address = value & ADDRESS_MASK;
        if !(1 << PAGE_SHIFT..1 << 56).contains(&address) {
            return false;
        }
        let page = address >> PAGE_SHIFT;
        // SANITY: a remainder by the length is a place.
        let place = (page % KNOWN as u64) as usize;
        let (known, is_code) = self.pages[place];
        if known == page {
            return is_code;
        }
        let is_code = program.is_none_or(|program| {
            !program.is_whole() || program.mapping(address, u64::MAX).is_some()
        });
        self.pages[place] = (page, is_code);
        is_code
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::program::Mapping;

    fn program(is_whole: bool) -> Program {
        let mapping = Mapping {
            addresses: 0x40_0000..0x40_2000,
            file_at: 0x40_0000..0x40_2000,
            offset: 0,
            protection: 5,
            file: (0, 0, 0),
            path: Rc::from(&b"/app"[..]),
            build_id: None,
            since_ns: 0,
            seen_ns: 0,
            is_over_file: false,
        };
        let mut program = Program {
            number: 1,
            is_whole,
            ..Program::default()
        };
        Rc::make_mut(&mut program.mappings).insert(0x40_0000, Rc::new(mapping));
        program
    }

    fn sift(sieve: &mut Sieve, program: &Program, words: &[u64]) -> Vec<u64> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let part = Part {
            start: 0x7000_0000,
            end: 0x7001_0000,
            bytes: &bytes,
        };
        let sifted = sieve.sift(Some(program), &[part]);
        let words = sifted.as_chunks::<8>().0.iter();
        words.map(|word| u64::from_ne_bytes(*word)).collect()
    }

    /// Check that addresses of code and of the stack stay, and that all else becomes zeros, text above all.
    #[test]
    fn addresses() {
        let mut sieve = Sieve::default();
        let text = u64::from_ne_bytes(*b"password");
        let words = [
            0x40_1136,
            text,
            0x7000_8000,
            0x7001_0001,
            0x5555_0000_1000,
            200,
            0x40_2000,
            0x7000_0038, // of itself
            0x7000_0048, // above, as frames further out are
            0x7000_804c, // of no whole word
        ];
        let sifted = sift(&mut sieve, &program(true), &words);
        let kept = [0x40_1136, 0, 0x7000_8000, 0, 0, 0, 0, 0, 0x7000_0048, 0];
        assert_eq!(sifted, kept);
        // The same once more, out of what is remembered.
        assert_eq!(sift(&mut sieve, &program(true), &words), sifted);
    }

    /// Check that of registers the stack pointer and the place of the code stay, and others where they are addresses.
    #[test]
    fn registers() {
        let mut sieve = Sieve::default();
        let mut values = [0x5555_0000_1000; 33];
        values[6] = 0x7000_8000;
        values[3] = 0x40_1136;
        let part = Part {
            start: 0x7000_0000,
            end: 0x7001_0000,
            bytes: &[],
        };
        let mask = sieve.registers(Some(&program(true)), &[part], values.into_iter());
        assert_eq!(mask, 1 << 3 | 1 << 6 | 1 << SP | 1 << PC);
    }

    /// Check that on the stack of a signal handler addresses of the interrupted stack stay, and that the last part of a
    /// stack is of the same one as its first: what is below is of no use.
    #[test]
    fn other_stacks() {
        let bytes = |words: [u64; 3]| words.map(u64::to_ne_bytes).concat();
        let handler = bytes([0x7000_8000, 0x9000_0010, 0x9000_1008]);
        let interrupted = bytes([0x9000_0000, 0x9000_0018, 0x7000_0020]);
        let last = bytes([0x9000_0ff8, 0x9000_0000, 0x9000_1000]);
        let part = |start, end, bytes| Part { start, end, bytes };
        let parts = [
            part(0x7000_0000, 0x7001_0000, &handler[..]),
            part(0x9000_0000, 0x9000_1000, &interrupted),
            part(0x9000_0fe8, 0x9000_1000, &last),
        ];
        let mut sieve = Sieve::default();
        let sifted = sieve.sift(Some(&program(true)), &parts);
        let words = sifted.as_chunks::<8>().0.iter();
        let words: Vec<u64> = words.map(|word| u64::from_ne_bytes(*word)).collect();
        let kept = [
            [0x7000_8000, 0x9000_0010, 0],
            [0, 0x9000_0018, 0x7000_0020],
            [0x9000_0ff8, 0, 0x9000_1000],
        ];
        assert_eq!(words, kept.concat());
    }

    /// Check that where code may be anywhere any address stays, and that what is remembered goes when mappings change.
    #[test]
    fn unknown_code() {
        let mut sieve = Sieve::default();
        let words = [0x5555_0000_1000, 200, u64::MAX];
        assert_eq!(
            sift(&mut sieve, &program(false), &words),
            [0x5555_0000_1000, 0, 0]
        );
        let mut later = program(true);
        later.version = 1;
        assert_eq!(sift(&mut sieve, &later, &words), [0, 0, 0]);
    }
}
