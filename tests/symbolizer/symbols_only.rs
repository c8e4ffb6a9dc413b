//! Names where there is no DWARF: stubs, Go's own table, symbols without size beside tables for unwinding.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::str;

use rawstack_symbolizer::debug_file::elf::ElfFile;
use serde_json::Value;

use super::fixtures::tool;
use super::offline::archive_of;
use super::pieces::{ask, assert_same, compile, text};
use super::run::succeed;

/// A program that calls functions of a library by each kind of stub: called, and also taken the address of.
const CALLS: &str = "
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
    int (*volatile taken)(const char *) = atoi;
    int main(int argc, char **argv) {
        int numbers[3] = { argc, taken(argv[0]), atoi(argv[0]) };
        qsort(numbers, 3, sizeof *numbers, compare);
        void *memory = malloc(numbers[0] + 1);
        puts(strstr(argv[0], \"x\") ? \"a\" : getenv(\"HOME\"));
        free(memory);
        return 0;
    }
";

/// Address of each stub's jump or push with the name of its slot, by binutils: objdump decodes, readelf lists slots.
fn stubs(program: &Path) -> BTreeMap<u64, String> {
    let run = |name: &str, args: &[&str]| {
        let args = args.iter().map(OsStr::new).chain([program.as_os_str()]);
        String::from_utf8(tool(name, args).stdout).unwrap()
    };
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let relocations = run("readelf", &["-rW"]);
    let mut slots = BTreeMap::new();
    let mut numbered = Vec::new();
    for line in relocations.lines() {
        // 000000004018  000100000007 R_X86_64_JUMP_SLO 0000000000000000 puts@GLIBC_2.2.5 + 0
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [offset, _, kind, _, name, "+", _] = words[..] {
            let name = name.split('@').next().unwrap().to_owned();
            if kind.contains("JUMP_SLO") {
                numbered.push(name.clone());
            }
            slots.insert(hex(offset).unwrap(), name);
        }
    }
    let mut found = BTreeMap::new();
    let code = run(
        "objdump",
        &[
            "-d",
            "--no-show-raw-insn",
            "-j",
            ".plt",
            "-j",
            ".plt.sec",
            "-j",
            ".plt.got",
        ],
    );
    let mut lazy_half = false;
    for line in code.lines() {
        // 1064:  bnd jmp *0x2f75(%rip)        # 3fe0 <puts@GLIBC_2.2.5>
        let Some((address, instruction)) = line.trim().split_once(':') else {
            continue;
        };
        let Some(address) = hex(address) else {
            continue;
        };
        if let Some((_, slot)) = instruction.split_once('#') {
            let slot = slot.split_whitespace().next().and_then(hex);
            let name = slot.and_then(|slot| slots.get(&slot));
            found.extend(name.map(|name| (address, name.clone())));
        }
        if lazy_half && let Some((_, number)) = instruction.split_once("push   $0x") {
            let name = numbered.get(usize::try_from(hex(number.trim()).unwrap()).unwrap());
            found.insert(address, name.unwrap().clone());
        }
        lazy_half = instruction.contains("endbr64");
    }
    found
}

/// Check stubs of four linkers, lazy and bound at once, with and without protected branches, in stripped programs: each
/// has the name of what it jumps to, as binutils decodes the jump and lists the slots.
#[test]
fn stubs_of_each_linker() {
    let work = tempfile::tempdir().unwrap();
    fs::write(work.path().join("calls.c"), CALLS).unwrap();
    let mut kinds = BTreeMap::new();
    for linker in ["bfd", "gold", "lld", "mold"] {
        for options in [
            &["-Wl,-z,lazy"][..],
            &["-Wl,-z,now"],
            &["-Wl,-z,lazy", "-fcf-protection=full", "-Wl,-z,ibtplt"],
            &["-Wl,-z,now", "-no-pie"],
        ] {
            if options.contains(&"-Wl,-z,ibtplt") && linker != "bfd" {
                continue;
            }
            let which = format!("-fuse-ld={linker}");
            let args = [
                &[
                    "-O1",
                    "-fno-builtin",
                    &which,
                    "calls.c",
                    "-s",
                    "-o",
                    "calls",
                ],
                options,
            ]
            .concat();
            compile(work.path(), "gcc", &args);
            let expected = stubs(&work.path().join("calls"));
            assert!(expected.len() >= 6, "{linker} {options:?}: {expected:?}");
            let addresses: Vec<u64> = expected.keys().copied().collect();
            let (answers, _) = ask(work.path(), &["--file", "calls"], &addresses);
            for ((address, name), answer) in expected.iter().zip(answers) {
                let what = format!("{linker} {options:?} {address:#x}");
                assert_eq!(answer[0]["name"], format!("{name}@plt"), "{what}");
                *kinds.entry(name.clone()).or_insert(0) += 1;
            }
        }
    }
    for name in [
        "qsort", "malloc", "puts", "strstr", "getenv", "free", "strtol",
    ] {
        assert!(
            kinds.get(name).is_some_and(|&count| count >= 12),
            "{name}: {kinds:?}"
        );
    }
}

/// Starts and names of the stubs of `.plt`, as llvm-objdump labels them, the head without a name among them.
fn labelled(folder: &Path, file: &str) -> BTreeMap<u64, String> {
    let output = Command::new("llvm-objdump-19")
        .args(["-d", "-j", ".plt", file])
        .current_dir(folder)
        .output()
        .expect("llvm-objdump-19; this test needs it: apt-get install llvm-19");
    let text = String::from_utf8(output.stdout).unwrap();
    let label = |line: &str| {
        let (address, name) = line.strip_suffix(">:")?.split_once(" <")?;
        Some((u64::from_str_radix(address, 16).ok()?, name.to_owned()))
    };
    text.lines().filter_map(label).collect()
}

/// Check the stubs of other machines that are recorded, or that run on recorded ones: 64-bit Arm, with protected branches
/// too, and 32-bit x86.
#[test]
fn stubs_of_other_machines() {
    let work = tempfile::tempdir().unwrap();
    let source = "int first(int); int second(int); int third(int);\n\
        int call(int n) { return first(n) + second(n + 1) + third(n + 2); }\n";
    fs::write(work.path().join("calls.c"), source).unwrap();
    for (target, options) in [
        ("aarch64-linux-gnu", &["-Wl,-z,lazy"][..]),
        ("aarch64-linux-gnu", &["-Wl,-z,now"]),
        (
            "aarch64-linux-gnu",
            &["-mbranch-protection=standard", "-Wl,-z,force-bti"],
        ),
        ("i386-linux-gnu", &["-Wl,-z,lazy"]),
        ("i386-linux-gnu", &["-Wl,-z,now"]),
    ] {
        let target = format!("--target={target}");
        let common = [
            "-O1",
            "-fPIC",
            "-ffreestanding",
            "-nostdlib",
            "-shared",
            "-fuse-ld=lld",
            "calls.c",
        ];
        let args = [
            &[target.as_str()],
            &common[..],
            options,
            &["-s", "-o", "calls.so"],
        ]
        .concat();
        compile(work.path(), "clang", &args);
        let expected = labelled(work.path(), "calls.so");
        let addresses: Vec<u64> = expected.keys().copied().collect();
        let (answers, _) = ask(work.path(), &["--file", "calls.so"], &addresses);
        let found: Vec<&str> = answers
            .iter()
            .map(|answer| answer[0]["name"].as_str().unwrap_or(".plt"))
            .collect();
        let names: Vec<&str> = expected.values().map(String::as_str).collect();
        assert_eq!(
            names,
            [".plt", "first@plt", "second@plt", "third@plt"],
            "{target} {options:?}"
        );
        assert_eq!(found, names, "{target} {options:?}");
    }
}

/// Check that the first byte of the section, where the way to the resolver begins, is not named after a function.
#[test]
fn head_of_stubs() {
    let work = tempfile::tempdir().unwrap();
    fs::write(work.path().join("calls.c"), CALLS).unwrap();
    compile(
        work.path(),
        "gcc",
        &["-O1", "-Wl,-z,lazy", "calls.c", "-s", "-o", "calls"],
    );
    let file = ElfFile::open(&work.path().join("calls")).unwrap();
    let head = file.section(".plt").unwrap().svma;
    let (answers, _) = ask(
        work.path(),
        &["--file", "calls"],
        &[head, head + 15, head + 16],
    );
    assert_eq!(answers[0], Value::Array(Vec::new()));
    assert_eq!(answers[1], Value::Array(Vec::new()));
    assert!(answers[2][0]["name"].as_str().unwrap().ends_with("@plt"));
}

/// A Go program with a method, a closure and calls into the runtime.
const GO: &str = "
package main

import \"os\"

//go:noinline
func leaf(n int) int { return n*3 + len(os.Args) }

type shape struct{ side int }

//go:noinline
func (s *shape) area() int { return leaf(s.side) * s.side }

func main() {
	total := 0
	for i := 0; i < 10; i++ {
		func(n int) { s := shape{n}; total += s.area() }(i)
	}
	println(total)
}
";

/// Build the Go program; nothing of it is stripped.
fn build_go(folder: &Path, name: &str, options: &[&str]) {
    fs::write(folder.join("main.go"), GO).unwrap();
    let home = format!("HOME={}", folder.display());
    let fixed = [
        &home,
        "GO111MODULE=off",
        "GOTOOLCHAIN=local",
        "go",
        "build",
        "-o",
        name,
    ];
    compile(folder, "env", &[&fixed[..], options, &["main.go"]].concat());
}

/// Check that a Go program without symbols and debug information has the functions and lines that Go's own tool tells of
/// the whole one, at every 7th byte; and a position-independent one the same names as with its symbols.
#[test]
fn go_without_symbols() {
    let work = tempfile::tempdir().unwrap();
    build_go(work.path(), "whole", &[]);
    build_go(work.path(), "bare", &["-ldflags", "-s -w"]);
    let addresses = text(&work.path().join("whole"), 7);
    let (bare, _) = ask(work.path(), &["--file", "bare"], &addresses);
    let input: String = addresses
        .iter()
        .map(|address| format!("{address:#x}\n"))
        .collect();
    fs::write(work.path().join("addresses"), input).unwrap();
    let script = "cd \"$0\" && go tool addr2line whole < addresses";
    let told = tool(
        "sh",
        ["-c".as_ref(), script.as_ref(), work.path().as_os_str()],
    )
    .stdout;
    let told: Vec<&str> = str::from_utf8(&told).unwrap().lines().collect();
    assert_eq!(told.len(), 2 * addresses.len());
    let mut methods = 0;
    for ((address, pair), answer) in addresses.iter().zip(told.chunks(2)).zip(&bare) {
        let frame = &answer[0];
        let name = frame["name"].as_str().unwrap_or("?");
        // Padding behind a function belongs to none for Go's tool, and to it by the table.
        if pair[0] == "?" {
            continue;
        }
        assert_eq!(name, pair[0], "{address:#x}");
        methods += usize::from(name == "main.(*shape).area");
        let place = format!(
            "{}:{}",
            frame["file"].as_str().unwrap_or("?"),
            frame["line"]
        );
        assert!(
            place == pair[1] || pair[1].ends_with(":0") || pair[1] == ":-1",
            "{address:#x}: {place} and {}",
            pair[1]
        );
    }
    assert!(methods > 3);
}

/// Check that a symbol without size names its function, marked as a guess, and does not reach over the next function,
/// which has no symbol and is known by its table for unwinding alone.
#[test]
fn symbols_without_size() {
    let work = tempfile::tempdir().unwrap();
    let source = "
        .text
        .globl _start
        _start:
        .cfi_startproc
        .skip 16, 0x90
        .cfi_endproc
        .cfi_startproc
        .skip 16, 0x90
        .cfi_endproc
        last:
        .skip 16, 0x90
    ";
    fs::write(work.path().join("sizeless.s"), source).unwrap();
    let args = [
        "-nostdlib",
        "-static",
        "-Wl,-Ttext=0x401000",
        "sizeless.s",
        "-o",
        "sizeless",
    ];
    compile(work.path(), "gcc", &args);
    let addresses = [0x401008, 0x401018, 0x401028];
    let (answers, _) = ask(work.path(), &["--file", "sizeless"], &addresses);
    assert_eq!(answers[0][0]["name"], "_start");
    assert_eq!(
        answers[1],
        Value::Array(Vec::new()),
        "claimed by a symbol of another function"
    );
    assert_eq!(answers[2][0]["name"], "last");
    let shown = succeed(
        work.path(),
        &["symbolize", "--file", "sizeless", "401008", "401018"],
    );
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "0x0000000000401008: _start at ??:0 (uncertain)");
    let nameless = "0x0000000000401018: ?? at ??:0 (no-symbol, in the function at 0x401010)";
    assert_eq!(lines[1], nameless);
}

/// Functions of a program without calls to the outside: start and length of each, by nm.
fn functions(program: &Path) -> Vec<(u64, u64)> {
    let args = ["-S", program.to_str().unwrap()].map(OsStr::new);
    let listing = String::from_utf8(tool("nm", args).stdout).unwrap();
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let rows = listing.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [start, length, "t" | "T", _] = words[..] else {
            return None;
        };
        Some((hex(start)?, hex(length)?))
    });
    rows.collect()
}

/// Check that each function of a stripped program is one function without a name: it begins where nm sees it before
/// stripping, and the report has one row of it, whatever the addresses in it.
#[test]
fn stripped() {
    let work = tempfile::tempdir().unwrap();
    let here = work.path();
    fs::write(here.join("calls.c"), CALLS).unwrap();
    let script = "
        set -e
        gcc -O1 -fcf-protection=none -Wl,--build-id calls.c -o whole
        strip -o calls whole
    ";
    compile(here, "bash", &["-c", script]);
    let functions = functions(&here.join("whole"));
    assert!(functions.len() >= 3, "{functions:?}");
    for (start, length) in &functions {
        let shown = succeed(
            here,
            &[
                "symbolize",
                "--json",
                "--file",
                "calls",
                &format!("{start:#x}"),
                &format!("{:#x}", start + length - 1),
            ],
        );
        for line in shown.lines() {
            let answer: Value = serde_json::from_str(line).unwrap();
            assert_eq!(answer["function_start"], format!("{start:#x}"), "{line}");
            assert_eq!(answer["reason"], "no-symbol");
        }
    }
    archive_of(&here.join("calls"), 1).write(here, "a.rawstack");
    let rows = succeed(here, &["report", "--csv", "a.rawstack"]);
    for (start, length) in functions {
        // A sample at each byte, of a millisecond each.
        let row = rows.lines().find_map(|row| {
            let mut columns = row.split(',');
            let is_row = columns.next() == Some(&format!("calls+{start:#x}"));
            columns.nth(3).filter(|_| is_row)
        });
        assert_eq!(row, Some(&*format!("{length}000000")), "{start:#x}: {rows}");
    }
}

/// Check that names are the same whether `.symtab` is in the program or in its debug file, stubs among them, which only
/// the program has.
#[test]
fn stubs_beside_a_debug_file() {
    let work = tempfile::tempdir().unwrap();
    fs::write(work.path().join("calls.c"), CALLS).unwrap();
    let script = "
        set -e
        gcc -O1 -g -Wl,--build-id calls.c -o whole
        mkdir debug
        objcopy --only-keep-debug whole debug/calls.debug
        strip -o calls whole
    ";
    compile(work.path(), "bash", &["-c", script]);
    let addresses: Vec<u64> = stubs(&work.path().join("whole")).into_keys().collect();
    let (whole, _) = ask(work.path(), &["--file", "whole"], &addresses);
    let (calls, _) = ask(
        work.path(),
        &["--file", "calls", "--symbol-dir", "debug"],
        &addresses,
    );
    assert_same("stubs", &whole, &calls);
    assert!(
        whole
            .iter()
            .all(|answer| answer[0]["name"].as_str().unwrap().ends_with("@plt"))
    );
}
