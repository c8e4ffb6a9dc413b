//! Copies to what is new in each. Bounded: says when a chunk is full.

use std::collections::HashMap;
use std::fmt;
use std::mem;

use foldhash::fast::RandomState;

use super::diff::Diff;
use super::extent::Extent;
use super::image::{Image, PAGE_WORDS};
use super::words::apply;
use super::{
    CopyLoss, MAX_COPIED_LEN, MAX_RUNS, MAX_WORDS, Missing, Registers, ReturnAddress, Row, Span,
    StackCopies, WORD,
};
use crate::MAX_RAW_LEN;
use crate::error::Invalid;
use crate::id::{Addr, StackId};
use crate::v1::MAX_ROWS;

/// Most pages of images, of 1024 bytes: what chunks of many half-empty pages may take.
const MAX_PAGES: usize = 1 << 13;

/// Bytes of a chunk without copies, with room for alignment.
const BASE: usize = 512;

/// Most bytes that a row takes.
const ROW: usize = 8 * 8 + 4 + 4 + 4 + 2 + 1 + 1;

/// Most bytes that a further span takes.
const SPAN: usize = 3 * 8;

/// Most bytes that a task, and a missing range, take.
const PAIR: usize = 8;

/// Most bytes that a replaced return address takes.
const RETURN: usize = 2 * 8;

/// Bytes that each new word takes: what it is.
const NEW_WORD: usize = 1;

/// Most bytes more that one takes that has to be told.
const TOLD_WORD: usize = size_of::<u64>();

/// Most bytes that a run takes: no copy has more than 2¹⁷ words.
const RUN: usize = 2 * 3;

/// A copy as it was taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewCopy<'a> {
    /// ID whose user half this is.
    pub owner: StackId,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// ELF machine whose registers these are.
    pub machine: u16,
    /// Registers of the return to user space.
    pub registers: Registers,
    /// Why there are no bytes. Then the span is empty.
    pub loss: CopyLoss,
    /// Address of the first byte: what is below the stack pointer and still in use included. A multiple of 8.
    pub start: Addr,
    /// End of the stack.
    pub end: Addr,
    /// Bytes from `start` that were asked for, a multiple of 8: to `end`, or as many as a copy may have.
    pub asked: u64,
    /// What was asked for beside that: the end of a longer stack, or other stacks.
    pub further: &'a [Span],
    /// What was read of all spans, one behind the other, zeros where that is missing. What is missing at the end may be
    /// left out.
    pub bytes: &'a [u8],
    /// What of all that was asked for was not in memory, upwards. What is behind `bytes` is added.
    pub missing: &'a [Missing],
    /// When the program began, on the monotonic clock; 0: before the recording.
    pub program_since_ns: u64,
    /// Where functions with uretprobes return to; 0 where `returns` is empty.
    pub trampoline: Addr,
    /// Return addresses that uretprobes replaced, innermost first.
    pub returns: &'a [ReturnAddress],
}

/// Builds the copies of one chunk after the other.
#[derive(Default)]
pub struct CopiesBuilder {
    copies: StackCopies,
    tasks: HashMap<(u32, u32), u32, RandomState>,
    image: Image,
    /// Most bytes that the copies take in a chunk.
    bound: usize,
    /// Bytes of the copies, were they unpacked.
    copied: u64,
    /// What is new in the copy at hand.
    diff: Diff,
}

impl CopiesBuilder {
    /// Add a copy. `Ok(false)`: the chunk is full and the copy is not in it; [take](Self::take) it and try again, then
    /// there is room. What contradicts itself is refused.
    pub fn push(&mut self, copy: &NewCopy<'_>) -> Result<bool, Invalid> {
        let missing = all_missing(copy);
        let row = self.row(copy, missing.len());
        let extent = Extent {
            row: &row,
            further: copy.further,
            missing: &missing,
        };
        let extent = extent.checked()?;
        extent.words()?;
        if copy.bytes.len() as u64 > extent.asked() {
            return Err(Invalid::Value);
        }
        self.diff.make(&self.image, extent, copy);
        if self.has_room(extent) {
            self.add(extent, copy);
            Ok(true)
        } else if self.copies.rows.is_empty() {
            Err(Invalid::Rows)
        } else {
            Ok(false)
        }
    }

    /// Copies in the chunk at hand.
    pub fn len(&self) -> usize {
        self.copies.len()
    }

    /// Whether the chunk at hand has no copies.
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// The chunk at hand.
    pub fn copies(&self) -> &StackCopies {
        &self.copies
    }

    /// Most bytes that the chunk at hand takes, raw.
    pub fn raw_bound(&self) -> usize {
        BASE + self.bound
    }

    /// Take the chunk and begin another.
    pub fn take(&mut self) -> StackCopies {
        self.tasks.clear();
        self.image.clear();
        (self.bound, self.copied) = (0, 0);
        mem::take(&mut self.copies)
    }

    fn row(&self, copy: &NewCopy<'_>, missing: usize) -> Row {
        let next = self.copies.tasks.len();
        let task = self.tasks.get(&(copy.pid, copy.tid)).copied();
        let size = copy.end.0.wrapping_sub(copy.start.0);
        Row {
            owner: copy.owner,
            task: task.unwrap_or(u32::try_from(next).unwrap_or(u32::MAX)),
            machine: copy.machine,
            loss: copy.loss,
            registers: copy.registers.mask(),
            start: copy.start,
            end: copy.end,
            left_out: size.wrapping_sub(copy.asked),
            spans: u32::try_from(copy.further.len()).unwrap_or(u32::MAX),
            missing: u32::try_from(missing).unwrap_or(u32::MAX),
            program_since_ns: copy.program_since_ns,
            trampoline: copy.trampoline,
            returns: u32::try_from(copy.returns.len()).unwrap_or(u32::MAX),
        }
    }

    /// Bytes that the copy at hand takes at most.
    fn own_bound(&self, row: &Row) -> usize {
        ROW + PAIR
            + row.spans as usize * SPAN
            + row.missing as usize * PAIR
            + row.returns as usize * RETURN
            + self.diff.runs.len() * RUN
            + self.diff.words.len() * NEW_WORD
            + self.diff.told() * TOLD_WORD
    }

    fn has_room(&self, extent: Extent<'_>) -> bool {
        let (copies, row) = (&self.copies, extent.row);
        BASE + self.bound + self.own_bound(row) <= MAX_RAW_LEN
            && copies.rows.len() < MAX_ROWS
            && copies.spans.len() + row.spans as usize <= MAX_ROWS
            && copies.missing.len() + row.missing as usize <= MAX_ROWS
            && copies.returns.len() + row.returns as usize <= MAX_ROWS
            && copies.runs.len() + self.diff.runs.len() <= MAX_RUNS
            && copies.words.len() + self.diff.words.len() <= MAX_WORDS
            && self.copied + extent.asked() <= MAX_COPIED_LEN
            && (self.image.pages() + self.diff.words.len() / PAGE_WORDS <= MAX_PAGES
                || copies.rows.is_empty())
    }

    fn add(&mut self, extent: Extent<'_>, copy: &NewCopy<'_>) {
        let row = extent.row;
        self.bound += self.own_bound(row);
        self.copied += extent.asked();
        if row.task as usize == self.copies.tasks.len() {
            self.copies.tasks.push((copy.pid, copy.tid));
            self.tasks.insert((copy.pid, copy.tid), row.task);
        }
        let Diff { runs, words, .. } = &self.diff;
        apply(&mut self.image, (extent, copy.pid), runs, words);
        self.copies.rows.push(*row);
        self.copies.spans.extend_from_slice(extent.further);
        self.copies.missing.extend_from_slice(extent.missing);
        self.copies.returns.extend_from_slice(copy.returns);
        self.copies.runs.append(&mut self.diff.runs);
        self.copies.words.append(&mut self.diff.words);
    }
}

/// Missing ranges of a copy, with what is behind its bytes. Whole words: of a word that is cut all is missing.
fn all_missing(copy: &NewCopy<'_>) -> Vec<Missing> {
    let len = copy.bytes.len() as u64 / WORD * WORD;
    let inside = copy.missing.iter().take_while(|gap| gap.offset < len);
    let mut missing: Vec<Missing> = inside.copied().collect();
    let last = missing.pop_if(|gap| gap.offset.saturating_add(gap.len) >= len);
    let tail = last.map_or(len, |gap| gap.offset);
    let further = copy.further.iter().map(|span| span.asked);
    let asked = further.fold(copy.asked, u64::saturating_add);
    if let Some(len) = asked.checked_sub(tail).filter(|&len| len > 0) {
        missing.push(Missing { offset: tail, len });
    }
    missing
}

impl fmt::Debug for CopiesBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopiesBuilder")
            .field("copies", &self.len())
            .field("raw_bound", &self.raw_bound())
            .finish_non_exhaustive()
    }
}
