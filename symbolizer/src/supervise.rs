//! Runs this program once more as a worker, and anew without a file that ended it.
//!
//! What a hostile or vanishing debug file does to the process that reads it must not cost the names of all others.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::{env, io};

use rawstack_symbolizer::text::clean;
use rawstack_symbolizer::watch::{self, Account};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::EXIT_USAGE;
use crate::args::WorkerArgs;

/// Files that are left out at most; whoever has more of that sort has another problem.
const MOST_LEFT_OUT: usize = 16;
/// What a shell adds to the number of a signal that ended a process.
const SIGNAL_CODE: u8 = 128;
/// Signals by which a process ends because of what it read. Others come from outside, and are obeyed.
const DEADLY: [Signal; 7] = [
    Signal::BUS,
    Signal::SEGV,
    Signal::ABORT,
    Signal::ILL,
    Signal::FPE,
    Signal::SYS,
    Signal::KILL,
];

/// Be a worker, as the supervisor said.
pub(crate) fn work(args: &WorkerArgs) -> io::Result<()> {
    let Some(fd) = args.worker else {
        return Ok(());
    };
    // Who ends the supervisor means the whole.
    set_parent_process_death_signal(Some(Signal::TERM))?;
    let marks = File::options()
        .append(true)
        .open(format!("/proc/self/fd/{fd}"))?;
    watch::begin(marks, args.left_out.iter().cloned());
    Ok(())
}

/// Let workers do what this process was asked for; `None` where there cannot be any, and it has to do so itself.
pub(crate) fn supervise() -> Option<ExitCode> {
    let mut left_out: Vec<PathBuf> = Vec::new();
    let mut is_alone = false;
    loop {
        let (status, account) = run_worker(&left_out, is_alone).ok()?;
        let Some(signal) = status.signal() else {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Some(ExitCode::from(code.unwrap_or(1)));
        };
        if !DEADLY.iter().any(|deadly| deadly.as_raw() == signal) {
            let code = SIGNAL_CODE.saturating_add(u8::try_from(signal).unwrap_or(0));
            return Some(ExitCode::from(code));
        }
        let suspect = account
            .suspect()
            .filter(|path| !left_out.iter().any(|out| out == path));
        let how = how_it_ended(signal);
        let Some(suspect) = suspect else {
            eprintln!("rawstack: failed: the process that did the work {how}");
            return Some(ExitCode::from(EXIT_USAGE));
        };
        let name = shown(suspect);
        if account.no_way_back || left_out.len() >= MOST_LEFT_OUT {
            eprintln!(
                "rawstack: failed to go on: the process that read {name} {how}; take that file away"
            );
            return Some(ExitCode::from(EXIT_USAGE));
        }
        if account.is_unsure() && !is_alone {
            is_alone = true;
            continue;
        }
        eprintln!("rawstack: {name} is left out: the process that read it {how}");
        left_out.push(suspect.to_owned());
        is_alone = false;
    }
}

fn shown(path: &Path) -> String {
    clean(&path.to_string_lossy()).into_owned()
}

fn how_it_ended(signal: i32) -> String {
    let why = match Signal::from_named_raw(signal) {
        Some(Signal::BUS) => "SIGBUS: the file was cut short or cannot be read",
        Some(Signal::ABORT) => "SIGABRT: there was not memory enough",
        Some(Signal::KILL) => "SIGKILL: there may not have been memory enough",
        _ => return format!("ended by signal {signal}"),
    };
    format!("ended by {why}")
}

/// One worker from start to end. With `is_alone` it has one thread, and so reads one file at a time.
fn run_worker(left_out: &[PathBuf], is_alone: bool) -> io::Result<(ExitStatus, Account)> {
    // Inherited: it is the worker's way to tell.
    let marks: OwnedFd = memfd_create("rawstack-marks", MemfdFlags::empty())?;
    let mut arguments = env::args_os();
    let name = arguments
        .next()
        .unwrap_or_else(|| OsString::from("rawstack"));
    let own = env::current_exe().ok().filter(|path| path.is_file());
    // Where it was replaced while it runs, its file has no name any more.
    let mut command = Command::new(own.unwrap_or_else(|| "/proc/self/exe".into()));
    command
        .arg0(name)
        .arg(format!("--worker={}", marks.as_raw_fd()));
    for path in left_out {
        command.arg("--left-out").arg(path);
    }
    if is_alone {
        command.env("RAYON_NUM_THREADS", "1");
    }
    let status = command.args(arguments).status()?;
    let mut bytes = Vec::new();
    // Written through another descriptor, so this one still stands at its start.
    File::from(marks).read_to_end(&mut bytes)?;
    Ok((status, Account::of(&bytes)))
}
