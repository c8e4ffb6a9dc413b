//! OpenTelemetry profiles, read with OpenTelemetry's own Python types.

use super::consumers::{export, read_with, report};

/// Check that the dictionary keeps its rules, and that stacks, threads, counts and weights are those of the report.
#[test]
fn totals_are_the_report() {
    let work = tempfile::tempdir().unwrap();
    let file = export(work.path(), "otlp", "golden.otlp", &[]);
    assert_eq!(read_with("otlp.py", &file), report(&[]));
}
