//! The recorder is killed: what it wrote stays readable.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rawstack_test_support::Run;
use rawstack_test_support::json::{Info, info, rawstack_on, samples};
use rawstack_test_support::programs::workload;
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};

use crate::recording::Lab;

/// How often the recorder is killed.
const KILLS: u64 = 50;

/// The most that may be missing, in nanoseconds of recording.
const MAY_BE_MISSING: u64 = 1_000_000_000;

/// `CLOCK_MONOTONIC`, the clock of samples.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap_or_default()
}

/// Whether the archive has been begun.
fn is_begun(archive: &Path) -> bool {
    archive.metadata().is_ok_and(|metadata| metadata.len() > 0)
}

/// Kill the recorder of a busy process `life_ms` after it began its archive, or with `at_start` after its own start;
/// the moment of the kill.
fn record_and_kill(lab: &Lab, name: &str, pid: &str, life_ms: u64, at_start: bool) -> u64 {
    let recorder = lab.recorder(name, &["-F", "997", "-p", pid]).spawn();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !at_start && !is_begun(&lab.path(name)) {
        assert!(Instant::now() < deadline, "no archive after 20 s");
        sleep(Duration::from_millis(1));
    }
    sleep(Duration::from_millis(life_ms));
    let killed_at = monotonic_ns();
    recorder.signal(Signal::KILL);
    assert_eq!(
        recorder.wait().signal(),
        Some(Signal::KILL.as_raw()),
        "it ended before it was killed"
    );
    killed_at
}

/// Check that an archive cut by a kill opens, says that it is cut, and lacks one second at most.
fn check_cut_archive(archive: &Path, killed_at: u64) -> Info {
    let info = info(archive);
    assert!(
        !info.damage.is_empty(),
        "info does not say that the end is missing"
    );
    let verdict = rawstack_on("verify", archive).output().code(1);
    assert!(
        !verdict.stdout.is_empty() || !verdict.stderr.is_empty(),
        "verify says nothing"
    );
    let last = samples(archive)
        .iter()
        .map(|sample| sample.time_ns)
        .max()
        .unwrap_or(info.start_ns);
    // Nothing but the header: killed before the recording began.
    let missing = if info.start_ns == 0 {
        0
    } else {
        killed_at.saturating_sub(last)
    };
    assert!(
        missing <= MAY_BE_MISSING,
        "the last {missing} ns are missing: {info:?}"
    );
    info
}

/// Check 50 kills at moments between 0 and 2 seconds of the recording, every tenth of them in its first 200 ms.
#[test]
fn kill_9_at_50_moments() {
    let lab = Lab::new();
    let busy = Run::new(workload("threads"))
        .args(["2", "280"])
        .deadline(Duration::from_secs(300))
        .spawn();
    let pid = busy.pid().to_string();
    let mut with_samples = 0;
    for kill in 0..KILLS {
        // The same moments each time, spread by a multiplicative hash.
        let life_ms = kill.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & 2047;
        let at_start = kill % 10 == 0;
        let life_ms = if at_start { life_ms / 10 } else { life_ms };
        let name = format!("{kill}.rawstack");
        let killed_at = record_and_kill(&lab, &name, &pid, life_ms, at_start);
        let archive = lab.path(&name);
        // Killed before it made the file, or before it wrote the first chunk: there is nothing to read yet.
        if at_start && !is_begun(&archive) {
            continue;
        }
        with_samples += u64::from(check_cut_archive(&archive, killed_at).samples > 0);
    }
    assert!(
        with_samples > KILLS / 3,
        "only {with_samples} of {KILLS} archives hold samples"
    );
}
