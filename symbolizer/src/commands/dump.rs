//! `rawstack dump`.

use std::io::Write;
use std::process::ExitCode;
use std::slice;

use anyhow::{Context, Result};
use rawstack_symbolizer::export::dump::JsonDump;
use rawstack_symbolizer::export::perf_script::PerfScript;
use rawstack_symbolizer::output;
use rawstack_symbolizer::profile::{Filter, load};
use rawstack_symbolizer::report::NameFilter;

use super::export::Samples;
use super::finder::Finder;
use super::select;
use crate::args::archive::{DumpArgs, DumpFormat};

/// Print the samples.
pub(crate) fn run(args: &DumpArgs) -> Result<ExitCode> {
    let filter = select::filter(&args.filter)?;
    match args.format {
        DumpFormat::Json => json(args, &filter)?,
        DumpFormat::PerfScript => perf_script(args, &filter)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn json(args: &DumpArgs, filter: &Filter) -> Result<()> {
    let mut dump = JsonDump::new(filter.no_kernel);
    let mut out = output::open(args.output.output.as_deref())?;
    let mut shared = Finder::new(&args.symbols, args.output.quiet)?.shared(true);
    load::read(
        &mut shared,
        &args.file,
        filter,
        &mut |shared, sample, event| dump.write(shared, sample, event, &mut *out),
    )?;
    select::check_events(filter, &shared.events)?;
    out.flush().context("failed to write the output")
}

fn perf_script(args: &DumpArgs, filter: &Filter) -> Result<()> {
    let samples = Samples {
        files: slice::from_ref(&args.file),
        filter,
        names: &NameFilter::default(),
        finder: Finder::new(&args.symbols, args.output.quiet)?,
        raw: false,
        min: 0.0,
    };
    let mut out = output::open(args.output.output.as_deref())?;
    samples.export(&mut PerfScript, true, &mut *out)?;
    out.flush().context("failed to write the output")
}
