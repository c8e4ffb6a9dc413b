//! perf at work beside the recorder.

use rawstack_test_support::json;
use rawstack_test_support::programs::{rawstack, require, workload};
use rawstack_test_support::run::Run;

use crate::recording::{Lab, text};

/// Check that what perf records while this recorder runs, whose build IDs the kernel mixes up with perf's files, is
/// imported with all its names.
#[test]
fn recorded_beside() {
    let lab = Lab::new();
    require("perf", "linux-perf");
    let (data, recurse) = (lab.path("perf.data"), workload("recurse"));
    // Without -B and -N perf 6.1 reads the files at its end, and breaks down over what the kernel told it.
    let perf = ["perf", "record", "-q", "-B", "-N", "-F", "500", "-g", "-o"];
    let command = [&perf[..], &[text(&data), "--", text(&recurse), "0.5"]].concat();
    lab.record(&["-a"], &command);
    let imported = lab.path("imported.rawstack");
    let import = Run::new(rawstack()).args(["import", text(&data), "-o", text(&imported)]);
    let said = import.success();
    assert!(
        !said.stderr.contains("could not be read"),
        "{}",
        said.stderr
    );
    let report = json::report(&imported, &["--no-kernel"]);
    let own = report.rows.iter().find(|row| row.name == "descend");
    assert!(own.is_some(), "{:?}", report.rows);
}
