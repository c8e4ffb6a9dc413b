//! The stubs through which a program calls into libraries, by the name of what they call.
//!
//! A stub jumps through a word of the GOT, and a relocation says which symbol the loader puts there. So a stub is known
//! by what it does, whichever of the linker's layouts it lies in (`.plt`, `.plt.sec`, `.plt.got`).

use std::collections::HashMap;

use object::read::elf::{ElfFile, FileHeader};
use object::read::{ReadRef, RelocationTarget};
use object::{Architecture, Endianness, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable};

use super::symbols::Function;

/// Sections longer than this are no stubs, in bytes.
const MAX_SECTION: u64 = 16 << 20;
/// Stubs are aligned to this, and as long at least.
const STUB: usize = 16;

/// Each stub as `NAME@plt`.
pub(crate) fn entries<'data, H, R>(file: &ElfFile<'data, H, R>) -> Vec<Function>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let decode = match file.architecture() {
        Architecture::X86_64 => x86_64_target as fn(&[u8], u64) -> Option<u64>,
        Architecture::Aarch64 => aarch64_target,
        _ => return Vec::new(),
    };
    let slots = slots(file);
    let mut found = Vec::new();
    for section in [".plt", ".plt.sec", ".plt.got"] {
        let Some(section) = file.section_by_name(section) else {
            continue;
        };
        let Some(code) = section
            .data()
            .ok()
            .filter(|_| section.size() <= MAX_SECTION)
        else {
            continue;
        };
        for (address, stub) in (section.address()..).step_by(STUB).zip(code.chunks(STUB)) {
            let name = decode(stub, address).and_then(|slot| slots.get(&slot));
            found.extend(name.map(|name| Function {
                name: format!("{name}@plt"),
                address,
                ..Function::default()
            }));
        }
    }
    // `.plt` binds lazily and `.plt.sec` is what is called; where both are there only the second jumps by a slot.
    found
}

/// Words of the GOT with the symbol that goes there.
fn slots<'data, H, R>(file: &ElfFile<'data, H, R>) -> HashMap<u64, String>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let Some(symbols) = file.dynamic_symbol_table() else {
        return HashMap::new();
    };
    let relocations = file.dynamic_relocations().into_iter().flatten();
    relocations
        .filter_map(|(address, relocation)| {
            let RelocationTarget::Symbol(index) = relocation.target() else {
                return None;
            };
            let name = symbols.symbol_by_index(index).ok()?.name().ok()?;
            (!name.is_empty()).then(|| (address, name.to_owned()))
        })
        .collect()
}

/// `jmp *SLOT(%rip)`, behind an `endbr64` or `bnd` where there is one.
fn x86_64_target(stub: &[u8], address: u64) -> Option<u64> {
    let at = stub.windows(2).position(|pair| pair == [0xff, 0x25])?;
    // Only what may stand before it: else these bytes are part of another instruction.
    if !matches!(
        &stub[..at],
        [] | [0xf2] | [0xf3, 0x0f, 0x1e, 0xfa] | [0xf3, 0x0f, 0x1e, 0xfa, 0xf2]
    ) {
        return None;
    }
    let distance = i32::from_le_bytes(*stub.get(at + 2..)?.first_chunk()?);
    let next = address.checked_add(at as u64 + 6)?;
    next.checked_add_signed(distance.into())
}

/// `adrp x16, PAGE; ldr x17, [x16, OFFSET]`, behind a `bti c` where there is one.
fn aarch64_target(stub: &[u8], address: u64) -> Option<u64> {
    const BTI_C: u32 = 0xd503_245f;
    let words: Vec<u32> = stub
        .as_chunks::<4>()
        .0
        .iter()
        .map(|word| u32::from_le_bytes(*word))
        .collect();
    let first = usize::from(words.first() == Some(&BTI_C));
    let (&adrp, &ldr) = (words.get(first)?, words.get(first + 1)?);
    if adrp & 0x9f00_001f != 0x9000_0010 || ldr & 0xffc0_03ff != 0xf940_0211 {
        return None;
    }
    let immediate = u64::from(adrp >> 5 & 0x7_ffff) << 2 | u64::from(adrp >> 29 & 3);
    // 21 bits with a sign, in pages.
    let pages = (immediate << 43).cast_signed() >> 43 << 12;
    let page = (address + first as u64 * 4) & !0xfff;
    let offset = u64::from(ldr >> 10 & 0xfff) * 8;
    page.checked_add_signed(pages)?.checked_add(offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check stubs of three layouts against what objdump says they jump by.
    #[test]
    fn x86_64_stubs() {
        let plain = [
            0xff, 0x25, 0xca, 0x2f, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0xe0, 0xff, 0xff, 0xff,
        ];
        assert_eq!(x86_64_target(&plain, 0x1030), Some(0x4000));
        let secure = [
            0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0x76, 0x2f, 0, 0, 0x66, 0x0f, 0x1f, 0x44, 0, 0,
        ];
        assert_eq!(x86_64_target(&secure, 0x1050), Some(0x3fd0));
        let header = [
            0xff, 0x35, 0xca, 0x2f, 0, 0, 0xff, 0x25, 0xcc, 0x2f, 0, 0, 0x0f, 0x1f, 0x40, 0,
        ];
        assert_eq!(x86_64_target(&header, 0x1020), None);
        (0..16).for_each(|end| _ = x86_64_target(&secure[..end], 0));
    }

    /// Check a stub with a page ahead of it and one behind.
    #[test]
    fn aarch64_stubs() {
        let stub = |words: [u32; 4]| words.map(u32::to_le_bytes).concat();
        // 0x610: adrp x16, 0x1f000; ldr x17, [x16, #0xfa8]
        let ahead = stub([0xf000_00f0, 0xf947_d611, 0x913e_a210, 0xd61f_0220]);
        assert_eq!(aarch64_target(&ahead, 0x610), Some(0x1f000 + 0xfa8));
        // 0x20004: bti c at 0x20000; adrp x16, 0x1f000
        let behind = stub([0xd503_245f, 0xf0ff_fff0, 0xf947_d611, 0xd61f_0220]);
        assert_eq!(aarch64_target(&behind, 0x20000), Some(0x1f000 + 0xfa8));
        assert_eq!(aarch64_target(&stub([0; 4]), 0), None);
    }
}
