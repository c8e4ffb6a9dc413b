//! What became of an ID: for programs that log IDs and look stacks up later.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::event::{Event, LossReason, State, Tick, UserHalf};
use crate::join::Join;
use crate::stream::Stream;

/// Far more than an event takes from the reservation of its ID into the ring buffer: nothing preempts that.
const ON_THE_WAY: Duration = Duration::from_millis(20);

/// Both halves of one ID's stack, leaf first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// How it ended.
    pub state: State,
    /// When the ID was reserved: monotonic clock, in nanoseconds.
    pub time_ns: u64,
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// Kernel addresses.
    pub kernel: Vec<u64>,
    /// The kernel half was cut at the limit.
    pub kernel_cut: bool,
    /// User addresses; IDs of one kernel entry share them.
    pub user: Arc<[u64]>,
    /// Frames that the user half really has where some were left out, else 0.
    pub user_depth: u32,
}

/// Why an ID has no stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostReason {
    /// Lost between kernel and reader, or removed from the table before.
    Dropped,
    /// The table was at its bound when it came.
    NoRoom,
}

/// What a user half brings: state, addresses, real depth.
type Outcome = (State, Arc<[u64]>, u32);

/// What is known of an ID now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// The stack, in its final state.
    Ready(&'a Stack),
    /// Not yet: the task has not returned to user space, or the event has not been taken in.
    Pending,
    /// It will never be there.
    Lost(LostReason),
}

/// Stacks by ID, up to a bound.
///
/// Entries leave only through [`remove`](Self::remove): an ID that was `Ready` stays so until its user is done with
/// it. Room grows with need; what comes while the table is at its bound is `Lost(NoRoom)`, and counted.
#[derive(Debug)]
pub struct StackTable {
    bound: usize,
    ready: HashMap<u64, Stack>,
    pending: HashSet<u64>,
    join: Join<(u64, Stack), Outcome>,
    /// Highest ID taken in, by CPU and level: IDs of one CPU and level come in order.
    seen: HashMap<u64, u64>,
    /// The last IDs that the kernel had reserved some time ago: what has not come by now was lost.
    reserved: Option<(Instant, Vec<u64>)>,
    refused: HashSet<u64>,
    refused_count: u64,
    /// Owners that were sent by the kernel's account when the losses of user halves were last looked at.
    suspects: HashSet<u64>,
    losses_seen: bool,
}

impl StackTable {
    /// A table for up to `bound` IDs.
    pub fn new(bound: usize) -> Self {
        Self {
            bound,
            ready: HashMap::new(),
            pending: HashSet::new(),
            join: Join::default(),
            seen: HashMap::new(),
            reserved: None,
            refused: HashSet::new(),
            refused_count: 0,
            suspects: HashSet::new(),
            losses_seen: false,
        }
    }

    /// Take in all that waits in `stream`. Does not block.
    pub fn take_in(&mut self, stream: &mut Stream) -> Result<()> {
        while stream.fill()? > 0 {
            stream.events(|event| self.add(event));
        }
        if self.losses_seen {
            self.settle_losses(stream);
        }
        self.settle_reserved(stream)
    }

    /// What is known of `id` now. Does not block.
    pub fn lookup(&self, id: u64) -> Lookup<'_> {
        if let Some(stack) = self.ready.get(&id) {
            Lookup::Ready(stack)
        } else if self.refused.contains(&id) {
            Lookup::Lost(LostReason::NoRoom)
        } else if self.pending.contains(&id)
            || self.seen.get(&(id >> 44)).is_none_or(|&seen| id > seen)
        {
            Lookup::Pending
        } else {
            Lookup::Lost(LostReason::Dropped)
        }
    }

    /// Take a stack that is ready out of the table. What is pending stays: its outcome would find no place.
    pub fn remove(&mut self, id: u64) -> Option<Stack> {
        self.refused.remove(&id);
        self.ready.remove(&id)
    }

    /// IDs held, ready and pending.
    pub fn len(&self) -> usize {
        self.ready.len() + self.pending.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// IDs that found no room.
    pub fn refused(&self) -> u64 {
        self.refused_count
    }

    fn add(&mut self, event: Event<'_>) {
        match event {
            Event::Tick(tick) => self.add_tick(&tick),
            Event::UserHalf(half) => self.add_user_half(&half),
            Event::Loss(loss) => self.losses_seen |= loss.reason == LossReason::UserHalf,
            Event::Copy(_) => {}
        }
    }

    fn add_tick(&mut self, tick: &Tick<'_>) {
        self.seen.insert(tick.id >> 44, tick.id);
        if self.len() >= self.bound {
            self.refused_count += 1;
            if self.refused.len() < self.bound {
                self.refused.insert(tick.id);
            }
            return;
        }
        let stack = Stack {
            state: tick.state,
            time_ns: tick.time_ns,
            pid: tick.pid,
            tid: tick.tid,
            kernel: tick.kernel.iter().collect(),
            kernel_cut: tick.kernel_cut,
            user: tick.user.iter().collect(),
            user_depth: tick.user_depth,
        };
        if tick.state != State::Pending {
            self.ready.insert(tick.id, stack);
            return;
        }
        match self.join.wait(tick.owner, tick.tid, (tick.id, stack)) {
            Some((item, outcome)) => self.finish(item, &outcome),
            None => _ = self.pending.insert(tick.id),
        }
    }

    fn add_user_half(&mut self, half: &UserHalf<'_>) {
        let outcome = (half.state, half.user.iter().collect(), half.user_depth);
        for item in self.join.complete(half.owner, half.tid, outcome.clone()) {
            self.finish(item, &outcome);
        }
    }

    fn finish(&mut self, (id, stack): (u64, Stack), (state, user, user_depth): &Outcome) {
        self.pending.remove(&id);
        let state = state.with_kernel_cut(stack.kernel_cut);
        let stack = Stack {
            state,
            user: Arc::clone(user),
            user_depth: *user_depth,
            ..stack
        };
        self.ready.insert(id, stack);
    }

    /// Count what was reserved long ago and has not come as seen, so that the last losses are told too: no later event
    /// of their CPU may ever tell them.
    fn settle_reserved(&mut self, stream: &Stream) -> Result<()> {
        if let Some((since, _)) = &self.reserved
            && since.elapsed() < ON_THE_WAY
        {
            return Ok(());
        }
        let now = (Instant::now(), stream.counts()?.last_ids);
        for id in self
            .reserved
            .replace(now)
            .map(|(_, ids)| ids)
            .unwrap_or_default()
        {
            let seen = self.seen.entry(id >> 44).or_default();
            *seen = id.max(*seen);
        }
        Ok(())
    }

    /// End what waits for user halves that the kernel sent and the ring buffer lost.
    ///
    /// An owner whose debt is settled may still be on its way; so it must be found so twice, with all that waited
    /// taken in between.
    fn settle_losses(&mut self, stream: &Stream) {
        let settled = |&(owner, tid): &(u64, u32)| {
            stream
                .debt(tid)
                .is_none_or(|debt| debt.owner != owner || debt.done)
        };
        let now: HashSet<u64> = self
            .join
            .owners()
            .filter(settled)
            .map(|(owner, _)| owner)
            .collect();
        let lost: Vec<u64> = now.intersection(&self.suspects).copied().collect();
        for owner in lost {
            for item in self.join.give_up(owner) {
                self.finish(item, &(State::Dropped, Arc::from([]), 0));
            }
        }
        self.losses_seen = now.iter().any(|owner| !self.suspects.contains(owner));
        self.suspects = now;
    }
}
