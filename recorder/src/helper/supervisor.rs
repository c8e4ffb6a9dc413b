//! The process that starts and kills workers, and creates archives. It opens nothing that a recorded process could have
//! prepared.

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
use rustix::thread::CapabilitySet;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::flag;

use super::WORK;
use super::archives::Archives;
use super::cpus::Counters;
use super::door::{Door, Order, Reply};
use crate::privilege::{CREATING, READING, counting, keep_only};

/// Killed workers that a file system still holds; with more of them there are no new ones.
const MAX_STUCK: usize = 8;

/// Do what the recorder orders, until it ends.
pub(super) fn run() -> io::Result<()> {
    let door = Door::new(io::stdin().as_fd().try_clone_to_owned()?);
    keep_only(READING | CREATING | counting() | CapabilitySet::SETPCAP)?;
    // It ends with the recorder, which has its own way to end, and not before.
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2] {
        flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let mut desks = vec![Desk::new(door)];
    let mut is_sealed = false;
    // The first door is the recorder itself: with it all ends.
    while desks.first().is_some_and(|desk| !desk.is_closed) {
        let called = wait(&desks)?;
        let mut opened = Vec::new();
        for (desk, _) in desks.iter_mut().zip(called).filter(|(_, called)| *called) {
            match desk.serve(is_sealed) {
                Served::Plain => {}
                Served::Opened(doors) => opened.extend(doors),
                Served::Seal => is_sealed = true,
            }
        }
        desks.extend(opened.into_iter().map(Door::new).map(Desk::new));
        if is_sealed {
            seal(&mut desks)?;
        }
        let mut number = 0;
        desks.retain(|desk| {
            number += 1;
            number == 1 || !desk.is_closed
        });
    }
    Ok(())
}

/// Which doors somebody is at.
fn wait(desks: &[Desk]) -> io::Result<Vec<bool>> {
    let mut doors: Vec<_> = desks
        .iter()
        .map(|desk| PollFd::new(&desk.door, PollFlags::IN))
        .collect();
    match poll(&mut doors, None) {
        Ok(_) => Ok(doors
            .iter()
            .map(|door| !door.revents().is_empty())
            .collect()),
        Err(Errno::INTR) => Ok(vec![false; desks.len()]),
        Err(error) => Err(error.into()),
    }
}

/// Keep only the rights that are needed for what was agreed on, and say so to who waits for it.
fn seal(desks: &mut [Desk]) -> io::Result<()> {
    if desks.iter().any(|desk| desk.is_sealing) {
        let mut kept = READING;
        if desks.iter().any(|desk| desk.archives.is_some()) {
            kept |= CREATING;
        }
        if desks.iter().any(|desk| desk.counters.is_some()) {
            kept |= counting();
        }
        keep_only(kept)?;
    }
    for desk in desks.iter_mut().filter(|desk| desk.is_sealing) {
        desk.is_sealing = false;
        desk.is_closed = desk.door.send(&Reply::Done, &[]).is_err();
    }
    Ok(())
}

/// What came of serving.
enum Served {
    Plain,
    /// Doors that are to be listened at, too.
    Opened(Vec<OwnedFd>),
    Seal,
}

/// One door, with its worker and what else was agreed on here.
#[derive(Debug)]
struct Desk {
    door: Door,
    workers: Workers,
    archives: Option<Archives>,
    counters: Option<Counters>,
    is_sealing: bool,
    is_closed: bool,
}

impl Desk {
    fn new(door: Door) -> Self {
        Self {
            door,
            workers: Workers::default(),
            archives: None,
            counters: None,
            is_sealing: false,
            is_closed: false,
        }
    }

    /// Do one thing that is ordered here.
    fn serve(&mut self, is_sealed: bool) -> Served {
        let Ok((order, descriptors)) = self.door.receive::<Order>(None) else {
            // Who ordered has ended, or speaks another language.
            self.is_closed = true;
            return Served::Plain;
        };
        let refused = || (Reply::Failed("it was not agreed on".to_owned()), Vec::new());
        let (reply, descriptors) = match order {
            Order::Listen if !is_sealed => return Served::Opened(descriptors),
            Order::Seal => {
                self.is_sealing = true;
                return Served::Seal;
            }
            Order::Worker => match self.workers.start_another() {
                Ok(descriptors) => (Reply::Done, descriptors),
                Err(error) => (Reply::Failed(error.to_string()), Vec::new()),
            },
            Order::Archives {
                output,
                force,
                keep,
            } if !is_sealed => {
                let archives = self.archives.insert(Archives::new(output, force, keep));
                (archives.next(), Vec::new())
            }
            Order::NextArchive => self
                .archives
                .as_mut()
                .map_or_else(refused, Archives::create),
            Order::TakeBackArchive => match &mut self.archives {
                Some(archives) => (archives.take_back(), Vec::new()),
                None => refused(),
            },
            Order::Counters {
                counters,
                build_ids,
            } if !is_sealed => {
                self.counters = Some(Counters::new(counters, descriptors, build_ids));
                (Reply::Done, Vec::new())
            }
            Order::Cpu { cpu, counts } => match &mut self.counters {
                Some(counters) => counters.open(cpu, counts),
                None => refused(),
            },
            Order::Listen | Order::Archives { .. } | Order::Counters { .. } => refused(),
        };
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        self.is_closed = self.door.send(&reply, &borrowed).is_err();
        Served::Plain
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
