//! Question and answer about one file of one process: plain data, so that either can go through a pipe.

use serde::{Deserialize, Serialize};

/// Which file of the process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Source {
    /// `/tmp/perf-PID.map`, with the process ID of its own namespace.
    PerfMap,
    /// The file that the process has mapped as `jit-PID.dump`: its path as the process sees it.
    JitDump(Vec<u8>),
}

impl Source {
    /// `kind` of [`JitMap`](rawstack_format::record::JitMap).
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Self::PerfMap => 0,
            Self::JitDump(_) => 1,
        }
    }

    /// Whether a mapped file of this path announces a jitdump: `…/jit-1234.dump`.
    pub(crate) fn is_jit_dump(path: &[u8]) -> bool {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        name.strip_prefix(b"jit-")
            .and_then(|rest| rest.strip_suffix(b".dump"))
            .is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
    }
}

/// What tells a file from another at the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct FileId {
    /// Device.
    pub(crate) device: u64,
    /// Inode.
    pub(crate) inode: u64,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// Process.
    pub(crate) pid: u32,
    /// Its start, monotonic clock; 0 where not known. Another process of that number gives nothing.
    pub(crate) start_ns: u64,
    /// When its program began, monotonic clock; 0 where not known. An older file is somebody else's.
    pub(crate) program_ns: u64,
    /// Which file.
    pub(crate) source: Source,
    /// The file that `position` counts in; none when nothing of it has been read.
    pub(crate) file: Option<FileId>,
    /// Where to read on.
    pub(crate) position: u64,
    /// The bytes before `position` as they were: where they differ, the file was written anew.
    pub(crate) tail: Vec<u8>,
    /// Most bytes to read.
    pub(crate) most: usize,
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    /// The file.
    pub(crate) file: FileId,
    /// When, monotonic clock: what the file held then is in it.
    pub(crate) time_ns: u64,
    /// Length of the file then.
    pub(crate) length: u64,
    /// Position of `bytes`: as asked, or 0 where the file is another one or was written anew.
    pub(crate) position: u64,
    /// Content. Empty where nothing is new.
    pub(crate) bytes: Vec<u8>,
}

/// Why nothing was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// There is no such file (yet).
    Absent,
    /// The process ended before its root could be opened.
    Gone,
    /// The process of that number is another one by now.
    OtherProcess,
    /// The path leads through a symbolic link, out of the process's root, or is one.
    Link,
    /// It is no regular file, or one with several names.
    NotRegular,
    /// It belongs to another user than the process.
    ForeignOwner,
    /// It was last written before the program began: an earlier process of that number left it.
    Stale,
    /// The process may not be looked at.
    Denied,
    /// The kernel has no openat2 (before 5.6, or a filter): without it no path of a process is safe to open.
    NoOpenat2,
    /// Reading failed.
    Unreadable,
    /// It did not answer in time.
    Slow,
}

impl Refusal {
    /// For people, behind "because".
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Absent => "there is none",
            Self::Gone => "it ended before it could be looked at",
            Self::OtherProcess => "its number belongs to another process by now",
            Self::Link => "the path leads through a symbolic link",
            Self::NotRegular => "it is no regular file of one name",
            Self::ForeignOwner => "it belongs to another user",
            Self::Stale => "it is older than the program",
            Self::Denied => "the process may not be looked at",
            Self::NoOpenat2 => "the kernel lacks openat2",
            Self::Unreadable => "it could not be read",
            Self::Slow => "it did not answer in time",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that jitdumps are told by their names, and nothing else is taken for one.
    #[test]
    fn names_of_dumps() {
        for path in ["/tmp/jit-12.dump", "jit-1.dump", "/a b/jit-99.dump"] {
            assert!(Source::is_jit_dump(path.as_bytes()), "{path}");
        }
        for path in [
            "/tmp/jit-.dump",
            "/tmp/jit-1x.dump",
            "/jit-1.dump/x",
            "/tmp/jit-1.dump (deleted)",
            "",
        ] {
            assert!(!Source::is_jit_dump(path.as_bytes()), "{path}");
        }
    }
}
