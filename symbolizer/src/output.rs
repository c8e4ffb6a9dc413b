//! Where output goes, and what a closed pipe means.

use std::error;
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

/// Open `target` for writing, `-` and nothing being standard output.
pub fn open(target: Option<&Path>) -> Result<Box<dyn Write>> {
    match target {
        Some(path) if path != Path::new("-") => {
            let file = File::create(path)
                .with_context(|| format!("failed to create {}", path.display()))?;
            Ok(Box::new(BufWriter::with_capacity(1 << 16, file)))
        }
        _ => Ok(Box::new(BufWriter::with_capacity(
            1 << 16,
            io::stdout().lock(),
        ))),
    }
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

/// A progress bar on standard error, seen on a terminal only and only when the work takes a while.
pub fn progress(label: &'static str, steps: usize, quiet: bool) -> ProgressBar {
    if quiet || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar =
        ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr_with_hz(10));
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message(label);
    bar.enable_steady_tick(Duration::from_millis(500));
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
