//! The verbs: each loads, resolves and renders, and says what failed.

mod cache;
mod compared;
mod diff;
mod dump;
mod export;
mod finder;
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

use crate::args::Verb;

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
