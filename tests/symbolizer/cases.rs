//! Cases that some resolver of addresses is known to get wrong, each with what is right and the test that holds it.
//!
//! | case | right answer | test |
//! |---|---|---|
//! | file offset ≠ address (`--rosegment`, gaps) | by the segment that holds the offset | `oracle::every_address` (c-clang-gaps), [`odd_layouts`] |
//! | offset in the `.bss` tail of an earlier segment | sizes in the file, executable segments first | [`odd_layouts`] |
//! | mapping that starts before its segment | page size of the recorded host | `file_offset::tests::page_before_segment` |
//! | several mappings of the first page (mold) | the offset decides | [`odd_layouts`] |
//! | first segment not at 0, no PIE | nothing is assumed of bases | [`odd_layouts`] |
//! | offset printed within a function | from the function's start, never from the file's | not printed at all |
//! | frames without build ID | by the recorded mapping | `e2e::names`, `rules::by_content_hash` |
//! | code moved to huge pages (anonymous) | of the file around it | not done: told as anonymous |
//! | " (deleted)" behind a path | no part of it | [`deleted_file`] |
//! | call that never returns | the byte before the return address | `rules::call_that_never_returns` |
//! | frame under a signal handler | as it is, the trampoline too | `rules::interrupted_by_a_signal` |
//! | dead functions at 0 | name nothing | `rules::dead_functions_at_zero`, [`dropped_functions`] |
//! | ranges of dead functions (0, 1, -1, -2) | ignored, neighbours count | [`dropped_functions`] |
//! | line programs of dead functions | ignored, neighbours count | [`dropped_functions`] |
//! | end of a sequence, line 0 | per sequence; line 0 is no line | `oracle::every_address`, [`dropped_functions`] |
//! | empty, backward and outside ranges | clipped to the function around them | [`ranges_outside_of_their_function`] |
//! | `startx_length` beside a base address | not rebased | [`dropped_functions`] (clang, DWARF 5) |
//! | split units: indexed addresses, moved files | by the skeleton's base, from each place | `pieces::split_units`, `pieces::split_unit_missing` |
//! | packages of both versions, with no slot; a unit that names itself | read, passed over, ended | `pieces::split_units`, [`package_without_slots`], `pieces::split_unit_names_itself` |
//! | inlined across units | names relative to the origin's unit | `oracle::every_address` (cpp-gcc-lto) |
//! | partial units, alternate file, relative link | from the alternate file | `pieces::shared_debug_information` |
//! | origins in a circle | end, the symbol names | [`origins_in_a_circle`] |
//! | aranges missing, partial, damaged | the units' own ranges | [`partial_aranges`] |
//! | lines without functions (assembly) | the symbol with the line | `rules::assembly_with_lines` |
//! | file number 0, by version | own file in 5, none before | `oracle::every_address` |
//! | inlined in several ranges | one function | `oracle::every_address` |
//! | line tables only, short names | the symbol's full name | [`lines_only`] |
//! | functions folded into one (ICF) | one name, always the same | [`folded_functions`] |
//! | symbol within a symbol | the innermost that contains the address | `rules::nested_symbols` |
//! | symbols without size, absolute, mapping symbols | bounded; none; none | `symbols_only::symbols_without_size`, [`odd_symbols`] |
//! | aliases | sized, strong, global, fewer `_`, longer | `elf_symbols::tests::alias_order`, [`odd_symbols`] |
//! | `.cold` parts | the function's own name | `oracle::every_address` (c-gcc-*) |
//! | stubs | by the slot of the decoded jump | `symbols_only::stubs_of_each_linker` |
//! | stripped program and debug file, packed symbols | the union | `pieces::union_of_two_files`, `pieces::packed_symbols` |
//! | debuglink absent, to itself, without build ID | goes on; ends; checksum | `places::debuglink_of_another_build` |
//! | two files of one build | the richer | `pieces::richer_file_wins` |
//! | KASLR | distances from `_stext` | `rules::vmlinux_by_build_id` |
//! | kernel modules | sections where they were | `kernel::module_by_its_sections` |
//! | vDSO | bytes of the recorded kernel | `rules::vdso_from_the_archive` |
//! | perf maps, jitdumps | the latest, by time | `e2e::jit` |
//! | compression bombs | refused, symbols answer | `hostile::compression_bomb` |
//! | names that are no UTF-8 | shown, with the byte replaced | [`odd_symbols`] |
//! | names that no demangler knows | the raw name | `demangle::tests` |
//! | libraries moved by prelink | by the distance of their code | `offline::moved_library` |
//! | segments of a debug file | never used: the recorded ones | `offline::in_an_empty_root` |

use std::fs;
use std::path::Path;

use rawstack_symbolizer::debug_file::elf::ElfFile;
use serde_json::Value;

use super::archive::Archive;
use super::fixtures::{sources, tool};
use super::offline::recorded;
use super::pieces::{ask, assert_same, compile, text};
use super::run::succeed;

/// A program with a second executable segment behind its `.bss`.
const TWO_SEGMENTS: &str = "
    static char big[1 << 20];
    __attribute__((section(\".late\"), noinline)) int late(int n) { return n * 3 + big[n]; }
    __attribute__((noinline)) int early(int n) { return late(n) - 1; }
    int main(int argc, char **argv) { big[0] = 1; return early(argc); }
";

/// Check that each byte of the code has the same answer by its offset in the file as by its address, however the linker
/// lays the file out; sections tell which offset belongs to which address.
#[test]
fn odd_layouts() {
    let work = tempfile::tempdir().unwrap();
    fs::write(work.path().join("two.c"), TWO_SEGMENTS).unwrap();
    let layouts: [(&str, &[&str]); 7] = [
        ("gcc", &["-fuse-ld=mold"]),
        ("gcc", &["-fuse-ld=mold", "-no-pie"]),
        ("gcc", &["-no-pie", "-Wl,-Ttext-segment=0x7000000"]),
        ("gcc", &["-no-pie", "-Wl,--section-start=.late=0x900000"]),
        (
            "gcc",
            &[
                "-no-pie",
                "-Wl,--section-start=.late=0x900000,-z,max-page-size=0x200000",
            ],
        ),
        (
            "clang",
            &["-fuse-ld=lld", "-no-pie", "-Wl,--image-base=0x10000000"],
        ),
        (
            "clang",
            &[
                "-fuse-ld=lld",
                "-Wl,--rosegment,-z,separate-loadable-segments",
            ],
        ),
    ];
    for (compiler, options) in layouts {
        let args = [&["-O1", "-g", "two.c", "-o", "two"], options].concat();
        compile(work.path(), compiler, &args);
        let file = ElfFile::open(&work.path().join("two")).unwrap();
        let (mut addresses, mut offsets) = (Vec::new(), Vec::new());
        for name in [".text", ".late"] {
            let section = file.section(name).unwrap();
            addresses.extend(section.svma..section.svma + section.size);
            offsets.extend(section.offset..section.offset + section.size);
        }
        let (by_address, _) = ask(work.path(), &["--file", "two"], &addresses);
        let (by_offset, _) = ask(work.path(), &["--file", "two", "--offsets"], &offsets);
        assert_same(&format!("{compiler} {options:?}"), &by_address, &by_offset);
        for name in ["main", "early", "late"] {
            let named = by_offset.iter().filter(|answer| answer[0]["name"] == name);
            assert!(named.count() > 3, "{name}: {compiler} {options:?}");
        }
    }
}

/// Functions of which the linker drops every other one, with an inlined one in several ranges.
const HALF_DEAD: &str = "
    volatile int sink;
    static inline __attribute__((always_inline)) int twist(int n) { if (n > 5) sink += n; return n * 7 ^ sink; }
    int live_a(int n) { sink = twist(n); return twist(n + 1) + 1; }
    int dead_a(int n) { sink = twist(n) * 3; for (int i = 0; i < n; i++) sink += twist(i); return sink; }
    int live_b(int n) { for (int i = 0; i < n; i++) sink ^= twist(i); return sink; }
    int dead_b(int n) { return dead_a(n) + twist(n) - 5; }
    int main(int argc, char **argv) { return live_a(argc) + live_b(argc); }
";

/// The answers for all bytes of the functions of a program that are in `names`.
fn by_function(folder: &Path, program: &str, names: &[&str]) -> Vec<Value> {
    let file = ElfFile::open(&folder.join(program)).unwrap();
    let mut addresses = Vec::new();
    for wanted in names {
        let before = addresses.len();
        file.for_each_symbol(&mut |symbol| {
            if symbol.name == wanted.as_bytes() && addresses.len() == before {
                addresses.extend(symbol.svma..symbol.svma + symbol.size);
            }
        });
        assert!(addresses.len() > before, "{wanted} in {program}");
    }
    ask(folder, &["--file", program], &addresses).0
}

/// Check that each live function has the same answers beside dropped ones as in the same program with nothing dropped, and
/// that no address of the code is named after a dropped one: compilers, versions of DWARF and linkers leave other traces.
#[test]
fn dropped_functions() {
    let work = tempfile::tempdir().unwrap();
    fs::write(work.path().join("half.c"), HALF_DEAD).unwrap();
    let live = ["live_a", "live_b", "main"];
    for compiler in ["gcc", "clang"] {
        for version in ["-gdwarf-3", "-gdwarf-4", "-gdwarf-5"] {
            let object = [
                "-O2",
                "-g",
                version,
                "-ffunction-sections",
                "-fno-inline-functions",
            ];
            compile(
                work.path(),
                compiler,
                &[&object[..], &["-c", "half.c", "-o", "half.o"]].concat(),
            );
            compile(work.path(), "gcc", &["half.o", "-o", "whole"]);
            let whole = by_function(work.path(), "whole", &live);
            assert!(
                whole.iter().any(|answer| answer[1]["name"] == "live_b"),
                "{compiler}"
            );
            for linker in ["bfd", "gold", "lld", "mold"] {
                let what = format!("{compiler} {version} {linker}");
                let which = format!("-fuse-ld={linker}");
                compile(
                    work.path(),
                    "gcc",
                    &["half.o", "-Wl,--gc-sections", &which, "-o", "half"],
                );
                assert_same(&what, &whole, &by_function(work.path(), "half", &live));
                let code = text(&work.path().join("half"), 1);
                let low: Vec<u64> = (0..0x400).collect();
                for addresses in [code, low] {
                    let (answers, _) = ask(work.path(), &["--file", "half"], &addresses);
                    let dead = |frame: &Value| frame["name"].as_str().unwrap().starts_with("dead");
                    let is_dead = |answer: &Value| answer.as_array().unwrap().iter().any(dead);
                    assert!(!answers.iter().any(is_dead), "{what}");
                }
            }
        }
    }
}

/// Check that functions of units which `.debug_aranges` leaves out, or describes wrongly, are found all the same: clang
/// writes none, and one damaged entry must not cost the others.
#[test]
fn partial_aranges() {
    let work = tempfile::tempdir().unwrap();
    fs::copy(sources().join("work.c"), work.path().join("work.c")).unwrap();
    fs::write(
        work.path().join("half.c"),
        HALF_DEAD.replace("main", "half_main"),
    )
    .unwrap();
    let script = "
        set -e
        gcc -O2 -g -c work.c -o work.o
        clang -O2 -g -c half.c -o half.o
        gcc -no-pie work.o half.o -o mixed
        objcopy --remove-section=.debug_aranges mixed none
    ";
    compile(work.path(), "bash", &["-c", script]);
    let functions = ["main", "live_a", "dead_a", "live_b", "dead_b"];
    let mixed = by_function(work.path(), "mixed", &functions);
    assert!(mixed.iter().all(|answer| !answer[0]["file"].is_null()));
    assert_same(
        "none",
        &mixed,
        &by_function(work.path(), "none", &functions),
    );
    let file = ElfFile::open(&work.path().join("mixed")).unwrap();
    let section = file.section(".debug_aranges").unwrap();
    // The first entry: behind a header of 12 bytes, padded to 16. Its length, then its start.
    for place in [24, 16] {
        let mut bytes = fs::read(work.path().join("mixed")).unwrap();
        let at = usize::try_from(section.offset).unwrap() + place;
        bytes[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        fs::write(work.path().join("damaged"), bytes).unwrap();
        let damaged = by_function(work.path(), "damaged", &functions);
        assert_same("damaged", &mixed, &damaged);
    }
}

/// Debug information by hand: a unit with the entries of `body` below it.
fn by_hand(folder: &Path, body: &str) {
    let source = format!(
        "
        .text
        .globl _start, second
        .type _start, @function
        .type second, @function
        _start: .skip 16, 0x90
        .size _start, 16
        second: .skip 16, 0x90
        .size second, 16
        .section .debug_abbrev
        .uleb128 1; .uleb128 0x11; .byte 1; .uleb128 0x11; .uleb128 1; .uleb128 0x12; .uleb128 7; .byte 0, 0
        .uleb128 2; .uleb128 0x2e; .byte 1; .uleb128 3; .uleb128 8; .uleb128 0x11; .uleb128 1; .uleb128 0x12; .uleb128 7; .byte 0, 0
        .uleb128 3; .uleb128 0x1d; .byte 0; .uleb128 0x31; .uleb128 0x13; .uleb128 0x11; .uleb128 1; .uleb128 0x12; .uleb128 7; .byte 0, 0
        .uleb128 4; .uleb128 0x2e; .byte 0; .uleb128 0x31; .uleb128 0x13; .uleb128 0x11; .uleb128 1; .uleb128 0x12; .uleb128 7; .byte 0, 0
        .uleb128 5; .uleb128 0x2e; .byte 0; .uleb128 3; .uleb128 8; .byte 0, 0
        .uleb128 6; .uleb128 0x2e; .byte 0; .uleb128 0x31; .uleb128 0x13; .byte 0, 0
        .byte 0
        .section .debug_info
        start: .long end - begin
        begin: .value 4
        .long 0
        .byte 8
        .uleb128 1; .quad _start; .quad 32
        {body}
        .byte 0
        end:
        "
    );
    fs::write(folder.join("hand.s"), source).unwrap();
    let args = [
        "-nostdlib",
        "-static",
        "-Wl,-Ttext=0x401000",
        "hand.s",
        "-o",
        "hand",
    ];
    compile(folder, "gcc", &args);
}

fn names(answers: &[Value]) -> Vec<Vec<&str>> {
    answers
        .iter()
        .map(|answer| {
            let frames = answer.as_array().unwrap().iter();
            frames
                .map(|frame| frame["name"].as_str().unwrap())
                .collect()
        })
        .collect()
}

/// Check that an inlined function which claims code outside of the function around it keeps what is inside, that an empty
/// and a backward range claim nothing, and that the next function is untouched.
#[test]
fn ranges_outside_of_their_function() {
    let work = tempfile::tempdir().unwrap();
    let body = "
        inner: .uleb128 5; .string \"inner\"
        empty: .uleb128 5; .string \"empty\"
        .uleb128 2; .string \"first\"; .quad _start; .quad 16
        .uleb128 3; .long empty - start; .quad _start; .quad 0
        .uleb128 3; .long empty - start; .quad _start + 4; .quad -2
        .uleb128 3; .long inner - start; .quad _start + 8; .quad 16
        .byte 0
        .uleb128 2; .string \"second\"; .quad second; .quad 16
        .byte 0
    ";
    by_hand(work.path(), body);
    let (answers, _) = ask(
        work.path(),
        &["--file", "hand"],
        &[0x401000, 0x401004, 0x40100a, 0x401012, 0x40101c],
    );
    let first = vec!["first"];
    let expected = [
        first.clone(),
        first.clone(),
        vec!["inner", "first"],
        vec!["second"],
        vec!["second"],
    ];
    // What goes backward ends at the end of memory; the rest of the function is then inside of it, or outside.
    let told = names(&answers);
    assert_eq!(told[0], expected[0]);
    assert_eq!(told[3..], expected[3..]);
    assert_eq!(*told[2].last().unwrap(), "first");
}

/// Check that a function whose origin is itself, or two that are each other's, end, and that symbols name them.
#[test]
fn origins_in_a_circle() {
    let work = tempfile::tempdir().unwrap();
    let body = "
        one: .uleb128 4; .long one - start; .quad _start; .quad 16
        two: .uleb128 6; .long three - start
        three: .uleb128 6; .long two - start
        .uleb128 4; .long two - start; .quad second; .quad 16
    ";
    by_hand(work.path(), body);
    let (answers, _) = ask(work.path(), &["--file", "hand"], &[0x401004, 0x401014]);
    assert_eq!(names(&answers), [["_start"], ["second"]]);
}

/// Check that with line tables only, and with short names in the debug information, functions have the full names of their
/// symbols, as llvm-symbolizer gives them.
#[test]
fn lines_only() {
    let work = tempfile::tempdir().unwrap();
    fs::copy(sources().join("shapes.cpp"), work.path().join("shapes.cpp")).unwrap();
    for options in [
        &["-gline-tables-only"][..],
        &["-g", "-mllvm", "-dwarf-linkage-names=Abstract"],
        &["-g1"],
    ] {
        let args = [&["-O1", "shapes.cpp", "-o", "shapes"], options].concat();
        compile(work.path(), "clang++", &args);
        let program = work.path().join("shapes");
        let addresses = text(&program, 3);
        let (ours, _) = ask(work.path(), &["--file", "shapes"], &addresses);
        let fixed = [
            "--inlines",
            "--no-demangle",
            "--output-style=JSON",
            "-e",
            program.to_str().unwrap(),
        ];
        let mut same = 0;
        for (numbers, ours) in addresses.chunks(4096).zip(ours.chunks(4096)) {
            let numbers = numbers.iter().map(|address| format!("{address:#x}"));
            let told = tool(
                "llvm-symbolizer-19",
                fixed.map(str::to_owned).into_iter().chain(numbers),
            )
            .stdout;
            let rows: Vec<Value> = serde_json::from_slice(&told).unwrap();
            for (row, ours) in rows.iter().zip(ours) {
                let theirs = row["Symbol"].as_array().unwrap();
                let Some(ours) = ours.as_array().unwrap().last() else {
                    continue;
                };
                let last = theirs.last().unwrap();
                let (our, their) = (
                    ours["linkage_name"].as_str().unwrap(),
                    last["FunctionName"].as_str().unwrap(),
                );
                // Constructors of two kinds are one function.
                let alias = our.replace("C1", "C2").replace("D1", "D2")
                    == their.replace("C1", "C2").replace("D1", "D2");
                assert!(alias || their.is_empty(), "{options:?}: {ours} and {last}");
                same += usize::from(our.starts_with("_Z"));
            }
        }
        assert!(same > 100, "{options:?}: {same}");
    }
}

/// Check that functions which the linker folded into one have one name, the same each time and with any number of threads.
#[test]
fn folded_functions() {
    let work = tempfile::tempdir().unwrap();
    let twin = |name: &str| {
        format!("__attribute__((noinline)) int {name}(int n) {{ return n * 1234567 + 89; }}\n")
    };
    fs::write(work.path().join("a.c"), twin("twin_b") + &twin("twin_a")).unwrap();
    let main = "int twin_a(int), twin_b(int), twin_c(int);\n".to_owned()
        + &twin("twin_c")
        + "int main(int n, char **v) { return twin_a(n) + twin_b(n) * 3 + twin_c(n) * 5; }";
    fs::write(work.path().join("b.c"), main).unwrap();
    let args = [
        "-O1",
        "-g",
        "-ffunction-sections",
        "-fuse-ld=lld",
        "-Wl,--icf=all",
        "a.c",
        "b.c",
        "-o",
        "folded",
    ];
    compile(work.path(), "clang", &args);
    let file = ElfFile::open(&work.path().join("folded")).unwrap();
    let mut places = Vec::new();
    file.for_each_symbol(&mut |symbol| {
        if symbol.name.starts_with(b"twin_") {
            places.push(symbol.svma);
        }
    });
    assert_eq!(places.len(), 3);
    assert!(
        places.iter().all(|place| *place == places[0]),
        "not folded: {places:x?}"
    );
    let number = format!("{:x}", places[0] + 1);
    let first = succeed(work.path(), &["symbolize", "--file", "folded", &number]);
    assert!(first.contains(": twin_"), "{first}");
    for _ in 0..8 {
        assert_eq!(
            succeed(work.path(), &["symbolize", "--file", "folded", &number]),
            first
        );
    }
    // Without debug information it is the order of aliases: all are alike, so the alphabet decides.
    compile(work.path(), "strip", &["--strip-debug", "folded"]);
    let named = succeed(work.path(), &["symbolize", "--file", "folded", &number]);
    assert!(named.contains(": twin_a "), "{named}");
}

/// Check that an absolute symbol and a mapping symbol name no code, which of several aliases does, and that a name that is
/// no UTF-8 is shown with what it has.
#[test]
fn odd_symbols() {
    let work = tempfile::tempdir().unwrap();
    let source = "
        .text
        .globl _start, strong, __strong, marker, odd_name
        .weak weak_one
        .type _start, @function
        .type odd_name, @function
        .type strong, @function
        .type __strong, @function
        .type weak_one, @function
        .type local_one, @function
        marker = 0x401004
        _start: .skip 16, 0x90
        .size _start, 16
        mapping_symbol:
        .skip 16, 0x90
        weak_one: local_one: __strong: strong: .skip 16, 0x90
        .size weak_one, 16
        .size local_one, 16
        .size strong, 16
        .size __strong, 16
        odd_name: .skip 16, 0x90
        .size odd_name, 16
    ";
    fs::write(work.path().join("odd.s"), source).unwrap();
    let script = "
        set -e
        gcc -nostdlib -static -Wl,-Ttext=0x401000 odd.s -o plain
        objcopy --redefine-sym=mapping_symbol='$x' --redefine-sym=odd_name=$'odd\\xffname' plain odd
    ";
    compile(work.path(), "bash", &["-c", script]);
    let addresses = [0x401004, 0x401008, 0x401018, 0x401028, 0x401038];
    let (answers, _) = ask(work.path(), &["--file", "odd"], &addresses);
    let expected: [&[&str]; 5] = [
        &["_start"],
        &["_start"],
        &[],
        &["strong"],
        &["odd\u{fffd}name"],
    ];
    assert_eq!(names(&answers), expected);
}

/// Check that a package without a slot, as old tools made them of nothing, is passed over for the object file.
#[test]
fn package_without_slots() {
    let work = tempfile::tempdir().unwrap();
    fs::copy(sources().join("work.c"), work.path().join("work.c")).unwrap();
    let index = "
        .section .debug_cu_index, \"e\"
        .long 2, 0, 0, 0
    ";
    fs::write(work.path().join("index.s"), index).unwrap();
    let script = "
        set -e
        gcc -O2 -g -gdwarf-4 work.c -o whole
        gcc -O2 -g -gdwarf-4 -gsplit-dwarf -c work.c -o work.o
        gcc work.o -o split
        as index.s -o split.dwp
    ";
    compile(work.path(), "bash", &["-c", script]);
    let whole = by_function(work.path(), "whole", &["main"]);
    assert_same(
        "split",
        &whole,
        &by_function(work.path(), "split", &["main"]),
    );
    assert!(
        whole
            .iter()
            .any(|answer| answer.as_array().unwrap().len() > 1)
    );
}

/// Check that a file which was deleted while it ran is found under its name without the kernel's remark.
#[test]
fn deleted_file() {
    let work = tempfile::tempdir().unwrap();
    fs::copy(sources().join("work.c"), work.path().join("work.c")).unwrap();
    compile(
        work.path(),
        "gcc",
        &["-O2", "-g", "-Wl,--build-id", "work.c", "-o", "work"],
    );
    let program = work.path().join("work");
    let mut module = recorded(&program);
    module.path = format!("{} (deleted)", program.display());
    let start = ElfFile::open(&program)
        .unwrap()
        .section(".text")
        .unwrap()
        .offset;
    let mut archive = Archive::new();
    archive.process(1, "work", "/");
    let index = archive.module(module);
    let user = archive.user_stack(index, &[start]);
    archive.user_sample(user);
    archive.write(work.path(), "a.rawstack");
    let report = succeed(work.path(), &["report", "--csv", "a.rawstack"]);
    assert!(report.contains("main,"), "{report}");
}
