//! One step: a frame's registers and its rule → the caller's registers. Knows no files.

use super::machine::Registers;
use super::memory::Memory;
use super::outcome::{Contradiction, End};
use super::rule::{Compact, Full, Rule, Source};

/// The caller's registers, and whether it was interrupted rather than has called.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stepped {
    /// What is known of the caller.
    pub(super) registers: Registers,
    /// Whether its instruction is the next one to run, not one behind a call.
    pub(super) is_exact: bool,
}

/// Step from a frame with these registers to its caller.
#[inline]
pub(super) fn step<M: Memory>(
    rule: &Rule,
    registers: &Registers,
    memory: &M,
) -> Result<Stepped, End> {
    match rule {
        Rule::Compact(compact) => by_compact(compact, registers, memory),
        Rule::Full(full) => by_full(full, registers, memory),
        Rule::FramePointer => by_frame_pointer(registers, memory),
        Rule::Outermost => Err(End::Outermost),
        Rule::ContextStart => Err(End::Zero),
        Rule::Bad => Err(End::Contradiction(Contradiction::BadRule)),
    }
}

const UNKNOWN: End = End::Contradiction(Contradiction::UnknownRegister);

#[inline]
fn by_compact<M: Memory>(
    rule: &Compact,
    registers: &Registers,
    memory: &M,
) -> Result<Stepped, End> {
    let machine = registers.machine();
    let base = registers.get(rule.base).ok_or(UNKNOWN)?;
    let cfa = base.wrapping_add_signed(rule.offset.into());
    let return_address = match rule.return_address {
        Some(at) => memory.word(cfa.wrapping_add_signed(at.into())),
        None => Some(registers.get(machine.return_address()).ok_or(UNKNOWN)?),
    };
    let found = return_address.ok_or(End::CopyEnds)?;
    let return_address = memory.return_address(found, cfa).ok_or(UNKNOWN)?;
    let mut caller = *registers;
    caller.keep(machine.preserved());
    for &(register, at) in rule.saved() {
        match memory.word(cfa.wrapping_add_signed(at.into())) {
            Some(value) => caller.set(register, value),
            None => caller.forget(register),
        }
    }
    caller.set(machine.stack_pointer(), cfa);
    return_to(&mut caller, return_address);
    Ok(Stepped {
        registers: caller,
        is_exact: false,
    })
}

fn by_full(rule: &Full, registers: &Registers, memory: &dyn Memory) -> Result<Stepped, End> {
    let machine = registers.machine();
    let cfa = rule.cfa.value(registers, memory, None)?;
    let mut caller = *registers;
    caller.keep(machine.preserved());
    caller.set(machine.stack_pointer(), cfa);
    // A signal frame holds the interrupted instruction beside the link register; else they are one.
    let has_instruction = rule
        .registers
        .iter()
        .any(|(number, _)| *number == machine.instruction());
    let own = if has_instruction {
        machine.instruction()
    } else {
        machine.return_address()
    };
    let mut next = registers.get(own).ok_or(UNKNOWN);
    for (register, source) in &rule.registers {
        let is_next = *register == own;
        let load = |address| memory.word(address).ok_or(End::CopyEnds);
        let value = match source {
            Source::Same => registers.get(*register).ok_or(UNKNOWN),
            Source::Undefined => Err(UNKNOWN),
            Source::At(at) => load(cfa.wrapping_add_signed(*at)),
            Source::Cfa(at) => Ok(cfa.wrapping_add_signed(*at)),
            Source::Register(other) => registers.get(*other).ok_or(UNKNOWN),
            Source::AtTerm(term) => term.value(registers, memory, Some(cfa)).and_then(load),
            Source::Term(term) => term.value(registers, memory, Some(cfa)),
        };
        match value {
            _ if is_next => next = value,
            Ok(value) => caller.set(*register, value),
            // What is not needed on the way may be unknown.
            Err(_) => caller.forget(*register),
        }
    }
    let mut next = next?;
    if !rule.is_signal {
        next = memory.return_address(next, cfa).ok_or(UNKNOWN)?;
    }
    caller.set(machine.instruction(), next);
    if !has_instruction {
        caller.set(machine.return_address(), next);
    }
    Ok(Stepped {
        registers: caller,
        is_exact: rule.is_signal,
    })
}

/// Code without unwind information, as far as it keeps a frame pointer: the caller's lies there, the return address
/// behind it.
fn by_frame_pointer(registers: &Registers, memory: &dyn Memory) -> Result<Stepped, End> {
    let machine = registers.machine();
    let nowhere = End::NoUnwindInfo(None);
    let stack = registers.get(machine.stack_pointer()).ok_or(UNKNOWN)?;
    let frame = registers.get(machine.frame_pointer()).ok_or(nowhere)?;
    if frame == 0 {
        return Err(End::Zero);
    }
    if frame < stack || !frame.is_multiple_of(8) {
        return Err(nowhere);
    }
    let behind = frame.checked_add(16).ok_or(nowhere)?;
    let (Some(outer), Some(found)) = (memory.word(frame), memory.word(frame.wrapping_add(8)))
    else {
        let was_stack = memory.is_stack(frame);
        return Err(if was_stack { End::CopyEnds } else { nowhere });
    };
    let return_address = memory.return_address(found, behind).ok_or(UNKNOWN)?;
    if return_address == 0 {
        return Err(End::Zero);
    }
    let mut caller = Registers::new(machine);
    caller.set(machine.frame_pointer(), outer);
    caller.set(machine.stack_pointer(), behind);
    return_to(&mut caller, return_address);
    Ok(Stepped {
        registers: caller,
        is_exact: false,
    })
}

fn return_to(caller: &mut Registers, address: u64) {
    let machine = caller.machine();
    caller.set(machine.instruction(), address);
    caller.set(machine.return_address(), address);
}
