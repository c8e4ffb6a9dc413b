//! Resolution where the recorded machine is unknown: archive and debug files are all there is.

use rawstack_test_support::bare_root::BareRoot;
use rawstack_test_support::debug_tree;
use rawstack_test_support::json::{Report, Row, parse, report};
use rawstack_test_support::programs::{rawstack, workload};

use crate::recording::{Lab, text};

/// Record `name`, report on it here, and in a root with nothing but the archive and debug files.
fn here_and_elsewhere(name: &str) -> (Report, Report) {
    let lab = Lab::new();
    let program = workload(name);
    let recording = lab.record(&["-F", "1997"], &[text(&program), "2"]);
    let here = report(&recording.archive, &[]);

    let root = BareRoot::new();
    root.add_program(&rawstack());
    root.add_file(&recording.archive, "/archive.rawstack");
    debug_tree::make(&root.outside("/debug"), &[&program]);
    let run = root.run("/bin/rawstack").args([
        "report",
        "/archive.rawstack",
        "--json",
        "--symbol-dir",
        "/debug",
    ]);
    (here, parse(&run.success().stdout))
}

/// The rows, but for stubs of the linker in `program`: their names come from the program's own relocations, which a debug
/// file does not hold.
fn without_stubs(report: &Report, program: &str) -> Vec<Row> {
    let is_stub = |name: &str| name.ends_with("@plt") || name.starts_with(&format!("{program}+0x"));
    let rows = report.rows.iter().filter(|row| !is_stub(&row.name));
    rows.cloned().collect()
}

/// Check that a static program, whose frames all have debug information, gives the same report, kernel included.
#[test]
fn static_program_same_report() {
    let (here, elsewhere) = here_and_elsewhere("mixed-static");
    assert!(here.rows.len() > 40, "only {} rows", here.rows.len());
    let rows = |report| without_stubs(report, "mixed-static");
    assert_eq!(rows(&here), rows(&elsewhere));
    assert_eq!(here.total, elsewhere.total);
}

/// Check that the rows of a program with shifted segments are the same, libraries without debug files aside.
#[test]
fn shifted_segments_same_names() {
    let (here, elsewhere) = here_and_elsewhere("mixed-gap");
    let own = |report: &Report| {
        let is_own = |row: &Row| {
            let module = row.module.as_deref().unwrap_or_default();
            module.ends_with("mixed-gap")
        };
        let rows = without_stubs(report, "mixed-gap");
        rows.into_iter().filter(is_own).collect::<Vec<_>>()
    };
    assert!(own(&here).len() > 20, "only {} rows", own(&here).len());
    assert_eq!(own(&here), own(&elsewhere));
    assert_eq!(here.total, elsewhere.total);
}
