//! `rawstack merge` and `rawstack scrub`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::slice;

use anyhow::Result;
use rawstack_format::{Damage, WriterOptions};
use rawstack_symbolizer::copied::Unwinding;
use rawstack_symbolizer::merge::{Inputs, Merged};
use rawstack_symbolizer::output;
use rawstack_symbolizer::text::clean;

use super::finder::Finder;
use super::{made as archives, select};
use crate::args::archive::{MadeArgs, MergeArgs, ScrubArgs};

/// Make one archive of several.
pub(crate) fn run(args: &MergeArgs) -> Result<ExitCode> {
    make("merging", &args.files, &args.made, args.drop_copies, None)
}

/// Copy an archive, without what it holds of memory: copies of stacks become the stacks that they are unwound to.
pub(crate) fn scrub(args: &ScrubArgs) -> Result<ExitCode> {
    let unwinding = Finder::new(&args.symbols, args.made.quiet)?.unwinding();
    let files = slice::from_ref(&args.file);
    make("copying", files, &args.made, true, unwinding)
}

/// `doing` is what the progress says.
fn make(
    doing: &'static str,
    files: &[PathBuf],
    made: &MadeArgs,
    drops_copies: bool,
    unwinding: Option<Unwinding>,
) -> Result<ExitCode> {
    let target = made.output.as_path();
    let files = select::archives(files, Some(target))?;
    let bar = output::progress(doing, files.len(), made.quiet);
    let inputs = Inputs::open(files)?
        .dropping_copies(drops_copies)
        .unwinding_copies(unwinding);
    let mut options = WriterOptions::default();
    // The same inputs give the same bytes.
    options.salt = Some(inputs.salt());
    options.merged = true;
    let done = || bar.inc(1);
    let (merged, bytes) = archives::make(made, options, |writer| Ok(inputs.merge(writer, &done)?))?;
    bar.finish_and_clear();
    if !made.quiet {
        tell(&merged, bytes, target);
    }
    Ok(ExitCode::SUCCESS)
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
    for line in &merged.unwound {
        eprintln!("rawstack: {line}");
    }
    if merged.dropped > 0 {
        let dropped = merged.dropped;
        eprintln!("rawstack: left out copies of stacks: {dropped} chunks");
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
