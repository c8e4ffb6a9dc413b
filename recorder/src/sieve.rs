//! What of a stack's memory may be needed to unwind it: addresses of code, and of frames. All else a copy can do without,
//! but for whether it was 0: a return address of 0 ends a stack, one that is left out is a mistake of whoever reads it.
//! Knows nothing of archives.
//!
//! A frame is found by the stack pointer or by a register that points at it: mostly the frame pointer, whose last value
//! lies where it points and the return address behind that. What else points into the stack, at a caller's variables, is
//! most of all that does and finds no frame.

use std::mem;
use std::ops::Range;

use rawstack_bpf::{Copy, CopySpan};

use crate::code_ranges::{CodeRanges, is_address, is_nothing};
use crate::program::Program;

/// DWARF numbers of the stack pointer and of where the code stands.
const SP: u32 = if cfg!(target_arch = "aarch64") { 31 } else { 7 };
const PC: u32 = if cfg!(target_arch = "aarch64") {
    32
} else {
    16
};

/// DWARF numbers of registers that end a stack where they are 0: the frame pointer and, on arm64, the return address of a
/// function that has not saved it yet.
const ENDING: &[u32] = if cfg!(target_arch = "aarch64") {
    &[29, 30]
} else {
    &[6]
};

/// Bytes of a word.
const WORD: u64 = size_of::<u64>() as u64;

/// What stands for a word that is left out and was not 0. Nothing is mapped there and no frame lies there, so it ends a stack
/// as the word itself would have.
const LEFT_OUT: u64 = 1;

/// What points at a frame points so many words behind its return address at most, as the stack pointer does when the
/// function has returned, ...
const BEHIND: usize = 1;
/// ... or so many ahead of it: between them are the registers that a function saves first.
const AHEAD: usize = 7;

/// Whether a register ends a stack by what it holds.
pub(crate) fn is_ending(number: u32, value: u64) -> bool {
    value == 0 && ENDING.contains(&number)
}

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

/// Leaves of copies only words that may be addresses of code, return addresses among them, or of frames: what registers are
/// restored from that frames are found by.
#[derive(Debug, Default)]
pub(crate) struct Sieve {
    code: CodeRanges,
    /// The last copy.
    bytes: Vec<u8>,
    /// Which of its words may be addresses of code, a bit each, and some more behind the last.
    is_code: Vec<u64>,
    /// Which of its words are addresses of a stack, with them.
    pointers: Vec<(usize, u64)>,
}

impl Sieve {
    /// The bytes of all `parts`, one behind the other, with [`LEFT_OUT`] in the place of all that is neither 0 nor an address
    /// of code nor one of a frame. As long as not all code of the program is known, any address may be one of code; and what was
    /// `missing`, ranges of these bytes, may be anything.
    pub(crate) fn sift(
        &mut self,
        program: Option<&Program>,
        parts: &[Part<'_>],
        missing: &[Range<usize>],
    ) -> &[u8] {
        self.code.enter(program);
        let len = parts.iter().map(|part| part.bytes.len()).sum::<usize>();
        self.bytes.clear();
        self.bytes.resize(len, 0);
        self.is_code.clear();
        self.is_code.resize(len / (8 * 64) + 2, 0);
        self.pointers.clear();
        let mut from = 0;
        for part in parts {
            self.leave_out(part, from);
            self.keep_code(parts, part, from);
            from += part.bytes.len();
        }
        for range in missing {
            (range.start / 8..range.end.min(len) / 8).for_each(|place| self.set_code(place));
        }
        self.keep_pointers(parts);
        &self.bytes
    }

    /// Registers of a copy that may be needed, a bit each: by DWARF number, where the code stands and the stack pointer
    /// among them, and those that end the stack. They are of the first of the `parts`.
    pub(crate) fn registers(
        &mut self,
        program: Option<&Program>,
        parts: &[Part<'_>],
        values: impl Iterator<Item = u64>,
    ) -> u64 {
        self.code.enter(program);
        let first = parts.first().map_or((0, 0), |part| (part.start, part.end));
        let needed = (0..u64::BITS).zip(values).filter(|&(number, value)| {
            [SP, PC].contains(&number)
                || is_ending(number, value)
                || self.code.may_hold(value)
                || is_pointer(parts, first, value)
        });
        needed.fold(0, |all, (number, _)| all | 1 << number)
    }

    /// Leave out all words of a part, whose bytes are `from` there on in the copy. Most of a stack is left out, so this is a pass
    /// of its own, without branches.
    fn leave_out(&mut self, part: &Part<'_>, from: usize) {
        let own = self.bytes.get_mut(from..).unwrap_or_default();
        let words = part.bytes.as_chunks::<8>().0;
        for (own, word) in own.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            let is_nothing = is_nothing(u64::from_ne_bytes(*word));
            *own = (u64::from(!is_nothing) * LEFT_OUT).to_ne_bytes();
        }
    }

    /// Keep of a part, whose bytes are `from` there on in the copy, addresses of code, and note those of stacks.
    fn keep_code(&mut self, parts: &[Part<'_>], part: &Part<'_>, from: usize) {
        let is_alone = parts.iter().all(|other| other.end == part.end);
        let others = if is_alone { &[] } else { parts };
        let words = part.bytes.as_chunks::<8>().0.iter();
        for (number, (word, place)) in (from / 8..).zip(words.zip((part.start..).step_by(8))) {
            let value = u64::from_ne_bytes(*word);
            if !is_address(value) {
                continue;
            }
            if self.code.may_hold(value) {
                self.set_code(number);
                self.keep(number, value);
            } else if is_pointer(others, (place, part.end), value) {
                self.pointers.push((number, value));
            }
        }
    }

    /// Keep those of the noted addresses that may be of frames.
    fn keep_pointers(&mut self, parts: &[Part<'_>]) {
        let pointers = mem::take(&mut self.pointers);
        for &(number, value) in &pointers {
            // What a context was left with: of a signal, or where a frame pointer was saved first.
            let is_ahead_of_code = self.has_code(number + 1, 1);
            if is_ahead_of_code || self.may_be_frame(parts, value) {
                self.keep(number, value);
            }
        }
        self.pointers = pointers;
    }

    /// Whether a return address may lie where a frame at `value` has it; of what was not copied that is not known.
    fn may_be_frame(&self, parts: &[Part<'_>], value: u64) -> bool {
        let mut from = 0;
        for part in parts {
            let len = part.bytes.len();
            let place = usize::try_from(value.wrapping_sub(part.start) / WORD);
            if let Ok(place) = place.map(|place| place + AHEAD)
                && place < len / 8
            {
                let last = from / 8 + place;
                let first = last.saturating_sub(AHEAD + BEHIND);
                return self.has_code(first, AHEAD + BEHIND + 1);
            }
            from += len;
        }
        true
    }

    fn keep(&mut self, number: usize, value: u64) {
        if let Some(word) = self.bytes.get_mut(number * 8..(number + 1) * 8) {
            word.copy_from_slice(&value.to_ne_bytes());
        }
    }

    fn set_code(&mut self, number: usize) {
        if let Some(bits) = self.is_code.get_mut(number / 64) {
            *bits |= 1 << (number % 64);
        }
    }

    /// Whether any of `count` words, 64 at most, may be an address of code.
    fn has_code(&self, first: usize, count: usize) -> bool {
        let bits = |at: usize| self.is_code.get(at).copied().unwrap_or(0);
        let (at, shift) = (first / 64, first % 64);
        let all = u128::from(bits(at)) | u128::from(bits(at + 1)) << 64;
        all >> shift & ((1 << count) - 1) != 0
    }
}

/// Whether `value` is an address of a frame further out than `place` on the stack that goes to `end`: those lie above, or on
/// another stack, and on whole words.
fn is_pointer(parts: &[Part<'_>], (place, end): (u64, u64), value: u64) -> bool {
    let is_above = value > place && value <= end;
    let is_elsewhere =
        |part: &Part<'_>| part.end != end && (part.start..=part.end).contains(&value);
    value.is_multiple_of(WORD) && (is_above || parts.iter().any(is_elsewhere))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: Range<u64> = 0x40_0000..0x40_2000;

    fn program(is_whole: bool) -> Program {
        Program {
            is_whole,
            ..Program::with_code(&[CODE])
        }
    }

    fn sift(sieve: &mut Sieve, program: &Program, words: &[u64]) -> Vec<u64> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let part = Part {
            start: 0x7000_0000,
            end: 0x7001_0000,
            bytes: &bytes,
        };
        let sifted = sieve.sift(Some(program), &[part], &[]);
        let words = sifted.as_chunks::<8>().0.iter();
        words.map(|word| u64::from_ne_bytes(*word)).collect()
    }

    /// Check that addresses of code and of the stack stay, as long as that may be a frame's, and 0; and that all else is left out,
    /// text above all, which is not to be taken for 0.
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
            0,
            1,
            u64::MAX,
        ];
        let sifted = sift(&mut sieve, &program(true), &words);
        let mut kept = [LEFT_OUT; 13];
        for stays in [0, 2, 8, 10] {
            kept[stays] = words[stays];
        }
        assert_eq!(sifted, kept);
        // The same once more, out of what is remembered.
        assert_eq!(sift(&mut sieve, &program(true), &words), sifted);
    }

    /// A part of 40 words from 0x7000_0000 on: the 20th is an address of code, some are as `words` say, by number.
    fn around_code(words: &[(usize, u64)]) -> Vec<u64> {
        let mut all = vec![0; 40];
        all[20] = 0x40_1136;
        for &(number, word) in words {
            all[number] = word;
        }
        all
    }

    /// Check that of addresses of the stack those stay that point where a return address may be, from the last register
    /// that a function saves to behind the return address; and of a copy's end, and of what is missing, all.
    #[test]
    fn frames() {
        let mut sieve = Sieve::default();
        let address = |number: u64| 0x7000_0000 + number * 8;
        for number in 1..45 {
            let words = around_code(&[(0, address(number))]);
            let sifted = sift(&mut sieve, &program(true), &words);
            let is_kept = (13..=21).contains(&number) || number >= 33;
            let kept = if is_kept { address(number) } else { LEFT_OUT };
            assert_eq!(sifted, around_code(&[(0, kept)]), "{number}");
        }
        let words = around_code(&[(0, address(5))]);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let part = Part {
            start: 0x7000_0000,
            end: 0x7001_0000,
            bytes: &bytes,
        };
        for (missing, is_kept) in [(12 * 8..13 * 8, true), (13 * 8..20 * 8, false)] {
            let sifted = sieve.sift(Some(&program(true)), &[part], &[missing]);
            assert_eq!(sifted == bytes, is_kept);
        }
    }

    /// Check that the address of a stack stays that is ahead of one of code, wherever it points: the stack pointer of a context
    /// that a signal interrupted is, and the first register that a function saves.
    #[test]
    fn contexts() {
        let address = 0x7000_0000 + 30 * 8;
        let words = around_code(&[(19, address), (18, address)]);
        let sifted = sift(&mut Sieve::default(), &program(true), &words);
        assert_eq!(sifted, around_code(&[(19, address), (18, LEFT_OUT)]));
    }

    /// Check that of registers the stack pointer and the place of the code stay, others where they are addresses, and the
    /// frame pointer where it is 0, too.
    #[test]
    fn registers() {
        let mut sieve = Sieve::default();
        let mut values = [0x5555_0000_1000; 33];
        values[12] = 0x7000_8000;
        values[3] = 0x40_1136;
        let frame_pointer = ENDING[0] as usize;
        values[frame_pointer] = 0;
        values[14] = 0;
        let part = Part {
            start: 0x7000_0000,
            end: 0x7001_0000,
            bytes: &[],
        };
        let mut mask =
            |values: [u64; 33]| sieve.registers(Some(&program(true)), &[part], values.into_iter());
        let kept = 1 << 3 | 1 << 12 | 1 << SP | 1 << PC;
        assert_eq!(mask(values), kept | 1 << frame_pointer);
        values[frame_pointer] = 1;
        assert_eq!(mask(values), kept);
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
        let sifted = sieve.sift(Some(&program(true)), &parts, &[]);
        let words = sifted.as_chunks::<8>().0.iter();
        let words: Vec<u64> = words.map(|word| u64::from_ne_bytes(*word)).collect();
        let kept = [
            [0x7000_8000, 0x9000_0010, 1],
            [1, 0x9000_0018, 0x7000_0020],
            [0x9000_0ff8, 1, 0x9000_1000],
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
            [0x5555_0000_1000, 1, 1]
        );
        let mut later = program(true);
        later.version = 1;
        assert_eq!(sift(&mut sieve, &later, &words), [1, 1, 1]);
    }
}
