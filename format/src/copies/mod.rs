//! Copies of stacks: registers and memory of user halves, from which stacks are unwound later. Knows nothing of bytes in
//! a file.
//!
//! Consecutive copies of one process are mostly the same, so a chunk holds what is new in each. What it is new to is an
//! *image*: all memory of that process as the copies before in the same chunk showed it, by address, and zeros where
//! none did; likewise the registers of a thread. So a chunk needs no other chunk, and a lost one costs its own copies.
//! An image is never unpacked into copies: [`CopyReader`] lends one copy at a time, with its words looked up as they are
//! asked for.

mod build;
mod diff;
mod extent;
mod image;
mod read;
mod words;

pub use build::{CopiesBuilder, NewCopy};
pub use read::{CopyReader, StackCopy};

use extent::Extents;
use words::{Runs, new_words};

use crate::error::Invalid;
use crate::id::{Addr, StackId};
use crate::v1::MAX_ROWS;

/// Most bytes of one copy, all its spans together: a copy that has nothing in common with any other fits a chunk.
pub const MAX_COPY_LEN: u64 = 640 << 10;

/// Most spans of one copy behind its first.
pub const MAX_FURTHER: usize = 3;

/// Most bytes of all copies in a chunk, as they would be unpacked.
pub const MAX_COPIED_LEN: u64 = 256 << 20;

/// Registers that a copy can have: DWARF numbers below.
pub const MAX_REGISTERS: usize = 40;

/// Most return addresses of one copy that uretprobes replaced: the kernel has no more of one thread.
pub const MAX_RETURNS: usize = 64;

/// Most runs of one chunk. Columns of zeros take no bytes, so the length of a chunk does not bound them.
pub(crate) const MAX_RUNS: usize = 1 << 18;

/// Most new words of one chunk. Those that are 0 or stand for what is left out take next to no bytes.
pub(crate) const MAX_WORDS: usize = 1 << 18;

/// Bytes of a word. Copies start at a multiple of it and have whole words.
pub(crate) const WORD: u64 = 8;

/// ELF machine of x86-64. DWARF numbers: 0 rax, rdx, rcx, rbx, rsi, rdi, rbp, 7 rsp, 8–15 r8–r15, 16 rip.
pub const X86_64: u16 = 62;

/// ELF machine of arm64. DWARF numbers: 0–30 x0–x30, 31 sp, 32 pc.
pub const AARCH64: u16 = 183;

/// Registers of a thread in user space, by their DWARF numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    known: u64,
    values: [u64; MAX_REGISTERS],
}

impl Default for Registers {
    fn default() -> Self {
        Self {
            known: 0,
            values: [0; MAX_REGISTERS],
        }
    }
}

impl Registers {
    /// Set the register of this DWARF number; `false` where no copy can hold it.
    pub fn set(&mut self, number: u16, value: u64) -> bool {
        let Some(place) = self.values.get_mut(usize::from(number)) else {
            return false;
        };
        *place = value;
        self.known |= 1 << number;
        true
    }

    /// Value of the register of this DWARF number; `None` where it is not known.
    pub fn get(&self, number: u16) -> Option<u64> {
        let is_known = self.known.checked_shr(number.into()).unwrap_or(0) & 1 != 0;
        let value = self.values.get(usize::from(number)).copied();
        value.filter(|_| is_known)
    }

    /// DWARF numbers of the known ones, one bit each.
    pub(crate) fn mask(&self) -> u64 {
        self.known
    }
}

/// Why nothing was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum CopyLoss {
    /// It was.
    #[default]
    None = 0,
    /// The ring buffer between kernel and recorder was full.
    BufferFull = 1,
    /// The ring buffer was in use by the interrupted program.
    Contended = 2,
    /// The recorder ran into its memory bound.
    Unwritten = 3,
    /// Nothing is mapped at the stack pointer.
    NoStack = 4,
}

impl CopyLoss {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 5] = [
        Self::None,
        Self::BufferFull,
        Self::Contended,
        Self::Unwritten,
        Self::NoStack,
    ];

    /// Name in JSON and in text.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::BufferFull => "buffer-full",
            Self::Contended => "contended",
            Self::Unwritten => "unwritten",
            Self::NoStack => "no-stack",
        }
    }
}

/// A part of a stack that was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Address of the first byte, a multiple of 8.
    pub start: Addr,
    /// End of the stack that this is of: none of its frames is at or behind it. Spans of one stack have the same.
    pub end: Addr,
    /// Bytes from `start` that were asked for, a multiple of 8.
    pub asked: u64,
}

/// Bytes of a copy's spans that were not in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// First byte, counted from the first of the first span on through all that was asked for. A multiple of 8, as the
    /// length.
    pub offset: u64,
    /// Length in bytes, not 0.
    pub len: u64,
}

/// A return address that a uretprobe replaced by that of its trampoline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReturnAddress {
    /// The stack pointer at the first instruction of the function that returns there: on x86-64 where the return address
    /// stands.
    pub place: Addr,
    /// Where the function returns to.
    pub address: Addr,
}

/// Copies of stacks of one chunk, in the order in which they were taken of each thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackCopies {
    /// Threads: process ID, thread ID.
    pub(crate) tasks: Vec<(u32, u32)>,
    pub(crate) rows: Vec<Row>,
    /// Further spans of all rows.
    pub(crate) spans: Vec<Span>,
    /// Missing ranges of all rows.
    pub(crate) missing: Vec<Missing>,
    /// Replaced return addresses of all rows.
    pub(crate) returns: Vec<ReturnAddress>,
    /// What each row's words are, registers first, then memory upwards.
    pub(crate) runs: Vec<Run>,
    /// New words of all runs: those that are not as in the image, and some between them.
    pub(crate) words: Vec<u64>,
}

/// One copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) owner: StackId,
    /// Index into the tasks.
    pub(crate) task: u32,
    pub(crate) machine: u16,
    pub(crate) loss: CopyLoss,
    /// DWARF numbers of the known registers, one bit each.
    pub(crate) registers: u64,
    /// First address of the first span; a multiple of [`WORD`].
    pub(crate) start: Addr,
    /// End of the stack that the first span is of.
    pub(crate) end: Addr,
    /// Bytes before `end` that the first span does not have.
    pub(crate) left_out: u64,
    /// Spans behind the first.
    pub(crate) spans: u32,
    /// Missing ranges.
    pub(crate) missing: u32,
    /// When the program began, on the monotonic clock; 0: before the recording.
    pub(crate) program_since_ns: u64,
    /// Where functions with uretprobes return to; 0 where the row has no replaced return addresses.
    pub(crate) trampoline: Addr,
    /// Replaced return addresses.
    pub(crate) returns: u32,
}

impl Row {
    /// The first span. Rows are [checked](Self::check), so nothing wraps.
    pub(crate) fn first(&self) -> Span {
        Span {
            start: self.start,
            end: self.end,
            asked: self.end.0 - self.start.0 - self.left_out,
        }
    }

    /// Check the numbers by themselves.
    fn check(&self) -> Result<(), Invalid> {
        let size = self.end.0.checked_sub(self.start.0).ok_or(Invalid::Value)?;
        let asked = size.checked_sub(self.left_out).ok_or(Invalid::Value)?;
        let is_sound = self.start.0.is_multiple_of(WORD)
            && asked.is_multiple_of(WORD)
            && asked <= MAX_COPY_LEN
            && self.registers >> MAX_REGISTERS == 0
            && self.returns as usize <= MAX_RETURNS
            && (self.returns == 0) == (self.trampoline.0 == 0)
            && (self.loss == CopyLoss::None || (size == 0 && self.spans == 0));
        is_sound.then_some(()).ok_or(Invalid::Value)
    }
}

/// Words that are as in the image, and behind them some that are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) same: u32,
    pub(crate) new: u32,
}

impl Run {
    fn len(self) -> u64 {
        u64::from(self.same) + u64::from(self.new)
    }
}

impl StackCopies {
    /// Number of copies, with those of which only the loss is told.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Go through the copies in their order.
    pub fn reader(&self) -> CopyReader<'_> {
        CopyReader::new(self)
    }

    /// IDs and losses of all copies, without their content.
    pub fn losses(&self) -> impl Iterator<Item = (StackId, CopyLoss)> {
        self.rows.iter().map(|row| (row.owner, row.loss))
    }

    /// Call `each` for every new word of all rows with an address that it may lie near to: its own, or of registers the
    /// first of its copy. Rows and runs need not be checked.
    pub(crate) fn each_new_word(
        &self,
        mut each: impl FnMut(u64) -> Result<(), Invalid>,
    ) -> Result<(), Invalid> {
        let (mut extents, mut runs) = (Extents::new(self), Runs::new(&self.runs));
        for row in &self.rows {
            let extent = extents.take(row)?;
            let words = extent.words()?;
            new_words(extent, runs.take(words).ok_or(Invalid::Rows)?, &mut each)?;
        }
        Ok(())
    }

    /// Check all that a reader relies on.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        if self.rows.len().max(self.tasks.len()) > MAX_ROWS
            || self.missing.len().max(self.returns.len()) > MAX_ROWS
            || self.spans.len() > MAX_ROWS
            || self.runs.len() > MAX_RUNS
            || self.words.len() > MAX_WORDS
        {
            return Err(Invalid::Rows);
        }
        let mut extents = Extents::new(self);
        let mut runs = Runs::new(&self.runs);
        let (mut copied, mut new, mut returns) = (0, 0, 0);
        for row in &self.rows {
            if row.task as usize >= self.tasks.len() {
                return Err(Invalid::Reference);
            }
            let extent = extents.take(row)?;
            copied += extent.asked();
            returns += row.returns as usize;
            let own = runs.take(extent.words()?).ok_or(Invalid::Rows)?;
            new += own.iter().map(|run| u64::from(run.new)).sum::<u64>();
        }
        let is_whole = extents.is_done()
            && runs.is_done()
            && new == self.words.len() as u64
            && returns == self.returns.len();
        if is_whole && copied <= MAX_COPIED_LEN {
            Ok(())
        } else {
            Err(Invalid::Rows)
        }
    }
}
