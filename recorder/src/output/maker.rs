//! Who creates archives: this process, as long as it may, or its helper.

use std::path::{Path, PathBuf};

use rawstack_format::Result;

use super::names::Names;
use super::sink::Sink;
use crate::helper::ArchiveDoor;

/// Who creates them.
#[derive(Debug)]
pub(super) enum Maker {
    /// This process: one archive, at the beginning.
    Own(Names),
    /// The helper, any number at any time.
    Helper(ArchiveDoor),
}

impl Maker {
    /// The name that would be taken next.
    pub(super) fn next(&self) -> PathBuf {
        match self {
            Self::Own(names) => names.next(),
            Self::Helper(door) => door.next().to_owned(),
        }
    }

    /// Create the next archive.
    pub(super) fn create(&mut self) -> Result<(PathBuf, Sink)> {
        match self {
            Self::Own(names) => names.create(),
            Self::Helper(door) => {
                let (path, file) = door.create()?;
                Ok((path, Sink::File(file)))
            }
        }
    }

    /// Take back the archive created last: nothing could be written to it.
    pub(super) fn take_back(&mut self, path: &Path) {
        match self {
            Self::Own(names) => names.take_back(path),
            Self::Helper(door) => door.take_back(),
        }
    }
}
