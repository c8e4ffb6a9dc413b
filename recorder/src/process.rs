//! Processes, their threads and their executable mappings, each as it was at any time that can still be asked for.

use std::collections::VecDeque;
use std::mem;

use hashbrown::{HashMap, HashSet};
use rawstack_bpf::{Change, NewMapping, SideBandEvent};

use crate::jit::Source;
use crate::proc_fs::{self, ProcessFacts};
use crate::program::{Mapping, Program};

/// How long the past is kept behind the last event that was looked at, in nanoseconds.
const PAST_NS: u64 = 2_000_000_000;

/// A process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    /// Parent's process ID.
    pub(crate) parent: u32,
    /// Process ID in its own namespace, 0 while not known.
    pub(crate) namespace_pid: u32,
    /// Start, in nanoseconds; 0 where not known.
    pub(crate) start_ns: u64,
    /// Name of the main thread.
    pub(crate) comm: Vec<u8>,
    /// Path of its cgroup.
    pub(crate) cgroup: String,
    /// When these facts last changed.
    pub(crate) since_ns: u64,
    /// Counts changes of these facts.
    pub(crate) version: u32,
    /// Its programs, the present one last. Never empty.
    programs: Vec<Program>,
    sampled: bool,
    exited_ns: Option<u64>,
}

impl Process {
    fn forget(&mut self, before_ns: u64) {
        let is_past = |program: &Program| program.since_ns < before_ns;
        let present = self.programs.iter().rposition(is_past).unwrap_or(0);
        self.programs.drain(..present);
        self.programs
            .iter_mut()
            .for_each(|program| program.forget(before_ns));
    }

    /// The program that ran at `time_ns`.
    pub(crate) fn program(&self, time_ns: u64) -> Option<&Program> {
        self.programs
            .iter()
            .rev()
            .find(|program| program.since_ns <= time_ns)
            .or_else(|| self.programs.first())
    }
}

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

/// A thread's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Thread {
    /// Process ID.
    pub(crate) pid: u32,
    /// Start, in nanoseconds; 0 where not known.
    pub(crate) start_ns: u64,
    /// Name.
    pub(crate) comm: Vec<u8>,
    /// When these facts last changed.
    pub(crate) since_ns: u64,
    /// Counts changes of these facts.
    pub(crate) version: u32,
    sampled: bool,
    exited_ns: Option<u64>,
}

/// All processes that have been told of or asked for.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    processes: HashMap<u32, Process>,
    threads: HashMap<u32, Thread>,
    /// Ended processes and threads in the order of their ends.
    ended: VecDeque<(u64, u32)>,
    /// Processes with a past to forget, in the order of time.
    changed: VecDeque<(u64, u32)>,
    programs: u32,
    sampled: (u64, u64),
    jit_changes: Vec<JitChange>,
    /// Those told of in `jit_changes` as running.
    jit_ran: HashSet<u32>,
}

impl Processes {
    /// Take in what the side-band told.
    pub(crate) fn apply(&mut self, event: SideBandEvent) {
        let time = event.time_ns;
        match event.change {
            Change::Mapped(new) => self.map(new, time),
            Change::Named {
                pid,
                tid,
                exec,
                name,
            } => self.name(pid, tid, exec, &name, time),
            Change::Forked { pid, tid, parent } => self.fork(pid, tid, parent, time),
            Change::Exited { pid, tid } => self.exit(pid, tid, time),
            _ => {}
        }
    }

    fn next_program(&mut self, since_ns: u64) -> Program {
        self.programs += 1;
        Program {
            number: self.programs,
            since_ns,
            changed_ns: since_ns,
            ..Program::default()
        }
    }

    fn map(&mut self, new: NewMapping, time_ns: u64) {
        // Of a process that is not known yet all mappings are read when it is first asked for.
        let program = self
            .processes
            .get_mut(&new.pid)
            .and_then(|process| process.programs.last_mut());
        if let Some(program) = program {
            self.changed.push_back((time_ns, new.pid));
            if Source::is_jit_dump(&new.path) {
                self.jit_changes.push(JitChange::Dumped(new.pid));
            }
            program.map(Mapping::from_side_band(new, time_ns), time_ns);
        }
    }

    fn name(&mut self, pid: u32, tid: u32, exec: bool, name: &[u8], time_ns: u64) {
        if exec {
            self.end_program(pid, time_ns);
            let program = Program {
                is_whole: true,
                ..self.next_program(time_ns)
            };
            let process = self.processes.entry(pid).or_default();
            process.programs.push(program);
            self.changed.push_back((time_ns, pid));
        }
        if let Some(process) = self.processes.get_mut(&pid)
            && pid == tid
        {
            process.comm = name.to_vec();
            process.since_ns = time_ns;
            process.version += 1;
        }
        let thread = self.threads.entry(tid).or_default();
        *thread = Thread {
            pid,
            comm: name.to_vec(),
            since_ns: time_ns,
            version: thread.version + 1,
            ..thread.clone()
        };
    }

    fn fork(&mut self, pid: u32, tid: u32, parent: u32, time_ns: u64) {
        let from = if pid == parent { pid } else { parent };
        let comm = self
            .processes
            .get(&from)
            .map(|process| process.comm.clone())
            .unwrap_or_default();
        let version = self.threads.get(&tid).map_or(0, |old| old.version + 1);
        let thread = Thread {
            pid,
            start_ns: time_ns,
            comm,
            since_ns: time_ns,
            version,
            ..Thread::default()
        };
        self.threads.insert(tid, thread);
        if pid == parent {
            return;
        }
        // A child of an unknown parent is read when it is first asked for.
        let Some(model) = self.processes.get(&parent) else {
            return;
        };
        let (comm, cgroup) = (model.comm.clone(), model.cgroup.clone());
        let (mappings, is_whole) = model
            .program(time_ns)
            .map(|program| (program.mappings.clone(), program.is_whole))
            .unwrap_or_default();
        let program = Program {
            mappings,
            is_whole,
            ..self.next_program(time_ns)
        };
        let old = self.processes.remove(&pid).unwrap_or_default();
        let mut programs = old.programs; // of an ended process of the same PID: asked for up to its end
        programs.push(program);
        let version = old.version + 1;
        let child = Process {
            parent,
            start_ns: time_ns,
            comm,
            cgroup,
            since_ns: time_ns,
            version,
            programs,
            ..Process::default()
        };
        self.processes.insert(pid, child);
        self.changed.push_back((time_ns, pid));
    }

    fn exit(&mut self, pid: u32, tid: u32, time_ns: u64) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.exited_ns = Some(time_ns);
        }
        if pid == tid {
            self.end_program(pid, time_ns);
        }
        // The main thread may end before others: samples of those find the process for a while longer, and
        // read it anew after that.
        if let Some(process) = self.processes.get_mut(&pid).filter(|_| pid == tid) {
            process.exited_ns = Some(time_ns);
        }
        self.ended.push_back((time_ns, tid));
    }

    fn end_program(&mut self, pid: u32, time_ns: u64) {
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

    /// The process, read from `/proc` when it is not known.
    pub(crate) fn process(&mut self, pid: u32) -> &Process {
        if self
            .processes
            .get(&pid)
            .is_none_or(|process| process.programs.is_empty())
        {
            let process = self.read(pid);
            self.processes.insert(pid, process);
        }
        // SANITY: just inserted, where it was not there
        self.processes
            .get_mut(&pid)
            .expect("a process that was just read")
    }

    fn read(&mut self, pid: u32) -> Process {
        let facts = ProcessFacts::read(pid).unwrap_or_default();
        let mut program = self.next_program(0);
        let lines = proc_fs::maps(pid);
        program.is_whole = lines.is_ok();
        for line in lines.unwrap_or_default() {
            program.map(Mapping::from_maps(line), 0);
        }
        Process {
            parent: facts.parent,
            namespace_pid: facts.namespace_pid,
            start_ns: facts.start_ns,
            comm: facts.comm,
            cgroup: facts.cgroup,
            programs: vec![program],
            ..Process::default()
        }
    }

    /// Complete a process that only the side-band told of by what `/proc` knows, if it still lives.
    pub(crate) fn complete(&mut self, pid: u32) {
        let Some(process) = self
            .processes
            .get_mut(&pid)
            .filter(|process| process.namespace_pid == 0)
        else {
            return;
        };
        match ProcessFacts::read(pid) {
            Ok(facts) => {
                process.namespace_pid = facts.namespace_pid;
                process.cgroup = facts.cgroup;
                process.parent = facts.parent;
            }
            Err(_) => process.namespace_pid = pid,
        }
    }

    /// The thread, read from `/proc` when it is not known.
    pub(crate) fn thread(&mut self, pid: u32, tid: u32) -> &Thread {
        self.threads.entry(tid).or_insert_with(|| {
            let comm = proc_fs::thread_name(pid, tid).unwrap_or_default();
            Thread {
                pid,
                comm,
                ..Thread::default()
            }
        })
    }

    /// Count a process and thread with samples, each once.
    pub(crate) fn mark_sampled(&mut self, pid: u32, tid: u32) {
        if let Some(process) = self
            .processes
            .get_mut(&pid)
            .filter(|process| !process.sampled)
        {
            process.sampled = true;
            self.sampled.0 += 1;
        }
        if let Some(thread) = self.threads.get_mut(&tid).filter(|thread| !thread.sampled) {
            thread.sampled = true;
            self.sampled.1 += 1;
        }
    }

    /// Processes and threads with samples, up to now.
    pub(crate) fn sampled(&self) -> (u64, u64) {
        self.sampled
    }

    /// Read all that runs now.
    pub(crate) fn read_all(&mut self) {
        for pid in proc_fs::pids() {
            self.process(pid);
        }
    }

    /// Events were lost: what lives is read anew when it is next asked for.
    pub(crate) fn distrust(&mut self) {
        self.processes
            .retain(|_, process| process.exited_ns.is_some());
        self.threads.retain(|_, thread| thread.exited_ns.is_some());
    }

    /// Nothing before `time_ns` will be asked for any more.
    pub(crate) fn forget(&mut self, time_ns: u64) {
        let before = time_ns.saturating_sub(PAST_NS);
        while let Some(&(ended, tid)) = self.ended.front().filter(|(ended, _)| *ended < before) {
            self.ended.pop_front();
            if self
                .threads
                .get(&tid)
                .is_some_and(|thread| thread.exited_ns == Some(ended))
            {
                self.threads.remove(&tid);
            }
            if self
                .processes
                .get(&tid)
                .is_some_and(|process| process.exited_ns == Some(ended))
            {
                self.processes.remove(&tid);
            }
        }
        while let Some(&(_, pid)) = self
            .changed
            .front()
            .filter(|(changed, _)| *changed < before)
        {
            self.changed.pop_front();
            if let Some(process) = self.processes.get_mut(&pid) {
                process.forget(before);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: u32 = u32::MAX - 1; // no process has it

    fn event(time_ns: u64, change: Change) -> SideBandEvent {
        SideBandEvent { time_ns, change }
    }

    fn mapped(start: u64, end: u64, path: &str) -> Change {
        Change::Mapped(NewMapping {
            pid: PID,
            addresses: start..end,
            path: path.into(),
            ..NewMapping::default()
        })
    }

    fn exec(name: &str) -> Change {
        Change::Named {
            pid: PID,
            tid: PID,
            exec: true,
            name: name.into(),
        }
    }

    fn path_at(processes: &mut Processes, pid: u32, address: u64, time_ns: u64) -> Option<String> {
        let mapping = processes
            .process(pid)
            .program(time_ns)?
            .mapping(address, time_ns)?;
        Some(String::from_utf8_lossy(&mapping.path).into_owned())
    }

    /// Check that an address asked for at a time before exec finds the old program, and after it the new one.
    #[test]
    fn exec_in_place() {
        let mut processes = Processes::default();
        processes.apply(event(10, exec("a")));
        processes.apply(event(11, mapped(0x1000, 0x2000, "/a")));
        processes.apply(event(20, exec("b")));
        processes.apply(event(21, mapped(0x1000, 0x2000, "/b")));
        assert_eq!(path_at(&mut processes, PID, 0x1800, 15).unwrap(), "/a");
        assert_eq!(path_at(&mut processes, PID, 0x1800, 25).unwrap(), "/b");
    }

    /// Check that a mapping over another is seen from its time on, and that what sticks out stays with its offset.
    #[test]
    fn mapped_over() {
        let mut processes = Processes::default();
        processes.apply(event(10, exec("a")));
        processes.apply(event(11, mapped(0x1000, 0x4000, "/old")));
        processes.apply(event(20, mapped(0x2000, 0x3000, "/new")));
        assert_eq!(path_at(&mut processes, PID, 0x2800, 15).unwrap(), "/old");
        assert_eq!(path_at(&mut processes, PID, 0x2800, 20).unwrap(), "/new");
        assert_eq!(path_at(&mut processes, PID, 0x1800, 20).unwrap(), "/old");
        let process = processes.process(PID);
        let right = process.program(20).unwrap().mapping(0x3800, 20).unwrap();
        assert_eq!(
            (right.addresses.clone(), right.offset),
            (0x3000..0x4000, 0x2000)
        );
    }

    /// Check that a child has its parent's mappings until it maps its own, and a reused PID not those of the dead.
    #[test]
    fn fork_and_reuse() {
        let child = PID - 1;
        let mut processes = Processes::default();
        processes.apply(event(10, exec("a")));
        processes.apply(event(11, mapped(0x1000, 0x2000, "/a")));
        processes.apply(event(
            12,
            Change::Forked {
                pid: child,
                tid: child,
                parent: PID,
            },
        ));
        assert_eq!(path_at(&mut processes, child, 0x1800, 12).unwrap(), "/a");
        processes.apply(event(
            13,
            Change::Exited {
                pid: child,
                tid: child,
            },
        ));
        processes.apply(event(14, mapped(0x1000, 0x2000, "/b")));
        processes.apply(event(
            15,
            Change::Forked {
                pid: child,
                tid: child,
                parent: PID,
            },
        ));
        assert_eq!(path_at(&mut processes, child, 0x1800, 12).unwrap(), "/a");
        assert_eq!(path_at(&mut processes, child, 0x1800, 15).unwrap(), "/b");
    }

    /// Check that what ended is forgotten once nobody can ask for it, and a live PID of the same number is not.
    #[test]
    fn forgotten() {
        let mut processes = Processes::default();
        processes.apply(event(10, exec("a")));
        processes.apply(event(20, Change::Exited { pid: PID, tid: PID }));
        processes.forget(20 + PAST_NS);
        assert_eq!(processes.processes.len(), 1);
        processes.forget(21 + PAST_NS);
        assert_eq!((processes.processes.len(), processes.threads.len()), (0, 0));
    }
}
