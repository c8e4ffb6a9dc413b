//! Machines whose stacks can be unwound, and their registers by DWARF number. Knows no rules.

/// Registers of a machine by DWARF number, the largest number excluded.
pub(super) const REGISTERS: usize = 33;
/// `EM_X86_64`.
const EM_X86_64: u16 = 62;
/// `EM_AARCH64`.
const EM_AARCH64: u16 = 183;

/// A machine whose stacks can be unwound. Numbers are those of its psABI's DWARF part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Machine {
    /// x86-64.
    X86_64,
    /// arm64, little-endian.
    Arm64,
}

impl Machine {
    /// The machine of `e_machine`.
    pub fn of(e_machine: u16) -> Option<Self> {
        match e_machine {
            EM_X86_64 => Some(Self::X86_64),
            EM_AARCH64 => Some(Self::Arm64),
            _ => None,
        }
    }

    /// Its `e_machine`.
    pub fn number(self) -> u16 {
        match self {
            Self::X86_64 => EM_X86_64,
            Self::Arm64 => EM_AARCH64,
        }
    }

    /// Where [`Registers`] keep the address of the instruction.
    pub fn instruction(self) -> u8 {
        match self {
            Self::X86_64 => 16,
            Self::Arm64 => 32,
        }
    }

    /// The stack pointer.
    pub fn stack_pointer(self) -> u8 {
        match self {
            Self::X86_64 => 7,
            Self::Arm64 => 31,
        }
    }

    /// The frame pointer, where code keeps one.
    pub fn frame_pointer(self) -> u8 {
        match self {
            Self::X86_64 => 6,
            Self::Arm64 => 29,
        }
    }

    /// The column that holds the return address in call frame information.
    pub(super) fn return_address(self) -> u8 {
        match self {
            Self::X86_64 => 16,
            Self::Arm64 => 30,
        }
    }

    /// Registers whose values survive a call, as bits. The others are not known in a caller unless a rule says so.
    pub(super) fn preserved(self) -> u64 {
        match self {
            // rbx, rbp, r12–r15.
            Self::X86_64 => 1 << 3 | 1 << 6 | 0xf << 12,
            // x18 (the platform's), x19–x29.
            Self::Arm64 => 0xfff << 18,
        }
    }

    /// A code address without what the machine may put into its upper bits: arm64 signs return addresses there.
    pub(super) fn plain_address(self, address: u64, address_bits: u32) -> u64 {
        match self {
            Self::X86_64 => address,
            Self::Arm64 => address & (u64::MAX >> (64 - address_bits.clamp(48, 64))),
        }
    }
}

/// Values of registers, as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    machine: Machine,
    known: u64,
    values: [u64; REGISTERS],
}

impl Registers {
    /// No register is known.
    pub fn new(machine: Machine) -> Self {
        Self {
            machine,
            known: 0,
            values: [0; REGISTERS],
        }
    }

    /// The machine.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Set a register by its DWARF number; the instruction's address has the number of [`Machine::instruction`].
    /// Numbers that no unwinding needs (vector registers) are passed over.
    pub fn set(&mut self, register: u8, value: u64) {
        if let Some(place) = self.values.get_mut(usize::from(register)) {
            *place = value;
            self.known |= 1 << register;
        }
    }

    /// The value of a register, where it is known.
    #[inline]
    pub fn get(&self, register: u8) -> Option<u64> {
        let value = self.values.get(usize::from(register))?;
        (self.known >> register & 1 == 1).then_some(*value)
    }

    /// Forget all registers but those with a bit in `kept`.
    #[inline]
    pub(super) fn keep(&mut self, kept: u64) {
        self.known &= kept;
    }

    /// Forget one register.
    pub(super) fn forget(&mut self, register: u8) {
        if usize::from(register) < REGISTERS {
            self.known &= !(1 << register);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a register without value is not known, and that unknown numbers are neither kept nor a panic.
    #[test]
    fn known_registers() {
        let mut registers = Registers::new(Machine::X86_64);
        assert_eq!(registers.get(3), None);
        registers.set(3, 5);
        registers.set(12, 6);
        registers.set(200, 7);
        assert_eq!((registers.get(3), registers.get(200)), (Some(5), None));
        registers.keep(1 << 12);
        assert_eq!((registers.get(3), registers.get(12)), (None, Some(6)));
        registers.forget(12);
        registers.forget(255);
        assert_eq!(registers.get(12), None);
    }

    /// Check that the signature of a return address is taken off on arm64 and that x86-64 keeps all bits.
    #[test]
    fn signed_addresses() {
        let signed = 0x0024_aaaa_1234_5678;
        assert_eq!(Machine::Arm64.plain_address(signed, 48), 0xaaaa_1234_5678);
        assert_eq!(Machine::X86_64.plain_address(signed, 48), signed);
    }
}
