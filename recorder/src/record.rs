//! The start of a recording: everything in the right order, so that nothing is missed and nothing is left behind.

use std::rc::Rc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rawstack_bpf::Mode as Capture;
use rawstack_bpf::{
    Config, Programs, Room, SideBand, can_copy, can_defer, online_cpus, share_heap,
};
use rawstack_format::Counters;
use rawstack_format::record::{Mode, Recording};
use rustix::param::page_size;
use rustix::process::setpriority_process;

use crate::assembler::Assembler;
use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::event::Events;
use crate::helper::Helper;
use crate::host::{facts, monotonic_ns, wall_ns};
use crate::hotplug::CpuWatch;
use crate::jit::Tracker;
use crate::kernel::{self, KernelMap};
use crate::options::{Growth, Options, UserStacks};
use crate::output::{Output, check_place};
use crate::privilege;
use crate::runs::Runs;
use crate::session::Session;
use crate::sieve::Sieve;
use crate::summary::Summary;
use crate::target::TargetSet;
use crate::wake::Waker;
use crate::world::World;

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

/// Record as `options` say, until it ends.
pub fn record(options: &Options) -> Result<Summary> {
    let is_single = matches!(options.growth, Growth::Unlimited | Growth::MaxSize(_));
    if is_single && options.output.symlink_metadata().is_ok() && !options.force {
        return Err(Error::Exists(options.output.clone()));
    }
    share_heap();
    check_place(options)?;
    let (mode, mode_reason) = choose_mode(options.user_stacks)?;
    if options.copy_bytes > 0 && !can_copy() {
        return Err(Error::Option {
            option: "--unwind",
            why: "this kernel does not tell where a stack ends: that came with 5.17".to_owned(),
            cure: "take --unwind fp, or a newer kernel",
        });
    }
    let helper = Helper::start()?;
    let kernel_reader = thread::spawn(KernelMap::read);
    let cpus = online_cpus()?;
    let targets = TargetSet::find(&options.targets, &cpus)?;
    let events = Events::find(&options.events, options.rate)?;
    if !options.quiet {
        for note in &events.notes {
            eprintln!("rawstack-record: {note}");
        }
    }
    // Ahead of the command, so that even what runs before it becomes the command is told of.
    let side_band = SideBand::open(&cpus)?;
    let host = Host {
        helper: Rc::new(helper),
        cpus: side_band.cpus().collect(),
        side_band,
        targets,
        events,
        mode,
        mode_reason,
    };
    let mut runs = Runs::start(options)?;
    let result = run(options, host, &mut runs, kernel_reader);
    runs.terminate();
    result
}

/// What is known of the host before anything is started.
#[derive(Debug)]
struct Host {
    helper: Rc<Helper>,
    side_band: SideBand,
    cpus: Vec<u32>,
    targets: TargetSet,
    events: Events,
    mode: Capture,
    mode_reason: String,
}

fn run(
    options: &Options,
    host: Host,
    runs: &mut Runs<'_>,
    kernel_reader: KernelReader,
) -> Result<Summary> {
    let Host {
        helper,
        side_band,
        cpus,
        targets,
        events,
        mode,
        mode_reason,
    } = host;
    let mut room = Room::default();
    let budget = Budget::of(options.max_memory);
    let samples = events.samples_per_second();
    // Copies of stacks are of any size.
    let samples = samples.filter(|_| options.copy_bytes == 0);
    let ring_bytes = budget.ring_for(samples.map(|samples| samples * cpus.len() as u64));
    let config = config(options, mode, &targets, &events, ring_bytes);
    let mut programs = Programs::load(&mut room, &config)?;
    programs.attach()?;
    targets.add(&programs)?;
    add_commands(options, runs, &programs)?;
    let stream = programs.stream()?;
    let mut waker = Waker::new(side_band.fds().chain([stream.fd()]))?;
    let mut output = Output::create(options, &budget, &helper)?;
    let (start, start_ns) = (Instant::now(), monotonic_ns());
    let recording = Recording {
        mode: mode_name(mode).1,
        mode_reason,
        start_ns,
        start_wall_ns: wall_ns(),
        writer: concat!("rawstack-record ", env!("CARGO_PKG_VERSION")).to_owned(),
        events: events.rows,
        options: options.given.clone(),
        host: facts(cpus.len(), kernel::build_id().as_ref(), &events.notes),
        labels: options.labels.clone(),
        ..Recording::default()
    };
    // Ahead of the first sample, and so there whenever a kill may come.
    output.begin(&recording)?;
    programs.start(&targets.cpus(&cpus))?;
    let first_run = runs.release()?;
    let map = kernel_reader.join().unwrap_or_default();
    programs.use_orc_tables(&map.orc_tables);
    let page = u32::try_from(page_size()).unwrap_or(4096);
    let holds_waiting = output.is_flight();
    let jit = Tracker::new(&helper);
    let world = World::new(helper, map, page);
    let sieve = options.copy_addresses_only.then(Sieve::default);
    let assembler = Assembler::new(world, budget.tables, holds_waiting).with_sieve(sieve);
    let mut session = Session {
        options,
        stream,
        side_band,
        output,
        assembler,
        jit,
        recording,
        start_ns,
        counters: Counters::default(),
        run_rows: Vec::new(),
        run_error: None,
        is_gap_told: false,
        is_hurried: false,
        targets_lost: 0,
        is_full: false,
        cpus: None,
    };
    if options.copy_bytes > 0 {
        run_ahead();
    }
    let known = give_up_rights(&mut session, &programs, &targets, cpus)?;
    session.begin(first_run, &known)?;
    session.read_until_end(&mut waker, start, runs)?;
    programs.stop()?;
    session.cpus.iter().for_each(CpuWatch::stop);
    while programs.send_unended()? {
        session.turn()?;
    }
    session.targets_lost = programs.targets_lost();
    session.settle(&mut waker)?;
    session.finish(start.elapsed(), mode_name(mode).0, runs.status(), &waker)
}

/// Nice value of the thread that reads, where stacks are copied.
const AHEAD: i32 = -10;

/// Run ahead of what is recorded. Copies of stacks are tens of megabytes a second: where more threads want to run than
/// there are CPUs, one share of their time among many is not enough to read them. Without the right to it, so be it.
fn run_ahead() {
    let _ = setpriority_process(None, AHEAD);
}

/// Agree with the helper on what it is to do later, and give up all that reading and writing do not take. The processes
/// that are targets by name.
fn give_up_rights(
    session: &mut Session<'_>,
    programs: &Programs<'_>,
    targets: &TargetSet,
    cpus: Vec<u32>,
) -> Result<Vec<u32>> {
    let known = targets.processes();
    let helper = &session.assembler.world.helper;
    let wanted = targets.wanted.cpus.clone();
    let watch = CpuWatch::new(helper, programs, &session.side_band, cpus, wanted)?;
    let given_up = helper.seal().and_then(|()| privilege::give_up());
    let note = given_up.map_err(|error| Error::System {
        action: "give up privileges",
        error,
    })?;
    if let Some(note) = note.filter(|_| !session.options.quiet) {
        eprintln!("rawstack-record: {note}");
    }
    session.cpus = Some(watch);
    Ok(known)
}

fn config(
    options: &Options,
    mode: Capture,
    targets: &TargetSet,
    events: &Events,
    ring_bytes: u32,
) -> Config {
    Config {
        mode,
        kernel_stacks: options.kernel_stacks,
        max_user_frames: options.max_frames,
        targets: targets.wanted.clone(),
        events: events.sources.clone(),
        off_cpu: events.off_cpu,
        copy_bytes: options.copy_bytes,
        ring_bytes,
        wakeup_bytes: u64::from(ring_bytes / 8),
        max_threads: MAX_THREADS,
    }
}

/// Record the commands of all runs: later there is no right to add any.
fn add_commands(options: &Options, runs: &Runs<'_>, programs: &Programs<'_>) -> Result<()> {
    if options.targets.command {
        for command in runs.commands() {
            programs.add_process_at_exec(command.id())?;
        }
    }
    Ok(())
}
