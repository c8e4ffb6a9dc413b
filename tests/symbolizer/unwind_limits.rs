//! Call frame information and stacks that are made to harm, and how their unwinding ends.

use std::path::Path;

use rawstack_format::id::FileOffset;
use rawstack_format::record::{Module, Segment};
use rawstack_symbolizer::debug_file::elf::ElfFile;
use rawstack_symbolizer::debug_file::locate::ModuleFiles;
use rawstack_symbolizer::debug_file::mmap::FileBytes;
use rawstack_symbolizer::unwind::{
    AddressSpace, Contradiction, CopiedStack, End, FoundBy, MAX_FRAMES, Machine, Mapped, ModuleId,
    Registers, StackMemory, Unwinder, Unwound,
};

use super::killer_elf::{Elf, TEXT};

/// Where the stack begins, and where the code was mapped.
const STACK: u64 = 0x7fff_0000_0000;
const CODE: u64 = 0x5555_0000_0000;
/// `def_cfa rsp, 8; offset rip, cfa-8`: what holds at a function's first instruction.
const AT_ENTRY: [u8; 5] = [0x0c, 7, 8, 0x90, 1];
/// `def_cfa rsp, 16`.
const PUSHED: [u8; 3] = [0x0c, 7, 16];

/// A `.debug_frame` with a CIE of these instructions, and a function for each of the others: 0x100 bytes from [`TEXT`].
fn table(common: &[u8], functions: &[&[u8]]) -> Vec<u8> {
    let entry = |head: &[u8], instructions: &[u8]| {
        let length = u32::try_from(head.len() + instructions.len()).unwrap();
        [&length.to_le_bytes(), head, instructions].concat()
    };
    // Version 1, no augmentation, factors 1 and -8, return address in column 16.
    let mut bytes = entry(&[0xff, 0xff, 0xff, 0xff, 1, 0, 1, 0x78, 16], common);
    for (number, instructions) in (0_u64..).zip(functions) {
        let start = TEXT + 0x100 * number;
        let head = [
            &0_u32.to_le_bytes()[..],
            &start.to_le_bytes(),
            &0x100_u64.to_le_bytes(),
        ];
        bytes.extend(entry(&head.concat(), instructions));
    }
    bytes
}

/// Unwind a stack of these words whose leaf is `at` in the code of a program with this `.debug_frame`.
fn unwind(table: &[u8], at: u64, words: &[u64]) -> Unwound {
    let elf = Elf::new()
        .symbol(b"_start", TEXT, 0x100)
        .debug(".debug_frame", table, 0);
    let file = ElfFile::parse(Path::new("made"), FileBytes::from(elf.bytes())).unwrap();
    let segment = Segment {
        offset: FileOffset(0),
        vaddr: TEXT,
        file_size: 0x1000,
        flags: 5,
    };
    let module = Module {
        segments: vec![segment],
        page_size: 4096,
        ..Module::default()
    };
    let mut unwinder = Unwinder::new();
    let id = unwinder.add(module, ModuleFiles::given(file));
    assert!(unwinder.has_tables(id));
    let space = AddressSpace::new([Mapped {
        start: CODE,
        end: CODE + 0x1000,
        offset: 0,
        module: Some(id),
    }]);
    let mut registers = Registers::new(Machine::X86_64);
    for number in 0..16 {
        registers.set(number, 0);
    }
    registers.set(7, STACK);
    registers.set(16, CODE + at);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let stack = CopiedStack {
        registers,
        memory: StackMemory {
            parts: &[(STACK, &bytes)],
            end: STACK + bytes.len() as u64,
            replaced: &[],
        },
        space: &space,
    };
    unwinder.unwind_all(&[stack]).pop().unwrap()
}

fn bad() -> End {
    End::Contradiction(Contradiction::BadRule)
}

/// Check each stated end with a table and a stack that lead to it, and how many frames come before.
#[test]
fn stated_ends() {
    let undefined: &[u8] = &[0x07, 16];
    let plain = table(&AT_ENTRY, &[&[], undefined, &PUSHED]);
    let end = |at, words: &[u64]| {
        let unwound = unwind(&plain, at, words);
        (unwound.frames.len(), unwound.end)
    };
    assert_eq!(end(0x10, &[CODE + 0x20, CODE + 0x110]), (3, End::Outermost));
    assert_eq!(end(0x10, &[CODE + 0x20, 0]), (2, End::Zero));
    assert_eq!(end(0x10, &[CODE + 0x20]), (2, End::CopyEnds));
    let unmapped = End::Contradiction(Contradiction::UnmappedCode);
    assert_eq!(end(0x10, &[CODE + 0x20, 0x1234]), (2, unmapped));
    assert_eq!(end(0x2000, &[]), (1, unmapped));
    // Behind all functions, without frame pointer.
    assert_eq!(end(0x800, &[]), (1, End::Zero));
    // A call that does not return is the last instruction of its function.
    assert_eq!(
        end(0x10, &[CODE + 0x100, CODE + 0x110]),
        (3, End::Outermost)
    );
    assert_eq!(end(0x210, &[1, CODE + 0x200]), (2, End::Outermost));
}

/// Check that a frame without unwind information is walked by its frame pointer, and that the frame found is marked.
#[test]
fn frame_pointers_are_marked() {
    let nowhere = table(&AT_ENTRY, &[&[], &[0x07, 16]]);
    let by_frame_pointer: &[u8] = &[0x0c, 7, 16, 0x86, 2];
    let with = table(&AT_ENTRY, &[by_frame_pointer, &[0x07, 16]]);
    // The leaf restores rbp, its caller at 0x900 has no rule, and that one's caller is outermost.
    let words = [STACK + 24, CODE + 0x900, 0, 0, CODE + 0x110];
    let unwound = unwind(&with, 0x10, &words);
    let by: Vec<FoundBy> = unwound.frames.iter().map(|frame| frame.by).collect();
    assert_eq!(
        by,
        [FoundBy::Registers, FoundBy::Rule, FoundBy::FramePointer]
    );
    assert_eq!(unwound.end, End::Outermost);
    let lost = unwind(&nowhere, 0x10, &[CODE + 0x900]);
    assert_eq!(lost.end, End::Zero);
}

/// Check that a word that a recorder left out, for which 1 stands, ends a stack where it is taken for a return address or for
/// a frame pointer, and as no outermost frame; and that 0 in its place may be one.
#[test]
fn left_out_words() {
    let by_frame_pointer: &[u8] = &[0x0c, 7, 16, 0x86, 2];
    let rules = table(&AT_ENTRY, &[by_frame_pointer, &[]]);
    let end = |at, words: &[u64]| {
        let unwound = unwind(&rules, at, words);
        (unwound.frames.len(), unwound.end)
    };
    let unmapped = End::Contradiction(Contradiction::UnmappedCode);
    assert_eq!(end(0x110, &[CODE + 0x120, 1]), (2, unmapped));
    assert_eq!(end(0x110, &[CODE + 0x120, 0]), (2, End::Zero));
    // The caller has no rule: the frame pointer that the leaf has saved, and what lies where it points.
    let nowhere = End::NoUnwindInfo(Some(ModuleId(0)));
    assert_eq!(end(0x10, &[1, CODE + 0x900]), (2, nowhere));
    assert_eq!(end(0x10, &[0, CODE + 0x900]), (2, End::Zero));
    let framed = |outer, found| end(0x10, &[STACK + 24, CODE + 0x900, 1, outer, found]);
    assert_eq!(framed(1, 1), (2, nowhere));
    assert_eq!(framed(1, 0), (2, End::Zero));
    assert_eq!(framed(1, CODE + 0x910), (3, nowhere));
    assert_eq!(framed(0, CODE + 0x910), (3, End::Zero));
}

/// Check that rules which lead in circles, need what is not known or do not end are told, and take no time.
#[test]
fn hostile_rules() {
    let end = |common: &[u8], function: &[u8], words: &[u64]| {
        unwind(&table(common, &[function]), 0x40, words).end
    };
    let no_progress = End::Contradiction(Contradiction::NoProgress);
    // The CFA is where the stack pointer is, and the return address below it.
    let still: &[u8] = &[0x0c, 7, 0, 0x90, 0x7f];
    assert_eq!(end(&AT_ENTRY, still, &[CODE + 0x20]), End::CopyEnds);
    let in_place: &[u8] = &[0x0c, 7, 0, 0x11, 16, 0];
    assert_eq!(end(&AT_ENTRY, in_place, &[CODE + 0x20]), no_progress);
    // By a register that is not known.
    let unknown = End::Contradiction(Contradiction::UnknownRegister);
    assert_eq!(end(&AT_ENTRY, &[0x0c, 0x20, 8], &[CODE + 0x20]), unknown);
    // An expression that jumps to itself, an unknown instruction, no return address, states without end.
    let jump: &[u8] = &[0x0f, 3, 0x2f, 0xfd, 0xff];
    assert_eq!(end(&AT_ENTRY, jump, &[CODE + 0x20]), bad());
    assert_eq!(end(&AT_ENTRY, &[0x3f], &[CODE + 0x20]), bad());
    assert_eq!(end(&[0x0c, 7, 8], &[], &[CODE + 0x20]), bad());
    assert_eq!(end(&AT_ENTRY, &[0x0a; 5000], &[CODE + 0x20]), bad());
    // Longer than is read.
    assert_eq!(end(&AT_ENTRY, &[0; 70_000], &[CODE + 0x20]), bad());
    assert_eq!(end(&[0; 70_000], &[], &[CODE + 0x20]), End::Zero);
}

/// Check that a stack of return addresses alone ends at the limit of frames.
#[test]
fn deep_stack() {
    let words = vec![CODE + 0x20; MAX_FRAMES + 10];
    let unwound = unwind(&table(&AT_ENTRY, &[&[]]), 0x10, &words);
    assert_eq!(
        (unwound.frames.len(), unwound.end),
        (MAX_FRAMES, End::TooDeep)
    );
}

/// Check that a table cut at each byte, and with each bit of its entries' heads turned, gives some end and no panic.
#[test]
fn damaged_tables() {
    let whole = table(&AT_ENTRY, &[&PUSHED, &[0x07, 16]]);
    let words = [CODE + 0x120, CODE + 0x20, CODE + 0x110];
    for cut in 1..whole.len() {
        assert!(!unwind(&whole[..cut], 0x10, &words).frames.is_empty());
    }
    for bit in 0..whole.len() * 8 {
        let mut turned = whole.clone();
        turned[bit / 8] ^= 1 << (bit % 8);
        assert!(!unwind(&turned, 0x10, &words).frames.is_empty());
    }
}
