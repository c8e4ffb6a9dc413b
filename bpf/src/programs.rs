//! The recorder's programs: loaded, attached, ticking.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{ErrorKind, Link, OpenObject, PrintLevel, num_possible_cpus, set_print};

use crate::error::{Error, Result};
use crate::kernel;
use crate::perf_event::CpuClock;
use crate::skel::{OpenRecorderSkel, RecorderSkel, RecorderSkelBuilder};
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
    /// Nanoseconds between two ticks on each CPU; the weight of a sample.
    pub period: u64,
    /// Who is recorded.
    pub targets: Targets,
    /// Size of the ring buffer in bytes: a power of two, a multiple of the page size.
    pub ring_bytes: u32,
    /// Wake the reader when so many bytes wait; 0: at each event.
    pub wakeup_bytes: u64,
    /// Threads that can owe a user half at once; what is beyond is taken at the tick.
    pub max_threads: u32,
}

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
    links: Vec<Link>,
    clocks: Vec<CpuClock>,
    mode: Mode,
    /// Tasks are followed from one to the next.
    follows: bool,
}

impl fmt::Debug for Programs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Programs")
            .field("mode", &self.mode)
            .field("clocks", &self.clocks)
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
        let mut open = RecorderSkelBuilder::default()
            .open(&mut room.0)
            .map_err(open_error)?;
        configure(&mut open, config)?;
        let skel = open.load().map_err(load_error)?;
        config.targets.add_cgroups(&skel)?;
        Ok(Self {
            skel,
            links: Vec::new(),
            clocks: Vec::new(),
            mode: config.mode,
            follows: config.targets.follows(),
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
            self.links
                .push(link.map_err(|error| Error::Attach { program, error })?);
        }
        Ok(())
    }

    /// Start ticking on these CPUs, each at a random phase of `period` so that none keeps step with the workload.
    pub fn start(&mut self, cpus: &[u32], period: u64) -> Result<()> {
        let (tick, program) = match self.mode {
            Mode::Deferred => (&self.skel.progs.tick_deferred, "tick_deferred"),
            Mode::Immediate | Mode::Off if kernel::has_loops() => {
                (&self.skel.progs.tick_immediate, "tick_immediate")
            }
            Mode::Immediate | Mode::Off => (&self.skel.progs.tick_plain, "tick_plain"),
        };
        for &cpu in cpus {
            let clock = CpuClock::open(cpu, period)?;
            self.links.push(
                tick.attach_perf_event(clock.give_fd()?)
                    .map_err(|error| Error::Attach { program, error })?,
            );
            self.clocks.push(clock);
        }
        let mut phases = random_phases(cpus.len(), period);
        phases.sort_unstable();
        let mut passed = 0;
        for (clock, phase) in self.clocks.iter().zip(phases) {
            thread::sleep(Duration::from_nanos(phase - passed));
            passed = phase;
            clock.enable()?;
        }
        Ok(())
    }

    /// Stop ticking. User halves may still come for a moment.
    pub fn stop(&self) -> Result<()> {
        self.clocks.iter().try_for_each(CpuClock::disable)
    }
}

/// One phase a CPU, each below `period`.
fn random_phases(cpus: usize, period: u64) -> Vec<u64> {
    (0..cpus)
        .map(|cpu| RandomState::new().hash_one(cpu) % period.max(1))
        .collect()
}

fn configure(open: &mut OpenRecorderSkel<'_>, config: &Config) -> Result<()> {
    let deferred = config.mode == Mode::Deferred;
    let plain = !deferred && !kernel::has_loops();
    let progs = &mut open.progs;
    progs.tick_deferred.set_autoload(deferred);
    progs.tick_immediate.set_autoload(!deferred && !plain);
    progs.tick_plain.set_autoload(plain);
    progs.capture_on_exit.set_autoload(deferred);
    progs.capture_on_exec.set_autoload(deferred);
    config.targets.configure(open)?;
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
    if let Some(data) = open.maps.rodata_data.as_deref_mut() {
        data.capture_cfg.wakeup_bytes = config.wakeup_bytes;
        data.capture_cfg.user_stacks = u32::from(config.mode != Mode::Off);
        data.capture_cfg.kernel_stacks = u32::from(config.kernel_stacks);
        data.capture_cfg.max_user_frames = config.max_user_frames;
        data.capture_cfg.max_kernel_frames = kernel::frame_limit();
        data.recorder_cfg.period = config.period;
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
