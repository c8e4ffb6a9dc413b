//! `rawstack-record`: the command line around `rawstack_recorder::record`.
#![forbid(unsafe_code)]

use std::env;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use rawstack_recorder::{
    Args, Options, Result, become_command, become_helper, examine, exit_code, record,
};

fn main() -> ExitCode {
    become_command();
    become_helper();
    let args = Args::parse();
    let is_quiet = args.is_quiet();
    if args.is_doctor() {
        return report(args.into_options().map(|options| diagnose(&options)));
    }
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
        Err(error) => report(Err(error)),
    }
}

/// Say what went wrong, if anything did.
fn report(result: Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("rawstack-record: {error}");
        ExitCode::from(2)
    })
}

/// Look at this host, and say what there is.
fn diagnose(options: &Options) -> ExitCode {
    let mut report = examine(options);
    let is_plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    report.is_coloured = io::stdout().is_terminal() && !is_plain;
    // Who closes the pipe has seen enough.
    let _ = write!(io::stdout(), "{report}");
    ExitCode::from(u8::from(!report.is_ready()))
}
