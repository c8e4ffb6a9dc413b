//! Names, lines and inlined functions, against gdb and llvm-symbolizer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rawstack_test_support::elf;
use rawstack_test_support::json::{Sample, Symbolized, SymbolizedFrame, report, symbolize};
use rawstack_test_support::oracle::{Answer, Function, gdb, llvm, without_clone_suffix};
use rawstack_test_support::programs::workload;

use crate::recording::{Lab, Recording, text};

/// The file offsets that were sampled in `file`, as they are to be looked up: of callers, the byte before.
fn sampled_offsets(samples: &[Sample], file: &Path) -> BTreeSet<u64> {
    let lookup = |sample: &Sample| -> Vec<u64> {
        let frames = sample
            .user_frames()
            .enumerate()
            .filter(|(_, frame)| frame.path.as_deref() == Some(text(file)));
        frames
            .filter_map(|(depth, frame)| frame.file_offset()?.checked_sub(u64::from(depth > 0)))
            .collect()
    };
    samples.iter().flat_map(lookup).collect()
}

/// What we say, in the form of an oracle's answer: linkage names, which llvm-symbolizer gives too.
fn our_answer(symbolized: &Symbolized) -> Answer {
    let function = |frame: &SymbolizedFrame| Function {
        name: frame
            .linkage_name
            .clone()
            .unwrap_or_else(|| frame.name.clone()),
        file: frame.file.clone(),
        line: frame.line,
    };
    Answer {
        functions: symbolized.frames.iter().map(function).collect(),
    }
}

/// Whether two functions are the same, by name, file and line. Clones are named with or without their suffix.
fn same_function(ours: &Function, theirs: &Function) -> bool {
    let name = |function: &Function| without_clone_suffix(&function.name).to_owned();
    let file = |function: &Function| {
        function
            .file
            .as_deref()
            .map(|file| Path::new(file).file_name().map(PathBuf::from))
    };
    name(ours) == name(theirs) && (file(ours), ours.line) == (file(theirs), theirs.line)
}

fn same_as_llvm(ours: &Answer, theirs: &Answer) -> bool {
    ours.functions.len() == theirs.functions.len()
        && ours
            .functions
            .iter()
            .zip(&theirs.functions)
            .all(|(ours, theirs)| same_function(ours, theirs))
}

/// gdb gives the number of functions, their plain names, and the innermost line.
fn same_as_gdb(ours: &Symbolized, theirs: &Answer) -> bool {
    let plain = |name: &str| -> String {
        let end = name
            .find(['(', '<'])
            .filter(|at| *at > 0)
            .unwrap_or(name.len());
        without_clone_suffix(&name[..end])
            .rsplit("::")
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let names = ours.frames.len() == theirs.functions.len()
        && ours
            .frames
            .iter()
            .zip(&theirs.functions)
            .all(|(ours, theirs)| plain(&ours.name) == plain(&theirs.name));
    let line = |line: Option<Option<u64>>| line.flatten();
    names
        && line(ours.frames.first().map(|frame| frame.line))
            == line(theirs.functions.first().map(|f| f.line))
}

/// Compare every address that was sampled in `file`, and return how many there were and how many had inlined functions.
fn compare_file(samples: &[Sample], file: &Path) -> (usize, usize) {
    let offsets: Vec<u64> = sampled_offsets(samples, file).into_iter().collect();
    let segments = elf::segments(file);
    let addresses: Vec<u64> = offsets
        .iter()
        .map(|offset| {
            elf::address_of(&segments, *offset)
                .unwrap_or_else(|| panic!("{offset:#x} of {} is no code", file.display()))
        })
        .collect();
    let ours = symbolize(file, &offsets);
    let (llvm, gdb) = (
        llvm::symbolize(file, &addresses),
        gdb::symbolize(file, &addresses),
    );
    let mut differences = Vec::new();
    for (((ours, llvm), gdb), address) in ours.iter().zip(&llvm).zip(&gdb).zip(&addresses) {
        let answer = our_answer(ours);
        if !same_as_llvm(&answer, llvm) && !same_as_gdb(ours, gdb) {
            differences.push(format!(
                "{address:#x}\n  ours {answer:?}\n  llvm {llvm:?}\n  gdb  {gdb:?}"
            ));
        }
    }
    assert!(
        differences.is_empty(),
        "{}: {} of {} addresses differ from both llvm-symbolizer and gdb\n{}",
        file.display(),
        differences.len(),
        addresses.len(),
        differences
            .iter()
            .take(5)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    );
    (
        addresses.len(),
        ours.iter().filter(|answer| answer.frames.len() > 1).count(),
    )
}

/// Record a variant of the mixed workload and compare every sampled address in `files`.
fn compare_variant(name: &str, files: &[&str]) -> (Lab, Recording) {
    let lab = Lab::new();
    let recording = lab.record(&["-F", "3997"], &[text(&workload(name)), "2"]);
    let samples = recording.samples();
    let (mut addresses, mut inlined) = (0, 0);
    for file in files {
        let (more_addresses, more_inlined) = compare_file(&samples, &workload(file));
        addresses += more_addresses;
        inlined += more_inlined;
    }
    assert!(addresses > 200, "only {addresses} addresses were compared");
    assert!(
        inlined > 50,
        "only {inlined} of them have inlined functions"
    );
    (lab, recording)
}

/// Check a position-independent program, DWARF 5 of gcc and DWARF 4 of rustc.
#[test]
fn position_independent() {
    compare_variant("mixed-pie", &["mixed-pie"]);
}

/// Check a program at a fixed address.
#[test]
fn fixed_address() {
    compare_variant("mixed-nopie", &["mixed-nopie"]);
}

/// Check a program without shared libraries.
#[test]
fn static_program() {
    compare_variant("mixed-static", &["mixed-static"]);
}

/// Check a shared library.
#[test]
fn shared_library() {
    compare_variant("mixed-shared", &["mixed-shared", "libmixed.so"]);
}

/// Check a program of lld whose segments' addresses and file offsets differ by megabytes.
#[test]
fn segments_with_gaps() {
    compare_variant("mixed-gap", &["mixed-gap"]);
}

/// Check a program of clang with DWARF 4.
#[test]
fn clang_dwarf_4() {
    compare_variant("mixed-clang", &["mixed-clang"]);
}

/// Check that `report` counts for each function the samples whose leaf is there, by the addresses of `dump`.
#[test]
fn report_counts_leaves() {
    let lab = Lab::new();
    let program = workload("mixed-gap");
    let recording = lab.record(&["-F", "1997"], &[text(&program), "2"]);
    let samples = recording.samples();
    let mut leaves: BTreeMap<u64, f64> = BTreeMap::new();
    let mut total = 0.0;
    for sample in &samples {
        let weight = f64::from(u32::try_from(sample.weight).unwrap_or(u32::MAX));
        total += weight;
        let leaf = sample
            .frames
            .first()
            .filter(|frame| frame.path.as_deref() == Some(text(&program)));
        if let Some(offset) = leaf.and_then(|frame| frame.file_offset()) {
            *leaves.entry(offset).or_default() += weight;
        }
    }
    let offsets: Vec<u64> = leaves.keys().copied().collect();
    let mut expected: BTreeMap<String, f64> = BTreeMap::new();
    for (answer, weight) in symbolize(&program, &offsets).iter().zip(leaves.values()) {
        let name = answer
            .frames
            .first()
            .unwrap_or_else(|| panic!("no name: {answer:?}"))
            .name
            .clone();
        *expected.entry(name).or_default() += weight;
    }

    let report = report(&recording.archive, &["--by", "function"]);
    assert!(
        (report.total - total).abs() < 1.0,
        "total {} instead of {total}",
        report.total
    );
    let module = program
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let mut found: BTreeMap<String, f64> = BTreeMap::new();
    for row in report.rows.iter().filter(|row| row.self_weight > 0.0) {
        if row
            .module
            .as_deref()
            .is_some_and(|name| name.ends_with(module))
        {
            *found.entry(row.name.clone()).or_default() += row.self_weight;
        }
    }
    assert_eq!(found, expected, "self weight by function in {module}");
}
