//! `rawstack report`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use rawstack_symbolizer::output;
use rawstack_symbolizer::profile::rows::Apart;
use rawstack_symbolizer::report::{GroupBy, render, table};

use super::select;
use crate::args::{self, ReportArgs};

/// Print the table.
pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode> {
    let filter = select::filter(&args.filter)?;
    let names = select::name_filter(&args.names)?;
    let files = select::archives(&args.files, args.output.output.as_deref())?;
    let by = group_by(args.by);
    let mut profile = select::load(&files, &filter, apart(by), args.output.quiet)?;
    if by != GroupBy::Event {
        select::keep_one_event(&mut profile, &filter, args.output.quiet);
    }
    let named = select::name(profile, &args.symbols, args.output.quiet)?;
    let mut table = table::table(&named, by, &names);
    render::cut(&mut table, args.min);
    let mut out = output::open(args.output.output.as_deref())?;
    match (args.json, args.csv) {
        (true, _) => render::write_json(&table, &mut *out)?,
        (_, true) => render::write_csv(&table, &mut *out)?,
        _ => render::write_text(&table, &mut *out)?,
    }
    out.flush().context("failed to write the output")?;
    Ok(ExitCode::SUCCESS)
}

fn group_by(by: args::GroupBy) -> GroupBy {
    match by {
        args::GroupBy::Function => GroupBy::Function,
        args::GroupBy::Line => GroupBy::Line,
        args::GroupBy::Module => GroupBy::Module,
        args::GroupBy::Thread => GroupBy::Thread,
        args::GroupBy::Process => GroupBy::Process,
        args::GroupBy::Cgroup => GroupBy::Cgroup,
        args::GroupBy::Cpu => GroupBy::Cpu,
        args::GroupBy::Event => GroupBy::Event,
    }
}

/// What the rows of the profile have to tell apart for that.
fn apart(by: GroupBy) -> Apart {
    match by {
        GroupBy::Function | GroupBy::Line | GroupBy::Module | GroupBy::Event => Apart::Stacks,
        GroupBy::Thread => Apart::Threads,
        GroupBy::Process => Apart::Processes,
        GroupBy::Cgroup => Apart::Cgroups,
        GroupBy::Cpu => Apart::Cpus,
    }
}
