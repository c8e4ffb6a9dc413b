//! `rawstack info` and `rawstack verify`.

use std::io::Write;
use std::process::ExitCode;
use std::slice;

use anyhow::{Context, Result};
use rawstack_symbolizer::output;
use rawstack_symbolizer::profile::Filter;
use rawstack_symbolizer::profile::rows::Apart;
use rawstack_symbolizer::report::info;

use super::select;
use crate::args::{InfoArgs, VerifyArgs};

/// Exit code of an archive that is not whole.
const EXIT_DAMAGED: u8 = 1;

/// Tell what the archive holds.
pub(crate) fn run(args: &InfoArgs) -> Result<ExitCode> {
    let profile = select::load(
        slice::from_ref(&args.file),
        &Filter::default(),
        Apart::Stacks,
        args.output.quiet,
    )?;
    let mut out = output::open(args.output.output.as_deref())?;
    if args.json {
        info::write_json(&profile, &mut *out)?;
    } else {
        info::write_text(&profile, &mut *out)?;
    }
    out.flush().context("failed to write the output")?;
    Ok(ExitCode::SUCCESS)
}

/// Check the archive.
pub(crate) fn verify(args: &VerifyArgs) -> Result<ExitCode> {
    let profile = select::load(
        slice::from_ref(&args.file),
        &Filter::default(),
        Apart::NoRows,
        args.output.quiet,
    )?;
    let mut out = output::open(args.output.output.as_deref())?;
    let whole = profile
        .archives
        .iter()
        .all(|archive| archive.problems().is_empty());
    if !args.output.quiet {
        info::write_verdict(&profile, &mut *out)?;
    }
    out.flush().context("failed to write the output")?;
    Ok(if whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_DAMAGED)
    })
}
