//! A recording that runs: read what the kernel tells, assemble, write, until it ends; then settle and sum up.

use std::time::{Duration, Instant};

use rawstack_bpf::{Change, Event, SideBand, Stream};
use rawstack_format::Counters;
use rawstack_format::record::{
    Drop, DropReason, End, KernelModules, KernelSymbols, ModuleKind, Record, Recording, State,
};

use crate::assembler::{Assembler, Cut};
use crate::command::Command;
use crate::error::Result;
use crate::host::{monotonic_ns, wall_ns};
use crate::jit::Tracker;
use crate::kernel;
use crate::options::{Options, Rate};
use crate::output::Output;
use crate::summary::Summary;
use crate::wake::Waker;

/// Longest time that a sample stays in memory only, together with the wait for events: less than a second.
const WRITE_INTERVAL: Duration = Duration::from_millis(750);
/// Longest wait for events.
const WAIT: Duration = Duration::from_millis(100);
/// Batches of events that are read before anything else is looked at.
const BATCHES_PER_TURN: usize = 64;
/// How long user halves may still come after the last tick.
const GRACE: Duration = Duration::from_millis(100);

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
    /// Totals up to what has been handed over.
    pub(crate) counters: Counters,
    pub(crate) failed: bool,
}

impl Session<'_> {
    /// Write what stands at the beginning, and learn what runs already.
    pub(crate) fn begin(&mut self) -> Result<()> {
        let modules: Vec<_> = self.assembler.world.kernel.modules().cloned().collect();
        if !modules.is_empty() {
            self.send(Record::KernelModules(KernelModules { modules }));
        }
        if let Some(vdso) = kernel::vdso() {
            self.send(Record::Vdso(vdso));
        }
        if self.options.all_kernel_symbols {
            for part in self.assembler.world.kernel.all_symbols() {
                self.send(Record::KernelSymbols(part));
            }
        }
        let targets = &self.options.targets;
        if !targets.names_tasks() {
            self.assembler.world.processes.read_all();
        }
        for &pid in &targets.pids {
            self.assembler.world.processes.process(pid);
        }
        self.turn().map(|_| ())
    }

    fn send(&mut self, record: Record) {
        self.failed |= !self.output.send(record, self.counters);
    }

    fn send_cuts(&mut self) {
        for Cut {
            batch,
            counters,
            starts_epoch,
            symbols,
        } in self.assembler.take_cuts()
        {
            if starts_epoch && batch.epoch > 0 {
                self.recording.epoch = batch.epoch;
                self.send(Record::Recording(self.recording.clone()));
            }
            if !symbols.is_empty() && !self.options.all_kernel_symbols {
                // A part's symbols fit a chunk, whatever their number: numbered as parts only where they are all.
                for part in self.assembler.world.kernel.symbols_record(symbols).split() {
                    self.send(Record::KernelSymbols(KernelSymbols {
                        part: 0,
                        parts: 0,
                        ..part
                    }));
                }
            }
            self.counters = counters;
            self.send(Record::Batch(batch));
        }
    }

    /// Read what waits. Whether that was all.
    fn turn(&mut self) -> Result<bool> {
        for _ in 0..BATCHES_PER_TURN {
            let events = self.stream.fill()?;
            // Behind the events' own reading: so all that happened before them is told now, and applied first.
            self.read_side_band();
            let assembler = &mut self.assembler;
            self.stream.events(|event| match event {
                Event::Tick(tick) => assembler.add_tick(&tick),
                Event::UserHalf(half) => assembler.add_user_half(&half),
                Event::Loss(loss) => assembler.add_loss(&loss),
                _ => {}
            });
            self.send_cuts();
            if events == 0 {
                self.read_jit_maps();
                return Ok(true);
            }
        }
        self.read_jit_maps();
        Ok(false)
    }

    fn read_jit_maps(&mut self) {
        for record in self.jit.turn(&mut self.assembler.world.processes) {
            self.send(record);
        }
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
            world.processes.distrust();
            if !self.options.targets.names_tasks() {
                world.processes.read_all();
            }
            self.assembler.add_drop(drop);
        }
    }

    pub(crate) fn read_until_end(
        &mut self,
        waker: &mut Waker,
        start: Instant,
        mut command: Option<&mut Command>,
    ) -> Result<()> {
        // The first write is due as early as any other, however long the beginning took.
        let mut written = start;
        let deadline = self.options.duration.map(|duration| start + duration);
        loop {
            let left = deadline.map_or(WAIT, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            waker.wait(WAIT.min(left));
            self.turn()?;
            if written.elapsed() + WAIT >= WRITE_INTERVAL {
                self.write();
                written = Instant::now();
            }
            let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let command_ended = command
                .as_deref_mut()
                .is_some_and(|command| command.ended().is_some());
            if self.failed || is_over || command_ended || waker.is_ending() {
                return Ok(());
            }
        }
    }

    /// Hand over the batch that is being filled, if anything is in it.
    fn write(&mut self) {
        if self.assembler.has_rows() {
            self.assembler.cut();
            self.send_cuts();
        }
        let seen = self.assembler.last_ns();
        self.assembler.world.processes.forget(seen);
    }

    /// No more ticks come: wait a moment for user halves of what still runs, then say of the rest what became of it.
    pub(crate) fn settle(&mut self, waker: &mut Waker) -> Result<()> {
        let end = Instant::now() + GRACE;
        while !self.turn()? || (self.is_owed() && Instant::now() < end) {
            waker.wait(Duration::from_millis(5));
        }
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

    fn is_owed(&self) -> bool {
        self.assembler.owed().next().is_some()
    }

    pub(crate) fn finish(
        mut self,
        duration: Duration,
        mode: &'static str,
        command_status: Option<i32>,
    ) -> Result<Summary> {
        let (output, counters) = (&self.output, self.counters);
        let processes = &mut self.assembler.world.processes;
        let mut write = |record| _ = output.send(record, counters);
        let jit = self.jit.finish(processes, &mut write);
        self.write();
        let reserved = self.stream.counts()?.reserved;
        let totals = self.assembler.totals().clone();
        self.send(Record::End(End {
            end_ns: monotonic_ns(),
            end_wall_ns: wall_ns(),
            reserved,
            states: totals.states,
            exit: command_status.unwrap_or(-1),
        }));
        let world = &self.assembler.world;
        let (processes, threads) = world.processes.sampled();
        let has_no_id = |module: &&rawstack_format::record::Module| {
            module.kind == ModuleKind::Elf && module.build_id.is_none()
        };
        Ok(Summary {
            path: self.output.path().to_owned(),
            duration,
            mode,
            mode_reason: self.recording.mode_reason,
            event: rate(self.options),
            samples: totals.samples,
            reserved,
            states: totals.states,
            drops: totals.drops,
            processes,
            threads,
            modules: world.modules.iter().count(),
            without_build_id: world
                .modules
                .iter()
                .filter(has_no_id)
                .map(|module| module.path.clone())
                .collect(),
            kernel_hidden: world.kernel.is_hidden(),
            jit,
            bytes: self.output.finish()?,
            command_status,
        })
    }
}

/// The events and how often each is sampled, for people.
fn rate(options: &Options) -> String {
    let names: Vec<_> = options
        .events
        .iter()
        .map(|event| event.name.as_str())
        .collect();
    let names = names.join(", ");
    match options.rate {
        Rate::Period(period) => format!("{names} every {period}"),
        Rate::Frequency(hz) => format!("{names} at {hz} Hz"),
    }
}
