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

/// Open `file`, of thread 101, in the page, and compare with the report.
fn in_the_page(work: &Path, file: &Path, mode: &[&str]) {
    let json = succeed(
        folder(),
        &[&["report", "--json"], &NAMED[..], &THREAD].concat(),
    );
    let report = work.join("report.json");
    fs::write(&report, json).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/page/speedscope.py");
    let page = "js/node_modules/speedscope/dist/release/index.html";
    output(
        Command::new(script)
            .arg(consumers().join(page))
            .args([file, &report])
            .args(mode),
    );
}

const THREAD: [&str; 2] = ["--tid", "101"];

/// Check that the page of speedscope opens a thread and shows the report's self and total times.
#[test]
fn own_format_in_the_page() {
    let work = tempfile::tempdir().unwrap();
    let file = export(work.path(), "speedscope", "golden.speedscope.json", &THREAD);
    in_the_page(work.path(), &file, &[]);
}

/// Check that the page opens the text that tools made for perf script read, too, and shows the report's functions.
#[test]
fn perf_script_in_the_page() {
    let work = tempfile::tempdir().unwrap();
    let file = export(work.path(), "perf-script", "golden.perf.txt", &THREAD);
    in_the_page(work.path(), &file, &["names"]);
}
