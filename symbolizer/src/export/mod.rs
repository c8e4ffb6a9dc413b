//! Finished results → formats of other tools. Knows no ELF and no DWARF.

pub mod dump;
pub mod flamegraph;
pub mod folded;
pub mod page;
pub mod perf_script;
pub mod symbolized;
