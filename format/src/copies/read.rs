//! Goes through the copies of a chunk and lends them.

use std::fmt;
use std::ops::Range;

use super::extent::{Extent, Extents};
use super::image::Image;
use super::words::{Runs, apply};
use super::{CopyLoss, Missing, Registers, ReturnAddress, Span, StackCopies, WORD};
use crate::id::{Addr, StackId};

/// Reads copies one after the other. What it lends is gone with the next one.
pub struct CopyReader<'a> {
    copies: &'a StackCopies,
    at: usize,
    extents: Extents<'a>,
    returns: &'a [ReturnAddress],
    runs: Runs<'a>,
    words: &'a [u64],
    image: Image,
}

/// One copy.
#[derive(Clone, Copy)]
pub struct StackCopy<'a> {
    /// ID whose user half this is: of the samples with this [`owner`](crate::record::Sample::owner).
    pub owner: StackId,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// ELF machine whose registers these are; what numbers they have is said at [`X86_64`](super::X86_64) and
    /// [`AARCH64`](super::AARCH64).
    pub machine: u16,
    /// Why there are no bytes.
    pub loss: CopyLoss,
    /// Address of the first byte. It is below the stack pointer by what may be in use there.
    pub start: Addr,
    /// End of the stack: none of its frames is at or behind it.
    pub end: Addr,
    /// Bytes from `start` that were asked for. Less than to `end` where the stack is larger than a copy may be.
    pub asked: u64,
    /// What was asked for beside that: the end of a longer stack, other stacks.
    pub further: &'a [Span],
    /// What of all that was not in memory, upwards.
    pub missing: &'a [Missing],
    /// When the program began that ran in the process, on the monotonic clock; 0: before the recording. Mappings of the
    /// process that are [older](crate::record::Mapping::since_ns) are of another program.
    pub program_since_ns: u64,
    returns: &'a [ReturnAddress],
    extent: Extent<'a>,
    image: &'a Image,
}

impl<'a> CopyReader<'a> {
    pub(super) fn new(copies: &'a StackCopies) -> Self {
        Self {
            copies,
            at: 0,
            extents: Extents::new(copies),
            returns: &copies.returns,
            runs: Runs::new(&copies.runs),
            words: &copies.words,
            image: Image::default(),
        }
    }

    /// The next copy; `None` behind the last.
    #[allow(clippy::should_implement_trait)] // An iterator cannot lend.
    pub fn next(&mut self) -> Option<StackCopy<'_>> {
        let row = self.copies.rows.get(self.at)?;
        self.at += 1;
        let &(pid, tid) = self.copies.tasks.get(row.task as usize)?;
        let extent = self.extents.take(row).ok()?;
        let (returns, rest) = self.returns.split_at_checked(row.returns as usize)?;
        self.returns = rest;
        let runs = self.runs.take(extent.words().ok()?)?;
        self.words = apply(&mut self.image, (extent, pid), runs, self.words);
        Some(StackCopy {
            owner: row.owner,
            pid,
            tid,
            machine: row.machine,
            loss: row.loss,
            start: row.start,
            end: row.end,
            asked: row.first().asked,
            further: extent.further,
            missing: extent.missing,
            program_since_ns: row.program_since_ns,
            returns,
            extent,
            image: &self.image,
        })
    }
}

impl StackCopy<'_> {
    /// The register of this DWARF number; `None` where it is not known.
    pub fn register(&self, number: u16) -> Option<u64> {
        let row = self.extent.row;
        let is_known = row.registers.checked_shr(number.into()).unwrap_or(0) & 1 != 0;
        let values = self.image.registers(row.task);
        values
            .get(usize::from(number))
            .copied()
            .filter(|_| is_known)
    }

    /// All registers that are known.
    pub fn registers(&self) -> Registers {
        let mut registers = Registers::default();
        for number in 0_u16..64 {
            if let Some(value) = self.register(number) {
                registers.set(number, value);
            }
        }
        registers
    }

    /// Return addresses that uretprobes replaced by their [trampoline's](Self::trampoline), innermost first. Some may be of
    /// functions that were left by `longjmp`, and some of other stacks of the thread.
    pub fn return_addresses(&self) -> &[ReturnAddress] {
        self.returns
    }

    /// The address that stands on the stack in the place of the [replaced ones](Self::return_addresses).
    pub fn trampoline(&self) -> Option<Addr> {
        (!self.returns.is_empty()).then_some(self.extent.row.trampoline)
    }

    /// Where a function returns to whose frame ends at `cfa`, its canonical frame address, when `found` is what stands
    /// for its return address in registers or on the stack: `found` itself, unless that is the trampoline. `None`: it is,
    /// and no replaced address is of this frame.
    pub fn return_address(&self, found: u64, cfa: u64) -> Option<u64> {
        if self.trampoline() != Some(Addr(found)) {
            return Some(found);
        }
        // On x86-64 the call has pushed the return address by the first instruction, on arm64 it has pushed nothing.
        let is_own = |place: u64| place == cfa || place == cfa.wrapping_sub(WORD);
        let own = self.returns.iter().find(|own| is_own(own.place.0));
        own.map(|own| own.address.0)
    }

    /// The eight bytes at `address` as a little-endian number; `None` where any of them was not copied.
    pub fn word(&self, address: u64) -> Option<u64> {
        let mut before = 0;
        self.spans().find_map(|span| {
            let word = self.word_in(span, before, address);
            before += span.asked;
            word
        })
    }

    /// The same where the word lies in `span`, ahead of which there are `before` bytes.
    fn word_in(&self, span: Span, before: u64, address: u64) -> Option<u64> {
        let from = address.checked_sub(span.start.0)?;
        if from > span.asked.checked_sub(WORD)? || !self.is_present(before + from) {
            return None;
        }
        let within = address % WORD;
        let low = self.image.word(self.pid, address);
        if within == 0 {
            return Some(low);
        }
        // Its word ends behind this one's, which ends within what was asked for.
        let next = address - within + WORD;
        if !self.is_present(before + (next - span.start.0)) {
            return None;
        }
        let high = self.image.word(self.pid, next);
        Some(low >> (within * 8) | high << (64 - within * 8))
    }

    /// Whether the byte at this offset among all that was asked for was copied.
    fn is_present(&self, offset: u64) -> bool {
        let behind = self.missing.partition_point(|gap| gap.offset <= offset);
        let gap = behind.checked_sub(1).and_then(|at| self.missing.get(at));
        gap.is_none_or(|gap| offset - gap.offset >= gap.len)
    }

    /// All that was asked for: the stack of the stack pointer from there on first.
    pub fn spans(&self) -> impl Iterator<Item = Span> {
        self.extent.spans()
    }

    /// Ranges of addresses that were copied, in the order of the spans.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.extent.present().map(|(_, addresses)| addresses)
    }

    /// Whether the stack goes on behind what was asked for of it in one piece.
    pub fn is_cut(&self) -> bool {
        self.extent.row.left_out > 0
    }

    /// Bytes that were copied.
    pub fn copied(&self) -> u64 {
        self.ranges().map(|range| range.end - range.start).sum()
    }

    /// Put all bytes that were asked for into `bytes`, one span behind the other, zeros where they are missing.
    ///
    /// For programs that look at all of it; [`word`](Self::word) looks up what is needed and no more.
    pub fn unpack(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        for (from, range) in self.extent.present() {
            let from = usize::try_from(from).unwrap_or(usize::MAX);
            bytes.resize(from, 0);
            let words = range.step_by(size_of::<u64>());
            bytes
                .extend(words.flat_map(|address| self.image.word(self.pid, address).to_le_bytes()));
        }
        let asked = usize::try_from(self.extent.asked());
        bytes.resize(asked.unwrap_or(bytes.len()), 0);
    }
}

impl fmt::Debug for CopyReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyReader")
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for StackCopy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StackCopy")
            .field("owner", &self.owner)
            .field("start", &self.start)
            .field("end", &self.end)
            .field("asked", &self.asked)
            .field("further", &self.further)
            .field("missing", &self.missing)
            .finish_non_exhaustive()
    }
}
