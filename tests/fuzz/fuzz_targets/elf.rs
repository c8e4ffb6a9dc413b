//! Any bytes as an ELF file: headers, notes, links and symbols are read or refused.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use rawstack_symbolizer::debug_file::elf::ElfFile;
use rawstack_symbolizer::debug_file::mmap::FileBytes;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = ElfFile::parse(Path::new("fuzzed"), FileBytes::from(bytes.to_vec())) else { return };
    let _ = (file.code_ranges(), file.debug_link(), file.alternate_link());
    let _ = (file.is_debug_only(), file.has_dwarf(), file.dwarf_size());
    let mut last = 0;
    file.for_each_symbol(&mut |symbol| last = symbol.svma.max(last));
    for section in &file.sections {
        if let Ok(content) = file.debug_section(&section.name) {
            // Nothing grows beyond what is allowed for so small a file.
            assert!(content.len() <= 32 << 20);
        }
    }
});
