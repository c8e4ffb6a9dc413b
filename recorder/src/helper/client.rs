//! The recorder's side: asks one thing at a time, waits at most the deadline, and goes on without an answer.

use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rawstack_bpf::Programs;

use super::SUPERVISE;
use super::account::Account;
use super::archives::ArchiveDoor;
use super::connection::Connection;
use super::cpus::CpuDoor;
use super::door::{Door, Order, Reply};
use super::patience::Suspect;
use super::wire::{Answer, FileFacts, FileRequest, ProcessAnswer, Request};
use crate::error::{Error, Result};
use crate::proc_fs::{Maps, ProcessFacts};

/// Processes in one request.
const CHUNK: usize = 32;

/// The helper, from the recorder's side. `default()` is one that answers nothing.
#[derive(Debug, Default)]
pub(crate) struct Helper {
    connection: RefCell<Option<Connection>>,
    /// Held, so that its end is nobody else's.
    _supervisor: Option<Child>,
}

impl Helper {
    /// Start it.
    pub(crate) fn start() -> Result<Self> {
        let start = || {
            let (door, theirs) = Door::pair()?;
            let supervisor = Command::new("/proc/self/exe")
                .arg0("rawstack-record")
                .arg(SUPERVISE)
                .stdin(theirs)
                .stdout(Stdio::null())
                // Ctrl-C is for the recorder alone.
                .process_group(0)
                .spawn()?;
            Ok(Self {
                connection: RefCell::new(Some(Connection::new(door)?)),
                _supervisor: Some(supervisor),
            })
        };
        start().map_err(|error| Error::System {
            action: "start the helper process",
            error,
        })
    }

    /// Have the events of `programs`, and the side-band's, opened on CPUs that come later.
    pub(crate) fn watch_cpus(&self, programs: &Programs<'_>, build_ids: bool) -> Result<CpuDoor> {
        let door = self.open_door().map_err(|error| Error::System {
            action: "reach the helper process",
            error,
        })?;
        CpuDoor::new(door, programs, build_ids)
    }

    /// Another connection, with a worker of its own: for another thread. Only before [`seal`](Self::seal).
    pub(crate) fn connect(&self) -> io::Result<Connection> {
        Connection::new(self.open_door()?)
    }

    /// Have archives created from now on, with these names: see [`Names::numbered`](crate::output::names::Names).
    pub(crate) fn make_archives(
        &self,
        output: &Path,
        force: bool,
        keep: Option<u32>,
    ) -> io::Result<ArchiveDoor> {
        ArchiveDoor::new(self.open_door()?, output, force, keep)
    }

    /// The helper agrees to nothing new from here on, and keeps only the rights that it needs for what it agreed to.
    pub(crate) fn seal(&self) -> io::Result<()> {
        let connection = self.connection.borrow();
        let Some(own) = connection.as_ref() else {
            return Ok(());
        };
        own.door.send(&Order::Seal, &[])?;
        match own.door.receive::<Reply>(None)?.0 {
            Reply::Done => Ok(()),
            reply => Err(reply.into_error()),
        }
    }

    fn open_door(&self) -> io::Result<Door> {
        let connection = self.connection.borrow();
        let gone = || io::Error::from(io::ErrorKind::NotConnected);
        let own = connection.as_ref().ok_or_else(gone)?;
        let (door, theirs) = Door::pair()?;
        own.door.send(&Order::Listen, &[theirs.as_fd()])?;
        Ok(door)
    }

    /// What it did not answer.
    pub(crate) fn account(&self) -> Account {
        let connection = self.connection.borrow();
        let account = connection.as_ref().map(Connection::account);
        account.cloned().unwrap_or_default()
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

    /// The executable mappings of a process now; `None` for one that is gone, closed or did not answer.
    pub(crate) fn maps(&self, pid: u32) -> Option<Maps> {
        match self.ask(&Request::Maps(pid), &[Suspect::Process(pid)])? {
            Answer::Maps(maps) => maps,
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
        let mut connection = self.connection.borrow_mut();
        connection.as_mut()?.ask(request, suspects)
    }
}
