//! The `rawstack` program: parse, run, exit code.

mod args;
mod commands;

use std::process::ExitCode;

use clap::Parser;
use rawstack_symbolizer::guard::silence_guarded_panics;
use rawstack_symbolizer::output::is_closed_pipe;

/// Usage or I/O.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    silence_guarded_panics();
    let cli = args::Cli::parse();
    match commands::run(&cli.verb) {
        Ok(code) => code,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rawstack: {error:#}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}
