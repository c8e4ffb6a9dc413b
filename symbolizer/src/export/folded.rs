//! Folded stacks: `root;…;leaf weight`, one line each, sorted.

use std::collections::BTreeMap;

use crate::profile::ThreadId;
use crate::report::NameFilter;
use crate::symbolized::{Stack, SymbolizedProfile};

/// Fold the selected stacks of `profile`; each starts with its process's name.
pub fn fold(profile: &SymbolizedProfile, names: &NameFilter) -> BTreeMap<String, u64> {
    let unit = profile.unit();
    let selected = names.of(profile);
    let parts: Vec<String> = profile
        .frames()
        .iter()
        .map(|frame| part(profile.text(frame.name), frame.kernel))
        .collect();
    let mut folded = BTreeMap::new();
    let mut stack = Stack::new();
    for row in &profile.rows {
        if !selected.stack(row, &mut stack) {
            continue;
        }
        let mut line = root(profile, row.thread);
        for frame in stack.iter().rev() {
            line.push(';');
            line.push_str(parts.get(*frame as usize).map_or("[lost]", String::as_str));
        }
        let weight = profile.weight(row, unit);
        let sum: &mut u64 = folded.entry(line).or_default();
        *sum = sum.saturating_add(weight);
    }
    folded
}

fn root(profile: &SymbolizedProfile, thread: ThreadId) -> String {
    let comm = profile
        .thread(thread)
        .map_or("", |thread| thread.comm.as_str());
    if comm.is_empty() {
        "[unknown]".to_owned()
    } else {
        part(comm, false)
    }
}

/// A name as it may stand between semicolons. Kernel functions get perf's mark, which gives them their colour.
fn part(name: &str, kernel: bool) -> String {
    let mut part = name.replace(';', ":");
    if kernel {
        part.push_str("_[k]");
    }
    part
}
