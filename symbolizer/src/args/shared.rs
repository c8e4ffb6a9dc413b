//! Options that several verbs have: where symbols come from, which samples count, where output goes.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Where symbols come from.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Symbols")]
pub(crate) struct SymbolArgs {
    /// Folder with debug files: a .build-id tree, any ELF files, or a packed .tar (repeatable)
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
    /// User stacks of recordings made with --unwind stack-copy
    #[arg(
        long,
        value_enum,
        value_name = "WHICH",
        default_value = "auto",
        help_heading = "Selection"
    )]
    pub(crate) stacks: StackChoice,
}

/// Which user stacks are shown of a recording with copies of stacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum StackChoice {
    /// Those of the copies, unwound; where that ends early, what is known best
    #[default]
    Auto,
    /// Those that frame pointers gave
    FramePointers,
    /// Those of the copies and no others
    Copies,
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

/// What the verbs that show stacks have in common.
#[derive(Debug, Args)]
pub(crate) struct ShownArgs {
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
