//! Rules for code that has no unwind information and whose frames follow from what it is: signal trampolines, stubs of
//! the linkage table, the entry of a program. Looks at the code itself.

use super::expression::Term;
use super::machine::Machine;
use super::rule::{Compact, Full, Rule, Source};
use crate::debug_file::elf::ElfFile;

/// `mov $15,%rax; syscall`, as glibc and as musl write it; `mov x8,#139; svc #0`.
const X86_64_SIGRETURN: [&[u8]; 2] = [
    &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05],
    &[0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05],
];
const ARM64_SIGRETURN: [&[u8]; 1] = [&[0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4]];
/// `mov %rbx,%rsp; mov (%rsp),%rdi; test %rdi,%rdi; je`: `__start_context` of glibc (`sysdeps/unix/sysv/linux/x86_64`).
const X86_64_CONTEXT_START: &[u8] = &[
    0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24, 0x48, 0x85, 0xff, 0x74,
];
/// DWARF numbers in the order of `struct sigcontext`: r8–r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip.
const X86_64_CONTEXT: [u8; 17] = [8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16];
/// Where these begin, from the stack pointer: behind `uc_flags`, `uc_link` and `uc_stack`.
const X86_64_CONTEXT_AT: i64 = 40;
/// x0–x30, sp, pc, in that order: behind `siginfo`, the head of `ucontext` and the fault address.
const ARM64_CONTEXT_AT: i64 = 128 + 176 + 8;
/// Bytes behind the entry of a program that are taken as its first function.
const ENTRY_LENGTH: u64 = 32;
/// `stp x16, x30, [sp, #-16]!`.
const ARM64_PUSH: [u8; 4] = [0xf0, 0x7b, 0xbf, 0xa9];

/// Whether the code at `offset` is a signal trampoline: the kernel made it the return address of a handler.
pub(super) fn is_sigreturn(file: &ElfFile, machine: Machine, offset: u64) -> bool {
    let begins = |code: &&[u8]| file.range(offset, code.len() as u64) == Some(*code);
    match machine {
        Machine::X86_64 => X86_64_SIGRETURN.iter().any(begins),
        Machine::Arm64 => ARM64_SIGRETURN.iter().any(begins),
    }
}

/// Whether the code at `offset` is where functions of a context return to: `makecontext()` made it their return address.
pub(super) fn is_context_start(file: &ElfFile, machine: Machine, offset: u64) -> bool {
    let code = X86_64_CONTEXT_START;
    machine == Machine::X86_64 && file.range(offset, code.len() as u64) == Some(code)
}

/// The rule of a signal trampoline: all registers lie where the kernel put them.
pub(super) fn sigreturn(machine: Machine) -> Rule {
    let stack = machine.stack_pointer();
    let at = |offset: i64| Term::Sum {
        register: stack,
        offset,
    };
    let (start, numbers): (i64, Vec<u8>) = match machine {
        Machine::X86_64 => (X86_64_CONTEXT_AT, X86_64_CONTEXT.to_vec()),
        Machine::Arm64 => (ARM64_CONTEXT_AT, (0..=32).collect()),
    };
    let registers = numbers
        .iter()
        .zip(0_i64..)
        .map(|(&number, place)| (number, Source::AtTerm(at(start + 8 * place))));
    Rule::Full(Box::new(Full {
        cfa: at(0),
        registers: registers.collect(),
        is_signal: true,
    }))
}

/// The rule for a stub of the linkage table at `svma`, where it is one: what it has pushed until there.
pub(super) fn stub(file: &ElfFile, machine: Machine, svma: u64) -> Option<Rule> {
    let section = file.sections.iter().find(|section| {
        let within = svma.checked_sub(section.svma);
        let is_there = section.is_linkage_table() && !section.is_nobits();
        is_there && within.is_some_and(|at| at < section.size)
    })?;
    let at = svma - section.svma;
    let code = |from: u64, size: u64| file.range(section.offset.checked_add(from)?, size);
    let (pushed, return_address) = match machine {
        Machine::X86_64 => (
            8 + x86_64_pushed(code(at, 6)?, at.checked_sub(6).and_then(|at| code(at, 6)))?,
            Some(-8),
        ),
        Machine::Arm64 => {
            let first = section.offset.checked_add(at & !31)?;
            let has_pushed = !at.is_multiple_of(32) && file.range(first, 4) == Some(&ARM64_PUSH);
            if has_pushed {
                (16, Some(-8))
            } else {
                (0, None)
            }
        }
    };
    let rule = Compact::new(machine.stack_pointer(), pushed, return_address, &[])?;
    Some(Rule::Compact(rule))
}

/// Bytes that a stub has pushed before the instruction that `code` begins with.
fn x86_64_pushed(code: &[u8], before: Option<&[u8]>) -> Option<i64> {
    let has_pushed_map = before.is_some_and(|code| code.starts_with(&[0xff, 0x35]));
    match code {
        // The head of the table: `push map`, `jmp *resolver`; the stub has pushed its number.
        [0xff, 0x35, ..] => Some(8),
        [0xff, 0x25, ..] | [0xf2, 0xff, 0x25, ..] if has_pushed_map => Some(16),
        // `jmp *slot`, `endbr64`, `push number`.
        [0xff, 0x25, ..] | [0xf2, 0xff, 0x25, ..] | [0xf3, 0x0f, 0x1e, 0xfa, ..] | [0x68, ..] => {
            Some(0)
        }
        // `jmp head`.
        [0xe9, ..] | [0xf2, 0xe9, ..] => Some(8),
        _ => None,
    }
}

/// Whether `svma` lies in what the kernel starts a program with.
pub(super) fn is_entry(file: &ElfFile, svma: u64) -> bool {
    let within = svma.checked_sub(file.entry);
    file.entry != 0 && within.is_some_and(|within| within < ENTRY_LENGTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check what each instruction of the linkage tables of GNU ld and lld has pushed before it.
    #[test]
    fn stubs() {
        let jump = [0xff, 0x25, 1, 2, 3, 4];
        let head = [0xff, 0x35, 1, 2, 3, 4];
        assert_eq!(x86_64_pushed(&jump, None), Some(0));
        assert_eq!(
            x86_64_pushed(&[0x68, 5, 0, 0, 0, 0xe9], Some(&jump)),
            Some(0)
        );
        assert_eq!(x86_64_pushed(&[0xe9, 0, 0, 0, 0, 0xff], None), Some(8));
        assert_eq!(x86_64_pushed(&head, None), Some(8));
        assert_eq!(x86_64_pushed(&jump, Some(&head)), Some(16));
        assert_eq!(x86_64_pushed(&[0x90; 6], None), None);
    }
}
