//! Orders to the supervisor: short messages that keep their bounds, with descriptors in the answers.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::archives::Why;
use super::cpus::WireCounter;

/// Longest message in bytes.
const MAX_MESSAGE: usize = 16 << 10;
/// Descriptors that come with one message at most.
const MAX_DESCRIPTORS: usize = 64;

/// What the recorder orders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    /// Kill the worker and start another: its socket, and its `/proc/PID/stat`.
    Worker,
    /// Listen at another door, the descriptor that comes with this; there is no reply.
    Listen,
    /// Archives will be created at this door, with these names.
    Archives {
        output: Vec<u8>,
        force: bool,
        keep: Option<u32>,
    },
    /// Create the next archive.
    NextArchive,
    /// Remove the archive created last.
    TakeBackArchive,
    /// These will be counted on CPUs that come; a program for each comes with this.
    Counters {
        counters: Vec<WireCounter>,
        build_ids: bool,
    },
    /// Open what was agreed on for a CPU; its counters only where it counts.
    Cpu { cpu: u32, counts: bool },
    /// Nothing is agreed on any more: from here on there is only what has been.
    Seal,
}

/// What became of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reply {
    /// Done; descriptors come with it.
    Done,
    /// Not done, and why.
    Failed(String),
    /// The name of the archive that would come next.
    Next(Vec<u8>),
    /// An archive has been created: its descriptor comes with it.
    Archive { path: Vec<u8>, next: Vec<u8> },
    /// None has.
    NoArchive { path: Vec<u8>, why: Why },
}

impl Reply {
    /// For a reply that is not the one that was hoped for.
    pub(super) fn into_error(self) -> io::Error {
        match self {
            Self::Failed(reason) => io::Error::other(reason),
            _ => io::ErrorKind::InvalidData.into(),
        }
    }
}

/// One end.
#[derive(Debug)]
pub(super) struct Door(OwnedFd);

impl Door {
    /// Both ends.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Self(ours), theirs))
    }

    /// The end that this descriptor is.
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Send a message with descriptors.
    pub(super) fn send(
        &self,
        message: &impl Serialize,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let bytes = postcard::to_stdvec(message).map_err(io::Error::other)?;
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        sendmsg(
            &self.0,
            &[IoSlice::new(&bytes)],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }

    /// Wait until something can be received.
    fn wait(&self, limit: Option<Duration>) -> io::Result<()> {
        let end = limit.map(|limit| Instant::now() + limit);
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let left = left.map(|left| Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            });
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], left.as_ref()) {
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// Wait for a message and its descriptors; an error at the end, for what is no message, and after `limit`.
    pub(super) fn receive<T: DeserializeOwned>(
        &self,
        limit: Option<Duration>,
    ) -> io::Result<(T, Vec<OwnedFd>)> {
        self.wait(limit)?;
        let mut bytes = [0; MAX_MESSAGE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(
            &self.0,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        let Some(message) = bytes
            .get(..received.bytes)
            .filter(|bytes| !bytes.is_empty())
        else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let message = postcard::from_bytes(message).map_err(io::Error::other)?;
        Ok((message, descriptors))
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;

    /// Check that an order and a reply with a descriptor go through, and that a closed door is told.
    #[test]
    fn orders_and_replies() {
        let (recorder, supervisor) = Door::pair().unwrap();
        let supervisor = Door::new(supervisor);
        recorder.send(&Order::Worker, &[]).unwrap();
        assert_eq!(supervisor.receive::<Order>(None).unwrap().0, Order::Worker);
        let file = File::open("/proc/self/comm").unwrap();
        supervisor.send(&Reply::Done, &[file.as_fd()]).unwrap();
        let (reply, mut descriptors) = recorder.receive::<Reply>(None).unwrap();
        assert_eq!(reply, Reply::Done);
        let mut text = String::new();
        File::from(descriptors.remove(0))
            .read_to_string(&mut text)
            .unwrap();
        assert!(!text.is_empty());
        drop(supervisor);
        let error = recorder.receive::<Reply>(None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    /// Check that a wait ends by itself.
    #[test]
    fn limit() {
        let (recorder, _supervisor) = Door::pair().unwrap();
        let error = recorder
            .receive::<Reply>(Some(Duration::from_millis(1)))
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
