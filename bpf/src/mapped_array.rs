//! A BPF array in this process's memory: to be read without a system call, and so without a right to it.
#![allow(
    unsafe_code,
    reason = "libbpf-rs has no safe wrapper for BPF_F_MMAPABLE arrays"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use libbpf_rs::{Map, MapCore};

use crate::error::{Error, Result};

const WORD: usize = size_of::<u64>();

/// The values of an array that the kernel changes meanwhile.
#[derive(Debug)]
pub(crate) struct MappedArray {
    address: NonNull<u64>,
    /// Words of one value.
    words: usize,
    values: usize,
}

impl MappedArray {
    /// Map `map`, an array with `BPF_F_MMAPABLE`.
    pub(crate) fn new(map: &Map<'_>, name: &'static str) -> Result<Self> {
        let map_error = |error| Error::MapMemory { map: name, error };
        // The kernel puts values at multiples of 8 bytes.
        let words = usize::try_from(map.value_size())
            .unwrap_or(0)
            .div_ceil(WORD);
        let values = usize::try_from(map.max_entries()).unwrap_or(0);
        let length = words * values * WORD;
        // SAFETY: a new mapping of a descriptor that lives; the kernel picks the address.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_SHARED,
                map.as_fd().as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(map_error(io::Error::last_os_error()));
        }
        let address = NonNull::new(address.cast())
            .ok_or_else(|| map_error(io::ErrorKind::InvalidData.into()))?;
        Ok(Self {
            address,
            words,
            values,
        })
    }

    /// Each value as it is now.
    pub(crate) fn values(&self) -> impl Iterator<Item = Vec<u8>> {
        (0..self.values).map(|value| {
            (0..self.words)
                .flat_map(|word| self.word(value * self.words + word).to_ne_bytes())
                .collect()
        })
    }

    /// `at` is below `words * values`.
    fn word(&self, at: usize) -> u64 {
        // SAFETY: the word is in the mapping, which lives as long as self, and aligned; all of it is plain integers,
        // which the kernel changes: so as an atomic.
        unsafe { AtomicU64::from_ptr(self.address.as_ptr().add(at)) }.load(Ordering::Relaxed)
    }
}

impl Drop for MappedArray {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and nothing refers to it any more.
        unsafe {
            libc::munmap(
                self.address.as_ptr().cast(),
                self.words * self.values * WORD,
            )
        };
    }
}
