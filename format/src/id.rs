//! Newtypes of the archive: addresses, offsets, build IDs and table indices. Knows nothing of files or chunks.

use std::fmt;

/// Address in the memory of a recorded process, in bytes, as the processor used it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Addr(pub u64);

/// Position in an ELF file, in bytes from its start.
///
/// For kernel frames the same field holds the distance from `_stext`, or from the `.text` section of a kernel
/// module, or from the start of a BPF program: see [`ModuleKind`](crate::record::ModuleKind).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileOffset(pub u64);

/// ID of one sample's stack, unique for a whole recording and never reused.
///
/// Bits 48–63 hold the CPU, bits 44–47 the nesting level on that CPU, the rest counts from 1. 0 is no ID.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u64);

/// Declare a `u32` index into a table of the current epoch; `NONE` stands for no entry.
macro_rules! table_index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// No entry.
            pub const NONE: Self = Self(u32::MAX);

            /// The index, or `None` for [`NONE`](Self::NONE).
            pub fn get(self) -> Option<u32> {
                (self != Self::NONE).then_some(self.0)
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::NONE
            }
        }
    };
}

table_index!(
    /// Index into the modules of an epoch.
    ModuleIndex
);
table_index!(
    /// Index into the frames of an epoch.
    FrameIndex
);
table_index!(
    /// Index into the stack nodes of an epoch; as a stack it names the node of its leaf frame.
    StackIndex
);

/// GNU build ID: the bytes of the `NT_GNU_BUILD_ID` note, whole.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId(Vec<u8>);

impl BuildId {
    /// Longest build ID that is accepted, in bytes. The linkers' own are 8, 16 or 20 bytes long.
    pub const MAX_LEN: usize = 64;

    /// Take the bytes of a build ID; `None` when there are none, or more than [`MAX_LEN`](Self::MAX_LEN).
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (!bytes.is_empty() && bytes.len() <= Self::MAX_LEN).then(|| Self(bytes.to_vec()))
    }

    /// Read lower- or upper-case hexadecimal digits.
    pub fn from_hex(hex: &str) -> Option<Self> {
        let digit = |c: u8| {
            char::from(c)
                .to_digit(16)
                .and_then(|d| u8::try_from(d).ok())
        };
        let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
        let bytes: Option<Vec<u8>> = pairs
            .iter()
            .map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?))
            .collect();
        if rest.is_empty() {
            Self::new(&bytes?)
        } else {
            None
        }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Lower-case hexadecimal digits.
impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a build ID survives the way to hexadecimal digits and back, and that odd or foreign digits do not.
    #[test]
    fn build_id_hex() {
        let id = BuildId::new(&[0x00, 0xab, 0xff]).unwrap();
        assert_eq!(id.to_string(), "00abff");
        assert_eq!(BuildId::from_hex("00ABff"), Some(id));
        assert_eq!(BuildId::from_hex("00abf"), None);
        assert_eq!(BuildId::from_hex("zz"), None);
        assert_eq!(BuildId::from_hex(""), None);
        assert_eq!(BuildId::from_hex(&"00".repeat(65)), None);
    }
}
