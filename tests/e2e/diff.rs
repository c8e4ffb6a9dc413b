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

/// A folder with the source `name`, and `more` in it where that says that there could be one more.
fn with_more(lab: &Lab, folder: &str, name: &str, more: &str) -> PathBuf {
    let folder = lab.path(folder);
    fs::create_dir(&folder).unwrap();
    let source = fs::read_to_string(script(name)).unwrap();
    let marker = "// ONE MORE\n";
    assert_eq!(source.matches(marker).count(), 1);
    fs::write(folder.join(name), source.replace(marker, more)).unwrap();
    folder
}

/// Build the Rust program of closures.
fn build_closures(lab: &Lab, folder: &str, flags: &[&str], more: &str) -> PathBuf {
    let folder = with_more(lab, folder, "closures.rs", more);
    Run::new("rustc")
        .args(["--edition", "2024", "-g", "-O"])
        .args(["-C", "force-frame-pointers=yes"])
        .args(flags)
        .args(["-o", "bench", "closures.rs"])
        .current_dir(&folder)
        .success();
    folder.join("bench")
}

/// Build the C++ program of lambdas.
fn build_lambdas(lab: &Lab, folder: &str, compiler: &[&str], more: &str) -> PathBuf {
    let folder = with_more(lab, folder, "lambdas.cpp", more);
    Run::new(compiler[0])
        .args(FLAGS)
        .args(&compiler[1..])
        .args(["-o", "bench", "lambdas.cpp"])
        .current_dir(&folder)
        .success();
    folder.join("bench")
}

/// Fail unless `closures` are three that are on both sides, at the same cost, and one that is new, each declared elsewhere.
fn assert_one_more(kind: &str, closures: &[&Value]) {
    let (added, same): (Vec<&Value>, Vec<&Value>) =
        closures.iter().partition(|row| row["change"].is_null());
    assert_eq!((added.len(), same.len()), (1, 3), "{kind}: {closures:?}");
    for row in &same {
        let (base, new) = costs(row);
        assert!((new / base - 1.0).abs() < 0.34, "{kind}: {row}");
    }
    let mut declared: Vec<&str> = closures
        .iter()
        .filter_map(|row| row["declared"].as_str())
        .collect();
    declared.sort_unstable();
    declared.dedup();
    assert_eq!(declared.len(), 4, "{kind}: {closures:?}");
}

/// Build a program of two files with a function of one name in each.
fn build_parts(lab: &Lab, folder: &str, flags: &[&str]) -> PathBuf {
    let folder = lab.path(folder);
    fs::create_dir(&folder).unwrap();
    for (file, define) in [
        ("main", "-DMAIN"),
        ("first", "-DPART=first"),
        ("second", "-DPART=second"),
    ] {
        let source = format!("{file}.c");
        fs::copy(script("same_name.c"), folder.join(&source)).unwrap();
        Run::new("gcc")
            .args(FLAGS)
            .args(flags)
            .args(["-c", define, &source])
            .current_dir(&folder)
            .success();
    }
    Run::new("gcc")
        .args(["-o", "bench", "main.o", "first.o", "second.o"])
        .current_dir(&folder)
        .success();
    folder.join("bench")
}

/// Build the program that uses the crate tally, with version `version` of it, as cargo does.
fn build_tally(lab: &Lab, folder: &str, version: &str) -> PathBuf {
    let folder = lab.path(folder);
    let crate_folder = folder.join("tally/src");
    fs::create_dir_all(&crate_folder).unwrap();
    fs::create_dir_all(folder.join("src")).unwrap();
    let source = |name: &str| script("tally").join(name);
    fs::copy(source("main.rs"), folder.join("src/main.rs")).unwrap();
    let library = source(&format!("{version}.rs"));
    fs::copy(library, crate_folder.join("lib.rs")).unwrap();
    let table = source(&format!("{version}-table.rs"));
    if table.exists() {
        fs::copy(table, crate_folder.join("table.rs")).unwrap();
    }
    let manifest = |name: &str, version: &str, more: &str| {
        format!("[package]\nname = '{name}'\nversion = '{version}'\nedition = '2024'\n{more}")
    };
    let uses = "[dependencies]\ntally = { path = 'tally' }\n[profile.release]\ndebug = true\n[workspace]\n";
    fs::write(folder.join("Cargo.toml"), manifest("bench", "1.0.0", uses)).unwrap();
    fs::write(
        folder.join("tally/Cargo.toml"),
        manifest("tally", version, ""),
    )
    .unwrap();
    Run::new("cargo")
        .args(["build", "--release", "--offline", "--quiet"])
        .args(["--target-dir", "target"])
        .env("RUSTFLAGS", "-C force-frame-pointers=yes")
        .current_dir(&folder)
        .success();
    fs::copy(folder.join("target/release/bench"), folder.join("bench")).unwrap();
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
    record_as(lab, program, folder, &[])
}

/// Record a program with more arguments.
fn record_as(lab: &Lab, program: &Path, name: &str, arguments: &[&str]) -> PathBuf {
    let name = format!("{name}.rawstack");
    lab.recorder(
        &name,
        &["-q", "-F", "4999", "-r", RUNS, "--work", UNITS, "--"],
    )
    .arg(program)
    .arg(UNITS)
    .args(arguments)
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

/// All rows of a name.
fn rows<'v>(found: &'v Value, name: &str) -> Vec<&'v Value> {
    let rows = found["rows"].as_array().unwrap();
    rows.iter().filter(|row| row["name"] == name).collect()
}

/// Cost of a row by itself, base and new.
fn costs(row: &Value) -> (f64, f64) {
    (row["base"].as_f64().unwrap(), row["new"].as_f64().unwrap())
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

/// Check that lines are counted from where their function is declared: 40 more lines above change none, in rows and in what
/// is told of one function; and that a line which takes twice as long is the one that is told.
#[test]
fn shifted_lines() {
    let lab = Lab::new();
    let base = record(&lab, &build(&lab, "base", &[], ""));
    let shifted = "// One line more.\n".repeat(40);
    let new = record(&lab, &build(&lab, "new", &["-DPARSE=200"], &shifted));
    let found = diff(&lab, &base, &new, &["--by", "line"]);
    let heavy = |row: &&Value| {
        let (base, new) = costs(row);
        let total = found["total"]["base"].as_f64().unwrap();
        row["line"].is_i64() && base.max(new) > 0.05 * total
    };
    let heavy: Vec<&Value> = found["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(heavy)
        .collect();
    assert!(heavy.len() >= 3, "{found}");
    for row in &heavy {
        let (base, new) = costs(row);
        let wanted = if row["name"] == "parse" { 2.0 } else { 1.0 };
        assert!((new / base / wanted - 1.0).abs() < 0.34, "{row}");
    }
    // parse's loop stands four and five lines below its name.
    let of_parse: Vec<i64> = heavy
        .iter()
        .filter(|row| row["name"] == "parse")
        .map(|row| row["line"].as_i64().unwrap())
        .collect();
    assert!(
        !of_parse.is_empty() && of_parse.iter().all(|line| [4, 5].contains(line)),
        "{of_parse:?}"
    );
    let told = Run::new(rawstack())
        .args(["diff", "explain", "hash", "-q", "--no-cache", "--no-kernel"])
        .args([text(&base), text(&new)])
        .current_dir(lab.path(""))
        .success()
        .stdout;
    let lines = told.split("lines, counted from the declaration").nth(1);
    let lines: Vec<&str> = lines
        .unwrap_or_else(|| panic!("{told}"))
        .lines()
        .skip(1)
        .collect();
    assert!(
        lines
            .iter()
            .any(|line| line.trim().starts_with("+5 ") && !line.contains(" 0 ")),
        "{told}"
    );
}

/// Check that a closure before others makes none of them another one, whatever their numbers: in both manglings of Rust.
#[test]
fn one_more_closure() {
    let more = "let unit = repeat(10, |i| {\n    let mut sum = unit ^ i;\n    for j in 0..1300 {\n        \
                sum = black_box(sum.swap_bytes()) + j;\n    }\n    sum\n});\n";
    let v0: &[&str] = &["-C", "symbol-mangling-version=v0"];
    for (kind, flags) in [("v0", v0), ("legacy", &[])] {
        let lab = Lab::new();
        let base = record(&lab, &build_closures(&lab, "base", flags, "\n"));
        let new = record(&lab, &build_closures(&lab, "new", flags, more));
        // What is inlined into them is theirs.
        let found = diff(&lab, &base, &new, &["--inclusive"]);
        assert_one_more(kind, &rows(&found, "closures::serve::{closure}"));
    }
}

/// Check the same of lambdas that were inlined, of which GCC tells neither a linker's name nor a line of their own; and that
/// one which is inlined is the same as one that is not.
#[test]
fn one_more_lambda() {
    let more = "unit += repeat(10, [unit](unsigned long i) LAMBDA {\n\t\tunsigned long sum = unit ^ i;\n\t\t\
                for (unsigned long j = 0; j < 1300; j++)\n\t\t\tsum = opaque(sum) + j;\n\t\treturn sum;\n\t});\n";
    for compiler in ["g++", "clang++"] {
        let lab = Lab::new();
        let base = record(&lab, &build_lambdas(&lab, "base", &[compiler], "\n"));
        let kept: &[&str] = match compiler {
            "g++" => &["g++", "-DLAMBDA=__attribute__((noinline))"],
            _ => &["clang++"],
        };
        for (folder, new) in [("new", &[compiler][..]), ("kept", kept)] {
            let new = record(&lab, &build_lambdas(&lab, folder, new, more));
            let found = diff(&lab, &base, &new, &["--inclusive"]);
            let is_lambda = |row: &&Value| {
                let name = row["name"].as_str().unwrap();
                name.starts_with("serve") && name.contains("::operator()")
            };
            let all = found["rows"].as_array().unwrap();
            let lambdas: Vec<&Value> = all.iter().filter(is_lambda).collect();
            assert_one_more(&format!("{compiler} {folder}"), &lambdas);
        }
    }
}

/// Check that functions of one name in one program stay apart where both sides are the same build: by where they are
/// declared, and without debug information by where they are entered.
#[test]
fn one_name_twice() {
    for (flags, suffix) in [(&[][..], ".c:"), (&["-g0"], "0x")] {
        let lab = Lab::new();
        let program = build_parts(&lab, "parts", flags);
        let base = record_as(&lab, &program, "base", &["100", "100"]);
        let new = record_as(&lab, &program, "new", &["100", "200"]);
        let found = diff(&lab, &base, &new, &[]);
        let mut steps = rows(&found, "step");
        steps.sort_by(|a, b| costs(a).1.total_cmp(&costs(b).1));
        let [same, slower] = steps[..] else {
            panic!("{found}");
        };
        for (row, wanted, verdict) in [(same, 1.0, "same"), (slower, 2.0, "regression")] {
            let (base, new) = costs(row);
            assert!((new / base / wanted - 1.0).abs() < 0.34, "{row}");
            assert_eq!(row["verdict"], verdict, "{row}");
            assert!(row["declared"].as_str().unwrap().contains(suffix), "{row}");
        }
        assert_ne!(same["declared"], slower["declared"]);
    }
}

/// Check that a program built with another version of a crate is compared function by function: what the version made slower
/// is told, what it left alone is not, and what went into another file is told as renamed.
#[test]
fn other_crate_version() {
    let lab = Lab::new();
    let base = record(&lab, &build_tally(&lab, "base", "0.1.0"));
    let new = record(&lab, &build_tally(&lab, "new", "0.2.0"));
    let found = diff(&lab, &base, &new, &["--inclusive"]);
    let weigh = row(&found, "tally::weigh");
    let (cost, twice) = costs(weigh);
    assert!((twice / cost / 2.0 - 1.0).abs() < 0.34, "{weigh}");
    assert_eq!(weigh["verdict"], "regression", "{weigh}");
    let (old, renamed) = ("tally::Table<T>::add", "tally::table::Table<T>::add");
    let renames = found["renamed"].as_array().unwrap();
    let is_told = |pair: &Value| pair["from"] == old && pair["to"] == renamed;
    assert!(renames.iter().any(is_told), "{found}");
    let accepted = diff(&lab, &base, &new, &["--accept-renames", "--inclusive"]);
    assert_same(&accepted, &[renamed]);
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
