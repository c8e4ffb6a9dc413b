//! speedscope, checked by its own schema.

use super::consumers::{export, read_with, report};

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
