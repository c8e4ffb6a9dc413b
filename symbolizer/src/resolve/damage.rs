//! Why debug information was not used, or not all of it: told once for each module.

use std::fmt;

use crate::debug_file::section::SectionError;

/// What was wrong with the debug information of a module. What it lacks then comes from symbol tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// A section could not be had.
    Section(SectionError),
    /// Units, entries or what they refer to are damaged, or more than is accepted.
    Entries,
    /// It took more time than its size allows.
    Time,
    /// The library that reads it failed.
    Reader,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Section(error) => error.fmt(f),
            Self::Entries => f.write_str("debug information is damaged or beyond the limits"),
            Self::Time => f.write_str("debug information takes too long to read"),
            Self::Reader => f.write_str("the reader of debug information failed"),
        }
    }
}
