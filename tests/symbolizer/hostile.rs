//! Files that were made to harm: no panic, no hang, no endless memory; the rest is still resolved.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use rawstack_format::id::FileOffset;
use rawstack_format::record::Module;
use rawstack_symbolizer::debug_file::elf::ElfFile;
use rawstack_symbolizer::debug_file::locate::{FoundBy, ModuleFiles};
use rawstack_symbolizer::debug_file::mmap::FileBytes;
use rawstack_symbolizer::resolve::{KernelSymbolTable, Query, ResolveOptions, Symbolizer};

use super::archive::{self, Archive};
use super::fixtures;
use super::run::{rawstack, succeed};

/// Resolve every 5th byte of the golden program's code through `bytes`; gives the number of named addresses.
fn resolve(symbolizer: &Symbolizer, bytes: Vec<u8>) -> usize {
    let Ok(file) = ElfFile::parse(Path::new("mutated"), FileBytes::from(bytes)) else {
        return 0;
    };
    let module = archive::golden_module();
    let mut files = ModuleFiles::default();
    let _ = (file.debug_link(), file.code_ranges(), file.is_debug_only());
    files.files.push((FoundBy::Given, file));
    let offsets: Vec<FileOffset> = (0x1000..0x10b0).step_by(5).map(FileOffset).collect();
    let kernel = KernelSymbolTable::default();
    let query = [Query {
        module: &module,
        files: &files,
        offsets: &offsets,
        kernel: &kernel,
    }];
    let (symbols, answered) = symbolizer.resolve(&query, &|| ());
    assert_eq!(answered[0].answers.len(), offsets.len());
    answered[0]
        .answers
        .iter()
        .filter(|answer| symbols.frames(answer).count() > 0)
        .count()
}

fn symbolizer() -> Symbolizer {
    Symbolizer::new(ResolveOptions {
        dwarf: true,
        origins: true,
    })
    .unwrap()
}

/// Where the interesting parts are: headers and everything that is not code.
fn golden_bytes() -> Vec<u8> {
    fs::read(fixtures::golden()).unwrap()
}

/// The program with bytes of its debug sections changed.
fn changed_debug_sections_of(mut bytes: Vec<u8>, changes: &[(prop::sample::Index, u8)]) -> Vec<u8> {
    let file = ElfFile::parse(Path::new("golden"), FileBytes::from(bytes.clone())).unwrap();
    let debug = file
        .sections
        .iter()
        .filter(|section| section.name.starts_with(".debug"));
    let places: Vec<u64> = debug
        .flat_map(|section| section.offset..section.offset + section.size)
        .collect();
    for (place, value) in changes {
        let place = usize::try_from(*place.get(&places)).unwrap();
        bytes[place] = *value;
    }
    bytes
}

/// The frames at each offset as text, and whether anything was damaged.
fn told(bytes: Vec<u8>, offsets: &[FileOffset]) -> (Vec<String>, bool) {
    let file = ElfFile::parse(Path::new("mutated"), FileBytes::from(bytes)).unwrap();
    let query = [Query {
        module: &archive::golden_module(),
        files: &ModuleFiles::given(file),
        offsets,
        kernel: &KernelSymbolTable::default(),
    }];
    let (symbols, answered) = symbolizer().resolve(&query, &|| ());
    let text = |answer| {
        let frames = symbols.frames(answer).map(|frame| {
            let file = symbols.strings.get(frame.place.file);
            let name = symbols.strings.get(frame.name);
            format!("{name} {file}:{} {}", frame.place.line, frame.inlined)
        });
        frames.collect::<Vec<_>>().join("\n")
    };
    let told = answered[0].answers.iter().map(text).collect();
    (told, answered[0].damaged)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Check that a program with bytes changed anywhere is resolved or refused, and never more.
    #[test]
    fn changed_bytes(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12)) {
        let mut bytes = golden_bytes();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        resolve(&symbolizer(), bytes);
    }

    /// Check the same where only debug sections are changed: there the damage gets through to the DWARF reader.
    #[test]
    fn changed_debug_sections(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..24)) {
        let bytes = changed_debug_sections_of(golden_bytes(), &changes);
        let named = resolve(&symbolizer(), bytes);
        // The symbol table is whole, so every address within a function still has its name.
        prop_assert!(named >= 20, "{named} names");
    }

    /// Check that an address has the same answer whether it is asked for alone or with others, whatever the debug
    /// sections hold, as long as no limit was met.
    #[test]
    fn answers_alone_and_together(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        asked in 0..36_usize,
    ) {
        let bytes = changed_debug_sections_of(golden_bytes(), &changes);
        let all: Vec<FileOffset> = (0x1000..0x10b0).step_by(5).map(FileOffset).collect();
        let (together, damaged) = told(bytes.clone(), &all);
        if !damaged {
            let (alone, _) = told(bytes, &all[asked..=asked]);
            prop_assert_eq!(&alone[0], &together[asked]);
        }
    }

    /// Check that a program cut anywhere is resolved or refused.
    #[test]
    fn cut_files(place in any::<prop::sample::Index>()) {
        let mut bytes = golden_bytes();
        bytes.truncate(place.index(bytes.len()));
        resolve(&symbolizer(), bytes);
    }
}

/// Check that an archive with any single byte changed gives an answer or a line, and never a panic.
#[test]
fn changed_archives() {
    let whole = archive::golden().bytes(true);
    let folder = tempfile::tempdir().unwrap();
    for place in (0..whole.len()).step_by(97) {
        let mut bytes = whole.clone();
        bytes[place] ^= 0x20;
        fs::write(folder.path().join("a.rawstack"), bytes).unwrap();
        for verb in ["info", "verify", "dump", "report"] {
            let ran = rawstack(folder.path(), &[verb, "a.rawstack"]);
            assert!(
                (0..=2).contains(&ran.code),
                "{verb}, byte {place}: {}",
                ran.err
            );
            assert!(
                !ran.err.contains("panicked"),
                "{verb}, byte {place}: {}",
                ran.err
            );
        }
    }
}

/// A program of `count` functions inlined into each other.
fn nested_inlines(count: usize) -> String {
    let mut source = String::from(
        "
        .text
        .globl _start
        .type _start, @function
        _start: .skip 16, 0x90
        .size _start, 16
        .section .debug_abbrev
        .uleb128 1; .uleb128 0x11; .byte 1; .uleb128 0x11; .uleb128 1; .uleb128 0x12; .uleb128 7; .byte 0, 0
        .uleb128 2; .uleb128 0x2e; .byte 1; .uleb128 3; .uleb128 8; .uleb128 0x11; .uleb128 1; .uleb128 0x12; .uleb128 7; .byte 0, 0
        .uleb128 3; .uleb128 0x1d; .byte 1; .uleb128 0x31; .uleb128 0x13; .uleb128 0x11; .uleb128 1; .uleb128 0x12; .uleb128 7; .byte 0, 0
        .byte 0
        .section .debug_info
        start: .long end - begin
        begin: .value 4
        .long 0
        .byte 8
        .uleb128 1; .quad _start; .quad 16
        function: .uleb128 2; .string \"outermost\"; .quad _start; .quad 16
        ",
    );
    for _ in 0..count {
        source.push_str(".uleb128 3; .long function - start; .quad _start; .quad 16\n");
    }
    for _ in 0..count + 2 {
        source.push_str(".byte 0\n");
    }
    source.push_str("end:\n");
    source
}

/// Check that a hundred thousand functions inlined into each other end neither the stack nor the memory, and that
/// the chain shown keeps its root.
#[test]
fn deep_inlines() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("deep.s"), folder.path().join("deep"));
    fs::write(&source, nested_inlines(100_000)).unwrap();
    let options = ["-nostdlib", "-static", "-Wl,-Ttext=0x401000", "-o"].map(AsRef::as_ref);
    fixtures::tool(
        "gcc",
        options
            .into_iter()
            .chain([program.as_os_str(), source.as_os_str()]),
    );
    let out = succeed(
        folder.path(),
        &["symbolize", "--json", "--file", "deep", "401004"],
    );
    let answer: serde_json::Value = serde_json::from_str(&out).unwrap();
    let frames = answer["frames"].as_array().unwrap();
    assert_eq!(frames.len(), 256);
    assert_eq!(frames[255]["inlined"], false);
}

/// Check that a compressed section which claims to be huge is refused, and symbols answer.
#[test]
fn compression_bomb() {
    let program = fixtures::build("c-gcc-zlib");
    let mut bytes = fs::read(&program).unwrap();
    let file = ElfFile::open(&program).unwrap();
    let section = file.section(".debug_info").unwrap();
    let size_at = usize::try_from(section.offset).unwrap() + 8;
    bytes[size_at..size_at + 8].copy_from_slice(&(1u64 << 46).to_le_bytes());
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("bomb"), bytes).unwrap();
    let mut main = 0;
    file.for_each_symbol(&mut |symbol| {
        if symbol.name == b"main" {
            main = symbol.svma;
        }
    });
    let out = succeed(
        folder.path(),
        &["symbolize", "--file", "bomb", &format!("{main:x}")],
    );
    assert!(out.contains("main at ??:0"), "{out}");
}

/// Check that a module's path leads to nothing but a regular ELF file of its identity: no device is opened, no pipe
/// waited for, no text file shown.
#[test]
fn hostile_paths() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    fixtures::tool("mkfifo", [&pipe]);
    let mut archive = Archive::new();
    archive.process(1, "x", "/");
    for path in [
        "/dev/zero",
        "/dev/stdin",
        "/etc/passwd",
        "/proc/self/mem",
        pipe.to_str().unwrap(),
        "/../../etc/passwd",
        "",
    ] {
        let module = archive.module(Module {
            path: path.to_owned(),
            ..archive::golden_module()
        });
        let user = archive.user_stack(module, &[0x1016]);
        archive.user_sample(user);
    }
    archive.write(folder.path(), "a.rawstack");
    let out = succeed(
        folder.path(),
        &["report", "a.rawstack", "--symbol-dir", "."],
    );
    assert!(!out.contains("root:"), "{out}");
}
