//! Keeps a panic of a library within the one file, unit or name that caused it.
//!
//! The libraries that read ELF, DWARF and mangled names do not promise that no input makes them panic, and what one
//! hostile module does must not cost the names of all others.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// The answer of `work`, or nothing if it panicked. What `work` changed before must not be used then.
pub fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    let before = GUARDED.replace(true);
    let answer = panic::catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(before);
    answer.ok()
}

/// Let guarded panics be silent: the answer that is missing is told in its own way. For a program's start.
pub fn silence_guarded_panics() {
    let other = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !GUARDED.get() {
            other(info);
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a panic becomes a missing answer and that guards may lie within each other.
    #[test]
    fn panics_stay_inside() {
        silence_guarded_panics();
        assert_eq!(guarded(|| 1), Some(1));
        let outer = guarded(|| guarded(|| -> u32 { panic!("inner") }).unwrap_or(2));
        assert_eq!(outer, Some(2));
    }
}
