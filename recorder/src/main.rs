//! `rawstack-record`: the command line around `rawstack_recorder::record`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use rawstack_recorder::{Args, become_command, become_helper, exit_code, record};

fn main() -> ExitCode {
    become_command();
    become_helper();
    let args = Args::parse();
    let is_quiet = args.is_quiet();
    match args.into_options().and_then(|options| record(&options)) {
        Ok(summary) => {
            if !is_quiet {
                eprintln!("{summary}");
            }
            if let Some(missing) = summary.missing() {
                eprintln!("rawstack-record: {missing}");
                return ExitCode::from(2);
            }
            ExitCode::from(summary.command_status.map_or(0, exit_code))
        }
        Err(error) => {
            eprintln!("rawstack-record: {error}");
            ExitCode::from(2)
        }
    }
}
