//! Goes through the copies of a chunk and lends them.

use std::fmt;
use std::ops::Range;

use super::image::Image;
use super::words::{Runs, apply};
use super::{
    CopyLoss, Missing, Registers, ReturnAddress, Row, StackCopies, WORD, present, present_words,
};
use crate::id::{Addr, StackId};

/// Reads copies one after the other. What it lends is gone with the next one.
pub struct CopyReader<'a> {
    copies: &'a StackCopies,
    at: usize,
    missing: &'a [Missing],
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
    /// End of the mapping that the stack lies in: no frame of this stack is at or behind it.
    pub end: Addr,
    /// Bytes from `start` that were asked for. Less than to `end` where the stack is larger than a copy may be.
    pub asked: u64,
    /// What of `asked` was not in memory, upwards.
    pub missing: &'a [Missing],
    /// When the program began that ran in the process, on the monotonic clock; 0: before the recording. Mappings of the
    /// process that are [older](crate::record::Mapping::since_ns) are of another program.
    pub program_since_ns: u64,
    returns: &'a [ReturnAddress],
    row: &'a Row,
    image: &'a Image,
}

impl<'a> CopyReader<'a> {
    pub(super) fn new(copies: &'a StackCopies) -> Self {
        Self {
            copies,
            at: 0,
            missing: &copies.missing,
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
        let (missing, rest) = self.missing.split_at_checked(row.missing as usize)?;
        self.missing = rest;
        let (returns, rest) = self.returns.split_at_checked(row.returns as usize)?;
        self.returns = rest;
        let asked = row.asked();
        let registers = u64::from(row.registers.count_ones());
        let words = present_words(asked, missing).ok()? + registers;
        let runs = self.runs.take(words)?;
        self.words = apply(&mut self.image, (row, pid), missing, runs, self.words);
        Some(StackCopy {
            owner: row.owner,
            pid,
            tid,
            machine: row.machine,
            loss: row.loss,
            start: row.start,
            end: row.end,
            asked,
            missing,
            program_since_ns: row.program_since_ns,
            returns,
            row,
            image: &self.image,
        })
    }
}

impl StackCopy<'_> {
    /// The register of this DWARF number; `None` where it is not known.
    pub fn register(&self, number: u16) -> Option<u64> {
        let is_known = self.row.registers.checked_shr(number.into()).unwrap_or(0) & 1 != 0;
        let values = self.image.registers(self.row.task);
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
        (!self.returns.is_empty()).then_some(self.row.trampoline)
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
        let from = address.checked_sub(self.start.0)?;
        if from > self.asked.checked_sub(WORD)? || !self.is_present(from) {
            return None;
        }
        let within = address % WORD;
        let low = self.image.word(self.pid, address);
        if within == 0 {
            return Some(low);
        }
        // Its word ends behind this one's, which ends within what was asked for.
        let next = address - within + WORD;
        if !self.is_present(next - self.start.0) {
            return None;
        }
        let high = self.image.word(self.pid, next);
        Some(low >> (within * 8) | high << (64 - within * 8))
    }

    /// Whether the byte at this offset, below `asked`, was copied.
    fn is_present(&self, offset: u64) -> bool {
        let behind = self.missing.partition_point(|gap| gap.offset <= offset);
        let gap = behind.checked_sub(1).and_then(|at| self.missing.get(at));
        gap.is_none_or(|gap| offset - gap.offset >= gap.len)
    }

    /// Ranges of addresses that were copied, upwards.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        present(self.row, self.missing)
    }

    /// Whether the stack goes on behind what was asked for.
    pub fn is_cut(&self) -> bool {
        self.row.left_out > 0
    }

    /// Bytes that were copied.
    pub fn copied(&self) -> u64 {
        self.ranges().map(|range| range.end - range.start).sum()
    }

    /// Put the `asked` bytes from `start` on into `bytes`, zeros where they are missing.
    ///
    /// For programs that look at all of it; [`word`](Self::word) looks up what is needed and no more.
    pub fn unpack(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        for range in self.ranges() {
            let from = usize::try_from(range.start - self.start.0).unwrap_or(usize::MAX);
            bytes.resize(from, 0);
            let words = range.step_by(size_of::<u64>());
            bytes
                .extend(words.flat_map(|address| self.image.word(self.pid, address).to_le_bytes()));
        }
        bytes.resize(usize::try_from(self.asked).unwrap_or(bytes.len()), 0);
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
            .field("missing", &self.missing)
            .finish_non_exhaustive()
    }
}
