//! Two builds compared: the same function found again, its cost per work with how sure that is, and a verdict.
//!
//! Knows profiles with names; knows no archive, no ELF and no DWARF. What it prints goes to an `io::Write`.

mod common;
pub mod comparison;
mod conclude;
pub mod config;
pub mod functions;
mod judge;
pub mod key;
mod members;
pub mod modules;
mod namesakes;
mod noise_file;
pub mod page;
mod renames;
pub mod render;
mod scale;
pub mod settings;
mod shift;
#[cfg(test)]
mod shift_simulation;
pub mod sides;
pub mod stats;

pub use comparison::{Comparison, RowVerdict, Verdict};
pub use functions::Functions;
pub use judge::{Input, compare};
pub use modules::ComparedModules;
pub use noise_file::{NoiseError, NoiseFile};
pub use scale::exposures;
pub use settings::{Basis, Settings};
pub use sides::Sides;
