//! Names, lines and inlined functions, against gdb and llvm-symbolizer.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use rawstack_test_support::elf;
use rawstack_test_support::json::{Sample, Symbolized, SymbolizedFrame, report, symbolize};
use rawstack_test_support::oracle::{
    Answer, Function, gdb, identifier, llvm, without_clone_suffix,
};
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

/// The names of one file, to tell which of them mean the same function.
struct Names {
    symbols: HashMap<String, u64>,
}

impl Names {
    fn of(file: &Path) -> Self {
        Self {
            symbols: elf::symbols(file),
        }
    }

    /// Whether a function of ours is an oracle's: by the name as linked; by another symbol at the same address, where the
    /// oracle took one alias and we another; or by the identifier, where only one of us has the name as linked.
    fn same(&self, ours: &SymbolizedFrame, theirs: &Function) -> bool {
        let (our_link, their_link) = (
            linked(&ours.linkage_name, &ours.name),
            linked(&theirs.linkage_name, &theirs.name),
        );
        let address = |name: &str| self.symbols.get(name);
        let alias = || address(our_link).is_some() && address(our_link) == address(their_link);
        let clone = || without_clone_suffix(our_link) == without_clone_suffix(their_link);
        clone() || alias() || identifier(&ours.name) == identifier(&theirs.name)
    }
}

/// The name as linked; C has only that one.
fn linked<'a>(linkage_name: &'a Option<String>, name: &'a str) -> &'a str {
    linkage_name.as_deref().unwrap_or(name)
}

/// Whether the lines are the same. A path may be told with or without the folder it was compiled in.
fn same_line(ours: &SymbolizedFrame, theirs: &Function) -> bool {
    let file = |path: &Option<String>| {
        path.as_deref()
            .and_then(|path| Some(Path::new(path).file_name()?.to_owned()))
    };
    (file(&ours.file), ours.line) == (file(&theirs.file), theirs.line)
}

/// llvm-symbolizer gives names and lines of all functions at an address.
fn same_as_llvm(names: &Names, ours: &Symbolized, theirs: &Answer) -> bool {
    ours.frames.len() == theirs.functions.len()
        && ours
            .frames
            .iter()
            .zip(&theirs.functions)
            .all(|(a, b)| names.same(a, b) && same_line(a, b))
}

/// gdb gives all names, and the innermost line.
fn same_as_gdb(names: &Names, ours: &Symbolized, theirs: &Answer) -> bool {
    ours.frames.len() == theirs.functions.len()
        && ours
            .frames
            .iter()
            .zip(&theirs.functions)
            .all(|(a, b)| names.same(a, b))
        && ours
            .frames
            .iter()
            .zip(&theirs.functions)
            .take(1)
            .all(|(a, b)| same_line(a, b))
}

/// Whether this is a stub of the linker in a static program (`memchr@plt`), which no symbol covers: we name it after the
/// function that chooses what it leads to, gdb says that there is none, llvm-symbolizer takes the nearest symbol.
fn is_static_stub(ours: &Symbolized, gdb: &Answer) -> bool {
    let stub = ours
        .frames
        .first()
        .is_some_and(|frame| frame.name.ends_with("@plt"));
    stub && gdb.functions.is_empty()
}

/// Compare every address that was sampled in `file`, and return how many there were and how many had inlined functions.
fn compare_sampled(samples: &[Sample], file: &Path) -> (usize, usize) {
    compare_offsets(
        file,
        &sampled_offsets(samples, file)
            .into_iter()
            .collect::<Vec<_>>(),
    )
}

/// Compare what is said of each of `offsets` that is code: a walk through functions without frame pointers takes other
/// words for return addresses. How many there were and how many had inlined functions.
fn compare_offsets(file: &Path, offsets: &[u64]) -> (usize, usize) {
    let segments = elf::segments(file);
    let (offsets, addresses): (Vec<u64>, Vec<u64>) = offsets
        .iter()
        .filter_map(|offset| Some((*offset, elf::address_of(&segments, *offset)?)))
        .unzip();
    let ours = symbolize(file, &offsets);
    let (llvm, gdb) = (
        llvm::symbolize(file, &addresses),
        gdb::symbolize(file, &addresses),
    );
    let names = Names::of(file);
    let mut differences = Vec::new();
    for (((ours, llvm), gdb), address) in ours.iter().zip(&llvm).zip(&gdb).zip(&addresses) {
        if !same_as_llvm(&names, ours, llvm)
            && !is_static_stub(ours, gdb)
            && !same_as_gdb(&names, ours, gdb)
        {
            differences.push(format!(
                "{address:#x}\n  ours {ours:?}\n  llvm {llvm:?}\n  gdb  {gdb:?}"
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
        let (more_addresses, more_inlined) = compare_sampled(&samples, &workload(file));
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
        // What has no name (a linker's stub) has a row by module and offset.
        if let Some(innermost) = answer.frames.first() {
            *expected.entry(innermost.name.clone()).or_default() += weight;
        }
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
    for row in report
        .rows
        .iter()
        .filter(|row| row.self_weight > 0.0 && !row.name.contains("+0x"))
    {
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

/// Check addresses spread evenly over all code of each variant, libraries linked in included, without a recording.
#[test]
fn evenly_over_the_code() {
    for name in [
        "mixed-pie",
        "mixed-nopie",
        "mixed-static",
        "libmixed.so",
        "mixed-gap",
        "mixed-clang",
    ] {
        let file = workload(name);
        let code = elf::segments(&file)
            .into_iter()
            .filter(|segment| segment.executable);
        let offsets: Vec<u64> = code
            .flat_map(|segment| (segment.offset..segment.offset + segment.file_size).step_by(211))
            .collect();
        let (addresses, inlined) = compare_offsets(&file, &offsets);
        assert!(
            addresses > 1500 && inlined > 500,
            "{name}: {addresses} addresses, {inlined} inlined"
        );
    }
}
