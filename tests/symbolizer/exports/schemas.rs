//! What is written for scripts keeps to the schemas that are published.

use std::path::Path;
use std::process::Command;

use super::consumers::{consumers, output};
use crate::diff::builds::Build;
use crate::fixtures;
use crate::golden::folder;
use crate::run::succeed;

/// What is written in `folder` by `args`, into a file of its own, as the validator wants it told.
fn written(folder: &Path, work: &Path, schema: &str, kind: &str, args: &[&str]) -> [String; 3] {
    let number = work.read_dir().unwrap().count();
    let file = work.join(format!("{number}-{schema}"));
    let file = file.to_str().unwrap().to_owned();
    succeed(folder, &[args, &["-q", "-o", &file]].concat());
    [schema.to_owned(), file, kind.to_owned()]
}

/// Comparisons of each kind: with rows of each verdict, lines, renames, relative costs, one run a side, and what is missing.
fn comparisons(work: &Path) -> Vec<[String; 3]> {
    let archives = tempfile::tempdir().unwrap();
    let folder = archives.path();
    let (base, new) = (Build::new(1), Build::new(2));
    let changed = new.clone().with("parse", 390).with("log", 20);
    let changed = changed.without("sort").with("order", 121).with("fresh", 40);
    let one = Build { runs: 1, ..new };
    base.archive().write(folder, "base.rawstack");
    changed.archive().write(folder, "new.rawstack");
    one.archive().write(folder, "one.rawstack");
    let more: [&[&str]; 7] = [
        &["base.rawstack", "new.rawstack"],
        &["base.rawstack", "new.rawstack", "--by", "line"],
        &["base.rawstack", "new.rawstack", "--accept-renames"],
        &["base.rawstack", "new.rawstack", "--cost", "ratio"],
        &["base.rawstack", "new.rawstack", "--inclusive"],
        &["base.rawstack", "new.rawstack", "--focus", "^nothing$"],
        &["one.rawstack", "one.rawstack"],
    ];
    let diff = ["diff", "--fail-on", "never", "--format", "json"];
    let mut files: Vec<[String; 3]> = more
        .iter()
        .map(|more| {
            let args = [&diff[..], more].concat();
            written(folder, work, "rawstack.diff.v1", "json", &args)
        })
        .collect();
    let args = ["calibrate", "base.rawstack"];
    files.push(written(folder, work, "rawstack.noise.v1", "json", &args));
    files
}

/// Numbers with and without a name, with lines and without, by address and by offset.
fn numbers(work: &Path) -> Vec<[String; 3]> {
    let program = fixtures::golden();
    let program = program.to_str().unwrap();
    let name = |more: &[&str]| {
        let args = [&["symbolize", "--json", "--file", program][..], more].concat();
        written(folder(), work, "rawstack.symbolize.v1", "lines", &args)
    };
    let by_id = ["symbolize", "--json", "--build-id", fixtures::GOLDEN_ID];
    let by_id = [
        &by_id[..],
        &["--symbol-dir", "debug", "401016", "ffffffffffffffff"],
    ]
    .concat();
    vec![
        written(folder(), work, "rawstack.symbolize.v1", "lines", &by_id),
        name(&["--offsets", "1016", "10aa", "ffffffffffffffff"]),
        name(&["--symbols-only", "401016", "40105e"]),
    ]
}

/// Check that all JSON and CSV, of a whole and of a damaged archive, is valid by its schema, and that each schema is used.
#[test]
fn everything_is_valid() {
    let work = tempfile::tempdir().unwrap();
    let kinds: [(&str, &str, &[&str]); 9] = [
        ("rawstack.report.v1", "json", &["report", "--json"]),
        (
            "rawstack.tree.v1",
            "json",
            &["report", "--json", "--tree", "callees", "--min", "20"],
        ),
        ("rawstack.info.v1", "json", &["info", "--json"]),
        ("rawstack.symbols.v1", "lines", &["symbols", "--json"]),
        ("rawstack.dump.v1", "lines", &["dump"]),
        (
            "rawstack.samples.v1",
            "lines",
            &["export", "--format", "json"],
        ),
        (
            "rawstack.samples-csv.v1",
            "csv",
            &["export", "--format", "csv"],
        ),
        (
            "rawstack.report-csv.v1",
            "csv",
            &["report", "--csv", "--by", "line"],
        ),
        (
            "rawstack.tree-csv.v1",
            "csv",
            &["report", "--csv", "--tree", "callers"],
        ),
    ];
    let mut files = comparisons(work.path());
    files.extend(numbers(work.path()));
    for archive in ["golden.rawstack", "damaged.rawstack"] {
        files.extend(kinds.map(|(schema, kind, args)| {
            let args = [args, &[archive]].concat();
            written(folder(), work.path(), schema, kind, &args)
        }));
    }
    let merged = work.path().join("merged.rawstack");
    let merged = merged.to_str().unwrap();
    let parts = ["golden.rawstack", "killed.rawstack"];
    succeed(
        folder(),
        &[&["merge", "-q", "-o", merged], &parts[..]].concat(),
    );
    let args = ["info", "--json", merged];
    files.push(written(
        folder(),
        work.path(),
        "rawstack.info.v1",
        "json",
        &args,
    ));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    output(
        Command::new(consumers().join("python/bin/python3"))
            .arg("-B")
            .arg(root.join("tests/symbolizer/exports/schemas.py"))
            .arg(root.join("docs/schemas"))
            .args(files.concat()),
    );
}
