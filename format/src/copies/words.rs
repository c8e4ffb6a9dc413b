//! Which words a copy has, and which of them are new: registers by rising DWARF number, then memory upwards.

use std::iter;
use std::ops::Range;

use super::image::Image;
use super::{Missing, Row, Run, WORD};

/// Ranges of addresses of a row's words that are there, upwards. The row is checked.
pub(crate) fn present<'a>(
    row: &Row,
    missing: &'a [Missing],
) -> impl Iterator<Item = Range<u64>> + 'a {
    let (start, asked) = (row.start.0, row.asked());
    let mut from = 0;
    let end = Missing {
        offset: asked,
        len: 0,
    };
    let gaps = missing.iter().copied().chain(iter::once(end));
    gaps.filter_map(move |gap| {
        let range = from..gap.offset;
        from = gap.offset + gap.len;
        (!range.is_empty()).then(|| start + range.start..start + range.end)
    })
}

/// Goes through runs, row by row.
pub(super) struct Runs<'a> {
    runs: &'a [Run],
}

impl<'a> Runs<'a> {
    pub(super) fn new(runs: &'a [Run]) -> Self {
        Self { runs }
    }

    /// Take the runs of a row of `words` words; `None` where they do not end with it.
    pub(super) fn take(&mut self, words: u64) -> Option<&'a [Run]> {
        let (mut left, mut count) = (words, 0);
        while left > 0 {
            let len = self.runs.get(count)?.len();
            left = left.checked_sub(len).filter(|_| len > 0)?;
            count += 1;
        }
        let (own, rest) = self.runs.split_at(count);
        self.runs = rest;
        Some(own)
    }

    /// Whether no run is left.
    pub(super) fn is_done(&self) -> bool {
        self.runs.is_empty()
    }
}

/// Put what is new in a row into the image, and give the new words that are left for later rows.
pub(super) fn apply<'w>(
    image: &mut Image,
    (row, process): (&Row, u32),
    missing: &[Missing],
    runs: &[Run],
    mut words: &'w [u64],
) -> &'w [u64] {
    let mut places = Places {
        registers: row.registers,
        range: 0..0,
        ranges: present(row, missing),
    };
    for run in runs {
        places.skip(run.same.into());
        let (new, rest) = words.split_at(words.len().min(run.new as usize));
        words = rest;
        places.put(image, (row.task, process), new);
    }
    words
}

/// Where the next words of a row belong.
struct Places<I> {
    /// Registers that are still to come.
    registers: u64,
    /// Memory that is next.
    range: Range<u64>,
    ranges: I,
}

impl<I: Iterator<Item = Range<u64>>> Places<I> {
    fn skip(&mut self, mut words: u64) {
        while words > 0 && self.registers != 0 {
            self.registers &= self.registers - 1;
            words -= 1;
        }
        while words > 0 && self.has_memory() {
            let len = words.min((self.range.end - self.range.start) / WORD);
            self.range.start += len * WORD;
            words -= len;
        }
    }

    fn put(&mut self, image: &mut Image, (task, process): (u32, u32), mut words: &[u64]) {
        while self.registers != 0
            && let Some((&word, rest)) = words.split_first()
        {
            let number = self.registers.trailing_zeros() as usize;
            image.registers_mut(task)[number] = word;
            self.registers &= self.registers - 1;
            words = rest;
        }
        while !words.is_empty() && self.has_memory() {
            let room = (self.range.end - self.range.start) / WORD;
            let len = usize::try_from(room).map_or(words.len(), |room| room.min(words.len()));
            let (own, rest) = words.split_at(len);
            image.set(process, self.range.start, own);
            self.range.start += len as u64 * WORD;
            words = rest;
        }
    }

    /// Go on to a range that is not used up; `false` where none is left.
    fn has_memory(&mut self) -> bool {
        while self.range.is_empty() {
            let Some(next) = self.ranges.next() else {
                return false;
            };
            self.range = next;
        }
        true
    }
}
