//! A line program, run for the rows that hold wanted addresses: no other row is made. Knows no files.

use gimli::{LineProgramHeader, Reader, constants};

use super::bytes::Bytes;
use super::units::Units;
use super::{Budget, Slice};

/// Instructions between two looks at the budget.
const INSTRUCTIONS_PER_CHECK: u32 = 1 << 16;

/// A place with the file as the line program numbers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RawPlace {
    pub(super) file: u64,
    pub(super) line: u32,
    pub(super) column: u32,
}

/// Give each of `wanted`, sorted addresses, its place in the source, files as indices of the line program.
///
/// A sequence whose start is not code was thrown away by the linker. Where several sequences hold an address, the
/// first one counts. Line 0 means that the compiler knows no line.
pub(super) fn find_rows<'a>(
    units: &Units<'a, '_>,
    header: &LineProgramHeader<Slice<'a>>,
    wanted: &[u64],
    budget: &Budget,
) -> Vec<Option<RawPlace>> {
    let program = header.raw_program_buf();
    let mut run = Run {
        machine: Machine::of(header),
        bytes: Bytes::new(program.slice(), program.endian()),
        registers: Registers::default(),
        rows: Rows {
            units,
            wanted,
            places: vec![None; wanted.len()],
            sequence: None,
        },
    };
    // What was found before a damaged instruction counts.
    let _ = run.run(budget);
    run.rows.places
}

/// What the header says of the instructions.
struct Machine<'a> {
    opcode_base: u8,
    line_base: i64,
    line_range: u8,
    instruction: u64,
    operations: u64,
    address_size: u8,
    lengths: &'a [u8],
}

impl<'a> Machine<'a> {
    fn of(header: &LineProgramHeader<Slice<'a>>) -> Self {
        Self {
            opcode_base: header.opcode_base(),
            line_base: i64::from(header.line_base()),
            line_range: header.line_range().max(1),
            instruction: u64::from(header.minimum_instruction_length()),
            operations: u64::from(header.maximum_operations_per_instruction()).max(1),
            address_size: header.address_size(),
            lengths: header.standard_opcode_lengths().slice(),
        }
    }

    /// The highest address that there is.
    fn max_address(&self) -> u64 {
        match self.address_size {
            size @ 1..=7 => (1 << (8 * u32::from(size))) - 1,
            _ => u64::MAX,
        }
    }
}

/// The registers that matter for places.
struct Registers {
    address: u64,
    operation: u64,
    place: Place64,
    /// The linker threw away what comes up to the next address.
    tombstone: bool,
}

/// A place as the registers have it.
#[derive(Clone, Copy)]
struct Place64 {
    file: u64,
    line: u64,
    column: u64,
}

impl Default for Registers {
    fn default() -> Self {
        Self {
            address: 0,
            operation: 0,
            place: Place64 {
                file: 1,
                line: 1,
                column: 0,
            },
            tombstone: false,
        }
    }
}

impl Registers {
    fn advance_line(&mut self, by: i64) {
        let line = &mut self.place.line;
        *line = if by < 0 {
            line.saturating_sub(by.unsigned_abs())
        } else {
            line.wrapping_add(by.unsigned_abs())
        };
    }

    #[inline(always)]
    fn advance(&mut self, by: u64, machine: &Machine<'_>) -> Option<()> {
        if self.tombstone {
            return Some(());
        }
        let instructions = if machine.operations == 1 {
            by
        } else {
            let sum = self.operation.wrapping_add(by);
            self.operation = sum % machine.operations;
            sum / machine.operations
        };
        let bytes = machine.instruction.wrapping_mul(instructions);
        self.address = self.address.checked_add(bytes)?;
        (self.address <= machine.max_address()).then_some(())
    }

    /// Linkers leave 0 or -1 as the address of what they threw away; addresses rise within a sequence.
    fn set_address(&mut self, address: u64, machine: &Machine<'_>) {
        self.tombstone = address < self.address || address >= machine.max_address() - 1;
        if !self.tombstone {
            self.address = address;
            self.operation = 0;
        }
    }
}

/// A program while it runs.
struct Run<'r, 'a, 'c> {
    machine: Machine<'a>,
    bytes: Bytes<'a>,
    registers: Registers,
    rows: Rows<'r, 'a, 'c>,
}

impl Run<'_, '_, '_> {
    fn run(&mut self, budget: &Budget) -> Option<()> {
        let mut until_check = INSTRUCTIONS_PER_CHECK;
        while let Some(opcode) = self.bytes.byte() {
            if opcode >= self.machine.opcode_base {
                self.special(opcode - self.machine.opcode_base)?;
            } else if opcode == 0 {
                self.extended()?;
            } else {
                self.standard(opcode)?;
            }
            until_check -= 1;
            if until_check == 0 {
                until_check = INSTRUCTIONS_PER_CHECK;
                if budget.is_spent() {
                    return None;
                }
            }
        }
        Some(())
    }

    #[inline(always)]
    fn special(&mut self, adjusted: u8) -> Option<()> {
        let machine = &self.machine;
        let (lines, operations) = (adjusted % machine.line_range, adjusted / machine.line_range);
        self.registers
            .advance_line(machine.line_base + i64::from(lines));
        self.registers.advance(u64::from(operations), machine)?;
        self.rows.row(&self.registers);
        Some(())
    }

    #[inline(always)]
    fn standard(&mut self, opcode: u8) -> Option<()> {
        let (bytes, registers) = (&mut self.bytes, &mut self.registers);
        match gimli::DwLns(opcode) {
            constants::DW_LNS_copy => self.rows.row(registers),
            constants::DW_LNS_advance_pc => registers.advance(bytes.uleb()?, &self.machine)?,
            constants::DW_LNS_advance_line => registers.advance_line(bytes.sleb()?),
            constants::DW_LNS_set_file => registers.place.file = bytes.uleb()?,
            constants::DW_LNS_set_column => registers.place.column = bytes.uleb()?,
            constants::DW_LNS_negate_stmt
            | constants::DW_LNS_set_basic_block
            | constants::DW_LNS_set_prologue_end
            | constants::DW_LNS_set_epilogue_begin => {}
            constants::DW_LNS_const_add_pc => {
                let adjusted = 255 - self.machine.opcode_base;
                let operations = u64::from(adjusted / self.machine.line_range);
                registers.advance(operations, &self.machine)?;
            }
            constants::DW_LNS_fixed_advance_pc => {
                let by = bytes.number(2)?;
                if !registers.tombstone {
                    registers.address = registers.address.checked_add(by)?;
                    registers.operation = 0;
                }
            }
            constants::DW_LNS_set_isa => {
                bytes.uleb()?;
            }
            _ => {
                let place = usize::from(opcode).checked_sub(1)?;
                for _ in 0..*self.machine.lengths.get(place)? {
                    bytes.uleb()?;
                }
            }
        }
        Some(())
    }

    fn extended(&mut self) -> Option<()> {
        let length = usize::try_from(self.bytes.uleb()?).ok()?;
        let start = self.bytes.position();
        if length > 0 {
            match gimli::DwLne(self.bytes.byte()?) {
                constants::DW_LNE_end_sequence => {
                    self.rows.row(&self.registers);
                    self.rows.sequence = None;
                    self.registers = Registers::default();
                }
                constants::DW_LNE_set_address => {
                    let size = usize::from(self.machine.address_size);
                    let address = self.bytes.number(size)?;
                    self.registers.set_address(address, &self.machine);
                }
                _ => {}
            }
        }
        self.bytes.seek(start);
        self.bytes.skip(length)
    }
}

/// Takes rows and keeps those that hold wanted addresses.
struct Rows<'r, 'a, 'c> {
    units: &'r Units<'a, 'c>,
    wanted: &'r [u64],
    places: Vec<Option<RawPlace>>,
    sequence: Option<Sequence>,
}

/// A run of rows with rising addresses.
struct Sequence {
    /// The first wanted address that no row covers yet, as an index.
    next: usize,
    /// That address; the highest one where there is none, or where the sequence is not of code.
    next_address: u64,
    /// The row that holds from its address up to the next row's.
    last: Option<Place64>,
}

impl Rows<'_, '_, '_> {
    #[inline(always)]
    fn row(&mut self, registers: &Registers) {
        if registers.tombstone {
            return;
        }
        let address = registers.address;
        match &mut self.sequence {
            Some(sequence) => {
                if sequence.next_address < address {
                    sequence.fill_to(address, self.wanted, &mut self.places);
                }
                sequence.last = Some(registers.place);
            }
            None => {
                self.sequence = Some(self.start(address, registers.place));
            }
        }
    }

    fn start(&self, address: u64, place: Place64) -> Sequence {
        let next = if self.units.is_code(address) {
            self.wanted.partition_point(|&wanted| wanted < address)
        } else {
            self.wanted.len()
        };
        Sequence {
            next,
            next_address: self.wanted.get(next).copied().unwrap_or(u64::MAX),
            last: Some(place),
        }
    }
}

impl Sequence {
    /// Let the last row cover the wanted addresses below `address`.
    #[cold]
    fn fill_to(&mut self, address: u64, wanted: &[u64], places: &mut [Option<RawPlace>]) {
        while self.next_address < address {
            if let Some(place) = places.get_mut(self.next).filter(|place| place.is_none()) {
                *place = self.last.map(raw);
            }
            self.next += 1;
            self.next_address = wanted.get(self.next).copied().unwrap_or(u64::MAX);
        }
    }
}

fn raw(place: Place64) -> RawPlace {
    RawPlace {
        file: place.file,
        line: u32::try_from(place.line).unwrap_or(0),
        column: u32::try_from(place.column).unwrap_or(0),
    }
}
