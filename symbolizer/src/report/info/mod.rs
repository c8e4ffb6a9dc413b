//! What an archive holds and how whole it is.

mod advice;
mod json;
mod text;

pub use json::JsonInfo;
pub use text::write_text;

use std::collections::BTreeMap;
use std::io::Write;

use rawstack_format::record::Mode;

use crate::error::Result;
use crate::profile::tree::{Jit, shown_path};
use crate::profile::{ModuleId, Profile, Summary};
use crate::text::clean;

/// A module with frames.
#[derive(Clone, Debug, serde::Serialize, PartialEq, Eq, PartialOrd, Ord)]
struct ModuleFrames {
    path: String,
    build_id: Option<String>,
    frames: u64,
    /// Those with a name, where names were looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    named: Option<u64>,
}

fn mode(summary: &Summary) -> &'static str {
    match summary.recording.as_ref().map(|recording| recording.mode) {
        Some(Mode::Deferred) => "deferred",
        Some(Mode::Immediate) => "immediate",
        Some(Mode::Off) => "off",
        None => "unknown",
    }
}

/// Of a key that was given several times, as `event` may be, all values.
fn pairs(rows: &[(String, String)]) -> BTreeMap<String, String> {
    let mut pairs = BTreeMap::<String, String>::new();
    for (key, value) in rows {
        let value = clean(value);
        pairs
            .entry(clean(key).into_owned())
            .and_modify(|values| *values = format!("{values}, {value}"))
            .or_insert_with(|| value.clone().into_owned());
    }
    pairs
}

/// Frames without a name of each module of the tree, where names were looked for.
pub type Nameless<'n> = Option<&'n [u64]>;

/// Modules with frames: the most frames first.
fn modules(profile: &Profile, nameless: Nameless<'_>) -> Vec<ModuleFrames> {
    let mut frames = vec![0u64; profile.tree.modules().len()];
    let frames_of_samples = profile.tree.frames().iter();
    for frame in frames_of_samples.filter(|frame| frame.jit != Jit::Anywhere) {
        if let Some(count) = frames.get_mut(frame.module.index()) {
            *count += 1;
        }
    }
    let modules = profile.tree.modules().iter().zip(frames).enumerate();
    let rows = modules.filter(|(_, (_, frames))| *frames > 0);
    let mut rows: Vec<ModuleFrames> = rows
        .map(|(index, ((_, module), frames))| ModuleFrames {
            path: shown_path(module),
            build_id: module.build_id.as_ref().map(ToString::to_string),
            frames,
            named: nameless
                .map(|counts| frames.saturating_sub(counts.get(index).copied().unwrap_or(frames))),
        })
        .collect();
    rows.sort_by(|a, b| b.frames.cmp(&a.frames).then_with(|| a.cmp(b)));
    rows
}

/// Distinct stacks: pairs of a kernel and a user half.
fn stacks(profile: &Profile) -> u64 {
    let mut halves: Vec<_> = profile
        .rows
        .iter()
        .map(|row| (row.kernel, row.user))
        .collect();
    halves.sort_unstable();
    halves.dedup();
    halves.len() as u64
}

/// What a module of the tree is called.
fn path_of(profile: &Profile, id: ModuleId) -> String {
    let module = profile.tree.modules().get(id.index());
    module.map_or_else(String::new, |(_, module)| shown_path(module))
}

/// Write what `verify` found.
pub fn write_verdict(profile: &Profile, out: &mut dyn Write) -> Result<()> {
    for summary in &profile.archives {
        let problems = summary.problems();
        let path = clean(&summary.path);
        let (chunks, bytes) = (summary.damage.whole_chunks, summary.bytes);
        let verdict = if problems.is_empty() {
            "whole"
        } else {
            "not whole"
        };
        writeln!(
            out,
            "{path}: {verdict}: {chunks} chunks in {bytes} bytes, {} samples",
            summary.samples
        )?;
        writeln!(
            out,
            "  {} IDs reserved, {} accounted for",
            summary.reserved(),
            summary.accounted()
        )?;
        for problem in problems {
            writeln!(out, "  {problem}")?;
        }
    }
    Ok(())
}
