//! What is between the thread that records and the one that writes: jobs in order, and word of how it goes.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rawstack_format::{Counters, Encoded};

/// Something for the writing thread to do.
#[derive(Clone, Debug)]
pub(super) enum Job {
    /// Create the next archive.
    Open,
    /// Write a chunk into it.
    Chunk {
        /// The chunk.
        encoded: Arc<Encoded>,
        /// Totals of its archive with it.
        counters: Counters,
        /// Sample rows in it.
        samples: u64,
    },
    /// End the archive: index, sync.
    Close,
}

impl Job {
    fn bytes(&self) -> u64 {
        match self {
            Self::Chunk { encoded, .. } => encoded.len_in_file(),
            Self::Open | Self::Close => 0,
        }
    }
}

/// What the writing thread finds.
pub(super) enum Next {
    /// The oldest job. It stays in the queue until it is [`done`](Queue::done).
    Job(Job),
    /// Nothing came for a while.
    Nothing,
    /// Nothing comes any more, or nobody waits for it.
    End,
}

/// Writing fails, and is tried again and again.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    /// Since when.
    pub(super) since: Instant,
    /// The archive.
    pub(super) path: PathBuf,
    /// Why, in the system's words.
    pub(super) why: String,
}

/// What was written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    /// How many archives.
    pub(crate) archives: u64,
    /// The last of them.
    pub(crate) last: Option<PathBuf>,
    /// Their length in bytes, all together; of those that were removed again, too.
    pub(crate) bytes: u64,
    /// Samples in them; of a flight recorder's archives, some are in several.
    pub(crate) samples: u64,
    /// What the system said when it last refused to write.
    pub(crate) trouble: Option<String>,
    /// The reader of standard output went away: there is nobody to write for.
    pub(crate) is_unread: bool,
    /// What was written and could not be brought to the disk, and why.
    pub(crate) unsynced: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    jobs: VecDeque<Job>,
    /// Of the chunks among them.
    bytes: u64,
    /// No more jobs come.
    is_closed: bool,
    /// Nobody waits for the rest.
    is_given_up: bool,
    /// The writing thread has ended.
    pub(super) has_ended: bool,
    /// The last trouble, and whether it goes on.
    trouble: Option<Trouble>,
    is_told: bool,
    over: Option<Trouble>,
    /// Why writing cannot go on at all.
    pub(super) failure: Option<rawstack_format::Error>,
    pub(super) written: Written,
}

impl State {
    /// Sample rows in what is not yet written.
    pub(super) fn samples_left(&self) -> u64 {
        let samples = |job: &Job| match job {
            Job::Chunk { samples, .. } => *samples,
            Job::Open | Job::Close => 0,
        };
        self.jobs.iter().map(samples).sum()
    }

    /// Whether anything is not yet written.
    pub(super) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }
}

/// The queue, seen from either side.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue(Arc<(Mutex<State>, Condvar)>);

impl Queue {
    /// What both threads know.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, limit: Duration) -> MutexGuard<'a, State> {
        let waited = self.0.1.wait_timeout(state, limit);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Change what both threads know.
    pub(super) fn update(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.0.1.notify_all();
    }

    /// Add a job.
    pub(super) fn push(&self, job: Job) {
        self.update(|state| {
            state.bytes += job.bytes();
            state.jobs.push_back(job);
        });
    }

    /// Bytes of chunks that wait.
    pub(super) fn bytes(&self) -> u64 {
        self.state().bytes
    }

    /// Whether anything waits.
    pub(super) fn is_busy(&self) -> bool {
        self.state().has_jobs()
    }

    /// Wait for a job, for `limit` at most.
    pub(super) fn next(&self, limit: Duration) -> Next {
        let mut state = self.state();
        if state.jobs.is_empty() && !state.is_closed {
            state = self.wait(state, limit);
        }
        match state.jobs.front() {
            _ if state.is_given_up => Next::End,
            Some(job) => Next::Job(job.clone()),
            None if state.is_closed => Next::End,
            None => Next::Nothing,
        }
    }

    /// The oldest job is done.
    pub(super) fn done(&self) {
        self.update(|state| {
            if let Some(job) = state.jobs.pop_front() {
                state.bytes -= job.bytes();
            }
            if let Some(trouble) = state.trouble.take().filter(|_| state.is_told) {
                state.over = Some(trouble);
                state.is_told = false;
            }
        });
    }

    /// The oldest job failed and is tried again after `pause`, or as soon as the recording has ended.
    pub(super) fn failed(&self, path: PathBuf, why: String, pause: Duration) {
        self.update(|state| {
            let since = state
                .trouble
                .as_ref()
                .map_or_else(Instant::now, |trouble| trouble.since);
            state.written.trouble = Some(why.clone());
            state.trouble = Some(Trouble { since, path, why });
        });
        let until = Instant::now() + pause;
        let mut state = self.state();
        let was_closed = state.is_closed;
        while !state.is_given_up && state.is_closed == was_closed {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.wait(state, left);
        }
    }

    /// Trouble that began or ended since the last call, in words.
    pub(super) fn news(&self) -> Option<String> {
        let mut state = self.state();
        if let Some(trouble) = state.over.take() {
            let seconds = trouble.since.elapsed().as_secs_f64();
            let path = trouble.path.display();
            return Some(format!("{path} can be written again after {seconds:.1} s"));
        }
        if state.is_told {
            return None;
        }
        let Trouble { path, why, .. } = state.trouble.clone()?;
        state.is_told = true;
        Some(format!(
            "failed to write {}: {why}; recording goes on in memory and writing is tried again each second",
            path.display()
        ))
    }

    /// No more jobs come. Wait until all are done, nobody waits any more, or writing has failed for `patience`.
    pub(super) fn close(&self, patience: Duration, mut is_hurried: impl FnMut() -> bool) {
        const LOOK: Duration = Duration::from_millis(20);
        self.update(|state| state.is_closed = true);
        let closed = Instant::now();
        let mut hurried = None;
        let mut state = self.state();
        while !state.has_ended {
            if is_hurried() {
                hurried.get_or_insert_with(Instant::now);
            }
            let is_late = |since: Instant| since.elapsed() >= patience;
            if hurried.is_some_and(is_late) || (state.trouble.is_some() && is_late(closed)) {
                break;
            }
            state = self.wait(state, LOOK);
        }
        drop(state);
        self.update(|state| state.is_given_up = true);
    }
}
