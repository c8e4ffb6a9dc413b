//! Archives that commands make: never over an existing file unasked, and never half.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use rawstack_format::{ArchiveFile, Error, Writer, WriterOptions};
use rawstack_symbolizer::output;

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
        return written(Box::new(io::stdout()), options, fill);
    }
    let file = create(target, args.force)?;
    let made = written(Box::new(Synced(file)), options, fill);
    if made.is_err() {
        // Half an archive says less than what it was made of.
        fs::remove_file(target).ok();
    }
    made
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

fn create(target: &Path, force: bool) -> Result<ArchiveFile> {
    match ArchiveFile::create(target, force) {
        Err(Error::Exists { path }) => bail!(
            "failed to create archive {}: it exists; name another with -o, or overwrite it with --force",
            path.display()
        ),
        other => Ok(other?),
    }
}

/// A file that is on the disk when it is flushed.
struct Synced(ArchiveFile);

impl Write for Synced {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.sync().map_err(io::Error::other)
    }
}
