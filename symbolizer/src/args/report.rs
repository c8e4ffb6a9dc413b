//! Options of the verbs that show where time goes.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::shared::{FilterArgs, NameFilterArgs, ShownArgs, SymbolArgs};

/// What the rows of a report are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum GroupBy {
    /// Functions
    Function,
    /// Source lines
    Line,
    /// Binaries, libraries, the kernel
    Module,
    /// Threads
    Thread,
    /// Processes
    Process,
    /// Control groups
    Cgroup,
    /// CPUs
    Cpu,
    /// Events
    Event,
}

/// Trees of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TreeDirection {
    /// From the functions that ran to those that called them
    Callers,
    /// From the first function to those that it called
    Callees,
}

/// `rawstack report`.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  rawstack report web.rawstack --symbol-dir ./debug
  rawstack report a.rawstack b.rawstack --by line --min 1
  rawstack report web.rawstack --tree callees --comm nginx
  rawstack report web.rawstack --focus '^parse' --json
  rawstack report web.rawstack --source '^parse_item$' --source-map /build=./src")]
pub(crate) struct ReportArgs {
    /// Archives
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// What a row is
    #[arg(long, value_enum, value_name = "WHAT", default_value = "function")]
    pub(crate) by: GroupBy,
    /// A tree of calls: below each function its callers, or its callees
    #[arg(long, value_enum, value_name = "WHICH", conflicts_with = "by")]
    pub(crate) tree: Option<TreeDirection>,
    /// Source lines of functions whose name or file matches, with their time
    #[arg(long, value_name = "REGEX", conflicts_with_all = ["by", "tree", "csv", "symbols_only"])]
    pub(crate) source: Option<String>,
    /// Folder with sources: whole paths below it, or their last parts (repeatable)
    #[arg(long, value_name = "DIR", requires = "source")]
    pub(crate) source_dir: Vec<PathBuf>,
    /// Look for sources whose path begins with FROM in TO (repeatable)
    #[arg(long, value_name = "FROM=TO", requires = "source")]
    pub(crate) source_map: Vec<String>,
    /// JSON
    #[arg(long, conflicts_with = "csv")]
    pub(crate) json: bool,
    /// CSV
    #[arg(long)]
    pub(crate) csv: bool,
    /// Leave out rows below this share of the total; in a tree, fold them (as text 0.5)
    #[arg(long, value_name = "PERCENT")]
    pub(crate) min: Option<f64>,
    /// What is shown, and where
    #[command(flatten)]
    pub(crate) shown: ShownArgs,
}

/// `rawstack tui`.
#[derive(Debug, Args)]
#[command(after_help = "\
Functions, callers and callees, flame graph, and filters, by keys: ? lists them.

EXAMPLES:
  rawstack tui web.rawstack
  rawstack tui web.rawstack --time 2s..5s --no-kernel")]
pub(crate) struct TuiArgs {
    /// Archives
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// No messages but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Symbols
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
    /// Selection
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Selection by name
    #[command(flatten)]
    pub(crate) names: NameFilterArgs,
}
