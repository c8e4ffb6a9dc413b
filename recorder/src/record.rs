//! A recording from start to end: start everything in the right order, then read, assemble, write until it ends.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rawstack_bpf::{Change, Mode as Capture};
use rawstack_bpf::{
    Config, Counter, Event, Origin, Programs, Room, SideBand, Source, Stream, can_defer,
    online_cpus,
};
use rawstack_format::Counters;
use rawstack_format::record::{
    Drop, DropReason, End, Event as EventRow, KernelModules, KernelSymbols, Mode, ModuleKind,
    Record, Recording, State,
};
use rustix::param::page_size;

use crate::assembler::{Assembler, Cut};
use crate::command::Command;
use crate::error::{Error, Result};
use crate::host::{facts, monotonic_ns, wall_ns};
use crate::kernel::{self, KernelMap};
use crate::options::{Options, Target, UserStacks};
use crate::output::Output;
use crate::summary::Summary;
use crate::wake::Waker;
use crate::world::World;

/// Longest time that a sample stays in memory only, together with the wait for events: less than a second.
const WRITE_INTERVAL: Duration = Duration::from_millis(750);
/// Longest wait for events.
const WAIT: Duration = Duration::from_millis(100);
/// Batches of events that are read before anything else is looked at.
const BATCHES_PER_TURN: usize = 64;
/// How long user halves may still come after the last tick.
const GRACE: Duration = Duration::from_millis(100);
/// Ring buffer: half a second of 20 kHz on two CPUs.
const RING_BYTES: u32 = 8 << 20;
/// Threads that can owe a user half at once.
const MAX_THREADS: u32 = 256 << 10;

/// The mode that will run and why.
fn choose_mode(asked: UserStacks) -> Result<(Capture, String)> {
    let can = can_defer()?;
    Ok(match (asked, can) {
        (UserStacks::Off, _) => (Capture::Off, "asked for".to_owned()),
        (UserStacks::Immediate, _) => (Capture::Immediate, "asked for".to_owned()),
        (UserStacks::Deferred | UserStacks::Best, Ok(())) => (
            Capture::Deferred,
            "what a tick in user code does not see whole is taken on return, page faults allowed"
                .to_owned(),
        ),
        (UserStacks::Best, Err(reason)) => (Capture::Immediate, reason.to_owned()),
        (UserStacks::Deferred, Err(reason)) => {
            let cure = "take --user-stacks immediate, or a newer kernel";
            return Err(Error::Option {
                option: "--user-stacks",
                why: reason.to_owned(),
                cure,
            });
        }
    })
}

fn mode_name(mode: Capture) -> (&'static str, Mode) {
    match mode {
        Capture::Deferred => ("deferred", Mode::Deferred),
        Capture::Immediate => ("immediate", Mode::Immediate),
        Capture::Off => ("off", Mode::Off),
    }
}

/// The kernel's map and symbols, read beside everything else: it takes a while.
type KernelReader = JoinHandle<KernelMap>;

/// A recording that runs.
#[derive(Debug)]
struct Session<'a> {
    options: &'a Options,
    stream: Stream,
    side_band: SideBand,
    output: Output,
    assembler: Assembler,
    recording: Recording,
    /// Totals up to what has been handed over.
    counters: Counters,
    failed: bool,
}

/// Record as `options` say, until it ends.
pub fn record(options: &Options) -> Result<Summary> {
    if options.output.symlink_metadata().is_ok() && !options.force {
        return Err(Error::Exists(options.output.clone()));
    }
    let kernel_reader = thread::spawn(KernelMap::read);
    let (mode, mode_reason) = choose_mode(options.user_stacks)?;
    let cpus = online_cpus()?;
    // Ahead of the command, so that even what runs before it becomes the command is told of.
    let host = Host {
        side_band: SideBand::open(&cpus)?,
        cpus,
        mode,
        mode_reason,
    };
    let mut command = match options.command.as_slice() {
        [] => None,
        words => Some(Command::start_stopped(words)?),
    };
    let result = run(options, host, command.as_mut(), kernel_reader);
    if let Some(command) = &mut command {
        command.terminate();
    }
    result
}

/// What is known of the host before anything is started.
#[derive(Debug)]
struct Host {
    side_band: SideBand,
    cpus: Vec<u32>,
    mode: Capture,
    mode_reason: String,
}

fn run(
    options: &Options,
    host: Host,
    mut command: Option<&mut Command>,
    kernel_reader: KernelReader,
) -> Result<Summary> {
    let Host {
        side_band,
        cpus,
        mode,
        mode_reason,
    } = host;
    let filter = options.target != Target::All;
    let mut room = Room::default();
    let mut programs = Programs::load(&mut room, &config(options, mode, filter))?;
    add_targets(options, command.as_deref(), &programs)?;
    programs.attach(filter)?;
    let stream = programs.stream()?;
    let mut waker = Waker::new(stream.fd())?;
    let output = Output::create(&options.output, options.force)?;
    let (start, start_ns) = (Instant::now(), monotonic_ns());
    let recording = Recording {
        mode: mode_name(mode).1,
        mode_reason,
        start_ns,
        start_wall_ns: wall_ns(),
        writer: concat!("rawstack-record ", env!("CARGO_PKG_VERSION")).to_owned(),
        events: vec![event_row(options)],
        options: options.given.clone(),
        host: facts(cpus.len(), kernel::build_id().as_ref()),
        labels: options.labels.clone(),
        ..Recording::default()
    };
    // Ahead of the first sample, and so there whenever a kill may come.
    output.send(Record::Recording(recording.clone()), Counters::default());
    programs.start(&cpus)?;
    if let Some(command) = command.as_deref() {
        command.release()?;
    }
    let map = kernel_reader.join().unwrap_or_default();
    let page = u32::try_from(page_size()).unwrap_or(4096);
    let assembler = Assembler::new(World::new(map, page));
    let mut session = Session {
        options,
        stream,
        side_band,
        output,
        assembler,
        recording,
        counters: Counters::default(),
        failed: false,
    };
    session.begin()?;
    session.read_until_end(&mut waker, start, command.as_deref_mut())?;
    programs.stop()?;
    session.settle(&mut waker)?;
    let command_status = command.and_then(Command::ended);
    session.finish(start.elapsed(), mode_name(mode).0, command_status)
}

fn config(options: &Options, mode: Capture, filter: bool) -> Config {
    Config {
        mode,
        kernel_stacks: options.kernel_stacks,
        max_user_frames: options.max_frames,
        events: vec![Source {
            name: "cpu-clock".to_owned(),
            origin: Origin::Counter(Counter::cpu_clock(options.period)),
        }],
        filter,
        ring_bytes: RING_BYTES,
        wakeup_bytes: u64::from(RING_BYTES / 8),
        max_threads: MAX_THREADS,
    }
}

fn event_row(options: &Options) -> EventRow {
    EventRow {
        name: "cpu-clock".to_owned(),
        unit: "ns".to_owned(),
        period: options.period,
        frequency: options.frequency,
    }
}

fn add_targets(
    options: &Options,
    command: Option<&Command>,
    programs: &Programs<'_>,
) -> Result<()> {
    match (&options.target, command) {
        (Target::Pids(pids), _) => {
            for &pid in pids {
                if !std::path::Path::new(&format!("/proc/{pid}")).exists() {
                    return Err(Error::NoProcess(pid));
                }
                programs.add_target(pid)?;
            }
        }
        (Target::Command, Some(command)) => programs.add_target(command.id())?,
        _ => {}
    }
    Ok(())
}

impl Session<'_> {
    /// Write what stands at the beginning, and learn what runs already.
    fn begin(&mut self) -> Result<()> {
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
        match &self.options.target {
            Target::All => self.assembler.world.processes.read_all(),
            Target::Pids(pids) => pids
                .iter()
                .for_each(|&pid| _ = self.assembler.world.processes.process(pid)),
            Target::Command => {}
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
                return Ok(true);
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
            world.processes.distrust();
            if self.options.target == Target::All {
                world.processes.read_all();
            }
            self.assembler.add_drop(drop);
        }
    }

    fn read_until_end(
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
    fn settle(&mut self, waker: &mut Waker) -> Result<()> {
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

    fn finish(
        mut self,
        duration: Duration,
        mode: &'static str,
        command_status: Option<i32>,
    ) -> Result<Summary> {
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
            bytes: self.output.finish()?,
            command_status,
        })
    }
}

fn rate(options: &Options) -> String {
    match options.frequency {
        0 => format!("cpu-clock every {} ns", options.period),
        hz => format!("cpu-clock at {hz} Hz"),
    }
}
