//! DWARF expressions in call frame information: the usual ones as plain terms, the others evaluated within limits.

use gimli::{
    Encoding, EndianSlice, EvaluationResult, Expression, LittleEndian, Operation, Register, Value,
};

use super::machine::Registers;
use super::memory::Memory;
use super::outcome::{Contradiction, End};
use crate::guard::guarded;

/// Operations that an evaluation takes at most.
const MAX_STEPS: u32 = 1_000;
/// Bytes of an expression that are taken at most.
const MAX_LENGTH: usize = 1 << 12;

/// What an address or a value is, in terms of the registers of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Term {
    /// A register and an offset.
    Sum {
        /// DWARF number.
        register: u8,
        /// Added to its value.
        offset: i64,
    },
    /// What memory holds at a register and an offset, and an offset more.
    Loaded {
        /// DWARF number.
        register: u8,
        /// Added to its value.
        offset: i64,
        /// Added to what was read.
        added: i64,
    },
    /// Something else.
    Evaluated(Code),
}

/// An expression as it stands in a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Code {
    bytes: Box<[u8]>,
    encoding: Encoding,
}

impl Code {
    /// Bytes that it holds.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl Term {
    /// The term that `bytes` are in code at `svma`; nothing where they are too long.
    pub(super) fn of(bytes: &[u8], encoding: Encoding, svma: u64) -> Option<Self> {
        if bytes.len() > MAX_LENGTH {
            return None;
        }
        let evaluated = || {
            Self::Evaluated(Code {
                bytes: bytes.into(),
                encoding,
            })
        };
        Some(Self::usual(bytes, encoding, svma).unwrap_or_else(evaluated))
    }

    /// Signal frames (`breg7 n`), saved stack pointers (`breg n, deref, plus_uconst m`) and stubs of the linkage table.
    fn usual(bytes: &[u8], encoding: Encoding, svma: u64) -> Option<Self> {
        let mut operations = Expression(EndianSlice::new(bytes, LittleEndian)).operations(encoding);
        let mut list = Vec::with_capacity(9);
        while let Some(operation) = operations.next().ok()? {
            list.push(operation);
            if list.len() > 9 {
                return None;
            }
        }
        let (first, rest) = list.split_first()?;
        let (register, offset) = sum(first)?;
        let loaded = |added| Self::Loaded {
            register,
            offset,
            added,
        };
        match rest {
            [] => Some(Self::Sum { register, offset }),
            [load] if is_load(load) => Some(loaded(0)),
            [load, Operation::PlusConstant { value }] if is_load(load) => {
                Some(loaded(i64::try_from(*value).ok()?))
            }
            _ => {
                let more = stub(rest, svma)?;
                Some(Self::Sum {
                    register,
                    offset: offset.checked_add(more)?,
                })
            }
        }
    }

    /// Its value; `initial` is what the stack of an evaluation begins with.
    pub(super) fn value(
        &self,
        registers: &Registers,
        memory: &dyn Memory,
        initial: Option<u64>,
    ) -> Result<u64, End> {
        let unknown = End::Contradiction(Contradiction::UnknownRegister);
        let sum = |register: u8, offset: i64| {
            let value = registers.get(register).ok_or(unknown)?;
            Ok(value.wrapping_add_signed(offset))
        };
        match self {
            Self::Sum { register, offset } => sum(*register, *offset),
            Self::Loaded {
                register,
                offset,
                added,
            } => {
                let found = memory.word(sum(*register, *offset)?);
                Ok(found.ok_or(End::CopyEnds)?.wrapping_add_signed(*added))
            }
            Self::Evaluated(code) => {
                let value = guarded(|| evaluate(code, registers, memory, initial));
                value.unwrap_or(Err(End::Contradiction(Contradiction::BadRule)))
            }
        }
    }
}

type Step<'a> = Operation<EndianSlice<'a, LittleEndian>>;

fn sum(operation: &Step<'_>) -> Option<(u8, i64)> {
    match operation {
        Operation::RegisterOffset {
            register, offset, ..
        } => Some((number(*register)?, *offset)),
        _ => None,
    }
}

fn is_load(operation: &Step<'_>) -> bool {
    matches!(
        operation,
        Operation::Deref {
            size: 8,
            space: false,
            ..
        }
    )
}

/// A register's number, where it is one that is kept.
pub(super) fn number(register: Register) -> Option<u8> {
    u8::try_from(register.0).ok()
}

/// `((instruction & mask) >= limit) << shift`, added: how far a stub of the linkage table has pushed already. The lower
/// bits of the instruction are those of `svma`, since mappings begin at pages.
fn stub(rest: &[Step<'_>], svma: u64) -> Option<i64> {
    let [
        place,
        Operation::UnsignedConstant { value: mask },
        Operation::And,
        rest @ ..,
    ] = rest
    else {
        return None;
    };
    let [
        Operation::UnsignedConstant { value: limit },
        Operation::Ge,
        rest @ ..,
    ] = rest
    else {
        return None;
    };
    let [
        Operation::UnsignedConstant { value: shift },
        Operation::Shl,
        Operation::Plus,
    ] = rest
    else {
        return None;
    };
    if sum(place)? != (16, 0) || *mask > 0xfff || *shift > 16 {
        return None;
    }
    Some(i64::from(svma & mask >= *limit) << shift)
}

fn evaluate(
    code: &Code,
    registers: &Registers,
    memory: &dyn Memory,
    initial: Option<u64>,
) -> Result<u64, End> {
    let bad = || End::Contradiction(Contradiction::BadRule);
    let bytes = EndianSlice::new(&code.bytes, LittleEndian);
    let mut evaluation = Expression(bytes).evaluation(code.encoding);
    evaluation.set_max_iterations(MAX_STEPS);
    if let Some(value) = initial {
        evaluation.set_initial_value(value);
    }
    let mut step = evaluation.evaluate().map_err(|_| bad())?;
    loop {
        step = match step {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = number(register).and_then(|number| registers.get(number));
                let unknown = End::Contradiction(Contradiction::UnknownRegister);
                let value = Value::Generic(value.ok_or(unknown)?);
                evaluation.resume_with_register(value)
            }
            EvaluationResult::RequiresMemory {
                address,
                size,
                space: None,
                ..
            } => {
                let value = memory.number(address, size).ok_or(End::CopyEnds)?;
                evaluation.resume_with_memory(Value::Generic(value))
            }
            _ => return Err(bad()),
        }
        .map_err(|_| bad())?;
    }
    let value = evaluation.value_result().ok_or_else(bad)?;
    value.to_u64(u64::MAX).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use gimli::Format;

    use super::*;
    use crate::unwind::machine::Machine;
    use crate::unwind::memory::StackMemory;

    const ENCODING: Encoding = Encoding {
        address_size: 8,
        format: Format::Dwarf32,
        version: 4,
    };

    fn value(bytes: &[u8], initial: Option<u64>) -> Result<u64, End> {
        let mut registers = Registers::new(Machine::X86_64);
        registers.set(7, 0x1000);
        registers.set(16, 0x400_00c);
        let word = 0x55_u64.to_le_bytes();
        let memory = StackMemory {
            parts: &[(0x1008, &word)],
            end: 0x1010,
            replaced: &[],
        };
        let term = Term::of(bytes, ENCODING, 0xc).unwrap();
        let evaluated = Term::Evaluated(Code {
            bytes: bytes.into(),
            encoding: ENCODING,
        });
        let found = term.value(&registers, &memory, initial);
        assert_eq!(found, evaluated.value(&registers, &memory, initial));
        found
    }

    /// Check that the usual expressions are the same as plain terms and evaluated: a sum, a load, a load and a sum, and
    /// that of GNU ld's linkage table before and behind its push.
    #[test]
    fn usual_terms() {
        assert_eq!(value(&[0x77, 0x10], None), Ok(0x1010));
        assert_eq!(value(&[0x77, 0x08, 0x06], None), Ok(0x55));
        assert_eq!(value(&[0x77, 0x08, 0x06, 0x23, 0x08], None), Ok(0x5d));
        let stub = |limit| [0x77, 8, 0x80, 0, 0x3f, 0x1a, limit, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(value(&stub(0x3b), None), Ok(0x1010));
        assert_eq!(value(&stub(0x3d), None), Ok(0x1008));
        assert!(!matches!(
            Term::of(&stub(0x3b), ENCODING, 0),
            Some(Term::Evaluated(_))
        ));
    }

    /// Check that what is not there ends with its reason: memory, a register, an unknown operation, an endless loop.
    #[test]
    fn limits() {
        let bad = Err(End::Contradiction(Contradiction::BadRule));
        assert_eq!(value(&[0x77, 0x20, 0x06], None), Err(End::CopyEnds));
        let unknown = Err(End::Contradiction(Contradiction::UnknownRegister));
        assert_eq!(value(&[0x73, 0], None), unknown);
        assert_eq!(value(&[0xff], None), bad);
        assert_eq!(value(&[], None), bad);
        assert_eq!(value(&[0x96, 0x2f, 0xfc, 0xff], None), bad);
        assert_eq!(value(&[0x31, 0x22], Some(0x10)), Ok(0x11));
        assert!(Term::of(&[0x96; 5000], ENCODING, 0).is_none());
    }
}
