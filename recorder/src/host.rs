//! Facts of the host that go into the archive.

use std::fs;

use rawstack_format::id::BuildId;
use rustix::param::page_size;
use rustix::system::uname;
use rustix::time::{ClockId, clock_gettime};

/// Name and value of each fact that is known.
pub(crate) fn facts(
    cpus: usize,
    kernel_build_id: Option<&BuildId>,
    event_notes: &[String],
) -> Vec<(String, String)> {
    let name = uname();
    let file = |path: &str| {
        fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let facts = [
        ("hostname", name.nodename().to_string_lossy().into_owned()),
        (
            "kernel_release",
            name.release().to_string_lossy().into_owned(),
        ),
        (
            "kernel_build_id",
            kernel_build_id.map(ToString::to_string).unwrap_or_default(),
        ),
        ("machine", name.machine().to_string_lossy().into_owned()),
        ("cpus", cpus.to_string()),
        (
            "cpu_model",
            cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
        ),
        ("page_size", page_size().to_string()),
        ("boot_id", file("/proc/sys/kernel/random/boot_id")),
        (
            "os",
            os_name(&fs::read_to_string("/etc/os-release").unwrap_or_default()),
        ),
        ("event_notes", event_notes.join("; ")),
    ];
    let known = facts.into_iter().filter(|(_, value)| !value.is_empty());
    known
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

fn cpu_model(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':'))
        .map(|(_, model)| model.trim().to_owned())
        .unwrap_or_default()
}

fn os_name(release: &str) -> String {
    let line = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    line.map(|name| name.trim_matches('"').to_owned())
        .unwrap_or_default()
}

/// The monotonic clock, in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

/// The wall clock, in nanoseconds since 1970-01-01 UTC.
pub(crate) fn wall_ns() -> u64 {
    clock_ns(ClockId::Realtime)
}

/// What the boot-time clock is ahead of the monotonic one, in nanoseconds: as long as the machine has slept.
pub(crate) fn asleep_ns() -> u64 {
    let monotonic = monotonic_ns();
    clock_ns(ClockId::Boottime).saturating_sub(monotonic)
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let parts = (
        u64::try_from(time.tv_sec).unwrap_or(0),
        u64::try_from(time.tv_nsec).unwrap_or(0),
    );
    parts.0 * 1_000_000_000 + parts.1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that both files give the one line that is wanted, and nothing where it is missing.
    #[test]
    fn lines() {
        assert_eq!(
            cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 2GHz\n"),
            "Some CPU @ 2GHz"
        );
        assert_eq!(os_name("NAME=x\nPRETTY_NAME=\"Debian 12\"\n"), "Debian 12");
        assert_eq!((cpu_model(""), os_name("")), (String::new(), String::new()));
    }
}
