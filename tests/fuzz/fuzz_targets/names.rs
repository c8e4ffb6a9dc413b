//! Any bytes as the name of a symbol: it is demangled or shown as it is, never acts on a terminal, and stands in JSON so
//! that another reader gets it back.
#![no_main]

#[allow(dead_code)]
#[path = "../../symbolizer/killer_elf.rs"]
mod killer_elf;

use std::path::Path;
use std::sync::OnceLock;

use killer_elf::{Elf, TEXT};
use libfuzzer_sys::fuzz_target;
use rawstack_format::id::FileOffset;
use rawstack_format::record::{Module, Segment};
use rawstack_symbolizer::debug_file::elf::ElfFile;
use rawstack_symbolizer::debug_file::locate::ModuleFiles;
use rawstack_symbolizer::debug_file::mmap::FileBytes;
use rawstack_symbolizer::export::symbolized::{NamedNumber, NumberWriter};
use rawstack_symbolizer::resolve::{KernelSymbolTable, Query, ResolveOptions, Symbolizer};

fn symbolizer() -> &'static Symbolizer {
    static SYMBOLIZER: OnceLock<Symbolizer> = OnceLock::new();
    SYMBOLIZER.get_or_init(|| Symbolizer::new(ResolveOptions { dwarf: false, origins: false }).expect("threads start"))
}

fuzz_target!(|name: &[u8]| {
    let bytes = Elf::new().symbol(name, TEXT, 0x100).bytes();
    let file = ElfFile::parse(Path::new("fuzzed"), FileBytes::from(bytes)).expect("the headers are sound");
    let segment = Segment { offset: FileOffset(0), vaddr: 0, file_size: u64::MAX, flags: 1 };
    let path = String::from_utf8_lossy(name).into_owned();
    let module = Module { segments: vec![segment], page_size: 4096, path, ..Module::default() };
    let (files, kernel) = (ModuleFiles::given(file), KernelSymbolTable::default());
    let query = [Query { module: &module, files: &files, offsets: &[FileOffset(TEXT)], kernel: &kernel }];
    let (symbols, answered) = symbolizer().resolve(&query, &|| ());
    let answer = &answered[0].answers[0];
    let named = NamedNumber { number: TEXT, offset: None, address: Some(TEXT), answer };
    let mut line = Vec::new();
    NumberWriter::json(&symbols, true, &module).write(&named, &mut line);
    let read: serde_json::Value = serde_json::from_slice(&line).expect("a line is JSON");
    for frame in symbols.frames(answer) {
        let shown = symbols.strings.get(frame.name);
        assert!(!shown.chars().any(char::is_control));
        assert_eq!(read["frames"][0]["name"], shown);
    }
    let mut text = Vec::new();
    NumberWriter::text(&symbols, true).write(&named, &mut text);
    let text = String::from_utf8(text).expect("text is UTF-8");
    assert_eq!(text.lines().count(), 1);
});
