//! The thread that writes and syncs, so that a disk that is slow, full or gone does not stop the reading.
//!
//! What cannot be written is tried again each second, for as long as the recording goes on: space may come back, a
//! quota may be raised, a file system may be mounted for writing again. Nothing is lost meanwhile but what the queue
//! cannot hold.

use std::error::Error as StdError;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rawstack_format::{Counters, Encoded, Error, HEADER_LEN, Result, Writer, WriterOptions};

use super::maker::Maker;
use super::queue::{Job, Next, Queue};
use super::sink::Sink;

/// Time between two tries.
const RETRY: Duration = Duration::from_secs(1);
/// Longest wait for a job: then it is looked what should be synced.
const LOOK: Duration = Duration::from_secs(1);

/// An archive that is being written.
#[derive(Debug)]
struct Open {
    path: PathBuf,
    writer: Writer<Sink>,
}

/// The writing thread's own.
#[derive(Debug)]
pub(super) struct Disk {
    queue: Queue,
    maker: Maker,
    open: Option<Open>,
}

impl Disk {
    /// Nothing is created yet.
    pub(super) fn new(queue: Queue, maker: Maker) -> Self {
        Self {
            queue,
            maker,
            open: None,
        }
    }

    /// Create the next archive.
    pub(super) fn open(&mut self) -> Result<()> {
        let (path, sink) = self.maker.create()?;
        match Writer::new(sink, WriterOptions::default()) {
            Ok(writer) => {
                self.queue.update(|state| {
                    state.written.archives += 1;
                    state.written.bytes += HEADER_LEN as u64;
                    state.written.last = Some(path.clone());
                });
                self.open = Some(Open { path, writer });
                Ok(())
            }
            Err(error) => {
                self.maker.take_back(&path);
                Err(error)
            }
        }
    }

    /// Do what comes, until nothing comes any more.
    pub(super) fn run(mut self) {
        loop {
            match self.queue.next(LOOK) {
                Next::Job(job) => match self.perform(&job) {
                    Ok(()) => self.queue.done(),
                    Err(error) if self.can_try_again(&error) => {
                        let path = match &self.open {
                            Some(open) => open.path.clone(),
                            None => self.maker.next(),
                        };
                        self.queue.failed(path, reason(&error), RETRY);
                    }
                    Err(error) => {
                        self.queue.update(|state| {
                            state.written.is_unread = is_closed_pipe(&error);
                            state.failure = Some(error);
                        });
                        break;
                    }
                },
                Next::Nothing => {}
                Next::End => break,
            }
            self.sync_if_due();
        }
        self.queue.update(|state| state.has_ended = true);
    }

    fn perform(&mut self, job: &Job) -> Result<()> {
        match job {
            Job::Open => self.open(),
            Job::Chunk {
                encoded,
                counters,
                samples,
            } => self.write(encoded, *counters, *samples),
            Job::Close => self.close(),
        }
    }

    fn write(&mut self, encoded: &Encoded, counters: Counters, samples: u64) -> Result<()> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let before = open.writer.get_ref().len();
        open.writer.append(encoded, counters)?;
        let bytes = open.writer.get_ref().len() - before;
        self.queue.update(|state| {
            state.written.bytes += bytes;
            state.written.samples += samples;
        });
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let before = open.writer.get_ref().len();
        open.writer.end()?;
        let bytes = open.writer.get_ref().len() - before;
        self.queue.update(|state| state.written.bytes += bytes);
        if let Err(error) = open.writer.get_mut().sync() {
            self.note_unsynced(&error);
        }
        self.open = None;
        Ok(())
    }

    fn sync_if_due(&mut self) {
        let Some(open) = &mut self.open else { return };
        if let Err(error) = open.writer.get_mut().sync_if_due() {
            self.note_unsynced(&error);
        }
    }

    /// The kernel forgets what it could not bring to the disk: trying again would prove nothing.
    fn note_unsynced(&self, error: &Error) {
        let why = reason(error);
        self.queue
            .update(|state| _ = state.written.unsynced.get_or_insert(why));
    }

    /// Whether the error is the file system's, and nothing is left of what was tried.
    fn can_try_again(&self, error: &Error) -> bool {
        let is_pipe = self
            .open
            .as_ref()
            .is_some_and(|open| matches!(open.writer.get_ref(), Sink::Stdout(..)));
        let is_system = matches!(error, Error::Write { .. } | Error::Create { .. });
        is_system && !is_pipe
    }
}

/// What the system said.
fn reason(error: &Error) -> String {
    match error.source() {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}

fn is_closed_pipe(error: &Error) -> bool {
    matches!(error, Error::Write { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
}
