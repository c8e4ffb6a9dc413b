//! The process that starts and kills workers. It opens nothing that a recorded process could have prepared.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;

use super::WORK;
use super::door::{Door, Order, Reply};
use crate::privilege::{READING, keep_only};

/// Killed workers that a file system still holds; with more of them there are no new ones.
const MAX_STUCK: usize = 8;

/// Do what the recorder orders, until it ends.
pub(super) fn run() -> io::Result<()> {
    let door = Door::new(io::stdin().as_fd().try_clone_to_owned()?);
    keep_only(READING)?;
    // It ends with the recorder, which has its own way to end, and not before.
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let mut desks = vec![Desk::new(door)];
    // The first door is the recorder itself: with it all ends.
    while desks.first().is_some_and(|desk| !desk.is_closed) {
        let mut doors: Vec<_> = desks
            .iter()
            .map(|desk| PollFd::new(&desk.door, PollFlags::IN))
            .collect();
        match poll(&mut doors, None) {
            Err(Errno::INTR) => continue,
            result => result?,
        };
        let called: Vec<bool> = doors
            .iter()
            .map(|door| !door.revents().is_empty())
            .collect();
        let mut opened = Vec::new();
        for (desk, _) in desks.iter_mut().zip(called).filter(|(_, called)| *called) {
            opened.extend(desk.serve());
        }
        desks.extend(opened.into_iter().map(Door::new).map(Desk::new));
        let mut number = 0;
        desks.retain(|desk| {
            number += 1;
            number == 1 || !desk.is_closed
        });
    }
    Ok(())
}

/// One door with its worker.
#[derive(Debug)]
struct Desk {
    door: Door,
    workers: Workers,
    is_closed: bool,
}

impl Desk {
    fn new(door: Door) -> Self {
        Self {
            door,
            workers: Workers::default(),
            is_closed: false,
        }
    }

    /// Do one thing that is ordered here. Doors that are to be listened at, too.
    fn serve(&mut self) -> Vec<OwnedFd> {
        let Ok((order, descriptors)) = self.door.receive::<Order>(None) else {
            // Who ordered has ended, or speaks another language.
            self.is_closed = true;
            return Vec::new();
        };
        let done = match order {
            Order::Listen => return descriptors,
            Order::Worker => self.workers.start_another(),
        };
        let descriptors = done.as_deref().unwrap_or_default();
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let reply = match &done {
            Ok(_) => Reply::Done,
            Err(error) => Reply::Failed(error.to_string()),
        };
        self.is_closed = self.door.send(&reply, &borrowed).is_err();
        Vec::new()
    }
}

/// The worker, and those before it that have not ended.
#[derive(Debug, Default)]
struct Workers(Vec<Child>);

impl Workers {
    /// Kill what is there and start another: its socket and its `/proc/PID/stat`.
    fn start_another(&mut self) -> io::Result<Vec<OwnedFd>> {
        for worker in &mut self.0 {
            _ = worker.kill(); // an error says that it has ended
        }
        // Never wait for one: a file system may hold it until that answers, which may be never.
        self.0
            .retain_mut(|worker| worker.try_wait().is_ok_and(|status| status.is_none()));
        if self.0.len() > MAX_STUCK {
            return Err(io::Error::other("too many readers hang"));
        }
        let (ours, theirs) = UnixStream::pair()?;
        let worker = Command::new("/proc/self/exe")
            .arg0("rawstack-record")
            .arg(WORK)
            .env_clear()
            .current_dir("/")
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        let stat = File::open(format!("/proc/{}/stat", worker.id()));
        self.0.push(worker);
        Ok(vec![ours.into(), stat?.into()])
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.0 {
            _ = worker.kill(); // an error says that it has ended
        }
    }
}
