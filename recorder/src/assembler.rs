//! Turns events into batches and keeps account of every ID.

use std::mem;

use rawstack_bpf::{
    Copy, CopyState, Items, Join, Loss, LossReason, Tick, UserHalf, give_back_heap,
};
use rawstack_format::Counters;
use rawstack_format::copies::StackCopies;
use rawstack_format::id::{StackId, StackIndex};
use rawstack_format::record::{Batch, Completion, Drop, DropReason, Sample, State};

use crate::budget::TableLimits;
use crate::copies::Copies;
use crate::epoch::Epoch;
use crate::sieve::{self, Sieve};
use crate::totals::Totals;
use crate::world::World;

mod boundary;
mod gap;

/// Raw bytes after which a batch is cut, well below a chunk's limit.
const BATCH_BYTES: usize = 256 << 10;
/// The least of it, where there is no more room.
const LEAST_BATCH_BYTES: usize = 4 << 10;
/// Outcomes younger than this are carried into a new epoch, for samples that come behind them, in nanoseconds.
const CARRY_NS: u64 = 1_000_000_000;
/// How often memory that is not needed any more is given back, in nanoseconds: that takes some milliseconds. Where tables
/// have room for a crowd that is gone it is sooner.
const GIVE_BACK_NS: u64 = 60_000_000_000;
const GIVE_BACK_SOON_NS: u64 = 5_000_000_000;

/// A batch, and what goes with it.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    /// The batch.
    pub(crate) batch: Batch,
    /// Totals up to and including it.
    pub(crate) counters: Counters,
    /// It is the first of an epoch.
    pub(crate) starts_epoch: bool,
    /// Copies of stacks that stand before it.
    pub(crate) copies: StackCopies,
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
    /// Of the archive that is being filled.
    totals: Totals,
    /// Of those before it.
    past: Totals,
    /// What happened before has been handed in, but for user halves that are owed.
    last_ns: u64,
    /// When memory was last given back.
    gave_back_ns: u64,
    limits: TableLimits,
    /// Raw bytes after which a batch is cut; what was carried into it comes on top.
    batch_limit: usize,
    carried_bytes: usize,
    /// Rows are not written before their outcome is known.
    holds_waiting: bool,
    /// Losses of a time in which nothing can be written, by reason; `None` at other times.
    gap: Option<Vec<Drop>>,
    /// When each run began.
    run_starts: Vec<u64>,
    /// Copies of stacks that go before the batch that is being filled.
    copies: Copies,
    /// Keeps of copies what unwinding needs; `None`: all is kept.
    sieve: Option<Sieve>,
}

impl Assembler {
    /// Nothing assembled yet. `holds_waiting`: rows that wait for their user half are kept back until it comes, and
    /// not written as pending. That takes nothing but memory, and loses them to a kill.
    pub(crate) fn new(world: World, limits: TableLimits, holds_waiting: bool) -> Self {
        Self {
            world,
            epoch: Epoch::new(0, limits),
            batches: 0,
            starts_epoch: true,
            join: Join::default(),
            cuts: Vec::new(),
            counters: Counters::default(),
            totals: Totals::default(),
            past: Totals::default(),
            last_ns: 0,
            gave_back_ns: 0,
            limits,
            batch_limit: BATCH_BYTES,
            carried_bytes: 0,
            holds_waiting,
            gap: None,
            run_starts: Vec::new(),
            copies: Copies::default(),
            sieve: None,
        }
    }

    /// Keep of copies only what a sieve leaves.
    pub(crate) fn with_sieve(mut self, sieve: Option<Sieve>) -> Self {
        self.sieve = sieve;
        self
    }

    /// The account up to now, over all archives.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = self.past.clone();
        totals.add(&self.totals);
        totals
    }

    /// The account of the archive that is being filled.
    pub(crate) fn archive_totals(&self) -> &Totals {
        &self.totals
    }

    /// Cut batches at `bytes` of raw length already: there is no more room. Not at less than a few kilobytes, since a
    /// chunk has a length of its own.
    pub(crate) fn set_room(&mut self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.batch_limit = bytes.clamp(LEAST_BATCH_BYTES, BATCH_BYTES);
    }

    /// A run of the command begins.
    pub(crate) fn start_run(&mut self, start_ns: u64) {
        self.run_starts.push(start_ns);
    }

    /// The run that goes on at `time_ns`.
    fn run_at(&self, time_ns: u64) -> u32 {
        // Nearly always the last: only ticks of the moment of the change are older.
        let started = |start: &u64| *start <= time_ns;
        let run = self.run_starts.iter().rposition(started).unwrap_or(0);
        u32::try_from(run).unwrap_or(u32::MAX)
    }

    /// All that happened before `time_ns` has been handed in.
    pub(crate) fn caught_up(&mut self, time_ns: u64) {
        self.last_ns = self.last_ns.max(time_ns);
    }

    /// Forget what no sample can ask for any more.
    pub(crate) fn forget(&mut self) {
        self.world.processes.forget(self.last_ns);
        let since = self.last_ns.saturating_sub(self.gave_back_ns);
        if since >= GIVE_BACK_NS || since >= GIVE_BACK_SOON_NS && self.world.processes.is_roomy() {
            self.gave_back_ns = self.last_ns;
            self.give_back();
        }
    }

    /// Give back the memory of what was there once. Crowds of processes and full tables come and go, and neither tables nor
    /// the heap shrink by themselves: without this the memory of a recording is that of its fullest moment.
    fn give_back(&mut self) {
        self.world.processes.shrink();
        self.join.shrink();
        give_back_heap();
    }

    /// Time of the first sample of the batch that is being filled.
    pub(crate) fn first_ns(&mut self) -> Option<u64> {
        self.epoch
            .batch()
            .samples
            .iter()
            .map(|row| row.time_ns)
            .min()
    }

    /// Owners that samples wait for, with their threads.
    pub(crate) fn owed(&self) -> impl Iterator<Item = (u64, u32)> {
        self.join.owners()
    }

    /// A sample.
    pub(crate) fn add_tick(&mut self, tick: &Tick<'_>) {
        self.last_ns = self.last_ns.max(tick.time_ns);
        if self.gap.is_some() {
            self.add_to_gap(tick_loss(tick));
            return;
        }
        self.miss_copy(tick.owner, (tick.pid, tick.tid), tick.copy);
        self.epoch
            .put_task(&mut self.world, tick.pid, tick.tid, tick.time_ns);
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
            run: self.run_at(tick.time_ns),
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

    /// A copy of a stack. It comes ahead of the sample or the user half that it is of.
    pub(crate) fn add_copy(&mut self, copy: &Copy<'_>) {
        if self.gap.is_some() && !self.join.waits_for(copy.owner) {
            return;
        }
        let mut sieve = self.sieve.take();
        let mut registers = u64::MAX;
        let sifted = sieve.as_mut().map(|sieve| {
            let process = self.world.processes.process(copy.pid);
            let program = process.program(copy.time_ns);
            let parts = sieve::parts(copy);
            registers = sieve.registers(program, &parts, copy.registers.iter());
            sieve.sift(program, &parts, &copy.missing())
        });
        let copy = copy.with_bytes(sifted.unwrap_or(copy.bytes));
        let since_ns = self.world.running(copy.pid, copy.time_ns).since_ns;
        let known = (since_ns, registers);
        let fits = self.copies.push(&copy, known, &mut self.totals.copies);
        if !fits {
            self.cut();
            self.copies.push(&copy, known, &mut self.totals.copies);
        }
        // In the batch that stands behind the copy.
        self.world.know_vdso(copy.pid, copy.time_ns, copy.vdso);
        self.epoch.put_code(&mut self.world, copy.pid, copy.time_ns);
        self.sieve = sieve;
    }

    /// There is no copy of this stack, for the reason in `state`.
    fn miss_copy(&mut self, owner: u64, task: (u32, u32), state: CopyState) {
        if state != CopyState::Taken
            && !self
                .copies
                .miss(owner, task, state, &mut self.totals.copies)
        {
            self.cut();
            self.copies
                .miss(owner, task, state, &mut self.totals.copies);
        }
    }

    /// A user half.
    pub(crate) fn add_user_half(&mut self, half: &UserHalf<'_>) {
        if self.gap.is_some() && !self.join.waits_for(half.owner) {
            return;
        }
        self.miss_copy(half.owner, (half.pid, half.tid), half.copy);
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
        if self.gap.is_some() {
            self.add_to_gap(drop);
            return;
        }
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
        if self.epoch.bytes() >= self.batch_limit + self.carried_bytes {
            self.cut();
        }
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

/// A sample that cannot be kept.
fn tick_loss(tick: &Tick<'_>) -> Drop {
    Drop {
        reason: DropReason::Unwritten,
        cpu: u32::MAX,
        count: 1,
        from_ns: tick.time_ns,
        to_ns: tick.time_ns,
    }
}

fn state_of(ending: rawstack_bpf::State) -> State {
    State::ALL.get(ending as usize).copied().unwrap_or_default()
}
