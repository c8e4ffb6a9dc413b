//! Processes that run code of their own making, for those who read the maps of it.

use std::mem;

use super::Processes;
use crate::jit::Source;

/// What those who read JIT maps should know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JitChange {
    /// A process that has run code of no file was seen to run.
    Ran(u32),
    /// The process has mapped a jitdump.
    Dumped(u32),
    /// The process's program has ended, by exit or exec.
    Ended {
        /// Process.
        pid: u32,
        /// Number of the program.
        program: u32,
        /// When, monotonic clock.
        time_ns: u64,
    },
}

/// A program that runs code of its own making.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JitProgram {
    /// Process.
    pub(crate) pid: u32,
    /// Number that no other program of the recording has.
    pub(crate) number: u32,
    /// Start of the process, monotonic clock; 0 where not known.
    pub(crate) start_ns: u64,
    /// Start of the program in it; 0 where not known.
    pub(crate) since_ns: u64,
    /// End of the process.
    pub(crate) ended_ns: Option<u64>,
}

impl Processes {
    pub(super) fn end_program(&mut self, pid: u32, time_ns: u64) {
        let process = self.processes.get(&pid);
        if let Some(program) = process.and_then(|process| process.programs.last())
            && program.is_jit
        {
            let program = program.number;
            self.jit_changes.push(JitChange::Ended {
                pid,
                program,
                time_ns,
            });
        }
    }

    /// The process runs code of no file.
    pub(crate) fn mark_jit(&mut self, pid: u32) {
        let process = self.processes.get_mut(&pid);
        if let Some(program) = process.and_then(|process| process.programs.last_mut()) {
            program.is_jit = true;
            self.tell_jit(pid);
        }
    }

    fn tell_jit(&mut self, pid: u32) {
        if self.jit_ran.insert(pid) {
            self.jit_changes.push(JitChange::Ran(pid));
        }
    }

    /// The process was seen to run.
    pub(crate) fn mark_ran(&mut self, pid: u32) {
        let process = self.processes.get(&pid);
        let program = process.and_then(|process| process.programs.last());
        if program.is_some_and(|program| program.is_jit) {
            self.tell_jit(pid);
        }
    }

    /// What became of processes that run code of no file, since the last call.
    pub(crate) fn take_jit_changes(&mut self) -> Vec<JitChange> {
        self.jit_ran.clear();
        mem::take(&mut self.jit_changes)
    }

    /// The present program of a process.
    pub(crate) fn jit_program(&self, pid: u32) -> Option<JitProgram> {
        let process = self.processes.get(&pid)?;
        let program = process.programs.last()?;
        Some(JitProgram {
            pid,
            number: program.number,
            start_ns: process.start_ns,
            since_ns: program.since_ns,
            ended_ns: process.exited_ns,
        })
    }

    /// Paths of the jitdumps that the process has mapped, as it sees them.
    pub(crate) fn jit_dumps(&self, pid: u32) -> Vec<Vec<u8>> {
        let program = self
            .processes
            .get(&pid)
            .and_then(|process| process.programs.last());
        let paths = program
            .into_iter()
            .flat_map(|program| program.mappings.values());
        let dumps = paths.filter(|mapping| Source::is_jit_dump(&mapping.path));
        dumps.map(|mapping| mapping.path.to_vec()).collect()
    }
}
