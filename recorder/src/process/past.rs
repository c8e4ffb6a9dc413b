//! What is forgotten of processes, and the memory that this leaves.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::{Process, Processes};
use crate::program::Program;

/// How long the past is kept behind the last event that was looked at, in nanoseconds.
pub(super) const PAST_NS: u64 = 2_000_000_000;
/// Rows that a table may have room for, whatever it holds, ...
const FEW: usize = 1024;
/// ... and how many times what it holds.
const ROOMY: usize = 4;

/// Steps in which the time of a change is told, in nanoseconds: what changes of a process within one is told once.
const STEP_NS: u64 = 100_000_000;

/// Processes with a past to forget, in the order of time.
#[derive(Debug, Default)]
pub(super) struct Changed(VecDeque<(u64, u32)>);

impl Changed {
    /// A process changed.
    pub(super) fn note(&mut self, time_ns: u64, pid: u32) {
        let change = ((time_ns / STEP_NS + 1).saturating_mul(STEP_NS), pid);
        if self.0.back() != Some(&change) {
            self.0.push_back(change);
        }
    }

    /// A process that changed before `before_ns`, out of the queue.
    fn take(&mut self, before_ns: u64) -> Option<u32> {
        let (time_ns, pid) = *self.0.front()?;
        (time_ns < before_ns).then(|| self.0.pop_front())?;
        Some(pid)
    }
}

/// Add to what mostly holds one or two: no room for more.
pub(super) fn push<T>(few: &mut Vec<T>, one: T) {
    few.reserve_exact(1);
    few.push(one);
}

impl Process {
    pub(super) fn forget(&mut self, before_ns: u64) {
        let is_past = |program: &Program| program.since_ns < before_ns;
        let present = self.programs.iter().rposition(is_past).unwrap_or(0);
        if present > 0 {
            self.programs.drain(..present);
            self.programs.shrink_to_fit();
        }
        self.programs
            .iter_mut()
            .for_each(|program| program.forget(before_ns));
    }
}

impl Processes {
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
        while let Some(pid) = self.changed.take(before) {
            if let Some(process) = self.processes.get_mut(&pid) {
                process.forget(before);
            }
        }
    }

    /// Whether there is room for a crowd that is gone.
    pub(crate) fn is_roomy(&self) -> bool {
        is_roomy(self.processes.capacity(), self.processes.len())
            || is_roomy(self.threads.capacity(), self.threads.len())
    }

    /// Give back the room of a crowd that is gone: tables only grow by themselves.
    pub(crate) fn shrink(&mut self) {
        shrink_table(&mut self.processes);
        shrink_table(&mut self.threads);
        shrink_queue(&mut self.ended);
        shrink_queue(&mut self.changed.0);
        self.shared.shrink();
    }
}

/// Whether a table with this `capacity` has room for far more than it holds.
fn is_roomy(capacity: usize, held: usize) -> bool {
    capacity > ROOMY * held.max(FEW)
}

fn shrink_table<T>(table: &mut HashMap<u32, T>) {
    if is_roomy(table.capacity(), table.len()) {
        table.shrink_to(2 * table.len());
    }
}

fn shrink_queue<T>(queue: &mut VecDeque<T>) {
    if is_roomy(queue.capacity(), queue.len()) {
        queue.shrink_to(2 * queue.len());
    }
}

#[cfg(test)]
mod tests {
    use rawstack_bpf::{Change, SideBandEvent};

    use super::*;

    const PARENT: u32 = u32::MAX - 1; // no process has it

    fn apply(processes: &mut Processes, time_ns: u64, change: Change) {
        processes.apply(SideBandEvent { time_ns, change });
    }

    fn exec(processes: &mut Processes, time_ns: u64, pid: u32) {
        let name = b"a".to_vec();
        let (tid, exec) = (pid, true);
        let named = Change::Named {
            pid,
            tid,
            exec,
            name,
        };
        apply(processes, time_ns, named);
    }

    fn fork(processes: &mut Processes, time_ns: u64, pid: u32) {
        let (tid, parent, parent_tid) = (pid, PARENT, PARENT);
        let forked = Change::Forked {
            pid,
            tid,
            parent,
            parent_tid,
        };
        apply(processes, time_ns, forked);
    }

    fn exit(processes: &mut Processes, time_ns: u64, pid: u32) {
        apply(processes, time_ns, Change::Exited { pid, tid: pid });
    }

    fn room(processes: &Processes) -> [usize; 4] {
        let (ended, changed) = (processes.ended.capacity(), processes.changed.0.capacity());
        let (threads, processes) = (processes.threads.capacity(), processes.processes.capacity());
        [threads, processes, ended, changed]
    }

    /// Check that what ended is forgotten once nobody can ask for it, and a live PID of the same number is not.
    #[test]
    fn forgotten() {
        let mut processes = Processes::default();
        exec(&mut processes, 10, PARENT);
        exit(&mut processes, 20, PARENT);
        processes.forget(20 + PAST_NS);
        assert_eq!(processes.processes.len(), 1);
        processes.forget(21 + PAST_NS);
        assert_eq!((processes.processes.len(), processes.threads.len()), (0, 0));
    }

    /// Check that the room of 50,000 processes is given back when they have ended, and nothing of one that lives.
    #[test]
    fn a_crowd_that_is_gone() {
        let mut processes = Processes::default();
        exec(&mut processes, 10, PARENT);
        for pid in 1..=50_000 {
            fork(&mut processes, 20, pid);
        }
        processes.shrink();
        assert!(room(&processes).iter().take(2).all(|&room| room > 50_000));
        for pid in 1..=50_000 {
            exit(&mut processes, 30, pid);
        }
        processes.forget(2 * STEP_NS + PAST_NS);
        assert_eq!((processes.processes.len(), processes.threads.len()), (1, 1));
        assert!(processes.is_roomy());
        processes.shrink();
        assert!(!processes.is_roomy());
        assert!(
            room(&processes).iter().all(|&room| room <= ROOMY * FEW),
            "{:?}",
            room(&processes)
        );
        assert!(processes.process(PARENT).program(31 + PAST_NS).is_some());
    }

    /// Check that tables stay as large as what lives at once and the past that is kept, however many come and go.
    #[test]
    fn churn() {
        let mut processes = Processes::default();
        exec(&mut processes, 10, PARENT);
        let interval = 1_000_000_000 / 1300;
        for number in 0..200_000 {
            let time = 20 + number * interval;
            let pid = u32::try_from(number % 30_000).unwrap() + 1;
            fork(&mut processes, time, pid);
            exec(&mut processes, time, pid);
            exit(&mut processes, time, pid);
            if number % 1000 == 0 {
                processes.forget(time);
                processes.shrink();
            }
        }
        // Two seconds at that rate, and what came since they were last looked at.
        assert!(
            processes.processes.len() <= 3602,
            "{}",
            processes.processes.len()
        );
        assert!(
            room(&processes).iter().all(|&room| room <= 16 << 10),
            "{:?}",
            room(&processes)
        );
    }
}
