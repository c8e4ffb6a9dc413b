//! Stack capture in the Linux kernel, and its safe wrapper: the only crate that knows BPF.
//!
//! The kernel's half is `src/c/capture.bpf.h`, which any BPF program can include: `capture_reserve()` gives an ID at
//! once. This half reads what follows: [`Stream`] hands out events, [`StackTable`] answers what became of an ID.
//! [`Programs`] are the recorder's own programs on top, [`SideBand`] is what the kernel tells of processes meanwhile.

mod btf;
mod clock;
mod copy;
mod counter;
mod error;
mod event;
mod heap;
mod join;
mod kernel;
mod mapped_array;
mod off_cpu;
mod orc;
mod perf_event;
mod programs;
mod side_band;
mod skel;
mod source;
mod stream;
mod table;
mod targets;

pub use copy::{Copy, CopySpan, CopyState};
pub use counter::{PerfEvent, is_available};
pub use error::{Error, Result};
pub use event::{Addresses, Event, Loss, LossReason, State, Tick, UserHalf};
pub use heap::{give_back_heap, share_heap};
pub use join::{Items, Join};
pub use kernel::{
    can_copy, can_defer, counts_locked_memory, hooking_needs_bpf, lockdown, tracepoints,
};
pub use off_cpu::OffCpu;
pub use orc::OrcTables;
pub use perf_event::{online_cpus, parse_cpu_list};
pub use programs::{Config, MAX_COPY_BYTES, Mode, Programs, Room};
pub use side_band::{Change, NewMapping, SideBand, SideBandEvent};
pub use source::{Counter, MAX_EVENTS, Origin, Probe, Rate, Source};
pub use stream::{Counts, Debt, Stream};
pub use table::{Lookup, LostReason, Stack, StackTable};
pub use targets::{Cgroup, Targets};
