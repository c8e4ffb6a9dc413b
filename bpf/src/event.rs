//! What the programs send, from bytes to [`Event`]. Knows nothing of maps.
//!
//! Positions of the fields come from the programs' own type information, through the skeleton.

use std::mem::{offset_of, size_of};

use crate::copy::{Copy, CopyState};
use crate::skel::types::{drop_event, tick_event, user_header};

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
pub struct Addresses<'a>(pub(crate) &'a [u8]);

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
pub struct Pairs<'a>(pub(crate) Addresses<'a>);

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
        <$int>::from_ne_bytes(
            *$bytes
                .get(std::mem::offset_of!($wire, $field)..)?
                .first_chunk()?,
        )
    };
}

pub(crate) use field;

impl<'a> Event<'a> {
    /// Take one event apart; `None` when it is none of ours.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        match u16::from_ne_bytes(*bytes.first_chunk()?) {
            1 => Self::parse_tick(bytes),
            2 => Self::parse_user(bytes),
            3 => Self::parse_loss(bytes),
            4 => Some(Self::Copy(Copy::parse(bytes)?)),
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

    /// Check that an event that promises more frames than it holds, or is cut anywhere, is refused.
    #[test]
    fn cut() {
        assert!(Event::parse(&tick(2, 2, &[1, 2, 3])).is_none());
        let whole = tick(1, 1, &[1, 2]);
        assert!((0..whole.len()).all(|end| Event::parse(&whole[..end]).is_none()));
        assert!(Event::parse(&whole).is_some());
    }
}
