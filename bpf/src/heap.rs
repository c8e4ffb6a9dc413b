//! The C library's heap: Rust's own allocations live in it.
#![allow(
    unsafe_code,
    reason = "no crate of ours wraps mallopt() and malloc_trim()"
)]

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

/// Give the system back what of the heap is free, wherever in it that lies: by itself glibc gives back its end alone, and
/// what is allocated last keeps all before it. Takes about a millisecond for some megabytes.
pub fn give_back_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim() takes a number, may be called at any time, and an answer of 0 only says that nothing was free.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
#[cfg(target_env = "gnu")]
mod tests {
    use std::fs;

    use super::*;

    /// Memory of this process, in KiB, that is no file's.
    fn held() -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        number.unwrap().parse().unwrap()
    }

    /// Check that what lies free between allocations that stay goes back to the system.
    #[test]
    fn free_memory_goes_back() {
        let all: Vec<Vec<u8>> = (0..64 << 10).map(|_| vec![1; 1 << 10]).collect();
        let full = held();
        let kept: Vec<Vec<u8>> = all.into_iter().step_by(64).collect();
        give_back_heap();
        let left = held();
        assert!(left + (32 << 10) < full, "{full} KiB, then {left} KiB");
        assert_eq!(kept.len(), 1 << 10);
    }
}
