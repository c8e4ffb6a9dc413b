//! The verbs: each loads, resolves and renders, and says what failed.

mod cache;
mod compared;
mod diff;
mod dump;
mod export;
mod flamegraph;
mod import;
mod info;
mod made;
mod merge;
mod numbers;
mod pack;
mod record;
mod report;
mod select;
mod source;
mod symbolize;
mod symbols;
mod timeline;
mod tui;

use std::process::ExitCode;

use anyhow::Result;
use indicatif::HumanBytes;
use rawstack_symbolizer::cache::Cache;
use rawstack_symbolizer::debug_file::debuginfod::{Client, ClientError, Settings, Step};
use rawstack_symbolizer::debug_file::locate::{Locator, Places};
use rawstack_symbolizer::output;
use rawstack_symbolizer::resolve::{ResolveOptions, Symbolizer};
use rawstack_symbolizer::text::clean;

use crate::args::Verb;
use crate::args::shared::SymbolArgs;

/// Carry out a verb.
pub(crate) fn run(verb: &Verb) -> Result<ExitCode> {
    match verb {
        Verb::Info(args) => info::run(args),
        Verb::Verify(args) => info::verify(args),
        Verb::Dump(args) => dump::run(args),
        Verb::Report(args) => report::run(args),
        Verb::Flamegraph(args) => flamegraph::run(args),
        Verb::Tui(args) => tui::run(args),
        Verb::Export(args) => export::run(args),
        Verb::Diff(args) => diff::run(args),
        Verb::Calibrate(args) => diff::calibrate(args),
        Verb::Symbols(args) => symbols::run(args),
        Verb::Symbolize(args) => symbolize::run(args),
        Verb::Cache(args) => cache::run(args),
        Verb::Import(args) => import::run(args),
        Verb::Merge(args) => merge::run(args),
        Verb::Scrub(args) => merge::scrub(args),
        Verb::Record(args) => record::run(args),
    }
}

/// Where to look, as the options say; with `ask` servers too.
fn locator(args: &SymbolArgs, ask: bool, quiet: bool) -> Result<Locator> {
    let locator = Locator::new(Places::of_machine(args.symbol_dir.clone()));
    if !(ask || args.debuginfod) {
        return Ok(locator);
    }
    let settings = Settings::from_environment().ok_or(ClientError::NoServer)?;
    if !quiet {
        for refused in &settings.refused {
            eprintln!("rawstack: DEBUGINFOD_URLS: not asked: {}", clean(refused));
        }
    }
    let bar = output::transfers(quiet);
    let verbose = settings.verbose && !quiet;
    let watch = move |url: &str, step: Step| match step {
        Step::Coming(bytes) => {
            bar.set_message(format!("{} {}", HumanBytes(bytes), clean(url)));
            bar.tick();
        }
        Step::Ended(how) if verbose => {
            bar.suspend(|| eprintln!("rawstack: {}: {how}", clean(url)));
        }
        _ => {}
    };
    Ok(locator.with_client(Client::new(settings, Box::new(watch))?))
}

/// What to read, as the options say.
fn symbolizer(args: &SymbolArgs) -> Result<Symbolizer> {
    symbolizer_with(args, false)
}

/// As [`symbolizer`], with `origins` one that tells functions of one name apart.
fn symbolizer_with(args: &SymbolArgs, origins: bool) -> Result<Symbolizer> {
    let options = ResolveOptions {
        dwarf: !args.symbols_only,
        origins,
    };
    let cache = Cache::of_user().filter(|_| !args.no_cache);
    Ok(Symbolizer::new(options)?.with_cache(cache))
}
