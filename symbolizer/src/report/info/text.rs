//! What an archive holds and how whole it is, for people.

use std::io::Write;

use rawstack_format::record::State;

use super::{mode, modules, pairs, stacks};
use crate::error::Result;
use crate::jit::JitFile;
use crate::profile::{Profile, Summary};
use crate::report::render::amount;
use crate::text::clean;

/// Runs that are shown to people.
const SHOWN_RUNS: usize = 20;

/// Write what the archives of `profile` hold.
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
