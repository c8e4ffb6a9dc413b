//! Which samples count. Knows nothing of how the options were typed.

use std::ops::RangeInclusive;

use super::facts::ThreadFacts;
use super::rows::EventFacts;

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
    /// Events, by name; what stands behind a name's first colon need not be given.
    pub events: Vec<String>,
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
        self.events.is_empty() || self.events.iter().any(|wanted| is_event(wanted, name))
    }

    /// The first event asked for that is not among `events`.
    pub fn missing_event(&self, events: &[EventFacts]) -> Option<&str> {
        let is_there = |wanted: &str| events.iter().any(|event| is_event(wanted, &event.name));
        let mut wanted = self.events.iter().map(String::as_str);
        wanted.find(|wanted| !is_there(wanted))
    }
}

/// Whether an event recorded as `name` is the one that is `wanted`: `off-cpu` is `off-cpu:1ms`, too.
fn is_event(wanted: &str, name: &str) -> bool {
    let rest = name.strip_prefix(wanted);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
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

    /// Check that an event is found with and without its parameter, and that the first unknown one is told.
    #[test]
    fn events_by_name() {
        let filter = |events: &[&str]| Filter {
            events: events.iter().map(|&name| name.to_owned()).collect(),
            ..Filter::default()
        };
        assert!(filter(&["off-cpu"]).has_event("off-cpu:1ms"));
        assert!(filter(&["a", "off-cpu:1ms"]).has_event("off-cpu:1ms"));
        assert!(!filter(&["off"]).has_event("off-cpu:1ms"));
        let events = [EventFacts {
            name: "cpu-clock".to_owned(),
            unit: "ns".to_owned(),
        }];
        assert_eq!(
            filter(&["cpu-clock", "x"]).missing_event(&events),
            Some("x")
        );
        assert_eq!(filter(&[]).missing_event(&events), None);
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
