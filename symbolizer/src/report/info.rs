//! What an archive holds and how whole it is, as text and JSON.

use std::collections::BTreeMap;
use std::io::Write;

use rawstack_format::record::{Mode, State};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::render::amount;
use crate::error::Result;
use crate::jit::JitFile;
use crate::profile::tree::{Jit, shown_path};
use crate::profile::{Profile, Summary};
use crate::text::clean;

/// Runs that are shown to people.
const SHOWN_RUNS: usize = 20;

#[derive(Serialize)]
struct JsonInfo<'i> {
    schema: &'static str,
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
    ids: Value,
    drops: Vec<JsonDrop>,
    processes: u64,
    threads: u64,
    stacks: u64,
    modules: Vec<JsonModule>,
    jit_maps: Vec<Value>,
    runs: Vec<Value>,
    bytes: u64,
    complete: bool,
    damage: Map<String, Value>,
    writer: &'i str,
}

#[derive(Serialize)]
struct JsonDrop {
    reason: &'static str,
    count: u64,
    from_ns: u64,
    to_ns: u64,
}

#[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
struct JsonModule {
    path: String,
    build_id: Option<String>,
    frames: u64,
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

/// Modules with frames: the most frames first.
fn modules(profile: &Profile) -> Vec<JsonModule> {
    let mut frames = vec![0u64; profile.tree.modules().len()];
    let frames_of_samples = profile.tree.frames().iter();
    for frame in frames_of_samples.filter(|frame| frame.jit != Jit::Anywhere) {
        if let Some(count) = frames.get_mut(frame.module.index()) {
            *count += 1;
        }
    }
    let rows = profile
        .tree
        .modules()
        .iter()
        .zip(frames)
        .filter(|(_, frames)| *frames > 0);
    let mut rows: Vec<JsonModule> = rows
        .map(|((_, module), frames)| JsonModule {
            path: shown_path(module),
            build_id: module.build_id.as_ref().map(ToString::to_string),
            frames,
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

/// Maps of code that processes made.
fn jit_maps(profile: &Profile) -> Vec<Value> {
    let files = profile.jit.files().into_iter();
    let row = |file: JitFile| json!({"pid": file.pid, "kind": file.name(), "bytes": file.bytes, "functions": file.functions, "damaged": file.damaged});
    files.map(row).collect()
}

fn damage(summary: &Summary) -> Map<String, Value> {
    let damage = &summary.damage;
    let mut rows = Map::new();
    let mut tell = |key: &str, value: u64| {
        if value > 0 {
            rows.insert(key.to_owned(), value.into());
        }
    };
    tell("header_copy", damage.header_copy.into());
    tell("gaps", damage.gap_count);
    tell("gap_bytes", damage.gap_bytes);
    tell("tail_bytes", damage.tail_bytes);
    tell("lost_chunks", damage.lost_chunks);
    tell("lost_ids", damage.lost_ids);
    tell("unknown_chunks", damage.unknown_chunks);
    tell("not_ended", (!damage.ended).into());
    tell("lost_references", summary.lost_references.total());
    tell("orphan_completions", summary.orphan_completions);
    rows
}

/// Write one JSON object for each archive.
pub fn write_json(profile: &Profile, out: &mut dyn Write) -> Result<()> {
    for summary in &profile.archives {
        let nothing = Default::default();
        let recording = summary.recording.as_ref().unwrap_or(&nothing);
        let states: Map<String, Value> = State::ALL
            .iter()
            .zip(summary.states)
            .map(|(state, count)| (state.name().to_owned(), count.into()))
            .collect();
        let drops = summary.drops.iter().map(|(reason, total)| JsonDrop {
            reason: reason.name(),
            count: total.count,
            from_ns: total.from_ns,
            to_ns: total.to_ns,
        });
        let events = recording.events.iter().map(|event| {
            json!({"name": clean(&event.name), "unit": clean(&event.unit), "period": event.period, "frequency": event.frequency})
        });
        let runs = summary.runs.iter().map(|run| {
            json!({"run": run.run, "start_ns": run.start_ns, "end_ns": run.end_ns, "work": run.work, "exit": run.exit})
        });
        let info = JsonInfo {
            schema: "rawstack.info.v1",
            format_version: format!("{}.{}", summary.format.0, summary.format.1),
            mode: mode(summary),
            mode_reason: clean(&recording.mode_reason).into_owned(),
            host: pairs(&recording.host),
            options: pairs(&recording.options),
            labels: pairs(&recording.labels),
            events: events.collect(),
            start_ns: summary.start_ns(),
            end_ns: summary.end_ns(),
            start_wall_ns: recording.start_wall_ns,
            samples: summary.samples,
            ids: json!({"reserved": summary.reserved(), "states": states}),
            drops: drops.collect(),
            processes: summary.processes,
            threads: summary.threads,
            stacks: stacks(profile),
            modules: modules(profile),
            jit_maps: jit_maps(profile),
            runs: runs.collect(),
            bytes: summary.bytes,
            complete: summary.problems().is_empty(),
            damage: damage(summary),
            writer: &clean(&recording.writer),
        };
        serde_json::to_writer(&mut *out, &info)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Write for people.
pub fn write_text(profile: &Profile, out: &mut dyn Write) -> Result<()> {
    for summary in &profile.archives {
        let nothing = Default::default();
        let recording = summary.recording.as_ref().unwrap_or(&nothing);
        let length = summary.end_ns().saturating_sub(summary.start_ns());
        writeln!(
            out,
            "archive    {} (format {}.{})",
            clean(&summary.path),
            summary.format.0,
            summary.format.1
        )?;
        writeln!(
            out,
            "recorded   {} by {}",
            amount(length, "ns"),
            clean(&recording.writer)
        )?;
        writeln!(
            out,
            "mode       {}: {}",
            mode(summary),
            clean(&recording.mode_reason)
        )?;
        for (key, value) in pairs(&recording.host) {
            writeln!(out, "host       {key} = {value}")?;
        }
        for (key, value) in pairs(&recording.options) {
            writeln!(out, "option     {key} = {value}")?;
        }
        for (key, value) in pairs(&recording.labels) {
            writeln!(out, "label      {key} = {value}")?;
        }
        write_counts(profile, summary, out)?;
        write_runs(summary, out)?;
        for module in modules(profile) {
            let build_id = module.build_id.as_deref().unwrap_or("no build ID");
            writeln!(
                out,
                "module     {:>8} frames  {}  {build_id}",
                module.frames, module.path
            )?;
        }
        for file in profile.jit.files() {
            let JitFile {
                pid,
                bytes,
                functions,
                ..
            } = file;
            writeln!(
                out,
                "jit map    {functions:>8} functions  process {pid}, {}, {bytes} bytes",
                file.name()
            )?;
        }
        for problem in summary.problems() {
            writeln!(out, "damage     {problem}")?;
        }
    }
    Ok(())
}

fn write_counts(profile: &Profile, summary: &Summary, out: &mut dyn Write) -> Result<()> {
    writeln!(
        out,
        "samples    {} of {} processes, {} threads; {} distinct stacks; {} bytes",
        summary.samples,
        summary.processes,
        summary.threads,
        stacks(profile),
        summary.bytes
    )?;
    write!(out, "ids        {} reserved", summary.reserved())?;
    for (state, count) in State::ALL
        .iter()
        .zip(summary.states)
        .filter(|(_, count)| *count > 0)
    {
        write!(out, ", {count} {}", state.name())?;
    }
    writeln!(out)?;
    for (reason, total) in &summary.drops {
        let start = summary.start_ns();
        let (from, to) = (
            total.from_ns.saturating_sub(start),
            total.to_ns.saturating_sub(start),
        );
        let (from, to) = (amount(from, "ns"), amount(to, "ns"));
        writeln!(
            out,
            "lost       {} ({}) between {from} and {to}",
            total.count,
            reason.name()
        )?;
    }
    Ok(())
}

/// Runs of the command, the first ones of many.
fn write_runs(summary: &Summary, out: &mut dyn Write) -> Result<()> {
    for run in summary.runs.iter().take(SHOWN_RUNS) {
        write!(out, "run        {}: ", run.run)?;
        match run.end_ns.checked_sub(run.start_ns) {
            Some(length) => {
                let length = amount(length, "ns");
                write!(out, "{length}, exit status {}", exit_status(run.exit))?;
            }
            None => write!(out, "did not end")?,
        }
        if run.work > 0.0 {
            write!(out, ", work {}", run.work)?;
        }
        writeln!(out)?;
    }
    let more = summary.runs.len().saturating_sub(SHOWN_RUNS);
    if more > 0 {
        writeln!(out, "run        … and {more} more; all of them with --json")?;
    }
    Ok(())
}

/// A status as from `wait`, as a shell would show it.
fn exit_status(status: i32) -> i32 {
    match status & 0x7f {
        0 => (status >> 8) & 0xff,
        signal => 128 + signal,
    }
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
