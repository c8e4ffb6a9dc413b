//! `rawstack symbols`.

use std::io::Write;
use std::process::ExitCode;
use std::slice;

use anyhow::{Context, Result};
use rawstack_symbolizer::output;
use rawstack_symbolizer::profile::Filter;
use rawstack_symbolizer::profile::rows::Apart;
use rawstack_symbolizer::report::symbols;

use super::finder::Finder;
use super::{pack, select};
use crate::args::names::SymbolsArgs;
use crate::args::shared::StackChoice;

/// Tell what was found for each module, or pack it.
pub(crate) fn run(args: &SymbolsArgs) -> Result<ExitCode> {
    let mut symbols = args.symbols.clone();
    if args.pack.is_some() {
        // What belongs into a pack needs no unwinding: it is all that was mapped.
        symbols.stacks = StackChoice::FramePointers;
    }
    let finder = Finder::asking(&symbols, args.fetch, args.output.quiet)?;
    let file = slice::from_ref(&args.file);
    let profile = select::load(file, &Filter::default(), Apart::Stacks, &finder)?;
    if let Some(target) = &args.pack {
        return pack::run(args, &profile, &finder, target);
    }
    let named = finder.name_by(&finder.symbolizer(false)?, profile, true);
    let mut out = output::open(args.output.output.as_deref())?;
    if args.json {
        symbols::write_json(&named, &mut *out)?;
    } else {
        symbols::write_text(&named, &mut *out)?;
    }
    out.flush().context("failed to write the output")?;
    Ok(ExitCode::SUCCESS)
}
