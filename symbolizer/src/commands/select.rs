//! Options of selection and symbols → what the library takes; and the way from archives to a profile with names.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rawstack_symbolizer::output;
use rawstack_symbolizer::profile::rows::{Adder, Apart, EventFacts};
use rawstack_symbolizer::profile::{Filter, Profile, load};
use rawstack_symbolizer::report::NameFilter;
use rawstack_symbolizer::text::clean;
use regex_lite::{Regex, RegexBuilder};

use super::finder::Finder;
use crate::args::shared::{FilterArgs, NameFilterArgs};

/// Memory that one regular expression may take, in bytes.
const REGEX_SIZE: usize = 4 << 20;

/// The samples that the options select.
pub(super) fn filter(args: &FilterArgs) -> Result<Filter> {
    let (from_ns, to_ns) = match &args.time {
        Some(text) => span(text)?,
        None => (None, None),
    };
    Ok(Filter {
        pids: args.pid.clone(),
        tids: args.tid.clone(),
        comms: args.comm.clone(),
        cgroup: args.cgroup.clone(),
        cpus: args
            .cpu
            .as_deref()
            .map(|text| ranges("cpu", text))
            .transpose()?
            .unwrap_or_default(),
        events: args.event.clone(),
        runs: args
            .run
            .as_deref()
            .map(|text| ranges("run", text))
            .transpose()?
            .unwrap_or_default(),
        from_ns,
        to_ns,
        no_kernel: args.no_kernel,
    })
}

/// The stacks that the options select by name.
pub(super) fn name_filter(args: &NameFilterArgs) -> Result<NameFilter> {
    let compile = |option: &str, text: &Option<String>| -> Result<Option<Regex>> {
        text.as_ref().map(|text| regex(option, text)).transpose()
    };
    Ok(NameFilter {
        focus: compile("focus", &args.focus)?,
        ignore: compile("ignore", &args.ignore)?,
        hide: compile("hide", &args.hide)?,
    })
}

/// The regular expression that an option gives.
pub(super) fn regex(option: &str, text: &str) -> Result<Regex> {
    let regex = RegexBuilder::new(text).size_limit(REGEX_SIZE).build();
    regex.map_err(|error| {
        let last = error
            .to_string()
            .lines()
            .last()
            .unwrap_or_default()
            .trim()
            .to_owned();
        anyhow::anyhow!(
            "failed to read --{option} `{}`: {last}",
            text.escape_debug()
        )
    })
}

/// `0,2-5`.
fn ranges(option: &str, text: &str) -> Result<Vec<RangeInclusive<u32>>> {
    let part = |part: &str| -> Option<RangeInclusive<u32>> {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let range = from.trim().parse().ok()?..=to.trim().parse().ok()?;
        (!range.is_empty()).then_some(range)
    };
    let parts: Option<Vec<_>> = text.split(',').map(part).collect();
    parts.with_context(|| {
        format!(
            "failed to read --{option} `{}`: give numbers and ranges, as in 0,2-5",
            text.escape_debug()
        )
    })
}

/// `FROM..TO`, either of which may be missing.
fn span(text: &str) -> Result<(Option<u64>, Option<u64>)> {
    let shown = text.escape_debug();
    let Some((from, to)) = text.split_once("..") else {
        bail!("failed to read --time `{shown}`: give FROM..TO, as in 2s..3500ms");
    };
    let side = |side: &str| match side.trim() {
        "" => Ok(None),
        side => duration(side).map(Some).with_context(|| {
            format!("failed to read --time `{shown}`: give times as in 2s, 3500ms or 1m")
        }),
    };
    Ok((side(from)?, side(to)?))
}

fn duration(text: &str) -> Option<u64> {
    let unit_at = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(unit_at)?;
    let scale: u32 = match unit.trim() {
        "ns" => 0,
        "us" => 3,
        "ms" => 6,
        "s" | "" => 9,
        "m" | "min" => return number.parse::<u64>().ok()?.checked_mul(60_000_000_000),
        "h" => return number.parse::<u64>().ok()?.checked_mul(3_600_000_000_000),
        _ => return None,
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = if whole.is_empty() && !part.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let digits = u32::try_from(part.len())
        .ok()
        .filter(|&digits| digits <= scale)?;
    let part: u64 = if part.is_empty() {
        0
    } else {
        part.parse().ok()?
    };
    let part = part.checked_mul(10u64.checked_pow(scale - digits)?)?;
    whole
        .checked_mul(10u64.checked_pow(scale)?)?
        .checked_add(part)
}

/// The archives that are meant: patterns (`*`, `?`, `[…]`) of names that are no file's own stand for what they match,
/// in the order of the names. None of them may be the file that is to be written.
pub(super) fn archives(named: &[PathBuf], output: Option<&Path>) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in named {
        let pattern = path.to_str().filter(|text| text.contains(['*', '?', '[']));
        match pattern.filter(|_| !path.exists()) {
            Some(pattern) => {
                let shown = pattern.escape_debug();
                let matches = glob::glob(pattern)
                    .with_context(|| format!("failed to read the pattern `{shown}`"))?;
                let before = files.len();
                for found in matches {
                    files.push(found.with_context(|| format!("failed to look for `{shown}`"))?);
                }
                if files.len() == before {
                    bail!("failed to find an archive: no file matches `{shown}`");
                }
            }
            None => files.push(path.clone()),
        }
    }
    let output = output.and_then(|path| path.canonicalize().ok());
    for file in &files {
        if output.is_some() && file.canonicalize().ok() == output {
            bail!(
                "failed to write {}: it is an archive to read from; name another file with -o",
                file.display()
            );
        }
    }
    Ok(files)
}

/// Read archives and add their samples up.
pub(super) fn load(
    files: &[PathBuf],
    filter: &Filter,
    apart: Apart,
    finder: &Finder<'_>,
) -> Result<Profile> {
    let mut shared = finder.shared(false);
    let mut adder = Adder::new(apart);
    let bar = output::progress("reading", files.len(), finder.quiet);
    for path in files {
        load::read(&mut shared, path, filter, &mut |shared, sample, event| {
            adder.add(shared, sample, event, filter.no_kernel);
            Ok(())
        })?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    check_events(filter, &shared.events)?;
    Ok(adder.finish(shared))
}

/// Read each part of the archive at `path` by itself: what is held is that of one part. Without a `finder` copies of
/// stacks are not unwound.
pub(super) fn each_part(
    path: &Path,
    apart: Apart,
    finder: Option<&Finder<'_>>,
    each: &mut dyn FnMut(Profile, bool) -> Result<()>,
) -> Result<()> {
    let mut parts = load::Parts::open(path)?;
    loop {
        let mut adder = Adder::new(apart);
        let mut shared = finder.map_or_else(load::Shared::default, |finder| finder.shared(false));
        let is_one = parts.read(
            &mut shared,
            &Filter::default(),
            &mut |shared, sample, event| {
                adder.add(shared, sample, event, false);
                Ok(())
            },
        )?;
        if !is_one {
            return Ok(());
        }
        each(adder.finish(shared), parts.are_merged())?;
    }
}

/// Fail where an event was asked for that nobody recorded.
pub(super) fn check_events(filter: &Filter, events: &[EventFacts]) -> Result<()> {
    let Some(missing) = filter.missing_event(events) else {
        return Ok(());
    };
    let known: Vec<_> = events.iter().map(|event| clean(&event.name)).collect();
    bail!(
        "failed to find event `{}` of --event: it was not recorded; give one of {}",
        missing.escape_debug(),
        known.join(", ")
    )
}

/// Keep one event of several where none was asked for: their weights do not add up. Says so on standard error.
pub(super) fn keep_one_event(profile: &mut Profile, filter: &Filter, quiet: bool) {
    let mut seen: Vec<u32> = profile.rows.iter().map(|row| row.event).collect();
    seen.sort_unstable();
    seen.dedup();
    if !filter.events.is_empty() || seen.len() < 2 {
        return;
    }
    let Some((first, others)) = seen.split_first() else {
        return;
    };
    profile.rows.retain(|row| row.event == *first);
    let name = |event: &u32| {
        let event = profile.events.get(*event as usize);
        event.map_or_else(String::new, |event| clean(&event.name).into_owned())
    };
    if !quiet {
        let others: Vec<_> = others.iter().map(name).collect();
        eprintln!(
            "rawstack: this is event {} alone; --event shows another: {}",
            name(first),
            others.join(", ")
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check times with each unit, with fractions, open spans, and what is refused.
    #[test]
    fn spans() {
        assert_eq!(
            span("2s..3500ms").unwrap(),
            (Some(2_000_000_000), Some(3_500_000_000))
        );
        assert_eq!(span("..1.5s").unwrap(), (None, Some(1_500_000_000)));
        assert_eq!(span("1m..").unwrap(), (Some(60_000_000_000), None));
        for refused in ["5s", "x..2s", "1.5ns..", "99999999999h..", "1..2y", ".."] {
            assert_eq!(span(refused).is_err(), refused != "..", "{refused}");
        }
    }

    /// Check lists of numbers and ranges, and what is refused.
    #[test]
    fn number_ranges() {
        assert_eq!(ranges("cpu", "0,2-5").unwrap(), [0..=0, 2..=5]);
        for refused in ["", "a", "3-1", "1,,2", "-1"] {
            assert!(ranges("cpu", refused).is_err(), "{refused}");
        }
    }
}
