//! What can stop a recording.

use std::error::Error as StdError;
use std::path::PathBuf;
use std::{io, result};

/// `Result` with [`Error`].
pub type Result<T> = result::Result<T, Error>;

/// A failure that ends the recording or keeps it from starting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel's edge.
    #[error(transparent)]
    Bpf(#[from] rawstack_bpf::Error),
    /// The archive.
    #[error("failed to write archive {path}: {}; {}", chain(error), cure(error))]
    Archive {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: rawstack_format::Error,
    },
    /// The archive's name is taken.
    #[error(
        "failed to create archive {0}: it exists; name another with -o, or overwrite it with --force"
    )]
    Exists(PathBuf),
    /// An option asks for what cannot be.
    #[error("failed to read option {option}: {why}; {cure}")]
    Option {
        /// With its dashes.
        option: &'static str,
        /// What is wrong with it.
        why: String,
        /// What to do.
        cure: &'static str,
    },
    /// An event that was asked for cannot be recorded here.
    #[error("failed to find event {event}: {why}; {cure}")]
    Event {
        /// As given.
        event: String,
        /// Why not.
        why: String,
        /// What to do.
        cure: &'static str,
    },
    /// The command is not there.
    #[error(
        "failed to find command {0}: it is no executable file in PATH; check its name, or give its path"
    )]
    NoCommand(String),
    /// The command could not be run.
    #[error("failed to start command {command}: {error}")]
    Command {
        /// As given.
        command: String,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// Process IDs here are not the machine's.
    #[error(
        "failed to record from within a PID namespace: the kernel tells the machine's own process IDs, and /proc has \
         others here; run it in the host's namespace (docker run --pid=host)"
    )]
    PidNamespace,
    /// The system refused something ordinary.
    #[error("failed to {action}: {error}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Why.
        #[source]
        error: io::Error,
    },
}

/// An error with all that caused it, in one line.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// What to do about an archive that cannot be written.
fn cure(error: &rawstack_format::Error) -> &'static str {
    if error.is_out_of_space() {
        "free some space; what is in the archive is whole and can be read"
    } else {
        "name another place with -o"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the reason of the system stands in the message, with what to do.
    #[test]
    fn reason_and_cure() {
        let path = PathBuf::from("/nonexistent/x.rawstack");
        let error = rawstack_format::ArchiveFile::create(&path, false).unwrap_err();
        let text = Error::Archive { path, error }.to_string();
        assert!(
            text.contains("No such file or directory") && text.ends_with("with -o"),
            "{text}"
        );
    }
}
