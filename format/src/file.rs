//! The file that a recording goes to: made safely, whole chunks only, synced often enough.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Longest time that written chunks may stay off the disk, as long as somebody calls
/// [`sync_if_due`](ArchiveFile::sync_if_due).
pub const SYNC_INTERVAL: Duration = Duration::from_secs(5);

/// A new archive's file. Each `write` writes all of its bytes or, where that fails, none.
#[derive(Debug)]
pub struct ArchiveFile {
    file: File,
    /// Length of what was written whole, in bytes.
    len: u64,
    /// When the oldest write that is not yet synced was done.
    dirty_since: Option<Instant>,
}

impl ArchiveFile {
    /// Create the file, readable by its owner alone.
    ///
    /// What exists is not touched: not a file, unless `force`, and never a symbolic link or anything that is no
    /// regular file. With `force` the old file is removed first, so whoever has it open keeps the old content.
    pub fn create(path: &Path, force: bool) -> Result<Self> {
        if force {
            remove_old(path)?;
        }
        // Open-exclusive makes the file or fails: it never follows a symbolic link, not even a dangling one.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        let file = file.map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => existing(path),
            _ => Error::Create {
                path: path.to_owned(),
                source,
            },
        })?;
        sync_directory(path).map_err(|source| Error::Create {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self::from_created(file))
    }

    /// Go on with an empty file that another process [created](Self::create).
    pub fn from_created(file: File) -> Self {
        Self {
            file,
            len: 0,
            dirty_since: None,
        }
    }

    /// Length of what was written whole, in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing was written yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bring what was written to the disk, when the oldest of it is [`SYNC_INTERVAL`] old at `now`. Says whether it did.
    pub fn sync_if_due(&mut self, now: Instant) -> Result<bool> {
        let due = self
            .dirty_since
            .is_some_and(|since| now.saturating_duration_since(since) >= SYNC_INTERVAL);
        if due {
            self.sync()?;
        }
        Ok(due)
    }

    /// Bring what was written to the disk.
    pub fn sync(&mut self) -> Result<()> {
        self.file.sync_data().map_err(Error::Sync)?;
        self.dirty_since = None;
        Ok(())
    }
}

impl AsFd for ArchiveFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl io::Write for ArchiveFile {
    /// Write all of `bytes` or, where that fails, none: the file ends where it ended before.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Err(error) = self.file.write_all_at(bytes, self.len) {
            // Where this fails, too, what is behind `len` will be overwritten, or is a cut chunk to the reader.
            self.file.set_len(self.len).ok();
            return Err(error);
        }
        self.len += bytes.len() as u64;
        self.dirty_since.get_or_insert_with(Instant::now);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Remove the regular file at `path`, where there is one.
fn remove_old(path: &Path) -> Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(meta) if meta.is_file() => fs::remove_file(path),
        Ok(_) => {
            return Err(Error::NotRegular {
                path: path.to_owned(),
            });
        }
        Err(source) => Err(source),
    };
    match removed {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error::Create {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

/// What to say of a path that exists.
fn existing(path: &Path) -> Error {
    match path.symlink_metadata() {
        Ok(meta) if !meta.is_file() => Error::NotRegular {
            path: path.to_owned(),
        },
        _ => Error::Exists {
            path: path.to_owned(),
        },
    }
}

/// Bring the name of a new file to the disk.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent: PathBuf = parent.unwrap_or(Path::new(".")).to_owned();
    File::open(parent)?.sync_all()
}
