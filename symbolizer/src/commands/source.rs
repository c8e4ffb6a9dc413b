//! `rawstack report --source`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use rawstack_symbolizer::output;
use rawstack_symbolizer::report::{GroupBy, NameFilter, TableRow, source, table};
use rawstack_symbolizer::source_files::{SourceFiles, SourcePlaces};
use rawstack_symbolizer::symbolized::SymbolizedProfile;

use super::select;
use crate::args::report::ReportArgs;

/// Print the source of the functions that `wanted` matches.
pub(super) fn print(
    args: &ReportArgs,
    wanted: &str,
    profile: &SymbolizedProfile,
    names: &NameFilter,
    out: &mut dyn Write,
) -> Result<()> {
    let wanted = select::regex("source", wanted)?;
    let mut files = SourceFiles::new(places(args)?);
    let functions = table::table(profile, GroupBy::Function, names);
    let lines = table::table(profile, GroupBy::Line, names);
    let is_wanted = |row: &TableRow| {
        let file = row.file.as_deref();
        wanted.is_match(&row.name) || file.is_some_and(|file| wanted.is_match(file))
    };
    let mut report = source::report((&functions, &lines), &is_wanted, &mut files);
    source::cut(&mut report, args.min.unwrap_or(0.0));
    if args.json {
        source::write_json(&report, out)?;
        return Ok(());
    }
    if report.functions.is_empty() && !args.shown.output.quiet {
        eprintln!("rawstack: --source matches no function and no file of this profile");
    }
    let columns = output::columns(args.shown.output.output.as_deref());
    source::write_text(&report, columns, out)?;
    Ok(())
}

/// Where sources are, as the options say.
fn places(args: &ReportArgs) -> Result<SourcePlaces> {
    let map = |text: &String| -> Result<(String, PathBuf)> {
        let parts = text.split_once('=').filter(|(_, to)| !to.is_empty());
        let Some((from, to)) = parts else {
            bail!(
                "failed to read --source-map `{}`: give FROM=TO, as in /build=./src",
                text.escape_debug()
            );
        };
        Ok((from.to_owned(), PathBuf::from(to)))
    };
    for folder in &args.source_dir {
        let meta = folder.metadata();
        let meta =
            meta.with_context(|| format!("failed to open --source-dir {}", folder.display()))?;
        if !meta.is_dir() {
            bail!(
                "failed to open --source-dir {}: it is no folder",
                folder.display()
            );
        }
    }
    Ok(SourcePlaces {
        maps: args.source_map.iter().map(map).collect::<Result<_>>()?,
        folders: args.source_dir.clone(),
    })
}
