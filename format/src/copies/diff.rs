//! What is new in a copy.

use super::extent::Extent;
use super::image::{Image, PAGE_WORDS};
use super::{NewCopy, Run, WORD};

/// Words that are compared at once.
const BLOCK: usize = 16;

/// Runs of one copy, and its new words.
#[derive(Default)]
pub(super) struct Diff {
    pub(super) runs: Vec<Run>,
    pub(super) words: Vec<u64>,
}

impl Diff {
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

    /// Compare some words. Most copies are as before in most of their blocks.
    fn compare_block(&mut self, own: &[[u8; 8]], known: &[u64]) {
        let pairs = || own.iter().zip(known);
        let differing = pairs().fold(0, |all, (word, &known)| {
            all | (u64::from_le_bytes(*word) ^ known)
        });
        match self.runs.last_mut() {
            Some(run) if differing == 0 && run.new == 0 => {
                run.same += u32::try_from(own.len()).unwrap_or(0);
            }
            _ => pairs().for_each(|(word, &known)| self.push(u64::from_le_bytes(*word), known)),
        }
    }

    /// Add a word.
    fn push(&mut self, word: u64, known: u64) {
        let is_new = word != known;
        match self.runs.last_mut() {
            Some(run) if is_new => run.new += 1,
            Some(run) if run.new == 0 => run.same += 1,
            _ => self.runs.push(Run {
                same: u32::from(!is_new),
                new: u32::from(is_new),
            }),
        }
        if is_new {
            self.words.push(word);
        }
    }
}
