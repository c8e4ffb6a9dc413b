//! Finds and reads the files of a process, inside the process's own root. Knows nothing of recordings.
//!
//! A recorded process may be hostile, and so may whoever shares its /tmp. So: the path is resolved below the
//! process's root by openat2 without following any link; what is opened must be a regular file of one name that
//! belongs to the very user the process runs as (an owner "root" proves nothing: a bind mount or a hard link can put
//! any file there); the process must be the one that was sampled, by its start; an old file is refused, since numbers
//! of processes come back. `/proc/PID` is opened once and the rest through it, so all is of one process.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2};
use rustix::io::Errno;

use super::request::{FileId, Piece, Refusal, Request, Source};
use crate::host::{asleep_ns, monotonic_ns, wall_ns};
use crate::mapped_file::reopen;
use crate::proc_fs::{ProcessFacts, Status};

/// Roots of processes that are held open, so that a file is reached when the process has just ended.
pub(crate) const MAX_HELD: usize = 256;
/// How far two clocks may tell the start of one process apart: it is told in hundredths of a second.
const START_SLACK_NS: u64 = 50_000_000;
/// How much older than its program a file may seem: file times are coarse.
const FILE_SLACK_NS: u64 = 1_000_000_000;

/// Reads JIT files of processes.
#[derive(Debug)]
pub(crate) struct Files {
    held: VecDeque<Held>,
    /// Distance of the boot-time clock to the monotonic one at the beginning: it grows while the machine sleeps.
    asleep_ns: u64,
}

/// A process that was looked at.
#[derive(Debug)]
struct Held {
    pid: u32,
    start_ns: u64,
    status: Status,
    root: OwnedFd,
}

impl Files {
    /// None read yet.
    pub(crate) fn new() -> Self {
        Self {
            held: VecDeque::new(),
            asleep_ns: asleep_ns(),
        }
    }

    /// Read the next piece of a file.
    pub(crate) fn read(&mut self, request: &Request) -> Result<Piece, Refusal> {
        let held = self.hold(request.pid, request.start_ns)?;
        let file = open(held, &request.source)?;
        let facts = fstat(&file).map_err(|_| Refusal::Unreadable)?;
        check(&facts, &held.status, request.program_ns.max(held.start_ns))?;
        read_on(&file, &facts, request)
    }

    /// The process has ended, and all of it is read.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.held.retain(|held| held.pid != pid);
    }

    /// The process with its root: as it is now, or as it was when it lived.
    fn hold(&mut self, pid: u32, start_ns: u64) -> Result<&Held, Refusal> {
        let is_same = |start: u64| self.is_same(start, start_ns);
        match look_at(pid) {
            Ok(now) if !is_same(now.start_ns) => return Err(Refusal::OtherProcess),
            Ok(now) => {
                self.held.retain(|held| held.pid != pid);
                if self.held.len() >= MAX_HELD {
                    self.held.pop_front();
                }
                self.held.push_back(now);
            }
            // Gone, or on its way: what was held of it still leads to its files.
            Err(refusal) => {
                let known = |held: &Held| held.pid == pid && is_same(held.start_ns);
                if !self.held.iter().any(known) {
                    return Err(refusal);
                }
            }
        }
        self.held
            .iter()
            .find(|held| held.pid == pid)
            .ok_or(Refusal::Gone)
    }

    /// Whether a process that began at `start_ns` is the one wanted, both by the monotonic clock.
    fn is_same(&self, start_ns: u64, wanted_ns: u64) -> bool {
        // Its start is told by the boot-time clock. What the machine slept since then makes it seem earlier.
        let slept = asleep_ns().saturating_sub(self.asleep_ns);
        let earliest = wanted_ns.saturating_sub(slept + START_SLACK_NS);
        wanted_ns == 0 || (earliest..=wanted_ns + START_SLACK_NS).contains(&start_ns)
    }
}

fn refusal_of(error: Errno) -> Refusal {
    match error {
        Errno::NOENT | Errno::NOTDIR => Refusal::Absent,
        Errno::LOOP | Errno::XDEV => Refusal::Link,
        Errno::NOSYS | Errno::INVAL => Refusal::NoOpenat2,
        Errno::SRCH => Refusal::Gone,
        // EPERM comes from a filter that does not know openat2 as well as from a lack of rights.
        Errno::ACCESS | Errno::PERM => Refusal::Denied,
        _ => Refusal::Unreadable,
    }
}

fn read_text(dir: &OwnedFd, name: &str) -> io::Result<Vec<u8>> {
    const MOST: u64 = 64 << 10;
    let file = openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = Vec::new();
    File::from(file).take(MOST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Open the root of a process, and learn who it is.
fn look_at(pid: u32) -> Result<Held, Refusal> {
    let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let process =
        openat(CWD, format!("/proc/{pid}"), path, Mode::empty()).map_err(|_| Refusal::Gone)?;
    let text = |name| read_text(&process, name).map_err(|_| Refusal::Gone);
    let facts = ProcessFacts::parse_stat(&text("stat")?).ok_or(Refusal::Gone)?;
    let status = Status::parse(&String::from_utf8_lossy(&text("status")?)).ok_or(Refusal::Gone)?;
    let root = openat(&process, "root", path, Mode::empty()).map_err(|error| match error {
        Errno::ACCESS | Errno::PERM => Refusal::Denied,
        _ => Refusal::Gone,
    })?;
    Ok(Held {
        pid,
        start_ns: facts.start_ns,
        status,
        root,
    })
}

fn open(held: &Held, source: &Source) -> Result<File, Refusal> {
    let path = match source {
        Source::PerfMap => format!("/tmp/perf-{}.map", held.status.namespace_pid).into_bytes(),
        Source::JitDump(path) => path.clone(),
    };
    let path = Path::new(OsStr::from_bytes(&path));
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let found = openat2(&held.root, path, flags, Mode::empty(), resolve).map_err(refusal_of)?;
    // Looked at before it is opened: opening alone may block, or do something, where it is no regular file.
    let facts = fstat(&found).map_err(|_| Refusal::Unreadable)?;
    if FileType::from_raw_mode(facts.st_mode).is_symlink() {
        return Err(Refusal::Link);
    }
    reopen(&found).ok_or(Refusal::NotRegular)
}

/// Whether the file is the process's own, and of this program.
#[allow(
    clippy::useless_conversion,
    reason = "the parts of a time have other types on other machines"
)]
fn check(facts: &Stat, status: &Status, since_ns: u64) -> Result<(), Refusal> {
    if facts.st_nlink != 1 {
        return Err(Refusal::NotRegular);
    }
    if facts.st_uid != status.user {
        return Err(Refusal::ForeignOwner);
    }
    let seconds = u64::try_from(facts.st_mtime).unwrap_or(0);
    let nanos = u64::try_from(facts.st_mtime_nsec).unwrap_or(0);
    let written_ns = seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
    let since_wall_ns = wall_ns().saturating_sub(monotonic_ns().saturating_sub(since_ns));
    if written_ns.saturating_add(FILE_SLACK_NS) < since_wall_ns {
        return Err(Refusal::Stale);
    }
    Ok(())
}

fn read_on(file: &File, facts: &Stat, request: &Request) -> Result<Piece, Refusal> {
    let time_ns = monotonic_ns();
    let id = FileId {
        device: facts.st_dev,
        inode: facts.st_ino,
    };
    let length = u64::try_from(facts.st_size).unwrap_or(0);
    let goes_on = request.file == Some(id) && request.position <= length && has_tail(file, request);
    let position = if goes_on { request.position } else { 0 };
    let left = usize::try_from(length - position).unwrap_or(usize::MAX);
    let mut bytes = vec![0; left.min(request.most)];
    let mut done = 0;
    while done < bytes.len() {
        let rest = bytes.get_mut(done..).unwrap_or_default();
        match file.read_at(rest, position + done as u64) {
            Ok(0) => break, // it shrank meanwhile: the next reading sees that
            Ok(more) => done += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(Refusal::Unreadable),
        }
    }
    bytes.truncate(done);
    Ok(Piece {
        file: id,
        time_ns,
        length,
        position,
        bytes,
    })
}

/// Whether the bytes before the position are those that were read.
fn has_tail(file: &File, request: &Request) -> bool {
    let mut found = vec![0; request.tail.len()];
    let from = request.position.checked_sub(found.len() as u64);
    from.is_some_and(|from| file.read_exact_at(&mut found, from).is_ok() && found == request.tail)
}
