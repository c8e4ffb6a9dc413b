//! The command line, as typed: clap only, no work.

pub(crate) mod diff;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use diff::{CalibrateArgs, DiffArgs};

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
    /// Record with rawstack-record (see `rawstack record --help`)
    #[command(disable_help_flag = true)]
    Record(RecordArgs),
}

impl Verb {
    /// Whether files of others are mapped and read, which can end the process that does so.
    pub(crate) fn reads_debug_files(&self) -> bool {
        !matches!(
            self,
            Self::Info(_) | Self::Verify(_) | Self::Merge(_) | Self::Cache(_) | Self::Record(_)
        )
    }
}

/// Where symbols come from.
#[derive(Debug, Args)]
#[command(next_help_heading = "Symbols")]
pub(crate) struct SymbolArgs {
    /// Folder with debug files: a .build-id tree, or any ELF files (repeatable)
    #[arg(long, value_name = "DIR")]
    pub(crate) symbol_dir: Vec<PathBuf>,
    /// Ask the debuginfod servers of DEBUGINFOD_URLS for what is not here
    #[arg(long)]
    pub(crate) debuginfod: bool,
    /// Neither use nor keep what earlier commands found out
    #[arg(long)]
    pub(crate) no_cache: bool,
    /// Show inlined functions as part of their callers
    #[arg(long)]
    pub(crate) no_inlines: bool,
    /// Read symbol tables only: quicker, without inlined functions and lines
    #[arg(long)]
    pub(crate) symbols_only: bool,
}

/// Which samples count, and what is shown of them.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Selection")]
pub(crate) struct FilterArgs {
    /// Only these processes
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) pid: Vec<u32>,
    /// Only these threads
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) tid: Vec<u32>,
    /// Only threads of these names
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) comm: Vec<String>,
    /// Only processes in this control group or below it
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<String>,
    /// Only these CPUs (0,2-5)
    #[arg(long, value_name = "LIST")]
    pub(crate) cpu: Option<String>,
    /// Only this event (repeatable)
    #[arg(long, value_name = "EVENT")]
    pub(crate) event: Vec<String>,
    /// Only these runs of the command, from 0 (0,2-5)
    #[arg(long, value_name = "LIST")]
    pub(crate) run: Option<String>,
    /// Only this span since the start (2s..3500ms, ..10s, 1m..)
    #[arg(long, value_name = "FROM..TO")]
    pub(crate) time: Option<String>,
    /// Leave out kernel frames
    #[arg(long)]
    pub(crate) no_kernel: bool,
}

/// Which stacks count by the names in them.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Selection")]
pub(crate) struct NameFilterArgs {
    /// Only stacks with a frame that matches
    #[arg(long, value_name = "REGEX")]
    pub(crate) focus: Option<String>,
    /// Only stacks without a frame that matches
    #[arg(long, value_name = "REGEX")]
    pub(crate) ignore: Option<String>,
    /// Leave out frames that match
    #[arg(long, value_name = "REGEX")]
    pub(crate) hide: Option<String>,
}

/// Where output goes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// File to write, - for standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// No messages but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// `rawstack info`.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  rawstack info web.rawstack
  rawstack info --json web.rawstack | jq .ids")]
pub(crate) struct InfoArgs {
    /// Archive
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
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
    /// Symbols
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
    /// Selection
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Selection by name
    #[command(flatten)]
    pub(crate) names: NameFilterArgs,
    /// Output
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `rawstack flamegraph`.
#[derive(Debug, Args)]
#[command(after_help = "\
A FILE whose name ends in .html becomes one page that needs no network: search, zoom, a heat
map of time, processes, threads and CPUs, callers and callees, a table. Others become SVG.

EXAMPLES:
  rawstack flamegraph web.rawstack -o web.html
  rawstack flamegraph web.rawstack -o web.svg
  rawstack flamegraph web.rawstack --comm nginx --no-kernel -o nginx.svg")]
pub(crate) struct FlamegraphArgs {
    /// Archives
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Title of the picture
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
    /// Leave out boxes below this share of the total (SVG; a page holds all)
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    pub(crate) min: f64,
    /// Symbols
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
    /// Selection
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Selection by name
    #[command(flatten)]
    pub(crate) names: NameFilterArgs,
    /// Output
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Formats of `export`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Folded stacks, a line each: root;…;leaf weight
    Folded,
    /// pprof's protocol buffer, compressed
    Pprof,
    /// Firefox Profiler, compressed JSON
    Firefox,
    /// speedscope, JSON
    Speedscope,
    /// Perfetto trace with a packet for each sample
    Perfetto,
    /// OpenTelemetry profiles (v1development)
    Otlp,
    /// Samples with names, one JSON object a line
    Json,
    /// Samples with names, one row each
    Csv,
    /// Text that tools made for perf script read
    PerfScript,
    /// A dataset of Parquet files in a folder
    Parquet,
}

/// Tables of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportTable {
    /// What each recording says of itself
    Recordings,
    /// What was sampled
    Events,
    /// Repetitions of the command
    Runs,
    /// Files with code
    Modules,
    /// Samples
    Samples,
    /// Distinct stacks
    Stacks,
    /// Distinct code addresses
    Frames,
    /// Names of frames
    Symbols,
}

/// `rawstack export`.
#[derive(Debug, Args)]
#[command(after_help = "\
Samples are added up by stack and thread for folded, pprof, speedscope and otlp, which hold
one event; the other formats have each sample with its time. Parquet is a folder of tables
that grows with each recording. docs/exports.md tells more.

EXAMPLES:
  rawstack export web.rawstack --format pprof -o web.pb.gz && go tool pprof -top web.pb.gz
  rawstack export web.rawstack --format firefox -o web.json.gz
  rawstack export web.rawstack --format pprof --raw -o raw.pb.gz
  rawstack export 'host-*.rawstack' --format json | jq -r .comm | sort | uniq -c
  rawstack export 'host-*.rawstack' --format parquet -o profiles/
  rawstack export 'host-*.rawstack' --format parquet --tables symbols -o profiles/")]
pub(crate) struct ExportArgs {
    /// Archives, or patterns of their names
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Format
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: ExportFormat,
    /// Look for no names: modules with build IDs and offsets alone
    #[arg(long)]
    pub(crate) raw: bool,
    /// Cut off branches below this share of the total, which count for their caller (formats that
    /// add samples up)
    #[arg(long, value_name = "PERCENT")]
    pub(crate) min: Option<f64>,
    /// Parquet: only these tables, as symbols to resolve again
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    pub(crate) tables: Vec<ExportTable>,
    /// Parquet: what the recordings are of (default: their label `service`)
    #[arg(long, value_name = "NAME")]
    pub(crate) service: Option<String>,
    /// Symbols
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
    /// Selection
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    /// Selection by name
    #[command(flatten)]
    pub(crate) names: NameFilterArgs,
    /// Output
    #[command(flatten)]
    pub(crate) output: OutputArgs,
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

/// `rawstack symbols`.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  rawstack symbols web.rawstack
  rawstack symbols web.rawstack --symbol-dir ./debug --json
  DEBUGINFOD_URLS=https://debuginfod.example.org rawstack symbols --fetch web.rawstack")]
pub(crate) struct SymbolsArgs {
    /// Archive
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// One JSON object a module
    #[arg(long)]
    pub(crate) json: bool,
    /// Get what is missing from debuginfod servers, for this verb and later ones
    #[arg(long)]
    pub(crate) fetch: bool,
    /// Symbols
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
    /// Output
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// Layouts of `symbolize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NumberFormat {
    /// A line a function, with the number before the first
    Text,
    /// One JSON object a number
    Json,
    /// Two lines a function, as `addr2line -f -i -C` prints them
    Addr2line,
}

impl SymbolizeArgs {
    /// The layout that was asked for.
    pub(crate) fn layout(&self) -> NumberFormat {
        if self.json {
            NumberFormat::Json
        } else {
            self.format
        }
    }
}

/// `rawstack symbolize`.
#[derive(Debug, Args)]
#[command(after_help = "\
Numbers are hexadecimal, with or without 0x, and are looked up as they are: take 1 off a
return address. Without N they are read from standard input, one or more a line, and
answered as they come.

EXAMPLES:
  rawstack symbolize --file ./server 0x4a31c 0x4a377
  rawstack symbolize --build-id 5f3a… --symbol-dir ./debug --offsets 1139 --json
  cut -f1 addresses.txt | rawstack symbolize --file ./server --format addr2line")]
pub(crate) struct SymbolizeArgs {
    /// Build ID of the module; its file is looked for
    #[arg(
        long,
        value_name = "ID",
        required_unless_present = "file",
        conflicts_with = "file"
    )]
    pub(crate) build_id: Option<String>,
    /// The module's ELF file, or its debug file
    #[arg(long, value_name = "ELF")]
    pub(crate) file: Option<PathBuf>,
    /// N are offsets in the file
    #[arg(long, conflicts_with = "addresses")]
    pub(crate) offsets: bool,
    /// N are addresses as in the file's symbol table (default)
    #[arg(long)]
    pub(crate) addresses: bool,
    /// Layout
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub(crate) format: NumberFormat,
    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    pub(crate) json: bool,
    /// Numbers
    #[arg(value_name = "N")]
    pub(crate) numbers: Vec<String>,
    /// Symbols
    #[command(flatten)]
    pub(crate) symbols: SymbolArgs,
    /// Output
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `rawstack cache`.
#[derive(Debug, Args)]
#[command(after_help = "\
Names of addresses are kept below XDG_CACHE_HOME, else ~/.cache, for each module and its debug
files. An answer is used again while these files, and this program, are the same.

EXAMPLES:
  rawstack cache
  rawstack cache --clear")]
pub(crate) struct CacheArgs {
    /// Remove everything that is kept
    #[arg(long)]
    pub(crate) clear: bool,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
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
    /// Output
    #[command(flatten)]
    pub(crate) made: MadeArgs,
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
