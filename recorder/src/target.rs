//! Who is recorded: what the options name is looked up, told to the programs, and followed without a hole.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;

use rawstack_bpf::{Cgroup, Programs, Targets as Wanted};
use rustix::time::{ClockId, clock_gettime};

use crate::cgroup::Hierarchies;
use crate::error::{Error, Result};
use crate::options::Targets;
use crate::proc_fs::{ProcessFacts, pids};

/// A clock tick of `/proc/PID/stat`, in nanoseconds.
const TICK_NS: u64 = 10_000_000;

/// Inode of `/proc/self/ns/pid` in the namespace that the machine starts in (`PROC_PID_INIT_INO`).
const INITIAL_NAMESPACE: u64 = 0xefff_fffc;

/// The targets of a recording, each known to be there.
#[derive(Clone, Debug)]
pub(crate) struct TargetSet {
    /// As the programs want them.
    pub(crate) wanted: Wanted,
    pids: Vec<u32>,
    tids: Vec<u32>,
    /// When they were looked up, in nanoseconds since boot.
    since_ns: u64,
}

impl TargetSet {
    /// Look up what the options name. `online` CPUs are those there are.
    pub(crate) fn find(targets: &Targets, online: &[u32]) -> Result<Self> {
        let since_ns = boot_ns();
        check_namespace()?;
        targets
            .pids
            .iter()
            .try_for_each(|&pid| check_process(pid))?;
        targets.tids.iter().try_for_each(|&tid| check_thread(tid))?;
        if let Some(cpus) = &targets.cpus {
            cpus.iter().try_for_each(|&cpu| check_cpu(cpu, online))?;
        }
        Ok(Self {
            wanted: Wanted {
                by_process: targets.names_tasks(),
                by_thread: !targets.tids.is_empty(),
                cgroups: find_cgroups(targets)?,
                cpus: targets.cpus.clone(),
            },
            pids: targets.pids.clone(),
            tids: targets.tids.clone(),
            since_ns,
        })
    }

    /// Those of the `online` CPUs on which something is recorded.
    pub(crate) fn cpus(&self, online: &[u32]) -> Vec<u32> {
        let wanted = |cpu: &u32| {
            let cpus = self.wanted.cpus.as_ref();
            cpus.is_none_or(|cpus| cpus.contains(cpu))
        };
        online.iter().copied().filter(wanted).collect()
    }

    /// The processes that are named, themselves or by a thread of theirs.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let of_threads = self.tids.iter().filter_map(|&tid| process_of(tid));
        self.pids.iter().copied().chain(of_threads).collect()
    }

    /// Tell the programs, which are attached already: what targets make from here on follows by itself. What they made
    /// since they were looked up is looked for now.
    pub(crate) fn add(&self, programs: &Programs<'_>) -> Result<()> {
        for &pid in &self.pids {
            programs.add_process(pid)?;
            check_process(pid)?;
        }
        for &tid in &self.tids {
            programs.add_thread(tid)?;
            check_thread(tid)?;
        }
        if !self.pids.is_empty() {
            let made = descendants(&self.pids, self.since_ns.saturating_sub(TICK_NS));
            made.into_iter()
                .try_for_each(|pid| programs.add_process(pid))?;
        }
        Ok(())
    }
}

fn boot_ns() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The programs see the machine's own process IDs; where `/proc` has others, processes would be taken for each other.
fn check_namespace() -> Result<()> {
    match fs::metadata("/proc/self/ns/pid") {
        Ok(meta) if meta.ino() != INITIAL_NAMESPACE => Err(Error::PidNamespace),
        _ => Ok(()),
    }
}

/// The process that thread `tid` belongs to.
pub(crate) fn process_of(tid: u32) -> Option<u32> {
    let status = fs::read(format!("/proc/{tid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status).into_owned();
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

fn check_process(pid: u32) -> Result<()> {
    match process_of(pid) {
        Some(process) if process == pid => Ok(()),
        Some(process) => Err(Error::Option {
            option: "--pid",
            why: format!("{pid} is a thread of process {process}"),
            cure: "give the process, or the thread to -t",
        }),
        None => Err(Error::Option {
            option: "--pid",
            why: format!("there is no process {pid}"),
            cure: "check the PID",
        }),
    }
}

fn check_thread(tid: u32) -> Result<()> {
    if process_of(tid).is_some() {
        return Ok(());
    }
    Err(Error::Option {
        option: "--tid",
        why: format!("there is no thread {tid}"),
        cure: "check the TID; /proc/PID/task has those of a process",
    })
}

fn check_cpu(cpu: u32, online: &[u32]) -> Result<()> {
    if online.contains(&cpu) {
        return Ok(());
    }
    Err(Error::Option {
        option: "--cpu",
        why: format!("CPU {cpu} is not online"),
        cure: "/sys/devices/system/cpu/online has those that are",
    })
}

fn find_cgroups(targets: &Targets) -> Result<Vec<Cgroup>> {
    if targets.cgroups.is_empty() {
        return Ok(Vec::new());
    }
    let hierarchies = Hierarchies::read().map_err(|error| Error::System {
        action: "read which cgroup hierarchies are mounted",
        error,
    })?;
    let find = |path| hierarchies.find(path);
    targets.cgroups.iter().map(|path| find(path)).collect()
}

/// Processes that come from `pids` and started at `since_ns` or later.
fn descendants(pids_of: &[u32], since_ns: u64) -> Vec<u32> {
    let parents: HashMap<u32, u32> = pids()
        .into_iter()
        .filter_map(|pid| Some((pid, ProcessFacts::read(pid).ok()?)))
        .filter(|(_, facts)| facts.start_ns >= since_ns)
        .map(|(pid, facts)| (pid, facts.parent))
        .collect();
    descend(pids_of, &parents)
}

/// Those whose line of parents leads to one of `roots`; in the order of their numbers.
fn descend(roots: &[u32], parents: &HashMap<u32, u32>) -> Vec<u32> {
    let mut known: HashSet<u32> = roots.iter().copied().collect();
    loop {
        let before = known.len();
        let found: Vec<u32> = parents
            .iter()
            .filter(|(_, parent)| known.contains(parent))
            .map(|(pid, _)| *pid)
            .collect();
        known.extend(found);
        if known.len() == before {
            break;
        }
    }
    let mut made: Vec<_> = known
        .into_iter()
        .filter(|pid| !roots.contains(pid))
        .collect();
    made.sort_unstable();
    made
}

#[cfg(test)]
mod tests {
    use std::process;

    use super::*;

    /// Check that children of children are found, in whichever order they stand, and others are not.
    #[test]
    fn line_of_parents() {
        let parents = HashMap::from([(12, 11), (11, 10), (21, 20), (13, 12)]);
        assert_eq!(descend(&[10], &parents), [11, 12, 13]);
        assert_eq!(descend(&[1], &parents), [] as [u32; 0]);
    }

    /// Check that what is not there is told with its option.
    #[test]
    fn missing() {
        let say = |targets: Targets| TargetSet::find(&targets, &[0, 1]).unwrap_err().to_string();
        let targets = Targets::default;
        let nobody = 0x7fff_fff0;
        let text = say(Targets {
            pids: vec![nobody],
            ..targets()
        });
        assert!(
            text.contains("--pid: there is no process 2147483632"),
            "{text}"
        );
        let text = say(Targets {
            tids: vec![nobody],
            ..targets()
        });
        assert!(
            text.contains("--tid: there is no thread 2147483632"),
            "{text}"
        );
        let text = say(Targets {
            cpus: Some(vec![1, 7]),
            ..targets()
        });
        assert!(text.contains("--cpu: CPU 7 is not online"), "{text}");
    }

    /// Check that a thread is not taken for a process: the kernel would have a folder in `/proc` for it.
    #[test]
    fn thread_as_process() {
        let own = process::id();
        assert_eq!(process_of(own), Some(own));
        let text = std::thread::spawn(|| {
            let tid = u32::try_from(rustix::thread::gettid().as_raw_pid()).unwrap();
            check_process(tid).unwrap_err().to_string()
        });
        let text = text.join().unwrap();
        assert!(
            text.contains(&format!("is a thread of process {own}")),
            "{text}"
        );
    }
}
