//! The way from the archives of two sides to counts by run, with names.

use std::path::PathBuf;

use anyhow::{Result, bail};
use rawstack_symbolizer::compare::Sides;
use rawstack_symbolizer::compare::sides::NAMES;
use rawstack_symbolizer::output;
use rawstack_symbolizer::profile::runs::{RunCounts, Spans};
use rawstack_symbolizer::profile::{Filter, Profile, load};
use rawstack_symbolizer::symbolized::SymbolizedProfile;
use rawstack_symbolizer::text::clean;

use super::finder::Finder;
use super::select;

/// What was read of both sides.
pub(super) struct Compared {
    /// Names of all frames; without rows.
    pub(super) named: SymbolizedProfile,
    /// Samples by stack and run.
    pub(super) counts: RunCounts,
    /// Runs of either side.
    pub(super) sides: Sides,
    /// The event that is compared.
    pub(super) event: u32,
    /// Its name.
    pub(super) event_name: String,
    /// Unit of its weights.
    pub(super) unit: String,
}

/// Read the archives of both sides. Where there is one run a side and `whole` is not asked for, by blocks of it.
pub(super) fn load(
    files: &[Vec<PathBuf>; 2],
    filter: &Filter,
    whole: bool,
    finder: &Finder<'_>,
) -> Result<Compared> {
    let all = files.concat();
    let (mut profile, mut counts) = read(&all, filter, None, finder)?;
    let sides = Sides::of(&profile.archives, files[0].len(), &filter.runs);
    if sides.is_single() && !whole {
        (profile, counts) = read(&all, filter, Some(sides.spans()), finder)?;
    }
    let event = one_event(&profile, &counts, files[0].len(), finder.quiet)?;
    let facts = profile.events.get(event as usize);
    let (event_name, unit) = facts
        .map(|facts| (facts.name.clone(), facts.unit.clone()))
        .unwrap_or_default();
    let named = finder.name_by(&finder.symbolizer(true)?, profile, finder.quiet);
    let (event_name, unit) = (clean(&event_name).into_owned(), clean(&unit).into_owned());
    Ok(Compared {
        named,
        counts,
        sides,
        event,
        event_name,
        unit,
    })
}

fn read(
    files: &[PathBuf],
    filter: &Filter,
    spans: Option<Spans>,
    finder: &Finder<'_>,
) -> Result<(Profile, RunCounts)> {
    let mut shared = finder.shared(false);
    let mut counts = spans.map_or_else(RunCounts::new, RunCounts::in_blocks);
    let bar = output::progress("reading", files.len(), finder.quiet);
    for path in files {
        load::read(&mut shared, path, filter, &mut |shared, sample, event| {
            counts.add(shared, sample, event, filter.no_kernel)
        })?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    select::check_events(filter, &shared.events)?;
    let profile = counts.finish(shared);
    Ok((profile, counts))
}

/// The first event that all sides with archives have samples of; says so where there are others.
fn one_event(profile: &Profile, counts: &RunCounts, bases: usize, quiet: bool) -> Result<u32> {
    let mut met = vec![[false; 2]; profile.events.len()];
    for cell in &counts.cells {
        let stack = counts.stacks.get(cell.stack as usize);
        let part = counts.parts.get(cell.part as usize);
        let (Some(stack), Some(part)) = (stack, part) else {
            continue;
        };
        if let Some(sides) = met.get_mut(stack.event as usize) {
            sides[usize::from(part.archive as usize >= bases)] = true;
        }
    }
    let has_new = profile.archives.len() > bases;
    let is_common = |sides: &[bool; 2]| sides[0] && (sides[1] || !has_new);
    let mut common = (0u32..)
        .zip(&met)
        .filter(|(_, sides)| is_common(sides))
        .map(|(event, _)| event);
    let name = |event: u32| {
        profile
            .events
            .get(event as usize)
            .map_or_else(String::new, |event| clean(&event.name).into_owned())
    };
    let Some(first) = common.next() else {
        let list = |side: usize| {
            let of_side = (0u32..).zip(&met).filter(|(_, sides)| sides[side]);
            let names: Vec<String> = of_side.map(|(event, _)| name(event)).collect();
            if names.is_empty() {
                "nothing".to_owned()
            } else {
                names.join(", ")
            }
        };
        bail!(
            "failed to compare: there is no event with samples on both sides: {} has {}, {} has {}; record the same event",
            NAMES[0],
            list(0),
            NAMES[1],
            list(1)
        );
    };
    let others: Vec<String> = common.map(name).collect();
    if !others.is_empty() && !quiet {
        eprintln!(
            "rawstack: this is event {} alone; --event shows another: {}",
            name(first),
            others.join(", ")
        );
    }
    Ok(first)
}
