//! What is new in a copy.

use super::extent::Extent;
use super::image::{Image, PAGE_WORDS};
use super::{NewCopy, Run, WORD};

/// Words that are compared at once.
const BLOCK: usize = 16;

/// So many words between new ones are told again although they are as they were, where that takes no more than what they
/// are: another run would take more. Nothing and something that is left out take turns in what a program has on its stack.
const BRIDGED: usize = 4;

/// Runs of one copy, and its new words.
#[derive(Default)]
pub(super) struct Diff {
    pub(super) runs: Vec<Run>,
    pub(super) words: Vec<u64>,
    /// The last words that are as they were, the last of all at the end.
    same: [u64; BRIDGED],
}

impl Diff {
    /// New words of which more is told than what they are.
    pub(super) fn told(&self) -> usize {
        self.words.iter().filter(|&&word| !is_plain(word)).count()
    }

    /// Compare a copy, whose `extent` is checked, with the image.
    pub(super) fn make(&mut self, image: &Image, extent: Extent<'_>, copy: &NewCopy<'_>) {
        let row = extent.row;
        self.runs.clear();
        self.words.clear();
        let known = image.registers(row.task);
        let values = copy.registers.values.iter().zip(known).enumerate();
        for (number, (&value, &known)) in values {
            if row.registers >> number & 1 != 0 {
                self.push(value, known);
            }
        }
        for (from, range) in extent.present() {
            let from = usize::try_from(from).unwrap_or(usize::MAX);
            let len = usize::try_from(range.end - range.start).unwrap_or(0);
            let bytes = copy.bytes.get(from..).unwrap_or_default();
            self.compare(image, copy.pid, range.start, &bytes[..len.min(bytes.len())]);
        }
    }

    /// Compare memory from `address` on, a page of the image at a time.
    fn compare(&mut self, image: &Image, process: u32, mut address: u64, bytes: &[u8]) {
        let (mut words, _) = bytes.as_chunks::<{ size_of::<u64>() }>();
        while !words.is_empty() {
            let (page, place) = image.page(process, address);
            let (own, rest) = words.split_at(words.len().min(PAGE_WORDS - place));
            for (own, known) in own.chunks(BLOCK).zip(page[place..].chunks(BLOCK)) {
                self.compare_block(own, known);
            }
            address += own.len() as u64 * WORD;
            words = rest;
        }
    }

    /// Compare some words. Most copies are as before in most of their blocks, which are too long to be bridged.
    fn compare_block(&mut self, own: &[[u8; 8]], known: &[u64]) {
        let pairs = || own.iter().zip(known);
        let differing = pairs().fold(0, |all, (word, &known)| {
            all | (u64::from_le_bytes(*word) ^ known)
        });
        match self.runs.last_mut() {
            Some(run) if differing == 0 && run.new == 0 && own.len() == BLOCK => {
                run.same += u32::try_from(own.len()).unwrap_or(0);
            }
            _ => pairs().for_each(|(word, &known)| self.push(u64::from_le_bytes(*word), known)),
        }
    }

    /// Add a word.
    fn push(&mut self, word: u64, known: u64) {
        let is_new = word != known;
        if is_new {
            self.bridge();
            self.words.push(word);
        } else {
            self.same.rotate_left(1);
            self.same[BRIDGED - 1] = word;
        }
        match self.runs.last_mut() {
            Some(run) if is_new => run.new += 1,
            Some(run) if run.new == 0 => run.same += 1,
            _ => self.runs.push(Run {
                same: u32::from(!is_new),
                new: u32::from(is_new),
            }),
        }
    }

    /// Tell the words since the last new one again, where these are few and a new one follows.
    fn bridge(&mut self) {
        let [.., before, last] = &mut self.runs[..] else {
            return;
        };
        let first = BRIDGED.checked_sub(last.same as usize);
        let Some(between) = first.and_then(|first| self.same.get(first..)) else {
            return;
        };
        if last.new == 0 && between.iter().all(|&word| is_plain(word)) {
            before.new += last.same;
            self.words.extend_from_slice(between);
            self.runs.pop();
        }
    }
}

/// Whether nothing more is told of a word than what it is: 0, or 1, which stands for what is left out.
fn is_plain(word: u64) -> bool {
    word <= 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copies::{CopiesBuilder, Registers};
    use crate::id::{Addr, StackId};

    /// Runs of a copy of `words` behind one of `before`.
    fn runs(before: &[u64], words: &[u64]) -> Vec<(u32, u32)> {
        let mut builder = CopiesBuilder::default();
        for (owner, words) in [(1, before), (2, words)] {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let copy = NewCopy {
                owner: StackId(owner),
                registers: Registers::default(),
                start: Addr(0x1000),
                end: Addr(0x9000),
                asked: bytes.len() as u64,
                bytes: &bytes,
                ..NewCopy::default()
            };
            assert!(builder.push(&copy).unwrap());
        }
        let runs = builder.copies().runs.iter();
        let mut runs: Vec<_> = runs.map(|run| (run.same, run.new)).collect();
        // The first copy is new as a whole.
        assert_eq!(runs.remove(0), (0, u32::try_from(before.len()).unwrap()));
        runs
    }

    /// Check that up to four words between new ones are told again where each is 0 or 1, and no others: not more, neither
    /// ahead of the first new one nor behind the last, and none of which more than that would have to be told.
    #[test]
    fn bridges() {
        let mut before = vec![1; 64];
        before[..2].fill(9);
        let changed = |places: &[usize]| {
            let mut words = before.clone();
            for &place in places {
                words[place] = 5;
            }
            runs(&before, &words)
        };
        assert_eq!(changed(&[2, 7]), [(2, 6), (56, 0)]);
        assert_eq!(changed(&[2, 8]), [(2, 1), (5, 1), (55, 0)]);
        assert_eq!(changed(&[0, 2]), [(0, 1), (1, 1), (61, 0)]);
        assert_eq!(changed(&[2, 4, 9, 63]), [(2, 8), (53, 1)]);
        assert_eq!(changed(&[15, 48, 50]), [(15, 1), (32, 3), (13, 0)]);
    }
}
