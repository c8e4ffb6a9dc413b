//! Perfetto, read with Perfetto's own Python types.

use super::consumers::{export, read_with, report};
use crate::golden::folder;
use crate::run::rawstack;

/// Check that interned names, stacks, threads, times and weights are those of the report.
#[test]
fn totals_are_the_report() {
    let work = tempfile::tempdir().unwrap();
    let file = export(work.path(), "perfetto", "golden.pftrace", &[]);
    assert_eq!(read_with("perfetto_trace.py", &file), report(&[]));
}

/// Check that two archives are refused, whose hosts share no clock.
#[test]
fn two_archives() {
    let two = ["golden.rawstack", "golden.rawstack"];
    let args = [
        &["export", "-q", "--format", "perfetto", "-o", "/dev/null"][..],
        &two,
    ]
    .concat();
    let ran = rawstack(folder(), &args);
    assert_eq!(ran.code, 2);
    let expected = "rawstack: failed to write: this format holds one archive, as hosts share no clock; give one\n";
    assert_eq!(ran.err, expected);
}
