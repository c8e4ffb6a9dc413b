//! `rawstack diff` and `rawstack calibrate`, as typed.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::shared::{FilterArgs, OutputArgs, ShownArgs, SymbolArgs};

/// Formats of `diff`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffFormat {
    /// A table for people
    Text,
    /// A comment for a pull request, within 65,536 characters
    Markdown,
    /// One JSON object
    Json,
    /// One page that needs no network: a differential flame graph and the table
    Html,
    /// Test results, as CI shows them
    Junit,
    /// Findings, as code hosts show them
    Sarif,
}

/// Outcomes that give an exit code other than 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// A regression (1) and what is inconclusive (3)
    Inconclusive,
    /// A regression (1)
    Regression,
    /// None
    Never,
}

/// What a cost is counted per.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CostPer {
    /// Declared work (rawstack-record --work): the default where all runs have it
    Work,
    /// A run: each does the same
    Run,
    /// A run of the length that most functions tell: the default else
    Ratio,
    /// The total: shares
    Share,
}

/// What becomes of generic parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Generics {
    /// Instances are different functions
    Keep,
    /// Instances are one function
    Erase,
}

/// What the rows of a comparison are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffBy {
    /// Functions
    Function,
    /// Lines, counted from where their function is declared
    Line,
}

const DIFF_EXAMPLES: &str = "\
Exit code: 0 nothing got slower, 1 something did, 2 usage or I/O, 3 the runs cannot tell.
Each side is one archive or several joined by commas. docs/diff.md tells how to judge it.

EXAMPLES:
  rawstack record -F 997 -r 5 --work 1000 -o old.rawstack -- ./bench-old
  rawstack record -F 997 -r 5 --work 1000 -o new.rawstack -- ./bench-new
  rawstack diff old.rawstack new.rawstack
  rawstack diff a1.rawstack,a2.rawstack b1.rawstack,b2.rawstack --format markdown
  rawstack diff explain parse_line old.rawstack new.rawstack";

/// `rawstack diff`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = DIFF_EXAMPLES)]
pub(crate) struct DiffArgs {
    /// More than a comparison
    #[command(subcommand)]
    pub(crate) verb: Option<DiffVerb>,
    /// The comparison
    #[command(flatten)]
    pub(crate) compare: CompareArgs,
}

/// What else `diff` does.
#[derive(Debug, Subcommand)]
pub(crate) enum DiffVerb {
    /// Tell every number behind one function's row
    Explain(ExplainArgs),
}

/// `rawstack diff explain`.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Name of a function, part of one, or `[total]`
    #[arg(value_name = "FUNCTION")]
    pub(crate) function: String,
    /// The comparison
    #[command(flatten)]
    pub(crate) compare: CompareArgs,
}

/// What is compared, and how.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Archives of the old build
    #[arg(value_name = "BASE", required = true)]
    pub(crate) base: Option<String>,
    /// Archives of the new build
    #[arg(value_name = "NEW", required = true)]
    pub(crate) new: Option<String>,
    /// Format
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: DiffFormat,
    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// Title of the page (html)
    #[arg(long, value_name = "TEXT", default_value = "Comparison")]
    pub(crate) title: String,
    /// What rows are
    #[arg(long, value_enum, value_name = "WHAT", default_value = "function")]
    pub(crate) by: DiffBy,
    /// Show all functions that were judged (text)
    #[arg(long)]
    pub(crate) all: bool,
    /// Outcomes that give an exit code other than 0
    #[arg(
        long,
        value_enum,
        value_name = "OUTCOME",
        default_value = "inconclusive"
    )]
    pub(crate) fail_on: FailOn,
    /// How it is judged
    #[command(flatten)]
    pub(crate) judging: JudgingArgs,
    /// What is shown, and where
    #[command(flatten)]
    pub(crate) shown: ShownArgs,
}

impl CompareArgs {
    /// The format that was asked for.
    pub(crate) fn layout(&self) -> DiffFormat {
        if self.json {
            DiffFormat::Json
        } else {
            self.format
        }
    }
}

/// How a comparison is judged. What is given here goes before what the file of thresholds says.
#[derive(Debug, Args)]
#[command(next_help_heading = "Judging")]
pub(crate) struct JudgingArgs {
    /// Thresholds (default: rawstack-diff.toml, where it is here)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Noise of this machine and workload, from rawstack calibrate
    #[arg(long, value_name = "FILE")]
    pub(crate) noise: Option<PathBuf>,
    /// What a cost is counted per
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) cost: Option<CostPer>,
    /// Changes that do not matter, of a function's own cost (default: 2)
    #[arg(long, value_name = "PERCENT")]
    pub(crate) margin: Option<f64>,
    /// Changes that do not matter, of the total (default: 0.1)
    #[arg(long, value_name = "PERCENT")]
    pub(crate) margin_total: Option<f64>,
    /// Share of false ones among the functions that are told (default: 0.05)
    #[arg(long, value_name = "Q")]
    pub(crate) q: Option<f64>,
    /// Probability of a false alarm about the total (default: 0.01)
    #[arg(long, value_name = "P")]
    pub(crate) alpha: Option<f64>,
    /// Runs that a side must have (default: 3)
    #[arg(long, value_name = "N")]
    pub(crate) min_runs: Option<usize>,
    /// Samples that may be lost (default: 1)
    #[arg(long, value_name = "PERCENT")]
    pub(crate) max_loss: Option<f64>,
    /// Rise that must be found in four of five comparisons, else it is inconclusive
    #[arg(long, value_name = "PERCENT")]
    pub(crate) detect: Option<f64>,
    /// Judge functions with what they called
    #[arg(long)]
    pub(crate) inclusive: bool,
    /// Generic parameters
    #[arg(long, value_enum, value_name = "WHAT", default_value = "keep")]
    pub(crate) generics: Generics,
    /// Functions of one name in different modules are different ones
    #[arg(long)]
    pub(crate) modules: bool,
    /// Take functions that were probably renamed as the same
    #[arg(long)]
    pub(crate) accept_renames: bool,
}

/// `rawstack calibrate`.
#[derive(Debug, Args)]
#[command(after_help = "\
All runs are of one build, on the machine and with the workload that are to be judged; ten or
more of them. With what it writes, rawstack diff --noise can judge one run a side.

EXAMPLES:
  rawstack record -F 997 -r 10 --work 1000 -o same.rawstack -- ./bench
  rawstack calibrate same.rawstack -o noise.json
  rawstack diff --noise noise.json old.rawstack new.rawstack")]
pub(crate) struct CalibrateArgs {
    /// Archives
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// What a cost is counted per
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) cost: Option<CostPer>,
    /// Symbols
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
    /// Selection
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Output
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
