//! CPUs that go and come back while a recording runs.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rawstack_test_support::json::Sample;
use rawstack_test_support::programs::{require, workload};
use rawstack_test_support::{Run, elf};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};

use crate::recording::{Lab, Recording, text};

const SWITCH: &str = "/sys/devices/system/cpu/cpu1/online";

/// CPU 1, which comes back whatever happens.
struct Cpu;

impl Cpu {
    fn switch(on: bool) {
        let value = if on { "1" } else { "0" };
        fs::write(SWITCH, value).unwrap_or_else(|err| panic!("{SWITCH}: {err}"));
    }
}

impl Drop for Cpu {
    fn drop(&mut self) {
        Self::switch(true);
    }
}

fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let [seconds, nanoseconds] =
        [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).expect("a positive time"));
    seconds * 1_000_000_000 + nanoseconds
}

/// Check that a CPU which goes ends nothing, and that it is recorded when it is back, with what is mapped there.
#[test]
fn goes_and_comes_back() {
    require("taskset", "util-linux");
    assert!(
        Path::new(SWITCH).exists(),
        "needs a second CPU that can be taken away"
    );
    let lab = Lab::new();
    let _busy = Run::new(workload("threads")).args(["4", "60"]).spawn();
    let mut recorder = lab.recorder("archive.rawstack", &["-F", "997"]).spawn();
    let status = format!("/proc/{}/status", recorder.pid());
    recorder.wait_until("it has given up its rights", || {
        fs::read_to_string(&status).is_ok_and(|status| status.contains("Seccomp:\t2"))
    });
    let cpu = Cpu;
    Cpu::switch(false);
    sleep(Duration::from_secs(1));
    drop(cpu);
    let back_ns = now_ns();
    // Looked at twice a second.
    sleep(Duration::from_secs(1));
    let program = lab.path("on-cpu-1");
    fs::copy(workload("vdso_clock"), &program).unwrap();
    Run::new("taskset")
        .args(["-c", "1", text(&program), "1"])
        .success();
    recorder.signal(Signal::INT);
    let output = recorder.wait().success();
    let recording = Recording::new(lab.path("archive.rawstack"), output);
    assert!(
        recording.info.drops.is_empty(),
        "{:?}",
        recording.info.drops
    );

    let samples = recording.samples();
    let later: Vec<&Sample> = samples
        .iter()
        .filter(|sample| sample.cpu == 1 && sample.time_ns > back_ns)
        .collect();
    assert!(
        later.len() > 300,
        "{} samples on the CPU that came back",
        later.len()
    );
    let build_id = elf::build_id(&program);
    let placed = later.iter().filter(|sample| {
        let mut frames = sample.user_frames();
        sample.comm == "on-cpu-1"
            && frames.any(|frame| frame.build_id.as_deref() == Some(&build_id))
    });
    assert!(placed.count() > 50, "what was mapped on that CPU is known");
}
