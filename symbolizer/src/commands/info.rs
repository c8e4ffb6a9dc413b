//! `rawstack info` and `rawstack verify`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use rawstack_symbolizer::output;
use rawstack_symbolizer::profile::rows::Apart;
use rawstack_symbolizer::report::info::{self, JsonInfo};

use super::select;
use crate::args::archive::{InfoArgs, VerifyArgs};

/// Exit code of an archive that is not whole.
const EXIT_DAMAGED: u8 = 1;

/// Tell what the archive holds.
pub(crate) fn run(args: &InfoArgs) -> Result<ExitCode> {
    let (mut alone, mut parts, mut bytes) = (None, Vec::new(), 0);
    let mut text = Vec::new();
    select::each_part(&args.file, Apart::Stacks, &mut |profile, is_merged| {
        if !args.json {
            return Ok(info::write_text(&profile, &mut text)?);
        }
        for summary in &profile.archives {
            if is_merged {
                parts.push(JsonInfo::of_part(&profile, summary));
            } else {
                alone = Some(JsonInfo::of(&profile, summary));
            }
            bytes = summary.merged.as_ref().map_or(0, |merged| merged.end);
        }
        Ok(())
    })?;
    let mut out = output::open(args.output.output.as_deref())?;
    if let Some(info) = alone.or_else(|| JsonInfo::merged(parts, bytes)) {
        info.write(&mut *out)?;
    }
    out.write_all(&text)
        .and_then(|()| out.flush())
        .context("failed to write the output")?;
    Ok(ExitCode::SUCCESS)
}

/// Check the archive.
pub(crate) fn verify(args: &VerifyArgs) -> Result<ExitCode> {
    let (mut is_whole, mut text) = (true, Vec::new());
    select::each_part(&args.file, Apart::NoRows, &mut |profile, _| {
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
