//! Every reserved stack ID ends in exactly one state, whatever happens. [`Recording::new`] checks that sum each time.

use std::thread::sleep;
use std::time::Duration;

use rawstack_test_support::programs::workload;
use rustix::process::Signal;

use crate::recording::{Lab, Recording, text};

/// Fail unless each drop is counted under a reason.
fn assert_drops_are_told(recording: &Recording) {
    let dropped = recording.info.ids.state("dropped");
    let told: u64 = recording.info.drops.iter().map(|drops| drops.count).sum();
    assert!(
        told >= dropped,
        "{dropped} IDs dropped, reasons for {told}: {:?}",
        recording.info.drops
    );
    for drops in &recording.info.drops {
        assert!(
            !drops.reason.is_empty() && drops.from_ns <= drops.to_ns,
            "{drops:?}"
        );
    }
}

/// Check the sum, and that nothing is lost, when nothing special happens.
#[test]
fn in_peace() {
    let lab = Lab::new();
    let recording = lab.record(&["-F", "997"], &[text(&workload("recurse")), "2"]);
    assert_drops_are_told(&recording);
    assert_eq!(
        recording.info.ids.state("dropped"),
        0,
        "{:?}",
        recording.info.drops
    );
    let states = &recording.info.ids.states;
    for state in [
        "complete",
        "truncated",
        "faulted",
        "exited",
        "execed",
        "schedule_failed",
        "dropped",
        "pending",
    ] {
        assert!(
            states.contains_key(state),
            "info --json does not tell {state}: {states:?}"
        );
    }
}

/// Check the sum at 20 kHz on each of two busy CPUs.
#[test]
fn at_20_khz_per_cpu() {
    let lab = Lab::new();
    let recording = lab.record(&["-F", "20000"], &[text(&workload("threads")), "2", "3"]);
    assert_drops_are_told(&recording);
    assert!(
        recording.info.samples > 20_000,
        "only {} samples",
        recording.info.samples
    );
}

/// Check the sum when the recorder stands still for 5 s and the buffer runs over.
#[test]
fn recorder_stopped_for_5_s() {
    let lab = Lab::new();
    let run = lab
        .recorder("archive.rawstack", &["-F", "10000", "--"])
        .arg(workload("threads"))
        .args(["4", "9"]);
    let mut recorder = run.spawn();
    let archive = lab.path("archive.rawstack");
    recorder.wait_until("the archive is there", || archive.exists());
    sleep(Duration::from_secs(1));
    recorder.signal(Signal::STOP);
    sleep(Duration::from_secs(5));
    recorder.signal(Signal::CONT);
    let recording = Recording::new(archive, recorder.wait().success());
    assert_drops_are_told(&recording);
    let ids = &recording.info.ids;
    assert!(
        ids.state("dropped") == 0 || !recording.info.drops.is_empty(),
        "{ids:?}"
    );
}

/// Check the sum when threads are killed while they sleep within a system call.
#[test]
fn killed_while_blocked() {
    let lab = Lab::new();
    for _ in 0..3 {
        let run = lab.recorder("archive.rawstack", &["-F", "5000", "--force", "--"]);
        let output = run
            .arg(workload("blocked"))
            .args(["60", "1", "die"])
            .output();
        assert_ne!(output.status.code(), Some(2), "{}", output.stderr);
        assert_drops_are_told(&Recording::new(lab.path("archive.rawstack"), output));
    }
}

/// Check the sum when threads are still asleep within a system call as the recording ends.
#[test]
fn stopped_while_blocked() {
    let lab = Lab::new();
    let blocked = rawstack_test_support::Run::new(workload("blocked"))
        .args(["60", "30", "end"])
        .spawn();
    let pid = blocked.pid().to_string();
    let output = lab
        .recorder("archive.rawstack", &["-F", "5000", "-p", &pid, "-d", "1s"])
        .success();
    let recording = Recording::new(lab.path("archive.rawstack"), output);
    assert_drops_are_told(&recording);
    assert!(recording.info.samples > 0, "no samples");
}

/// Check the sum while processes execute themselves over and over, some from another thread.
#[test]
fn exec_storm() {
    let lab = Lab::new();
    let recording = lab.record(
        &["-F", "10000"],
        &[text(&workload("exec_storm")), "4", "1000"],
    );
    assert_drops_are_told(&recording);
    assert!(
        recording.info.samples > 1000,
        "only {} samples",
        recording.info.samples
    );
}

/// Check the sum when nearly every sample has a stack of its own, and that the stacks are told apart.
#[test]
fn many_distinct_stacks() {
    let lab = Lab::new();
    let recording = lab.record(
        &["-F", "10000"],
        &[text(&workload("many_stacks")), "2", "3"],
    );
    assert_drops_are_told(&recording);
    let info = &recording.info;
    assert!(info.samples > 5_000, "only {} samples", info.samples);
    assert!(
        info.stacks * 10 > info.samples * 8,
        "{} stacks in {} samples",
        info.stacks,
        info.samples
    );
}
