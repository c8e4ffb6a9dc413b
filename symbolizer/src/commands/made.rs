//! Archives that commands make: never over an existing file unasked, and never half.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use rawstack_format::{Writer, WriterOptions};
use rawstack_symbolizer::output;
use rawstack_symbolizer::staged::Staged;
use rawstack_symbolizer::watch::no_way_back;

use crate::args::archive::MadeArgs;

/// Make the archive that `args` names with `fill`; gives what `fill` gave, and the archive's length in bytes.
pub(super) fn make<T>(
    args: &MadeArgs,
    options: WriterOptions,
    fill: impl FnOnce(&mut Writer<Box<dyn Write>>) -> Result<T>,
) -> Result<(T, u64)> {
    let target = args.output.as_path();
    if target == Path::new("-") {
        output::refuse_terminal(Some(target))?;
        no_way_back();
        return written(Box::new(io::stdout()), options, fill);
    }
    refuse_existing(target, args.force)?;
    let failed = || format!("failed to create archive {}", target.display());
    // Half an archive says less than what it was made of, and than the one that stands there.
    let staged = Staged::create_private(target).with_context(failed)?;
    let file = staged.file().try_clone().with_context(failed)?;
    let made = written(Box::new(Synced(file)), options, fill)?;
    match args.force {
        true => staged.keep(),
        false => staged.keep_where_free(),
    }
    .with_context(failed)?;
    Ok(made)
}

fn written<T>(
    output: Box<dyn Write>,
    options: WriterOptions,
    fill: impl FnOnce(&mut Writer<Box<dyn Write>>) -> Result<T>,
) -> Result<(T, u64)> {
    let mut writer = Writer::new(output, options).context("failed to write the archive")?;
    let filled = fill(&mut writer)?;
    writer.end().context("failed to write the archive")?;
    Ok((filled, writer.position()))
}

/// Fail where something stands that is not to be replaced.
fn refuse_existing(target: &Path, force: bool) -> Result<()> {
    let Ok(meta) = target.symlink_metadata() else {
        return Ok(());
    };
    let failed = format!("failed to create archive {}", target.display());
    if !meta.is_file() {
        bail!("{failed}: it is not a regular file; name another with -o");
    }
    if !force {
        bail!("{failed}: it exists; name another with -o, or overwrite it with --force");
    }
    Ok(())
}

/// A file that is on the disk when it is flushed.
struct Synced(File);

impl Write for Synced {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }
}
