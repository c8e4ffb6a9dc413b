//! What an archive's bytes go to: a file, or standard output.

use std::io::{self, Stdout, Write};
use std::path::Path;
use std::time::Instant;

use rawstack_format::ArchiveFile;

/// Where an archive goes.
#[derive(Debug)]
pub(crate) enum Sink {
    /// A file of its own.
    File(ArchiveFile),
    /// `-`: for a pipe, with the bytes written so far. Nothing can be synced, taken back or tried again there.
    Stdout(Stdout, u64),
}

impl Sink {
    /// Create the file, or take standard output.
    pub(crate) fn create(path: &Path, force: bool) -> rawstack_format::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout(io::stdout(), 0));
        }
        ArchiveFile::create(path, force).map(Self::File)
    }

    /// Bytes written.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::File(file) => file.len(),
            Self::Stdout(_, len) => *len,
        }
    }

    /// Bring to the disk what has waited for long enough.
    pub(crate) fn sync_if_due(&mut self) -> rawstack_format::Result<()> {
        match self {
            Self::File(file) => file.sync_if_due(Instant::now()).map(|_| ()),
            Self::Stdout(..) => Ok(()),
        }
    }

    /// Bring all to the disk.
    pub(crate) fn sync(&mut self) -> rawstack_format::Result<()> {
        match self {
            Self::File(file) => file.sync(),
            Self::Stdout(..) => Ok(()),
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.write(bytes),
            Self::Stdout(stdout, len) => {
                stdout.write_all(bytes)?;
                stdout.flush()?;
                *len += u64::try_from(bytes.len()).unwrap_or(0);
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.flush(),
            Self::Stdout(stdout, _) => stdout.flush(),
        }
    }
}
