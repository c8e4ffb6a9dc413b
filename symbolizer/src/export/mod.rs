//! Finished results → formats of other tools. Knows no ELF and no DWARF.

mod cut;
pub mod dump;
pub mod exporter;
pub mod firefox;
pub mod flamegraph;
pub mod folded;
pub mod lines;
mod mappings;
pub mod otlp;
mod packed;
pub mod page;
pub mod parquet;
pub mod perf_script;
pub mod perfetto;
pub mod pprof;
mod prefix;
mod protobuf;
pub mod speedscope;
pub mod symbolized;

pub use exporter::{ExportSample, Exporter, Feed, Halves, Source, export_rows};
