//! A file that takes its place only once it is whole: until then what stood there stays.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};

/// Names that are tried; others of this process ID are left over from a process that was killed.
const TRIES: u32 = 1000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A place that a file is written for. Without [`keep`](Self::keep) nothing of it remains.
#[derive(Debug)]
pub struct Staged {
    target: PathBuf,
    file: File,
    /// Its name until it is kept, where the file system has no files without one.
    beside: Option<PathBuf>,
    /// Whether only its owner may read it, whatever stood there.
    is_private: bool,
}

/// Permissions of a file that anybody may read, as far as the user's mask lets them, ...
const SHARED: u32 = 0o666;
/// ... and of one that is its owner's.
const PRIVATE: u32 = 0o600;

impl Staged {
    /// Begin a file that shall be at `target`, on the same file system and with the permissions of what stands there.
    pub fn create(target: &Path) -> io::Result<Self> {
        // What a symbolic link leads to is replaced, not the link.
        let target = target.canonicalize().unwrap_or_else(|_| target.to_owned());
        Self::begin(target, SHARED)
    }

    /// Begin a file that shall be at `target` and that only its owner may read.
    pub fn create_private(target: &Path) -> io::Result<Self> {
        Self::begin(target.to_owned(), PRIVATE)
    }

    fn begin(target: PathBuf, mode: u32) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match open(folder(&target), flags, Mode::from_raw_mode(mode)) {
            Ok(file) => Ok(Self {
                target,
                file: file.into(),
                beside: None,
                is_private: mode == PRIVATE,
            }),
            Err(_) => Self::named(target, mode),
        }
    }

    /// As [`begin`](Self::begin), with a name from the start.
    fn named(target: PathBuf, mode: u32) -> io::Result<Self> {
        let (beside, file) = in_free_place(&target, |path| {
            let mut options = OpenOptions::new();
            let options = options.read(true).write(true).create_new(true);
            options.mode(mode).open(path)
        })?;
        Ok(Self {
            target,
            file,
            beside: Some(beside),
            is_private: mode == PRIVATE,
        })
    }

    /// Where it shall be.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Put the file into its place.
    pub fn keep(mut self) -> io::Result<()> {
        let beside = match self.beside.take() {
            Some(beside) => beside,
            None => in_free_place(&self.target, |path| self.link(path))?.0,
        };
        let take_place = || {
            // By name: some file systems forget what was said of a file without one.
            if !self.is_private
                && let Ok(held) = self.target.metadata()
            {
                fs::set_permissions(&beside, held.permissions())?;
            }
            fs::rename(&beside, &self.target)
        };
        take_place().inspect_err(|_| _ = fs::remove_file(&beside))
    }

    /// Put the file into its place, where nothing stands there: not even a symbolic link.
    pub fn keep_where_free(self) -> io::Result<()> {
        match &self.beside {
            // The other name goes with `self`.
            Some(beside) => fs::hard_link(beside, &self.target),
            None => self.link(&self.target),
        }
    }

    /// Give the file, which has no name, one that is not taken.
    fn link(&self, path: &Path) -> io::Result<()> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        linkat(CWD, &own, CWD, path, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from)
    }

    /// As [`keep`](Self::keep), but where the very same bytes stand in the place already, leave these untouched.
    pub fn keep_if_new(self) -> io::Result<()> {
        match self.is_there() {
            Ok(true) => Ok(()),
            _ => self.keep(),
        }
    }

    fn is_there(&self) -> io::Result<bool> {
        let held = File::open(&self.target)?;
        if held.metadata()?.len() != self.file.metadata()?.len() {
            return Ok(false);
        }
        io::Seek::rewind(&mut &self.file)?;
        let mut files = [&held, &self.file].map(|file| BufReader::with_capacity(1 << 16, file));
        let mut parts = [[0; 4096], [0; 4096]];
        loop {
            let mut lengths = [0; 2];
            for ((file, part), length) in files.iter_mut().zip(&mut parts).zip(&mut lengths) {
                *length = file.by_ref().take(part.len() as u64).read(part)?;
            }
            if lengths[0] != lengths[1] || parts[0][..lengths[0]] != parts[1][..lengths[1]] {
                return Ok(false);
            }
            if lengths == [0, 0] {
                return Ok(true);
            }
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            // What cannot be removed is told by nobody: an error is being told already.
            _ = fs::remove_file(beside);
        }
    }
}

fn folder(target: &Path) -> &Path {
    let parent = target.parent().filter(|path| !path.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Do `make` with a name beside `target` that is not taken. It begins with a dot: readers of folders skip such files.
fn in_free_place<T>(
    target: &Path,
    make: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(PathBuf, T)> {
    for _ in 0..TRIES {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = folder(target).join(format!(".rawstack-{}-{number}.part", process::id()));
        match make(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map(|made| (path, made)),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn write(staged: &Staged, text: &str) {
        staged.file().write_all(text.as_bytes()).unwrap();
    }

    fn names(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    /// Check that what stood in the place stays until the new file is kept, and that nothing else is left, with a file
    /// that has a name from the start and with one that has none.
    #[test]
    fn kept_or_gone() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("out");
        fs::write(&target, "old").unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
        let link = folder.path().join("link");
        symlink("out", &link).unwrap();
        for (number, create) in [Staged::create, |path: &Path| {
            Staged::named(path.to_owned(), SHARED)
        }]
        .into_iter()
        .enumerate()
        {
            let before = fs::read(&target).unwrap();
            let staged = create(&target).unwrap();
            write(&staged, "lost");
            drop(staged);
            assert_eq!(fs::read(&target).unwrap(), before);
            let staged = create(&target).unwrap();
            write(&staged, &format!("new {number}"));
            assert_eq!(fs::read(&target).unwrap(), before);
            staged.keep().unwrap();
            assert_eq!(
                fs::read_to_string(&target).unwrap(),
                format!("new {number}")
            );
            assert_eq!(names(folder.path()), 2);
        }
        let staged = Staged::create(&link).unwrap();
        write(&staged, "through the link");
        staged.keep().unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "through the link");
        assert!(link.is_symlink());
        assert_eq!(target.metadata().unwrap().mode() & 0o777, 0o640);
    }

    /// Check that a private file is its owner's alone, whatever stood there, and that it takes a free place only where it
    /// is asked to, with a file that has a name from the start and with one that has none.
    #[test]
    fn private_and_free() {
        for create in [
            |path: &Path| Staged::create_private(path),
            |path: &Path| Staged::named(path.to_owned(), PRIVATE),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let target = folder.path().join("out");
            let staged = create(&target).unwrap();
            write(&staged, "first");
            staged.keep_where_free().unwrap();
            let refused = create(&target).unwrap().keep_where_free().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
            assert_eq!(fs::read_to_string(&target).unwrap(), "first");
            fs::set_permissions(&target, fs::Permissions::from_mode(0o644)).unwrap();
            create(&target).unwrap().keep().unwrap();
            let meta = target.metadata().unwrap();
            assert_eq!((meta.len(), meta.mode() & 0o777), (0, 0o600));
            let link = folder.path().join("link");
            symlink("nowhere", &link).unwrap();
            let refused = create(&link).unwrap().keep_where_free().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
            assert_eq!(names(folder.path()), 2);
        }
    }

    /// Check that a file with the same bytes stays the file that it was, and that one byte makes it another.
    #[test]
    fn same_bytes_stay() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("out");
        let text = "x".repeat(70_000);
        let keep = |text: &str| {
            let staged = Staged::create(&target).unwrap();
            write(&staged, text);
            staged.keep_if_new().unwrap();
            assert_eq!(fs::read_to_string(&target).unwrap(), text);
            target.metadata().unwrap().ino()
        };
        let first = keep(&text);
        assert_eq!(keep(&text), first);
        let other = keep(&format!("{}y", &text[1..]));
        assert_ne!(other, first);
        assert_ne!(keep("short"), other);
    }
}
