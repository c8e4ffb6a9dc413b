//! Which words a copy has, and which of them are new: registers by rising DWARF number, then the memory of its spans.

use std::ops::Range;

use super::extent::Extent;
use super::image::Image;
use super::{Run, WORD};

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
    (extent, process): (Extent<'_>, u32),
    runs: &[Run],
    mut words: &'w [u64],
) -> &'w [u64] {
    let mut places = places(extent);
    for run in runs {
        places.skip(run.same);
        let mut left = run.new;
        while let Some(place) = places.next(left) {
            let (new, rest) = words.split_at(words.len().min(place.words() as usize));
            words = rest;
            left -= place.words();
            match place {
                Place::Register(number) => {
                    if let Some(&word) = new.first() {
                        image.registers_mut(extent.row.task)[number] = word;
                    }
                }
                Place::Memory(address, _) => image.set(process, address, new),
            }
        }
    }
    words
}

/// Call `each` for every new word of a row with an address that it may lie near to: its own, or of registers the first.
pub(super) fn new_words<E>(
    extent: Extent<'_>,
    runs: &[Run],
    mut each: impl FnMut(u64) -> Result<(), E>,
) -> Result<(), E> {
    let mut places = places(extent);
    for run in runs {
        places.skip(run.same);
        let mut left = run.new;
        while let Some(place) = places.next(left) {
            left -= place.words();
            match place {
                Place::Register(_) => each(extent.row.start.0)?,
                Place::Memory(from, words) => {
                    (0..u64::from(words)).try_for_each(|word| each(from + word * WORD))?;
                }
            }
        }
    }
    Ok(())
}

/// Where words of a row belong.
enum Place {
    /// The register of this number.
    Register(usize),
    /// Memory: address, and number of words.
    Memory(u64, u32),
}

impl Place {
    fn words(&self) -> u32 {
        match *self {
            Self::Register(_) => 1,
            Self::Memory(_, words) => words,
        }
    }
}

/// Where the next words of a row belong.
struct Places<I> {
    /// Registers that are still to come.
    registers: u64,
    /// Memory that is next.
    range: Range<u64>,
    ranges: I,
}

/// All places of a row, which is checked.
fn places<'a>(extent: Extent<'a>) -> Places<impl Iterator<Item = Range<u64>> + 'a> {
    Places {
        registers: extent.row.registers,
        range: 0..0,
        ranges: extent.present().map(|(_, addresses)| addresses),
    }
}

impl<I: Iterator<Item = Range<u64>>> Places<I> {
    fn skip(&mut self, mut words: u32) {
        while let Some(place) = self.next(words) {
            words -= place.words();
        }
    }

    /// Where up to `words` words belong that are next; `None` where there are none.
    fn next(&mut self, words: u32) -> Option<Place> {
        if words == 0 {
            return None;
        }
        if self.registers != 0 {
            let number = self.registers.trailing_zeros() as usize;
            self.registers &= self.registers - 1;
            return Some(Place::Register(number));
        }
        while self.range.end - self.range.start < WORD {
            self.range = self.ranges.next()?;
        }
        let (from, room) = (self.range.start, (self.range.end - self.range.start) / WORD);
        let words = u32::try_from(room).map_or(words, |room| room.min(words));
        self.range.start += u64::from(words) * WORD;
        Some(Place::Memory(from, words))
    }
}
