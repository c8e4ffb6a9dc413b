//! Finished results → formats. Knows no ELF, no DWARF and no archive.

pub mod symbolized;
