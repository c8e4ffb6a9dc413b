//! Tables of where time goes. Takes a finished profile and a writer.

pub mod info;
mod install;
pub mod names;
pub mod render;
pub mod source;
pub mod symbols;
pub mod table;
pub mod tree;
pub mod unwound;

pub use names::NameFilter;
pub use table::{GroupBy, Table, TableRow};
