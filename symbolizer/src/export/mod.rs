//! Finished results → formats of other tools. Knows no ELF and no DWARF.

pub mod dump;
pub mod exporter;
pub mod flamegraph;
pub mod folded;
pub mod lines;
mod mappings;
pub mod perf_script;
pub mod pprof;
mod protobuf;
pub mod symbolized;

pub use exporter::{ExportSample, Exporter, Feed, Halves, Source, export_rows};
