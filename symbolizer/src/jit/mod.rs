//! Code that programs made while they ran: what their perf maps and jitdumps, as recorded, say of it.
//!
//! An archive has those files in pieces, each as it was at a time. [`JitTable`] takes the pieces in the order of the
//! archive and says which function was at an address of a process at a time. It knows no frames and no samples.
//! Everything in a map is the word of a program that may be hostile: sizes, numbers and lengths are bounded here.

mod code;
mod dump;
mod perf_map;
mod reading;
mod store;
mod table;

pub use code::JitSymbolId;
pub use dump::DumpReader;
pub use perf_map::MapReader;
pub use reading::JitFile;
pub use table::{JitTable, Placed, SpaceId};

use rawstack_format::id::Addr;

/// What a reader of one of the formats finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'m> {
    /// A function.
    Function {
        /// Its first address.
        start: Addr,
        /// Its size in bytes, not 0.
        size: u64,
        /// Its name, any bytes.
        name: &'m [u8],
        /// When it was made, where the format tells it: monotonic clock.
        time_ns: Option<u64>,
    },
    /// A function's code went elsewhere.
    Moved {
        /// Its first address before.
        from: Addr,
        /// Its first address now.
        to: Addr,
        /// When, where that can be told.
        time_ns: Option<u64>,
    },
    /// A line of the function that comes next.
    Line {
        /// Address from which it holds.
        address: Addr,
        /// File, any bytes.
        file: &'m [u8],
        /// Line.
        line: u32,
    },
}
