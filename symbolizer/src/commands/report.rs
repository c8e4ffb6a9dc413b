//! `rawstack report`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use rawstack_symbolizer::output;
use rawstack_symbolizer::profile::rows::Apart;
use rawstack_symbolizer::report::tree::{self, Direction};
use rawstack_symbolizer::report::{GroupBy, render, table};

use super::finder::Finder;
use super::{select, source};
use crate::args;
use crate::args::report::{ReportArgs, TreeDirection};

/// Print the table.
pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode> {
    let filter = select::filter(&args.shown.filter)?;
    let names = select::name_filter(&args.shown.names)?;
    let files = select::archives(&args.files, args.shown.output.output.as_deref())?;
    let by = group_by(args.by);
    let finder = Finder::new(&args.shown.symbols, args.shown.output.quiet)?;
    let mut profile = select::load(&files, &filter, apart(by), &finder)?;
    if by != GroupBy::Event {
        select::keep_one_event(&mut profile, &filter, finder.quiet);
    }
    let named = finder.name(profile)?;
    let columns = output::columns(args.shown.output.output.as_deref());
    let mut out = output::open(args.shown.output.output.as_deref())?;
    let out = &mut *out;
    if let Some(wanted) = &args.source {
        source::print(args, wanted, &named, &names, out)?;
    } else if let Some(direction) = args.tree {
        let least = if args.json || args.csv {
            0.0
        } else {
            TREE_PERCENT
        };
        let tree = tree::call_tree(&named, way(direction), &names, args.min.unwrap_or(least));
        match (args.json, args.csv) {
            (true, _) => tree::write_json(&tree, out)?,
            (_, true) => tree::write_csv(&tree, out)?,
            _ => tree::write_text(&tree, columns, out)?,
        }
    } else {
        let mut table = table::table(&named, by, &names);
        render::cut(&mut table, args.min.unwrap_or(0.0));
        match (args.json, args.csv) {
            (true, _) => render::write_json(&table, out)?,
            (_, true) => render::write_csv(&table, out)?,
            _ => render::write_text(&table, columns, out)?,
        }
    }
    out.flush().context("failed to write the output")?;
    Ok(ExitCode::SUCCESS)
}

/// What a tree for people folds, in percent of the total.
const TREE_PERCENT: f64 = 0.5;

fn way(direction: TreeDirection) -> Direction {
    match direction {
        TreeDirection::Callers => Direction::Callers,
        TreeDirection::Callees => Direction::Callees,
    }
}

fn group_by(by: args::report::GroupBy) -> GroupBy {
    match by {
        args::report::GroupBy::Function => GroupBy::Function,
        args::report::GroupBy::Line => GroupBy::Line,
        args::report::GroupBy::Module => GroupBy::Module,
        args::report::GroupBy::Thread => GroupBy::Thread,
        args::report::GroupBy::Process => GroupBy::Process,
        args::report::GroupBy::Cgroup => GroupBy::Cgroup,
        args::report::GroupBy::Cpu => GroupBy::Cpu,
        args::report::GroupBy::Event => GroupBy::Event,
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
