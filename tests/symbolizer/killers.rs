//! Files that were made to kill their reader: each must be answered or refused within 5 seconds of CPU time and 512 MiB, with a
//! line that says what is wrong with it, and without harm to what lies beside it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::killer_elf::{Abbreviations, Dwarf, Elf, TEXT, leb};
use super::run::rawstack;
use super::{archive, fixtures};

/// Memory that a run may take, in KiB: what is more cannot be had, and ends it.
pub(super) const MEMORY_KIB: u32 = 512 << 10;
/// Processor time that a run may take, in seconds: what takes longer is ended. Other work on the machine costs none.
pub(super) const CPU_SECONDS: u32 = 5;

/// What a file must lead to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    /// The symbol answers, and a line says why not more.
    Noted(&'static str),
    /// An answer with this text, and nothing to be said.
    Answer(&'static str),
    /// No answer but one line, and exit code 2.
    Refused(&'static str),
}
use Outcome::{Answer, Noted, Refused};

const DAMAGED: Outcome =
    Noted("debug information is damaged or beyond the limits; symbols stand in");

fn run(folder: &Path, name: &str) -> Output {
    let limited = format!(
        "ulimit -d {MEMORY_KIB}; ulimit -t {CPU_SECONDS}; exec timeout -s KILL 120 \"$0\" \"$@\""
    );
    Command::new("sh")
        .args(["-c", &limited, env!("CARGO_BIN_EXE_rawstack")])
        .args(["symbolize", "--no-cache", "--file", name, "401010"])
        .current_dir(folder)
        .output()
        .unwrap()
}

/// Try one file; gives what is wrong, if anything.
fn trial(folder: &Path, name: &str, bytes: &[u8], outcome: Outcome) -> Option<String> {
    fs::write(folder.join(name), bytes).unwrap();
    let output = run(folder, name);
    fs::remove_file(folder.join(name)).unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    let lines = err.lines().count();
    let fits = match outcome {
        Answer(text) => code == Some(0) && out.contains(text) && lines == 0,
        Noted(text) => {
            code == Some(0) && out.contains("_start") && err.contains(text) && lines == 1
        }
        Refused(text) => code == Some(2) && out.is_empty() && err.contains(text) && lines == 1,
    };
    let shown: String = out.chars().take(200).collect();
    let told: String = err.chars().take(300).collect();
    (!fits).then(|| format!("{name}: {outcome:?}, {:?}\n{shown}\n{told}", output.status))
}

/// Check every file of a list; all that fail are told.
pub(super) fn check(files: Vec<(&str, Vec<u8>, Outcome)>) {
    let folder = tempfile::tempdir().unwrap();
    let trials = files
        .iter()
        .map(|(name, bytes, outcome)| trial(folder.path(), name, bytes, *outcome));
    let failures: Vec<String> = trials.flatten().collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// A program with one symbol.
pub(super) fn named() -> Elf {
    Elf::new().symbol(b"_start", TEXT, 0x100)
}

/// A program whose function holds `count` functions inlined into each other.
fn nested(count: usize) -> Vec<u8> {
    let mut dwarf = Dwarf::new();
    dwarf.function("outermost");
    for _ in 0..count {
        dwarf.inlined();
    }
    dwarf.info.resize(dwarf.info.len() + count + 2, 0);
    dwarf.program()
}

/// Check that functions inlined into each other by the million are cut, and cost neither stack nor memory.
#[test]
fn nesting() {
    let mut blocks = Dwarf::new();
    blocks.function("outermost");
    blocks.info.extend(vec![4; 5_000_000]);
    blocks.info.resize(blocks.info.len() + 5_000_002, 0);
    let mut ends = Dwarf::new();
    ends.info.resize(10_000_000, 0);
    let mut same = Dwarf::new();
    for _ in 0..500_000 {
        same.function("f");
        same.info.push(0);
    }
    check(vec![
        ("inlined-5k", nested(5_000), Answer("outermost")),
        ("inlined-20k", nested(20_000), Answer("outermost")),
        ("inlined-1m", nested(1_000_000), Answer("outermost")),
        ("blocks-5m", blocks.program(), Answer("outermost")),
        ("ends-10m", ends.program(), Answer("_start")),
        ("same-range-500k", same.program(), Answer("f at")),
    ]);
}

/// Check references that lead in circles, far on, or out of their unit.
#[test]
fn references() {
    let with_origin = |origin: &dyn Fn(u32) -> u32| {
        let mut dwarf = Dwarf::new();
        let first = dwarf.here();
        dwarf.refers(origin(first));
        dwarf.program()
    };
    let mut chain = Dwarf::new();
    for _ in 0..500_000 {
        let next = chain.here() + 5;
        chain.declares(next);
    }
    let mut circle = Dwarf::new();
    let first = circle.here();
    circle.declares(first + 5);
    circle.declares(first);
    circle.refers(first);
    let mut back = Dwarf::new();
    back.function("f");
    let here = back.here();
    back.sibling(here);
    back.sibling(0);
    back.sibling(u32::MAX);
    let mut indirect = Dwarf::new();
    indirect.info.push(7);
    indirect.info.extend(vec![0x16; 2_000_000]);
    check(vec![
        ("origin-itself", with_origin(&|own| own), Answer("_start")),
        (
            "origin-outside",
            with_origin(&|_| u32::MAX),
            Answer("_start"),
        ),
        ("origin-zero", with_origin(&|_| 0), Answer("_start")),
        ("origin-chain", chain.program(), Answer("_start")),
        ("origin-circle", circle.program(), Answer("_start")),
        ("sibling-back", back.program(), Answer("f at")),
        ("indirect-2m", indirect.program(), DAMAGED),
    ]);
}

/// Check units and abbreviations in absurd numbers and sizes.
#[test]
fn units() {
    let huge = |length: &[u8]| {
        let mut dwarf = Dwarf::new();
        dwarf.raw = Some([length, &[5, 0, 1, 8, 0, 0, 0, 0]].concat());
        dwarf.program()
    };
    // Each unit has its own place in one table without an end.
    let mut tables = Dwarf::new();
    let entry = [leb(1), leb(0x11), vec![0], leb(0), leb(0)].concat();
    tables.abbreviations = Abbreviations::raw(
        (2..200_000u64)
            .flat_map(|code| [leb(code), entry[1..].to_vec()].concat())
            .collect(),
    );
    let unit = |offset: u32| {
        [
            &9u32.to_le_bytes()[..],
            &[4, 0],
            &offset.to_le_bytes(),
            &[8, 0, 0],
        ]
        .concat()
    };
    tables.raw = Some(
        (0..100_000u32)
            .flat_map(|number| unit(number * 7))
            .collect(),
    );
    let mut codes = Dwarf::new();
    codes.abbreviations = Abbreviations::raw(
        [leb(u64::MAX), leb(0x11), vec![0, 0, 0]]
            .concat()
            .repeat(200_000),
    );
    let mut tiny = Dwarf::new();
    tiny.raw = Some(
        [&8u32.to_le_bytes()[..], &[4, 0, 0, 0, 0, 0, 8, 0]]
            .concat()
            .repeat(1_500_000),
    );
    let mut unknown = Dwarf::new();
    unknown.abbreviations = Abbreviations::raw(
        [
            leb(1),
            leb(0x11),
            vec![1],
            leb(3),
            leb(0x7777),
            vec![0, 0, 0],
        ]
        .concat(),
    );
    let mut attributes = Dwarf::new();
    let many = [leb(3), leb(0x19)].concat().repeat(2_000_000);
    attributes.abbreviations =
        Abbreviations::raw([leb(1), leb(0x11), vec![1], many, vec![0, 0, 0]].concat());
    check(vec![
        (
            "unit-2-32",
            huge(&[0xfe, 0xff, 0xff, 0x7f]),
            Answer("_start"),
        ),
        ("unit-2-64", huge(&[0xff; 12]), Answer("_start")),
        (
            "unit-empty",
            huge(&[0; 4].repeat(2_500_000)),
            Answer("_start"),
        ),
        ("units-tables", tables.program(), DAMAGED),
        ("abbreviation-codes", codes.program(), DAMAGED),
        ("units-1500k", tiny.program(), DAMAGED),
        ("unknown-form", unknown.program(), DAMAGED),
        ("attributes-2m", attributes.program(), DAMAGED),
    ]);
}

/// Check line programs and ranges that never end, or say that they do not.
#[test]
fn lines_and_ranges() {
    let lines = |header: &[u8], program: &[u8]| {
        let mut dwarf = Dwarf::new();
        dwarf.function("f");
        dwarf.lines(header, program);
        dwarf.program()
    };
    let no_format = [&[0][..], &leb(1 << 60), &[0], &leb(1 << 60)].concat();
    let names = [
        &[1][..],
        &leb(1),
        &leb(0xb),
        &leb(1),
        &[0],
        &[1],
        &leb(1),
        &leb(0xb),
        &leb(1 << 32),
    ]
    .concat();
    let names = [names, vec![0; 8_000_000]].concat();
    let plain = [
        &[1][..],
        &leb(1),
        &leb(8),
        &leb(1),
        b"/d\0",
        &[1],
        &leb(1),
        &leb(8),
        &leb(1),
        b"a.c\0",
    ]
    .concat();
    let start = [&[0, 9, 2][..], &TEXT.to_le_bytes()].concat();
    let rows = [start.clone(), vec![20; 10_000_000], vec![0, 1, 1]].concat();
    let far = [start.clone(), vec![2], leb(u64::MAX), vec![1]].concat();
    let long = [start, vec![0], leb(u64::MAX), vec![1]].concat();
    let mut shared = Dwarf::new();
    shared.ranges = [TEXT, TEXT + 1]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect::<Vec<u8>>()
        .repeat(60_000);
    for _ in 0..100_000 {
        shared.ranged(0);
    }
    let mut aranges = Dwarf::new();
    aranges.function("f");
    aranges.aranges = aranges.address_table(1_000_000);
    check(vec![
        (
            "lines-no-format",
            lines(&no_format, &[]),
            Noted("damaged or beyond the limits"),
        ),
        (
            "lines-names-2-32",
            lines(&names, &[]),
            Noted("damaged or beyond the limits"),
        ),
        ("lines-10m-rows", lines(&plain, &rows), Answer("f at")),
        ("lines-overflow", lines(&plain, &far), Answer("f at")),
        ("lines-long", lines(&plain, &long), Answer("f at")),
        ("ranges-shared", shared.program(), Answer("_start")),
        ("aranges-1m", aranges.program(), Answer("f at")),
    ]);
}

/// Check that a module that kills changes nothing of what is said of the others.
#[test]
fn beside_others() {
    let folder = tempfile::tempdir().unwrap();
    let good = fixtures::golden();
    let alone = rawstack(
        folder.path(),
        &["symbolize", "--file", good.to_str().unwrap(), "401016"],
    );
    fs::write(folder.path().join("killer"), nested(1_000_000)).unwrap();
    let mut archive = archive::Archive::new();
    archive.process(1, "x", "/");
    let killer = archive.module(rawstack_format::record::Module {
        path: folder.path().join("killer").to_str().unwrap().to_owned(),
        build_id: None,
        ..archive::golden_module()
    });
    let golden = archive.module(archive::golden_module());
    for module in [killer, golden] {
        let user = archive.user_stack(module, &[0x1016]);
        archive.sample(rawstack_format::record::Sample {
            pid: 1,
            tid: 1,
            user,
            ..Default::default()
        });
    }
    archive.write(folder.path(), "a.rawstack");
    let tree = fixtures::debug_tree(&good, fixtures::GOLDEN_ID);
    let args = [
        "report",
        "--json",
        "a.rawstack",
        "--symbol-dir",
        tree.to_str().unwrap(),
    ];
    let report = rawstack(folder.path(), &args);
    let name = alone.out.split(' ').nth(1).unwrap();
    assert!(
        report.out.contains(&format!("\"name\":\"{name}\"")),
        "{}\n{}",
        report.out,
        report.err
    );
}

/// Check that functions below others and below what is inlined, where no compiler puts them, have the same name whether
/// they are asked for alone or together with what is around them.
#[test]
fn alone_and_together() {
    let folder = tempfile::tempdir().unwrap();
    let mut dwarf = Dwarf::new();
    dwarf.function("outer");
    dwarf.inlined();
    dwarf.function_in("below_inlined", TEXT + 0x200, 0x10);
    dwarf.inlined();
    dwarf.info.extend([0, 0, 0]);
    dwarf.function_in("below_function", TEXT + 0x300, 0x10);
    dwarf.info.extend([0, 0, 0]);
    fs::write(folder.path().join("program"), dwarf.program()).unwrap();
    let ask = |numbers: &[&str]| {
        let args = [&["symbolize", "--no-cache", "--file", "program"], numbers].concat();
        rawstack(folder.path(), &args).out
    };
    let numbers = ["401010", "401204", "401304"];
    let alone: String = numbers.iter().map(|&number| ask(&[number])).collect();
    assert_eq!(ask(&numbers), alone);
    assert!(
        alone.contains("below_inlined at") && alone.contains("below_function at"),
        "{alone}"
    );
}
