//! Options of the verbs that look at archives as they are, or make them of others.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::shared::{FilterArgs, OutputArgs, SymbolArgs};

/// `rawstack info`.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  rawstack info web.rawstack
  rawstack info web.rawstack --symbol-dir ./debug
  rawstack info --json --raw web.rawstack | jq .ids")]
pub(crate) struct InfoArgs {
    /// Archive
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Look for no names: what the archive itself holds, alone
    #[arg(long)]
    pub(crate) raw: bool,
    /// Symbols
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
    /// Output
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `rawstack verify`.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  rawstack verify web.rawstack && echo whole")]
pub(crate) struct VerifyArgs {
    /// Archive
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Output
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Formats of `dump`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DumpFormat {
    /// One JSON object a line, with raw offsets
    Json,
    /// Text that tools made for perf script read, with names
    PerfScript,
}

/// `rawstack dump`.
#[derive(Debug, Args)]
#[command(after_help = "\
Samples come batch by batch as they were recorded, within a batch by time.

EXAMPLES:
  rawstack dump web.rawstack | head
  rawstack dump --format perf-script web.rawstack | inferno-collapse-perf")]
pub(crate) struct DumpArgs {
    /// Archive
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Format
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "json")]
    pub(crate) format: DumpFormat,
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

/// `rawstack import`.
#[derive(Debug, Args)]
#[command(after_help = "\
perf.data has no symbols of the kernel: name a copy of /proc/kallsyms, made as root in the
same boot. Layouts of files are kept where the files are found, so import where perf
recorded. What an archive cannot hold is told in a line each.

EXAMPLES:
  rawstack import perf.data -o web.rawstack
  rawstack import perf.data --kallsyms /proc/kallsyms -o web.rawstack
  perf record -g -o - -- ./server | rawstack import - -o server.rawstack")]
pub(crate) struct ImportArgs {
    /// Recording of perf, - for a stream on standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Symbols of the recorded kernel: a copy of its /proc/kallsyms
    #[arg(long, value_name = "FILE")]
    pub(crate) kallsyms: Option<PathBuf>,
    /// Folder with the recorded programs' files (repeatable)
    #[arg(long, value_name = "DIR")]
    pub(crate) symbol_dir: Vec<PathBuf>,
    /// Output
    #[command(flatten)]
    pub(crate) made: MadeArgs,
}

/// Where an archive goes that is made of others.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct MadeArgs {
    /// Archive to make, - for standard output
    #[arg(short, long, value_name = "FILE", required = true)]
    pub(crate) output: PathBuf,
    /// Overwrite the archive where it exists
    #[arg(long)]
    pub(crate) force: bool,
    /// No messages but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// `rawstack merge`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each archive stays a part of its own, with its host, boot, processes, runs and labels: all
that reads archives shows of the merged one what it shows of its parts together. Of a
damaged archive what is whole is taken, and what is missing is kept with it.

EXAMPLES:
  rawstack merge 'host-*.rawstack' -o fleet.rawstack
  rawstack merge monday.rawstack tuesday.rawstack -o week.rawstack")]
pub(crate) struct MergeArgs {
    /// Archives, or patterns of their names; merged ones, too
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Leave out copies of stacks: they hold memory of programs
    #[arg(long)]
    pub(crate) drop_copies: bool,
    /// Output
    #[command(flatten)]
    pub(crate) made: MadeArgs,
}

/// `rawstack scrub`.
#[derive(Debug, Args)]
#[command(after_help = "\
Recordings made with --unwind stack-copy hold memory of the recorded programs: their stacks,
with whatever secrets lie there. What is made here has none of it. The copies become the
stacks that they are unwound to, with the programs where they were recorded, or what was
packed of them; how many did not reach their end is told. All else stays as it is, and what
is missing in a damaged archive is told.

EXAMPLES:
  rawstack scrub web.rawstack -o web-public.rawstack
  rawstack scrub web.rawstack --symbol-dir web-programs.tar -o web-public.rawstack
  rawstack scrub web.rawstack --stacks frame-pointers -o web-public.rawstack")]
#[command(
    mut_arg("no_cache", |arg| arg.hide(true)),
    mut_arg("no_inlines", |arg| arg.hide(true)),
    mut_arg("symbols_only", |arg| arg.hide(true))
)]
pub(crate) struct ScrubArgs {
    /// Archive; a merged one, too
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Where the recorded programs are
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
    /// Output
    #[command(flatten)]
    pub(crate) made: MadeArgs,
}
