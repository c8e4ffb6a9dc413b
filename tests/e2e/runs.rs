//! The command, several times in one archive.

use rawstack_test_support::json::{self, info, rawstack_on, samples};

use crate::recording::{Lab, Recording, SPIN};

/// A loop of some tenths of a second; the second run of it fails.
const LINE: &str = r#"echo x >> runs; i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; test $(wc -l < runs) -ne 2"#;

/// Check that each run has its times, its exit status and its work, that every sample belongs to the run that went on
/// at its time, and that a run that fails is told by the exit code and holds up none.
#[test]
fn three_runs() {
    let lab = Lab::new();
    let output = lab
        .recorder(
            "r.rawstack",
            &["-F", "997", "-r", "3", "--work", "60000", "--"],
        )
        .args(["sh", "-c", LINE])
        .output()
        .code(1);
    let archive = lab.path("r.rawstack");
    let recording = Recording::new(archive.clone(), output);
    let runs = &info(&archive).runs;
    let facts: Vec<_> = runs.iter().map(|run| (run.run, run.exit)).collect();
    assert_eq!(facts, [(0, 0), (1, 1 << 8), (2, 0)]);
    for run in runs {
        assert!(run.start_ns < run.end_ns && run.work == 60000.0, "{run:?}");
    }
    assert!(
        runs.windows(2)
            .all(|pair| pair[0].end_ns <= pair[1].start_ns)
    );
    let mut counts = [0; 3];
    for sample in recording.samples() {
        let run = usize::try_from(sample.run.as_u64().unwrap()).unwrap();
        counts[run] += 1;
        let next = runs.get(run + 1).map_or(u64::MAX, |next| next.start_ns);
        assert!(sample.time_ns < next, "{sample:?} is of a later run");
        assert!(
            run == 0 || sample.time_ns >= runs[run].start_ns,
            "{sample:?} is of an earlier run"
        );
    }
    assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
    let weight: u64 = samples(&archive)
        .iter()
        .filter(|sample| sample.run == 1)
        .map(|sample| sample.weight)
        .sum();
    let report = json::report(&archive, &["--run", "1"]);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
    let weight = weight as f64;
    assert!(
        (report.total - weight).abs() < 1.0,
        "{} is not {weight}",
        report.total
    );
    let text = rawstack_on("info", &archive).success().stdout;
    assert!(text.contains("exit status 1, work 60000"), "{text}");
}

/// Check that one run, too, is told with its end.
#[test]
fn one_run() {
    let lab = Lab::new();
    let recording = lab.record(&["-F", "997"], &["sh", "-c", &format!("{SPIN}; sleep 0.2")]);
    let runs = &recording.info.runs;
    assert_eq!(runs.len(), 1);
    let length = runs[0].end_ns - runs[0].start_ns;
    assert!(length >= 200_000_000 && runs[0].exit == 0, "{:?}", runs[0]);
}

/// Check that runs stand in each archive when archives take turns, the one that goes on included.
#[test]
fn runs_in_every_archive() {
    let lab = Lab::new();
    let line = "i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done";
    lab.recorder(
        "r.rawstack",
        &["-F", "997", "-r", "4", "--rotate", "1s", "--"],
    )
    .args(["sh", "-c", line])
    .success();
    let last = (1..)
        .map(|number| lab.path(&format!("r.{number}.rawstack")))
        .take_while(|path| path.exists())
        .last()
        .unwrap();
    let runs = info(&last).runs;
    assert_eq!(runs.len(), 4, "{runs:?}");
    assert!(
        runs.iter()
            .all(|run| run.exit == 0 && run.end_ns > run.start_ns),
        "{runs:?}"
    );
}
