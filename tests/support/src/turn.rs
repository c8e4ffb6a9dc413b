//! Turns: tests that load the machine or measure it come one after the other, whoever runs them.

use std::fs::{self, File};

use rustix::fs::{FlockOperation, flock};

use crate::programs::target_dir;

/// A turn, given back when dropped.
#[derive(Debug)]
pub struct Turn {
    _file: File,
}

/// Wait until no other test records, whatever process it is in.
pub fn take_turn() -> Turn {
    lock("recording")
}

/// Wait for the lock `name` of this build.
pub(crate) fn lock(name: &str) -> Turn {
    let path = target_dir().join(format!("{name}.lock"));
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .unwrap_or_else(|err| panic!("failed to open {}: {err}", path.display()));
    flock(&file, FlockOperation::LockExclusive)
        .unwrap_or_else(|err| panic!("failed to lock {}: {err}", path.display()));
    Turn { _file: file }
}
