//! What makes samples, in the kernel's terms. Knows neither names on the command line nor where they are looked up.

use std::ffi::CString;

use perf_event_open_sys::bindings;

/// Events of one recording at most: `MAX_EVENTS` of `src/c/event.h`.
pub const MAX_EVENTS: usize = 64;

/// What makes the samples of an event, or of a part of it: an event can have several places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// For messages.
    pub name: String,
    /// Number of the event in the recording.
    pub number: usize,
    /// What it is to the kernel.
    pub origin: Origin,
}

/// What an event is to the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// A perf event on each CPU: each overflow is a sample, whose weight is the period that passed.
    Counter(Counter),
    /// A tracepoint, through a perf event.
    Tracepoint {
        /// Its number in tracefs.
        id: u64,
        /// Each so manieth hit is a sample of that weight.
        every: u32,
    },
    /// A tracepoint without tracefs.
    RawTracepoint {
        /// Its name, without its subsystem.
        name: String,
        /// As for tracepoints.
        every: u32,
    },
    /// A probe in a program or library, in all its processes.
    Probe(Probe),
}

/// How often a counter makes a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Each time so much has happened: nanoseconds of clocks, events of counters.
    Period(u64),
    /// So often a second: the kernel finds the period, and changes it.
    Frequency(u64),
}

/// What is counted on a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// `type` of `struct perf_event_attr`.
    pub pmu: u32,
    /// `config`, `config1`, `config2`.
    pub config: [u64; 3],
    /// How often.
    pub rate: Rate,
    /// A clock: it starts at a random phase, so that no CPU keeps step with the workload, and rests while idle.
    pub is_clock: bool,
    /// Leave out what happens in user code.
    pub exclude_user: bool,
    /// Leave out what happens in the kernel.
    pub exclude_kernel: bool,
    /// CPUs that have it, where not all do.
    pub cpus: Option<Vec<u32>>,
}

impl Counter {
    /// Whether CPU `cpu` has it.
    pub(crate) fn has(&self, cpu: u32) -> bool {
        self.cpus.as_ref().is_none_or(|cpus| cpus.contains(&cpu))
    }

    /// `cpu-clock`: a timer that interrupts each CPU every `period` nanoseconds while it is not idle.
    pub fn cpu_clock(period: u64) -> Self {
        Self {
            pmu: bindings::PERF_TYPE_SOFTWARE,
            config: [u64::from(bindings::PERF_COUNT_SW_CPU_CLOCK), 0, 0],
            rate: Rate::Period(period),
            is_clock: true,
            exclude_user: false,
            exclude_kernel: false,
            cpus: None,
        }
    }
}

/// A place in a file that is run, or in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// `type` of its PMU.
    pub pmu: u32,
    /// `config`: that it is on return, and where the offset of the semaphore lies.
    pub config: u64,
    /// The file, or the kernel's symbol.
    pub place: CString,
    /// Offset in the file, or behind the symbol, in bytes.
    pub offset: u64,
    /// Each so manieth hit is a sample of that weight.
    pub every: u32,
    /// In user code, not in the kernel's.
    pub is_in_user: bool,
    /// A function begins here: the caller is found in the return address alone, there is no frame yet.
    pub is_entry: bool,
}

/// `AT_ENTRY` and `AT_PROBE` of `src/c/event.h`, where a cookie has them.
const AT_ENTRY: u64 = 1 << 8;
const AT_PROBE: u64 = 2 << 8;

/// Kinds of programs, with numbers and names as in `src/c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Tick = 0,
    Tracepoint = 1,
    Raw = 2,
    Probe = 3,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Tick, Self::Tracepoint, Self::Raw, Self::Probe];

    /// Its programs' names begin with this.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Tick => "tick",
            Self::Tracepoint => "tracepoint",
            Self::Raw => "raw",
            Self::Probe => "probe",
        }
    }

    /// For messages.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Tick => "counters",
            Self::Tracepoint => "tracepoints",
            Self::Raw => "raw tracepoints",
            Self::Probe => "probes",
        }
    }
}

impl Source {
    pub(crate) fn kind(&self) -> Kind {
        match self.origin {
            Origin::Counter(_) => Kind::Tick,
            Origin::Tracepoint { .. } => Kind::Tracepoint,
            Origin::RawTracepoint { .. } => Kind::Raw,
            Origin::Probe(_) => Kind::Probe,
        }
    }

    /// What its program is told: `COOKIE_*` of `src/c/event.h`.
    pub(crate) fn cookie(&self) -> u64 {
        let (every, bits) = match &self.origin {
            Origin::Counter(_) => (0, 0),
            Origin::Tracepoint { every, .. } | Origin::RawTracepoint { every, .. } => (*every, 0),
            Origin::Probe(probe) => {
                let bits = [(probe.is_entry, AT_ENTRY), (probe.is_in_user, AT_PROBE)];
                let set = bits.into_iter().filter(|(is_set, _)| *is_set);
                (probe.every, set.map(|(_, bit)| bit).sum())
            }
        };
        u64::from(every) << 32 | bits | (self.number as u64 & 0xff)
    }
}
