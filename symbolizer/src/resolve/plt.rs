//! Stubs through which calls leave a module: each is named after what its jump leads to.
//!
//! The jump is decoded and its slot looked up among the relocations. Counting stubs does not do: `.plt.sec` (IBT),
//! `.plt.got` (`-z now`) and what lld and mold write have other numbers of stubs, headers and sizes.

use foldhash::HashMap;

use crate::debug_file::elf::ElfFile;
use crate::debug_file::relocations;
use crate::debug_file::section::{self, Section};

/// `EM_386`, `EM_X86_64`, `EM_AARCH64`.
const I386: u16 = 3;
const X86_64: u16 = 62;
const AARCH64: u16 = 183;
/// Sizes that a stub may have, in bytes, and the one where the section does not say.
const SIZES: [u64; 4] = [8, 16, 24, 32];
const SIZE: u64 = 16;
/// Bytes of stubs that are looked at.
const MAX_BYTES: u64 = 64 << 20;

/// A stub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stub<'a> {
    /// First address.
    pub(super) start: u64,
    /// Address behind the last.
    pub(super) end: u64,
    /// What the stub leads to.
    pub(super) target: Target<'a>,
}

/// What a stub leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target<'a> {
    /// A symbol of another module, by name.
    Name(&'a [u8]),
    /// What the function at this address of this module chooses (`STT_GNU_IFUNC`).
    ChosenBy(u64),
}

/// All stubs of `file`, in the order of the sections.
pub(super) fn stubs(file: &ElfFile) -> Vec<Stub<'_>> {
    let is_plt = |section: &&Section| section.is_linkage_table() && !section.is_nobits();
    let sections = file.sections.iter().filter(is_plt);
    let mut sections = sections
        .filter(|section| section.size <= MAX_BYTES)
        .peekable();
    if sections.peek().is_none() {
        return Vec::new();
    }
    let slots = slots(file);
    let mut found = Vec::new();
    for section in sections {
        let Ok(code) = section::content(file, section) else {
            continue;
        };
        let jumps = match file.machine {
            X86_64 | I386 => x86_jumps(file, section, &code),
            AARCH64 => arm64_jumps(section.svma, &code),
            _ => Vec::new(),
        };
        let named = jumps.iter().filter_map(|jump| {
            let slot = match jump.to {
                To::Slot(address) => slots.by_address.get(&address),
                To::Number(number) => slots.by_number.get(usize::try_from(number).ok()?),
            };
            Some(Stub {
                start: jump.start,
                end: jump.end,
                target: *slot?,
            })
        });
        found.extend(named);
    }
    found
}

/// Slots that jumps go through.
struct Slots<'a> {
    by_address: HashMap<u64, Target<'a>>,
    /// Those of lazy binding, as stubs push their number.
    by_number: Vec<Target<'a>>,
}

fn slots(file: &ElfFile) -> Slots<'_> {
    let mut slots = Slots {
        by_address: HashMap::default(),
        by_number: Vec::new(),
    };
    relocations::for_each(file, &mut |row| {
        let (jump_slot, chosen) = match file.machine {
            X86_64 => (7, 37),
            I386 => (7, 42),
            _ => (1026, 1032),
        };
        let target = if !row.name.is_empty() {
            Target::Name(row.name)
        } else if row.kind == chosen {
            Target::ChosenBy(row.addend.cast_unsigned())
        } else {
            return;
        };
        slots.by_address.entry(row.offset).or_insert(target);
        if row.kind == jump_slot || row.kind == chosen {
            slots.by_number.push(target);
        }
    });
    slots
}

/// Where a stub is and goes.
struct Jump {
    start: u64,
    end: u64,
    to: To,
}

enum To {
    /// To what the slot at this address holds.
    Slot(u64),
    /// To the resolver, with the number of a slot.
    Number(u32),
}

/// Stubs are as long as the section says; within each the jump is sought, for what stands before it differs.
fn x86_jumps(file: &ElfFile, section: &Section, code: &[u8]) -> Vec<Jump> {
    let size = if SIZES.contains(&section.entry_size) {
        section.entry_size
    } else {
        SIZE
    };
    let got = file
        .section(".got.plt")
        .or_else(|| file.section(".got"))
        .map_or(0, |got| got.svma);
    let stub_size = usize::try_from(size).unwrap_or(16);
    let stubs = (0u64..).zip(code.chunks(stub_size));
    let jumps = stubs.filter_map(|(number, stub)| {
        let start = section.svma.checked_add(number.checked_mul(size)?)?;
        let to = x86_jump(file.machine, start, stub, got)?;
        Some(Jump {
            start,
            end: start.checked_add(size)?,
            to,
        })
    });
    jumps.collect()
}

fn x86_jump(machine: u16, start: u64, stub: &[u8], got: u64) -> Option<To> {
    let number = |at: usize| {
        let bytes = stub.get(at..at.checked_add(4)?)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes))
    };
    let signed = |value: u32| i64::from(value.cast_signed()).cast_unsigned();
    for at in 0..stub.len().saturating_sub(5) {
        let (Some(&first), Some(&second)) = (stub.get(at), stub.get(at + 1)) else {
            break;
        };
        let slot = match (first, second) {
            // jmp *slot(%rip)
            (0xff, 0x25) if machine == X86_64 => {
                let behind = start.wrapping_add(at as u64 + 6);
                behind.wrapping_add(signed(number(at + 2)?))
            }
            // jmp *slot
            (0xff, 0x25) => number(at + 2)?.into(),
            // jmp *slot(%ebx)
            (0xff, 0xa3) if machine == I386 => got.wrapping_add(signed(number(at + 2)?)),
            _ => continue,
        };
        return Some(To::Slot(slot));
    }
    // endbr64; push $number; jmp to the first stub: the half of an IBT stub that lazy binding begins in. lld lets a
    // plain stub begin in this way too.
    let endbr = [0xf3, 0x0f, 0x1e, 0xfa];
    let push = if stub.starts_with(&endbr) { 4 } else { 0 };
    (stub.get(push) == Some(&0x68) && machine == X86_64)
        .then(|| number(push + 1).map(To::Number))
        .flatten()
}

/// `adrp x16, page; ldr x17, [x16, #offset]`, with `bti c` before where branches are protected.
fn arm64_jumps(svma: u64, code: &[u8]) -> Vec<Jump> {
    let words: Vec<u32> = code
        .chunks_exact(4)
        .filter_map(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?)))
        .collect();
    let mut jumps = Vec::new();
    for (number, pair) in (0u64..).zip(words.windows(2)) {
        let [adrp, ldr] = *pair else { continue };
        if adrp & 0x9f00_001f != 0x9000_0010 || ldr & 0xffc0_03ff != 0xf940_0211 {
            continue;
        }
        let Some(at) = svma.checked_add(number * 4) else {
            continue;
        };
        let pages = (adrp >> 29 & 3 | (adrp >> 5 & 0x7_ffff) << 2) << 11;
        let distance = i64::from(pages.cast_signed() >> 11) << 12;
        let page = (at & !0xfff).wrapping_add(distance.cast_unsigned());
        let slot = page.wrapping_add(u64::from(ldr >> 10 & 0xfff) * 8);
        let before = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
        let protected = before.and_then(|before| words.get(before)) == Some(&0xd503_245f);
        jumps.push(Jump {
            start: if protected { at - 4 } else { at },
            end: at.saturating_add(if protected { 20 } else { 16 }),
            to: To::Slot(slot),
        });
    }
    jumps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the jump of each kind of x86-64 stub: plain, behind endbr64 and bnd, and the lazy half.
    #[test]
    fn x86_stubs() {
        let slot = |stub: &[u8]| match x86_jump(X86_64, 0x1000, stub, 0) {
            Some(To::Slot(address)) => Some(address),
            _ => None,
        };
        assert_eq!(slot(&[0xff, 0x25, 0x10, 0, 0, 0, 0x66, 0x90]), Some(0x1016));
        let ibt = [
            0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0xf0, 0xff, 0xff, 0xff, 0,
        ];
        assert_eq!(slot(&ibt), Some(0xffb));
        let lazy = [
            0xf3, 0x0f, 0x1e, 0xfa, 0x68, 7, 0, 0, 0, 0xf2, 0xe9, 0, 0, 0, 0, 0x90,
        ];
        assert!(matches!(
            x86_jump(X86_64, 0x1000, &lazy, 0),
            Some(To::Number(7))
        ));
        assert!(x86_jump(X86_64, 0x1000, &[0x90; 16], 0).is_none());
    }

    /// Check an arm64 stub, without and with `bti c`: page 0x11000 (one page on), offset 0x18.
    #[test]
    fn arm64_stubs() {
        let words: [u32; 4] = [0xb000_0010, 0xf940_0e11, 0x9100_6210, 0xd61f_0220];
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let jumps = arm64_jumps(0x10040, &code);
        assert_eq!(
            (jumps.len(), jumps[0].start, jumps[0].end),
            (1, 0x10040, 0x10050)
        );
        assert!(matches!(jumps[0].to, To::Slot(0x11018)));
        let protected = [&0xd503_245f_u32.to_le_bytes()[..], &code].concat();
        let jumps = arm64_jumps(0x10040, &protected);
        assert_eq!((jumps[0].start, jumps[0].end), (0x10040, 0x10058));
    }
}
