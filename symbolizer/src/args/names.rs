//! Options of the verbs about names: where debug files are, what numbers are called, what is kept.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::shared::{OutputArgs, SymbolArgs};

/// `rawstack symbols`.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES:
  rawstack symbols web.rawstack
  rawstack symbols web.rawstack --symbol-dir ./debug --json
  rawstack symbols web.rawstack --pack web-symbols.tar
  DEBUGINFOD_URLS=https://debuginfod.example.org rawstack symbols --fetch web.rawstack")]
pub(crate) struct SymbolsArgs {
    /// Archive
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// One JSON object a module
    #[arg(long)]
    pub(crate) json: bool,
    /// Collect what names and unwinding need: a .build-id tree, or a .tar file
    #[arg(long, value_name = "OUT", conflicts_with = "json")]
    pub(crate) pack: Option<PathBuf>,
    /// Pack whole files
    #[arg(long, requires = "pack")]
    pub(crate) pack_whole: bool,
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

/// `rawstack symbolize`. There are no stacks to choose.
#[derive(Debug, Args)]
#[command(mut_arg("stacks", |arg| arg.hide(true)), after_help = "\
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
