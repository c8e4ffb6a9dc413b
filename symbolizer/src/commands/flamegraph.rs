//! `rawstack flamegraph`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use rawstack_symbolizer::export::flamegraph::{self, FlamegraphOptions};
use rawstack_symbolizer::export::page;
use rawstack_symbolizer::output;
use rawstack_symbolizer::profile::Filter;
use rawstack_symbolizer::profile::rows::Apart;
use rawstack_symbolizer::report::NameFilter;

use super::finder::Finder;
use super::{select, timeline};
use crate::args::export::FlamegraphArgs;

/// Draw the picture: a page where the file's name says so, else SVG.
pub(crate) fn run(args: &FlamegraphArgs) -> Result<ExitCode> {
    let filter = select::filter(&args.shown.filter)?;
    let names = select::name_filter(&args.shown.names)?;
    let files = select::archives(&args.files, args.shown.output.output.as_deref())?;
    let is_page = args.shown.output.output.as_deref().is_some_and(names_page);
    let picture = if is_page {
        page(args, &files, &filter, &names)?
    } else {
        svg(args, &files, &filter, &names)?
    };
    // Only a picture that is finished takes the place of an older one.
    let mut out = output::open(args.shown.output.output.as_deref())?;
    out.write_all(&picture)
        .and_then(|()| out.flush())
        .context("failed to write the output")?;
    Ok(ExitCode::SUCCESS)
}

fn names_page(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default();
    ["html", "htm"]
        .iter()
        .any(|page| extension.eq_ignore_ascii_case(page))
}

fn title(args: &FlamegraphArgs) -> &str {
    args.title.as_deref().unwrap_or("Flame graph")
}

fn svg(
    args: &FlamegraphArgs,
    files: &[PathBuf],
    filter: &Filter,
    names: &NameFilter,
) -> Result<Vec<u8>> {
    let finder = Finder::new(&args.shown.symbols, args.shown.output.quiet)?;
    let mut profile = select::load(files, filter, Apart::Comms, &finder)?;
    select::keep_one_event(&mut profile, filter, finder.quiet);
    let named = finder.name(profile)?;
    let options = FlamegraphOptions {
        title: title(args).to_owned(),
        min_percent: args.min,
    };
    let mut picture = Vec::new();
    flamegraph::write(&named, names, &options, &mut picture)?;
    Ok(picture)
}

fn page(
    args: &FlamegraphArgs,
    files: &[PathBuf],
    filter: &Filter,
    names: &NameFilter,
) -> Result<Vec<u8>> {
    let finder = Finder::new(&args.shown.symbols, args.shown.output.quiet)?;
    let (profile, timeline) = timeline::load(files, filter, &finder)?;
    let named = finder.name(profile)?;
    let mut picture = Vec::new();
    page::write(&named, &timeline, names, title(args), &mut picture)?;
    Ok(picture)
}
