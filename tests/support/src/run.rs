//! Commands with a deadline, whose output is told when they fail.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a command may take when nothing else is said.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(60);

/// How often a running command is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A command to run.
#[derive(Debug)]
pub struct Run {
    command: Command,
    deadline: Duration,
    input: Option<Vec<u8>>,
}

/// A command that runs. It is killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    line: String,
    started: Instant,
    deadline: Duration,
    stdout: File,
    stderr: File,
}

/// What a command left behind.
#[derive(Debug)]
pub struct Output {
    /// The command with its arguments, for messages.
    pub line: String,
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

impl Run {
    /// Run `program`, a path or a name to be found on PATH.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(program);
        command.env("NO_COLOR", "1").env("LC_ALL", "C.UTF-8");
        // No folder can be made there: tests leave no results in the user's cache.
        command.env("XDG_CACHE_HOME", "/dev/null");
        Self {
            command,
            deadline: DEFAULT_DEADLINE,
            input: None,
        }
    }

    /// Add an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Add arguments.
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(args);
        self
    }

    /// Set an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Run in `dir`.
    pub fn current_dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Kill the command and fail when it has not ended after `deadline`.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Give `input` on standard input, which is empty otherwise.
    pub fn input(mut self, input: impl Into<Vec<u8>>) -> Self {
        self.input = Some(input.into());
        self
    }

    /// Start the command and let it run.
    pub fn spawn(mut self) -> Running {
        let line = line_of(&self.command);
        // Files and not pipes: a grandchild that outlives the command cannot hold the test up.
        let (stdout, stderr) = (scratch_file(), scratch_file());
        let stdin = match &self.input {
            None => Stdio::null(),
            Some(input) => {
                let mut file = scratch_file();
                file.write_all(input)
                    .and_then(|()| file.rewind())
                    .unwrap_or_else(|err| panic!("{line}: input: {err}"));
                file.into()
            }
        };
        let child = self
            .command
            .stdin(stdin)
            .stdout(same_file(&stdout))
            .stderr(same_file(&stderr))
            .spawn()
            .unwrap_or_else(|err| panic!("failed to start {line}: {err}"));
        Running {
            child,
            line,
            started: Instant::now(),
            deadline: self.deadline,
            stdout,
            stderr,
        }
    }

    /// Run the command to its end.
    pub fn output(self) -> Output {
        self.spawn().wait()
    }

    /// Run the command to its end, which must be exit code 0.
    pub fn success(self) -> Output {
        self.output().success()
    }
}

impl Running {
    /// Process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Send a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal)
            .unwrap_or_else(|err| panic!("failed to signal {}: {err}", self.line));
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child
            .try_wait()
            .unwrap_or_else(|err| panic!("failed to wait for {}: {err}", self.line))
            .is_some()
    }

    /// Wait until `condition` holds; fail when the command ends or the deadline passes before.
    pub fn wait_until(&mut self, what: &str, mut condition: impl FnMut() -> bool) {
        while !condition() {
            if self.has_ended() || self.started.elapsed() > self.deadline {
                let stderr = read_all(&mut self.stderr);
                panic!(
                    "{}: ended or took too long before: {what}\nstderr:\n{stderr}",
                    self.line
                );
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Whether it wrote `words` to standard error by now.
    pub fn has_said(&self, words: &str) -> bool {
        let length = self.stderr.metadata().map_or(0, |metadata| metadata.len());
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        // At a position of its own: the command writes through the same file.
        let read = self.stderr.read_at(&mut bytes, 0).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..read]).contains(words)
    }

    /// Wait for the end.
    pub fn wait(mut self) -> Output {
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if self.started.elapsed() > self.deadline => {
                    let (stdout, stderr) = (read_all(&mut self.stdout), read_all(&mut self.stderr));
                    let (line, deadline) = (&self.line, self.deadline);
                    panic!(
                        "{line}: still runs after {deadline:?}\nstdout:\n{stdout}\nstderr:\n{stderr}"
                    );
                }
                Ok(None) => thread::sleep(POLL_INTERVAL),
                Err(err) => panic!("failed to wait for {}: {err}", self.line),
            }
        };
        let (stdout, stderr) = (read_all(&mut self.stdout), read_all(&mut self.stderr));
        Output {
            line: self.line.clone(),
            status,
            stdout,
            stderr,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // An error says that it ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Output {
    /// Fail unless the exit code is `code`.
    pub fn code(self, code: i32) -> Self {
        assert!(
            self.status.code() == Some(code),
            "{}\nended with {}, expected exit code {code}\nstdout:\n{}\nstderr:\n{}",
            self.line,
            self.status,
            self.stdout,
            self.stderr
        );
        self
    }

    /// Fail unless the exit code is 0.
    pub fn success(self) -> Self {
        self.code(0)
    }

    /// Number of the signal that ended the command, if one did.
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// Fail unless standard error is one line that holds all `words`: how errors are told.
    pub fn one_line_error(&self, words: &[&str]) {
        let lines = self.stderr.trim_end().lines().count();
        let missing: Vec<_> = words
            .iter()
            .filter(|word| !self.stderr.contains(**word))
            .collect();
        assert!(
            lines == 1 && missing.is_empty() && !self.stderr.contains("panicked"),
            "{}\nexpected one line with {words:?} on stderr, got {lines}:\n{}",
            self.line,
            self.stderr
        );
    }
}

/// The command as a person would type it.
fn line_of(command: &Command) -> String {
    let words = [command.get_program()]
        .into_iter()
        .chain(command.get_args());
    words
        .map(OsStr::to_string_lossy)
        .collect::<Vec<_>>()
        .join(" ")
}

fn scratch_file() -> File {
    tempfile::tempfile().unwrap_or_else(|err| panic!("failed to make a temporary file: {err}"))
}

fn same_file(file: &File) -> File {
    file.try_clone()
        .unwrap_or_else(|err| panic!("failed to share a temporary file: {err}"))
}

/// All that was written to `file`, bytes that are no UTF-8 replaced.
fn read_all(file: &mut File) -> String {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))
        .and_then(|_| file.read_to_end(&mut bytes))
        .unwrap_or_else(|err| panic!("failed to read a command's output: {err}"));
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that both outputs, the input and the exit code come through.
    #[test]
    fn output_and_code() {
        let output = Run::new("sh")
            .args(["-c", "cat; echo no >&2; exit 3"])
            .input("yes")
            .output()
            .code(3);
        assert_eq!(
            (output.stdout.as_str(), output.stderr.as_str()),
            ("yes", "no\n")
        );
        output.one_line_error(&["no"]);
    }

    /// Check that a command past its deadline fails the test, and tells what it said until then.
    #[test]
    #[should_panic(expected = "still runs after 200ms\nstdout:\nwaiting")]
    fn deadline() {
        Run::new("sh")
            .args(["-c", "echo waiting; exec sleep 60"])
            .deadline(Duration::from_millis(200))
            .output();
    }

    /// Check that a signal arrives and is told.
    #[test]
    fn signalled() {
        let running = Run::new("sleep").arg("60").spawn();
        running.signal(Signal::TERM);
        assert_eq!(running.wait().signal(), Some(Signal::TERM.as_raw()));
    }
}
