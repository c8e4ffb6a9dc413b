//! Any bytes as debug information: parts of the input become the sections of a program, whose code is then resolved.
//! Each address has an answer, and the same one whether it is asked for alone or with others.
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
use rawstack_symbolizer::resolve::{KernelSymbolTable, Query, ResolveOptions, Symbolizer};

const SECTIONS: [&str; 6] = ["info", "abbrev", "line", "str", "ranges", "rnglists"];

fn symbolizer() -> &'static Symbolizer {
    static SYMBOLIZER: OnceLock<Symbolizer> = OnceLock::new();
    SYMBOLIZER.get_or_init(|| Symbolizer::new(ResolveOptions { dwarf: true, origins: true }).expect("threads start"))
}

fuzz_target!(|input: &[u8]| {
    // The first bytes say how long each section is; the last one takes the rest.
    let Some((lengths, mut rest)) = input.split_first_chunk::<12>() else { return };
    let mut elf = Elf::new().symbol(b"_start", TEXT, 0x100);
    for (name, length) in SECTIONS.iter().zip(lengths.as_chunks::<2>().0) {
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (content, behind) = rest.split_at(length);
        elf = elf.debug(&format!(".debug_{name}"), content, 0);
        rest = behind;
    }
    let file = ElfFile::parse(Path::new("fuzzed"), FileBytes::from(elf.bytes())).expect("the headers are sound");
    let segment = Segment { offset: FileOffset(0), vaddr: 0, file_size: u64::MAX, flags: 1 };
    let module = Module { segments: vec![segment], page_size: 4096, ..Module::default() };
    let files = ModuleFiles::given(file);
    let all: Vec<FileOffset> = (TEXT..TEXT + 0x80).step_by(9).map(FileOffset).collect();
    let told = |offsets: &[FileOffset]| -> (Vec<String>, bool) {
        let kernel = KernelSymbolTable::default();
        let query = [Query { module: &module, files: &files, offsets, kernel: &kernel }];
        let (symbols, answered) = symbolizer().resolve(&query, &|| ());
        let answers = answered[0].answers.iter().map(|answer| {
            let frames = symbols.frames(answer).map(|frame| {
                let place = (symbols.strings.get(frame.place.file), frame.place.line, frame.place.column);
                format!("{} {place:?} {}", symbols.strings.get(frame.name), frame.inlined)
            });
            frames.collect::<Vec<_>>().join("\n")
        });
        (answers.collect(), answered[0].damaged)
    };
    let (together, damaged) = told(&all);
    assert_eq!(together.len(), all.len());
    // Where limits were met, what is read first may win.
    if !damaged {
        let (alone, _) = told(&all[5..6]);
        assert_eq!(alone[0], together[5]);
    }
});
