//! Opens the file behind a mapping of another process: the very one, never what a name was made to lead to.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

use crate::elf::ElfFacts;
use crate::helper::FileRequest;

/// Open it: the entry of `map_files`, or the file at its path if that is the same.
///
/// A process may be gone by now, or `map_files` may need a right that we lack. A path alone proves nothing: what is
/// found there must have the build ID, else device and inode, of what is mapped.
pub(crate) fn open(request: &FileRequest) -> Option<File> {
    let range = &request.addresses;
    let entry = format!(
        "/proc/{}/map_files/{:x}-{:x}",
        request.pid, range.start, range.end
    );
    let entry = openat(CWD, entry, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    if let Some(file) = entry.ok().and_then(|entry| reopen(&entry)) {
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

fn is_mapped(file: &File, request: &FileRequest) -> bool {
    if let Some(id) = &request.build_id {
        let facts = ElfFacts::read(file);
        return facts.is_some_and(|facts| facts.build_id.is_some_and(|own| own.as_bytes() == id));
    }
    file.metadata().is_ok_and(|meta| {
        let device = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
        (device.0, device.1, meta.ino()) == request.file
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn request(path: &[u8], file: (u32, u32, u64)) -> FileRequest {
        FileRequest {
            pid: std::process::id(),
            addresses: 0..0,
            path: path.to_vec(),
            file,
            build_id: None,
        }
    }

    fn number(meta: &fs::Metadata) -> (u32, u32, u64) {
        (
            rustix::fs::major(meta.dev()),
            rustix::fs::minor(meta.dev()),
            meta.ino(),
        )
    }

    /// Check that a file is found by its path, and not when another has taken its place or it is told as deleted.
    #[test]
    fn same_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "x").unwrap();
        let bytes = path.as_os_str().as_bytes();
        let file = number(&fs::metadata(&path).unwrap());
        assert!(open(&request(bytes, file)).is_some());
        let deleted = [bytes, b" (deleted)"].concat();
        assert!(open(&request(&deleted, file)).is_none());
        let _keep = File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "y").unwrap();
        assert!(open(&request(bytes, file)).is_none());
    }

    /// Check that a pipe is not opened, and that a link through `/proc` leads nowhere.
    #[test]
    fn pipes_and_magic_links() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(CWD, &pipe, Mode::RUSR).unwrap();
        let file = number(&fs::metadata(&pipe).unwrap());
        assert!(open(&request(pipe.as_os_str().as_bytes(), file)).is_none());
        let link = folder.path().join("link");
        symlink("/proc/self/exe", &link).unwrap();
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
