//! The verbs: each loads, resolves and renders, and says what failed.

mod dump;
mod flamegraph;
mod info;
mod record;
mod report;
mod select;
mod symbolize;
mod symbols;

use std::process::ExitCode;

use anyhow::Result;
use rawstack_symbolizer::debug_file::locate::{Locator, Places};
use rawstack_symbolizer::resolve::{ResolveOptions, Symbolizer};

use crate::args::{SymbolArgs, Verb};

/// Carry out a verb.
pub(crate) fn run(verb: &Verb) -> Result<ExitCode> {
    match verb {
        Verb::Info(args) => info::run(args),
        Verb::Verify(args) => info::verify(args),
        Verb::Dump(args) => dump::run(args),
        Verb::Report(args) => report::run(args),
        Verb::Flamegraph(args) => flamegraph::run(args),
        Verb::Symbols(args) => symbols::run(args),
        Verb::Symbolize(args) => symbolize::run(args),
        Verb::Record(args) => record::run(args),
    }
}

/// Where to look, as the options say.
fn locator(args: &SymbolArgs) -> Locator {
    Locator::new(Places::of_machine(args.symbol_dir.clone()))
}

/// What to read, as the options say.
fn symbolizer(args: &SymbolArgs) -> Result<Symbolizer> {
    Ok(Symbolizer::new(ResolveOptions {
        dwarf: !args.symbols_only,
    })?)
}
