//! How far the unwinding of copied stacks came, for people. Knows no archive and no frames.

use rawstack_format::copies::CopyLoss;

use super::render::share;
use crate::copied::{CopyEnd, EndCounts};
use crate::profile::ModuleId;
use crate::unwind::End;

/// Modules without unwind information that are named.
const MOST_MODULES: usize = 3;

/// Paths of modules.
pub type Paths<'p> = dyn Fn(ModuleId) -> String + 'p;

/// Stacks that ended in modules, or in code of none, without unwind information: the most first.
pub fn without_information(ends: &EndCounts<ModuleId>) -> Vec<(Option<ModuleId>, u64)> {
    let of_modules = ends.iter().filter_map(|(end, count)| match end {
        CopyEnd::Unwound(End::NoUnwindInfo(module)) => Some((module, count)),
        _ => None,
    });
    let mut rows: Vec<_> = of_modules.collect();
    rows.sort_by_key(|&(module, count)| (u64::MAX - count, module));
    rows
}

/// One line on stacks that do not reach their outermost frame: how many, where they end, and what to do; nothing where
/// there are none.
pub fn line(ends: &EndCounts<ModuleId>, paths: &Paths<'_>) -> Option<String> {
    let (total, reached) = (ends.total(), ends.reached());
    let short = total - reached;
    if short == 0 {
        return None;
    }
    let mut parts = Vec::new();
    parts.extend(modules(ends, paths));
    let cut = ends.count(|end| *end == CopyEnd::Unwound(End::CopyEnds));
    if cut > 0 {
        parts.push(format!(
            "{cut} where the copy ends (record with a larger --unwind stack-copy:BYTES)"
        ));
    }
    let failed =
        ends.count(|end| matches!(end, CopyEnd::Unwound(End::Contradiction(_) | End::TooDeep)));
    if failed > 0 {
        parts.push(format!("{failed} where what was found cannot be"));
    }
    for loss in CopyLoss::ALL {
        let lost = ends.count(|end| *end == CopyEnd::Lost(loss));
        if lost > 0 {
            parts.push(format!("{lost} have no copy ({})", loss.name()));
        }
    }
    let none = ends.count(|end| *end == CopyEnd::NoCopy);
    if none > 0 {
        parts.push(format!("{none} have no copy"));
    }
    let part = share(short, total);
    Some(format!(
        "{short} of {total} user stacks ({part:.2} %) do not reach their outermost frame: {}",
        parts.join("; ")
    ))
}

fn modules(ends: &EndCounts<ModuleId>, paths: &Paths<'_>) -> Option<String> {
    let rows = without_information(ends);
    let all: u64 = rows.iter().map(|(_, count)| count).sum();
    if rows.is_empty() {
        return None;
    }
    let name = |(module, count): &(Option<ModuleId>, u64)| match module {
        Some(module) => format!("{} ({count})", paths(*module)),
        None => format!("code of no file ({count})"),
    };
    let mut named: Vec<String> = rows.iter().take(MOST_MODULES).map(name).collect();
    let more = rows.len().saturating_sub(MOST_MODULES);
    if more > 0 {
        named.push(format!("{more} more"));
    }
    Some(format!(
        "{all} without unwind information: {} (on the recorded host `rawstack symbols FILE --pack OUT` keeps it, --symbol-dir OUT reads it)",
        named.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that nothing is said of whole stacks, and of others how many, why, and in which modules.
    #[test]
    fn lines() {
        let mut ends = EndCounts::default();
        let paths = |module: ModuleId| format!("lib{}", module.0);
        ends.add(CopyEnd::Unwound(End::Outermost));
        ends.add(CopyEnd::Unwound(End::Zero));
        assert_eq!(line(&ends, &paths), None);
        for module in [1, 2, 2, 3, 4] {
            ends.add(CopyEnd::Unwound(End::NoUnwindInfo(Some(ModuleId(module)))));
        }
        ends.add(CopyEnd::Unwound(End::CopyEnds));
        ends.add(CopyEnd::Lost(CopyLoss::BufferFull));
        ends.add(CopyEnd::NoCopy);
        let line = line(&ends, &paths).unwrap();
        for words in [
            "8 of 10 user stacks (80.00 %)",
            "5 without unwind information: lib2 (2), lib1 (1), lib3 (1), 1 more",
            "1 where the copy ends",
            "1 have no copy (buffer-full)",
            "1 have no copy",
        ] {
            assert!(line.contains(words), "{line}");
        }
    }
}
