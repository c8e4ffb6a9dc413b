//! `rawstack flamegraph`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use rawstack_symbolizer::export::flamegraph::{self, FlamegraphOptions};
use rawstack_symbolizer::output;
use rawstack_symbolizer::profile::rows::Apart;

use super::select;
use crate::args::FlamegraphArgs;

/// Draw the picture.
pub(crate) fn run(args: &FlamegraphArgs) -> Result<ExitCode> {
    let filter = select::filter(&args.filter)?;
    let names = select::name_filter(&args.names)?;
    let files = select::archives(&args.files, args.output.output.as_deref())?;
    let mut profile = select::load(&files, &filter, Apart::Comms, args.output.quiet)?;
    select::keep_one_event(&mut profile, &filter, args.output.quiet);
    let named = select::name(profile, &args.symbols, args.output.quiet)?;
    let title = args
        .title
        .clone()
        .unwrap_or_else(|| "Flame graph".to_owned());
    let options = FlamegraphOptions {
        title,
        min_percent: args.min,
    };
    let mut picture = Vec::new();
    flamegraph::write(&named, &names, &options, &mut picture)?;
    // Only a picture that is finished takes the place of an older one.
    let mut out = output::open(args.output.output.as_deref())?;
    out.write_all(&picture)
        .and_then(|()| out.flush())
        .context("failed to write the output")?;
    Ok(ExitCode::SUCCESS)
}
