//! Perf events by name: generic ones of hardware, caches and software, raw codes, and what the host's PMUs name.

use std::fs;

use rawstack_bpf::{Counter, Rate, is_available};

use super::pmu::Pmus;
use super::suggest::did_you_mean;
use crate::error::{Error, Result};
use crate::options;

/// `PERF_TYPE_*` of `include/uapi/linux/perf_event.h`.
const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const HW_CACHE: u32 = 3;
const RAW: u32 = 4;

/// The kernel's own limit of clocks, in nanoseconds.
const LEAST_PERIOD: u64 = 10_000;
/// Samples a second where a period of another unit was asked for.
const DEFAULT_FREQUENCY: u64 = 199;

/// Names and numbers of perf's generic events. Where two have one number, the first is the usual one.
const HARDWARE_NAMES: &[(&str, u64)] = &[
    ("cycles", 0),
    ("cpu-cycles", 0),
    ("instructions", 1),
    ("cache-references", 2),
    ("cache-misses", 3),
    ("branches", 4),
    ("branch-instructions", 4),
    ("branch-misses", 5),
    ("bus-cycles", 6),
    ("stalled-cycles-frontend", 7),
    ("idle-cycles-frontend", 7),
    ("stalled-cycles-backend", 8),
    ("idle-cycles-backend", 8),
    ("ref-cycles", 9),
];
const SOFTWARE_NAMES: &[(&str, u64)] = &[
    ("cpu-clock", 0),
    ("task-clock", 1),
    ("page-faults", 2),
    ("faults", 2),
    ("context-switches", 3),
    ("cs", 3),
    ("cpu-migrations", 4),
    ("migrations", 4),
    ("minor-faults", 5),
    ("major-faults", 6),
    ("alignment-faults", 7),
    ("emulation-faults", 8),
    ("cgroup-switches", 11),
];
/// Caches with the operations that they can count: loads, stores, prefetches.
const CACHES: &[(&str, [bool; 3])] = &[
    ("L1-dcache", [true, true, true]),
    ("L1-icache", [true, false, true]),
    ("LLC", [true, true, true]),
    ("dTLB", [true, true, true]),
    ("iTLB", [true, false, false]),
    ("branch", [true, false, false]),
    ("node", [true, true, true]),
];
const OPERATIONS: [(&str, &str); 3] = [
    ("loads", "load-misses"),
    ("stores", "store-misses"),
    ("prefetches", "prefetch-misses"),
];

/// A counter as it will run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its name: what was asked for, or what runs in its place.
    pub(crate) name: String,
    /// What it is to the kernel.
    pub(crate) counter: Counter,
    /// Samples a second that were asked for, 0 where a period was.
    pub(crate) frequency: u64,
    /// Why something else runs.
    pub(crate) note: Option<String>,
}

/// Find the counter that is named `text`.
pub(crate) fn find(text: &str, rate: options::Rate, pmus: &Pmus) -> Result<Found> {
    let (name, modifiers) = split_modifiers(text);
    let Some((pmu, config)) = number_of(name, pmus)? else {
        let known = known_names(pmus);
        let near = did_you_mean(name, known.iter().map(String::as_str));
        return Err(Error::Event {
            event: text.to_owned(),
            why: format!("no event of that name is known here{near}"),
            cure: "give a name that perf list shows, rHEX, PMU/EVENT/ or SYS:NAME",
        });
    };
    let is_clock = pmu.kind == SOFTWARE && config[0] <= 1;
    let mut counter = Counter {
        pmu: pmu.kind,
        config,
        rate: counter_rate(text, rate, is_clock)?,
        is_clock,
        exclude_user: false,
        exclude_kernel: false,
        cpus: pmu.cpus,
    };
    modify(&mut counter, text, modifiers)?;
    if matches!(pmu.kind, HARDWARE | HW_CACHE) && !is_available(&counter)? {
        return Ok(fall_back(text, modifiers, counter, rate));
    }
    Ok(Found {
        name: text.to_owned(),
        counter,
        frequency: match rate {
            options::Rate::Frequency(hz) => hz,
            options::Rate::Period(_) => 0,
        },
        note: None,
    })
}

/// The type of an event, and the CPUs that have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kind {
    /// `type` of `struct perf_event_attr`.
    pub(crate) kind: u32,
    /// Where not all have it.
    pub(crate) cpus: Option<Vec<u32>>,
}

fn number_of(name: &str, pmus: &Pmus) -> Result<Option<(Kind, [u64; 3])>> {
    let of = |kind, number| {
        let kind = Kind { kind, cpus: None };
        Ok(Some((kind, [number, 0, 0])))
    };
    let listed = |names: &[(&str, u64)]| {
        let found = names.iter().find(|(known, _)| *known == name);
        found.map(|(_, number)| *number)
    };
    if let Some(number) = listed(SOFTWARE_NAMES) {
        return of(SOFTWARE, number);
    }
    if let Some(number) = listed(HARDWARE_NAMES) {
        return of(HARDWARE, number);
    }
    if let Some((_, number)) = cache_names().find(|(known, _)| known == name) {
        return of(HW_CACHE, number);
    }
    let code = name.strip_prefix('r').filter(|code| !code.is_empty());
    if let Some(code) = code.and_then(|code| u64::from_str_radix(code, 16).ok()) {
        return of(RAW, code);
    }
    pmus.find(name)
}

/// Each name of a cache event, with its number.
fn cache_names() -> impl Iterator<Item = (String, u64)> {
    (0u64..).zip(CACHES).flat_map(|(cache, (name, can))| {
        (0u64..)
            .zip(OPERATIONS)
            .zip(can)
            .filter(|(_, can)| **can)
            .flat_map(move |((operation, (all, misses)), _)| {
                let number = cache | operation << 8;
                [
                    (format!("{name}-{all}"), number),
                    (format!("{name}-{misses}"), number | 1 << 16),
                ]
            })
    })
}

fn known_names(pmus: &Pmus) -> Vec<String> {
    let generic = SOFTWARE_NAMES.iter().chain(HARDWARE_NAMES);
    let mut names: Vec<String> = generic.map(|(name, _)| (*name).to_owned()).collect();
    names.push("off-cpu".to_owned());
    names.extend(cache_names().map(|(name, _)| name));
    names.extend(pmus.names());
    names
}

/// `cycles:u` as `cycles` and `u`; `cpu/event=1/u` as `cpu/event=1/` and `u`.
fn split_modifiers(text: &str) -> (&str, &str) {
    if let Some((_, modifiers)) = text.rsplit_once('/') {
        return text.split_at(text.len() - modifiers.len());
    }
    text.split_once(':').unwrap_or((text, ""))
}

fn modify(counter: &mut Counter, text: &str, modifiers: &str) -> Result<()> {
    let modifiers = modifiers.strip_prefix(':').unwrap_or(modifiers);
    if let Some(unknown) = modifiers.chars().find(|letter| !"ukh".contains(*letter)) {
        return Err(Error::Event {
            event: text.to_owned(),
            why: format!("modifier {unknown} is not known"),
            cure: "give u (in user code), k (in the kernel) or none",
        });
    }
    if !modifiers.is_empty() {
        counter.exclude_user = !modifiers.contains('u');
        counter.exclude_kernel = !modifiers.contains(['k', 'h']);
    }
    Ok(())
}

fn counter_rate(text: &str, rate: options::Rate, is_clock: bool) -> Result<Rate> {
    match rate {
        options::Rate::Period(period) if is_clock && period < LEAST_PERIOD => Err(Error::Option {
            option: "--period",
            why: format!("{period} ns is too short for {text}"),
            cure: "give 10000 or more",
        }),
        options::Rate::Period(period) => Ok(Rate::Period(period)),
        options::Rate::Frequency(hz) if is_clock => Ok(Rate::Period(1_000_000_000 / hz)),
        options::Rate::Frequency(hz) => match highest_frequency() {
            Some(highest) if hz > highest => Err(Error::Option {
                option: "--frequency",
                why: format!("{hz} Hz is more than this kernel gives {text}"),
                cure: "give less, -c N, or raise kernel.perf_event_max_sample_rate",
            }),
            _ => Ok(Rate::Frequency(hz)),
        },
    }
}

fn highest_frequency() -> Option<u64> {
    let text = fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate").ok()?;
    text.trim().parse().ok()
}

/// `cpu-clock` in place of a counter that this machine does not have.
fn fall_back(text: &str, modifiers: &str, wanted: Counter, rate: options::Rate) -> Found {
    let hz = match rate {
        options::Rate::Frequency(hz) => hz,
        options::Rate::Period(_) => DEFAULT_FREQUENCY,
    };
    let name = match modifiers {
        "" => "cpu-clock".to_owned(),
        modifiers => format!("cpu-clock:{modifiers}"),
    };
    let note = format!(
        "{text}: this machine has no such hardware counter; {name} at {hz} Hz runs in its place"
    );
    Found {
        name,
        counter: Counter {
            exclude_user: wanted.exclude_user,
            exclude_kernel: wanted.exclude_kernel,
            ..Counter::cpu_clock(1_000_000_000 / hz)
        },
        frequency: hz,
        note: Some(note),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn number(name: &str) -> Option<(u32, u64)> {
        let nowhere = Pmus::new(Path::new("/nonexistent"));
        let (kind, config) = number_of(name, &nowhere).unwrap()?;
        Some((kind.kind, config[0]))
    }

    /// Check numbers against `perf stat -vv` of perf 6.1.
    #[test]
    fn generic_names() {
        assert_eq!(number("cs"), Some((SOFTWARE, 3)));
        assert_eq!(number("ref-cycles"), Some((HARDWARE, 9)));
        assert_eq!(number("L1-dcache-load-misses"), Some((HW_CACHE, 0x10000)));
        assert_eq!(number("LLC-stores"), Some((HW_CACHE, 0x102)));
        assert_eq!(number("iTLB-loads"), Some((HW_CACHE, 4)));
        assert_eq!(number("iTLB-stores"), None);
        assert_eq!(number("r1a8"), Some((RAW, 0x1a8)));
        assert_eq!(number("r"), None);
        assert_eq!(number("rain"), None);
    }

    /// Check that modifiers say what is left in, and that others are refused.
    #[test]
    fn modifiers() {
        assert_eq!(split_modifiers("cycles:u"), ("cycles", "u"));
        assert_eq!(split_modifiers("cpu/event=1/k"), ("cpu/event=1/", "k"));
        let mut counter = Counter::cpu_clock(1);
        modify(&mut counter, "", "u").unwrap();
        assert!(counter.exclude_kernel && !counter.exclude_user);
        modify(&mut counter, "", "uk").unwrap();
        assert!(!counter.exclude_kernel && !counter.exclude_user);
        assert!(modify(&mut counter, "x:q", "q").is_err());
    }
}
