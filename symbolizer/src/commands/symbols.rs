//! `rawstack symbols`.

use std::io::Write;
use std::process::ExitCode;
use std::slice;

use anyhow::{Context, Result};
use rawstack_symbolizer::output;
use rawstack_symbolizer::profile::Filter;
use rawstack_symbolizer::profile::rows::Apart;
use rawstack_symbolizer::report::symbols;

use super::{locator, pack, select, symbolizer};
use crate::args::names::SymbolsArgs;
use crate::args::shared::{StackChoice, SymbolArgs};

/// Tell what was found for each module, or pack it.
pub(crate) fn run(args: &SymbolsArgs) -> Result<ExitCode> {
    // What belongs into a pack needs no unwinding: it is all that was mapped.
    let recorded = SymbolArgs {
        stacks: StackChoice::FramePointers,
        ..args.symbols.clone()
    };
    let profile = select::load(
        slice::from_ref(&args.file),
        &Filter::default(),
        Apart::Stacks,
        if args.pack.is_some() {
            &recorded
        } else {
            &args.symbols
        },
        args.output.quiet,
    )?;
    let locator = locator(&args.symbols, args.fetch, args.output.quiet)?;
    if let Some(target) = &args.pack {
        return pack::run(args, &profile, &locator, target);
    }
    let symbolizer = symbolizer(&args.symbols)?;
    let named = select::name_with(profile, &args.symbols, &locator, &symbolizer, true)?;
    let mut out = output::open(args.output.output.as_deref())?;
    if args.json {
        symbols::write_json(&named, &mut *out)?;
    } else {
        symbols::write_text(&named, &mut *out)?;
    }
    out.flush().context("failed to write the output")?;
    Ok(ExitCode::SUCCESS)
}
