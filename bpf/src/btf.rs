//! The kernel's type information: which functions and types it has, by name.
//!
//! libbpf's own reader indexes and checks all of it, in tens of milliseconds and twice its size of memory; a recorder
//! that starts asks for two names.

use std::io;

/// `BTF_MAGIC`, as the machine has it that wrote it.
const MAGIC: u16 = 0xeb9f;
/// The only version.
const VERSION: u8 = 1;
/// Bytes of `struct btf_type` of `include/uapi/linux/btf.h`.
const TYPE_LEN: usize = 12;

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
pub(crate) struct Btf<'b> {
    types: &'b [u8],
    strings: &'b [u8],
}

impl<'b> Btf<'b> {
    /// Look at `bytes`. Fails where they are no type information of this machine.
    pub(crate) fn parse(bytes: &'b [u8]) -> io::Result<Self> {
        Self::parts(bytes).ok_or_else(|| invalid("its header is damaged"))
    }

    fn parts(bytes: &'b [u8]) -> Option<Self> {
        let magic = u16::from_ne_bytes(bytes.first_chunk().copied()?);
        if magic != MAGIC || *bytes.get(2)? != VERSION {
            return None;
        }
        let body = bytes.get(word(bytes, 4)?..)?;
        let part = |at: usize| {
            let start = word(bytes, at)?;
            body.get(start..start.checked_add(word(bytes, at + 4)?)?)
        };
        Some(Self {
            types: part(8)?,
            strings: part(16)?,
        })
    }

    /// Names of all types of `kind`, in their order. Fails where a type has an unknown layout, and with it all behind it.
    pub(crate) fn names(&self, kind: Kind) -> io::Result<Vec<&'b [u8]>> {
        let mut names = Vec::new();
        let mut rest = self.types;
        while !rest.is_empty() {
            let (of_kind, name, length) =
                Self::next(rest).ok_or_else(|| invalid("it has a type of an unknown kind"))?;
            if of_kind == kind as u32 {
                let name = self.strings.get(name..).unwrap_or_default();
                names.push(name.split(|&byte| byte == 0).next().unwrap_or_default());
            }
            rest = rest
                .get(length..)
                .ok_or_else(|| invalid("its last type is cut"))?;
        }
        Ok(names)
    }

    /// Kind, name and length of the first of `types`.
    fn next(types: &[u8]) -> Option<(u32, usize, usize)> {
        let info = u32::try_from(word(types, 4)?).ok()?;
        let (kind, members) = (info >> 24 & 0x1f, info as usize & 0xffff);
        // What follows `struct btf_type`.
        let more = match kind {
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
        };
        Some((kind, word(types, 0)?, TYPE_LEN + more))
    }
}

/// The 32-bit number at `at`.
fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk().copied()?;
    usize::try_from(u32::from_ne_bytes(bytes)).ok()
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use libbpf_rs::btf::TypeId;
    use libbpf_rs::btf::types::{Func, Typedef};

    use super::*;

    const KERNEL: &str = "/sys/kernel/btf/vmlinux";

    /// Check that functions and type names of the running kernel are those that libbpf finds.
    #[test]
    fn as_libbpf() {
        let bytes = fs::read(KERNEL).unwrap();
        let btf = Btf::parse(&bytes).unwrap();
        let set = |kind| -> BTreeSet<Vec<u8>> {
            let names = btf.names(kind).unwrap();
            names.into_iter().map(<[u8]>::to_vec).collect()
        };
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
        assert_eq!(set(Kind::Func), functions);
        assert_eq!(set(Kind::Typedef), typedefs);
    }

    /// Check that no cut and no changed byte of the first part makes it fail otherwise than with an error.
    #[test]
    fn damaged() {
        let bytes = fs::read(KERNEL).unwrap();
        for length in (0..64).chain([bytes.len() / 2, bytes.len() - 1]) {
            assert!(Btf::parse(&bytes[..length]).is_err(), "{length}");
        }
        let mut small = bytes[..1 << 12].to_vec();
        // Types and strings are what is there.
        for (at, value) in [(8, 0u32), (12, 4000), (16, 0), (20, 4000)] {
            small[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        let names =
            |bytes: &[u8]| Btf::parse(bytes).and_then(|btf| Ok(btf.names(Kind::Func)?.len()));
        for at in 0..256 {
            let mut changed = small.clone();
            changed[at] ^= 0xff;
            let _ = names(&changed);
        }
        assert!(names(&small).is_err(), "the last type is cut");
    }
}
