//! Records stack traces raw: stack IDs, addresses, build IDs and file offsets. Resolves nothing.
//!
//! Events come from `rawstack-bpf`, in the order in which the kernel wrote them; the side-band beside them says what
//! was mapped when. [`record()`] brings both together and writes an archive of `rawstack-format`.
#![forbid(unsafe_code)]

mod args;
mod assembler;
mod budget;
mod cgroup;
mod check;
mod code_ranges;
mod command;
mod copied_code;
mod copies;
mod doctor;
mod elf;
mod epoch;
mod error;
mod event;
mod event_spec;
mod helper;
mod history;
mod host;
mod hotplug;
mod jit;
mod kernel;
mod mapped_file;
mod module;
mod options;
mod output;
mod privilege;
mod proc_fs;
mod process;
mod program;
mod record;
mod runs;
mod seccomp;
mod session;
mod sieve;
mod summary;
mod tables;
mod target;
mod totals;
mod units;
mod wake;
mod world;

pub use args::Args;
pub use command::{become_command, exit_code};
pub use doctor::{Report, examine};
pub use error::{Error, Result};
pub use event_spec::{EventKind, EventSpec, Place};
pub use helper::become_helper;
pub use jit::{JitCounts, Refusal as JitRefusal};
pub use options::{Amount, Growth, Options, Rate, Targets, UserStacks};
pub use record::record;
pub use summary::Summary;
