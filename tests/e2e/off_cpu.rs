//! Time blocked: as long as it was, with both halves of the stack, and told when it had not ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rawstack_test_support::json::{Frame, Sample, Symbolized, report, symbolize};
use rawstack_test_support::programs::workload;
use rawstack_test_support::{Run, Running};

use crate::recording::{Lab, Recording, text};

/// Total time of each function in the report whose name begins with `wait_`, in nanoseconds.
fn waited(recording: &Recording, function: &str) -> f64 {
    let rows = report(&recording.archive, &[]).rows;
    let of_function = rows.iter().filter(|row| row.name == function);
    of_function.map(|row| row.total).sum()
}

fn assert_within(found: f64, expected: f64, percent: f64, what: &str) {
    let off = (found - expected).abs() * 100.0 / expected;
    assert!(
        off <= percent,
        "{what}: {found} ns, {off:.2} % off {expected} ns"
    );
}

/// Check that each kind of wait is told as long as the waiting program itself saw it, within 2 %.
fn known_waits(options: &[&str]) {
    let lab = Lab::new();
    let program = workload("waits");
    let options = [options, &["-e", "off-cpu"]].concat();
    let recording = lab.record(&options, &[text(&program), "known"]);
    assert_eq!(report(&recording.archive, &[]).unit, "ns");
    for function in ["wait_nanosleep", "wait_futex", "wait_pipe"] {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let expected = recording.printed(function) as f64;
        assert_within(waited(&recording, function), expected, 2.0, function);
    }
    assert!(waited(&recording, "wait_short") > 0.0);
    assert_eq!(recording.info.ids.state("dropped"), 0);
}

/// Check the lengths where user halves can be deferred.
#[test]
fn lengths() {
    known_waits(&[]);
}

/// Check them where all is taken as the task blocks.
#[test]
fn lengths_immediate() {
    known_waits(&["--user-stacks", "immediate"]);
}

/// Check that waits shorter than asked for are none.
#[test]
fn shortest() {
    let lab = Lab::new();
    let program = workload("waits");
    let recording = lab.record(&["-e", "off-cpu:50ms"], &[text(&program), "known"]);
    assert_eq!(waited(&recording, "wait_short"), 0.0);
    assert!(waited(&recording, "wait_futex") > 450e6);
    let samples = recording.samples();
    assert!(samples.iter().all(|sample| sample.weight >= 50_000_000));
}

/// Names of the functions of one program.
struct Names {
    program: PathBuf,
    by_offset: BTreeMap<u64, String>,
}

impl Names {
    /// Name all frames of `samples` in `program`, at once.
    fn of(program: &Path, samples: &[Sample]) -> Self {
        let offset = |frame: &Frame| {
            let of_program = frame.path.as_deref() == Some(text(program));
            frame.file_offset().filter(|_| of_program)
        };
        let frames = samples.iter().flat_map(Sample::user_frames);
        let offsets: BTreeSet<u64> = frames.filter_map(offset).collect();
        let offsets: Vec<u64> = offsets.into_iter().collect();
        let name = |answer: Symbolized| answer.frames.last().map(|frame| frame.name.clone());
        let names = symbolize(program, &offsets).into_iter().map(name);
        let by_offset = offsets.iter().copied().zip(names);
        Self {
            program: program.to_owned(),
            by_offset: by_offset
                .filter_map(|(offset, name)| Some((offset, name?)))
                .collect(),
        }
    }

    /// Functions on the stack of `sample`, leaf first.
    fn on_stack<'a>(&'a self, sample: &'a Sample) -> impl Iterator<Item = &'a str> {
        let own = sample
            .user_frames()
            .filter(|frame| frame.path.as_deref() == Some(text(&self.program)));
        own.filter_map(|frame| Some(self.by_offset.get(&frame.file_offset()?)?.as_str()))
    }

    /// Samples with the function on their stack.
    fn with<'a>(&self, samples: &'a [Sample], name: &str) -> Vec<&'a Sample> {
        let has = |sample: &&Sample| self.on_stack(sample).any(|other| other == name);
        samples.iter().filter(has).collect()
    }
}

/// The workload `waits` with threads that wait before the recording, and one that does so in it.
fn still_waiting(lab: &Lab) -> (Running, PathBuf) {
    let go = lab.path("go");
    let program = workload("waits");
    let running = Run::new(program).arg(text(&go)).spawn();
    (running, go)
}

/// Check that a wait is told that had not ended with the recording, another that had not begun with it, and one that
/// was there before and after; and that a thread that works is not blocked.
#[test]
fn not_within_the_recording() {
    let lab = Lab::new();
    let program = workload("waits");
    let (running, go) = still_waiting(&lab);
    let pid = running.pid().to_string();
    let options = ["-e", "off-cpu", "-p", &pid, "-d", "2s"];
    let archive = lab.path("archive.rawstack");
    let mut recorder = lab.recorder("archive.rawstack", &options).spawn();
    recorder.wait_until("the archive is there", || archive.exists());
    thread::sleep(Duration::from_millis(700));
    fs::write(&go, "").unwrap();
    let recording = Recording::new(archive, recorder.wait().success());
    recording.assert_deferred();
    let samples = recording.samples();
    let names = Names::of(&program, &samples);
    let length = recording.info.end_ns - recording.info.start_ns;

    // Before and after: its user half is out of reach, all else is there.
    let pending = recording.samples_in("pending");
    let whole: Vec<_> = pending
        .iter()
        .filter(|sample| sample.user_frames().count() == 0)
        .collect();
    assert_eq!(whole.len(), 1, "{pending:?}");
    let weight = whole[0].weight;
    assert!(
        weight > 1_500_000_000 && weight <= length,
        "{weight} of {length}"
    );
    assert!(whole[0].kernel_frames().count() > 2);

    // Not ended: as long as it lasted up to then, with both halves.
    let later = names.with(&pending, "wait_later");
    assert_eq!(later.len(), 1, "{pending:?}");
    assert!(later[0].weight > 500_000_000 && later[0].weight < length);
    assert!(later[0].kernel_frames().count() > 2);
    assert!(names.on_stack(later[0]).any(|name| name == "main"));

    // Not begun: from the start of the recording on, and its user half from its return.
    let ended = names.with(&samples, "wait_ended");
    assert_eq!(ended.len(), 1, "{samples:?}");
    assert_eq!(ended[0].state, "complete");
    assert!(ended[0].weight > 500_000_000 && ended[0].weight < length);
    assert!(names.with(&samples, "wait_busy").is_empty());
}

/// Check that a stack that is too deep to wait with its thread, and has its pages on the disk, comes whole.
#[test]
fn deep_stack_out_of_memory() {
    let lab = Lab::new();
    let (program, file) = (workload("deep_stack"), lab.path("stack"));
    let command = [text(&program), text(&file), "300", "1", "sleep"];
    let recording = lab.record(&["-e", "off-cpu"], &command);
    recording.assert_deferred();
    assert!(recording.printed("out") > 0, "no page was out");
    let samples = recording.samples();
    let names = Names::of(&program, &samples);
    let naps = names.with(&samples, "nap");
    assert!(naps.len() > 20, "only {} naps", naps.len());
    for nap in naps {
        let calls = names.on_stack(nap);
        let depth = calls.filter(|name| name.starts_with("frame_")).count();
        assert_eq!((depth, nap.state.as_str()), (300, "complete"));
    }
}

/// Check that at hundreds of thousands of switches a second each wait is there, or told as lost.
#[test]
fn each_wait_is_accounted_for() {
    let lab = Lab::new();
    let program = workload("ping_pong");
    let recording = lab.record(&["-e", "off-cpu"], &[text(&program), "0", "100000"]);
    let blocked = recording.printed("blocked");
    let reserved = recording.info.ids.reserved;
    assert!(blocked >= 50_000, "blocked {blocked} times only");
    // The last switch of a process is no wait, and its first may come before it becomes the command.
    assert!(
        reserved.abs_diff(blocked) <= 20,
        "{reserved} waits where the kernel counted {blocked}"
    );
}

/// Check that CPU time and time blocked go together in one archive, each with its own weight.
#[test]
fn beside_the_clock() {
    let lab = Lab::new();
    let program = workload("waits");
    let options = ["-e", "cpu-clock", "-e", "off-cpu", "-F", "997"];
    let recording = lab.record(&options, &[text(&program), "known"]);
    let samples = recording.samples();
    let of_event = |event: &str| {
        let of_event = samples.iter().filter(|sample| sample.event == event);
        of_event.map(|sample| sample.weight).sum::<u64>()
    };
    assert!(of_event("off-cpu") > 1_500_000_000);
    assert!(of_event("cpu-clock") < 500_000_000);
}
