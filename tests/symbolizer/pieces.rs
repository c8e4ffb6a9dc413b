//! Debug information in several pieces: split units, shared parts, packed symbols, compressed sections, two files of one
//! build. Each program is compared with itself as it was before it was taken apart, at every byte of its code.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rawstack_symbolizer::debug_file::elf::ElfFile;
use serde_json::Value;
use tempfile::TempDir;

use super::fixtures::{sources, tool};
use super::run::with_input;

/// Compile and link in `folder`; paths in `args` are relative to it.
pub(crate) fn compile(folder: &Path, compiler: &str, args: &[&str]) {
    let script = format!("cd {:?} && exec \"$@\"", folder.display().to_string());
    let fixed = ["-c", &script, "sh", compiler].map(OsStr::new);
    tool("sh", fixed.into_iter().chain(args.iter().map(OsStr::new)));
}

/// Addresses of the bytes of `.text`, every `step`th.
pub(crate) fn text(program: &Path, step: usize) -> Vec<u64> {
    let file = ElfFile::open(program).unwrap();
    let text = file.section(".text").unwrap();
    (text.svma..text.svma + text.size).step_by(step).collect()
}

/// What `rawstack symbolize` says of `addresses`, and on standard error.
pub(crate) fn ask(folder: &Path, args: &[&str], addresses: &[u64]) -> (Vec<Value>, String) {
    let input: String = addresses
        .iter()
        .map(|address| format!("{address:x}\n"))
        .collect();
    let args = [&["symbolize", "--json"], args].concat();
    let ran = with_input(folder, &args, &input);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let frames = |line: &str| serde_json::from_str::<Value>(line).unwrap()["frames"].clone();
    (ran.out.lines().map(frames).collect(), ran.err)
}

/// What is said of all of a program's code.
fn all(folder: &Path, args: &[&str], program: &str) -> (Vec<Value>, String) {
    ask(folder, args, &text(&folder.join(program), 1))
}

/// Fail with the first answer that differs.
pub(crate) fn assert_same(what: &str, held: &[Value], now: &[Value]) {
    assert_eq!(held.len(), now.len(), "{what}");
    for (place, (held, now)) in held.iter().zip(now).enumerate() {
        assert_eq!(held, now, "{what}, answer {place}");
    }
}

/// How many answers hold an inlined function.
fn inlined(answers: &[Value]) -> usize {
    let deep = |answer: &&Value| answer.as_array().unwrap().len() > 1;
    answers.iter().filter(deep).count()
}

const COMPILERS: [(&str, &str, &[&str]); 4] = [
    ("gcc", "work.c", &["-gdwarf-5"]),
    ("gcc", "work.c", &["-gdwarf-4"]),
    ("clang++", "shapes.cpp", &["-gdwarf-5"]),
    ("clang++", "shapes.cpp", &["-gdwarf-4"]),
];

/// A folder with the program `whole`, and `split` whose units are in `unit.dwo`.
fn split_program(compiler: &str, source: &str, version: &[&str]) -> TempDir {
    let work = tempfile::tempdir().unwrap();
    fs::copy(sources().join(source), work.path().join(source)).unwrap();
    let common = [&["-O2", "-g", "-Wl,--build-id"], version].concat();
    let whole = [&common[..], &["-c", source, "-o", "whole.o"]].concat();
    compile(work.path(), compiler, &whole);
    let split = ["-gsplit-dwarf", "-c", source, "-o", "unit.o"];
    compile(work.path(), compiler, &[&common[..], &split].concat());
    for (object, program) in [("whole.o", "whole"), ("unit.o", "split")] {
        compile(
            work.path(),
            compiler,
            &["-Wl,--build-id", object, "-o", program],
        );
    }
    work
}

/// Check that split units are found where they were compiled, beside the program, in a folder and in a package, and
/// that each gives what the undivided program gives; DWARF 4 and 5, gcc and clang.
#[test]
fn split_units() {
    for (compiler, source, version) in COMPILERS {
        let what = format!("{compiler} {version:?}");
        let work = split_program(compiler, source, version);
        let at = |path: &str| work.path().join(path);
        let (whole, _) = all(work.path(), &["--file", "whole"], "whole");
        assert!(inlined(&whole) > 20, "{what}");
        let check = |place: &str, args: &[&str]| {
            let (split, notes) = all(work.path(), args, "split");
            assert_same(&format!("{what}, {place}"), &whole, &split);
            assert_eq!(notes, "", "{what}, {place}");
        };
        check("compiled", &["--file", "split"]);
        // Elsewhere than it was compiled: the unit must not be found through the recorded folder.
        let moved = at("moved");
        fs::create_dir_all(moved.join("pieces")).unwrap();
        fs::rename(at("split"), moved.join("split")).unwrap();
        fs::rename(at("unit.dwo"), moved.join("unit.dwo")).unwrap();
        symlink(moved.join("split"), at("split")).unwrap();
        check("beside", &["--file", "moved/split"]);
        fs::rename(moved.join("unit.dwo"), moved.join("pieces/unit.dwo")).unwrap();
        check(
            "folder",
            &["--file", "moved/split", "--symbol-dir", "moved/pieces"],
        );
        let package = if version.contains(&"-gdwarf-5") {
            "llvm-dwp-19"
        } else {
            "dwp"
        };
        compile(&moved, package, &["pieces/unit.dwo", "-o", "split.dwp"]);
        fs::rename(moved.join("pieces"), at("gone")).unwrap();
        check(package, &["--file", "moved/split"]);
        fs::create_dir_all(at("packages")).unwrap();
        fs::rename(moved.join("split.dwp"), at("packages/split.dwp")).unwrap();
        check(
            "package in a folder",
            &["--file", "moved/split", "--symbol-dir", "packages"],
        );
    }
}

/// Check that a package which holds but one of a program's units answers for that one, and the other's own file for the
/// other: tools drop or refuse units of another DWARF version than the first.
#[test]
fn package_of_some_units() {
    let work = tempfile::tempdir().unwrap();
    let main = "static inline int twice(int x) { volatile int y = x * 2; return y + 1; }\nint other(int);\n\
        int work(int n) { int s = 0; for (int i = 0; i < n; i++) s += twice(i) * other(i); return s; }\n\
        int main(int c, char **v) { return v[0][work(c)]; }\n";
    let other = "static inline int thrice(int x) { volatile int y = x * 3; return y + 1; }\n\
        int other(int n) { volatile int s = 0; for (int i = 0; i < n; i++) s += thrice(i); return s; }\n";
    fs::write(work.path().join("main.c"), main).unwrap();
    fs::write(work.path().join("other.c"), other).unwrap();
    for (first, second) in [("-gdwarf-4", "-gdwarf-5"), ("-gdwarf-5", "-gdwarf-4")] {
        let build = |program: &str, split: &[&str]| {
            for (source, object, version) in
                [("main.c", "main.o", first), ("other.c", "other.o", second)]
            {
                let args = ["-O2", "-g", version, "-c", source, "-o", object];
                compile(work.path(), "gcc", &[&args, split].concat());
            }
            let args = ["-Wl,--build-id", "main.o", "other.o", "-o", program];
            compile(work.path(), "gcc", &args);
        };
        build("whole", &[]);
        build("split", &["-gsplit-dwarf"]);
        let pieces = ["main.dwo", "other.dwo", "-o", "split.dwp"];
        compile(work.path(), "dwp", &pieces);
        let packed = if first == "-gdwarf-4" {
            "main.dwo"
        } else {
            "other.dwo"
        };
        fs::remove_file(work.path().join(packed)).unwrap();
        let (whole, _) = all(work.path(), &["--file", "whole"], "whole");
        let (split, notes) = all(work.path(), &["--file", "split"], "split");
        assert!(inlined(&whole) > 5, "{first}");
        assert_same(&format!("{first} first"), &whole, &split);
        assert_eq!(notes, "", "{first} first");
    }
}

/// Check that without its split units a program still gives functions by symbols and lines by the skeleton, that a unit
/// of another build is not taken, and that it is told what is missing.
#[test]
fn split_unit_missing() {
    for (compiler, source, version) in COMPILERS {
        let work = split_program(compiler, source, version);
        let (whole, _) = all(work.path(), &["--file", "whole"], "whole");
        // A unit of the same name from other sources has another number.
        let other = "int other(int n) { return n + 1; }";
        fs::write(work.path().join("other.c"), other).unwrap();
        let args = [
            "-O2",
            "-g",
            "-gsplit-dwarf",
            "-c",
            "other.c",
            "-o",
            "unit.o",
        ];
        compile(work.path(), "gcc", &[&args[..], version].concat());
        let (split, notes) = all(work.path(), &["--file", "split"], "split");
        assert!(notes.contains("missing split debug information"), "{notes}");
        assert!(notes.contains("unit.dwo"), "{notes}");
        let place = |answer: &Value| (answer[0]["file"].clone(), answer[0]["line"].clone());
        let mut lines = 0;
        for (whole, split) in whole.iter().zip(&split) {
            assert_eq!(place(whole), place(split), "{compiler} {version:?}");
            let outermost = whole.as_array().unwrap().last();
            let known = outermost.is_some_and(|frame| frame["name"] != "");
            assert!(!known || split[0]["name"] != "", "{whole} {split}");
            lines += usize::from(known);
        }
        assert!(lines > 100);
    }
}

/// Check that a split unit which names its own object file as its split unit ends there.
#[test]
fn split_unit_names_itself() {
    let work = split_program("gcc", "work.c", &["-gdwarf-4"]);
    let at = |path: &str| work.path().join(path);
    // The program in the unit's place: a skeleton that leads to a skeleton of the same number.
    fs::copy(at("split"), at("unit.dwo")).unwrap();
    let (split, notes) = all(work.path(), &["--file", "split"], "split");
    assert!(!split.is_empty());
    assert!(notes.contains("unit.dwo"), "{notes}");
}

/// Two programs that share most of their debug information, with `dwz`: gives the folder.
fn shared_programs(version: &str) -> (TempDir, Vec<Value>) {
    let work = tempfile::tempdir().unwrap();
    fs::copy(sources().join("shapes.cpp"), work.path().join("shapes.cpp")).unwrap();
    for name in ["one", "two"] {
        let args = [
            "-O2",
            "-g",
            version,
            "-Wl,--build-id",
            "shapes.cpp",
            "-o",
            name,
        ];
        compile(work.path(), "g++", &args);
    }
    let (whole, _) = all(work.path(), &["--file", "one"], "one");
    assert!(inlined(&whole) > 100);
    fs::create_dir_all(work.path().join("debug/.dwz")).unwrap();
    let shared = ["-m", "debug/.dwz/common", "-r", "one", "two"];
    compile(work.path(), "dwz", &shared);
    let file = ElfFile::open(&work.path().join("one")).unwrap();
    let link = file.alternate_link().unwrap();
    assert_eq!(link.name, "debug/.dwz/common");
    (work, whole)
}

/// Check that what `dwz` moved to a shared file is read from there: by a relative link, by build ID in a tree and by name
/// in `.dwz`; and that without it names come from symbols, and it is told what is missing.
#[test]
fn shared_debug_information() {
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let (work, whole) = shared_programs(version);
        let at = |path: &str| work.path().join(path);
        let link = ElfFile::open(&at("one")).unwrap().alternate_link().unwrap();
        let check = |place: &str, args: &[&str]| {
            let args = [&["--file", "one"], args].concat();
            let (shared, notes) = all(work.path(), &args, "one");
            assert_same(&format!("{version}, {place}"), &whole, &shared);
            assert_eq!(notes, "", "{version}, {place}");
        };
        check("relative link", &[]);
        let id = link.build_id.to_string();
        let tree = at("tree/.build-id").join(&id[..2]);
        fs::create_dir_all(&tree).unwrap();
        fs::rename(
            at("debug/.dwz/common"),
            tree.join(format!("{}.debug", &id[2..])),
        )
        .unwrap();
        check("tree", &["--symbol-dir", "tree"]);
        fs::create_dir_all(at(".dwz")).unwrap();
        fs::rename(tree.join(format!("{}.debug", &id[2..])), at(".dwz/common")).unwrap();
        check(".dwz", &[]);
        fs::create_dir_all(at("flat")).unwrap();
        fs::rename(at(".dwz/common"), at("flat/any")).unwrap();
        check("folder", &["--symbol-dir", "flat"]);
        let (shared, notes) = all(work.path(), &["--file", "one"], "one");
        assert!(notes.contains("debug/.dwz/common (dwz)"), "{notes}");
        for (whole, shared) in whole.iter().zip(&shared) {
            let named = |answer: &Value| {
                let last = answer.as_array().unwrap().last().cloned();
                last.is_some_and(|frame| frame["name"] != "")
            };
            assert!(!named(whole) || named(shared), "{whole} {shared}");
        }
    }
}

/// A source with a function that is exported and one that is not, both without debug information.
const EXPORTED: &str = "
    #include <stdio.h>
    __attribute__((noinline)) static int hidden_function(int n) { return printf(\"%d\", n) * 3; }
    __attribute__((noinline)) int exported_function(int n) { return hidden_function(n + 1) - 7; }
";

/// Check that packed symbols (`.gnu_debugdata`) come in addition to the exported ones, not in their place: they are made
/// as Fedora makes them, without what is exported.
#[test]
fn packed_symbols() {
    let work = tempfile::tempdir().unwrap();
    fs::write(work.path().join("lib.c"), EXPORTED).unwrap();
    let script = "
        set -e
        gcc -O2 -shared -fPIC -Wl,--build-id lib.c -o whole.so
        nm -D whole.so --format=posix --defined-only | awk '{ print $1 }' | sort > exported
        nm whole.so --format=posix --defined-only | awk '$2 == \"T\" || $2 == \"t\" { print $1 }' | sort > functions
        comm -13 exported functions > keep
        ! grep -q exported_function keep
        objcopy --only-keep-debug whole.so debug
        objcopy -S --remove-section .comment --keep-symbols=keep debug mini
        xz mini
        strip -o packed.so whole.so
        objcopy --add-section .gnu_debugdata=mini.xz packed.so
        strip -o bare.so whole.so
    ";
    compile(work.path(), "bash", &["-c", script]);
    let (whole, _) = all(work.path(), &["--file", "whole.so"], "whole.so");
    let (bare, _) = all(work.path(), &["--file", "bare.so"], "whole.so");
    let (packed, _) = all(work.path(), &["--file", "packed.so"], "whole.so");
    let count = |answers: &[Value], name: &str| {
        answers
            .iter()
            .filter(|answer| answer[0]["name"] == name)
            .count()
    };
    for name in ["exported_function", "hidden_function"] {
        assert!(count(&whole, name) > 5, "{name}");
        assert_eq!(count(&packed, name), count(&whole, name), "{name}");
    }
    assert_eq!(count(&bare, "hidden_function"), 0);
    assert_same("packed", &whole, &packed);
}

/// Check that compressed sections of each kind give the same answers as plain ones.
#[test]
fn compressed_sections() {
    let work = tempfile::tempdir().unwrap();
    fs::copy(sources().join("work.c"), work.path().join("work.c")).unwrap();
    compile(work.path(), "gcc", &["-O2", "-g", "work.c", "-o", "plain"]);
    let (plain, _) = all(work.path(), &["--file", "plain"], "plain");
    assert!(inlined(&plain) > 20);
    for (kind, section) in [
        ("zlib", ".debug_info"),
        ("zlib-gnu", ".zdebug_info"),
        ("zstd", ".debug_info"),
    ] {
        let option = format!("--compress-debug-sections={kind}");
        compile(work.path(), "objcopy", &[&option, "plain", kind]);
        let file = ElfFile::open(&work.path().join(kind)).unwrap();
        let found = file.section(section).unwrap();
        assert!(found.size < file.dwarf_size(), "{kind}");
        let (compressed, _) = all(work.path(), &["--file", kind], "plain");
        assert_same(kind, &plain, &compressed);
    }
}

/// Check that a debug file without symbols and a program with nothing but symbols name together what each names alone.
#[test]
fn union_of_two_files() {
    let work = tempfile::tempdir().unwrap();
    fs::write(
        work.path().join("with.c"),
        "int main(void) { extern int without(int); return without(3); }",
    )
    .unwrap();
    fs::write(
        work.path().join("without.c"),
        "int without(int n) { return n * n; }",
    )
    .unwrap();
    let script = "
        set -e
        gcc -O1 -g -c with.c -o with.o
        gcc -O1 -c without.c -o without.o
        gcc -Wl,--build-id with.o without.o -o whole
        mkdir debug program
        strip --strip-debug -o program/whole whole
        objcopy --only-keep-debug whole debug/whole.debug
        objcopy --strip-symbol=without --strip-symbol=main debug/whole.debug
    ";
    compile(work.path(), "bash", &["-c", script]);
    let (whole, _) = all(work.path(), &["--file", "whole"], "whole");
    let program = ["--file", "program/whole"];
    let (alone, _) = all(work.path(), &program, "whole");
    let (union, _) = all(
        work.path(),
        &[&program[..], &["--symbol-dir", "debug"]].concat(),
        "whole",
    );
    assert_same("union", &whole, &union);
    assert!(whole.iter().any(|answer| answer[0]["name"] == "without"));
    assert!(whole.iter().any(|answer| answer[0]["line"] == 1));
    assert!(alone.iter().all(|answer| answer[0]["line"].is_null()));
}

/// Check that of two files with one build ID the one with more debug information is read, whichever comes first.
#[test]
fn richer_file_wins() {
    let work = tempfile::tempdir().unwrap();
    fs::copy(sources().join("work.c"), work.path().join("work.c")).unwrap();
    let build = |name: &str, debug: &str| {
        let id = "-Wl,--build-id=0x5ec0ffee5ec0ffee";
        compile(
            work.path(),
            "gcc",
            &["-O2", debug, id, "work.c", "-o", name],
        );
    };
    build("full", "-g");
    build("lines", "-g1");
    let (full, _) = all(work.path(), &["--file", "full"], "full");
    let (lines, _) = all(work.path(), &["--file", "lines"], "full");
    assert!(inlined(&full) > 20 && full != lines);
    for (first, second) in [("full", "lines"), ("lines", "full")] {
        let folder = work.path().join(first).with_extension("first");
        fs::create_dir_all(&folder).unwrap();
        let copy = |from: &str, to: &str| -> PathBuf {
            fs::copy(work.path().join(from), folder.join(to)).unwrap();
            folder.join(to)
        };
        copy(first, "1");
        copy(second, "2");
        let args = [
            "--build-id",
            "5ec0ffee5ec0ffee",
            "--symbol-dir",
            folder.to_str().unwrap(),
        ];
        let (found, _) = all(work.path(), &args, "full");
        assert_same(first, &full, &found);
    }
}
