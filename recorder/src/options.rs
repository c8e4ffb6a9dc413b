//! What to record and how: checked, and free of how it was asked for.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::event_spec::EventSpec;

/// Whose stacks are recorded. Processes, threads and the command add up; cgroups and CPUs restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// These processes, and what they make from now on.
    pub pids: Vec<u32>,
    /// These threads, and what they make from now on.
    pub tids: Vec<u32>,
    /// The command, and what it makes.
    pub command: bool,
    /// Only tasks in these cgroups and those below them; empty: in any.
    pub cgroups: Vec<PathBuf>,
    /// Only what happens on these CPUs; `None`: on any.
    pub cpus: Option<Vec<u32>>,
}

impl Targets {
    /// Whether every task is recorded, on whichever CPUs.
    pub fn is_all(&self) -> bool {
        !self.names_tasks() && self.cgroups.is_empty()
    }

    /// Whether only tasks that were named, or come from those, are recorded.
    pub fn names_tasks(&self) -> bool {
        self.command || !self.pids.is_empty() || !self.tids.is_empty()
    }
}

/// How often an event is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// So many times a second, in Hz. Events that are counted one by one (tracepoints, probes) are all taken.
    Frequency(u64),
    /// Once in so many: nanoseconds of a clock, else events.
    Period(u64),
}

/// How user stacks are to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserStacks {
    /// Deferred where the kernel can, else immediate.
    Best,
    /// On return to user space, or not at all.
    Deferred,
    /// At the tick.
    Immediate,
    /// Not.
    Off,
}

/// An amount of recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// So long.
    Time(Duration),
    /// So many bytes of archive.
    Size(u64),
}

/// What becomes of a recording that grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// One archive, of any length.
    #[default]
    Unlimited,
    /// One archive; the recording ends before it gets longer than this, in bytes.
    MaxSize(u64),
    /// An archive after the other, each of this amount.
    Rotate {
        /// Of each archive.
        each: Amount,
        /// Archives that stay; `None`: all.
        keep: Option<u32>,
    },
    /// The last of it, in memory: written on SIGUSR2 and at the end.
    FlightRecorder(Amount),
}

/// What to record and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Whose stacks.
    pub targets: Targets,
    /// The command, empty for none: its end ends the recording.
    pub command: Vec<OsString>,
    /// How many times the command is run.
    pub runs: u32,
    /// Work that one run of the command does, in a unit of the user's.
    pub work: Option<f64>,
    /// The events, never none; a sample's event is an index here.
    pub events: Vec<EventSpec>,
    /// How often they are sampled.
    pub rate: Rate,
    /// How user stacks are taken.
    pub user_stacks: UserStacks,
    /// Whether kernel stacks are taken.
    pub kernel_stacks: bool,
    /// Whether all kernel symbols go into the archive, not only those of kernel frames.
    pub all_kernel_symbols: bool,
    /// User frames that are kept at most.
    pub max_frames: u32,
    /// Bytes of each user stack that are copied at most, a multiple of 4096; 0: stacks are not copied.
    pub copy_bytes: u32,
    /// Whether only words of copies are kept that may be addresses of code or of frames.
    pub copy_addresses_only: bool,
    /// When to stop by itself.
    pub duration: Option<Duration>,
    /// The archive.
    pub output: PathBuf,
    /// Whether an archive of that name may go.
    pub force: bool,
    /// What becomes of it when it grows.
    pub growth: Growth,
    /// Memory that the recorder may take, in bytes.
    pub max_memory: u64,
    /// Whether only errors are to be said.
    pub quiet: bool,
    /// Labels: key, value.
    pub labels: Vec<(String, String)>,
    /// The options as given, for the archive: name without dashes, value.
    pub given: Vec<(String, String)>,
}
