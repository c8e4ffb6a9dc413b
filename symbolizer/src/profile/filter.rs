//! Which samples count. Knows nothing of how the options were typed.

use std::ops::RangeInclusive;

use super::facts::ThreadFacts;

/// A selection of samples; an empty part selects everything.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Process IDs.
    pub pids: Vec<u32>,
    /// Thread IDs.
    pub tids: Vec<u32>,
    /// Names of threads or of their processes.
    pub comms: Vec<String>,
    /// Control group, with those below it.
    pub cgroup: Option<String>,
    /// CPUs.
    pub cpus: Vec<RangeInclusive<u32>>,
    /// Event.
    pub event: Option<String>,
    /// Runs.
    pub runs: Vec<RangeInclusive<u32>>,
    /// Nanoseconds since the start of the recording, from.
    pub from_ns: Option<u64>,
    /// Nanoseconds since the start of the recording, up to and without.
    pub to_ns: Option<u64>,
    /// Leave kernel frames out.
    pub no_kernel: bool,
}

impl Filter {
    /// Whether samples of a thread count.
    pub(super) fn has_thread(&self, thread: &ThreadFacts) -> bool {
        let comm = |comm: &String| *comm == thread.comm || *comm == thread.process_comm;
        let below = |group: &String| {
            let rest = thread.cgroup.strip_prefix(group.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        (self.pids.is_empty() || self.pids.contains(&thread.pid))
            && (self.tids.is_empty() || self.tids.contains(&thread.tid))
            && (self.comms.is_empty() || self.comms.iter().any(comm))
            && self.cgroup.as_ref().is_none_or(below)
    }

    /// Whether a sample of this CPU and run counts, `since_ns` nanoseconds behind the start.
    pub(super) fn has(&self, cpu: u32, run: u32, since_ns: u64) -> bool {
        let within = |ranges: &[RangeInclusive<u32>], number| {
            ranges.is_empty() || ranges.iter().any(|range| range.contains(&number))
        };
        within(&self.cpus, cpu)
            && within(&self.runs, run)
            && self.from_ns.is_none_or(|from| since_ns >= from)
            && self.to_ns.is_none_or(|to| since_ns < to)
    }

    /// Whether an event's samples count.
    pub(super) fn has_event(&self, name: &str) -> bool {
        self.event.as_ref().is_none_or(|wanted| wanted == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a control group selects those below it and not its neighbours with a longer name.
    #[test]
    fn control_groups_below() {
        let filter = Filter {
            cgroup: Some("/system".to_owned()),
            ..Filter::default()
        };
        let has = |cgroup: &str| {
            filter.has_thread(&ThreadFacts {
                cgroup: cgroup.to_owned(),
                ..ThreadFacts::default()
            })
        };
        assert!(has("/system") && has("/system/web.service"));
        assert!(!has("/systemd") && !has("/user"));
    }

    /// Check that a time span includes its start and not its end.
    #[test]
    fn half_open_time() {
        let filter = Filter {
            from_ns: Some(10),
            to_ns: Some(20),
            ..Filter::default()
        };
        assert!(filter.has(0, 0, 10) && filter.has(0, 0, 19));
        assert!(!filter.has(0, 0, 9) && !filter.has(0, 0, 20));
    }
}
