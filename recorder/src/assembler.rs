//! Turns events into batches and keeps account of every ID.

use std::mem;

use rawstack_bpf::{Items, Join, Loss, LossReason, Tick, UserHalf};
use rawstack_format::Counters;
use rawstack_format::id::{StackId, StackIndex};
use rawstack_format::record::{Batch, Completion, Drop, DropReason, EPOCH_CHUNKS, Sample, State};

use crate::epoch::Epoch;
use crate::world::World;

/// Raw bytes after which a batch is cut, well below a chunk's limit.
const BATCH_BYTES: usize = 256 << 10;
/// Outcomes younger than this are carried into a new epoch, for samples that come behind them, in nanoseconds.
const CARRY_NS: u64 = 1_000_000_000;

/// A batch, and what goes with it.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    /// The batch.
    pub(crate) batch: Batch,
    /// Totals up to and including it.
    pub(crate) counters: Counters,
    /// It is the first of an epoch.
    pub(crate) starts_epoch: bool,
    /// Rows of the kernel symbols that its frames need and none before it in the epoch did.
    pub(crate) symbols: Vec<u32>,
}

/// What waits for a user half.
#[derive(Clone, Copy, Debug)]
enum Item {
    /// A row of the batch that is being filled.
    Row(usize),
    /// Rows that were written as pending: how many, and how many of them have a cut kernel half.
    Written { rows: u64, cut: u64 },
}

/// A user half that has come.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    state: State,
    time_ns: u64,
    user: StackIndex,
    user_depth: u32,
}

/// The account of all IDs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// IDs by state, in the order of [`State::ALL`]. What still waits is in none.
    pub(crate) states: [u64; 8],
    /// Sample rows.
    pub(crate) samples: u64,
    /// Losses of all kinds, joined by reason.
    pub(crate) drops: Vec<Drop>,
}

impl Totals {
    fn count(&mut self, state: State, ids: u64) {
        if let Some(count) = self.states.get_mut(state as usize) {
            *count += ids;
        }
    }

    /// Losses for one reason.
    pub(crate) fn lost_for(&self, reason: DropReason) -> u64 {
        let of_reason = self.drops.iter().filter(|drop| drop.reason == reason);
        of_reason.map(|drop| drop.count).sum()
    }

    fn count_drop(&mut self, drop: &Drop) {
        match self
            .drops
            .iter_mut()
            .find(|known| known.reason == drop.reason)
        {
            Some(known) => {
                known.count += drop.count;
                known.from_ns = known.from_ns.min(drop.from_ns);
                known.to_ns = known.to_ns.max(drop.to_ns);
            }
            None => self.drops.push(Drop {
                cpu: u32::MAX,
                ..*drop
            }),
        }
    }
}

/// Puts batches together.
#[derive(Debug)]
pub(crate) struct Assembler {
    /// Processes, modules, the kernel.
    pub(crate) world: World,
    epoch: Epoch,
    batches: u32,
    starts_epoch: bool,
    join: Join<Item, Outcome>,
    cuts: Vec<Cut>,
    counters: Counters,
    totals: Totals,
    last_ns: u64,
}

impl Assembler {
    /// Nothing assembled yet.
    pub(crate) fn new(world: World) -> Self {
        Self {
            world,
            epoch: Epoch::new(0),
            batches: 0,
            starts_epoch: true,
            join: Join::default(),
            cuts: Vec::new(),
            counters: Counters::default(),
            totals: Totals::default(),
            last_ns: 0,
        }
    }

    /// The account up to now.
    pub(crate) fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Time of the last sample, monotonic clock.
    pub(crate) fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// Owners that samples wait for, with their threads.
    pub(crate) fn owed(&self) -> impl Iterator<Item = (u64, u32)> {
        self.join.owners()
    }

    /// A sample.
    pub(crate) fn add_tick(&mut self, tick: &Tick<'_>) {
        self.last_ns = self.last_ns.max(tick.time_ns);
        self.epoch.put_task(&mut self.world, tick.pid, tick.tid);
        let kernel = self.epoch.kernel_stack(&mut self.world, &tick.kernel);
        let user = self
            .epoch
            .user_stack(&mut self.world, tick.pid, tick.time_ns, &tick.user);
        let row = self.epoch.batch().samples.len();
        let sample = Sample {
            id: StackId(tick.id),
            owner: StackId(tick.owner),
            time_ns: tick.time_ns,
            cpu: tick.cpu,
            pid: tick.pid,
            tid: tick.tid,
            event: tick.event,
            run: 0,
            weight: tick.weight,
            state: state_of(tick.state).with_kernel_cut(tick.kernel_cut),
            kernel_cut: tick.kernel_cut,
            kernel,
            user,
            user_depth: tick.user_depth,
        };
        self.epoch.batch().samples.push(sample);
        self.totals.samples += 1;
        self.counters.ids += 1;
        if sample.state != State::Pending || tick.still_blocked {
            self.totals.count(sample.state, 1);
        } else if let Some((item, outcome)) = self.join.wait(tick.owner, tick.tid, Item::Row(row)) {
            self.settle(item, &outcome);
        }
        self.cut_if_large();
    }

    /// A user half.
    pub(crate) fn add_user_half(&mut self, half: &UserHalf<'_>) {
        let outcome = Outcome {
            state: state_of(half.state),
            time_ns: half.time_ns,
            user: self
                .epoch
                .user_stack(&mut self.world, half.pid, half.time_ns, &half.user),
            user_depth: half.user_depth,
        };
        let items = self.join.complete(half.owner, half.tid, outcome);
        self.settle_all(half.owner, items, &outcome);
        self.cut_if_large();
    }

    /// The user half of `owner` will not come, for the reason in `state`.
    pub(crate) fn give_up(&mut self, owner: u64, state: State, time_ns: u64) {
        let outcome = Outcome {
            state,
            time_ns,
            user: StackIndex::NONE,
            user_depth: 0,
        };
        let items = self.join.give_up(owner);
        self.settle_all(owner, items, &outcome);
    }

    /// A loss in the kernel.
    pub(crate) fn add_loss(&mut self, loss: &Loss) {
        let reason = match loss.reason {
            LossReason::BufferFull => DropReason::BufferFull,
            LossReason::Contended => DropReason::Contended,
            LossReason::UserHalf => DropReason::UserHalf,
        };
        let Loss {
            cpu,
            count,
            from_ns,
            to_ns,
            ..
        } = *loss;
        self.add_drop(Drop {
            reason,
            cpu,
            count,
            from_ns,
            to_ns,
        });
    }

    /// A loss.
    pub(crate) fn add_drop(&mut self, drop: Drop) {
        match drop.reason {
            DropReason::BufferFull => self.counters.buffer_full += drop.count,
            DropReason::Contended => self.counters.contended += drop.count,
            DropReason::Unwritten => self.counters.unwritten += drop.count,
            DropReason::UserHalf | DropReason::SideBand => {}
        }
        if drop.reason.counts_ids() {
            self.counters.ids += drop.count;
            self.totals.count(State::Dropped, drop.count);
        }
        self.totals.count_drop(&drop);
        self.epoch.batch().drops.push(drop);
    }

    fn settle_all(&mut self, owner: u64, items: Items<Item>, outcome: &Outcome) {
        let has_written = items
            .iter()
            .any(|item| matches!(item, Item::Written { .. }));
        for item in items {
            self.settle(item, outcome);
        }
        if has_written {
            let Outcome {
                state,
                time_ns,
                user,
                user_depth,
            } = *outcome;
            let completion = Completion {
                owner: StackId(owner),
                time_ns,
                state,
                user,
                user_depth,
            };
            self.epoch.batch().completions.push(completion);
        }
    }

    fn settle(&mut self, item: Item, outcome: &Outcome) {
        match item {
            Item::Written { rows, cut } => {
                self.totals.count(outcome.state, rows - cut);
                self.totals.count(outcome.state.with_kernel_cut(true), cut);
            }
            Item::Row(row) => {
                let Some(sample) = self.epoch.batch().samples.get_mut(row) else {
                    return;
                };
                sample.state = outcome.state.with_kernel_cut(sample.kernel_cut);
                sample.user = outcome.user;
                sample.user_depth = outcome.user_depth;
                let state = sample.state;
                self.totals.count(state, 1);
            }
        }
    }

    fn cut_if_large(&mut self) {
        if self.epoch.bytes() >= BATCH_BYTES {
            self.cut();
        }
    }

    /// Close the batch that is being filled. Rows that still wait are written as pending.
    pub(crate) fn cut(&mut self) {
        let samples = mem::take(&mut self.epoch.batch().samples);
        self.join.replace_items(|items| {
            let (mut rows, mut cut) = (0, 0);
            for item in items.iter() {
                let (more, more_cut) = match *item {
                    Item::Row(row) => {
                        let sample = samples.get(row);
                        (1, sample.map_or(0, |sample| u64::from(sample.kernel_cut)))
                    }
                    Item::Written { rows, cut } => (rows, cut),
                };
                (rows, cut) = (rows + more, cut + more_cut);
            }
            Item::Written { rows, cut }
        });
        self.epoch.batch().samples = samples;
        for batch in self.epoch.cut() {
            let starts_epoch = mem::take(&mut self.starts_epoch);
            self.cuts.push(Cut {
                batch,
                counters: self.counters,
                starts_epoch,
                symbols: self.epoch.take_symbols(),
            });
            self.batches += 1;
        }
        if self.epoch.is_full() || self.batches >= EPOCH_CHUNKS {
            self.next_epoch();
        }
    }

    fn next_epoch(&mut self) {
        let before = mem::replace(&mut self.epoch, Epoch::new(0));
        self.epoch = Epoch::new(before.number() + 1);
        self.batches = 0;
        self.starts_epoch = true;
        let (epoch, world) = (&mut self.epoch, &self.world);
        let from_ns = self.last_ns.saturating_sub(CARRY_NS);
        self.join.retain_outcomes(|outcome| {
            let is_recent = outcome.time_ns >= from_ns;
            if is_recent {
                outcome.user = epoch.carry(world, &before, outcome.user);
            }
            is_recent
        });
    }

    /// The batches closed since the last call.
    pub(crate) fn take_cuts(&mut self) -> Vec<Cut> {
        mem::take(&mut self.cuts)
    }

    /// Whether the batch that is being filled holds anything.
    pub(crate) fn has_rows(&mut self) -> bool {
        let batch = self.epoch.batch();
        !(batch.samples.is_empty() && batch.completions.is_empty() && batch.drops.is_empty())
    }
}

fn state_of(ending: rawstack_bpf::State) -> State {
    State::ALL.get(ending as usize).copied().unwrap_or_default()
}
