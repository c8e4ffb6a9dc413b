//! Runs of the command, one after the other: when each began and ended, and how.

use std::collections::VecDeque;

use rawstack_format::record::Run;

use crate::command::Command;
use crate::error::Result;
use crate::host::monotonic_ns;
use crate::options::Options;

/// The runs, those that are over, the one that goes on, and those to come.
#[derive(Debug)]
pub(crate) struct Runs<'a> {
    options: &'a Options,
    /// The command of the run that goes on, or has just ended.
    command: Option<Command>,
    /// Those of later runs, each stopped before its first instruction: once the recording goes on there is no right to
    /// start anything.
    waiting: VecDeque<Command>,
    rows: Vec<Run>,
    /// First status that is not 0.
    bad_status: Option<i32>,
}

impl<'a> Runs<'a> {
    /// Start the commands of all runs, stopped; without a command there are none.
    pub(crate) fn start(options: &'a Options) -> Result<Self> {
        let mut runs = Self {
            options,
            command: None,
            waiting: VecDeque::new(),
            rows: Vec::new(),
            bad_status: None,
        };
        let count = if options.command.is_empty() {
            0
        } else {
            options.runs
        };
        for _ in 0..count {
            match Command::start_stopped(&options.command) {
                Ok(command) => runs.waiting.push_back(command),
                Err(error) => {
                    runs.terminate();
                    return Err(error);
                }
            }
        }
        Ok(runs)
    }

    /// The commands that wait.
    pub(crate) fn commands(&self) -> impl Iterator<Item = &Command> {
        self.waiting.iter()
    }

    /// Let the next command run. Its row, `None` where there is none.
    pub(crate) fn release(&mut self) -> Result<Option<Run>> {
        let Some(command) = self.waiting.pop_front() else {
            return Ok(None);
        };
        let row = Run {
            run: u32::try_from(self.rows.len()).unwrap_or(u32::MAX),
            start_ns: monotonic_ns(),
            end_ns: 0,
            work: self.options.work.unwrap_or(0.0),
            exit: -1,
        };
        let command = self.command.insert(command);
        command.release()?;
        self.rows.push(row.clone());
        Ok(Some(row))
    }

    /// The row of the run that has ended since the last call.
    pub(crate) fn ended(&mut self) -> Option<Run> {
        let row = self.rows.last_mut().filter(|row| row.end_ns == 0)?;
        let status = self.command.as_mut()?.ended()?;
        (row.end_ns, row.exit) = (monotonic_ns(), status);
        if status != 0 {
            self.bad_status.get_or_insert(status);
        }
        Some(row.clone())
    }

    /// Exit status as from `wait` of the first run that failed, else of the last; `None`: none has ended.
    pub(crate) fn status(&self) -> Option<i32> {
        let ended = self.rows.iter().rfind(|row| row.end_ns > 0);
        self.bad_status.or(ended.map(|row| row.exit))
    }

    /// End the command, if it still runs, and those that never did.
    pub(crate) fn terminate(&mut self) {
        if let Some(command) = &mut self.command {
            command.terminate();
        }
        for command in self.waiting.drain(..) {
            command.discard();
        }
    }
}
