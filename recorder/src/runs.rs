//! Runs of the command, one after the other: when each began and ended, and how.

use rawstack_format::record::Run;

use crate::command::Command;
use crate::error::Result;
use crate::host::monotonic_ns;
use crate::options::Options;

/// The runs, those that are over and the one that goes on.
#[derive(Debug)]
pub(crate) struct Runs<'a> {
    options: &'a Options,
    command: Option<Command>,
    rows: Vec<Run>,
    /// First status that is not 0.
    bad_status: Option<i32>,
}

impl<'a> Runs<'a> {
    /// Start the first run, stopped before its first instruction; without a command there is none.
    pub(crate) fn start(options: &'a Options) -> Result<Self> {
        let command = match options.command.as_slice() {
            [] => None,
            words => Some(Command::start_stopped(words)?),
        };
        Ok(Self {
            options,
            command,
            rows: Vec::new(),
            bad_status: None,
        })
    }

    /// The command of the run that goes on, or has just ended.
    pub(crate) fn command(&self) -> Option<&Command> {
        self.command.as_ref()
    }

    /// Let the command run. Its row, `None` without a command.
    pub(crate) fn release(&mut self) -> Result<Option<Run>> {
        let Some(command) = &self.command else {
            return Ok(None);
        };
        let row = Run {
            run: u32::try_from(self.rows.len()).unwrap_or(u32::MAX),
            start_ns: monotonic_ns(),
            end_ns: 0,
            work: self.options.work.unwrap_or(0.0),
            exit: -1,
        };
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

    /// Start the next run, stopped; `false`: that was the last.
    pub(crate) fn start_next(&mut self) -> Result<bool> {
        if self.rows.len() >= usize::try_from(self.options.runs).unwrap_or(usize::MAX) {
            return Ok(false);
        }
        self.command = Some(Command::start_stopped(&self.options.command)?);
        Ok(true)
    }

    /// Exit status as from `wait` of the first run that failed, else of the last; `None`: none has ended.
    pub(crate) fn status(&self) -> Option<i32> {
        let ended = self.rows.iter().rfind(|row| row.end_ns > 0);
        self.bad_status.or(ended.map(|row| row.exit))
    }

    /// End the command, if it still runs.
    pub(crate) fn terminate(&mut self) {
        if let Some(command) = &mut self.command {
            command.terminate();
        }
    }
}
