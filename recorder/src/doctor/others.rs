//! What can be learned of other processes.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::process::geteuid;

use super::{Check, Verdict};
use crate::proc_fs;

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check::wanted("mappings", mappings()),
        Check::wanted("mapped files", mapped_files()),
        Check::wanted("JIT maps", roots()),
    ]
}

/// A process of another user, if there is one that runs code of files.
fn stranger() -> Option<u32> {
    let own = geteuid().as_raw();
    let is_strange = |pid: &u32| {
        let folder = fs::metadata(format!("/proc/{pid}"));
        folder.is_ok_and(|meta| meta.uid() != own)
    };
    proc_fs::pids().into_iter().find(is_strange)
}

fn mappings() -> Verdict {
    let Some(pid) = stranger() else {
        return Verdict::Works("all processes are this user's".to_owned());
    };
    let why = format!("process {pid} of another user is closed; needs CAP_SYS_PTRACE");
    let is_readable = proc_fs::maps(pid).is_ok();
    Verdict::when(is_readable, "those of other users, too", why)
}

/// Files behind mappings, found even when they were deleted or replaced.
fn mapped_files() -> Verdict {
    let own = proc_fs::maps(std::process::id()).unwrap_or_default();
    let file = own.lines.iter().find(|line| line.inode != 0);
    let open = file.map(|line| {
        let range = &line.addresses;
        File::open(format!(
            "/proc/self/map_files/{:x}-{:x}",
            range.start, range.end
        ))
    });
    let why = "files are found by their paths only, not when deleted or replaced; needs CAP_CHECKPOINT_RESTORE";
    let detail = "found even when deleted or replaced";
    Verdict::when(matches!(open, Some(Ok(_))), detail, why)
}

/// The root directories of others, in which their maps are found without following any link out of them.
fn roots() -> Verdict {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let own = openat(CWD, "/", flags, Mode::empty());
    if !own.is_ok_and(|root| openat2(root, "proc", flags, Mode::empty(), resolve).is_ok()) {
        let why = "openat2 is refused here, and without it no path of a process is safe to open";
        return Verdict::Missing(why.to_owned());
    }
    let Some(pid) = stranger() else {
        return Verdict::Works("all processes are this user's".to_owned());
    };
    let root = openat(CWD, format!("/proc/{pid}/root"), flags, Mode::empty());
    let why = format!("the root of process {pid} of another user is closed; needs CAP_SYS_PTRACE");
    Verdict::when(root.is_ok(), "those of other users, too", why)
}
