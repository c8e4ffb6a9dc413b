//! What to record and how: checked, and free of how it was asked for.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Whose stacks are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Everyone's.
    All,
    /// Those of these processes, and of children they make from now on.
    Pids(Vec<u32>),
    /// Those of the command and its children.
    Command,
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

/// What to record and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whose stacks.
    pub target: Target,
    /// The command, empty for none: its end ends the recording.
    pub command: Vec<OsString>,
    /// Nanoseconds of CPU time between two samples on each CPU.
    pub period: u64,
    /// The frequency that was asked for in Hz, 0 where a period was.
    pub frequency: u64,
    /// How user stacks are taken.
    pub user_stacks: UserStacks,
    /// Whether kernel stacks are taken.
    pub kernel_stacks: bool,
    /// Whether all kernel symbols go into the archive, not only those of kernel frames.
    pub all_kernel_symbols: bool,
    /// User frames that are kept at most.
    pub max_frames: u32,
    /// When to stop by itself.
    pub duration: Option<Duration>,
    /// The archive.
    pub output: PathBuf,
    /// Whether an archive of that name may go.
    pub force: bool,
    /// Labels: key, value.
    pub labels: Vec<(String, String)>,
    /// The options as given, for the archive: name without dashes, value.
    pub given: Vec<(String, String)>,
}
