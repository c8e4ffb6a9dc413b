//! `rawstack merge`.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use rawstack_format::{ArchiveFile, Damage, Error, Writer, WriterOptions};
use rawstack_symbolizer::merge::{Inputs, Merged};
use rawstack_symbolizer::output;
use rawstack_symbolizer::text::clean;

use super::select;
use crate::args::MergeArgs;

/// Make one archive of several.
pub(crate) fn run(args: &MergeArgs) -> Result<ExitCode> {
    let target = args.output.as_path();
    let files = select::archives(&args.files, Some(target))?;
    let bar = output::progress("merging", files.len(), args.quiet);
    let done = || bar.inc(1);
    let inputs = Inputs::open(files)?;
    let (merged, bytes) = if target == Path::new("-") {
        output::refuse_terminal(Some(target))?;
        let mut writer = Writer::new(io::stdout().lock(), options(&inputs))?;
        let merged = inputs.merge(&mut writer, &done)?;
        finish(&mut writer)?;
        (merged, writer.position())
    } else {
        let file = create(target, args.force)?;
        let made = to_file(inputs, file, &done);
        if made.is_err() {
            // Half a merged archive says less than what it was made of.
            fs::remove_file(target).ok();
        }
        made.with_context(|| format!("failed to make {}", target.display()))?
    };
    bar.finish_and_clear();
    if !args.quiet {
        tell(&merged, bytes, target);
    }
    Ok(ExitCode::SUCCESS)
}

/// How the merged archive is written: the same inputs give the same bytes.
fn options(inputs: &Inputs) -> WriterOptions {
    let mut options = WriterOptions::default();
    options.salt = Some(inputs.salt());
    options.merged = true;
    options
}

fn create(target: &Path, force: bool) -> Result<ArchiveFile> {
    match ArchiveFile::create(target, force) {
        Err(Error::Exists { path }) => bail!(
            "failed to create archive {}: it exists; name another with -o, or overwrite it with --force",
            path.display()
        ),
        other => Ok(other?),
    }
}

fn to_file(inputs: Inputs, file: ArchiveFile, done: &dyn Fn()) -> Result<(Merged, u64)> {
    let mut writer = Writer::new(file, options(&inputs))?;
    let merged = inputs.merge(&mut writer, done)?;
    finish(&mut writer)?;
    writer.get_mut().sync()?;
    Ok((merged, writer.position()))
}

fn finish<W: Write>(writer: &mut Writer<W>) -> Result<()> {
    writer.end().context("failed to write the merged archive")
}

/// Say what was merged, and what was not whole.
fn tell(merged: &Merged, bytes: u64, target: &Path) {
    for (name, damage) in &merged.damaged {
        let name = clean(name);
        eprintln!(
            "rawstack: {name} is not whole: {}; what is whole was taken",
            what(damage)
        );
    }
    let (parts, chunks) = (merged.parts, merged.chunks);
    let target = target.display();
    eprintln!("rawstack: {parts} archives with {chunks} chunks in {bytes} bytes: {target}");
}

/// What is missing, in a few words.
fn what(damage: &Damage) -> String {
    let mut words = Vec::new();
    if damage.gap_count > 0 {
        let (bytes, places) = (damage.gap_bytes, damage.gap_count);
        words.push(format!(
            "{bytes} bytes damaged or missing in {places} places"
        ));
    }
    if damage.lost_ids > 0 {
        words.push(format!("{} IDs lost", damage.lost_ids));
    }
    if damage.header_copy {
        words.push("one copy of the header damaged".to_owned());
    }
    if damage.lost_parts > 0 {
        words.push(format!("{} parts missing before it", damage.lost_parts));
    }
    if !damage.ended {
        words.push("its recording did not end by itself".to_owned());
    }
    if words.is_empty() {
        words.push("the merged archive it comes from ended with it".to_owned());
    }
    words.join(", ")
}
