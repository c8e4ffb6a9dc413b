//! Exports of what was really recorded: each is read by a program of others.

use std::time::Duration;

use rawstack_test_support::Run;
use rawstack_test_support::programs::{rawstack, target_dir, workload, workspace_dir};

use crate::recording::{Lab, text};

/// How long all formats may take.
const DEADLINE: Duration = Duration::from_secs(400);

/// Check that every export of programs with threads, inlined functions and C++ and Rust names, recorded at 1 kHz, has the
/// report's times by function.
#[test]
fn agree_with_the_report() {
    let lab = Lab::new();
    let (threads, mixed) = (workload("threads"), workload("mixed-clang"));
    let both = format!("{} 3 2 & {} 2; wait", text(&threads), text(&mixed));
    let recording = lab.record(&["-F", "997"], &["sh", "-c", &both]);
    let consumers = target_dir().join("consumers");
    assert!(
        consumers.join("ready").exists(),
        "the programs that read exports are missing: run scripts/consumers"
    );
    let output = Run::new(workspace_dir().join("tests/e2e/exports.py"))
        .arg(rawstack())
        .arg(&recording.archive)
        .arg(consumers)
        .deadline(DEADLINE)
        .success();
    assert_eq!(output.stdout.lines().count(), 10, "{}", output.stdout);
}
