//! The recorder's programs: loaded, attached, running.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{
    ErrorKind, Link, OpenObject, PrintLevel, ProgramMut, RawTracepointOpts, num_possible_cpus,
    set_print,
};

use crate::counter::PerfEvent;
use crate::error::{Error, Result};
use crate::kernel;
use crate::off_cpu::{self, OffCpu, Waits};
use crate::orc::OrcTables;
use crate::skel::types::copy_event;
use crate::skel::{OpenRecorderSkel, RecorderSkel, RecorderSkelBuilder};
use crate::source::{Counter, Kind, MAX_EVENTS, Origin, Rate, Source};
use crate::stream::Stream;
use crate::targets::Targets;

/// When user halves are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// On return to user space, page faults allowed: kernel 6.18 and newer.
    Deferred,
    /// At the tick, from what is in memory.
    Immediate,
    /// Not at all.
    Off,
}

/// What the programs are to do.
#[derive(Clone, Debug)]
pub struct Config {
    /// When user halves are taken.
    pub mode: Mode,
    /// Take kernel halves.
    pub kernel_stacks: bool,
    /// User frames that are kept at most; the programs' own limit is 1024.
    pub max_user_frames: u32,
    /// Time blocked as an event, too.
    pub off_cpu: Option<OffCpu>,
    /// Who is recorded.
    pub targets: Targets,
    /// What else makes samples.
    pub events: Vec<Source>,
    /// Bytes of each user stack that are copied at most from the stack pointer on, a multiple of 4096 up to
    /// [`MAX_COPY_BYTES`]; 0: no copies. Of a longer one its end is copied, too.
    pub copy_bytes: u32,
    /// Size of the ring buffer in bytes: a power of two, a multiple of the page size.
    pub ring_bytes: u32,
    /// Wake the reader when so many bytes wait; 0: at each event.
    pub wakeup_bytes: u64,
    /// Threads that can owe a user half at once; what is beyond is taken at the tick.
    pub max_threads: u32,
}

/// Most bytes of a stack that can be copied, as in `src/c/event.h`.
pub const MAX_COPY_BYTES: u32 = 512 << 10;

/// `COPY_TAIL` in `src/c/event.h`.
const COPY_TAIL: u32 = 64 << 10;

/// Memory for the programs' object; lend it to [`Programs::load`].
#[derive(Debug)]
pub struct Room(MaybeUninit<OpenObject>);

impl Default for Room {
    fn default() -> Self {
        Self(MaybeUninit::uninit())
    }
}

/// The recorder's programs in the kernel. All goes with it when it is dropped.
pub struct Programs<'a> {
    pub(crate) skel: RecorderSkel<'a>,
    mode: Mode,
    /// Tasks are followed from one to the next.
    follows: bool,
    off_cpu: Option<OffCpu>,
    waits: Option<Waits>,
    events: Vec<Source>,
    /// Kinds of programs that can ask which event they run for.
    cookies: Vec<Kind>,
    links: Vec<Link>,
    counters: Vec<PerfEvent>,
    /// Tracepoints and probes: they run as long as they are here.
    hits: Vec<PerfEvent>,
}

impl fmt::Debug for Programs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Programs")
            .field("mode", &self.mode)
            .field("counters", &self.counters)
            .field("hits", &self.hits)
            .finish_non_exhaustive()
    }
}

impl<'a> Programs<'a> {
    /// Load what `config` needs. Nothing runs yet.
    pub fn load(room: &'a mut Room, config: &Config) -> Result<Self> {
        let open_error = |error| Error::Load {
            error,
            verdict: String::new(),
        };
        set_print(Some((PrintLevel::Warn, keep_words)));
        let numbers = config.events.iter().map(|event| event.number + 1);
        let count = numbers.max().unwrap_or(0);
        if count > MAX_EVENTS {
            return Err(Error::TooManyEvents(count));
        }
        let cookies = cookies(&config.events)?;
        let mut open = RecorderSkelBuilder::default()
            .open(&mut room.0)
            .map_err(open_error)?;
        configure(&mut open, config, &cookies)?;
        let skel = open.load().map_err(load_error)?;
        config.targets.add_cgroups(&skel)?;
        Ok(Self {
            skel,
            mode: config.mode,
            follows: config.targets.follows(),
            off_cpu: config.off_cpu,
            waits: None,
            events: config.events.clone(),
            cookies,
            links: Vec::new(),
            counters: Vec::new(),
            hits: Vec::new(),
        })
    }

    /// The events that the programs send.
    pub fn stream(&self) -> Result<Stream> {
        let maps = &self.skel.maps;
        Stream::new(&maps.events, &maps.slots, &maps.cpu_states)
    }

    /// Hook in what keeps account of threads. Call it before [`start`](Self::start).
    pub fn attach(&mut self) -> Result<()> {
        let progs = &self.skel.progs;
        let mut hooks = Vec::new();
        if self.mode == Mode::Deferred {
            hooks.push((
                &progs.capture_on_exit,
                "capture_on_exit",
                "sched_process_exit",
            ));
            hooks.push((
                &progs.capture_on_exec,
                "capture_on_exec",
                "sched_process_exec",
            ));
        }
        if self.follows {
            hooks.push((&progs.follow_fork, "follow_fork", "sched_process_fork"));
            hooks.push((&progs.follow_exec, "follow_exec", "sched_process_exec"));
            hooks.push((&progs.forget_exited, "forget_exited", "sched_process_exit"));
        }
        for (hook, program, tracepoint) in hooks {
            let link = hook.attach_raw_tracepoint(tracepoint);
            let place = tracepoint.to_owned();
            self.links.push(link.map_err(|error| Error::Attach {
                program,
                place,
                error,
            })?);
        }
        Ok(())
    }

    /// Start all events: counters on these CPUs, but for those that have gone offline meanwhile; clocks each at a random
    /// phase of their period so that none keeps step with the workload.
    pub fn start(&mut self, cpus: &[u32]) -> Result<()> {
        let mut starts = Vec::new();
        for number in 0..self.events.len() {
            let Origin::Counter(counter) = &self.events[number].origin else {
                continue;
            };
            let cpus: Vec<u32> = cpus
                .iter()
                .copied()
                .filter(|&cpu| counter.has(cpu))
                .collect();
            let phases = random_phases(cpus.len(), phase_range(counter));
            for (cpu, phase) in cpus.into_iter().zip(phases) {
                let opened = match self.open_counter(number, counter, cpu) {
                    Err(error) if error.is_gone_cpu() => continue,
                    opened => opened?,
                };
                starts.push((phase, self.counters.len()));
                self.counters.push(opened);
            }
        }
        self.waits = self
            .off_cpu
            .map(|_| Waits::start(&self.skel, self.mode))
            .transpose()?;
        self.start_hits(cpus.first().copied().unwrap_or(0))?;
        starts.sort_unstable();
        let mut passed = 0;
        for (phase, place) in starts {
            thread::sleep(Duration::from_nanos(phase - passed));
            passed = phase;
            self.counters[place].enable()?;
        }
        Ok(())
    }

    /// Unwind kernel stacks of tasks that do not run by these.
    pub fn use_orc_tables(&mut self, tables: &OrcTables) {
        tables.tell(&mut self.skel);
    }

    /// What makes samples; the place of each is its number.
    pub fn events(&self) -> &[Source] {
        &self.events
    }

    /// What [`PerfEvent::attach`] needs to put source `number` on another CPU from another process: its program, and its
    /// cookie where the kernel has such.
    pub fn program_of(&self, number: usize) -> Result<(OwnedFd, Option<u64>)> {
        let program = self.program(self.events[number].kind())?;
        let fd = program.as_fd().try_clone_to_owned();
        Ok((fd.map_err(Error::Descriptor)?, self.cookie(number)))
    }

    fn cookie(&self, number: usize) -> Option<u64> {
        let source = &self.events[number];
        let is_known = self.cookies.contains(&source.kind());
        is_known.then(|| source.cookie())
    }

    fn program(&self, kind: Kind) -> Result<ProgramMut<'_>> {
        let name = program_name(kind, self.mode);
        let mut programs = self.skel.object().progs_mut();
        let program = programs.find(|program| program.name() == name.as_str());
        program.ok_or(Error::NoProgram(kind.plural()))
    }

    fn open_counter(&self, number: usize, counter: &Counter, cpu: u32) -> Result<PerfEvent> {
        let source = &self.events[number];
        let mut event = PerfEvent::open(&source.name, counter, cpu)?;
        let program = self.program(source.kind())?;
        event.attach(program.as_fd(), self.cookie(number))?;
        Ok(event)
    }

    /// Hook in tracepoints and probes. One perf event is enough: its program runs on all CPUs.
    fn start_hits(&mut self, cpu: u32) -> Result<()> {
        for number in 0..self.events.len() {
            let Source { name, origin, .. } = &self.events[number];
            let mut event = match origin {
                Origin::Counter(_) => continue,
                Origin::RawTracepoint { name, .. } => {
                    let link = self.attach_raw(number, name)?;
                    self.links.push(link);
                    continue;
                }
                Origin::Tracepoint { id, .. } => PerfEvent::tracepoint(name, *id, cpu)?,
                Origin::Probe(probe) => PerfEvent::probe(name, probe, cpu)?,
            };
            let program = self.program(self.events[number].kind())?;
            event.attach(program.as_fd(), self.cookie(number))?;
            self.hits.push(event);
        }
        Ok(())
    }

    fn attach_raw(&self, number: usize, tracepoint: &str) -> Result<Link> {
        let program = self.program(Kind::Raw)?;
        let link = match self.cookie(number) {
            Some(cookie) => {
                let options = RawTracepointOpts {
                    cookie,
                    ..RawTracepointOpts::default()
                };
                program.attach_raw_tracepoint_with_opts(tracepoint, options)
            }
            None => program.attach_raw_tracepoint(tracepoint),
        };
        link.map_err(|error| Error::Attach {
            program: "raw",
            place: tracepoint.to_owned(),
            error,
        })
    }

    /// Stop all events. User halves may still come for a moment.
    pub fn stop(&mut self) -> Result<()> {
        self.hits.clear();
        if let Some(waits) = &mut self.waits {
            waits.stop(&mut self.skel);
        }
        self.counters.iter().try_for_each(PerfEvent::disable)
    }
}

impl Programs<'_> {
    /// Once all has stopped: send an event for each task that is still blocked, or for some of them. Whether there may
    /// be more: read the [`stream`](Self::stream) meanwhile.
    pub fn send_unended(&mut self) -> Result<bool> {
        self.waits.as_mut().map_or(Ok(false), Waits::send_unended)
    }
}

/// The range of the random phase at which a counter starts, in nanoseconds; 0: at once.
fn phase_range(counter: &Counter) -> u64 {
    match counter.rate {
        Rate::Period(period) if counter.is_clock => period,
        _ => 0,
    }
}

/// One phase a CPU, each below `range`.
fn random_phases(cpus: usize, range: u64) -> Vec<u64> {
    (0..cpus)
        .map(|cpu| RandomState::new().hash_one(cpu) % range.max(1))
        .collect()
}

/// How the programs of a mode are called, behind what they do.
pub(crate) fn suffix(mode: Mode) -> &'static str {
    match mode {
        Mode::Deferred => "deferred",
        Mode::Immediate | Mode::Off if kernel::has_loops() => "immediate",
        Mode::Immediate | Mode::Off => "plain",
    }
}

/// The program of a kind, in `src/c/ticks.bpf.h`.
fn program_name(kind: Kind, mode: Mode) -> String {
    format!("{}_{}", kind.program(), suffix(mode))
}

/// The kinds of `events` whose programs can ask which event they run for. The others can have one event only.
fn cookies(events: &[Source]) -> Result<Vec<Kind>> {
    let mut known = Vec::new();
    for kind in Kind::ALL {
        let mut of_kind = events.iter().filter(|event| event.kind() == kind);
        let Some(first) = of_kind.next() else {
            continue;
        };
        if kernel::has_cookies(kind) {
            known.push(kind);
        } else if let Some(second) = of_kind.find(|event| event.cookie() != first.cookie()) {
            return Err(Error::LoneEvent {
                event: second.name.clone(),
                kind: kind.plural(),
            });
        }
    }
    Ok(known)
}

fn configure(open: &mut OpenRecorderSkel<'_>, config: &Config, cookies: &[Kind]) -> Result<()> {
    let deferred = config.mode == Mode::Deferred;
    let needed: Vec<String> = config
        .events
        .iter()
        .map(|event| program_name(event.kind(), config.mode))
        .collect();
    for mut program in open.open_object_mut().progs_mut() {
        let is_needed = needed.iter().any(|name| program.name() == name.as_str());
        program.set_autoload(is_needed);
    }
    let progs = &mut open.progs;
    progs.capture_on_exit.set_autoload(deferred);
    progs.capture_on_exec.set_autoload(deferred);
    config.targets.configure(open)?;
    off_cpu::configure(open, config)?;
    let map_error = |map| move |error| Error::Map { map, error };
    open.maps
        .events
        .set_max_entries(config.ring_bytes)
        .map_err(map_error("events"))?;
    open.maps
        .slots
        .set_max_entries(if deferred { config.max_threads } else { 1 })
        .map_err(map_error("slots"))?;
    let cpus = num_possible_cpus().map_err(map_error("cpu_states"))?;
    open.maps
        .cpu_states
        .set_max_entries(u32::try_from(cpus).unwrap_or(u32::MAX))
        .map_err(map_error("cpu_states"))?;
    if config.copy_bytes > 0 {
        // Its own struct has room for a page, which may be read behind the last one.
        let size = u32::try_from(size_of::<copy_event>()).unwrap_or(u32::MAX);
        let most = config.copy_bytes + COPY_TAIL;
        let scratch = &mut open.maps.copy_scratch;
        scratch
            .set_max_entries(u32::try_from(cpus).unwrap_or(u32::MAX))
            .and_then(|()| scratch.set_value_size(size + most))
            .map_err(map_error("copy_scratch"))?;
    }
    if let Some(data) = open.maps.rodata_data.as_deref_mut() {
        data.capture_cfg.copy_bytes = config.copy_bytes;
        data.capture_cfg.wakeup_bytes = config.wakeup_bytes;
        data.capture_cfg.user_stacks = u32::from(config.mode != Mode::Off);
        data.capture_cfg.kernel_stacks = u32::from(config.kernel_stacks);
        data.capture_cfg.max_user_frames = config.max_user_frames;
        data.capture_cfg.max_kernel_frames = kernel::frame_limit();
        data.capture_cfg.thread_size = kernel::thread_size();
        for event in &config.events {
            data.recorder_cfg.lone_cookie[event.kind() as usize] = event.cookie();
        }
        data.recorder_cfg.has_cookie = cookies.iter().map(|&kind| 1 << kind as u32).sum();
    }
    Ok(())
}

/// What libbpf last warned of: the verifier's verdict among it.
static WORDS: Mutex<String> = Mutex::new(String::new());

fn keep_words(_level: PrintLevel, text: String) {
    if let Ok(mut words) = WORDS.lock() {
        words.push_str(&text);
    }
}

fn load_error(error: libbpf_rs::Error) -> Error {
    let words = WORDS.lock().map(|words| words.clone()).unwrap_or_default();
    if error.kind() == ErrorKind::PermissionDenied && !words.contains("BEGIN PROG LOAD LOG") {
        let limit = if kernel::counts_locked_memory() {
            "; kernels before 5.11 also want the limit of locked memory raised (ulimit -l unlimited)"
        } else {
            ""
        };
        return Error::LoadNotPermitted { error, limit };
    }
    // libbpf takes this helper where bpf_probe_read_kernel is missing; from 5.8 on only lockdown takes that away.
    if words.contains("bpf_probe_read#4") {
        return Error::LockedDown;
    }
    let verdict = verdict(&words).map(|line| format!(" ({line})"));
    Error::Load {
        verdict: verdict.unwrap_or_default(),
        error,
    }
}

/// The line in which the kernel says what it disliked: the last of its log before the statistics, and before the
/// explanation with source and suggestion that 7.3 puts behind it.
fn verdict(words: &str) -> Option<&str> {
    let log = words
        .split_once("\nVerification failed:")
        .map_or(words, |(log, _)| log);
    log.lines().rfind(|line| {
        !line.is_empty()
            && !line.starts_with("processed ")
            && !line.starts_with("-- END")
            && !line.starts_with("libbpf")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the kernel's own words are found among libbpf's.
    #[test]
    fn verdicts() {
        let log = |words: &str| {
            format!(
                "libbpf: prog 'x': BPF program load failed: -EINVAL\n\
                 libbpf: prog 'x': -- BEGIN PROG LOAD LOG --\n0: R1=ctx()\n{words}\n\
                 processed 9 insns (limit 1000000)\n-- END PROG LOAD LOG --\nlibbpf: failed to load object\n"
            )
        };
        let last = "unknown func bpf_loop#181";
        assert_eq!(verdict(&log(last)), Some(last));
        let explained = format!(
            "{last}\n\nVerification failed: Policy: Operation is not allowed\n\nSuggestion:\n  Use another helper.\n"
        );
        assert_eq!(verdict(&log(&explained)), Some(last));
        assert_eq!(verdict(""), None);
    }
}
