//! The command line as clap reads it. What it means is in `check`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Parser, ValueEnum};

const EXAMPLES: &str = "\
EXAMPLES:
  rawstack-record -d 30s                  the whole machine for 30 seconds
  rawstack-record -o app.rawstack -- ./app --flag
                                          a command and its children
  rawstack-record -p 1234,5678 -F 999     two processes, until Ctrl-C
  rawstack-record -a -- sleep 10          the whole machine while a command runs
  rawstack-record -e off-cpu:1ms -e cpu-clock -p 1234
                                          where a process runs, and where it waits
  rawstack-record --cgroup system.slice/nginx.service --rotate 10m --keep 6
                                          a service, the last hour of it
  rawstack-record -r 10 --work 1000 -- ./benchmark
                                          ten runs, to be compared with others
Then, anywhere:  rawstack report FILE";

/// Not a doc comment: brackets are links there.
const EVENT_HELP: &str = "Event to sample (repeatable): cpu-clock, task-clock, cycles and what else perf has by name, \
    page-faults, context-switches, off-cpu[:MIN_TIME], SYS:NAME (tracepoint), uprobe:PATH:SYMBOL[+OFF], \
    uretprobe:PATH:SYMBOL, usdt:PATH:PROVIDER:NAME, kprobe:SYMBOL";

/// Record stack traces raw: no symbols here, names come later and elsewhere.
#[derive(Debug, Parser)]
#[command(name = "rawstack-record", version, max_term_width = 100, after_help = EXAMPLES)]
pub struct Args {
    /// Record all processes (the default without COMMAND, -p, -t and --cgroup)
    #[arg(short, long, conflicts_with_all = ["pid", "tid"], help_heading = "Target")]
    pub(crate) all: bool,
    /// Record these processes and the children they make
    #[arg(
        short,
        long,
        value_name = "LIST",
        value_delimiter = ',',
        help_heading = "Target"
    )]
    pub(crate) pid: Vec<u32>,
    /// Record these threads and what they make
    #[arg(
        short,
        long,
        value_name = "LIST",
        value_delimiter = ',',
        help_heading = "Target"
    )]
    pub(crate) tid: Vec<u32>,
    /// Record only what is in this cgroup or below it (repeatable): a folder
    /// of /sys/fs/cgroup, or its path there
    #[arg(long, value_name = "PATH", help_heading = "Target")]
    pub(crate) cgroup: Vec<PathBuf>,
    /// Record only what runs on these CPUs: 0-3,8
    #[arg(short = 'C', long, value_name = "LIST", help_heading = "Target")]
    pub(crate) cpu: Option<String>,
    #[arg(
        short,
        long,
        help = EVENT_HELP,
        value_name = "EVENT",
        default_value = "cpu-clock",
        help_heading = "Event"
    )]
    pub(crate) event: Vec<String>,
    /// Samples per second, of a clock or counter on each CPU [default: 199]
    #[arg(
        short = 'F',
        long,
        value_name = "HZ",
        conflicts_with = "period",
        help_heading = "Event"
    )]
    pub(crate) frequency: Option<u64>,
    /// One sample in N: nanoseconds of a clock, else events
    #[arg(short = 'c', long, value_name = "N", help_heading = "Event")]
    pub(crate) period: Option<u64>,
    /// When to take user stacks [default: deferred where the kernel can]
    #[arg(long, value_enum, value_name = "WHEN", help_heading = "Stacks")]
    pub(crate) user_stacks: Option<UserStacksArg>,
    /// Whether to take kernel stacks
    #[arg(
        long,
        value_enum,
        value_name = "ON",
        default_value = "on",
        help_heading = "Stacks"
    )]
    pub(crate) kernel_stacks: Switch,
    /// How user stacks can be unwound: by frame pointers, here; or also later, by
    /// the programs' unwind information, from copies of the stacks [:BYTES of
    /// each at most, default 64K, and the end of longer ones]. Copies hold
    /// MEMORY OF THE PROGRAMS, with whatever secrets lie there, where
    /// --copy-words is all: see `rawstack scrub`
    #[arg(
        long,
        value_name = "fp|stack-copy[:BYTES]",
        default_value = "fp",
        help_heading = "Stacks"
    )]
    pub(crate) unwind: String,
    /// Which words of copied stacks to keep: only those that may be addresses
    /// of code or of frames, and of the others whether they are 0, or all.
    /// Unwinding needs no more than addresses, which are down to an eighth of
    /// the size, and hold no text or numbers
    #[arg(
        long,
        value_enum,
        value_name = "WHICH",
        default_value = "addresses",
        help_heading = "Stacks"
    )]
    pub(crate) copy_words: CopyWordsArg,
    /// User frames to keep of one stack at most (up to 1024); deeper ones are
    /// told as truncated, with their real depth
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1024,
        help_heading = "Stacks"
    )]
    pub(crate) max_frames: u32,
    /// Which of the kernel's symbols to put into the archive: those of kernel
    /// frames, or all (half a megabyte)
    #[arg(
        long,
        value_enum,
        value_name = "WHICH",
        default_value = "seen",
        help_heading = "Output"
    )]
    pub(crate) kernel_symbols: KernelSymbolsArg,
    /// Stop after this time: 10s, 5m, 500ms
    #[arg(short, long, value_name = "TIME", help_heading = "End")]
    pub(crate) duration: Option<String>,
    /// Archive to write [default: rawstack-HOST-YYYYMMDD-HHMMSS.rawstack]
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite an archive of that name; with --keep, let those of earlier
    /// recordings go, too
    #[arg(long, help_heading = "Output")]
    pub(crate) force: bool,
    /// End the recording before the archive gets larger: 500M, 2G
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["rotate", "flight_recorder"], help_heading = "Output")]
    pub(crate) max_size: Option<String>,
    /// Begin another archive each time one has this size or age (100M, 10m),
    /// and on SIGUSR2; names get a number: app.1.rawstack
    #[arg(
        long,
        value_name = "SIZE|TIME",
        conflicts_with = "flight_recorder",
        help_heading = "Output"
    )]
    pub(crate) rotate: Option<String>,
    /// Keep the newest N archives of --rotate, the one that is being written
    /// included, and remove older ones of this recording
    #[arg(long, value_name = "N", requires = "rotate", help_heading = "Output")]
    pub(crate) keep: Option<u32>,
    /// Hold the last of the recording in memory (30s, 20M) and write it on
    /// SIGUSR2 and at the end, to names with a number: app.1.rawstack
    #[arg(long, value_name = "TIME|SIZE", help_heading = "Output")]
    pub(crate) flight_recorder: Option<String>,
    /// Put a label into the archive (repeatable)
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Output")]
    pub(crate) label: Vec<String>,
    /// Run COMMAND so many times, one after the other, into one archive
    #[arg(
        short,
        long,
        value_name = "N",
        default_value_t = 1,
        requires = "command",
        help_heading = "Runs"
    )]
    pub(crate) runs: u32,
    /// Work that each run of COMMAND does, in a unit of yours: requests, rows
    #[arg(long, value_name = "N", requires = "command", help_heading = "Runs")]
    pub(crate) work: Option<f64>,
    /// Memory that the recorder may take; what --flight-recorder SIZE holds
    /// comes on top
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "64M",
        help_heading = "Self"
    )]
    pub(crate) max_memory: String,
    /// Say what this host can do, what is missing and how to get it; record nothing
    #[arg(long, help_heading = "Self")]
    pub(crate) doctor: bool,
    /// Say nothing but errors
    #[arg(short, long, help_heading = "Output")]
    pub(crate) quiet: bool,
    /// Say more
    #[arg(short, long, action = ArgAction::Count, help_heading = "Output")]
    pub(crate) verbose: u8,
    /// Command to run; its end ends the recording. It and its children are
    /// what is recorded, unless -a, -p, -t or --cgroup says otherwise
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UserStacksArg {
    /// On return to user space, page faults allowed (kernel 6.18 and newer)
    Deferred,
    /// At the tick, from what is in memory
    Immediate,
    /// Not at all
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KernelSymbolsArg {
    Seen,
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CopyWordsArg {
    All,
    Addresses,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

impl Args {
    /// Whether only errors are to be said.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Whether more is to be said.
    pub fn is_verbose(&self) -> bool {
        self.verbose > 0
    }

    /// Whether the host is to be examined, and nothing recorded.
    pub fn is_doctor(&self) -> bool {
        self.doctor
    }
}
