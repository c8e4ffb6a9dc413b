//! The way from archives to a profile whose samples are also counted by time.

use std::path::PathBuf;

use anyhow::Result;
use rawstack_symbolizer::output;
use rawstack_symbolizer::profile::{Filter, Profile, Timeline, load};

use super::finder::Finder;
use super::select;

/// Read archives; of several events one is kept, as everywhere.
pub(super) fn load(
    files: &[PathBuf],
    filter: &Filter,
    finder: &Finder<'_>,
) -> Result<(Profile, Timeline)> {
    let mut shared = finder.shared(false);
    let mut timeline = Timeline::default();
    let bar = output::progress("reading", files.len(), finder.quiet);
    for path in files {
        load::read(&mut shared, path, filter, &mut |shared, sample, event| {
            timeline.add(shared, sample, event, filter.no_kernel);
            Ok(())
        })?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    select::check_events(filter, &shared.events)?;
    let mut profile = timeline.finish(shared);
    select::keep_one_event(&mut profile, filter, finder.quiet);
    Ok((profile, timeline))
}
