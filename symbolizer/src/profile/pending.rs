//! Samples whose user half comes later: joined with their completion, in bounded memory.

use std::collections::VecDeque;

use foldhash::HashMap;
use rawstack_format::id::StackId;
use rawstack_format::record::{Completion, Sample, State};

use super::copies::UserHalf;
use super::facts::ThreadId;
use super::rows::Row;
use super::tree::{ModuleId, NodeId};
use crate::copied::CopyEnd;

/// Samples that wait at most; then the oldest goes on without its user half.
const MAX_WAITING: usize = 1 << 20;

/// A sample with its stacks in the tree.
#[derive(Clone, Copy, Debug)]
pub struct Joined {
    /// The row as recorded; its state is the final one where its completion was met.
    pub row: Sample,
    /// Kernel half.
    pub kernel: NodeId,
    /// User half.
    pub user: NodeId,
    /// Whose it is.
    pub thread: ThreadId,
    /// How the user half ended, where copies of stacks were unwound.
    pub end: Option<CopyEnd<ModuleId>>,
}

impl Joined {
    /// Kernel half and whether it is cut; none of it with `no_kernel`.
    pub fn kernel_half(&self, no_kernel: bool) -> (NodeId, bool) {
        if no_kernel {
            (NodeId::NONE, false)
        } else {
            (self.kernel, self.row.kernel_cut)
        }
    }

    /// Where the copy of a stack led to the outermost frame, nothing is missing of the user half, whatever the recorded
    /// one lacks.
    pub(super) fn take_as_whole(&mut self) {
        let is_reached = self.end.is_some_and(|end| end.is_reached());
        if is_reached {
            self.row.user_depth = 0;
            if matches!(self.row.state, State::Truncated | State::Faulted) {
                self.row.state = State::Complete.with_kernel_cut(self.row.kernel_cut);
            }
        }
    }

    /// The row of all samples with this stack of event number `event`, whoever's they are: still without weight.
    pub fn stack_row(&self, event: u32, no_kernel: bool) -> Row {
        let (kernel, kernel_cut) = self.kernel_half(no_kernel);
        Row {
            kernel,
            user: self.user,
            thread: ThreadId(0),
            event,
            cpu: 0,
            state: self.row.state,
            kernel_cut,
            weight: 0,
            samples: 0,
        }
    }
}

/// A queue that gives samples out in the order in which they were read, each once its outcome is known.
#[derive(Debug, Default)]
pub(super) struct JoinQueue {
    samples: VecDeque<Joined>,
    /// Number of the first sample in the queue.
    first: u64,
    /// Numbers of the waiting samples of each owner.
    waiting: HashMap<StackId, Vec<u64>>,
    waiting_count: usize,
    /// Completions that no sample waited for.
    pub(super) orphans: u64,
    /// Samples that went on without their completion because too many waited.
    pub(super) overtaken: u64,
}

impl JoinQueue {
    /// Add a sample.
    pub(super) fn push(&mut self, sample: Joined) {
        let number = self.first + self.samples.len() as u64;
        if sample.row.state == State::Pending {
            self.waiting
                .entry(sample.row.owner)
                .or_default()
                .push(number);
            self.waiting_count += 1;
        }
        self.samples.push_back(sample);
    }

    /// Let a completion reach all samples with its owner.
    pub(super) fn complete(&mut self, completion: &Completion, half: UserHalf) {
        let Some(numbers) = self.waiting.remove(&completion.owner) else {
            self.orphans += 1;
            return;
        };
        self.waiting_count = self.waiting_count.saturating_sub(numbers.len());
        for number in numbers {
            let place = number
                .checked_sub(self.first)
                .and_then(|place| usize::try_from(place).ok());
            let Some(sample) = place.and_then(|place| self.samples.get_mut(place)) else {
                continue;
            };
            let cut = sample.row.kernel_cut && completion.state == State::Complete;
            sample.row.state = if cut {
                State::Truncated
            } else {
                completion.state
            };
            sample.row.user_depth = completion.user_depth;
            (sample.user, sample.end) = (half.user, half.end);
        }
    }

    /// The next sample, if it need not wait; with `all` even then.
    pub(super) fn pop(&mut self, all: bool) -> Option<Joined> {
        let front = self.samples.front()?;
        if front.row.state == State::Pending && self.waiting.contains_key(&front.row.owner) {
            let full = self.samples.len() > MAX_WAITING;
            if !all && !full {
                return None;
            }
            self.overtaken += u64::from(!all);
            let owner = front.row.owner;
            if let Some(numbers) = self.waiting.get_mut(&owner) {
                let before = numbers.len();
                numbers.retain(|&number| number != self.first);
                self.waiting_count = self.waiting_count.saturating_sub(before - numbers.len());
                if numbers.is_empty() {
                    self.waiting.remove(&owner);
                }
            }
        }
        self.first += 1;
        self.samples.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    fn sample(id: u64, owner: u64, state: State, kernel_cut: bool) -> Joined {
        let row = Sample {
            id: StackId(id),
            owner: StackId(owner),
            state,
            kernel_cut,
            ..Sample::default()
        };
        Joined {
            row,
            kernel: NodeId::NONE,
            user: NodeId::NONE,
            thread: ThreadId(0),
            end: None,
        }
    }

    /// Check that one completion reaches every sample of its owner, that order is kept, and that a cut kernel half
    /// makes a complete one truncated.
    #[test]
    fn one_completion_for_all() {
        let mut queue = JoinQueue::default();
        queue.push(sample(1, 1, State::Pending, false));
        queue.push(sample(2, 2, State::Complete, false));
        queue.push(sample(3, 1, State::Pending, true));
        assert!(queue.pop(false).is_none());
        let completion = Completion {
            owner: StackId(1),
            state: State::Complete,
            ..Completion::default()
        };
        let half = UserHalf {
            user: NodeId(9),
            end: None,
        };
        queue.complete(&completion, half);
        queue.complete(&completion, half);
        let out: Vec<_> = iter::from_fn(|| queue.pop(false))
            .map(|s| (s.row.id.0, s.row.state, s.user.0))
            .collect();
        assert_eq!(
            out,
            [
                (1, State::Complete, 9),
                (2, State::Complete, u32::MAX),
                (3, State::Truncated, 9)
            ]
        );
        assert_eq!(queue.orphans, 1);
    }

    /// Check that what still waits at the end comes out as pending.
    #[test]
    fn pending_at_the_end() {
        let mut queue = JoinQueue::default();
        queue.push(sample(1, 1, State::Pending, false));
        queue.push(sample(2, 1, State::Pending, false));
        let out: Vec<_> = iter::from_fn(|| queue.pop(true))
            .map(|s| s.row.state)
            .collect();
        assert_eq!(out, [State::Pending, State::Pending]);
        assert!(queue.waiting.is_empty());
    }
}
