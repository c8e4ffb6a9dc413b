//! What the rows of one recording share, and the rows themselves.

use parquet::data_type::{ByteArray, FixedLenByteArray};
use rawstack_format::record::State;

use super::ids::Id;

/// What rows refer to by number.
#[derive(Debug)]
pub(super) struct Context {
    /// ID of the recording.
    pub(super) recording: FixedLenByteArray,
    /// Threads.
    pub(super) threads: Vec<ThreadTexts>,
    /// Names of the events.
    pub(super) events: Vec<ByteArray>,
    /// Names of the states, by number.
    pub(super) states: Vec<ByteArray>,
    /// IDs of the stacks.
    pub(super) stacks: Vec<FixedLenByteArray>,
    /// IDs of the frames.
    pub(super) frames: Vec<FixedLenByteArray>,
}

impl Context {
    /// That of a recording without any rows.
    pub(super) fn of(recording: &Id) -> Self {
        let states = State::ALL.iter().map(|state| text(state.name()));
        Self {
            recording: id_bytes(recording),
            threads: Vec::new(),
            events: Vec::new(),
            states: states.collect(),
            stacks: Vec::new(),
            frames: Vec::new(),
        }
    }
}

/// A thread with the names that it had at a time.
#[derive(Debug)]
pub(super) struct ThreadTexts {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) comm: ByteArray,
    pub(super) process: ByteArray,
    pub(super) cgroup: ByteArray,
}

/// A sample. They are sorted by event, then by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SampleRow {
    pub(super) event: u32,
    /// Wall clock, in nanoseconds since 1970.
    pub(super) time_ns: u64,
    pub(super) cpu: u32,
    pub(super) id: u64,
    pub(super) thread: u32,
    pub(super) run: u32,
    pub(super) state: u8,
    pub(super) stack: u32,
    pub(super) weight: u64,
}

/// A distinct stack.
#[derive(Debug)]
pub(super) struct StackRow {
    pub(super) stack: u32,
    pub(super) is_truncated: bool,
    /// Frames, leaf first.
    pub(super) frames: Vec<u32>,
}

/// A distinct code address, or what says why a stack ends.
#[derive(Debug)]
pub(super) struct FrameRow {
    pub(super) frame: u32,
    pub(super) kind: &'static str,
    pub(super) module: Option<FixedLenByteArray>,
    pub(super) build_id: Option<ByteArray>,
    /// Offset in the module, or address where there is none. Of the kernel it may be below `_stext`.
    pub(super) offset: Option<i64>,
}

/// A module with frames.
#[derive(Debug)]
pub(super) struct ModuleRow {
    pub(super) module: FixedLenByteArray,
    pub(super) build_id: Option<ByteArray>,
    pub(super) hash: Option<ByteArray>,
    pub(super) path: ByteArray,
}

/// A function at a frame.
#[derive(Debug)]
pub(super) struct SymbolRow {
    pub(super) frame: FixedLenByteArray,
    pub(super) depth: u32,
    pub(super) function: ByteArray,
    pub(super) module: ByteArray,
    pub(super) file: Option<ByteArray>,
    pub(super) line: Option<i32>,
    pub(super) column: Option<i32>,
    pub(super) is_inlined: bool,
    pub(super) reason: Option<ByteArray>,
}

/// Bytes of a text.
pub(super) fn text(text: &str) -> ByteArray {
    ByteArray::from(text.as_bytes().to_vec())
}

/// Bytes of an ID.
pub(super) fn id_bytes(id: &Id) -> FixedLenByteArray {
    FixedLenByteArray::from(id.to_vec())
}

/// A number as the tables have it: the largest one for what is larger.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// As [`signed`], in 32 bits.
pub(super) fn signed32(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
