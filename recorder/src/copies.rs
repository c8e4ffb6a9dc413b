//! Copies of stacks on their way into the archive, and how many there were. Knows nothing of samples.

use rawstack_bpf::{Copy, CopyState};
use rawstack_format::copies::{
    AARCH64, CopiesBuilder, CopyLoss, Missing, NewCopy, Registers, ReturnAddress, Span,
    StackCopies, X86_64,
};
use rawstack_format::id::{Addr, StackId};

use crate::sieve::is_ending;
use crate::summary::grouped;

/// ELF machine of this host, and so of what the registers are.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") {
    AARCH64
} else {
    X86_64
};

/// Whether a register may say where code or a frame is, or that there is none. What else is in registers no unwinding
/// needs; it changes with each sample, and is not the archive's to keep.
fn may_be_needed(number: u16, value: u64) -> bool {
    /// Nothing can be mapped below (`vm.mmap_min_addr`).
    const LOWEST: u64 = 4096;
    /// End of what the largest address spaces have: 57 bits on x86-64, 52 on arm64. A pointer authentication code stands
    /// above bit 47 of return addresses there.
    const END: u64 = if cfg!(target_arch = "aarch64") {
        u64::MAX
    } else {
        1 << 56
    };
    (LOWEST..END).contains(&value) || is_ending(number.into(), value)
}

/// Copies that go before the next batch: a chunk of them at most, which bounds what they take.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    builder: CopiesBuilder,
}

/// How many copies there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyCounts {
    /// Copies with memory.
    pub taken: u64,
    /// Of these, those of stacks that are larger than a copy may be.
    pub cut: u64,
    /// Of these, those of which pages were not in memory.
    pub partial: u64,
    /// Bytes that they have.
    pub bytes: u64,
    /// User halves without one, by [`CopyLoss`].
    pub lost: [u64; CopyLoss::ALL.len()],
}

impl Copies {
    /// Add a copy of a stack of a program that began at `program_since_ns`, with the registers of which `kept` has a bit.
    /// False: a chunk is full; [take](Self::take) it and try again.
    pub(crate) fn push(
        &mut self,
        copy: &Copy<'_>,
        (program_since_ns, kept): (u64, u64),
        counts: &mut CopyCounts,
    ) -> bool {
        let mut registers = Registers::default();
        for (number, value) in (0..).zip(copy.registers.iter()) {
            if may_be_needed(number, value) && kept >> number & 1 != 0 {
                registers.set(number, value);
            }
        }
        let gap = |range: std::ops::Range<usize>| Missing {
            offset: range.start as u64,
            len: range.len() as u64,
        };
        let missing: Vec<Missing> = copy.missing().into_iter().map(gap).collect();
        let returns: Vec<ReturnAddress> = copy
            .returns
            .iter()
            .map(|(place, address)| ReturnAddress {
                place: Addr(place),
                address: Addr(address),
            })
            .collect();
        let first = copy.first();
        let further: Vec<Span> = copy
            .further()
            .map(|span| Span {
                start: Addr(span.start),
                end: Addr(span.end),
                asked: span.asked as u64,
            })
            .collect();
        let new = NewCopy {
            owner: StackId(copy.owner),
            pid: copy.pid,
            tid: copy.tid,
            machine: MACHINE,
            registers,
            loss: CopyLoss::None,
            start: Addr(first.start),
            end: Addr(first.end),
            asked: first.asked as u64,
            further: &further,
            bytes: copy.bytes,
            missing: &missing,
            program_since_ns,
            trampoline: Addr(copy.trampoline),
            returns: &returns,
        };
        // What the kernel side sends is sound; were it not, it would be no copy at all.
        let fits = self.builder.push(&new).unwrap_or(true);
        if fits {
            let gaps: u64 = missing.iter().map(|gap| gap.len).sum();
            counts.taken += 1;
            counts.cut += u64::from(first.start + (first.asked as u64) < first.end);
            counts.partial += u64::from(gaps > 0);
            counts.bytes += copy.bytes.len() as u64 - gaps;
        }
        fits
    }

    /// Say that a user half has no copy, and why. False as for [`push`](Self::push).
    pub(crate) fn miss(
        &mut self,
        owner: u64,
        (pid, tid): (u32, u32),
        state: CopyState,
        counts: &mut CopyCounts,
    ) -> bool {
        let loss = match state {
            CopyState::Taken => return true,
            CopyState::BufferFull => CopyLoss::BufferFull,
            CopyState::Contended => CopyLoss::Contended,
            CopyState::NoStack => CopyLoss::NoStack,
        };
        let new = NewCopy {
            owner: StackId(owner),
            pid,
            tid,
            machine: MACHINE,
            loss,
            ..NewCopy::default()
        };
        let fits = self.builder.push(&new).unwrap_or(true);
        counts.lost[loss as usize] += u64::from(fits);
        fits
    }

    /// Whether none has come.
    pub(crate) fn is_empty(&self) -> bool {
        self.builder.is_empty()
    }

    /// What has come since the last call.
    pub(crate) fn take(&mut self) -> StackCopies {
        self.builder.take()
    }

    /// The same, and keep it.
    pub(crate) fn peek(&self) -> StackCopies {
        self.builder.copies().clone()
    }
}

impl CopyCounts {
    /// Add those of another archive.
    pub(crate) fn add(&mut self, other: &Self) {
        self.taken += other.taken;
        self.cut += other.cut;
        self.partial += other.partial;
        self.bytes += other.bytes;
        for (lost, more) in self.lost.iter_mut().zip(other.lost) {
            *lost += more;
        }
    }

    /// For people; `None` where no copies were asked for. `addresses_only`: of the words, only these were kept.
    pub(crate) fn text(&self, addresses_only: bool) -> Option<String> {
        let lost: u64 = self.lost.iter().sum();
        if self.taken + lost == 0 {
            return None;
        }
        let each = grouped(self.bytes / self.taken.max(1));
        let what = if addresses_only {
            "addresses from memory of programs"
        } else {
            "memory of programs"
        };
        let taken = grouped(self.taken);
        let mut text = format!("{taken} of stacks, {each} bytes each: the archive holds {what}");
        for (count, what) in [(self.cut, "cut"), (self.partial, "with pages missing")] {
            if count > 0 {
                text.push_str(&format!(", {} {what}", grouped(count)));
            }
        }
        for (loss, count) in CopyLoss::ALL.iter().zip(self.lost) {
            if count > 0 {
                text.push_str(&format!(", {} lost ({})", grouped(count), loss.name()));
            }
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that addresses are told from numbers, and that a frame pointer may be 0.
    #[test]
    fn addresses() {
        for address in [0x1000, 0x40_1136, 0x7fff_ffff_f000] {
            assert!(may_be_needed(0, address), "{address:#x}");
        }
        for number in [0, 200, 0xfff] {
            assert!(!may_be_needed(0, number), "{number:#x}");
        }
        let frame_pointer = if MACHINE == AARCH64 { 29 } else { 6 };
        assert!(may_be_needed(frame_pointer, 0) && !may_be_needed(frame_pointer, 200));
    }

    /// Check that the summary says that memory was copied, how much, and what is missing; and nothing where none was.
    #[test]
    fn text() {
        assert_eq!(CopyCounts::default().text(false), None);
        let mut counts = CopyCounts {
            taken: 2000,
            cut: 3,
            bytes: 28_000_000,
            ..CopyCounts::default()
        };
        counts.lost[CopyLoss::BufferFull as usize] = 5;
        assert_eq!(
            counts.text(false).unwrap(),
            "2,000 of stacks, 14,000 bytes each: the archive holds memory of programs, 3 cut, 5 lost (buffer-full)"
        );
        let text = counts.text(true).unwrap();
        assert!(text.contains("holds addresses from memory of programs, 3 cut"));
    }
}
