//! One connection to the helper: a door to the supervisor, a worker, and how long to wait for it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::account::Account;
use super::door::{Door, Order, Reply};
use super::patience::{DEADLINE, Patience, SLOW_DEADLINE, Suspect};
use super::wire::{Answer, Inbox, MAX_ANSWER, MAX_REQUEST, Request, send};

/// How long the helper may take to start.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How often a late worker is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// The connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) door: Door,
    worker: Option<Worker>,
    /// Another worker has been ordered and has not come.
    is_ordered: bool,
    patience: Patience,
    number: u32,
    account: Account,
}

#[derive(Debug)]
struct Worker {
    socket: UnixStream,
    stat: File,
    inbox: Inbox,
}

/// Why there is no answer.
#[derive(Debug)]
enum Silence {
    /// The deadline passed.
    Hung,
    /// The worker ended.
    Crashed,
}

impl Connection {
    /// Have a worker behind this door.
    pub(super) fn new(door: Door) -> io::Result<Self> {
        let mut connection = Self {
            door,
            worker: None,
            is_ordered: false,
            patience: Patience::new(Instant::now()),
            number: 0,
            account: Account::default(),
        };
        connection.take_worker(START_LIMIT)?;
        Ok(connection)
    }

    /// What was not answered.
    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    /// Ask, unless one of `suspects` hung of late. `None`: there is no answer.
    pub(super) fn ask(&mut self, request: &Request, suspects: &[Suspect]) -> Option<Answer> {
        let start = Instant::now();
        if self.account.lost.is_some() {
            return None;
        }
        if !self.patience.allows(suspects, start) {
            self.account.withheld += 1;
            return None;
        }
        if let Err(error) = self.take_worker(SLOW_DEADLINE) {
            self.miss_worker(&error);
            return None;
        }
        match self.exchange(request) {
            Ok(answer) => {
                self.patience.answered(suspects);
                Some(answer)
            }
            Err(silence) => {
                match silence {
                    Silence::Hung => self.account.hung += 1,
                    Silence::Crashed => self.account.crashed += 1,
                }
                let now = Instant::now();
                self.patience.hung(suspects, now - start, now);
                self.worker = None;
                self.order_worker();
                None
            }
        }
    }

    /// Have the worker killed, if there is one, and another started: it comes with [`take_worker`](Self::take_worker).
    fn order_worker(&mut self) {
        // A supervisor that is gone is found out when its reply is awaited.
        _ = self.door.send(&Order::Worker, &[]);
        self.is_ordered = true;
    }

    /// Have a worker.
    fn take_worker(&mut self, limit: Duration) -> io::Result<()> {
        if self.worker.is_some() {
            return Ok(());
        }
        if !self.is_ordered {
            self.order_worker();
        }
        let (reply, descriptors) = self.door.receive::<Reply>(Some(limit))?;
        self.is_ordered = false;
        if let Reply::Failed(reason) = reply {
            return Err(io::Error::other(reason));
        }
        let [socket, stat] = <[OwnedFd; 2]>::try_from(descriptors)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        let socket = UnixStream::from(socket);
        socket.set_read_timeout(Some(LOOK))?;
        self.worker = Some(Worker {
            socket,
            stat: File::from(stat),
            inbox: Inbox::default(),
        });
        Ok(())
    }

    /// No worker came.
    fn miss_worker(&mut self, error: &io::Error) {
        match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::Other => {
                // The supervisor is there, and may have one later.
                let now = Instant::now();
                self.patience.hung(&[], SLOW_DEADLINE, now);
                self.account.withheld += 1;
            }
            io::ErrorKind::UnexpectedEof => {
                self.account.lost = Some("it ended by itself".to_owned());
            }
            _ => self.account.lost = Some(error.to_string()),
        }
    }

    fn exchange(&mut self, request: &Request) -> std::result::Result<Answer, Silence> {
        self.number = self.number.wrapping_add(1);
        let number = self.number;
        let Some(worker) = &mut self.worker else {
            return Err(Silence::Crashed);
        };
        worker.inbox.clear();
        send(&worker.socket, number, request, MAX_REQUEST).map_err(|_| Silence::Crashed)?;
        let start = Instant::now();
        loop {
            match worker.inbox.read(&worker.socket, MAX_ANSWER) {
                Ok(Some((answered, answer))) if answered == number => return Ok(answer),
                Ok(Some(_)) => return Err(Silence::Crashed),
                Ok(None) => {}
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                    _ => return Err(Silence::Crashed),
                },
            }
            let waited = start.elapsed();
            if waited >= SLOW_DEADLINE || (waited >= DEADLINE && !worker.is_running()) {
                return Err(Silence::Hung);
            }
        }
    }
}

impl Worker {
    /// Whether it computes, or would if it got a CPU: then it is slow, and not blocked.
    fn is_running(&self) -> bool {
        let mut bytes = [0; 256];
        let length = self.stat.read_at(&mut bytes, 0).unwrap_or(0);
        let line = bytes.get(..length).unwrap_or_default();
        let state = line.rsplit(|&byte| byte == b')').next();
        state.is_some_and(|state| state.starts_with(b" R"))
    }
}
