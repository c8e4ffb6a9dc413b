//! Where output goes, and what a closed pipe means.

use std::error;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::mem;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::OnceLock;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};
use rayon::ThreadPoolBuilder;
use rayon::prelude::*;

use crate::staged::Staged;
use crate::text::Columns;
use crate::watch::no_way_back;

/// Items that are rendered in one go.
const PIECE: usize = 1024;
/// Pieces that are rendered together, for each thread.
const PIECES_PER_THREAD: usize = 2;

/// Time for which no progress is shown.
const UNSEEN: Duration = Duration::from_secs(1);

/// Open `target` for writing, `-` and nothing being standard output.
///
/// A file takes its place when it is flushed for the first time: until then what stood there stays.
pub fn open(target: Option<&Path>) -> Result<Box<dyn Write>> {
    match target {
        Some(path) if path != Path::new("-") => {
            let file = OutputFile::create(path)
                .with_context(|| format!("failed to create {}", path.display()))?;
            Ok(Box::new(BufWriter::with_capacity(1 << 16, file)))
        }
        _ => Ok(Box::new(BufWriter::with_capacity(
            1 << 16,
            StandardOutput::default(),
        ))),
    }
}

/// A file that was asked for.
#[derive(Debug)]
enum OutputFile {
    /// It is not in its place yet.
    Staged(Staged),
    /// It is: it was flushed, or is a pipe or device, or its folder takes no new files.
    There(File),
}

impl OutputFile {
    fn create(path: &Path) -> io::Result<Self> {
        let held = path.metadata();
        if held.as_ref().is_ok_and(|held| !held.is_file()) {
            return File::create(path).map(Self::There);
        }
        match Staged::create(path) {
            Ok(staged) => Ok(Self::Staged(staged)),
            Err(_) if held.is_ok() => File::create(path).map(Self::There),
            Err(error) => Err(error),
        }
    }

    fn file(&self) -> &File {
        match self {
            Self::Staged(staged) => staged.file(),
            Self::There(file) => file,
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        let there = Self::There(self.file().try_clone()?);
        match mem::replace(self, there) {
            Self::Staged(staged) => staged.keep(),
            Self::There(_) => Ok(()),
        }
    }
}

/// Standard output, from whose first byte on there is no beginning again.
#[derive(Default)]
struct StandardOutput {
    is_begun: bool,
}

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !mem::replace(&mut self.is_begun, true) {
            no_way_back();
        }
        io::stdout().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

/// How long the lines of text that goes to `target` may be: as long as a terminal is wide, else without end.
pub fn columns(target: Option<&Path>) -> Columns {
    let to_stdout = target.is_none_or(|path| path == Path::new("-"));
    if !(to_stdout && io::stdout().is_terminal()) {
        return Columns(None);
    }
    let size = Term::stdout().size_checked();
    Columns(
        size.map(|(_, columns)| usize::from(columns))
            .filter(|&columns| columns > 0),
    )
}

/// Fail where `target` is a terminal: what is to come is no text.
pub fn refuse_terminal(target: Option<&Path>) -> Result<()> {
    let to_stdout = target.is_none_or(|path| path == Path::new("-"));
    if to_stdout && io::stdout().is_terminal() {
        bail!("failed to write to the terminal: this format is no text; name a file with -o");
    }
    Ok(())
}

/// Write what `render` makes of `items`, in their order: rendered in pieces by all threads, while what is ready is
/// written. Holds a few pieces at a time.
pub fn write_in_order<T: Sync>(
    items: &[T],
    render: &(dyn Fn(&[T]) -> Vec<u8> + Sync),
    out: &mut dyn Write,
) -> io::Result<()> {
    if items.len() <= PIECE || !has_threads() {
        return items
            .chunks(PIECE)
            .try_for_each(|piece| out.write_all(&render(piece)));
    }
    let together = PIECE * PIECES_PER_THREAD * rayon::current_num_threads();
    let mut ready: Vec<Vec<u8>> = Vec::new();
    for group in items.chunks(together) {
        let pieces = || group.par_chunks(PIECE).map(render).collect();
        let (written, rendered) = thread::scope(|scope| {
            let rendering = thread::Builder::new().spawn_scoped(scope, pieces);
            let written = ready.iter().try_for_each(|piece| out.write_all(piece));
            (written, rendering.map(ScopedJoinHandle::join))
        });
        written?;
        ready = match rendered {
            Ok(rendered) => rendered.unwrap_or_else(|panic| resume_unwind(panic)),
            Err(_) => vec![render(group)],
        };
    }
    ready.iter().try_for_each(|piece| out.write_all(piece))
}

/// Whether there are threads to share work with: where memory or a limit does not allow them, one does it alone.
fn has_threads() -> bool {
    static STARTED: OnceLock<bool> = OnceLock::new();
    *STARTED.get_or_init(|| ThreadPoolBuilder::new().build_global().is_ok())
}

/// Whether `error` comes from a reader that went away, which is its right.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let closed = |cause: &(dyn error::Error + 'static)| {
        let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let json = cause
            .downcast_ref::<serde_json::Error>()
            .and_then(serde_json::Error::io_error_kind);
        let csv = cause
            .downcast_ref::<csv::Error>()
            .and_then(|error| match error.kind() {
                csv::ErrorKind::Io(source) => Some(source.kind()),
                _ => None,
            });
        [io, json, csv].contains(&Some(ErrorKind::BrokenPipe))
    };
    error.chain().any(closed)
}

/// A progress bar on standard error, seen on a terminal only, and only when the work takes more than a second.
pub fn progress(label: &'static str, steps: usize, quiet: bool) -> ProgressBar {
    if quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::hidden());
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message(label);
    let later = bar.clone();
    // Without a thread for it, it is not seen.
    let _ = thread::Builder::new().spawn(move || {
        thread::sleep(UNSEEN);
        if !later.is_finished() {
            later.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            later.enable_steady_tick(Duration::from_millis(500));
        }
    });
    bar
}

/// A line on standard error for what comes over the network, seen on a terminal only; gone with the value.
pub fn transfers(quiet: bool) -> ProgressBar {
    if quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    if let Ok(style) = ProgressStyle::with_template("fetching {wide_msg}") {
        line.set_style(style);
    }
    line.with_finish(ProgressFinish::AndClear)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that pieces come out in the order of their items, whatever thread made them.
    #[test]
    fn pieces_in_order() {
        let items: Vec<u32> = (0..20_000).collect();
        let render = |items: &[u32]| {
            let lines = items.iter().map(|item| format!("{item}\n"));
            lines.collect::<String>().into_bytes()
        };
        let mut out = Vec::new();
        write_in_order(&items, &render, &mut out).unwrap();
        assert_eq!(out, render(&items));
    }
}
