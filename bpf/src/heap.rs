//! The C library's heap: Rust's own allocations live in it.
#![allow(unsafe_code, reason = "no crate of ours wraps mallopt()")]

/// Let all threads share one heap. Each would get one of its own, and what one thread allocates and another frees stays
/// there: a quarter of the recorder's memory after an hour. Call it before the first thread is started.
pub fn share_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt() takes two numbers, may be called at any time, and an answer of 0 only says that nothing changed.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
