//! The bytes that were copied of a thread's stacks. Knows no registers.

/// Memory of one thread at one moment, as far as it was copied, little-endian.
pub trait Memory {
    /// The 8 bytes at `address`, where they were copied.
    fn word(&self, address: u64) -> Option<u64>;

    /// `size` bytes (1 to 8) at `address` as a number.
    fn number(&self, address: u64, size: u8) -> Option<u64>;

    /// Where a function really returns to whose frame ends at `cfa`, when `found` stands for its return address: a
    /// uretprobe may have replaced it. Nothing where one has, and by what is not known.
    fn return_address(&self, found: u64, cfa: u64) -> Option<u64>;

    /// Which of the copied stacks holds `address`, its end included. What was copied of one stack is one part.
    fn part(&self, address: u64) -> Option<usize>;

    /// Whether `address`, which is not below a known stack pointer, lies on one of the stacks, copied there or not.
    fn is_stack(&self, address: u64) -> bool;
}

/// Copied memory of one thread at one moment, little-endian.
#[derive(Clone, Copy, Debug, Default)]
pub struct StackMemory<'m> {
    /// Address of the first byte and the bytes, of each stack that was copied: first that of the stack pointer.
    pub parts: &'m [(u64, &'m [u8])],
    /// Address behind the stack that the first part is of, copied to there or not.
    pub end: u64,
    /// Return addresses that a uretprobe replaced: the stack pointer at the function's first instruction, and what they
    /// were.
    pub replaced: &'m [(u64, u64)],
}

impl Memory for StackMemory<'_> {
    #[inline]
    fn word(&self, address: u64) -> Option<u64> {
        self.parts.iter().find_map(|(start, bytes)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            let word = bytes.get(at..)?.first_chunk::<8>()?;
            Some(u64::from_le_bytes(*word))
        })
    }

    fn number(&self, address: u64, size: u8) -> Option<u64> {
        let size = usize::from(size);
        self.parts.iter().find_map(|(start, bytes)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            let found = bytes.get(at..at.checked_add(size)?)?;
            let mut word = [0; 8];
            word.get_mut(..size)?.copy_from_slice(found);
            Some(u64::from_le_bytes(word))
        })
    }

    fn return_address(&self, found: u64, cfa: u64) -> Option<u64> {
        let own = |place: u64| self.replaced.iter().find(|(held, _)| *held == place);
        let original = own(cfa.wrapping_sub(8)).or_else(|| own(cfa));
        Some(original.map_or(found, |&(_, original)| original))
    }

    fn part(&self, address: u64) -> Option<usize> {
        self.parts.iter().position(|(start, bytes)| {
            address
                .checked_sub(*start)
                .is_some_and(|at| at <= bytes.len() as u64)
        })
    }

    fn is_stack(&self, address: u64) -> bool {
        address < self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check reads at both ends of each part, between parts, at the end of the address space, and of short numbers.
    #[test]
    fn reads() {
        let bytes: Vec<u8> = (0..16).collect();
        let parts = [(0x1000, &bytes[..]), (u64::MAX - 7, &bytes[..8])];
        let memory = StackMemory {
            parts: &parts,
            end: 0x1010,
            replaced: &[(0x1008, 0x77)],
        };
        assert_eq!(memory.word(0x1000), Some(0x0706_0504_0302_0100));
        assert_eq!(memory.word(0x1008), Some(0x0f0e_0d0c_0b0a_0908));
        assert_eq!(memory.return_address(5, 0x1010), Some(0x77));
        assert_eq!(memory.return_address(5, 0x1018), Some(5));
        assert_eq!(memory.word(0x1009), None);
        assert_eq!(memory.word(0xfff), None);
        assert_eq!(memory.word(u64::MAX - 7), Some(0x0706_0504_0302_0100));
        assert_eq!(memory.word(u64::MAX), None);
        assert_eq!(memory.number(0x100e, 2), Some(0x0f0e));
        assert_eq!(memory.number(0x100e, 4), None);
        assert_eq!(memory.number(0x1000, 9), None);
        assert_eq!((memory.part(0x1010), memory.part(0x1011)), (Some(0), None));
    }
}
