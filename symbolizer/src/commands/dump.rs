//! `rawstack dump`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use rawstack_symbolizer::export::dump::JsonDump;
use rawstack_symbolizer::export::perf_script;
use rawstack_symbolizer::output;
use rawstack_symbolizer::profile::rows::Adder;
use rawstack_symbolizer::profile::{Filter, NodeId, StackTree, load};

use super::select;
use crate::args::{DumpArgs, DumpFormat};

/// Print the samples.
pub(crate) fn run(args: &DumpArgs) -> Result<ExitCode> {
    let filter = select::filter(&args.filter)?;
    match args.format {
        DumpFormat::Json => json(args, &filter)?,
        DumpFormat::PerfScript => perf_script(args, &filter)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A tree that keeps each address.
fn shared() -> load::Shared {
    load::Shared {
        tree: StackTree::new(true),
        ..load::Shared::default()
    }
}

fn json(args: &DumpArgs, filter: &Filter) -> Result<()> {
    let mut dump = JsonDump::new(filter.no_kernel);
    let mut out = output::open(args.output.output.as_deref())?;
    let mut shared = shared();
    load::read(
        &mut shared,
        &args.file,
        filter,
        &mut |shared, sample, event| dump.write(shared, sample, event, &mut *out),
    )?;
    select::check_events(filter, &shared.events)?;
    out.flush().context("failed to write the output")
}

/// Two passes: the first finds the distinct addresses to name, the second prints the samples.
fn perf_script(args: &DumpArgs, filter: &Filter) -> Result<()> {
    if args.file == Path::new("-") {
        bail!("failed to read the archive twice from standard input: give it as a file");
    }
    let mut first = shared();
    load::read(&mut first, &args.file, filter, &mut |_, _, _| Ok(()))?;
    select::check_events(filter, &first.events)?;
    let named = select::name(
        Adder::default().finish(first),
        &args.symbols,
        args.output.quiet,
    )?;
    let mut out = output::open(args.output.output.as_deref())?;
    let mut room = Vec::new();
    load::read(
        &mut shared(),
        &args.file,
        filter,
        &mut |_, sample, event| {
            // The same archive gives the same numbers each time it is read.
            let kernel = if filter.no_kernel {
                NodeId::NONE
            } else {
                sample.kernel
            };
            let sample = perf_script::ScriptSample {
                row: &sample.row,
                kernel,
                user: sample.user,
                thread: sample.thread,
                event,
            };
            perf_script::write_sample(&named, &sample, &mut room, &mut *out)
        },
    )?;
    out.flush().context("failed to write the output")
}
