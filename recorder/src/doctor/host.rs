//! The rest of the host: cgroups, where the archive goes, memory.

use std::fs;
use std::path::Path;

use rustix::fs::{Access, access, statvfs};

use super::{Check, Verdict};
use crate::options::Options;

pub(super) fn checks(options: &Options) -> Vec<Check> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    vec![
        Check::wanted("cgroup v2", hierarchy(&mounts, "cgroup2")),
        Check::wanted("cgroup v1", hierarchy(&mounts, "cgroup")),
        Check::needed("output folder", output(&options.output)),
        Check::wanted("memory", available(&memory, options.max_memory)),
    ]
}

/// Where a hierarchy of that kind is mounted.
fn hierarchy(mounts: &str, kind: &str) -> Verdict {
    let mount = mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        let place = fields.nth(1)?;
        (fields.next()? == kind).then_some(place)
    });
    let why = "none is mounted";
    Verdict::when(mount.is_some(), mount.unwrap_or_default(), why)
}

fn output(path: &Path) -> Verdict {
    if path == Path::new("-") {
        return Verdict::Works("standard output".to_owned());
    }
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let folder = parent.unwrap_or(Path::new("."));
    let shown = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let shown = shown.display();
    if let Err(error) = access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        return Verdict::Missing(format!("{shown}: {error}; name another place with -o"));
    }
    let free = statvfs(folder).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    Verdict::Works(format!("{shown}, {} MiB free", free >> 20))
}

fn available(meminfo: &str, wanted: u64) -> Verdict {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let free = kibibytes.unwrap_or(0) << 10;
    let (free_mib, wanted_mib) = (free >> 20, wanted >> 20);
    let detail = format!("{free_mib} MiB available, {wanted_mib} MiB taken at most");
    let why = format!(
        "{free_mib} MiB available, {wanted_mib} MiB may be taken; give less with --max-memory"
    );
    Verdict::when(free >= wanted, detail, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the two versions of cgroups are told apart.
    #[test]
    fn hierarchies() {
        let mounts = "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n";
        assert_eq!(
            hierarchy(mounts, "cgroup2"),
            Verdict::Works("/sys/fs/cgroup/unified".to_owned())
        );
        assert_eq!(
            hierarchy(mounts, "cgroup"),
            Verdict::Works("/sys/fs/cgroup/cpu".to_owned())
        );
        assert!(matches!(hierarchy("", "cgroup"), Verdict::Missing(_)));
    }

    /// Check that memory is compared with what may be taken.
    #[test]
    fn memory() {
        let text = "MemTotal: 100 kB\nMemAvailable:  65536 kB\n";
        assert!(matches!(available(text, 64 << 20), Verdict::Works(_)));
        assert!(matches!(available(text, 65 << 20), Verdict::Missing(_)));
    }
}
