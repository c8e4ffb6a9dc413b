//! Any bytes as call frame information and as a stack: each stack ends in a stated way, within the limits, and the same
//! way whatever else is unwound with it.
#![no_main]

#[allow(dead_code)]
#[path = "../../symbolizer/killer_elf.rs"]
mod killer_elf;

use std::path::Path;

use killer_elf::{Elf, TEXT};
use libfuzzer_sys::fuzz_target;
use rawstack_format::id::FileOffset;
use rawstack_format::record::{Module, Segment};
use rawstack_symbolizer::debug_file::elf::ElfFile;
use rawstack_symbolizer::debug_file::locate::ModuleFiles;
use rawstack_symbolizer::debug_file::mmap::FileBytes;
use rawstack_symbolizer::unwind::{
    AddressSpace, CopiedStack, MAX_FRAMES, Machine, Mapped, Registers, StackMemory, Unwinder, Unwound,
};

const SECTIONS: [&str; 3] = [".eh_frame", ".eh_frame_hdr", ".debug_frame"];
const STACK: u64 = 0x7fff_0000_0000;
/// Addresses of the code, so that bytes of the input can be return addresses.
const CODE: u64 = 0x1000;

fn unwinder(file: &[u8]) -> (Unwinder, AddressSpace) {
    let file = ElfFile::parse(Path::new("fuzzed"), FileBytes::from(file.to_vec())).expect("the headers are sound");
    let segment = Segment { offset: FileOffset(0), vaddr: TEXT, file_size: 0x1000, flags: 5 };
    let module = Module { segments: vec![segment], page_size: 4096, ..Module::default() };
    let mut unwinder = Unwinder::new();
    let id = unwinder.add(module, ModuleFiles::given(file));
    let mapped = Mapped { start: CODE, end: CODE + 0x1000, offset: 0, module: Some(id) };
    (unwinder, AddressSpace::new([mapped]))
}

fuzz_target!(|input: &[u8]| {
    // How long each section is, where the leaf is, and where the frame pointer points; the stack takes the rest.
    let Some((head, mut rest)) = input.split_first_chunk::<10>() else { return };
    let (words, _) = head.as_chunks::<2>();
    let word = |number: usize| u16::from_le_bytes(words[number]);
    let mut elf = Elf::new().symbol(b"_start", TEXT, 0x100);
    for (number, name) in SECTIONS.iter().enumerate() {
        let (content, behind) = rest.split_at(usize::from(word(number)).min(rest.len()));
        elf = elf.debug(name, content, 2);
        rest = behind;
    }
    let file = elf.bytes();
    let mut registers = Registers::new(Machine::X86_64);
    for number in 0..16 {
        registers.set(number, STACK + u64::from(word(4)));
    }
    registers.set(7, STACK);
    let parts = [(STACK, rest)];
    let told = |leaves: &[u64]| -> Vec<Unwound> {
        let (mut unwinder, space) = unwinder(&file);
        let stack = |leaf: &u64| {
            let mut registers = registers;
            registers.set(16, CODE + leaf);
            let memory = StackMemory { parts: &parts, end: STACK + rest.len() as u64, replaced: &[] };
            CopiedStack { registers, memory, space: &space }
        };
        let stacks: Vec<CopiedStack<'_>> = leaves.iter().map(stack).collect();
        unwinder.unwind_all(&stacks)
    };
    let leaf = u64::from(word(3) & 0xfff);
    let together = told(&[leaf, leaf ^ 1, leaf ^ 0x10, leaf ^ 0x100, leaf]);
    assert!(together.iter().all(|unwound| (1..=MAX_FRAMES).contains(&unwound.frames.len())));
    assert_eq!(together[0], together[4]);
    assert_eq!(told(&[leaf])[0], together[0]);
});
