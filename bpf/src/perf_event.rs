//! Opening of perf events, and the ring of side-band records of one CPU. Knows not what they mean.
#![allow(
    unsafe_code,
    reason = "perf_event_open and its ring have no safe wrapper that knows build IDs"
)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

use perf_event_open_sys as sys;
use perf_event_open_sys::bindings;

use crate::error::{Error, Result};

/// Data of one side-band ring, in bytes; one page where those are larger.
const RING_BYTES: usize = 512 << 10;
/// Wake the reader when so much of it is used.
const WAKE_BYTES: u32 = 128 << 10;

/// What goes behind each side-band record (`sample_id` of perf_event_open(2)), in bytes: pid and tid, time, CPU.
pub(crate) const SAMPLE_ID_LEN: usize = 24;

/// Open the perf event of `attr`, for all processes on `cpu`.
pub(crate) fn open(attr: &mut bindings::perf_event_attr, cpu: u32, event: &str) -> Result<OwnedFd> {
    attr.size = u32::try_from(size_of::<bindings::perf_event_attr>()).unwrap_or(0);
    let cpu_number = i32::try_from(cpu).unwrap_or(-1);
    // SAFETY: attr is a whole perf_event_attr that says its size; the kernel only reads it.
    let fd = unsafe {
        sys::perf_event_open(
            attr,
            -1,
            cpu_number,
            -1,
            bindings::PERF_FLAG_FD_CLOEXEC as libc::c_ulong,
        )
    };
    if fd < 0 {
        return Err(Error::perf("open", event, cpu, io::Error::last_os_error()));
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The side-band records of one CPU: mappings, names, forks, exits, kernel symbols.
#[derive(Debug)]
pub(crate) struct SideBandRing {
    fd: OwnedFd,
    cpu: u32,
    header: NonNull<bindings::perf_event_mmap_page>,
    data: NonNull<u8>,
    page_size: usize,
    /// Of the data, in bytes: a power of two.
    size: usize,
    tail: u64,
}

impl SideBandRing {
    const NAME: &'static str = "dummy";

    /// Open its event, running. With `build_ids` (5.12 and newer) the kernel reads the build ID of each mapping it tells
    /// of.
    pub(crate) fn open_event(cpu: u32, build_ids: bool) -> Result<OwnedFd> {
        let mut attr = bindings::perf_event_attr {
            type_: bindings::PERF_TYPE_SOFTWARE,
            config: u64::from(bindings::PERF_COUNT_SW_DUMMY),
            sample_type: u64::from(
                bindings::PERF_SAMPLE_TID | bindings::PERF_SAMPLE_TIME | bindings::PERF_SAMPLE_CPU,
            ),
            clockid: libc::CLOCK_MONOTONIC,
            ..Default::default()
        };
        attr.set_use_clockid(1);
        attr.set_sample_id_all(1);
        attr.set_mmap(1);
        attr.set_mmap2(1);
        attr.set_comm(1);
        attr.set_comm_exec(1);
        attr.set_task(1);
        attr.set_ksymbol(1);
        attr.set_build_id(u64::from(build_ids));
        attr.set_watermark(1);
        attr.__bindgen_anon_2.wakeup_watermark = WAKE_BYTES;
        open(&mut attr, cpu, Self::NAME)
    }

    /// The ring of such an event.
    pub(crate) fn new(fd: OwnedFd, cpu: u32) -> Result<Self> {
        Self::map(fd, cpu).map_err(|error| Error::perf("map", Self::NAME, cpu, error))
    }

    /// The CPU that it is of.
    pub(crate) fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Readable when enough waits.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn map(fd: OwnedFd, cpu: u32) -> io::Result<Self> {
        let page_size = page_size();
        let size = RING_BYTES.max(page_size);
        let length = page_size + size;
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of a descriptor that is ours; the kernel picks the address.
        let address =
            unsafe { libc::mmap(ptr::null_mut(), length, access, flags, fd.as_raw_fd(), 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let header = NonNull::new(address.cast()).ok_or_else(invalid)?;
        // SAFETY: the mapping is longer than one page.
        let data =
            NonNull::new(unsafe { address.cast::<u8>().add(page_size) }).ok_or_else(invalid)?;
        Ok(Self {
            fd,
            cpu,
            header,
            data,
            page_size,
            size,
            tail: 0,
        })
    }

    /// Copy all records that are there behind each other into `out`, and give their room back.
    pub(crate) fn read(&mut self, out: &mut Vec<u8>) {
        let size = self.size;
        // SAFETY: data_head and data_tail are aligned words of the mapped header page that live as long as self;
        // the kernel writes the one and reads the other, both as atomics.
        let (head, tail) = unsafe {
            let header = self.header.as_ptr();
            (
                AtomicU64::from_ptr(&raw mut (*header).data_head),
                AtomicU64::from_ptr(&raw mut (*header).data_tail),
            )
        };
        let end = head.load(Ordering::Acquire);
        let length = usize::try_from(end - self.tail).unwrap_or(0).min(size);
        let start = usize::try_from(self.tail).unwrap_or(0) % size;
        let first = length.min(size - start);
        // SAFETY: start < size, first and length - first stay in the ring; the kernel does not write between tail
        // and head until tail moves.
        unsafe {
            out.extend_from_slice(slice::from_raw_parts(self.data.as_ptr().add(start), first));
            out.extend_from_slice(slice::from_raw_parts(self.data.as_ptr(), length - first));
        }
        self.tail = end;
        tail.store(end, Ordering::Release);
    }
}

impl Drop for SideBandRing {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and nothing refers to it any more.
        unsafe { libc::munmap(self.header.as_ptr().cast(), self.page_size + self.size) };
    }
}

/// Bytes of a page.
pub(crate) fn page_size() -> usize {
    // SAFETY: sysconf has no preconditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// CPUs that are online.
pub fn online_cpus() -> Result<Vec<u32>> {
    const PATH: &str = "/sys/devices/system/cpu/online";
    let read = || io::read_to_string(File::open(PATH)?);
    let text = read().map_err(|error| Error::Read { path: PATH, error })?;
    parse_cpu_list(text.trim()).ok_or_else(|| Error::Read {
        path: PATH,
        error: io::ErrorKind::InvalidData.into(),
    })
}

/// `0-3,8` as the kernel writes CPU lists.
pub fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse().ok()?, last.parse::<u32>().ok()?);
        if last < first || last > 0xffff {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that single CPUs and ranges are told apart and nonsense is refused.
    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpu_list("0"), Some(vec![0]));
        assert_eq!(parse_cpu_list("0-2,8"), Some(vec![0, 1, 2, 8]));
        assert_eq!(parse_cpu_list("2-0"), None);
        assert_eq!(parse_cpu_list(""), None);
        assert_eq!(parse_cpu_list("0-99999999"), None);
    }
}
