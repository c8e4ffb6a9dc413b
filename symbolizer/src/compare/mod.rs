//! Two builds compared: the same function found again, its cost per work with how sure that is, and a verdict.
//!
//! Knows profiles with names; knows no archive, no ELF and no DWARF. What it prints goes to an `io::Write`.

pub mod key;
pub mod stats;
