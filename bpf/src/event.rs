//! What the programs send, from bytes to [`Event`]. Knows nothing of maps.
//!
//! Positions of the fields come from the programs' own type information, through the skeleton.

use std::mem::{offset_of, size_of};
use std::ops::Range;

use crate::skel::types::{copy_event, drop_event, tick_event, user_header};

/// How an ID ended; numbers as in `src/c/event.h` and in the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// Both halves whole.
    Complete = 0,
    /// Deeper than the limit.
    Truncated = 1,
    /// User memory truly not there, or replaced before it could be read.
    Faulted = 2,
    /// The task died before it returned to user space.
    Exited = 3,
    /// The task executed another program before it returned.
    Execed = 4,
    /// The return could not be hooked.
    ScheduleFailed = 5,
    /// Lost on the way.
    Dropped = 6,
    /// Still to come.
    Pending = 7,
}

impl State {
    /// The state of a sample whose kernel half was cut, or not, when its user half ended in this one.
    pub fn with_kernel_cut(self, kernel_cut: bool) -> Self {
        if kernel_cut && self == Self::Complete {
            Self::Truncated
        } else {
            self
        }
    }

    fn from_wire(number: u8) -> Option<Self> {
        [
            Self::Complete,
            Self::Truncated,
            Self::Faulted,
            Self::Exited,
            Self::Execed,
            Self::ScheduleFailed,
            Self::Dropped,
            Self::Pending,
        ]
        .get(usize::from(number))
        .copied()
    }
}

/// Addresses of one half of a stack, leaf first, as the kernel sent them.
#[derive(Clone, Copy, Debug)]
pub struct Addresses<'a>(&'a [u8]);

impl<'a> Addresses<'a> {
    /// Number of addresses.
    pub fn len(&self) -> usize {
        self.0.len() / size_of::<u64>()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Leaf first.
    pub fn iter(
        &self,
    ) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + Clone + use<'a> {
        self.0
            .as_chunks::<8>()
            .0
            .iter()
            .map(|bytes| u64::from_ne_bytes(*bytes))
    }

    /// The bytes in the host's order, for hashing.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

/// Pairs of numbers, as the kernel sent them.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a>(Addresses<'a>);

impl Pairs<'_> {
    /// The pairs in their order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let numbers = self.0.iter();
        numbers.clone().step_by(2).zip(numbers.skip(1).step_by(2))
    }
}

/// A sample. Its user half is here, or comes as a [`UserHalf`] of `owner` while `state` is [`State::Pending`].
#[derive(Clone, Copy, Debug)]
pub struct Tick<'a> {
    /// ID.
    pub id: u64,
    /// ID whose user half this shares; often `id`.
    pub owner: u64,
    /// Monotonic clock, in nanoseconds.
    pub time_ns: u64,
    /// CPU.
    pub cpu: u32,
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// Number of the event.
    pub event: u32,
    /// Weight.
    pub weight: u64,
    /// State.
    pub state: State,
    /// The kernel half was cut at the limit.
    pub kernel_cut: bool,
    /// Recording ended while the task was blocked: it is pending for good, with what is known of its user half.
    pub still_blocked: bool,
    /// Frames that the user half really has where some were left out, else 0.
    pub user_depth: u32,
    /// Kernel half.
    pub kernel: Addresses<'a>,
    /// User half, empty while pending.
    pub user: Addresses<'a>,
    /// What became of the copy of its stack, where one was to be made here.
    pub copy: CopyState,
}

/// The user half of every sample with this owner.
#[derive(Clone, Copy, Debug)]
pub struct UserHalf<'a> {
    /// Owner.
    pub owner: u64,
    /// When it was taken.
    pub time_ns: u64,
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// Outcome.
    pub state: State,
    /// As [`Tick::user_depth`].
    pub user_depth: u32,
    /// User half.
    pub user: Addresses<'a>,
    /// What became of the copy of its stack, where one was to be made.
    pub copy: CopyState,
}

/// What became of the copy of a stack; numbers as in `src/c/event.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CopyState {
    /// It was made, or not asked for.
    Taken = 0,
    /// The ring buffer was full, but for what is left to samples.
    BufferFull = 1,
    /// The scratch space, or the list of mappings, was in use.
    Contended = 2,
    /// Nothing is mapped at the stack pointer.
    NoStack = 4,
}

impl CopyState {
    fn from_wire(number: u8) -> Option<Self> {
        let all = [
            Self::Taken,
            Self::BufferFull,
            Self::Contended,
            Self::NoStack,
        ];
        all.into_iter().find(|&state| state as u8 == number)
    }
}

/// A copy of a user stack: registers, and memory from below the stack pointer upwards. It comes ahead of the sample or
/// the user half of its owner.
#[derive(Clone, Copy, Debug)]
pub struct Copy<'a> {
    /// Owner.
    pub owner: u64,
    /// When it was made, on the monotonic clock, in nanoseconds.
    pub time_ns: u64,
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// Registers of the return to user space, by DWARF number.
    pub registers: Addresses<'a>,
    /// Address of the first byte, a multiple of 8.
    pub start: u64,
    /// End of the mapping that the stack lies in.
    pub end: u64,
    /// Where functions with uretprobes return to; 0 where `returns` is empty.
    pub trampoline: u64,
    /// Return addresses that uretprobes replaced: the stack pointer at the function's first instruction, and the address;
    /// innermost first.
    pub returns: Pairs<'a>,
    /// Where the vDSO is mapped; 0 where that is not known.
    pub vdso: u64,
    /// Pages of 4096 bytes that were not in memory, from that of `start` on, a bit each.
    missing: [u64; 3],
    /// Memory from `start` on; zeros in pages that were not in memory.
    pub bytes: &'a [u8],
}

impl<'a> Copy<'a> {
    /// The same, with `bytes` in the place of its memory, of which they have the length.
    #[must_use]
    pub fn with_bytes<'b>(&self, bytes: &'b [u8]) -> Copy<'b>
    where
        'a: 'b,
    {
        Copy { bytes, ..*self }
    }

    /// What was not in memory: ranges of `bytes`, upwards, none next to another.
    pub fn missing(&self) -> Vec<Range<usize>> {
        const PAGE: u64 = 4096;
        let len = self.bytes.len();
        let first = self.start / PAGE * PAGE;
        let place = |page: u64| (first + page * PAGE).saturating_sub(self.start);
        let place = |page| usize::try_from(place(page)).map_or(len, |place| place.min(len));
        let is_missing = |page: &u64| {
            let word = usize::try_from(page / 64)
                .ok()
                .and_then(|at| self.missing.get(at));
            word.is_some_and(|word| word >> (page % 64) & 1 != 0)
        };
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for page in (0..self.missing.len() as u64 * 64).filter(is_missing) {
            let range = place(page)..place(page + 1);
            match ranges.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ if range.is_empty() => {}
                _ => ranges.push(range),
            }
        }
        ranges
    }
}

/// Why events were lost; numbers as in `src/c/event.h` and in the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LossReason {
    /// The ring buffer was full.
    BufferFull = 0,
    /// The ring buffer or the scratch space was in use by the interrupted program.
    Contended = 1,
    /// A user half found the ring buffer full: its samples are there.
    UserHalf = 3,
}

/// Events that were lost, told where it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Why.
    pub reason: LossReason,
    /// CPU.
    pub cpu: u32,
    /// How many.
    pub count: u64,
    /// Time of the first.
    pub from_ns: u64,
    /// Time of the last.
    pub to_ns: u64,
}

/// One event out of the ring buffer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A sample.
    Tick(Tick<'a>),
    /// A user half.
    UserHalf(UserHalf<'a>),
    /// A loss.
    Loss(Loss),
    /// A copy of a stack.
    Copy(Copy<'a>),
}

/// Where in a sample's flags the state of its copy stands, as `TICK_COPY_SHIFT` in `src/c/event.h`.
const COPY_SHIFT: u8 = 4;

/// Read an unsigned field of a wire struct.
macro_rules! field {
    ($bytes:expr, $wire:ty, $field:ident, $int:ty) => {
        <$int>::from_ne_bytes(*$bytes.get(offset_of!($wire, $field)..)?.first_chunk()?)
    };
}

impl<'a> Event<'a> {
    /// Take one event apart; `None` when it is none of ours.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        match u16::from_ne_bytes(*bytes.first_chunk()?) {
            1 => Self::parse_tick(bytes),
            2 => Self::parse_user(bytes),
            3 => Self::parse_loss(bytes),
            4 => Self::parse_copy(bytes),
            _ => None,
        }
    }

    fn parse_tick(bytes: &'a [u8]) -> Option<Self> {
        let frames = bytes.get(offset_of!(tick_event, frames)..)?;
        let n_kernel = usize::from(field!(bytes, tick_event, n_kernel, u16));
        let n_user = usize::from(field!(bytes, tick_event, n_user, u16));
        let (kernel, rest) = frames.split_at_checked(n_kernel * size_of::<u64>())?;
        Some(Self::Tick(Tick {
            id: field!(bytes, tick_event, id, u64),
            owner: field!(bytes, tick_event, owner, u64),
            time_ns: field!(bytes, tick_event, time_ns, u64),
            cpu: field!(bytes, tick_event, cpu, u32),
            pid: field!(bytes, tick_event, pid, u32),
            tid: field!(bytes, tick_event, tid, u32),
            event: field!(bytes, tick_event, event, u32),
            weight: field!(bytes, tick_event, weight, u64),
            state: State::from_wire(field!(bytes, tick_event, state, u8))?,
            kernel_cut: field!(bytes, tick_event, flags, u8) & 1 != 0,
            still_blocked: field!(bytes, tick_event, flags, u8) & 2 != 0,
            user_depth: field!(bytes, tick_event, user_depth, u32),
            kernel: Addresses(kernel),
            user: Addresses(rest.get(..n_user * size_of::<u64>())?),
            copy: CopyState::from_wire(field!(bytes, tick_event, flags, u8) >> COPY_SHIFT)?,
        }))
    }

    fn parse_user(bytes: &'a [u8]) -> Option<Self> {
        let frames = bytes.get(size_of::<user_header>()..)?;
        let n_user = usize::try_from(field!(bytes, user_header, n_user, u32)).ok()?;
        Some(Self::UserHalf(UserHalf {
            owner: field!(bytes, user_header, owner, u64),
            time_ns: field!(bytes, user_header, time_ns, u64),
            pid: field!(bytes, user_header, pid, u32),
            tid: field!(bytes, user_header, tid, u32),
            state: State::from_wire(field!(bytes, user_header, state, u8))?,
            user_depth: field!(bytes, user_header, user_depth, u32),
            user: Addresses(frames.get(..n_user.checked_mul(size_of::<u64>())?)?),
            copy: CopyState::from_wire(field!(bytes, user_header, copy, u8))?,
        }))
    }

    fn parse_copy(bytes: &'a [u8]) -> Option<Self> {
        let registers = bytes.get(offset_of!(copy_event, registers)..)?;
        let n_registers = usize::from(field!(bytes, copy_event, n_registers, u8));
        let asked = usize::try_from(field!(bytes, copy_event, asked, u64)).ok()?;
        let n_returns = usize::try_from(field!(bytes, copy_event, n_returns, u32)).ok()?;
        let memory = bytes.get(offset_of!(copy_event, bytes)..)?;
        let (memory, behind) = memory.split_at_checked(asked)?;
        let returns = behind.get(..n_returns.checked_mul(size_of::<[u64; 2]>())?)?;
        let trampoline = field!(bytes, copy_event, trampoline, u64);
        let at = offset_of!(copy_event, missing);
        let words = bytes.get(at..)?.as_chunks::<8>().0;
        let missing = words.first_chunk::<3>()?;
        Some(Self::Copy(Copy {
            owner: field!(bytes, copy_event, owner, u64),
            time_ns: field!(bytes, copy_event, time_ns, u64),
            pid: field!(bytes, copy_event, pid, u32),
            tid: field!(bytes, copy_event, tid, u32),
            registers: Addresses(registers.get(..n_registers * size_of::<u64>())?),
            start: field!(bytes, copy_event, start, u64),
            end: field!(bytes, copy_event, end, u64),
            trampoline: if n_returns > 0 { trampoline } else { 0 },
            returns: Pairs(Addresses(returns)),
            vdso: field!(bytes, copy_event, vdso, u64),
            missing: missing.map(u64::from_ne_bytes),
            bytes: memory,
        }))
    }

    fn parse_loss(bytes: &'a [u8]) -> Option<Self> {
        let reason = match field!(bytes, drop_event, reason, u16) {
            0 => LossReason::BufferFull,
            1 => LossReason::Contended,
            3 => LossReason::UserHalf,
            _ => return None,
        };
        Some(Self::Loss(Loss {
            reason,
            cpu: field!(bytes, drop_event, cpu, u32),
            count: field!(bytes, drop_event, count, u64),
            from_ns: field!(bytes, drop_event, from_ns, u64),
            to_ns: field!(bytes, drop_event, to_ns, u64),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(n_kernel: u16, n_user: u16, frames: &[u64]) -> Vec<u8> {
        let mut bytes = vec![0; offset_of!(tick_event, frames)];
        bytes[..2].copy_from_slice(&1u16.to_ne_bytes());
        let at = offset_of!(tick_event, n_kernel);
        bytes[at..at + 2].copy_from_slice(&n_kernel.to_ne_bytes());
        let at = offset_of!(tick_event, n_user);
        bytes[at..at + 2].copy_from_slice(&n_user.to_ne_bytes());
        frames
            .iter()
            .for_each(|frame| bytes.extend_from_slice(&frame.to_ne_bytes()));
        bytes
    }

    /// Check that both halves of a sample come out of their place.
    #[test]
    fn halves() {
        let bytes = tick(2, 1, &[1, 2, 3]);
        let Some(Event::Tick(tick)) = Event::parse(&bytes) else {
            panic!("no tick")
        };
        assert_eq!(tick.kernel.iter().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(tick.user.iter().collect::<Vec<_>>(), [3]);
    }

    /// Check that pages that are missing become ranges of the copy, whose first page is a part of one.
    #[test]
    fn missing_pages() {
        let bytes = vec![0; 4096 * 3];
        let copy = |start, missing| {
            let (owner, time_ns, pid, tid, end) = (1, 1, 2, 2, start + (1 << 20));
            let (registers, bytes) = (Addresses(&[]), bytes.as_slice());
            let copy = Copy {
                owner,
                time_ns,
                pid,
                tid,
                registers,
                start,
                end,
                trampoline: 0,
                returns: Pairs(Addresses(&[])),
                vdso: 0,
                missing,
                bytes,
            };
            let ranges = copy.missing().into_iter();
            ranges
                .map(|range| (range.start, range.end))
                .collect::<Vec<_>>()
        };
        assert_eq!(copy(0x1000, [0; 3]), []);
        assert_eq!(copy(0x1000, [0b110, 0, 0]), [(4096, 12288)]);
        assert_eq!(copy(0x1ff8, [0b1, 0, 0]), [(0, 8)]);
        assert_eq!(copy(0x1ff8, [0b1001, 0, 0]), [(0, 8), (8200, 12288)]);
        assert_eq!(copy(0x1ff8, [u64::MAX, 0, 0]), [(0, 12288)]);
        assert_eq!(copy(0x1000, [0, 1, 0]), []);
    }

    /// Check that an event that promises more frames than it holds, or is cut anywhere, is refused.
    #[test]
    fn cut() {
        assert!(Event::parse(&tick(2, 2, &[1, 2, 3])).is_none());
        let whole = tick(1, 1, &[1, 2]);
        assert!((0..whole.len()).all(|end| Event::parse(&whole[..end]).is_none()));
        assert!(Event::parse(&whole).is_some());
    }
}
