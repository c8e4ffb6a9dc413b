//! How the caller's registers follow from a frame's: rows of call frame information in a form that needs no DWARF.

use gimli::{CfaRule, RegisterRule, UnwindExpression};

use super::expression::{Term, number};
use super::fde::FoundRow;
use super::machine::{Machine, REGISTERS};

/// Registers that a compact rule restores at most: more than both machines' calls preserve.
const MAX_SAVED: usize = 12;

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Rule {
    /// Nearly all there are.
    Compact(Compact),
    /// Any other.
    Full(Box<Full>),
    /// There is no caller.
    Outermost,
    /// A stack of `makecontext()` begins here. What runs when its function has returned did not call it.
    ContextStart,
    /// There is no unwind information: by the frame pointer.
    FramePointer,
    /// The unwind information is damaged, or beyond the limits.
    Bad,
}

/// The CFA is a register and an offset, and what is saved lies at offsets from the CFA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Compact {
    /// Register that the CFA counts from.
    pub(super) base: u8,
    /// Number of `saved` that hold something.
    count: u8,
    /// Where the return address is, from the CFA; nothing where it is in its register.
    pub(super) return_address: Option<i16>,
    /// Added to `base`.
    pub(super) offset: i32,
    saved: [(u8, i16); MAX_SAVED],
}

impl Compact {
    /// Saved registers, each with its distance from the CFA.
    #[inline]
    pub(super) fn saved(&self) -> &[(u8, i16)] {
        self.saved
            .get(..usize::from(self.count))
            .unwrap_or_default()
    }

    /// A rule of these parts; nothing where they do not fit.
    pub(super) fn new(
        base: u8,
        offset: i64,
        return_address: Option<i64>,
        registers: &[(u8, i64)],
    ) -> Option<Self> {
        let mut saved = [(0, 0); MAX_SAVED];
        let mut count = 0;
        for (place, &(register, at)) in saved.iter_mut().zip(registers) {
            *place = (register, i16::try_from(at).ok()?);
            count += 1;
        }
        let return_address = match return_address {
            Some(at) => Some(i16::try_from(at).ok()?),
            None => None,
        };
        (usize::from(count) == registers.len()).then_some(Self {
            base,
            count,
            return_address,
            offset: i32::try_from(offset).ok()?,
            saved,
        })
    }
}

/// A rule of any kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Full {
    /// The CFA.
    pub(super) cfa: Term,
    /// Where each register that is spoken of comes from, the return address under its own number.
    pub(super) registers: Vec<(u8, Source)>,
    /// Whether the caller was interrupted rather than has called.
    pub(super) is_signal: bool,
}

/// Where a register's value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// It is the same.
    Same,
    /// It cannot be known.
    Undefined,
    /// It is saved at this distance from the CFA.
    At(i64),
    /// It is the CFA and this.
    Cfa(i64),
    /// It is in this register.
    Register(u8),
    /// It is saved where the term says.
    AtTerm(Term),
    /// It is what the term says.
    Term(Term),
}

impl Rule {
    /// The rule that a row of `machine` for `svma` states.
    pub(super) fn of(found: &FoundRow<'_>, machine: Machine, svma: u64) -> Self {
        Self::read(found, machine, svma).unwrap_or(Self::Bad)
    }

    fn read(found: &FoundRow<'_>, machine: Machine, svma: u64) -> Option<Self> {
        let term = |expression: &UnwindExpression<usize>| {
            let end = expression.offset.checked_add(expression.length)?;
            let bytes = found.section.get(expression.offset..end)?;
            Term::of(bytes, found.encoding, svma)
        };
        let own = machine.return_address();
        if number(found.return_address)? != own {
            return None;
        }
        let cfa = match found.row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => Term::Sum {
                register: number(*register)?,
                offset: *offset,
            },
            CfaRule::Expression(expression) => term(expression)?,
        };
        let mut registers = Vec::new();
        for (register, rule) in found.row.registers() {
            let source = match rule {
                RegisterRule::Undefined => Source::Undefined,
                RegisterRule::SameValue => Source::Same,
                RegisterRule::Offset(at) => Source::At(*at),
                RegisterRule::ValOffset(at) => Source::Cfa(*at),
                RegisterRule::Register(other) => Source::Register(number(*other)?),
                RegisterRule::Expression(expression) => Source::AtTerm(term(expression)?),
                RegisterRule::ValExpression(expression) => Source::Term(term(expression)?),
                _ => continue,
            };
            // Vector registers are saved too; nothing follows from them.
            if let Some(register) = number(*register).filter(|&kept| usize::from(kept) < REGISTERS)
            {
                registers.push((register, source));
            }
        }
        registers.sort_by_key(|(register, _)| *register);
        let return_address = registers.iter().find(|(register, _)| *register == own);
        match (return_address, machine) {
            (Some((_, Source::Undefined)), _) => return Some(Self::Outermost),
            // Only a link register may still hold it.
            (None | Some((_, Source::Same)), Machine::X86_64) => return None,
            _ => {}
        }
        let full = Full {
            cfa,
            registers,
            is_signal: found.is_signal,
        };
        let compact = full.compact(machine);
        Some(compact.map_or_else(|| Self::Full(Box::new(full)), Self::Compact))
    }

    /// Bytes on the heap that it takes.
    pub(super) fn weight(&self) -> usize {
        let Self::Full(full) = self else { return 0 };
        let terms = full
            .registers
            .iter()
            .filter_map(|(_, source)| match source {
                Source::AtTerm(term) | Source::Term(term) => Some(term),
                _ => None,
            });
        let bytes = terms.chain([&full.cfa]).map(|term| match term {
            Term::Evaluated(code) => code.len(),
            _ => 0,
        });
        size_of::<Full>() + full.registers.len() * size_of::<(u8, Source)>() + bytes.sum::<usize>()
    }
}

impl Full {
    /// The same as a compact rule, where it can be one.
    fn compact(&self, machine: Machine) -> Option<Compact> {
        let Term::Sum { register, offset } = self.cfa else {
            return None;
        };
        if self.is_signal {
            return None;
        }
        let (mut return_address, mut saved) = (None, Vec::new());
        for (register, source) in &self.registers {
            match source {
                Source::At(at) if *register == machine.return_address() => {
                    return_address = Some(*at);
                }
                Source::At(at) if *register != machine.stack_pointer() => {
                    saved.push((*register, *at));
                }
                Source::Same if machine.preserved() >> register & 1 == 1 => {}
                _ => return None,
            }
        }
        Compact::new(register, offset, return_address, &saved)
    }
}
