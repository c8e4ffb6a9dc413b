//! Waiting for whatever comes first: events, a signal, the command's end, a time.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use std::{io, result};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM, SIGUSR2, SIGXFSZ};
use signal_hook::{flag, low_level};

use crate::error::{Error, Result};

/// What ends a wait.
#[derive(Debug)]
pub(crate) struct Waker {
    epoll: OwnedFd,
    signals: UnixStream,
    ending: Arc<AtomicUsize>,
    request: Arc<AtomicBool>,
}

/// Edge-triggered: it wakes when the kernel says that enough waits, not whenever something does.
fn watch<'a>(
    epoll: &OwnedFd,
    events: impl IntoIterator<Item = BorrowedFd<'a>>,
) -> rustix::io::Result<()> {
    for events in events {
        let flags = EventFlags::IN | EventFlags::ET;
        match epoll::add(epoll, events, EventData::new_u64(0), flags) {
            Err(Errno::EXIST) => {}
            added => added?,
        }
    }
    Ok(())
}

impl Waker {
    /// Wake for events at any of `events`, for SIGINT, SIGTERM, SIGUSR2 and ended children.
    pub(crate) fn new<'a>(events: impl IntoIterator<Item = BorrowedFd<'a>>) -> Result<Self> {
        Self::build(events).map_err(|error| Error::System {
            action: "set up signals",
            error,
        })
    }

    fn build<'a>(
        events: impl IntoIterator<Item = BorrowedFd<'a>>,
    ) -> result::Result<Self, io::Error> {
        let (signals, sender) = UnixStream::pair()?;
        signals.set_nonblocking(true)?;
        let ending = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM] {
            flag::register_usize(
                signal,
                Arc::clone(&ending),
                usize::try_from(signal).unwrap_or(1),
            )?;
        }
        let request = Arc::new(AtomicBool::new(false));
        flag::register(SIGUSR2, Arc::clone(&request))?;
        // A file that grows over its limit is an error of that write, not the end of this process.
        for signal in [SIGINT, SIGTERM, SIGUSR2, SIGCHLD, SIGXFSZ] {
            low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        watch(&epoll, events)?;
        epoll::add(
            &epoll,
            signals.as_fd(),
            EventData::new_u64(1),
            EventFlags::IN,
        )?;
        Ok(Self {
            epoll,
            signals,
            ending,
            request,
        })
    }

    /// Wake for events at these, too; at those among them that are watched already as before.
    pub(crate) fn watch<'a>(&self, events: impl IntoIterator<Item = BorrowedFd<'a>>) -> Result<()> {
        watch(&self.epoll, events).map_err(|error| Error::System {
            action: "wait for events",
            error: error.into(),
        })
    }

    /// Wait for `limit` at most.
    pub(crate) fn wait(&mut self, limit: Duration) {
        let limit = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        let mut events = [Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }; 2];
        // An interruption is as good a reason to look as any.
        let _ = epoll::wait(&self.epoll, events.as_mut_slice(), Some(&limit));
        let mut bytes = [0; 64];
        while io::Read::read(&mut &self.signals, &mut bytes).is_ok_and(|read| read == bytes.len()) {
        }
    }

    /// Whether SIGINT or SIGTERM has come.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed) != 0
    }

    /// Whether SIGUSR2 has come since the last call.
    pub(crate) fn take_request(&self) -> bool {
        self.request.swap(false, Ordering::Relaxed)
    }
}
