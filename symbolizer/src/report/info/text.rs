//! What an archive holds and how whole it is, for people: what was recorded, how complete it is, what would improve it.

use std::collections::BTreeMap;
use std::io::Write;

use rawstack_format::record::{Recording, State};

use super::{Nameless, advice, mode, modules, pairs, path_of, stacks};
use crate::copied::CopyEnd;
use crate::error::Result;
use crate::jit::JitFile;
use crate::profile::{ModuleId, Profile, Summary};
use crate::report::render::{amount, share};
use crate::report::unwound;
use crate::text::clean;
use crate::unwind::End;

/// Runs that are shown to people.
const SHOWN_RUNS: usize = 20;
/// Facts of the host that stand first, in this order.
const FIRST_FACTS: [&str; 5] = ["hostname", "os", "kernel_release", "machine", "cpus"];

/// Write what the archives of `profile` hold.
pub fn write_text(profile: &Profile, nameless: Nameless<'_>, out: &mut dyn Write) -> Result<()> {
    for summary in &profile.archives {
        let nothing = Default::default();
        let recording = summary.recording.as_ref().unwrap_or(&nothing);
        write_head(summary, out)?;
        write_recorded(recording, summary, out)?;
        write_runs(summary, out)?;
        writeln!(out, "\nhow complete it is")?;
        write_states(summary, out)?;
        write_losses(summary, out)?;
        write_ends(profile, summary, out)?;
        write_modules(profile, nameless, out)?;
        let advice = advice::lines(profile, nameless, summary);
        if !advice.is_empty() {
            writeln!(out, "\nwhat would improve it")?;
            for line in advice {
                writeln!(out, "  - {line}")?;
            }
        }
    }
    Ok(())
}

fn write_head(summary: &Summary, out: &mut dyn Write) -> Result<()> {
    let length = summary.end_ns().saturating_sub(summary.start_ns());
    let (path, length) = (clean(&summary.path), amount(length, "ns"));
    let whole = match summary.problems().len() {
        0 => "whole".to_owned(),
        1 => "not whole".to_owned(),
        count => format!("not whole ({count} problems)"),
    };
    let (samples, bytes) = (summary.samples, summary.bytes);
    writeln!(
        out,
        "{path}: {samples} samples in {length}, {bytes} bytes, {whole}\n"
    )?;
    Ok(())
}

/// A row of the first part.
fn row(key: &str, value: &str, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "  {key:<9}  {value}")?;
    Ok(())
}

fn write_recorded(recording: &Recording, summary: &Summary, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "what was recorded")?;
    for event in &recording.events {
        let rate = match (event.frequency, event.period) {
            (0, 0) => "each".to_owned(),
            (0, period) if event.unit == "ns" => format!("every {}", amount(period, "ns")),
            (0, period) => format!("every {period}"),
            (frequency, _) => format!("{frequency} a second"),
        };
        let (name, unit) = (clean(&event.name), clean(&event.unit));
        row("event", &format!("{name}, {rate}, in {unit}"), out)?;
    }
    let (processes, threads) = (summary.processes, summary.threads);
    row(
        "of",
        &format!("{processes} processes, {threads} threads"),
        out,
    )?;
    let mut host = pairs(&recording.host);
    let first = FIRST_FACTS.map(|fact| host.remove(fact));
    let first: Vec<String> = FIRST_FACTS
        .iter()
        .zip(first)
        .filter_map(|(fact, value)| match *fact {
            "kernel_release" => value.map(|value| format!("kernel {value}")),
            "cpus" => value.map(|value| format!("{value} CPUs")),
            _ => value,
        })
        .collect();
    if !first.is_empty() {
        row("host", &first.join(", "), out)?;
    }
    let list = |pairs: &BTreeMap<String, String>| {
        let pairs = pairs.iter().map(|(key, value)| format!("{key}={value}"));
        pairs.collect::<Vec<_>>().join(" ")
    };
    for (key, values) in [
        ("", host),
        ("options", pairs(&recording.options)),
        ("labels", pairs(&recording.labels)),
    ] {
        if !values.is_empty() {
            row(key, &list(&values), out)?;
        }
    }
    if recording.start_wall_ns > 0 {
        row("started", &utc(recording.start_wall_ns), out)?;
    }
    let reason = clean(&recording.mode_reason);
    row("mode", &format!("{}: {reason}", mode(summary)), out)?;
    let (writer, (major, minor)) = (clean(&recording.writer), summary.format);
    row("by", &format!("{writer}, format {major}.{minor}"), out)
}

/// Seconds since 1970 as a date, by the Gregorian calendar.
fn utc(wall_ns: u64) -> String {
    let seconds = wall_ns / 1_000_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Years that begin with March end with the day that leap years add.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month < 3);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Runs of the command, the first ones of many.
fn write_runs(summary: &Summary, out: &mut dyn Write) -> Result<()> {
    for run in summary.runs.iter().take(SHOWN_RUNS) {
        let mut told = match run.end_ns.checked_sub(run.start_ns) {
            Some(length) => {
                let (length, status) = (amount(length, "ns"), exit_status(run.exit));
                format!("{}: {length}, exit status {status}", run.run)
            }
            None => format!("{}: did not end", run.run),
        };
        if run.work > 0.0 {
            told.push_str(&format!(", work {}", run.work));
        }
        row("run", &told, out)?;
    }
    let more = summary.runs.len().saturating_sub(SHOWN_RUNS);
    if more > 0 {
        row(
            "run",
            &format!("… and {more} more; all of them with --json"),
            out,
        )?;
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

/// What a state means, in a few words.
fn meaning(state: State) -> &'static str {
    match state {
        State::Complete => "both halves whole",
        State::Truncated => "deeper than the limit",
        State::Faulted => "user memory was not there",
        State::Exited => "the task died before it returned",
        State::Execed => "the task executed another program first",
        State::ScheduleFailed => "only what the tick could see",
        State::Dropped => "lost",
        State::Pending => "still in the kernel at the end",
    }
}

fn write_states(summary: &Summary, out: &mut dyn Write) -> Result<()> {
    let reserved = summary.reserved();
    let states = State::ALL.iter().zip(summary.states);
    for (state, count) in states.filter(|(_, count)| *count > 0) {
        let (part, name) = (share(count, reserved), state.name());
        writeln!(
            out,
            "  {part:>6.2}%  {count:>10} {name:<16} {}",
            meaning(*state)
        )?;
    }
    writeln!(out, "  {:>7}  {reserved:>10} IDs reserved", "")?;
    Ok(())
}

fn write_losses(summary: &Summary, out: &mut dyn Write) -> Result<()> {
    for (reason, total) in &summary.drops {
        let since = |time: u64| amount(time.saturating_sub(summary.start_ns()), "ns");
        let (from, to) = (since(total.from_ns), since(total.to_ns));
        let (count, reason) = (total.count, reason.name());
        row(
            "lost",
            &format!("{count} ({reason}) between {from} and {to}"),
            out,
        )?;
    }
    let copies = &summary.copies;
    if !copies.is_empty() {
        let (taken, bytes) = (copies.taken, copies.bytes);
        let mut text = format!("{taken} of stacks, {bytes} bytes: memory of the recorded programs");
        for (count, what) in [(copies.cut, "cut"), (copies.partial, "with pages missing")] {
            if count > 0 {
                text.push_str(&format!(", {count} {what}"));
            }
        }
        for (loss, count) in &copies.lost {
            text.push_str(&format!(", {count} lost ({})", loss.name()));
        }
        row("copies", &text, out)?;
    }
    for problem in summary.problems() {
        row("damage", &problem, out)?;
    }
    Ok(())
}

/// How far the unwinding of copied stacks came.
fn write_ends(profile: &Profile, summary: &Summary, out: &mut dyn Write) -> Result<()> {
    let ends = &summary.ends;
    let (total, reached) = (ends.total(), ends.reached());
    if total == 0 {
        return Ok(());
    }
    let zero = ends.count(|end| *end == CopyEnd::Unwound(End::Zero));
    let part = share(reached, total);
    let mut text = format!("{reached} of {total} user stacks reach their end ({part:.2} %)");
    if zero > 0 {
        text.push_str(&format!(
            ", {zero} of them at an address of 0 without a rule that says so"
        ));
    }
    row("unwound", &text, out)?;
    let paths = |id: ModuleId| path_of(profile, id);
    if let Some(line) = unwound::line(ends, &paths) {
        row("", &line, out)?;
    }
    Ok(())
}

fn write_modules(profile: &Profile, nameless: Nameless<'_>, out: &mut dyn Write) -> Result<()> {
    let distinct = stacks(profile);
    let names = nameless.map_or("", |_| ", and the share of them that has a name here");
    writeln!(
        out,
        "\n{distinct} distinct stacks; frames of modules{names}"
    )?;
    for module in modules(profile, nameless) {
        let build_id = module.build_id.as_deref().unwrap_or("no build ID");
        let (frames, path) = (module.frames, module.path);
        let named = module.named.map_or_else(String::new, |named| {
            format!("{:>6.2}%  ", share(named, frames))
        });
        writeln!(out, "  {frames:>8}  {named}{path}  {build_id}")?;
    }
    for file in profile.jit.files() {
        let name = file.name();
        let JitFile {
            pid,
            bytes,
            functions,
            ..
        } = file;
        writeln!(
            out,
            "  {functions:>8}  functions made by process {pid}, from its {name} of {bytes} bytes"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check dates around leap days and turns of years.
    #[test]
    fn dates() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_868_799, "2000-02-29 23:59:59 UTC"),
            (1_709_251_200, "2024-03-01 00:00:00 UTC"),
            (4_102_444_799, "2099-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(utc(seconds * 1_000_000_000), expected);
        }
    }
}
