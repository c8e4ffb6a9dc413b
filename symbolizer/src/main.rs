//! The `rawstack` program: parse, run (in a worker, where files of others are read), exit code.

mod args;
mod commands;
mod supervise;

use std::process::ExitCode;

use clap::Parser;
use rawstack_symbolizer::guard::silence_guarded_panics;
use rawstack_symbolizer::output::is_closed_pipe;

/// Usage or I/O.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    silence_guarded_panics();
    let cli = args::Cli::parse();
    if cli.worker.worker.is_none()
        && cli.verb.reads_debug_files()
        && let Some(code) = supervise::supervise()
    {
        return code;
    }
    let done = supervise::work(&cli.worker).map_err(anyhow::Error::from);
    match done.and_then(|()| commands::run(&cli.verb)) {
        Ok(code) => code,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rawstack: {error:#}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}
