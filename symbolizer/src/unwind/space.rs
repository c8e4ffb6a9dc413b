//! What was mapped where in a process: runtime address → module and file offset.

use rawstack_format::id::FileOffset;

use super::module::ModuleId;

/// An executable mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// File offset of `start`.
    pub offset: u64,
    /// Module, or none where the memory belongs to no file.
    pub module: Option<ModuleId>,
}

/// Executable mappings of a process at one time, by address and apart from each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSpace {
    mappings: Vec<Mapped>,
}

impl AddressSpace {
    /// Mappings in the order in which they were made: a later one takes the place of what it overlaps.
    pub fn new(made: impl IntoIterator<Item = Mapped>) -> Self {
        let mut space = Self::default();
        for mapping in made {
            space.map(mapping);
        }
        space
    }

    /// Add a mapping; what it overlaps is cut.
    pub fn map(&mut self, new: Mapped) {
        if new.start >= new.end {
            return;
        }
        let first = self.mappings.partition_point(|held| held.end <= new.start);
        let behind = self.mappings.partition_point(|held| held.start < new.end);
        let overlapped = self.mappings.get(first..behind).unwrap_or_default();
        let mut replacement = Vec::with_capacity(3);
        if let Some(held) = overlapped.first().filter(|held| held.start < new.start) {
            replacement.push(Mapped {
                end: new.start,
                ..*held
            });
        }
        replacement.push(new);
        if let Some(held) = overlapped.last().filter(|held| held.end > new.end) {
            replacement.push(Mapped {
                start: new.end,
                offset: held.offset.wrapping_add(new.end - held.start),
                ..*held
            });
        }
        self.mappings.splice(first..behind.max(first), replacement);
    }

    /// The mapping that holds `address`.
    #[inline]
    pub fn find(&self, address: u64) -> Option<&Mapped> {
        let after = self.mappings.partition_point(|held| held.start <= address);
        let held = self.mappings.get(after.checked_sub(1)?)?;
        (address < held.end).then_some(held)
    }

    /// Bits that an address of this process has at most.
    pub(super) fn address_bits(&self) -> u32 {
        let last = self.mappings.last().map_or(0, |held| held.end - 1);
        u64::BITS - last.leading_zeros()
    }
}

impl Mapped {
    /// The file offset of `address`, which lies in the mapping.
    #[inline]
    pub fn offset_of(&self, address: u64) -> FileOffset {
        FileOffset(address.wrapping_sub(self.start).wrapping_add(self.offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(start: u64, end: u64, offset: u64, module: u32) -> Mapped {
        Mapped {
            start,
            end,
            offset,
            module: Some(ModuleId(module)),
        }
    }

    /// Check that a later mapping cuts those it overlaps, in the middle and at both sides, and that offsets stay right.
    #[test]
    fn later_mappings_win() {
        let space = AddressSpace::new([
            mapped(0x1000, 0x5000, 0, 1),
            mapped(0x8000, 0x9000, 0x700, 2),
            mapped(0x2000, 0x3000, 0x10, 3),
            mapped(0x4000, 0x8800, 0, 4),
            mapped(0x9000, 0x9000, 0, 5),
        ]);
        let at = |address: u64| {
            let found = space.find(address)?;
            Some((found.module?.0, found.offset_of(address).0))
        };
        assert_eq!(at(0xfff), None);
        assert_eq!(at(0x1fff), Some((1, 0xfff)));
        assert_eq!(at(0x2000), Some((3, 0x10)));
        assert_eq!(at(0x3000), Some((1, 0x2000)));
        assert_eq!(at(0x4000), Some((4, 0)));
        assert_eq!(at(0x87ff), Some((4, 0x47ff)));
        assert_eq!(at(0x8800), Some((2, 0xf00)));
        assert_eq!(at(0x9000), None);
        assert_eq!(space.address_bits(), 16);
    }
}
