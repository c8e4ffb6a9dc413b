//! Processes that come and go: short ones, deleted ones, children, interpreters.

use std::collections::BTreeSet;

use rawstack_test_support::elf;
use rawstack_test_support::json::{Frame, Sample, parse_hex, report, symbolize};
use rawstack_test_support::programs::{script, workload};

use crate::recording::{Lab, Recording, percent, text};

/// Check that processes of under 5 ms, half of them from a file deleted at once, leave frames that can be placed.
#[test]
fn thousand_short_processes() {
    let lab = Lab::new();
    let program = workload("spawn1000");
    let dir = lab.path("");
    let recording = lab.record(&["-F", "1997"], &[text(&program), text(&dir), "1000"]);
    assert_eq!(recording.printed("ended"), 1000, "not all children ran");

    let samples = recording.samples();
    let frames: Vec<&Frame> = samples
        .iter()
        .flat_map(Sample::user_frames)
        .filter(|f| !f.is_kernel_page())
        .collect();
    let placed = frames.iter().filter(|frame| frame.is_placed()).count();
    assert!(frames.len() > 2000, "only {} user frames", frames.len());
    assert!(
        percent(placed, frames.len()) >= 99.9,
        "{placed} of {} user frames are placed",
        frames.len()
    );

    // A walk through the C library, which has no frame pointers, meets other words of the stack: text of arguments and
    // environment among them, which must not get into an archive.
    let words: Vec<_> = frames
        .iter()
        .filter(|frame| {
            frame
                .address
                .as_deref()
                .is_some_and(|address| parse_hex(address) >= 1 << 47)
        })
        .collect();
    assert!(
        words.is_empty(),
        "{} words of memory are told as addresses: {:?} …",
        words.len(),
        words[0]
    );

    // A copy is the same module, and its process is named after the copy.
    let build_id = elf::build_id(&program);
    let in_copies = samples
        .iter()
        .filter(|sample| sample.comm.starts_with("copy-"))
        .flat_map(Sample::user_frames)
        .filter(|frame| frame.build_id.as_deref() == Some(build_id.as_str()))
        .count();
    assert!(in_copies > 500, "only {in_copies} frames in deleted files");
    let pids: BTreeSet<u32> = samples.iter().map(|sample| sample.pid).collect();
    assert!(
        pids.len() > 900,
        "only {} of 1,000 processes have a sample",
        pids.len()
    );
}

/// Check that COMMAND and its child are sampled from their first instruction on.
#[test]
fn from_the_first_instruction() {
    let lab = Lab::new();
    let program = workload("first_instruction");
    let output = lab
        .recorder("archive.rawstack", &["-F", "1997", "--"])
        .arg(&program)
        .output()
        .code(7);
    let recording = Recording::new(lab.path("archive.rawstack"), output);
    let samples = recording.samples();

    let leaves: Vec<(u32, u64)> = samples
        .iter()
        .filter_map(|sample| Some((sample.pid, sample.user_frames().next()?)))
        .filter(|(_, frame)| frame.path.as_deref() == Some(text(&program)))
        .filter_map(|(pid, frame)| Some((pid, frame.file_offset()?)))
        .collect();
    let offsets: Vec<u64> = leaves.iter().map(|(_, offset)| *offset).collect();
    let names: Vec<String> = symbolize(&program, &offsets)
        .into_iter()
        .map(|answer| {
            answer
                .frames
                .last()
                .map_or(String::new(), |frame| frame.name.clone())
        })
        .collect();
    let pids: BTreeSet<u32> = leaves.iter().map(|(pid, _)| *pid).collect();
    assert_eq!(pids.len(), 2, "parent and child: {pids:?}");
    for pid in pids {
        let count = |wanted: &str| {
            leaves
                .iter()
                .zip(&names)
                .filter(|((other, _), name)| *other == pid && *name == wanted)
                .count()
        };
        let (first, second) = (count("first_work"), count("second_work"));
        assert!(second > 20, "only {second} samples in second_work");
        assert!(
            first * 100 >= second * 70,
            "{first} samples in first_work, {second} in second_work"
        );
    }
}

/// Check that threads are told apart by ID and name.
#[test]
fn threads_by_name() {
    let lab = Lab::new();
    let program = workload("threads");
    let recording = lab.record(&["-F", "997"], &[text(&program), "6", "2"]);
    let samples = recording.samples();
    let comms: BTreeSet<&str> = samples.iter().map(|sample| sample.comm.as_str()).collect();
    let workers = [
        "worker-0", "worker-1", "worker-2", "worker-3", "worker-4", "worker-5",
    ];
    for worker in workers {
        assert!(comms.contains(worker), "no sample of {worker}: {comms:?}");
        let of_worker = samples.iter().filter(|sample| sample.comm == worker);
        let tids: BTreeSet<u32> = of_worker.map(|sample| sample.tid).collect();
        assert_eq!(tids.len(), 1, "{worker} has {tids:?}");
    }
    let rows = report(&recording.archive, &["--by", "thread"]).rows;
    for worker in workers {
        assert!(
            rows.iter().any(|row| row.name.contains(worker)),
            "no row for {worker}: {rows:?}"
        );
    }
}

/// Check that an interpreter and a shell with its children are recorded like anything else.
#[test]
fn interpreter_and_shell() {
    let lab = Lab::new();
    let (python, shell) = (script("busy.py"), script("busy.sh"));
    for (command, comm) in [
        (vec!["python3", text(&python), "1"], "python3"),
        (vec!["sh", text(&shell), "100"], "sh"),
    ] {
        let options = ["-F", "997", "--force"];
        let recording = lab.record(&options, &command);
        let samples = recording.samples();
        let own = samples.iter().filter(|sample| sample.comm == comm).count();
        assert!(own > 20, "only {own} samples of {comm}");
    }
}

/// Check that time spent in the vDSO has the vDSO's names.
#[test]
fn vdso() {
    let lab = Lab::new();
    let recording = lab.record(&["-F", "997"], &[text(&workload("vdso_clock")), "1"]);
    let rows = report(&recording.archive, &[]).rows;
    let vdso = rows.iter().filter(|row| {
        row.module
            .as_deref()
            .is_some_and(|module| module.contains("[vdso]"))
    });
    let named = vdso.filter(|row| row.name.contains("clock_gettime") && row.self_weight > 0.0);
    assert!(named.count() > 0, "no clock_gettime of [vdso]: {rows:?}");
}
