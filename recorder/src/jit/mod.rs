//! What runtimes write about the code they make: perf maps and jitdumps of sampled processes, copied into the archive.
//!
//! [`Files`] finds and reads them, a piece at a time, and trusts neither the process nor its files. They run in the
//! helper process; [`Worker`](worker::Worker) asks it from a thread of its own, so that nothing else waits. [`Tracker`] knows which process has
//! been read up to where, and when to look again. Nothing here knows what a map says, but for the machine code in
//! jitdumps, which [`CodeEraser`](eraser::CodeEraser) leaves out.

mod counts;
mod eraser;
mod files;
mod request;
mod track;
mod tracker;
mod worker;

pub use counts::JitCounts;
pub(crate) use files::{Files, MAX_HELD};
pub use request::Refusal;
pub(crate) use request::{Piece, Request, Source};
pub(crate) use tracker::Tracker;
pub(crate) use worker::Reader;
