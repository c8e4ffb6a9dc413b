//! Who a sample belongs to: names of processes and threads as they were at its time.

use std::collections::BTreeMap;

use foldhash::HashMap;
use rawstack_format::record::{Process, Thread};

/// Rows that are kept of one process or thread: the latest.
const MAX_HISTORY: usize = 16;

/// Index into [`FactsTable::threads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId(pub u32);

/// A thread with the names that it had at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadFacts {
    /// Number of the archive.
    pub archive: u32,
    /// Process ID.
    pub pid: u32,
    /// Thread ID.
    pub tid: u32,
    /// Thread's name.
    pub comm: String,
    /// Name of the process's main thread.
    pub process_comm: String,
    /// Control group.
    pub cgroup: String,
}

/// Facts by time, and each distinct set of them once.
#[derive(Debug, Default)]
pub struct FactsTable {
    processes: HashMap<u32, BTreeMap<u64, Process>>,
    threads: HashMap<u32, BTreeMap<u64, Thread>>,
    index: HashMap<ThreadFacts, ThreadId>,
    facts: Vec<ThreadFacts>,
    /// Answers that hold from a time on, until the next row of any process or thread.
    known: HashMap<(u32, u32), (ThreadId, u64)>,
}

impl FactsTable {
    /// Forget the rows of an archive, but not the distinct facts.
    pub(super) fn next_archive(&mut self) {
        self.processes.clear();
        self.threads.clear();
        self.known.clear();
    }

    /// Add a process's row.
    pub(super) fn add_process(&mut self, row: &Process) {
        keep(
            self.processes.entry(row.pid).or_default(),
            row.since_ns,
            row.clone(),
        );
        self.known.clear();
    }

    /// Add a thread's row.
    pub(super) fn add_thread(&mut self, row: &Thread) {
        keep(
            self.threads.entry(row.tid).or_default(),
            row.since_ns,
            row.clone(),
        );
        self.known.clear();
    }

    /// Facts of thread `tid` at `time_ns`.
    pub(super) fn at(&mut self, archive: u32, pid: u32, tid: u32, time_ns: u64) -> ThreadId {
        if let Some(&(id, since)) = self.known.get(&(pid, tid))
            && since <= time_ns
        {
            return id;
        }
        let process = self.processes.get(&pid).and_then(|rows| at(rows, time_ns));
        let of_process = |row: &&Thread| row.pid == pid || row.pid == 0;
        let thread = self
            .threads
            .get(&tid)
            .and_then(|rows| at(rows, time_ns))
            .filter(of_process);
        let process_comm = process.map(|row| row.comm.clone()).unwrap_or_default();
        let comm = thread.map_or_else(|| process_comm.clone(), |row| row.comm.clone());
        let cgroup = process.map(|row| row.cgroup.clone()).unwrap_or_default();
        let facts = ThreadFacts {
            archive,
            pid,
            tid,
            comm,
            process_comm,
            cgroup,
        };
        let id = match self.index.get(&facts) {
            Some(&id) => id,
            None => {
                let id = ThreadId(u32::try_from(self.facts.len()).unwrap_or(u32::MAX));
                self.facts.push(facts.clone());
                self.index.insert(facts, id);
                id
            }
        };
        // What the newest rows say holds for all later times.
        let newest = |rows: Option<u64>| rows.unwrap_or(0);
        let of_process = self
            .processes
            .get(&pid)
            .and_then(|rows| rows.keys().next_back());
        let of_thread = self
            .threads
            .get(&tid)
            .and_then(|rows| rows.keys().next_back());
        let since = newest(of_process.copied()).max(newest(of_thread.copied()));
        if since <= time_ns {
            self.known.insert((pid, tid), (id, since));
        }
        id
    }

    /// All distinct facts, by ID.
    pub fn threads(&self) -> &[ThreadFacts] {
        &self.facts
    }
}

fn keep<T>(rows: &mut BTreeMap<u64, T>, since_ns: u64, row: T) {
    rows.insert(since_ns, row);
    if rows.len() > MAX_HISTORY {
        rows.pop_first();
    }
}

/// The row in force at `time_ns`, or the first one where all are later.
fn at<T>(rows: &BTreeMap<u64, T>, time_ns: u64) -> Option<&T> {
    rows.range(..=time_ns)
        .next_back()
        .or_else(|| rows.iter().next())
        .map(|(_, row)| row)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a sample gets the names of its time, and that a thread without a row has its process's name.
    #[test]
    fn names_over_time() {
        let mut table = FactsTable::default();
        for (since_ns, comm) in [(0, "sh"), (100, "server")] {
            table.add_process(&Process {
                pid: 7,
                since_ns,
                comm: comm.to_owned(),
                ..Process::default()
            });
        }
        table.add_thread(&Thread {
            pid: 7,
            tid: 8,
            since_ns: 150,
            comm: "worker".to_owned(),
            ..Thread::default()
        });
        let comm = |table: &mut FactsTable, tid, time| {
            let id = table.at(0, 7, tid, time);
            table.threads()[id.0 as usize].comm.clone()
        };
        assert_eq!(comm(&mut table, 7, 50), "sh");
        assert_eq!(comm(&mut table, 7, 120), "server");
        assert_eq!(comm(&mut table, 7, 130), "server");
        assert_eq!(comm(&mut table, 8, 160), "worker");
        assert_eq!(comm(&mut table, 7, 60), "sh");
        assert_eq!(comm(&mut table, 9, 60), "sh");
    }
}
