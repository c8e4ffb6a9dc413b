//! Processes, their threads and their executable mappings, each as it was at any time that can still be asked for.

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;
use std::rc::Rc;

use hashbrown::{HashMap, HashSet};
use rawstack_bpf::{Change, NewMapping, SideBandEvent};

use crate::helper::{Helper, ProcessAnswer};
use crate::history::History;
use crate::jit::Source;
use crate::program::{Mapping, Program};

mod jit;
mod past;
mod shared;

pub(crate) use jit::{JitChange, JitProgram};
use past::{Changed, push};
use shared::Shared;

/// Shortest time between two readings of all processes, in nanoseconds.
const READ_INTERVAL_NS: u64 = 10_000_000_000;
/// How often a process is asked for its cgroup while it is sampled, in nanoseconds: half as often after each time that
/// it was the same, ...
const CGROUP_NS: u64 = 2_000_000_000;
/// ... down to this.
const CGROUP_SELDOM_NS: u64 = 16_000_000_000;

/// What may change of a process while it lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// Name of the main thread.
    pub(crate) comm: Vec<u8>,
    /// Path of its cgroup.
    pub(crate) cgroup: Rc<str>,
}

/// A process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    /// Parent's process ID.
    pub(crate) parent: u32,
    /// Process ID in its own namespace, 0 while not known.
    pub(crate) namespace_pid: u32,
    /// Start, in nanoseconds; 0 where not known.
    pub(crate) start_ns: u64,
    /// Name and cgroup.
    pub(crate) names: History<Names>,
    /// When its cgroup was last read, and how long it is taken for the same.
    cgroup_ns: u64,
    cgroup_pause_ns: u64,
    /// Its programs, the present one last. Never empty.
    programs: Vec<Program>,
    sampled: bool,
    exited_ns: Option<u64>,
}

impl Process {
    /// The program that ran at `time_ns`.
    pub(crate) fn program(&self, time_ns: u64) -> Option<&Program> {
        self.programs.get(self.program_at(time_ns))
    }

    fn program_mut(&mut self, time_ns: u64) -> Option<&mut Program> {
        let at = self.program_at(time_ns);
        self.programs.get_mut(at)
    }

    fn program_at(&self, time_ns: u64) -> usize {
        let has_begun = |program: &Program| program.since_ns <= time_ns;
        self.programs.iter().rposition(has_begun).unwrap_or(0)
    }
}

/// A thread's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Thread {
    /// Process ID.
    pub(crate) pid: u32,
    /// Start, in nanoseconds; 0 where not known.
    pub(crate) start_ns: u64,
    /// Name.
    pub(crate) name: History<Vec<u8>>,
    sampled: bool,
    exited_ns: Option<u64>,
}

/// All processes that have been told of or asked for.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    helper: Rc<Helper>,
    processes: HashMap<u32, Process>,
    threads: HashMap<u32, Thread>,
    /// Ended processes and threads in the order of their ends.
    ended: VecDeque<(u64, u32)>,
    /// Processes with a past to forget.
    changed: Changed,
    shared: Shared,
    programs: u32,
    sampled: (u64, u64),
    /// Time of the last event.
    now_ns: u64,
    /// When all processes may be read again.
    read_again_ns: u64,
    jit_changes: Vec<JitChange>,
    /// Those told of in `jit_changes` as running.
    jit_ran: HashSet<u32>,
}

impl Processes {
    /// None yet.
    pub(crate) fn new(helper: Rc<Helper>) -> Self {
        Self {
            helper,
            ..Self::default()
        }
    }

    /// Take in what the side-band told.
    pub(crate) fn apply(&mut self, event: SideBandEvent) {
        let time = event.time_ns;
        self.now_ns = self.now_ns.max(time);
        match event.change {
            Change::Mapped(new) => self.map(new, time),
            Change::Named {
                pid,
                tid,
                exec,
                name,
            } => self.name(pid, tid, exec, &name, time),
            Change::Forked {
                pid,
                tid,
                parent,
                parent_tid,
            } => self.fork((pid, tid), (parent, parent_tid), time),
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
            self.changed.note(time_ns, new.pid);
            if Source::is_jit_dump(&new.path) {
                self.jit_changes.push(JitChange::Dumped(new.pid));
            }
            let mapping = Mapping::from_side_band(new, time_ns);
            program.map(self.shared.share(mapping), time_ns);
            if program.is_crowded() {
                program.unread(time_ns);
            }
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
            push(&mut process.programs, program);
            self.changed.note(time_ns, pid);
        }
        if let Some(process) = self.processes.get_mut(&pid)
            && pid == tid
        {
            let names = Names {
                comm: name.to_vec(),
                ..process.names.now().clone()
            };
            process.names.change(time_ns, names);
        }
        let thread = self.threads.entry(tid).or_default();
        thread.pid = pid;
        thread.name.change(time_ns, name.to_vec());
    }

    fn fork(&mut self, (pid, tid): (u32, u32), (parent, parent_tid): (u32, u32), time_ns: u64) {
        // It has the name of the thread that made it, which need not be that of its process.
        let maker = self
            .threads
            .get(&parent_tid)
            .map(|thread| thread.name.now());
        let leader = self
            .processes
            .get(&parent)
            .map(|process| &process.names.now().comm);
        let comm = maker.or(leader).cloned().unwrap_or_default();
        let thread = self.threads.entry(tid).or_default();
        let mut name = mem::take(&mut thread.name); // of an ended thread of the same number: asked for up to its end
        name.change(time_ns, comm.clone());
        *thread = Thread {
            pid,
            start_ns: time_ns,
            name,
            ..Thread::default()
        };
        if pid == parent {
            return;
        }
        let Some(model) = self.processes.get(&parent) else {
            self.fork_of_unknown(pid, parent, time_ns);
            return;
        };
        let cgroup = Rc::clone(&model.names.now().cgroup);
        let (mappings, is_whole) = model
            .program(time_ns)
            .map(|program| (Rc::clone(&program.mappings), program.is_whole))
            .unwrap_or_default();
        let program = Program {
            mappings,
            is_whole,
            ..self.next_program(time_ns)
        };
        let old = self.processes.remove(&pid).unwrap_or_default();
        let (mut programs, mut names) = (old.programs, old.names); // as with threads
        push(&mut programs, program);
        names.change(time_ns, Names { comm, cgroup });
        let child = Process {
            parent,
            start_ns: time_ns,
            names,
            programs,
            ..Process::default()
        };
        self.processes.insert(pid, child);
        self.changed.note(time_ns, pid);
    }

    /// A child of an unknown parent is read when it is first asked for. Not so what had its PID before.
    fn fork_of_unknown(&mut self, pid: u32, parent: u32, time_ns: u64) {
        if !self.processes.contains_key(&pid) {
            return;
        }
        let program = Program {
            is_unread: true,
            ..self.next_program(time_ns)
        };
        if let Some(process) = self.processes.get_mut(&pid) {
            let mut names = mem::take(&mut process.names);
            names.change(time_ns, Names::default());
            *process = Process {
                parent,
                start_ns: time_ns,
                names,
                programs: mem::take(&mut process.programs),
                ..Process::default()
            };
            push(&mut process.programs, program);
            self.changed.note(time_ns, pid);
        }
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

    /// The process, asked for when it is not known.
    pub(crate) fn process(&mut self, pid: u32) -> &Process {
        if !self.is_known(pid) {
            let answer = self.helper.process(pid).unwrap_or_default();
            self.insert(pid, answer);
        }
        // SANITY: just inserted, where it was not there
        self.processes
            .get_mut(&pid)
            .expect("a process that was just read")
    }

    fn is_known(&self, pid: u32) -> bool {
        let process = self.processes.get(&pid);
        let program = process.and_then(|process| process.programs.last());
        program.is_some_and(|program| !program.is_unread)
    }

    fn insert(&mut self, pid: u32, answer: ProcessAnswer) {
        let ProcessAnswer { facts, maps } = answer;
        let old = self.processes.remove(&pid).unwrap_or_default();
        let (mut programs, mut names) = (old.programs, old.names);
        let mut program = match programs.pop() {
            Some(unread) => unread,
            None => self.next_program(0),
        };
        program.is_whole = maps.is_whole;
        program.is_unread = false;
        let time_ns = program.changed_ns;
        for line in maps.lines {
            let mapping = Mapping::from_maps(line, maps.read_ns);
            program.map(self.shared.share(mapping), time_ns);
        }
        push(&mut programs, program);
        let exited_ns = facts.comm.is_empty().then_some(self.now_ns);
        let (comm, cgroup) = (facts.comm, Rc::from(facts.cgroup));
        names.change(time_ns, Names { comm, cgroup });
        let process = Process {
            parent: facts.parent,
            namespace_pid: facts.namespace_pid,
            start_ns: facts.start_ns,
            names,
            programs,
            sampled: old.sampled,
            exited_ns,
            ..Process::default()
        };
        self.processes.insert(pid, process);
        // Nobody will tell of the end of what has ended already.
        if exited_ns.is_some() {
            self.ended.push_back((self.now_ns, pid));
        }
    }

    /// Complete a process that only the side-band told of by what `/proc` knows, if it still lives; and see whether it
    /// is in another cgroup by now, which nothing tells.
    pub(crate) fn complete(&mut self, pid: u32, time_ns: u64) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        let due_ns = process.cgroup_ns.saturating_add(process.cgroup_pause_ns);
        if time_ns < due_ns || process.exited_ns.is_some() {
            return;
        }
        let is_first = process.cgroup_ns == 0;
        process.cgroup_ns = time_ns;
        let pause_ns = process.cgroup_pause_ns * 2;
        process.cgroup_pause_ns = pause_ns.clamp(CGROUP_NS, CGROUP_SELDOM_NS);
        let Some(facts) = self.helper.facts(pid) else {
            return;
        };
        if process.namespace_pid == 0 {
            process.namespace_pid = facts.namespace_pid;
        }
        // By now the parent may be gone, and another have taken its place.
        if process.parent == 0 {
            process.parent = facts.parent;
        }
        let (cgroup, now) = (Rc::from(facts.cgroup), process.names.now());
        if cgroup != now.cgroup {
            process.cgroup_pause_ns = CGROUP_NS;
            let comm = now.comm.clone();
            if is_first {
                // Up to now its parent's stood in for its own.
                let amend = |names: &mut Names| names.cgroup = Rc::clone(&cgroup);
                process.names.amend(process.start_ns, amend);
            } else {
                process.names.change(time_ns, Names { comm, cgroup });
            }
        }
    }

    /// The program that ran in process `pid` at `time_ns` has the vDSO mapped there, ever since it began.
    pub(crate) fn know_vdso(&mut self, pid: u32, time_ns: u64, addresses: Range<u64>) {
        self.process(pid);
        let process = self.processes.get_mut(&pid);
        if let Some(program) = process.and_then(|process| process.program_mut(time_ns)) {
            program.know_vdso(addresses);
        }
    }

    /// The thread, read from `/proc` when it is not known.
    pub(crate) fn thread(&mut self, pid: u32, tid: u32) -> &Thread {
        let (helper, ended, now_ns) = (&self.helper, &mut self.ended, self.now_ns);
        self.threads.entry(tid).or_insert_with(|| {
            let name = helper.thread_name(pid, tid);
            let exited_ns = name.is_none().then_some(now_ns);
            ended.extend(exited_ns.map(|time| (time, tid)));
            Thread {
                pid,
                name: History::new(0, name.unwrap_or_default()),
                exited_ns,
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
        let mut pids = self.helper.pids();
        pids.retain(|&pid| !self.is_known(pid));
        let helper = Rc::clone(&self.helper);
        helper.processes(&pids, |pid, answer| self.insert(pid, answer));
    }

    /// Events were lost, the last at `time_ns`: what lives is read anew, now where `reads_all` says so, else when it
    /// is next asked for. A machine so busy that it loses them again and again has no time to read all of it each time.
    pub(crate) fn distrust(&mut self, time_ns: u64, reads_all: bool) {
        self.processes
            .retain(|_, process| process.exited_ns.is_some());
        self.threads.retain(|_, thread| thread.exited_ns.is_some());
        if reads_all && time_ns >= self.read_again_ns {
            self.read_all();
            self.read_again_ns = time_ns + READ_INTERVAL_NS;
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
                parent_tid: PID,
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
                parent_tid: PID,
            },
        ));
        assert_eq!(path_at(&mut processes, child, 0x1800, 12).unwrap(), "/a");
        assert_eq!(path_at(&mut processes, child, 0x1800, 15).unwrap(), "/b");
    }

    /// Check that a PID that an unknown parent's child got does not keep the code of who had it before.
    #[test]
    fn reuse_by_a_stranger() {
        let mut processes = Processes::default();
        processes.apply(event(10, exec("a")));
        processes.apply(event(11, mapped(0x1000, 0x2000, "/a")));
        processes.apply(event(12, Change::Exited { pid: PID, tid: PID }));
        let parent = PID - 1;
        let (pid, tid) = (PID, PID);
        let parent_tid = parent;
        processes.apply(event(
            13,
            Change::Forked {
                pid,
                tid,
                parent,
                parent_tid,
            },
        ));
        assert_eq!(path_at(&mut processes, PID, 0x1800, 11).unwrap(), "/a");
        assert_eq!(path_at(&mut processes, PID, 0x1800, 13), None);
        processes.apply(event(14, exec("b")));
        processes.apply(event(15, mapped(0x1000, 0x2000, "/b")));
        assert_eq!(path_at(&mut processes, PID, 0x1800, 15).unwrap(), "/b");
    }

    /// Check that what had ended when it was asked for is forgotten, too, though nobody tells of its end.
    #[test]
    fn ended_before_it_was_asked_for() {
        let mut processes = Processes::default();
        processes.apply(event(10, exec("other")));
        processes.process(PID - 1);
        processes.thread(PID - 1, PID - 1);
        processes.forget(11 + past::PAST_NS);
        assert!(!processes.processes.contains_key(&(PID - 1)));
        assert!(!processes.threads.contains_key(&(PID - 1)));
    }

    /// Check that a process that maps and unmaps for ever keeps a bounded number of mappings.
    #[test]
    fn mapped_for_ever() {
        let mut processes = Processes::default();
        processes.apply(event(10, exec("a")));
        for number in 0..20_000 {
            let start = number * 0x1000;
            processes.apply(event(11 + number, mapped(start, start + 0x1000, "/a")));
        }
        let mappings = &processes.process(PID).program(20_011).unwrap().mappings;
        assert!(mappings.len() <= 4097, "{}", mappings.len());
    }
}
