//! Archives that the supervisor creates for the recorder: their names are fixed before the recorder gives up its rights.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rawstack_format::{ArchiveFile, Error as FormatError, Result as FormatResult};
use serde::{Deserialize, Serialize};

use super::door::{Door, Order, Reply};
use crate::output::names::Names;
use crate::output::sink::Sink;

/// Why an archive was not created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Why {
    Exists,
    NotRegular,
    System(i32),
    Other(String),
}

/// The recorder's end: asks for one archive after the other.
#[derive(Debug)]
pub(crate) struct ArchiveDoor {
    door: Door,
    next: PathBuf,
}

fn path_of(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&bytes))
}

fn bytes_of(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

impl ArchiveDoor {
    /// Fix the names of archives, as for [`Names::numbered`].
    pub(super) fn new(
        door: Door,
        output: &Path,
        force: bool,
        keep: Option<u32>,
    ) -> io::Result<Self> {
        let order = Order::Archives {
            output: bytes_of(output),
            force,
            keep,
        };
        door.send(&order, &[])?;
        match door.receive::<Reply>(None)?.0 {
            Reply::Next(next) => Ok(Self {
                door,
                next: path_of(next),
            }),
            reply => Err(reply.into_error()),
        }
    }

    /// The name that would be taken next.
    pub(crate) fn next(&self) -> &Path {
        &self.next
    }

    /// Create the next archive.
    pub(crate) fn create(&mut self) -> FormatResult<(PathBuf, ArchiveFile)> {
        let gone = |source| FormatError::Create {
            path: self.next.clone(),
            source,
        };
        self.door.send(&Order::NextArchive, &[]).map_err(gone)?;
        let (reply, descriptors) = self.door.receive::<Reply>(None).map_err(gone)?;
        let descriptor = descriptors.into_iter().next();
        match (reply, descriptor) {
            (Reply::Archive { path, next }, Some(file)) => {
                self.next = path_of(next);
                let file = ArchiveFile::from_created(File::from(file));
                Ok((path_of(path), file))
            }
            (Reply::NoArchive { path, why }, _) => Err(error(path_of(path), why)),
            (reply, _) => Err(gone(reply.into_error())),
        }
    }

    /// Take back the archive created last.
    pub(crate) fn take_back(&mut self) {
        // Without a supervisor the empty file stays, which is all that can happen.
        if self.door.send(&Order::TakeBackArchive, &[]).is_ok()
            && let Ok((Reply::Next(next), _)) = self.door.receive(None)
        {
            self.next = path_of(next);
        }
    }
}

fn error(path: PathBuf, why: Why) -> FormatError {
    match why {
        Why::Exists => FormatError::Exists { path },
        Why::NotRegular => FormatError::NotRegular { path },
        Why::System(code) => FormatError::Create {
            path,
            source: io::Error::from_raw_os_error(code),
        },
        Why::Other(text) => FormatError::Create {
            path,
            source: io::Error::other(text),
        },
    }
}

/// The supervisor's end.
#[derive(Debug)]
pub(super) struct Archives {
    names: Names,
    last: Option<PathBuf>,
}

impl Archives {
    pub(super) fn new(output: Vec<u8>, force: bool, keep: Option<u32>) -> Self {
        Self {
            names: Names::numbered(&path_of(output), force, keep),
            last: None,
        }
    }

    /// The name that would be taken next.
    pub(super) fn next(&self) -> Reply {
        Reply::Next(bytes_of(&self.names.next()))
    }

    /// Create the next archive.
    pub(super) fn create(&mut self) -> (Reply, Vec<OwnedFd>) {
        let wanted = self.names.next();
        let made = self.names.create().and_then(|(path, sink)| {
            let Sink::File(file) = &sink else {
                return Err(FormatError::NotRegular { path });
            };
            let file = file.as_fd().try_clone_to_owned();
            let file = file.map_err(|source| FormatError::Create {
                path: path.clone(),
                source,
            })?;
            Ok((path, file))
        });
        match made {
            Ok((path, file)) => {
                let reply = Reply::Archive {
                    path: bytes_of(&path),
                    next: bytes_of(&self.names.next()),
                };
                self.last = Some(path);
                (reply, vec![file])
            }
            Err(error) => (no_archive(&wanted, error), Vec::new()),
        }
    }

    /// Remove the archive created last.
    pub(super) fn take_back(&mut self) -> Reply {
        if let Some(path) = self.last.take() {
            self.names.take_back(&path);
        }
        self.next()
    }
}

fn no_archive(wanted: &Path, error: FormatError) -> Reply {
    let (path, why) = match error {
        FormatError::Exists { path } => (path, Why::Exists),
        FormatError::NotRegular { path } => (path, Why::NotRegular),
        FormatError::Create { path, source } => {
            let other = || Why::Other(source.to_string());
            (path, source.raw_os_error().map_or_else(other, Why::System))
        }
        error => (wanted.to_owned(), Why::Other(error.to_string())),
    };
    Reply::NoArchive {
        path: bytes_of(&path),
        why,
    }
}
