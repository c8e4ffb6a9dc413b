//! A thread that has files read, so that nothing else waits for them.

use std::fmt;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};

use super::request::{Piece, Refusal, Request};
use crate::privilege::spawn_without;

/// Pieces that may wait to be taken: a few megabytes.
const QUEUE: usize = 8;
/// Bytes before a position that are compared to see that the file is still the one that was read.
const TAIL: usize = 64;

/// Who reads.
pub(crate) trait Reader: fmt::Debug + Send {
    /// Read the next piece of a file.
    fn read(&mut self, request: &Request) -> Result<Piece, Refusal>;
    /// The process has ended, and all of it is read.
    fn forget(&mut self, pid: u32);
}

#[derive(Debug)]
enum Job {
    /// Read on to the end of the file, or up to a length.
    Read(Request, u64),
    Forget(u32),
}

/// A piece or why there is none, and whether it is the last of the job.
pub(crate) type Answer = (Result<Piece, Refusal>, bool);

/// The thread.
#[derive(Debug)]
pub(crate) struct Worker {
    jobs: Sender<Job>,
    answers: Receiver<Answer>,
}

impl Worker {
    /// Start it; `None` where no thread can be had.
    pub(crate) fn start(mut reader: Box<dyn Reader>) -> Option<Self> {
        let (jobs, queue) = channel();
        let (results, answers) = sync_channel(QUEUE);
        let work = move || {
            for job in queue {
                match job {
                    Job::Read(request, most) => read(&mut *reader, request, most, &results),
                    Job::Forget(pid) => reader.forget(pid),
                }
            }
        };
        spawn_without("jit-maps", work).ok()?;
        Some(Self { jobs, answers })
    }

    /// Have a file read on, up to `most` bytes from its beginning.
    pub(crate) fn read(&self, request: Request, most: u64) {
        // It ends with this value only, so there is nobody to tell.
        let _ = self.jobs.send(Job::Read(request, most));
    }

    /// Let go of a process.
    pub(crate) fn forget(&self, pid: u32) {
        let _ = self.jobs.send(Job::Forget(pid));
    }

    /// The next answer, if there is one.
    pub(crate) fn answer(&self) -> Option<Answer> {
        match self.answers.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some((Err(Refusal::Unreadable), true)),
        }
    }
}

fn read(reader: &mut dyn Reader, mut request: Request, most: u64, results: &SyncSender<Answer>) {
    loop {
        let answer = reader.read(&request);
        let next = answer
            .as_ref()
            .ok()
            .and_then(|piece| following(&request, piece, most));
        if results.send((answer, next.is_none())).is_err() {
            return;
        }
        match next {
            Some(next) => request = next,
            None => return,
        }
    }
}

/// The request for what follows a piece, where something does.
fn following(request: &Request, piece: &Piece, most: u64) -> Option<Request> {
    let position = piece.position + piece.bytes.len() as u64;
    let has_more = !piece.bytes.is_empty() && position < piece.length.min(most);
    has_more.then(|| Request {
        file: Some(piece.file),
        position,
        tail: tail_of(&piece.bytes),
        ..request.clone()
    })
}

/// What is compared before the position behind `bytes` the next time.
pub(crate) fn tail_of(bytes: &[u8]) -> Vec<u8> {
    bytes
        .get(bytes.len().saturating_sub(TAIL)..)
        .unwrap_or_default()
        .to_vec()
}
