//! speedscope, checked by its own schema, and in its own page.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::consumers::{NAMED, consumers, export, output, read_with, report};
use crate::golden::folder;
use crate::run::succeed;

/// Check that a file keeps to speedscope's schema and holds the totals of the report.
#[test]
fn totals_are_the_report() {
    let work = tempfile::tempdir().unwrap();
    let file = export(work.path(), "speedscope", "golden.speedscope.json", &[]);
    assert_eq!(read_with("speedscope.py", &file), report(&[]));
    let options = ["--no-inlines", "--tid", "101", "--no-kernel"];
    let file = export(
        work.path(),
        "speedscope",
        "thread.speedscope.json",
        &options,
    );
    assert_eq!(read_with("speedscope.py", &file), report(&options));
}

/// Check that the page of speedscope opens a thread and shows the report's self and total times.
#[test]
fn in_the_page() {
    let work = tempfile::tempdir().unwrap();
    let thread = ["--tid", "101"];
    let file = export(work.path(), "speedscope", "golden.speedscope.json", &thread);
    let json = succeed(
        folder(),
        &[&["report", "--json"], &NAMED[..], &thread].concat(),
    );
    let report = work.path().join("report.json");
    fs::write(&report, json).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/page/speedscope.py");
    let page = "js/node_modules/speedscope/dist/release/index.html";
    output(
        Command::new(script)
            .arg(consumers().join(page))
            .args([file, report]),
    );
}
