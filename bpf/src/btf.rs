//! The kernel's type information: which functions and types it has, by name.
//!
//! libbpf's own reader indexes and checks all of it, in tens of milliseconds and twice its size of memory; a recorder
//! that starts asks for two names.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};

/// `BTF_MAGIC`, as the machine has it that wrote it.
const MAGIC: u32 = 0xeb9f;
/// The only version.
const VERSION: u32 = 1;
/// Bytes of `struct btf_header` of `include/uapi/linux/btf.h` that are looked at.
const HEADER_LEN: usize = 24;
/// How much is read at once, in bytes: megabytes would be cleared by the kernel first, page by page.
const BUFFER: usize = 64 << 10;

/// Kinds that are asked for: `BTF_KIND_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name for a type.
    Typedef = 8,
    /// A function.
    Func = 12,
}

/// Type information as `Documentation/bpf/btf.rst` describes it, in this machine's byte order.
#[derive(Debug)]
pub(crate) struct Btf<R> {
    file: BufReader<R>,
    types: Part,
    strings: Part,
}

/// Where a part lies in the file, and its length, in bytes.
#[derive(Clone, Copy, Debug)]
struct Part {
    start: u64,
    length: u64,
}

impl Btf<File> {
    /// Open the file at `path`.
    pub(crate) fn open(path: &str) -> io::Result<Self> {
        Self::new(File::open(path)?)
    }
}

impl<R: Read + Seek> Btf<R> {
    /// Look at the header. Fails where it is none of this machine.
    fn new(file: R) -> io::Result<Self> {
        let mut file = BufReader::with_capacity(BUFFER, file);
        let mut header = [0; HEADER_LEN];
        file.read_exact(&mut header)?;
        let word = |at: usize| word(&header, at);
        let start = word(0);
        if start & 0xffff != MAGIC || start >> 16 & 0xff != VERSION {
            return Err(invalid("it does not begin as type information does"));
        }
        // Both parts are told from the end of the header, whose length is told, too.
        let part = |at: usize| Part {
            start: u64::from(word(4)) + u64::from(word(at)),
            length: u64::from(word(at + 4)),
        };
        Ok(Self {
            file,
            types: part(8),
            strings: part(16),
        })
    }

    /// Names of the types of `kind` for which `is_wanted` holds, in their order. Fails where a type has an unknown layout,
    /// since nothing behind it can be found.
    pub(crate) fn names(
        &mut self,
        kind: Kind,
        mut is_wanted: impl FnMut(&[u8]) -> bool,
    ) -> io::Result<Vec<Vec<u8>>> {
        let (mut wanted, mut names) = (HashMap::new(), Vec::new());
        self.each_string(|at, name| {
            if is_wanted(name) {
                wanted.insert(at, name.to_vec());
            }
        })?;
        self.each_type(|of_kind, name| {
            if of_kind == kind as u32 {
                names.extend(wanted.get(&u64::from(name)).cloned());
            }
        })?;
        Ok(names)
    }

    /// Each string, with its distance from the first.
    fn each_string(&mut self, mut each: impl FnMut(u64, &[u8])) -> io::Result<()> {
        let mut part = self.part(self.strings)?;
        let (mut at, mut name) = (0, Vec::new());
        while part.read_until(0, &mut name)? > 0 {
            each(at, name.strip_suffix(&[0]).unwrap_or(&name));
            at += name.len() as u64;
            name.clear();
        }
        match at == self.strings.length {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Kind and name of each type.
    fn each_type(&mut self, mut each: impl FnMut(u32, u32)) -> io::Result<()> {
        let mut part = self.part(self.types)?;
        // `struct btf_type`: name, kind and number of members, size or type.
        let mut fixed = [0; 12];
        while part.limit() > 0 {
            part.read_exact(&mut fixed)?;
            let info = word(&fixed, 4);
            let more = tail_of(info >> 24 & 0x1f, u64::from(info & 0xffff))
                .ok_or_else(|| invalid("it has a type of an unknown kind"))?;
            each(info >> 24 & 0x1f, word(&fixed, 0));
            let skipped = io::copy(&mut part.by_ref().take(more), &mut io::sink())?;
            if skipped < more {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    fn part(&mut self, part: Part) -> io::Result<io::Take<&mut BufReader<R>>> {
        self.file.seek(SeekFrom::Start(part.start))?;
        Ok(self.file.by_ref().take(part.length))
    }
}

/// Bytes behind `struct btf_type` of this kind with so many members.
fn tail_of(kind: u32, members: u64) -> Option<u64> {
    Some(match kind {
        // Pointer, forward, typedef, volatile, const, restrict, function, float, type tag.
        2 | 7..=12 | 16 | 18 => 0,
        // Integer, variable, declaration tag.
        1 | 14 | 17 => 4,
        // Array.
        3 => 12,
        // Enumeration, prototype.
        6 | 13 => members * 8,
        // Struct, union, data section, enumeration of 64 bits.
        4 | 5 | 15 | 19 => members * 12,
        _ => return None,
    })
}

/// The 32-bit number at `at`; 0 where there is none.
fn word(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::io::Cursor;

    use libbpf_rs::btf::TypeId;
    use libbpf_rs::btf::types::{Func, Typedef};

    use super::*;

    const KERNEL: &str = "/sys/kernel/btf/vmlinux";

    /// Check that functions and type names of the running kernel are those that libbpf finds.
    #[test]
    fn as_libbpf() {
        let mut btf = Btf::open(KERNEL).unwrap();
        let mut set = |kind| -> BTreeSet<Vec<u8>> {
            btf.names(kind, |_| true).unwrap().into_iter().collect()
        };
        let (ours, ours_named) = (set(Kind::Func), set(Kind::Typedef));
        let theirs = libbpf_rs::btf::Btf::from_path(KERNEL).unwrap();
        let ids = (1..theirs.len()).map(|id| TypeId::from(u32::try_from(id).unwrap()));
        let (mut functions, mut typedefs) = (BTreeSet::new(), BTreeSet::new());
        for id in ids {
            if let Some(function) = theirs.type_by_id::<Func<'_>>(id) {
                functions.extend(function.name().map(|name| name.as_encoded_bytes().to_vec()));
            }
            if let Some(typedef) = theirs.type_by_id::<Typedef<'_>>(id) {
                typedefs.extend(typedef.name().map(|name| name.as_encoded_bytes().to_vec()));
            }
        }
        assert!(functions.len() > 1000 && typedefs.len() > 100);
        assert_eq!(ours, functions);
        assert_eq!(ours_named, typedefs);
        let one = btf.names(Kind::Func, |name| name == b"vfs_read").unwrap();
        assert_eq!(one, [b"vfs_read"]);
    }

    /// Check that no cut and no changed byte of the first part makes it fail otherwise than with an error.
    #[test]
    fn damaged() {
        let bytes = fs::read(KERNEL).unwrap();
        let names = |bytes: &[u8]| Btf::new(Cursor::new(bytes))?.names(Kind::Func, |_| true);
        for length in (0..64).chain([bytes.len() / 2, bytes.len() - 1]) {
            assert!(names(&bytes[..length]).is_err(), "{length}");
        }
        let mut small = bytes[..1 << 12].to_vec();
        // Types and strings are what is there.
        for (at, value) in [(8, 0u32), (12, 4000), (16, 0), (20, 4000)] {
            small[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        for at in 0..256 {
            let mut changed = small.clone();
            changed[at] ^= 0xff;
            let _ = names(&changed);
        }
        assert!(names(&small).is_err(), "the last type is cut");
    }
}
