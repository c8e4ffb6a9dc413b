//! A recording that runs: read what the kernel tells, assemble, write, until it ends; then settle and sum up.

use std::time::{Duration, Instant};

use rawstack_bpf::{Change, Event, SideBand, Stream};
use rawstack_format::Counters;
use rawstack_format::record::{Drop, DropReason, Recording, Run, State};

use crate::assembler::Assembler;
use crate::error::{Error, Result};
use crate::host::monotonic_ns;
use crate::hotplug::CpuWatch;
use crate::jit::Tracker;
use crate::options::Options;
use crate::output::Output;
use crate::runs::Runs;
use crate::wake::Waker;

mod archives;

/// Time between two writes, what reading and writing take included: so no sample stays in memory only for more than a
/// second. Where nothing wakes the recorder meanwhile it sleeps from one to the next; each wake finds all of this
/// program's memory out of the CPU's caches, which at low rates is nearly all that a recording costs.
const WRITE_INTERVAL: Duration = Duration::from_millis(870);
/// Longest time for reading events before anything else is looked at, ...
const TURN: Duration = Duration::from_millis(250);
/// ... and most batches of them that are read before anything else is looked at.
const BATCHES_PER_TURN: usize = 64;
/// How long user halves may still come after the last tick.
const GRACE: Duration = Duration::from_millis(100);

/// How long a recording that was told to end may take in what the kernel still holds.
const SETTLE_PATIENCE: Duration = Duration::from_millis(800);

/// A recording that runs.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    pub(crate) options: &'a Options,
    pub(crate) stream: Stream,
    pub(crate) side_band: SideBand,
    pub(crate) output: Output,
    pub(crate) assembler: Assembler,
    pub(crate) jit: Tracker,
    pub(crate) recording: Recording,
    /// Start of the recording, monotonic clock; that in `recording` is its archive's.
    pub(crate) start_ns: u64,
    /// Totals up to what has been handed over.
    pub(crate) counters: Counters,
    /// Runs of the command up to now.
    pub(crate) run_rows: Vec<Run>,
    /// Why the next run could not begin.
    pub(crate) run_error: Option<Error>,
    /// It was said that samples are not kept.
    pub(crate) is_gap_told: bool,
    /// Tasks that should have been recorded and found no room among the targets.
    pub(crate) targets_lost: u64,
    /// There is no time left to keep samples.
    pub(crate) is_hurried: bool,
    /// The archive has the length that was allowed.
    pub(crate) is_full: bool,
    /// CPUs that come and go.
    pub(crate) cpus: Option<CpuWatch>,
}

impl Session<'_> {
    /// Write what stands at the beginning, and learn what runs already: all, or `known` processes.
    pub(crate) fn begin(&mut self, run: Option<Run>, known: &[u32]) -> Result<()> {
        if let Some(run) = run {
            self.note_run(run)?;
        }
        self.send_preamble()?;
        let targets = &self.options.targets;
        if !targets.names_tasks() {
            self.assembler.world.processes.read_all();
        }
        for &pid in known {
            self.assembler.world.processes.process(pid);
        }
        self.turn().map(|_| ())
    }

    /// Read what waits. Whether that was all.
    pub(crate) fn turn(&mut self) -> Result<bool> {
        let begun = monotonic_ns();
        let is_all = self.read_events()?;
        if is_all {
            // With no samples for hours, too, processes that came and went are forgotten.
            self.assembler.caught_up(begun);
        }
        self.read_jit_maps()?;
        Ok(is_all)
    }

    fn read_events(&mut self) -> Result<bool> {
        let was_full = self.is_full;
        let end = Instant::now() + TURN;
        for _ in 0..BATCHES_PER_TURN {
            let events = self.stream.fill()?;
            // Behind the events' own reading: so all that happened before them is told now, and applied first.
            self.read_side_band();
            let assembler = &mut self.assembler;
            self.stream.events(|event| match event {
                Event::Tick(tick) => assembler.add_tick(&tick),
                Event::UserHalf(half) => assembler.add_user_half(&half),
                Event::Loss(loss) => assembler.add_loss(&loss),
                Event::Copy(copy) => assembler.add_copy(&copy),
                _ => {}
            });
            self.send_cuts()?;
            self.rotate_if_due()?;
            if events == 0 {
                return Ok(true);
            }
            // Signals, the time and the command want to be looked at, too.
            if (self.is_full && !was_full) || Instant::now() >= end {
                break;
            }
        }
        Ok(false)
    }

    fn read_side_band(&mut self) {
        let mut lost = None::<Drop>;
        let world = &mut self.assembler.world;
        self.side_band.drain(|event| match event.change {
            Change::KernelSymbol {
                address,
                length,
                removed,
                name,
            } => {
                world.kernel.symbol_changed(address, length, removed, &name);
            }
            Change::Lost(count) => {
                let time = event.time_ns;
                let drop = lost.get_or_insert(Drop {
                    reason: DropReason::SideBand,
                    cpu: u32::MAX,
                    from_ns: time,
                    ..Drop::default()
                });
                (drop.count, drop.to_ns) = (drop.count + count, time);
            }
            _ => world.processes.apply(event),
        });
        if let Some(drop) = lost {
            let reads_all = !self.options.targets.names_tasks();
            world.processes.distrust(drop.to_ns, reads_all);
            self.assembler.add_drop(drop);
        }
    }

    /// Read and write until the recording is to end.
    pub(crate) fn read_until_end(
        &mut self,
        waker: &mut Waker,
        start: Instant,
        runs: &mut Runs<'_>,
    ) -> Result<()> {
        // The first write is due as early as any other, however long the beginning took.
        let (mut written, mut took) = (start, Duration::ZERO);
        let mut is_all = true;
        let deadline = self.options.duration.map(|duration| start + duration);
        loop {
            // What the last turn took the next one may take, too.
            let due = written + WRITE_INTERVAL.saturating_sub(took);
            // In a gap no archive ends.
            let sleep = (!self.assembler.is_in_gap())
                .then(|| self.output.longest_sleep(monotonic_ns()))
                .flatten();
            let look = sleep.map(|sleep| Instant::now() + sleep);
            let until = [Some(due), deadline, self.jit.next_turn(), look];
            let until = until.into_iter().flatten().min().unwrap_or(due);
            // What was left wakes nobody again.
            let sleep = until.saturating_duration_since(Instant::now());
            waker.wait(if is_all { sleep } else { Duration::ZERO });
            let begun = Instant::now();
            let is_last_run = self.mind_runs(runs)?;
            is_all = self.turn()?;
            self.mind_cpus(waker)?;
            self.tell_news();
            if Instant::now() >= due {
                self.write()?;
                written = Instant::now();
            }
            took = begun.elapsed().min(TURN);
            self.mind_growth(waker)?;
            let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let is_useless = self.is_full || self.output.has_failed();
            if is_useless || is_over || is_last_run || waker.is_ending() {
                return Ok(());
            }
        }
    }

    /// When a run has ended, start the next. Whether it was the last.
    fn mind_runs(&mut self, runs: &mut Runs<'_>) -> Result<bool> {
        let Some(row) = runs.ended() else {
            return Ok(false);
        };
        self.note_run(row)?;
        match runs.release() {
            Ok(Some(row)) => self.note_run(row).map(|()| false),
            Ok(None) => Ok(true),
            // The runs before it are as good as ever.
            Err(error) => {
                self.run_error = Some(error);
                Ok(true)
            }
        }
    }

    /// No more ticks come: wait a moment for user halves of what still runs, then say of the rest what became of it.
    pub(crate) fn settle(&mut self, waker: &mut Waker) -> Result<()> {
        let begun = Instant::now();
        let end = begun + GRACE;
        while !self.turn()? || (self.is_owed() && Instant::now() < end) {
            // Who is told to end may not take in what is left, for as long as that takes: it is counted.
            if waker.is_ending() && begun.elapsed() > SETTLE_PATIENCE {
                self.is_hurried = true;
                self.mind_room();
            }
            waker.wait(Duration::from_millis(5));
        }
        self.is_hurried = false;
        // What is told from here on is told of what was lost, too.
        self.assembler.end_gap();
        let counts = self.stream.counts()?;
        for loss in &counts.untold {
            self.assembler.add_loss(loss);
        }
        let owed: Vec<_> = self.assembler.owed().collect();
        let mut lost = 0;
        for (owner, tid) in owed {
            // What the kernel has sent and nobody has seen was lost on the way.
            let debt = self.stream.debt(tid);
            let is_owed = debt.is_some_and(|debt| debt.owner == owner && !debt.done);
            let state = if is_owed {
                State::Pending
            } else {
                State::Dropped
            };
            self.assembler.give_up(owner, state, monotonic_ns());
            lost += u64::from(!is_owed);
        }
        // The kernel counts a loss where it sees one. Whatever else is missing is told here, not passed over.
        let told = self.assembler.totals().lost_for(DropReason::UserHalf);
        if lost > told {
            let (reason, cpu, now) = (DropReason::UserHalf, u32::MAX, monotonic_ns());
            let count = lost - told;
            self.assembler.add_drop(Drop {
                reason,
                cpu,
                count,
                from_ns: now,
                to_ns: now,
            });
        }
        Ok(())
    }

    /// Record on CPUs that have come.
    fn mind_cpus(&mut self, waker: &Waker) -> Result<()> {
        let Some(cpus) = self.cpus.as_mut().filter(|cpus| cpus.is_due()) else {
            return Ok(());
        };
        let (has_come, news) = cpus.turn(&mut self.side_band);
        for news in news {
            if !self.options.quiet {
                eprintln!("rawstack-record: {news}");
            }
        }
        if has_come {
            waker.watch(self.side_band.fds())?;
        }
        Ok(())
    }

    fn is_owed(&self) -> bool {
        self.assembler.owed().next().is_some()
    }
}
