//! The archive's side: a thread that encodes, writes and syncs, so that a slow disk does not stop the reading.

use std::io::{self, ErrorKind, Stdout, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rawstack_format::record::Record;
use rawstack_format::{ArchiveFile, Counters, Writer, WriterOptions};
use rustix::thread::CapabilitySet;

use crate::error::{Error, Result};
use crate::privilege;

/// Records that may wait for the disk: a few megabytes.
const QUEUE: usize = 16;

/// Where an archive goes.
#[derive(Debug)]
enum Sink {
    File(ArchiveFile),
    /// `-`: for a pipe. Nothing can be synced or taken back there.
    Stdout(Stdout, u64),
}

impl Sink {
    fn create(path: &Path, force: bool) -> rawstack_format::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout(io::stdout(), 0));
        }
        ArchiveFile::create(path, force).map(Self::File)
    }

    fn sync_if_due(&mut self) -> rawstack_format::Result<()> {
        match self {
            Self::File(file) => file.sync_if_due(Instant::now()).map(|_| ()),
            Self::Stdout(..) => Ok(()),
        }
    }

    /// Bring all to the disk; the length in bytes.
    fn end(mut self) -> rawstack_format::Result<u64> {
        if let Self::File(file) = &mut self {
            file.sync()?;
        }
        Ok(match self {
            Self::File(file) => file.len(),
            Self::Stdout(_, len) => len,
        })
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

/// An archive that is being written.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    queue: SyncSender<(Record, Counters)>,
    thread: JoinHandle<rawstack_format::Result<u64>>,
}

impl Output {
    /// Create the archive.
    pub(crate) fn create(path: &Path, force: bool) -> Result<Self> {
        let archive_error = |error| match error {
            rawstack_format::Error::Exists { .. } => Error::Exists(path.to_owned()),
            error => Error::Archive {
                path: path.to_owned(),
                error,
            },
        };
        let sink = Sink::create(path, force).map_err(archive_error)?;
        let writer = Writer::new(sink, WriterOptions::default()).map_err(archive_error)?;
        let (queue, records) = sync_channel(QUEUE);
        let (ready, is_ready) = sync_channel(1);
        let thread = thread::Builder::new()
            .name("writer".to_owned())
            .spawn(move || {
                // The file is open: from here on no capability is needed. A thread drops its own.
                _ = ready.send(privilege::keep_only(CapabilitySet::empty()));
                write_all(writer, &records)
            });
        let system_error = |action| move |error| Error::System { action, error };
        let thread = thread.map_err(system_error("start a thread"))?;
        let dropped = is_ready.recv().unwrap_or(Err(ErrorKind::BrokenPipe.into()));
        dropped.map_err(system_error("give up privileges"))?;
        Ok(Self {
            path: path.to_owned(),
            queue,
            thread,
        })
    }

    /// The archive's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Hand a record over. Waits while the queue is full. `false`: writing has failed, see [`finish`](Self::finish).
    pub(crate) fn send(&self, record: Record, counters: Counters) -> bool {
        self.queue.send((record, counters)).is_ok()
    }

    /// Write what waits, bring it to the disk, end the archive: its length in bytes.
    pub(crate) fn finish(self) -> Result<u64> {
        drop(self.queue);
        match self.thread.join() {
            Ok(result) => result.map_err(|error| Error::Archive {
                path: self.path,
                error,
            }),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn write_all(
    mut writer: Writer<Sink>,
    records: &Receiver<(Record, Counters)>,
) -> rawstack_format::Result<u64> {
    loop {
        match records.recv_timeout(Duration::from_secs(1)) {
            Ok((record, counters)) => _ = writer.write(&record, counters)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        writer.get_mut().sync_if_due()?;
    }
    writer.finish()?.end()
}
