//! What is written for scripts keeps to the schemas that are published.

use std::path::Path;
use std::process::Command;

use super::consumers::{consumers, output};
use crate::golden::folder;
use crate::run::succeed;

/// Check that all JSON and CSV, of a whole and of a damaged archive, is valid by its schema, and that each schema is used.
#[test]
fn everything_is_valid() {
    let work = tempfile::tempdir().unwrap();
    let kinds: [(&str, &str, &[&str]); 8] = [
        ("rawstack.report.v1", "json", &["report", "--json"]),
        (
            "rawstack.tree.v1",
            "json",
            &["report", "--json", "--tree", "callees", "--min", "20"],
        ),
        ("rawstack.info.v1", "json", &["info", "--json"]),
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
    let mut files = Vec::new();
    for archive in ["golden.rawstack", "damaged.rawstack"] {
        for (schema, kind, args) in kinds {
            let file = work.path().join(format!("{archive}-{schema}"));
            let file = file.to_str().unwrap().to_owned();
            succeed(folder(), &[args, &[archive, "-q", "-o", &file]].concat());
            files.extend([schema.to_owned(), file, kind.to_owned()]);
        }
    }
    let merged = work.path().join("merged.rawstack");
    let merged = merged.to_str().unwrap();
    let parts = ["golden.rawstack", "killed.rawstack"];
    succeed(
        folder(),
        &[&["merge", "-q", "-o", merged], &parts[..]].concat(),
    );
    let file = work.path().join("merged.json");
    let file = file.to_str().unwrap();
    succeed(folder(), &["info", "--json", merged, "-o", file]);
    files.extend(["rawstack.info.v1", file, "json"].map(str::to_owned));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    output(
        Command::new(consumers().join("python/bin/python3"))
            .arg("-B")
            .arg(root.join("tests/symbolizer/exports/schemas.py"))
            .arg(root.join("docs/schemas"))
            .args(files),
    );
}
