//! Registers and copied stack bytes → frames, by the call frame information of the modules. Knows no archive and no names.
//!
//! A stack is walked from its leaf: the row of `.eh_frame` or `.debug_frame` for the code address says where the caller's
//! registers are. Rows are turned into compact rules once for each module and offset and kept; a rule needs no DWARF to
//! be applied. Code without such rows is walked by frame pointers, and each frame found that way is marked. Every stack
//! ends in a stated [`End`].

mod by_code;
mod expression;
mod fde;
mod machine;
mod memory;
mod module;
mod outcome;
mod rule;
mod rules;
mod space;
mod step;
mod walk;

pub use machine::{Machine, Registers};
pub use memory::{Memory, StackMemory};
pub use module::{FindFiles, ModuleId};
pub use outcome::{Contradiction, End, FoundBy, Unwound, UnwoundFrame};
pub(crate) use rules::Rules;
pub use space::{AddressSpace, Mapped};
pub use walk::{CopiedStack, MAX_FRAMES, Unwinder};
pub(crate) use walk::{Leaf, Modules};
