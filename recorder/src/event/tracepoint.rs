//! Tracepoints of the kernel: by their number in tracefs, or raw where tracefs cannot be read.

use std::fs;
use std::path::{Path, PathBuf};

use rawstack_bpf::{Origin, tracepoints};

use super::Every;
use super::suggest::did_you_mean;
use crate::error::{Error, Result};

/// Where tracefs is mounted, where it is.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// A tracepoint as it will be hooked.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// What it is to the kernel.
    pub(crate) origin: Origin,
    /// What is different from what was asked for.
    pub(crate) note: Option<String>,
}

/// Find tracepoint `system:name`.
pub(crate) fn find(system: &str, name: &str, every: Every) -> Result<Found> {
    let event = format!("{system}:{name}");
    let mut dirs = TRACEFS.iter().map(|dir| Path::new(dir).join("events"));
    let Some(events) = dirs.find(|dir| dir.read_dir().is_ok_and(|mut it| it.next().is_some()))
    else {
        return find_raw(&event, system, name, every);
    };
    let is_plain = |part: &str| !part.contains('/') && part != "..";
    let id = (is_plain(system) && is_plain(name))
        .then(|| fs::read_to_string(events.join(system).join(name).join("id")).ok())
        .flatten();
    let id = id.and_then(|id| id.trim().parse().ok()).ok_or_else(|| {
        let known = listed(&events, system);
        unknown(&event, known.iter().map(String::as_str))
    })?;
    let every = every.0;
    Ok(Found {
        origin: Origin::Tracepoint { id, every },
        note: None,
    })
}

/// Without tracefs: the same tracepoint can be hooked by its bare name, unless it is one of many made of one.
fn find_raw(event: &str, system: &str, name: &str, every: Every) -> Result<Found> {
    if system == "syscalls" {
        return Err(Error::Event {
            event: event.to_owned(),
            why: "tracefs cannot be read, and this tracepoint has no other way".to_owned(),
            cure: "mount it (mount -t tracefs tracefs /sys/kernel/tracing), or take raw_syscalls:sys_enter",
        });
    }
    let known = tracepoints()?;
    if !known.iter().any(|known| known == name) {
        return Err(unknown(event, known.iter().map(String::as_str)));
    }
    let note =
        format!("{event}: tracefs cannot be read; raw tracepoint {name}, the same event, is taken");
    Ok(Found {
        origin: Origin::RawTracepoint {
            name: name.to_owned(),
            every: every.0,
        },
        note: Some(note),
    })
}

fn unknown<'a>(event: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let name = event.split_once(':').map_or(event, |(_, name)| name);
    let known: Vec<&str> = known.collect();
    let is_whole = known.iter().any(|known| known.contains(':'));
    let near = did_you_mean(if is_whole { event } else { name }, known);
    Error::Event {
        event: event.to_owned(),
        why: format!("there is no such tracepoint{near}"),
        cure: "give one that tracefs or perf list shows",
    }
}

/// The tracepoints of `system`, or where there is no such system all, as `SYS:NAME`.
fn listed(events: &Path, system: &str) -> Vec<String> {
    let names = |dir: PathBuf| {
        let entries = dir.read_dir().into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.path().is_dir())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect::<Vec<_>>()
    };
    let systems = match names(events.join(system)).is_empty() {
        true => names(events.to_owned()),
        false => vec![system.to_owned()],
    };
    let mut all: Vec<String> = systems
        .iter()
        .flat_map(|system| {
            let events = names(events.join(system)).into_iter();
            events.map(move |name| format!("{system}:{name}"))
        })
        .collect();
    all.sort_unstable();
    all
}
