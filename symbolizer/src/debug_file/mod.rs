//! Files with code, symbols and debug information: finding them by identity, opening them, taking sections out.
//!
//! The build ID decides whether a file belongs to a module; a path never does by itself.

pub mod elf;
pub mod identity;
mod index;
pub mod locate;
pub mod mmap;
pub mod section;
