//! Opens the file behind a mapping of another process: the very one, never what a name was made to lead to.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2, readlink};

use crate::elf::ElfFacts;
use crate::helper::FileRequest;
use crate::host::{monotonic_ns, wall_ns};
use crate::proc_fs::{self, MapsLine, ProcessFacts};

/// How far behind a file's times may be: they are taken from a clock that ticks a hundred times a second at least.
const COARSE_NS: u64 = 20_000_000;

/// Open it: the entry of `map_files`, or the file at its path if that is the same.
///
/// A process may be gone by now, another one may have its ID and something else at these addresses, or `map_files` may
/// need a right that we lack. So neither entry nor path proves anything: what is found there must have the build ID of
/// what is mapped, else be the file that was mapped then.
pub(crate) fn open(request: &FileRequest) -> Option<File> {
    if let Some(file) = entry_of(request) {
        return Some(file);
    }
    let deleted = request.path.strip_suffix(b" (deleted)");
    if deleted.is_some() && request.build_id.is_none() {
        // What has its inode now is another file.
        return None;
    }
    let path = deleted.unwrap_or(&request.path);
    [format!("/proc/{}/root", request.pid), "/".to_owned()]
        .iter()
        .find_map(|root| {
            let found = open_within(root, path)?;
            reopen(&found).filter(|file| is_mapped(file, request))
        })
}

/// What the process has mapped at these addresses, if that is what was mapped there then.
fn entry_of(request: &FileRequest) -> Option<File> {
    let range = &request.addresses;
    let entry = format!(
        "/proc/{}/map_files/{:x}-{:x}",
        request.pid, range.start, range.end
    );
    let path = readlink(&entry, Vec::new()).ok()?;
    let found = openat(CWD, &entry, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let file = reopen(&found)?;
    if is_mapped(&file, request) {
        return Some(file);
    }
    // Of file systems in layers the number of a file is another one than that of its mappings.
    let is_other = request.build_id.is_some() || !is_still_mapped(request);
    let meta = file.metadata().ok().filter(|_| !is_other)?;
    let is_same_path = path.as_bytes() == request.path;
    (was_there(request) || is_same_path && is_older(&meta, request.seen_ns)).then_some(file)
}

/// What `path` names for a process whose root directory `root` is. Not opened yet: it may be anything.
fn open_within(root: &str, path: &[u8]) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = openat(CWD, root, flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let path = path.strip_prefix(b"/")?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    openat2(root, OsStr::from_bytes(path), flags, Mode::empty(), resolve).ok()
}

/// Open for reading what has been found, if it is a regular file.
pub(crate) fn reopen(found: &OwnedFd) -> Option<File> {
    let stat = rustix::fs::fstat(found).ok()?;
    if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
        return None;
    }
    let name = format!("/proc/self/fd/{}", found.as_fd().as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    openat(CWD, name, flags, Mode::empty()).ok().map(File::from)
}

/// Whether a file is the one that is mapped: by build ID, else by device and inode.
///
/// The number of an inode comes back as soon as its file is gone: one program ends and is deleted, the next file made in
/// its place has the same number. So either the mapping is still there, and with it its inode; or the file was last
/// changed before the mapping was seen, when the number was its inode's.
fn is_mapped(file: &File, request: &FileRequest) -> bool {
    if let Some(id) = &request.build_id {
        let facts = ElfFacts::read(file);
        return facts.is_some_and(|facts| facts.build_id.is_some_and(|own| own.as_bytes() == id));
    }
    let Ok(meta) = file.metadata() else {
        return false;
    };
    number(&meta) == request.file
        && (is_older(&meta, request.seen_ns) || was_there(request) && is_still_mapped(request))
}

/// Whether the process with this ID is the one whose mapping was seen: it was there by then. Its start is told in
/// hundredths of a second, in which no ID comes back: all the others are given out first.
fn was_there(request: &FileRequest) -> bool {
    let stat = fs::read(format!("/proc/{}/stat", request.pid)).unwrap_or_default();
    let facts = ProcessFacts::parse_stat(&stat);
    facts.is_some_and(|facts| facts.start_ns <= request.seen_ns)
}

fn number(meta: &Metadata) -> (u32, u32, u64) {
    let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    (major, minor, meta.ino())
}

fn is_still_mapped(request: &FileRequest) -> bool {
    let maps = proc_fs::maps(request.pid).unwrap_or_default();
    let is_it = |line: &MapsLine| {
        let file = (line.device.0, line.device.1, line.inode);
        line.addresses.start == request.addresses.start && file == request.file
    };
    maps.lines.iter().any(is_it)
}

/// Whether the file was last changed, renamed or linked before `time_ns`, monotonic clock.
fn is_older(meta: &Metadata, time_ns: u64) -> bool {
    if time_ns == 0 {
        return false;
    }
    let passed = monotonic_ns().saturating_sub(time_ns);
    let time_wall = wall_ns().saturating_sub(passed);
    let seconds = u64::try_from(meta.ctime()).unwrap_or(u64::MAX);
    let nanoseconds = u64::try_from(meta.ctime_nsec()).unwrap_or(u64::MAX);
    let changed = seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds);
    changed.saturating_add(COARSE_NS) < time_wall
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process;

    use super::*;

    /// For a file that was mapped just now, by a process that is no more.
    fn request(path: &[u8], file: (u32, u32, u64)) -> FileRequest {
        FileRequest {
            pid: u32::MAX - 1,
            addresses: 0..0,
            path: path.to_vec(),
            file,
            build_id: None,
            seen_ns: monotonic_ns(),
        }
    }

    fn wait() {
        std::thread::sleep(std::time::Duration::from_nanos(2 * COARSE_NS));
    }

    /// Check that a file is found by its path, and not when another has taken its place or it is told as deleted.
    #[test]
    fn same_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "x").unwrap();
        let bytes = path.as_os_str().as_bytes();
        let file = number(&fs::metadata(&path).unwrap());
        // Just made, it may be another one that has the inode of what was mapped.
        assert!(open(&request(bytes, file)).is_none());
        wait();
        assert!(open(&request(bytes, file)).is_some());
        let deleted = [bytes, b" (deleted)"].concat();
        assert!(open(&request(&deleted, file)).is_none());
        let earlier = request(bytes, file);
        fs::write(&path, "written over").unwrap();
        assert!(open(&earlier).is_none());
        let _keep = File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "y").unwrap();
        wait();
        assert!(open(&request(bytes, file)).is_none());
    }

    /// Check that what a process has mapped is not taken for what another one with its ID had there before: of another
    /// number, of another build, or mapped before it was there.
    #[test]
    fn same_process() {
        let maps = proc_fs::maps(process::id()).unwrap();
        let own = std::env::current_exe().unwrap();
        let line = maps
            .lines
            .iter()
            .find(|line| line.path == own.as_os_str().as_bytes())
            .unwrap();
        let mapped = FileRequest {
            pid: process::id(),
            addresses: line.addresses.clone(),
            path: line.path.to_vec(),
            file: (line.device.0, line.device.1, line.inode),
            build_id: None,
            seen_ns: monotonic_ns(),
        };
        assert!(open(&mapped).is_some());
        let elsewhere = b"/nowhere".to_vec();
        let (major, minor, inode) = mapped.file;
        let before = FileRequest {
            seen_ns: 1,
            ..mapped.clone()
        };
        let other = FileRequest {
            file: (major, minor, inode + 1),
            path: elsewhere.clone(),
            ..mapped.clone()
        };
        let build = FileRequest {
            build_id: Some(vec![7; 20]),
            path: elsewhere,
            ..mapped
        };
        for request in [before, other, build] {
            assert!(open(&request).is_none(), "{request:?}");
        }
    }

    /// Check that a pipe is not opened, and that a link through `/proc` leads nowhere.
    #[test]
    fn pipes_and_magic_links() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(CWD, &pipe, Mode::RUSR).unwrap();
        wait();
        let file = number(&fs::metadata(&pipe).unwrap());
        assert!(open(&request(pipe.as_os_str().as_bytes(), file)).is_none());
        let link = folder.path().join("link");
        symlink("/proc/self/exe", &link).unwrap();
        wait();
        let file = number(&fs::metadata(&link).unwrap());
        assert!(open(&request(link.as_os_str().as_bytes(), file)).is_none());
    }

    /// Check that an absolute link is followed within the root that is given, not beyond it.
    #[test]
    fn within_a_root() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("inside"), "x").unwrap();
        symlink("/inside", folder.path().join("good")).unwrap();
        symlink("/etc/passwd", folder.path().join("bad")).unwrap();
        symlink("../../../../etc/passwd", folder.path().join("worse")).unwrap();
        let root = folder.path().to_str().unwrap();
        assert!(open_within(root, b"/good").is_some());
        assert!(open_within(root, b"/bad").is_none());
        assert!(open_within(root, b"/worse").is_none());
    }
}
