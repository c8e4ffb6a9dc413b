//! Thousands of processes and threads that come and go: memory stays bounded, and nobody gets another's code.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rawstack_test_support::elf;
use rawstack_test_support::json::{Sample, parse_hex};
use rawstack_test_support::programs::workload;

use crate::recording::{Lab, Recording, text};

/// Programs of the workload `churn`, and where the first of them has its function (`tests/workloads/churn.h`).
const PROGRAMS: u64 = 8;
const WORK: u64 = 0x50_0000;
const PAGE: u64 = 4096;
/// The recorder and its helpers may have so much memory at any time, in KiB.
const MOST_MEMORY: u64 = 64 << 10;
/// How often their memory is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// What the recorder had in memory over time, in KiB.
#[derive(Debug)]
struct Memory(Vec<u64>);

impl Memory {
    /// Fail unless it was bounded, and in the last third no larger by more than `slack` KiB than in the second.
    fn assert_flat(&self, slack: u64) {
        let most = |part: &[u64]| part.iter().copied().max().unwrap_or_default();
        let third = self.0.len() / 3;
        let (second, last) = self.0[third..].split_at(third);
        assert!(third > 2, "looked at only {} times", self.0.len());
        assert!(most(&self.0) <= MOST_MEMORY, "{:?}", self.0);
        assert!(most(last) <= most(second) + slack, "{:?}", self.0);
    }
}

/// Record `command` to its end, looking at the recorder's memory meanwhile.
fn record(lab: &Lab, options: &[&str], command: &[&str]) -> (Recording, Memory) {
    let run = lab.recorder("archive.rawstack", options).arg("--");
    let mut recorder = run.args(command).spawn();
    let pid = recorder.pid();
    let mut memory = Memory(Vec::new());
    let mut next = Instant::now();
    while !recorder.has_ended() {
        if Instant::now() >= next {
            memory.0.extend(memory_of(pid));
            next += LOOK;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = recorder.wait().success();
    (Recording::new(lab.path("archive.rawstack"), output), memory)
}

/// KiB in memory of a recorder with its helpers: its children that run the same file, and theirs.
fn memory_of(recorder: u32) -> Option<u64> {
    let program = |pid: u32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own = program(recorder)?;
    let mut sum = 0;
    let mut waiting = vec![recorder];
    while let Some(pid) = waiting.pop() {
        if program(pid).as_deref() == Some(&own) {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let words = line.and_then(|line| line.split_whitespace().next());
            sum += words.and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
            let children = format!("/proc/{pid}/task/{pid}/children");
            let children = fs::read_to_string(children).unwrap_or_default();
            waiting.extend(children.split_whitespace().flat_map(str::parse::<u32>));
        }
    }
    (sum > 0).then_some(sum)
}

/// Which of the programs a sample's leaf can only be of, by its address alone.
fn program_by_address(sample: &Sample) -> Option<u64> {
    let leaf = sample.user_frames().next()?;
    let address = parse_hex(leaf.address.as_deref()?);
    let program = address.checked_sub(WORK)? / PAGE;
    (program < PROGRAMS).then_some(program)
}

/// Check that at 1,300 new programs a second no sample has another program's build ID, one in a hundred none at most,
/// and that memory stays flat.
#[test]
fn short_programs() {
    let lab = Lab::new();
    let (churn, dir) = (workload("churn"), lab.path(""));
    let command = [text(&churn), text(&dir), "10"];
    let (recording, memory) = record(&lab, &["-F", "1997"], &command);
    let rate = recording.printed("rate");
    assert!(rate > 100, "only {rate} programs a second");
    memory.assert_flat(4 << 10);

    let build_ids: Vec<String> = (0..PROGRAMS)
        .map(|program| elf::build_id(Path::new(&format!("{}-{program}", churn.display()))))
        .collect();
    let (mut counts, mut unknown) = ([0u64; PROGRAMS as usize], 0u64);
    for sample in recording.samples() {
        let Some(program) = program_by_address(&sample) else {
            continue;
        };
        let (program, leaf) = (program as usize, sample.user_frames().next());
        counts[program] += 1;
        match leaf.and_then(|leaf| leaf.build_id.as_deref()) {
            // What the kernel told of a process that is gone can be lost: then nothing is said.
            None => unknown += 1,
            id => assert_eq!(
                id,
                Some(build_ids[program].as_str()),
                "program {program}, but: {sample:?}"
            ),
        }
    }
    let known: u64 = counts.iter().sum();
    assert!(
        unknown * 100 <= known,
        "{unknown} of {known} samples without module"
    );
    assert!(counts.iter().all(|&count| count > 50), "{counts:?}");
    assert_told(&recording);
}

/// Check that ten thousand processes at once are told apart, in bounded memory.
#[test]
fn ten_thousand_processes() {
    let lab = Lab::new();
    let crowd = workload("crowd");
    let command = [text(&crowd), "10000", "6"];
    let (recording, memory) = record(&lab, &["-F", "1997"], &command);
    assert_eq!(recording.printed("live"), 10_000);
    memory.assert_flat(8 << 10);
    let samples = recording.samples();
    let mut pids: Vec<u32> = samples.iter().map(|sample| sample.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    assert!(
        pids.len() > 2000,
        "samples of only {} processes",
        pids.len()
    );
    assert_told(&recording);
}

/// Check that five thousand threads at once, over and over, are recorded in bounded memory.
#[test]
fn thread_storm() {
    let lab = Lab::new();
    let storm = workload("storm");
    let command = [text(&storm), "5000", "6"];
    let (recording, memory) = record(&lab, &["-F", "1997"], &command);
    let total = recording.printed("total");
    assert!(total >= 10_000, "only {total} threads in all");
    memory.assert_flat(8 << 10);
    let pid = recording.samples()[0].pid;
    let samples = recording.samples();
    assert!(samples.iter().all(|sample| sample.pid == pid));
    assert_told(&recording);
}

/// Fail where more IDs were dropped than are told of with a reason.
fn assert_told(recording: &Recording) {
    let dropped = recording.info.ids.state("dropped");
    let told: u64 = recording.info.drops.iter().map(|drops| drops.count).sum();
    assert!(told >= dropped, "{dropped} dropped, {told} told");
}
