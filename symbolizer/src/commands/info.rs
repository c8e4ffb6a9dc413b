//! `rawstack info` and `rawstack verify`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use rawstack_symbolizer::output;
use rawstack_symbolizer::profile::Profile;
use rawstack_symbolizer::profile::rows::Apart;
use rawstack_symbolizer::report::info::{self, JsonInfo};
use rawstack_symbolizer::resolve::Symbolizer;
use rawstack_symbolizer::symbolize::nameless_frames;

use super::finder::Finder;
use super::select;
use crate::args::archive::{InfoArgs, VerifyArgs};

/// Exit code of an archive that is not whole.
const EXIT_DAMAGED: u8 = 1;

/// Tell what the archive holds.
pub(crate) fn run(args: &InfoArgs) -> Result<ExitCode> {
    let (mut alone, mut parts, mut bytes) = (None, Vec::new(), 0);
    let mut text = Vec::new();
    let mut naming = None;
    if !args.raw {
        let finder = Finder::new(&args.symbols, args.output.quiet)?;
        naming = Some((finder.symbolizer(false)?, finder));
    }
    select::each_part(
        &args.file,
        Apart::Stacks,
        naming.as_ref().map(|(_, finder)| finder),
        &mut |mut profile, is_merged| {
            let nameless = naming
                .as_ref()
                .map(|(symbolizer, finder)| nameless(finder, symbolizer, &mut profile));
            let nameless = nameless.as_deref();
            if !args.json {
                return Ok(info::write_text(&profile, nameless, &mut text)?);
            }
            for summary in &profile.archives {
                if is_merged {
                    parts.push(JsonInfo::of_part(&profile, nameless, summary));
                } else {
                    alone = Some(JsonInfo::of(&profile, nameless, summary));
                }
                bytes = summary.merged.as_ref().map_or(0, |merged| merged.end);
            }
            Ok(())
        },
    )?;
    let mut out = output::open(args.output.output.as_deref())?;
    if let Some(info) = alone.or_else(|| JsonInfo::merged(parts, bytes)) {
        info.write(&mut *out)?;
    }
    out.write_all(&text)
        .and_then(|()| out.flush())
        .context("failed to write the output")?;
    Ok(ExitCode::SUCCESS)
}

/// Frames of each module that have no name.
fn nameless(finder: &Finder<'_>, symbolizer: &Symbolizer, profile: &mut Profile) -> Vec<u64> {
    let bar = output::progress("resolving", profile.tree.modules().len(), finder.quiet);
    let step = |resolved: bool| bar.inc(u64::from(resolved));
    let counts = nameless_frames(profile, finder.locator(), symbolizer, &step);
    bar.finish_and_clear();
    counts
}

/// Check the archive.
pub(crate) fn verify(args: &VerifyArgs) -> Result<ExitCode> {
    let (mut is_whole, mut text) = (true, Vec::new());
    select::each_part(&args.file, Apart::NoRows, None, &mut |profile, _| {
        let mut archives = profile.archives.iter();
        is_whole &= archives.all(|archive| archive.problems().is_empty());
        Ok(info::write_verdict(&profile, &mut text)?)
    })?;
    let mut out = output::open(args.output.output.as_deref())?;
    if !args.output.quiet {
        out.write_all(&text).context("failed to write the output")?;
    }
    out.flush().context("failed to write the output")?;
    Ok(if is_whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_DAMAGED)
    })
}
