//! Options of the verbs that write samples for other programs, or draw them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::shared::ShownArgs;

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
    /// What is shown, and where
    #[command(flatten)]
    pub(crate) shown: ShownArgs,
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
    /// What is shown, and where
    #[command(flatten)]
    pub(crate) shown: ShownArgs,
}
