//! Two real builds of one program compared: what changed is told, and what only looks different is not.

use std::fs;
use std::path::{Path, PathBuf};

use rawstack_test_support::Run;
use rawstack_test_support::programs::{rawstack, script};
use serde_json::Value;

use crate::recording::{Lab, text};

/// Units of work of a run: some tenths of a second.
const UNITS: &str = "2500";
const RUNS: &str = "5";

/// Flags of the base build. With frame pointers, which is what stacks are walked by.
const FLAGS: [&str; 4] = [
    "-g",
    "-O2",
    "-fno-omit-frame-pointer",
    "-fno-optimize-sibling-calls",
];

/// Build the C program as `folder/bench` with more flags, from its source with `above` before it.
fn build(lab: &Lab, folder: &str, flags: &[&str], above: &str) -> PathBuf {
    let folder = lab.path(folder);
    fs::create_dir(&folder).unwrap();
    let source = fs::read_to_string(script("regression.c")).unwrap();
    fs::write(folder.join("regression.c"), format!("{above}{source}")).unwrap();
    Run::new("gcc")
        .args(FLAGS)
        .args(flags)
        .args(["-o", "bench", "regression.c"])
        .current_dir(&folder)
        .success();
    folder.join("bench")
}

/// Build the Rust program.
fn build_rust(lab: &Lab, folder: &str, flags: &[&str]) -> PathBuf {
    let folder = lab.path(folder);
    fs::create_dir(&folder).unwrap();
    fs::copy(script("regression.rs"), folder.join("bench.rs")).unwrap();
    let usual = [
        "--edition",
        "2024",
        "-g",
        "-O",
        "-C",
        "force-frame-pointers=yes",
        "bench.rs",
    ];
    Run::new("rustc")
        .args(usual)
        .args(flags)
        .current_dir(&folder)
        .success();
    folder.join("bench")
}

fn record(lab: &Lab, program: &Path) -> PathBuf {
    let folder = program
        .parent()
        .unwrap()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap();
    let name = format!("{folder}.rawstack");
    lab.recorder(
        &name,
        &["-q", "-F", "1997", "-r", RUNS, "--work", UNITS, "--"],
    )
    .arg(program)
    .arg(UNITS)
    .success();
    lab.path(&name)
}

fn diff(lab: &Lab, base: &Path, new: &Path, options: &[&str]) -> Value {
    let run = Run::new(rawstack()).args([
        "diff",
        "-q",
        "--no-cache",
        "--no-kernel",
        "--fail-on",
        "never",
        "--format",
        "json",
    ]);
    let output = run
        .args(options)
        .args([text(base), text(new)])
        .current_dir(lab.path(""))
        .success();
    serde_json::from_str(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", output.stdout))
}

fn row<'v>(found: &'v Value, name: &str) -> &'v Value {
    let rows = found["rows"].as_array().unwrap();
    rows.iter()
        .find(|row| row["name"] == name)
        .unwrap_or_else(|| panic!("no row {name}: {found}"))
}

/// Fail unless functions of these names are there on both sides, at costs that differ by a third at most.
fn assert_same(found: &Value, names: &[&str]) {
    for name in names {
        let row = row(found, name);
        let (base, new) = (
            row["base_total"].as_f64().unwrap(),
            row["new_total"].as_f64().unwrap(),
        );
        assert!(
            base > 0.0 && (new / base - 1.0).abs() < 0.34,
            "{name}: {row}"
        );
    }
}

/// Check that a function at twice its cost is the one that is told, with its size, and that its neighbours are not.
#[test]
fn one_function_slower() {
    let lab = Lab::new();
    let base = record(&lab, &build(&lab, "base", &[], ""));
    let new = record(&lab, &build(&lab, "new", &["-DPARSE=200"], ""));
    let found = diff(&lab, &base, &new, &[]);
    assert_eq!(found["verdict"], "regression", "{found}");
    let parse = row(&found, "parse");
    assert_eq!(parse["verdict"], "regression", "{parse}");
    let change = parse["change"].as_f64().unwrap();
    assert!((change - 1.0).abs() < 0.34, "{change}");
    assert_same(&found, &["hash", "spin"]);
    // The same archives as one side each: nothing is told.
    let same = diff(&lab, &base, &base, &[]);
    assert_eq!(same["verdict"], "pass", "{same}");
}

/// Check that another option, link-time optimisation, shifted lines and a moved file leave functions what they are.
#[test]
fn other_builds() {
    let lab = Lab::new();
    let base = record(&lab, &build(&lab, "base", &[], ""));
    let shifted = "// One line more.\n".repeat(40);
    for (folder, flags, above) in [
        ("option", &["-O3", "-fno-tree-vectorize"][..], ""),
        ("lto", &["-flto", "-fuse-linker-plugin"][..], ""),
        ("shifted", &[][..], shifted.as_str()),
    ] {
        let new = record(&lab, &build(&lab, folder, flags, above));
        let found = diff(&lab, &base, &new, &[]);
        assert_same(&found, &["parse", "hash", "spin"]);
    }
}

/// Check that a helper which is no longer inlined keeps its cost and its caller's, that a function under a new name is told
/// as renamed, and that a side without symbols makes both be compared as a whole.
#[test]
fn changed_shape() {
    let lab = Lab::new();
    let base = record(&lab, &build(&lab, "base", &[], ""));
    let kept = record(&lab, &build(&lab, "kept", &["-DHELPER_KEPT"], ""));
    let found = diff(&lab, &base, &kept, &[]);
    assert_same(&found, &["parse", "hash", "spin"]);

    let renamed_build = build(&lab, "renamed", &["-DDIGEST"], "");
    let renamed = record(&lab, &renamed_build);
    let found = diff(&lab, &base, &renamed, &[]);
    let pair = found["renamed"]
        .as_array()
        .unwrap()
        .iter()
        .find(|pair| pair["from"] == "hash");
    assert_eq!(
        pair.map(|pair| &pair["to"]),
        Some(&"digest".into()),
        "{found}"
    );
    assert_same(
        &diff(&lab, &base, &renamed, &["--accept-renames"]),
        &["digest"],
    );

    let stripped = build(&lab, "stripped", &["-s"], "");
    let stripped = record(&lab, &stripped);
    let found = diff(&lab, &base, &stripped, &[]);
    assert_same(&found, &["[bench]+?"]);
    assert!(
        found["notes"]
            .to_string()
            .contains("bench: compared as a whole"),
        "{found}"
    );

    let plain = build(&lab, "plain", &["-g0"], "");
    let plain = record(&lab, &plain);
    let found = diff(&lab, &base, &plain, &[]);
    // Without debug information on one side the helper belongs to what it was inlined into, on both.
    assert_same(&found, &["parse", "hash", "store"]);
    assert!(
        found["notes"]
            .to_string()
            .contains("bench: compared without inlined functions"),
        "{found}"
    );
}

/// Check that functions of Rust are the same under other hashes, with another mangling, and with a closure before theirs.
#[test]
fn rust_builds() {
    let lab = Lab::new();
    let base = record(&lab, &build_rust(&lab, "base", &["-C", "metadata=one"]));
    for (folder, flags) in [
        ("hashes", &["-C", "metadata=two"][..]),
        ("v0", &["-C", "symbol-mangling-version=v0"]),
        (
            "closure",
            &["--cfg", "feature_first", "-A", "unexpected_cfgs"],
        ),
    ] {
        let new = record(&lab, &build_rust(&lab, folder, flags));
        let found = diff(&lab, &base, &new, &["--generics", "erase"]);
        let names = [
            "bench::request::{closure}",
            "<bench::Mixer as bench::Step>::step::{closure}",
        ];
        assert_same(&found, &names);
    }
}
