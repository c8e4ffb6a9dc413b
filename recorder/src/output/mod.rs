//! The archive's side: records become chunks here, and chunks go to archives, one or several, or are held in memory.
//!
//! The disk has a thread of its own ([`disk`]). Between it and the recording stands a queue that is bounded: when it is
//! full, [`Output::is_full`] says so and the recording keeps no more samples, but it goes on reading. Were it to wait
//! for the disk instead, the kernel's buffers would run over, and with them what tells where code was mapped.

use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rawstack_format::record::{End, Record, Recording};
use rawstack_format::{
    Counters, Encoded, Encoder, Error as FormatError, HEADER_LEN, WriterOptions,
};
use rustix::fs::{Access, access};

use crate::budget::Budget;
use crate::error::{Error, Result};
use crate::helper::Helper;
use crate::host::{monotonic_ns, wall_ns};
use crate::options::{Amount, Growth, Options};
use crate::privilege::spawn_without;
use crate::totals::Totals;

mod disk;
mod dump;
mod flight;
mod maker;
pub(crate) mod names;
mod queue;
pub(crate) mod sink;

use disk::Disk;
use flight::{Flight, Held};
use maker::Maker;
use names::Names;
use queue::{Job, Queue, Written};

/// How long a disk that does not take what is left may hold up the end: in all it is to be over within two seconds.
const PATIENCE: Duration = Duration::from_millis(900);
/// Kept free at the end of an archive of bounded size, for the last batch, the totals and the index: in bytes.
const END_ROOM: u64 = 64 << 10;
/// In an index, a chunk takes less.
const INDEX_ENTRY: u64 = 16;
/// An archive with less room than this, in bytes, is full.
const LEAST_ROOM: u64 = 32 << 10;

/// Where the chunks of a recording go.
#[derive(Debug)]
pub(crate) struct Output {
    path: PathBuf,
    growth: Growth,
    encoder: Encoder,
    queue: Queue,
    thread: JoinHandle<()>,
    max_queued: u64,
    /// What each archive begins with, behind the recording chunk.
    preamble: Vec<Arc<Encoded>>,
    flight: Option<Flight>,
    archive: Filled,
}

/// The archive that is being filled.
#[derive(Debug)]
struct Filled {
    start_ns: u64,
    /// Its length when all is written that was handed over, in bytes.
    bytes: u64,
    chunks: u64,
    counters: Counters,
    /// There is more in it than what each archive begins with.
    has_samples: bool,
}

impl Filled {
    fn new() -> Self {
        Self {
            start_ns: monotonic_ns(),
            bytes: HEADER_LEN as u64,
            chunks: 0,
            counters: Counters::default(),
            has_samples: false,
        }
    }
}

/// How writing ended.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    /// The archives have numbers in their names.
    pub(crate) is_numbered: bool,
    /// What was written.
    pub(crate) written: Written,
    /// Samples in what could not be written; `None`: all was.
    pub(crate) left: Option<u64>,
}

impl Output {
    /// Create the archive, unless it is made only when it is wanted. See [`check_place`] first.
    pub(crate) fn create(options: &Options, budget: &Budget, helper: &Helper) -> Result<Self> {
        let path = &options.output;
        let system_error = |action| move |error| Error::System { action, error };
        let queue = Queue::default();
        let keep = match options.growth {
            Growth::Rotate { keep, .. } => keep,
            _ => None,
        };
        let maker = match options.growth {
            Growth::Unlimited | Growth::MaxSize(_) => {
                Maker::Own(Names::single(path, options.force))
            }
            // Once the recording goes on, this process may create nothing.
            _ => Maker::Helper(
                helper
                    .make_archives(path, options.force, keep)
                    .map_err(system_error("ask the helper process for archives"))?,
            ),
        };
        let flight = match options.growth {
            Growth::FlightRecorder(Amount::Size(size)) => Some(Flight::new(size, None)),
            Growth::FlightRecorder(Amount::Time(time)) => {
                Some(Flight::new(budget.flight_bytes, Some(time)))
            }
            _ => None,
        };
        let first = maker.next();
        let archive_error = |error| match error {
            FormatError::Exists { .. } => Error::Exists(path.clone()),
            error => Error::Archive {
                path: first.clone(),
                error,
            },
        };
        let mut disk = Disk::new(queue.clone(), maker);
        if flight.is_none() {
            disk.open().map_err(archive_error)?;
        }
        let encoder = Encoder::new(WriterOptions::default().level).map_err(archive_error)?;
        // Its file is open, others are made by the helper: it needs no capability.
        let thread = spawn_without("writer", move || disk.run());
        let thread = thread.map_err(|error| Error::System {
            action: "start a thread",
            error,
        })?;
        Ok(Self {
            path: path.clone(),
            growth: options.growth,
            encoder,
            queue,
            thread,
            max_queued: budget.queue_bytes,
            preamble: Vec::new(),
            flight,
            archive: Filled::new(),
        })
    }

    /// Begin the archive with what was recorded and how.
    pub(crate) fn begin(&mut self, recording: &Recording) -> Result<()> {
        self.start_epoch(recording)
    }

    /// Put in what each archive is to begin with.
    pub(crate) fn add_preamble(&mut self, record: &Record) -> Result<()> {
        let encoded = Arc::new(self.encode(record)?);
        self.preamble.push(Arc::clone(&encoded));
        if self.flight.is_none() {
            self.push(encoded, self.archive.counters, 0);
        }
        Ok(())
    }

    /// The epoch of `recording` begins.
    pub(crate) fn start_epoch(&mut self, recording: &Recording) -> Result<()> {
        match &mut self.flight {
            Some(flight) => flight.start_epoch(recording.epoch, (monotonic_ns(), wall_ns())),
            None => {
                self.send(&Record::Recording(recording.clone()), self.archive.counters)?;
            }
        }
        Ok(())
    }

    /// Hand a record over, with its archive's totals up to and including it.
    pub(crate) fn send(&mut self, record: &Record, counters: Counters) -> Result<()> {
        let encoded = Arc::new(self.encode(record)?);
        let batch = match record {
            Record::Batch(batch) => Some(batch),
            _ => None,
        };
        match &mut self.flight {
            Some(flight) => flight.add(Held {
                encoded,
                totals: batch.map(Totals::of).unwrap_or_default(),
            }),
            None => {
                let samples = batch.map_or(0, |batch| batch.samples.len() as u64);
                self.push(encoded, counters, samples);
            }
        }
        Ok(())
    }

    fn encode(&mut self, record: &Record) -> Result<Encoded> {
        self.encoder.encode(record).map_err(|error| Error::Archive {
            path: self.path.clone(),
            error,
        })
    }

    fn push(&mut self, encoded: Arc<Encoded>, counters: Counters, samples: u64) {
        self.archive.bytes += encoded.len_in_file();
        self.archive.chunks += 1;
        self.archive.counters = counters;
        self.archive.has_samples |= samples > 0;
        self.queue.push(Job::Chunk {
            encoded,
            counters,
            samples,
        });
    }

    /// Whether the memory for what waits to be written is used up; `was_full`: it is not before half of it is free.
    pub(crate) fn is_full(&self, was_full: bool) -> bool {
        let limit = if was_full {
            self.max_queued / 2
        } else {
            self.max_queued
        };
        self.flight.is_none() && self.queue.bytes() > limit
    }

    /// Whether writing has failed for good: the recording had better end.
    pub(crate) fn has_failed(&self) -> bool {
        self.queue.state().has_ended
    }

    /// Trouble with writing that began or ended since the last call, in words.
    pub(crate) fn news(&self) -> Option<String> {
        self.queue.news()
    }

    /// Bytes of batches that the archive at hand has room for; `None`: it may have any length.
    pub(crate) fn room(&self) -> Option<u64> {
        let max = match self.growth {
            Growth::MaxSize(size) => size,
            Growth::Rotate {
                each: Amount::Size(size),
                ..
            } => size,
            _ => return None,
        };
        let index = INDEX_ENTRY * self.archive.chunks.min(1 << 14);
        Some(max.saturating_sub(self.archive.bytes + END_ROOM + index))
    }

    /// Whether the archive has the length that it may have.
    pub(crate) fn is_at_its_size(&self) -> bool {
        self.room().is_some_and(|room| room < LEAST_ROOM)
    }

    /// Whether the next archive should begin.
    pub(crate) fn is_to_rotate(&self, now_ns: u64) -> bool {
        match self.growth {
            Growth::Rotate {
                each: Amount::Time(_),
                ..
            } => self.until_rotation(now_ns) == Some(Duration::ZERO),
            // However small the size and long the beginning: an archive has something to tell.
            Growth::Rotate { .. } => self.is_at_its_size() && self.archive.has_samples,
            _ => false,
        }
    }

    /// How long after `now_ns` the next archive should begin, where that goes by time.
    fn until_rotation(&self, now_ns: u64) -> Option<Duration> {
        let Growth::Rotate {
            each: Amount::Time(time),
            ..
        } = self.growth
        else {
            return None;
        };
        let age = Duration::from_nanos(now_ns.saturating_sub(self.archive.start_ns));
        Some(time.saturating_sub(age))
    }

    /// End the archive, and begin another with `recording`.
    pub(crate) fn rotate(&mut self, end: End, recording: &Recording) -> Result<()> {
        self.send(&Record::End(end), self.archive.counters)?;
        self.queue.push(Job::Close);
        self.queue.push(Job::Open);
        self.archive = Filled::new();
        self.start_epoch(recording)?;
        self.push_preamble();
        Ok(())
    }

    fn push_preamble(&mut self) {
        let preamble = mem::take(&mut self.preamble);
        for encoded in &preamble {
            self.push(Arc::clone(encoded), self.archive.counters, 0);
        }
        self.preamble = preamble;
    }

    /// Write what waits and end the archive. It may take as long as it takes, unless writing fails or `is_hurried`.
    pub(crate) fn finish(self, is_hurried: impl FnMut() -> bool) -> Result<Ending> {
        if self.flight.is_none() {
            self.queue.push(Job::Close);
        }
        let is_numbered = !matches!(self.growth, Growth::Unlimited | Growth::MaxSize(_));
        self.queue.close(PATIENCE, is_hurried);
        let mut state = self.queue.state();
        let left = state.has_jobs().then(|| state.samples_left());
        let written = mem::take(&mut state.written);
        let failure = state.failure.take();
        let has_ended = state.has_ended;
        drop(state);
        if has_ended && let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
        match failure {
            Some(error) if !written.is_unread => Err(Error::Archive {
                path: self.path,
                error,
            }),
            Some(_) => Ok(Ending {
                is_numbered,
                written,
                left: None,
            }),
            None => Ok(Ending {
                is_numbered,
                written,
                left,
            }),
        }
    }
}

/// See that archives can be created where `options` say: better said now than when one is wanted.
pub(crate) fn check_place(options: &Options) -> Result<()> {
    let path = &options.output;
    if path == Path::new("-") {
        return Ok(());
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| Error::Archive {
        path: path.clone(),
        error: FormatError::Create {
            path: path.clone(),
            source: error.into(),
        },
    })
}
