//! `rawstack tui`.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use rawstack_symbolizer::error::Error;
use rawstack_symbolizer::explore::Explored;
use rawstack_symbolizer::text::clean;
use rawstack_symbolizer::tui::{self, Look};
use rawstack_symbolizer::watch::no_way_back;

use super::finder::Finder;
use super::{select, timeline};
use crate::args::report::TuiArgs;

/// Show the profile in the terminal.
pub(crate) fn run(args: &TuiArgs) -> Result<ExitCode> {
    if !(io::stdout().is_terminal() && io::stdin().is_terminal()) {
        bail!(
            "failed to open the terminal: input or output is another file; use `rawstack report`"
        );
    }
    if args.files.iter().any(|file| file == Path::new("-")) {
        bail!(
            "failed to read the archive from standard input, where keys come from: give it as a file"
        );
    }
    let files = select::archives(&args.files, None)?;
    let filter = select::filter(&args.filter)?;
    let names = select::name_filter(&args.names)?;
    let finder = Finder::new(&args.symbols, args.quiet)?;
    let (profile, timeline) = timeline::load(&files, &filter, &finder)?;
    let named = finder.name(profile)?;
    let data = Explored::of(&named, &timeline, &names);
    if data.is_empty() {
        return Err(Error::NothingToDraw.into());
    }
    let title = files
        .iter()
        .map(|file| clean(&file.to_string_lossy()).into_owned());
    // From here on keys have been pressed.
    no_way_back();
    tui::run(
        &data,
        &title.collect::<Vec<_>>().join(", "),
        Look::of_environment(),
    )?;
    Ok(ExitCode::SUCCESS)
}
