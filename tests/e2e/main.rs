//! End-to-end tests: `rawstack-record` records for real, `rawstack` resolves, both only through their command lines.
//!
//! All of them load BPF programs and need root. One records at a time, since they load the machine; what they measure is
//! counts, never time. Each fails where its condition could not be made.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a helper of a test fails with the test"
)]

mod accounting;
mod churn;
mod command_line;
mod copies;
mod diff;
mod disk;
mod doctor;
mod events;
mod exports;
mod halves;
mod hostile;
mod hotplug;
mod jit;
mod killed;
mod mapped_code;
mod memory;
mod merge;
mod names;
mod off_cpu;
mod offline;
mod output;
mod perf;
mod privilege;
mod processes;
mod recording;
mod runs;
mod secrets;
mod targets;
mod unwound;
