//! What an archive holds and how whole it is, as JSON. docs/reports.md describes the keys.

use std::collections::BTreeMap;
use std::io::Write;

use rawstack_format::record::{Event, Run, State};
use serde::Serialize;
use serde_json::{Value, json};

use super::{ModuleFrames, Nameless, advice, mode, modules, pairs, path_of, stacks};
use crate::copied::CopyTotals;
use crate::error::Result;
use crate::jit::JitFile;
use crate::profile::{ModuleId, Profile, Summary};
use crate::report::unwound::without_information;
use crate::text::clean;

/// Version of the layout.
const SCHEMA: &str = "rawstack.info.v1";

/// One archive, or one part of a merged one, or a merged one as the sum of its parts.
#[derive(Clone, Debug, Serialize)]
pub struct JsonInfo {
    schema: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    format_version: String,
    mode: &'static str,
    mode_reason: String,
    host: BTreeMap<String, String>,
    options: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    events: Vec<Value>,
    start_ns: u64,
    end_ns: u64,
    start_wall_ns: u64,
    samples: u64,
    ids: Ids,
    drops: Vec<JsonDrop>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    copies: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    unwound: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    no_unwind_info: Vec<NoUnwindInfo>,
    processes: u64,
    threads: u64,
    stacks: u64,
    modules: Vec<ModuleFrames>,
    jit_maps: Vec<Value>,
    runs: Vec<Value>,
    bytes: u64,
    complete: bool,
    damage: BTreeMap<&'static str, u64>,
    writer: String,
    advice: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Self>,
}

#[derive(Clone, Debug, Serialize)]
struct Ids {
    reserved: u64,
    states: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Debug, Serialize)]
struct JsonDrop {
    reason: &'static str,
    count: u64,
    from_ns: u64,
    to_ns: u64,
}

/// A module, or code of none, that stacks ended in for want of unwind information.
#[derive(Clone, Debug, Serialize)]
struct NoUnwindInfo {
    path: Option<String>,
    stacks: u64,
}

impl JsonInfo {
    /// What the only archive of `profile` holds.
    pub fn of(profile: &Profile, nameless: Nameless<'_>, summary: &Summary) -> Self {
        let nothing = Default::default();
        let recording = summary.recording.as_ref().unwrap_or(&nothing);
        let states = State::ALL.iter().zip(summary.states);
        let drops = summary.drops.iter().map(|(reason, total)| JsonDrop {
            reason: reason.name(),
            count: total.count,
            from_ns: total.from_ns,
            to_ns: total.to_ns,
        });
        Self {
            schema: SCHEMA,
            path: None,
            format_version: format!("{}.{}", summary.format.0, summary.format.1),
            mode: mode(summary),
            mode_reason: clean(&recording.mode_reason).into_owned(),
            host: pairs(&recording.host),
            options: pairs(&recording.options),
            labels: pairs(&recording.labels),
            events: recording.events.iter().map(event).collect(),
            start_ns: summary.start_ns(),
            end_ns: summary.end_ns(),
            start_wall_ns: recording.start_wall_ns,
            samples: summary.samples,
            ids: Ids {
                reserved: summary.reserved(),
                states: states.map(|(state, count)| (state.name(), count)).collect(),
            },
            drops: drops.collect(),
            copies: copies(&summary.copies),
            unwound: unwound(summary),
            no_unwind_info: no_unwind_info(profile, summary),
            processes: summary.processes,
            threads: summary.threads,
            stacks: stacks(profile),
            modules: modules(profile, nameless),
            jit_maps: jit_maps(profile),
            runs: summary.runs.iter().map(run).collect(),
            bytes: summary.bytes,
            complete: summary.problems().is_empty(),
            damage: damage(summary),
            writer: clean(&recording.writer).into_owned(),
            advice: advice::lines(profile, nameless, summary),
            parts: Vec::new(),
        }
    }

    /// As [`of`](Self::of), of a part of a merged archive.
    pub fn of_part(profile: &Profile, nameless: Nameless<'_>, summary: &Summary) -> Self {
        Self {
            path: Some(clean(&summary.path).into_owned()),
            ..Self::of(profile, nameless, summary)
        }
    }

    /// A merged archive of `bytes`: numbers are sums, facts those that all parts have in common.
    pub fn merged(parts: Vec<Self>, bytes: u64) -> Option<Self> {
        let (first, others) = parts.split_first()?;
        let mut sum = first.clone();
        for other in others {
            sum.add(other);
        }
        sum.modules
            .sort_by(|a, b| b.frames.cmp(&a.frames).then_with(|| a.cmp(b)));
        Some(Self {
            path: None,
            bytes,
            parts,
            ..sum
        })
    }

    fn add(&mut self, other: &Self) {
        if self.mode != other.mode {
            self.mode = "mixed";
        }
        keep_common_text(&mut self.format_version, &other.format_version);
        keep_common_text(&mut self.mode_reason, &other.mode_reason);
        keep_common_text(&mut self.writer, &other.writer);
        keep_common(&mut self.host, &other.host);
        keep_common(&mut self.options, &other.options);
        keep_common(&mut self.labels, &other.labels);
        for event in &other.events {
            if !self.events.contains(event) {
                self.events.push(event.clone());
            }
        }
        self.start_ns = self.start_ns.min(other.start_ns);
        self.end_ns = self.end_ns.max(other.end_ns);
        self.start_wall_ns = self.start_wall_ns.min(other.start_wall_ns);
        for (count, more) in [
            (&mut self.samples, other.samples),
            (&mut self.ids.reserved, other.ids.reserved),
            (&mut self.processes, other.processes),
            (&mut self.threads, other.threads),
            (&mut self.stacks, other.stacks),
        ] {
            *count = count.saturating_add(more);
        }
        add_counts(&mut self.ids.states, &other.ids.states);
        add_counts(&mut self.damage, &other.damage);
        add_counts(&mut self.copies, &other.copies);
        add_counts(&mut self.unwound, &other.unwound);
        self.add_no_unwind_info(&other.no_unwind_info);
        self.add_drops(&other.drops);
        self.add_modules(&other.modules);
        self.jit_maps.extend_from_slice(&other.jit_maps);
        self.runs.extend_from_slice(&other.runs);
        self.complete &= other.complete;
        for line in &other.advice {
            if !self.advice.contains(line) {
                self.advice.push(line.clone());
            }
        }
    }

    fn add_drops(&mut self, drops: &[JsonDrop]) {
        for drop in drops {
            match self
                .drops
                .iter_mut()
                .find(|held| held.reason == drop.reason)
            {
                Some(held) => {
                    held.count = held.count.saturating_add(drop.count);
                    held.from_ns = held.from_ns.min(drop.from_ns);
                    held.to_ns = held.to_ns.max(drop.to_ns);
                }
                None => self.drops.push(drop.clone()),
            }
        }
    }

    fn add_no_unwind_info(&mut self, modules: &[NoUnwindInfo]) {
        for row in modules {
            let held = &mut self.no_unwind_info;
            match held.iter_mut().find(|held| held.path == row.path) {
                Some(held) => held.stacks = held.stacks.saturating_add(row.stacks),
                None => held.push(row.clone()),
            }
        }
    }

    fn add_modules(&mut self, modules: &[ModuleFrames]) {
        for module in modules {
            let same = |held: &&mut ModuleFrames| {
                held.path == module.path && held.build_id == module.build_id
            };
            match self.modules.iter_mut().find(same) {
                Some(held) => {
                    held.frames = held.frames.saturating_add(module.frames);
                    held.named = held
                        .named
                        .zip(module.named)
                        .map(|(a, b)| a.saturating_add(b));
                }
                None => self.modules.push(module.clone()),
            }
        }
    }

    /// Write it as one line.
    pub fn write(&self, out: &mut dyn Write) -> Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")?;
        Ok(())
    }
}

/// What there is of copies of stacks; nothing where none were asked for.
fn copies(totals: &CopyTotals) -> BTreeMap<&'static str, u64> {
    if totals.is_empty() {
        return BTreeMap::new();
    }
    let CopyTotals {
        taken,
        cut,
        partial,
        bytes,
        ref lost,
    } = *totals;
    let counts = [
        ("taken", taken),
        ("cut", cut),
        ("partial", partial),
        ("bytes", bytes),
    ];
    let lost = lost.iter().map(|(loss, &count)| (loss.name(), count));
    counts.into_iter().chain(lost).collect()
}

/// User halves by how far unwinding came; nothing where none were unwound.
fn unwound(summary: &Summary) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    for (end, count) in summary.ends.iter() {
        *counts.entry(end.name()).or_default() += count;
    }
    counts
}

fn no_unwind_info(profile: &Profile, summary: &Summary) -> Vec<NoUnwindInfo> {
    let rows = without_information(&summary.ends).into_iter();
    let row = |(module, stacks): (Option<ModuleId>, u64)| NoUnwindInfo {
        path: module.map(|module| path_of(profile, module)),
        stacks,
    };
    rows.map(row).collect()
}

fn keep_common_text(held: &mut String, other: &str) {
    if held != other {
        held.clear();
    }
}

fn keep_common(held: &mut BTreeMap<String, String>, other: &BTreeMap<String, String>) {
    held.retain(|key, value| other.get(key) == Some(value));
}

fn add_counts(held: &mut BTreeMap<&'static str, u64>, other: &BTreeMap<&'static str, u64>) {
    for (key, more) in other {
        let count = held.entry(key).or_default();
        *count = count.saturating_add(*more);
    }
}

fn event(event: &Event) -> Value {
    let (name, unit) = (clean(&event.name), clean(&event.unit));
    json!({"name": name, "unit": unit, "period": event.period, "frequency": event.frequency})
}

fn run(run: &Run) -> Value {
    json!({"run": run.run, "start_ns": run.start_ns, "end_ns": run.end_ns, "work": run.work, "exit": run.exit})
}

/// Maps of code that processes made.
fn jit_maps(profile: &Profile) -> Vec<Value> {
    let files = profile.jit.files().into_iter();
    let row = |file: JitFile| json!({"pid": file.pid, "kind": file.name(), "bytes": file.bytes, "functions": file.functions, "damaged": file.damaged});
    files.map(row).collect()
}

fn damage(summary: &Summary) -> BTreeMap<&'static str, u64> {
    let damage = &summary.damage;
    let merged = summary.merged.as_ref();
    let rows = [
        ("header_copy", damage.header_copy.into()),
        ("gaps", damage.gap_count),
        ("gap_bytes", damage.gap_bytes),
        ("tail_bytes", damage.tail_bytes),
        ("lost_chunks", damage.lost_chunks),
        ("lost_ids", damage.lost_ids),
        ("lost_parts", damage.lost_parts),
        ("unknown_chunks", damage.unknown_chunks),
        ("not_ended", (!damage.ended).into()),
        ("lost_references", summary.lost_references.total()),
        ("orphan_completions", summary.orphan_completions),
        (
            "lost_accounts",
            merged.is_some_and(|merged| merged.is_anonymous).into(),
        ),
        (
            "cut_merges",
            merged.is_some_and(|merged| merged.is_cut).into(),
        ),
    ];
    rows.into_iter().filter(|(_, value)| *value > 0).collect()
}
