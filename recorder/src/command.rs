//! The command to record: started stopped, released when all is attached, so that its first instruction counts.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{self, Child, ExitStatus};

use rustix::fs::{Access, access};
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid,
};

use crate::error::{Error, Result};

/// First argument by which this program knows that it is to become a command.
const BECOME: &str = "--rawstack-become-command";

/// A started command.
#[derive(Debug)]
pub(crate) struct Command {
    child: Child,
    status: Option<ExitStatus>,
}

impl Command {
    /// Start `words`, stopped before its first instruction.
    ///
    /// What starts is this program again, which stops itself and then becomes the command: see [`become_command`].
    pub(crate) fn start_stopped(words: &[OsString]) -> Result<Self> {
        let Some(name) = words.first() else {
            return Err(Error::NoCommand(String::new()));
        };
        let shown = name.to_string_lossy().into_owned();
        let path = find(name).ok_or_else(|| Error::NoCommand(shown.clone()))?;
        let command_error = |error| Error::Command {
            command: shown.clone(),
            error,
        };
        let child = process::Command::new("/proc/self/exe")
            .arg0("rawstack-record")
            .arg(BECOME)
            .arg(path)
            .args(words)
            .spawn()
            .map_err(command_error)?;
        let command = Self {
            child,
            status: None,
        };
        let status = waitpid(Some(command.pid()), WaitOptions::UNTRACED)
            .map_err(|error| command_error(error.into()))?;
        if !status.is_some_and(|(_, status)| status.stopped()) {
            return Err(command_error(std::io::ErrorKind::BrokenPipe.into()));
        }
        Ok(command)
    }

    /// Its process ID.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Let it run.
    pub(crate) fn release(&self) -> Result<()> {
        kill_process(self.pid(), Signal::CONT).map_err(|error| Error::System {
            action: "release the command",
            error: error.into(),
        })
    }

    /// Its exit status as from `wait`, once it has ended.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status.map(ExitStatusExt::into_raw)
    }

    /// End it before it ever ran: being stopped, it hears of nothing else.
    pub(crate) fn discard(mut self) {
        _ = self.child.kill(); // an error says that it has ended
        _ = self.child.wait();
    }

    /// End it, if it still runs.
    pub(crate) fn terminate(&mut self) {
        if self.ended().is_none() {
            // It may just have ended by itself.
            let _ = kill_process(self.pid(), Signal::TERM);
        }
    }
}

/// The exit code that a shell would show for a status as from `wait`.
pub fn exit_code(status: i32) -> u8 {
    let status = ExitStatus::from_raw(status);
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code & 0xff).unwrap_or(1)
}

/// Where a shell would find the command.
fn find(name: &OsStr) -> Option<PathBuf> {
    let is_program = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if Path::new(name).components().count() > 1 || name.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| is_program(path));
    }
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| is_program(path))
}

/// If this process was started to become a command: stop, and on release execute it. Returns only where it was not.
pub fn become_command() {
    let mut words = env::args_os().skip(1);
    if words.next().as_deref() != Some(OsStr::new(BECOME)) {
        return;
    }
    let (Some(path), Some(name)) = (words.next(), words.next()) else {
        process::exit(2)
    };
    // Should the recorder die before the release, nobody would ever wake this process.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let _ = kill_process(rustix::process::getpid(), Signal::STOP);
    let _ = set_parent_process_death_signal(None);
    let error = process::Command::new(&path).arg0(&name).args(words).exec();
    eprintln!(
        "rawstack-record: failed to execute {}: {error}; check that it is a program",
        path.display()
    );
    process::exit(127);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a command is found as a shell would find it, and a folder or data file is none.
    #[test]
    fn found() {
        assert!(find(OsStr::new("sh")).is_some());
        assert!(find(OsStr::new("/bin/sh")).is_some());
        assert_eq!(find(OsStr::new("/etc/passwd")), None);
        assert_eq!(find(OsStr::new("no-such-command-at-all")), None);
        assert_eq!(find(OsStr::new("/")), None);
    }

    /// Check that exit codes are a shell's: the code itself, or 128 and the signal.
    #[test]
    fn exit_codes() {
        assert_eq!(exit_code(3 << 8), 3);
        assert_eq!(exit_code(9), 137);
        assert_eq!(exit_code(0), 0);
    }
}
