//! The process that starts and kills workers. It opens nothing that a recorded process could have prepared.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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
    let mut workers = Workers::default();
    loop {
        let order = match door.receive::<Order>(None) {
            Ok((order, _)) => order,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        let done = match order {
            Order::Worker => workers.start_another(),
        };
        match done {
            Ok(descriptors) => {
                let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
                door.send(&Reply::Done, &borrowed)?;
            }
            Err(error) => door.send(&Reply::Failed(error.to_string()), &[])?,
        }
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
