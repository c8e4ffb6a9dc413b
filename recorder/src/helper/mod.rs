//! The helper: processes of their own that read what belongs to others, so that the recorder needs no right to.
//!
//! ```text
//! recorder ───────── requests, answers ─────────► worker       reads /proc and files of others; may be killed
//!     │                                              ▲
//!     └── orders, descriptors ──► supervisor ── starts, kills
//! ```
//!
//! Both are this program again, executed anew, with the few capabilities of their task. The worker touches what a
//! recorded process may have prepared: a file system that never answers, a lock held for ever, an ELF file of a
//! terabyte. It is killed when an answer takes too long, and the supervisor, which touches none of that, starts
//! another. Requests are data, checked by who gets them; the recorder believes its helper, not the other way round.

mod account;
mod archives;
mod client;
mod connection;
mod cpus;
mod door;
mod jit;
mod patience;
mod supervisor;
mod wire;
mod worker;

use std::env;
use std::ffi::OsStr;
use std::process;

use rustix::thread::set_name;

pub(crate) use archives::ArchiveDoor;
pub(crate) use client::Helper;
pub(crate) use cpus::CpuDoor;
pub(crate) use jit::JitReader;
pub(crate) use wire::{FileFacts, FileRequest, ProcessAnswer};

/// First argument by which this program knows that it is to supervise.
const SUPERVISE: &str = "--rawstack-helper";
/// First argument by which this program knows that it is to read.
const WORK: &str = "--rawstack-reader";

/// If this process was started to help: do that to the end. Returns only where it was not.
pub fn become_helper() {
    let role = env::args_os().nth(1);
    if role.as_deref() == Some(OsStr::new(SUPERVISE)) {
        _ = set_name(c"rawstack-helper"); // only for people to see
        process::exit(i32::from(supervisor::run().is_err()));
    }
    if role.as_deref() == Some(OsStr::new(WORK)) {
        _ = set_name(c"rawstack-reader");
        process::exit(i32::from(worker::run().is_err()));
    }
}
