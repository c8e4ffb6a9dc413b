//! The command line, as typed: clap only, no work.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) mod archive;
pub(crate) mod diff;
pub(crate) mod export;
pub(crate) mod names;
pub(crate) mod report;
pub(crate) mod shared;

use archive::{DumpArgs, ImportArgs, InfoArgs, MergeArgs, ScrubArgs, VerifyArgs};
use diff::{CalibrateArgs, DiffArgs};
use export::{ExportArgs, FlamegraphArgs};
use names::{CacheArgs, SymbolizeArgs, SymbolsArgs};
use report::{ReportArgs, TuiArgs};

/// Look at recordings of stack traces, and give them names.
#[derive(Debug, Parser)]
#[command(name = "rawstack", version, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// What a supervisor tells its worker.
    #[command(flatten)]
    pub(crate) worker: WorkerArgs,
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What this program says to itself: see `supervise.rs`. Nobody types it.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Descriptor to write marks to
    #[arg(long, hide = true, value_name = "FD")]
    pub(crate) worker: Option<u32>,
    /// File that is not to be read
    #[arg(long, hide = true, value_name = "FILE")]
    pub(crate) left_out: Vec<PathBuf>,
}

const EXAMPLES: &str = "\
EXAMPLES:
  rawstack record -d 10s -o web.rawstack
  rawstack report web.rawstack --symbol-dir ./debug
  rawstack flamegraph web.rawstack -o web.svg";

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Tell what an archive holds
    Info(InfoArgs),
    /// Check an archive: exit code 0 when whole, 1 when not
    Verify(VerifyArgs),
    /// Print the samples of an archive one by one
    Dump(DumpArgs),
    /// Print a table of where time goes
    Report(ReportArgs),
    /// Draw a flame graph
    Flamegraph(FlamegraphArgs),
    /// Look at a profile in the terminal
    Tui(TuiArgs),
    /// Write samples in the format of another tool
    Export(ExportArgs),
    /// Compare two builds: did the new one get slower, where, and how sure is that
    Diff(Box<DiffArgs>),
    /// Measure the noise of a machine and workload, from runs of one build
    Calibrate(CalibrateArgs),
    /// Tell for each module which files name it, and what is missing
    Symbols(SymbolsArgs),
    /// Name bare offsets or addresses
    Symbolize(SymbolizeArgs),
    /// Tell what is kept of earlier results, or remove it
    Cache(CacheArgs),
    /// Make an archive of a perf.data
    Import(ImportArgs),
    /// Put several archives into one
    Merge(MergeArgs),
    /// Copy an archive without what it holds of programs' memory: with stacks in its place
    Scrub(ScrubArgs),
    /// Record with rawstack-record (see `rawstack record --help`)
    #[command(disable_help_flag = true)]
    Record(RecordArgs),
}

impl Verb {
    /// Whether files of others are mapped and read, which can end the process that does so.
    pub(crate) fn reads_debug_files(&self) -> bool {
        match self {
            Self::Info(args) => !args.raw,
            Self::Verify(_) | Self::Merge(_) | Self::Cache(_) | Self::Record(_) => false,
            _ => true,
        }
    }
}

/// `rawstack record`.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Arguments of rawstack-record
    #[arg(
        value_name = "ARGS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) args: Vec<OsString>,
}
