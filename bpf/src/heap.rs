//! The C library's heap: Rust's own allocations live in it.
#![allow(unsafe_code, reason = "no crate of ours wraps mallopt()")]

/// Bytes from which on an allocation has pages of its own: it grows without being copied, and goes back to the system.
#[cfg(target_env = "gnu")]
const LARGE: i32 = 1 << 20;

/// Let all threads share one heap, and keep large tables out of it.
///
/// Each thread would get a heap of its own, and what one thread allocates and another frees stays there: a quarter of the
/// recorder's memory after an hour. And the first large table that is freed would make glibc keep all later ones in the
/// heap, where they are copied each time they grow. Call it before the first thread is started.
pub fn share_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt() takes two numbers, may be called at any time, and an answer of 0 only says that nothing changed.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
}
