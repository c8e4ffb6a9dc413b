//! The recorder's side: asks one thing at a time, waits at most the deadline, and goes on without an answer.

use std::cell::RefCell;
use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::SUPERVISE;
use super::door::{Door, Order, Reply};
use super::patience::{DEADLINE, Patience, SLOW_DEADLINE, Suspect};
use super::wire::{
    Answer, FileFacts, FileRequest, Inbox, MAX_ANSWER, MAX_REQUEST, ProcessAnswer, Request, send,
};
use crate::error::{Error, Result};
use crate::proc_fs::{MapsLine, ProcessFacts};

/// How long the helper may take to start.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Processes in one request.
const CHUNK: usize = 32;
/// How often a late worker is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// What was not answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// Requests that took too long.
    pub(crate) hung: u64,
    /// Requests that were not made since their like had hung.
    pub(crate) withheld: u64,
    /// Requests at which the worker ended.
    pub(crate) crashed: u64,
    /// Why there is no helper any more.
    pub(crate) lost: Option<String>,
}

impl Display for Account {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.hung, "took too long"),
            (self.withheld, "not asked since such hung"),
            (self.crashed, "crashed the reader"),
        ];
        let told = counts.iter().filter(|(count, _)| *count > 0);
        let mut told: Vec<_> = told
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if !told.is_empty() {
            told.insert(0, "questions about processes or files".to_owned());
        }
        if let Some(reason) = &self.lost {
            told.push(format!("the helper process is gone: {reason}"));
        }
        write!(f, "{}", told.join(", ").replacen("files, ", "files: ", 1))
    }
}

/// The helper, from the recorder's side. `default()` is one that answers nothing.
#[derive(Debug, Default)]
pub(crate) struct Helper {
    state: RefCell<Option<State>>,
}

#[derive(Debug)]
struct State {
    door: Door,
    /// Held, so that its end is nobody else's.
    _supervisor: Child,
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

impl Helper {
    /// Start it.
    pub(crate) fn start() -> Result<Self> {
        let system_error = |error| Error::System {
            action: "start the helper process",
            error,
        };
        let mut state = State::start().map_err(system_error)?;
        state.take_worker(START_LIMIT).map_err(system_error)?;
        Ok(Self {
            state: RefCell::new(Some(state)),
        })
    }

    /// What it did not answer.
    pub(crate) fn account(&self) -> Account {
        let state = self.state.borrow();
        state
            .as_ref()
            .map_or_else(Account::default, |state| state.account.clone())
    }

    /// All processes there are.
    pub(crate) fn pids(&self) -> Vec<u32> {
        match self.ask(&Request::Pids, &[]) {
            Some(Answer::Pids(pids)) => pids,
            _ => Vec::new(),
        }
    }

    /// Facts and mappings of a process; `None` for one that is gone or did not answer.
    pub(crate) fn process(&self, pid: u32) -> Option<ProcessAnswer> {
        let suspects = [Suspect::Process(pid)];
        match self.ask(&Request::Processes(vec![pid]), &suspects)? {
            Answer::Processes(mut answers) => answers.pop()?,
            _ => None,
        }
    }

    /// The same of many at once, handed out one by one.
    pub(crate) fn processes(&self, pids: &[u32], mut take: impl FnMut(u32, ProcessAnswer)) {
        let mut rest = pids;
        while !rest.is_empty() {
            let chunk = rest.get(..CHUNK).unwrap_or(rest);
            let answers = match self.ask(&Request::Processes(chunk.to_vec()), &[]) {
                Some(Answer::Processes(answers)) if !answers.is_empty() => answers,
                // One of them hangs: ask each by itself.
                _ => chunk.iter().map(|&pid| self.process(pid)).collect(),
            };
            for (&pid, answer) in chunk.iter().zip(&answers) {
                if let Some(answer) = answer.clone() {
                    take(pid, answer);
                }
            }
            rest = rest.get(answers.len()..).unwrap_or_default();
        }
    }

    /// Facts of a process; `None` for one that is gone or did not answer.
    pub(crate) fn facts(&self, pid: u32) -> Option<ProcessFacts> {
        match self.ask(&Request::Facts(vec![pid]), &[Suspect::Process(pid)])? {
            Answer::Facts(mut facts) => facts.pop()?,
            _ => None,
        }
    }

    /// The name of a thread.
    pub(crate) fn thread_name(&self, pid: u32, tid: u32) -> Option<Vec<u8>> {
        let request = Request::ThreadName { pid, tid };
        match self.ask(&request, &[Suspect::Process(pid)])? {
            Answer::ThreadName(name) => name,
            _ => None,
        }
    }

    /// The executable mapping of a process that holds an address now.
    pub(crate) fn mapping(&self, pid: u32, address: u64) -> Option<MapsLine> {
        let request = Request::Mapping { pid, address };
        match self.ask(&request, &[Suspect::Process(pid)])? {
            Answer::Mapping(line) => line,
            _ => None,
        }
    }

    /// What the file behind a mapping is; `None` without an answer, `Some(None)` where it cannot be had.
    pub(crate) fn file(&self, request: FileRequest) -> Option<Option<FileFacts>> {
        let (pid, (major, minor, inode)) = (request.pid, request.file);
        let suspects = [Suspect::Process(pid), Suspect::Device(major, minor)];
        let known = if inode == 0 { 1 } else { 2 };
        let suspects = suspects.get(..known).unwrap_or_default();
        match self.ask(&Request::File(request), suspects)? {
            Answer::File(facts) => Some(facts),
            _ => None,
        }
    }

    fn ask(&self, request: &Request, suspects: &[Suspect]) -> Option<Answer> {
        let mut state = self.state.borrow_mut();
        let state = state.as_mut()?;
        let start = Instant::now();
        if state.account.lost.is_some() {
            return None;
        }
        if !state.patience.allows(suspects, start) {
            state.account.withheld += 1;
            return None;
        }
        if let Err(error) = state.take_worker(SLOW_DEADLINE) {
            state.miss_worker(&error);
            return None;
        }
        match state.exchange(request) {
            Ok(answer) => {
                state.patience.answered(suspects);
                Some(answer)
            }
            Err(silence) => {
                match silence {
                    Silence::Hung => state.account.hung += 1,
                    Silence::Crashed => state.account.crashed += 1,
                }
                let now = Instant::now();
                state.patience.hung(suspects, now - start, now);
                state.worker = None;
                state.order_worker();
                None
            }
        }
    }
}

impl State {
    fn start() -> io::Result<Self> {
        let (door, theirs) = Door::pair()?;
        let supervisor = Command::new("/proc/self/exe")
            .arg0("rawstack-record")
            .arg(SUPERVISE)
            .stdin(theirs)
            .stdout(Stdio::null())
            // Ctrl-C is for the recorder alone.
            .process_group(0)
            .spawn()?;
        let mut state = Self {
            door,
            _supervisor: supervisor,
            worker: None,
            is_ordered: false,
            patience: Patience::new(Instant::now()),
            number: 0,
            account: Account::default(),
        };
        state.order_worker();
        Ok(state)
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
