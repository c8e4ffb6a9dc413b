//! The verbs: each loads, resolves and renders, and says what failed.

mod record;
mod symbolize;

use std::process::ExitCode;

use anyhow::Result;
use rawstack_symbolizer::debug_file::locate::Locator;
use rawstack_symbolizer::resolve::{ResolveOptions, Symbolizer};

use crate::args::{SymbolArgs, Verb};

/// Carry out a verb.
pub(crate) fn run(verb: &Verb) -> Result<ExitCode> {
    match verb {
        Verb::Symbolize(args) => symbolize::run(args),
        Verb::Record(args) => record::run(args),
        _ => anyhow::bail!("not yet"),
    }
}

/// Where to look, as the options say.
fn locator(args: &SymbolArgs) -> Locator {
    Locator::new(args.symbol_dir.clone(), true)
}

/// What to read, as the options say.
fn symbolizer(args: &SymbolArgs) -> Result<Symbolizer> {
    Ok(Symbolizer::new(ResolveOptions {
        dwarf: !args.symbols_only,
    })?)
}
