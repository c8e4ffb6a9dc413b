//! `rawstack record`: hands over to rawstack-record, which lies beside this program or on PATH.

use std::env;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::args::RecordArgs;

const RECORDER: &str = "rawstack-record";

/// Become the recorder.
pub(crate) fn run(args: &RecordArgs) -> Result<ExitCode> {
    let beside = env::current_exe()
        .ok()
        .and_then(|path| Some(path.parent()?.join(RECORDER)));
    let program = beside
        .filter(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from(RECORDER));
    let error = Command::new(&program).args(&args.args).exec();
    if error.kind() == io::ErrorKind::NotFound {
        bail!(
            "failed to find {RECORDER}: it is neither beside rawstack nor on PATH; install it with `make install`"
        );
    }
    Err(error).with_context(|| format!("failed to run {}", program.display()))
}
