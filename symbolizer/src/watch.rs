//! Marks that say which files are being read, for whoever goes on when one of them ends this process.
//!
//! A mapped file that somebody cuts short ends its reader with SIGBUS, memory that is not there ends it with SIGABRT,
//! and no process can catch that in itself. So a worker appends marks to a file that it shares with its supervisor, and
//! is started anew without the file that was being read. Knows no verbs and starts nothing itself.

use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

static WATCHED: OnceLock<Watched> = OnceLock::new();

thread_local! {
    /// The task of this thread; 0: none.
    static TASK: Cell<u64> = const { Cell::new(0) };
}

/// A worker's end.
struct Watched {
    marks: Mutex<File>,
    left_out: HashSet<PathBuf>,
    tasks: AtomicU64,
}

/// One mark: a byte for its kind, the task as 8 bytes, the length of a path as 4 bytes, the path; little-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mark {
    Begun(u64),
    Opened(u64, PathBuf),
    Ended(u64),
    /// Something was read or written that cannot be read or written again.
    NoWayBack,
}

impl Mark {
    fn to_bytes(&self) -> Vec<u8> {
        let (kind, task, path): (u8, u64, &[u8]) = match self {
            Self::Begun(task) => (1, *task, &[]),
            Self::Opened(task, path) => (2, *task, path.as_os_str().as_bytes()),
            Self::Ended(task) => (3, *task, &[]),
            Self::NoWayBack => (4, 0, &[]),
        };
        let length = u32::try_from(path.len()).unwrap_or(u32::MAX);
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&task.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(path);
        bytes
    }

    /// The mark at the start of `bytes`, and what stands behind it; nothing where it was not written to its end.
    fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (kind, rest) = bytes.split_first()?;
        let (task, rest) = rest.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (path, rest) = rest.split_at_checked(length)?;
        let task = u64::from_le_bytes(*task);
        let mark = match kind {
            1 => Self::Begun(task),
            2 => Self::Opened(task, OsString::from_vec(path.to_vec()).into()),
            3 => Self::Ended(task),
            4 => Self::NoWayBack,
            _ => return None,
        };
        Some((mark, rest))
    }
}

/// From now on write marks to `marks`, and refuse to open the files `left_out`. Once in a process, at its start.
pub fn begin(marks: File, left_out: impl IntoIterator<Item = PathBuf>) {
    let watched = Watched {
        marks: Mutex::new(marks),
        left_out: left_out.into_iter().collect(),
        tasks: AtomicU64::new(0),
    };
    // A second one would have no supervisor.
    _ = WATCHED.set(watched);
}

fn note(watched: &Watched, mark: &Mark) {
    let mut marks = watched.marks.lock().unwrap_or_else(PoisonError::into_inner);
    // Without marks this process works as well; only its supervisor knows less.
    _ = marks.write_all(&mark.to_bytes());
}

/// Do `work`, which reads `files`, the one to be left out first at the front, and what it opens itself.
pub fn reading<'f, T>(
    files: impl DoubleEndedIterator<Item = &'f Path>,
    work: impl FnOnce() -> T,
) -> T {
    let Some(watched) = WATCHED.get() else {
        return work();
    };
    let task = watched.tasks.fetch_add(1, Ordering::Relaxed) + 1;
    note(watched, &Mark::Begun(task));
    for file in files.rev() {
        note(watched, &Mark::Opened(task, file.to_owned()));
    }
    let outer = TASK.replace(task);
    let done = work();
    TASK.set(outer);
    note(watched, &Mark::Ended(task));
    done
}

/// The file at `path` is about to be read. An error where that ended this process before.
pub(crate) fn open(path: &Path) -> io::Result<()> {
    let Some(watched) = WATCHED.get() else {
        return Ok(());
    };
    if watched.left_out.contains(path) {
        return Err(io::Error::other(
            "left out: it ended the process that read it",
        ));
    }
    note(watched, &Mark::Opened(TASK.get(), path.to_owned()));
    Ok(())
}

/// What comes now cannot be done again: standard input is read, or standard output written.
pub fn no_way_back() {
    if let Some(watched) = WATCHED.get() {
        note(watched, &Mark::NoWayBack);
    }
}

/// What the marks of a process say that has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Tasks that were not done, in the order in which they began, with the files that they had opened.
    running: Vec<(u64, Vec<PathBuf>)>,
    /// The last file that was opened outside of all tasks.
    loose: Option<PathBuf>,
    /// Whether the process had read or written what cannot be read or written again.
    pub no_way_back: bool,
}

impl Account {
    /// Read all marks.
    pub fn of(mut marks: &[u8]) -> Self {
        let mut account = Self::default();
        while let Some((mark, rest)) = Mark::split(marks) {
            account.take_in(mark);
            marks = rest;
        }
        account
    }

    fn take_in(&mut self, mark: Mark) {
        match mark {
            Mark::Begun(task) => self.running.push((task, Vec::new())),
            Mark::Ended(task) => self.running.retain(|(running, _)| *running != task),
            Mark::NoWayBack => self.no_way_back = true,
            Mark::Opened(task, path) => {
                let found = self
                    .running
                    .iter_mut()
                    .find(|(running, _)| *running == task);
                match found {
                    Some((_, files)) => files.push(path),
                    None => self.loose = Some(path),
                }
            }
        }
    }

    /// Whether several tasks went on at once, so that one thread alone would have to show which it was.
    pub fn is_unsure(&self) -> bool {
        self.running.len() > 1
    }

    /// The file that was most likely being read: the last one that the task begun last had opened.
    pub fn suspect(&self) -> Option<&Path> {
        let of_task = self.running.last().and_then(|(_, files)| files.last());
        of_task.or(self.loose.as_ref()).map(PathBuf::as_path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(marks: &[Mark]) -> Account {
        let bytes: Vec<u8> = marks.iter().flat_map(Mark::to_bytes).collect();
        Account::of(&bytes)
    }

    fn opened(task: u64, path: &str) -> Mark {
        Mark::Opened(task, path.into())
    }

    /// Check that the last file of the task that goes on is suspected, and one outside of tasks when none does.
    #[test]
    fn suspects() {
        let marks = [
            opened(0, "/index"),
            Mark::Begun(1),
            opened(1, "/a"),
            Mark::Ended(1),
        ];
        assert_eq!(account(&marks).suspect(), Some(Path::new("/index")));
        let marks = [
            &marks[..],
            &[Mark::Begun(2), opened(2, "/b"), opened(2, "/c")],
        ]
        .concat();
        let found = account(&marks);
        assert_eq!(found.suspect(), Some(Path::new("/c")));
        assert!(!found.is_unsure() && !found.no_way_back);
        let marks = [&marks[..], &[Mark::Begun(3), Mark::NoWayBack]].concat();
        assert!(account(&marks).is_unsure() && account(&marks).no_way_back);
        assert_eq!(account(&[]).suspect(), None);
    }

    /// Check that marks cut at any byte, and bytes that are none, say no more than what stands before them.
    #[test]
    fn cut_marks() {
        let marks = [Mark::Begun(1), opened(1, "/a"), Mark::Ended(1)];
        let bytes: Vec<u8> = marks.iter().flat_map(Mark::to_bytes).collect();
        for end in 0..bytes.len() {
            let found = Account::of(&bytes[..end]);
            assert!(found.running.len() <= 1);
        }
        assert_eq!(Account::of(&[9; 40]), Account::default());
        let huge = [&[2u8; 9][..], &[0xff; 4]].concat();
        assert_eq!(Account::of(&huge), Account::default());
    }
}
