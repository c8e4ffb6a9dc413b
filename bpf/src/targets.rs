//! Who is recorded, as the programs are told. Knows no events, and nothing of `/proc`.

use libbpf_rs::{MapCore, MapFlags};

use crate::error::{Error, Result};
use crate::programs::Programs;
use crate::skel::{OpenRecorderSkel, RecorderSkel, types};

/// Levels of a hierarchy that are looked at when a cgroup's own is not known. Deeper ones are rare.
const ALL_LEVELS: u32 = 16;
/// `TARGET_NOW` of `src/c/targets.bpf.h`.
const NOW: [u8; 1] = [1];
/// `TARGET_AT_EXEC` there.
const AT_EXEC: [u8; 1] = [2];

/// A cgroup that is recorded, with those below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// Number of the hierarchy as in `/proc/PID/cgroup`; 0: the unified one.
    pub hierarchy: u32,
    /// How deep in the hierarchy it lies, its root being 0; `None`: not known.
    pub level: Option<u32>,
    /// Inode of its directory.
    pub id: u64,
}

/// Which tasks are recorded, and where. Set before the programs are loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// Only processes that are added, and what they make; with `by_thread`: or threads that are.
    pub by_process: bool,
    /// Only threads that are added, and what they make; with `by_process`: or processes that are.
    pub by_thread: bool,
    /// Only tasks in these cgroups or below; empty: in any.
    pub cgroups: Vec<Cgroup>,
    /// Only what happens on these CPUs; `None`: on any.
    pub cpus: Option<Vec<u32>>,
}

impl Targets {
    /// Whether tasks are followed from one to the next.
    pub(crate) fn follows(&self) -> bool {
        self.by_process || self.by_thread
    }

    /// Hierarchies and levels in which the cgroups lie, each once.
    fn levels(&self) -> Vec<(u32, u32)> {
        let of_cgroup = |cgroup: &Cgroup| {
            let levels = cgroup
                .level
                .map_or(0..ALL_LEVELS, |level| level..level.saturating_add(1));
            let hierarchy = cgroup.hierarchy;
            levels.map(move |level| (hierarchy, level))
        };
        let mut levels: Vec<_> = self.cgroups.iter().flat_map(of_cgroup).collect();
        levels.sort_unstable();
        levels.dedup();
        levels
    }

    /// Tell an object that is not loaded yet.
    pub(crate) fn configure(&self, open: &mut OpenRecorderSkel<'_>) -> Result<()> {
        let follows = self.follows();
        open.progs.follow_fork.set_autoload(follows);
        open.progs.follow_exec.set_autoload(follows);
        open.progs.forget_exited.set_autoload(follows);
        let room = u32::try_from(self.cgroups.len().max(1)).unwrap_or(u32::MAX);
        open.maps
            .target_cgroups
            .set_max_entries(room)
            .map_err(map_error("target_cgroups"))?;
        // 5 MB of the kernel's memory each: only where they are looked into.
        if !follows {
            open.maps
                .targets
                .set_max_entries(1)
                .map_err(map_error("targets"))?;
        }
        if !self.by_thread {
            open.maps
                .target_threads
                .set_max_entries(1)
                .map_err(map_error("target_threads"))?;
        }
        let Some(data) = open.maps.rodata_data.as_deref_mut() else {
            return Ok(());
        };
        let config = &mut data.target_cfg;
        config.by_process = u32::from(self.by_process);
        config.by_thread = u32::from(self.by_thread);
        let levels = self.levels();
        if levels.len() > config.cgroup_levels.len() {
            return Err(Error::TooManyLevels(config.cgroup_levels.len()));
        }
        config.n_cgroup_levels = u32::try_from(levels.len()).unwrap_or(0);
        for (slot, (hierarchy, level)) in config.cgroup_levels.iter_mut().zip(levels) {
            *slot = types::cgroup_level { hierarchy, level };
        }
        if let Some(cpus) = &self.cpus {
            config.by_cpu = 1;
            for &cpu in cpus {
                if let Some(word) = config.cpus.get_mut(cpu as usize / 64) {
                    *word |= 1 << (cpu % 64);
                }
            }
        }
        Ok(())
    }

    /// Tell a loaded object which cgroups.
    pub(crate) fn add_cgroups(&self, skel: &RecorderSkel<'_>) -> Result<()> {
        for cgroup in &self.cgroups {
            let key = [
                &cgroup.id.to_ne_bytes()[..],
                &cgroup.hierarchy.to_ne_bytes(),
                &[0; 4],
            ]
            .concat();
            skel.maps
                .target_cgroups
                .update(&key, &[1], MapFlags::ANY)
                .map_err(map_error("target_cgroups"))?;
        }
        Ok(())
    }
}

fn map_error(map: &'static str) -> impl Fn(libbpf_rs::Error) -> Error {
    move |error| Error::Map { map, error }
}

/// Who is recorded, when it is not everyone. What these make later follows by itself from [`Programs::attach`] on: so
/// add them after it, and nothing slips through.
impl Programs<'_> {
    /// Record this process.
    pub fn add_process(&self, pid: u32) -> Result<()> {
        self.set_process(pid, NOW)
    }

    /// Record this process from its next exec on: what it does until then is not the command's.
    pub fn add_process_at_exec(&self, pid: u32) -> Result<()> {
        self.set_process(pid, AT_EXEC)
    }

    fn set_process(&self, pid: u32, since: [u8; 1]) -> Result<()> {
        self.skel
            .maps
            .targets
            .update(&pid.to_ne_bytes(), &since, MapFlags::ANY)
            .map_err(map_error("targets"))
    }

    /// Record this thread.
    pub fn add_thread(&self, tid: u32) -> Result<()> {
        self.skel
            .maps
            .target_threads
            .update(&tid.to_ne_bytes(), &NOW, MapFlags::ANY)
            .map_err(map_error("target_threads"))
    }

    /// Processes and threads that should be recorded and found no room in the kernel's table.
    pub fn targets_lost(&self) -> u64 {
        self.skel
            .maps
            .bss_data
            .as_deref()
            .map_or(0, |data| data.targets_lost)
    }
}
