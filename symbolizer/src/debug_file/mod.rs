//! Files with code, symbols and debug information: finding them by identity, opening them, taking sections out.
//!
//! The build ID decides whether a file belongs to a module; a path never does by itself.

pub mod companion;
pub mod debuginfod;
pub mod elf;
pub mod files;
pub mod identity;
mod index;
mod kernel;
pub mod locate;
mod minidebug;
pub mod mmap;
mod moved;
mod packed;
pub mod placed;
mod places;
pub mod relocations;
pub mod section;
mod tar;
