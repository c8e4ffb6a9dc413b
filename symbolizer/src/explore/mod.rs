//! A profile made ready to be looked at from several sides, in a page or in a terminal. Takes a finished profile and knows
//! no archive, ELF or DWARF, and nothing of how it is shown.

mod data;
mod view;

pub use data::{Explored, INLINED, KERNEL, MARKER, NO_FRAME, ShownFrame, UNRESOLVED};
pub use view::{FunctionSum, Functions, Neighbours, Selection, View, ViewBox};
