//! Bytes of a file: mapped where the file is a regular one, owned where they come from elsewhere. The only unsafe code.
#![allow(unsafe_code, reason = "mapping a file into memory is unsafe by nature")]

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::{Mmap, UncheckedAdvice};

use crate::watch;

/// Bytes around a page that are mapped with it.
const AROUND: usize = 1 << 16;

/// Read-only bytes of a file or of an image kept in an archive.
pub struct FileBytes(Inner);

enum Inner {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl FileBytes {
    /// Map the regular file at `path`; anything else (device, pipe, directory) is refused before it is opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        let found = path.metadata()?;
        if !found.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        if found.len() == 0 {
            return Ok(Self(Inner::Owned(Vec::new())));
        }
        watch::open(path)?;
        let file = File::open(path)?;
        // SAFETY: the map is private and read-only, and nobody gets it as anything but bytes, every value of which
        // is valid. A program that truncates the file meanwhile kills this process with SIGBUS, which is what its
        // supervisor is there for; nothing is written and no memory is confused.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self(Inner::Mapped(map)))
    }

    /// Let go of the memory that holds `part` of a mapped file; it is read from the file again where it is needed.
    pub fn release(&self, part: &[u8]) {
        let Inner::Mapped(map) = &self.0 else { return };
        let start = part.as_ptr().addr().checked_sub(map.as_ptr().addr());
        let range = start.and_then(|start| Some((start, start.checked_add(part.len())?)));
        let Some((start, end)) = range.filter(|&(_, end)| end <= map.len()) else {
            return;
        };
        // The kernel maps so much around a page that is needed.
        let start = start & !(AROUND - 1);
        let end = end.next_multiple_of(AROUND).min(map.len());
        // SAFETY: the map is of a file, private and never written to, so the pages that are let go of hold nothing but
        // the file's bytes, and who reads them again gets these.
        let _ =
            unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, end - start) };
    }
}

impl From<Vec<u8>> for FileBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Inner::Owned(bytes))
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Inner::Mapped(map) => map,
            Inner::Owned(bytes) => bytes,
        }
    }
}

impl fmt::Debug for FileBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileBytes({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Check that bytes which were let go of are the same when they are read again, and that foreign ones are left alone.
    #[test]
    fn released_bytes() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let content: Vec<u8> = (0..300_000u32)
            .map(|number| number.to_le_bytes()[1])
            .collect();
        file.write_all(&content).unwrap();
        let bytes = FileBytes::open(file.path()).unwrap();
        assert!(*bytes == content[..]);
        bytes.release(&bytes[70_001..200_000]);
        bytes.release(&bytes);
        bytes.release(&content);
        assert!(*bytes == content[..]);
    }

    /// Check that a directory and a device are refused and an empty file is not.
    #[test]
    fn only_regular_files() {
        assert!(FileBytes::open(Path::new("/")).is_err());
        assert!(FileBytes::open(Path::new("/dev/zero")).is_err());
        let empty = tempfile::NamedTempFile::new().unwrap();
        assert!(FileBytes::open(empty.path()).unwrap().is_empty());
    }
}
