//! What the recorder's command line promises: targets, ends, exit codes, the output file.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rawstack_test_support::json::rawstack_on;
use rawstack_test_support::programs::workload;
use rawstack_test_support::{Run, Running};
use rustix::process::Signal;

use crate::recording::{Lab, Recording, SPIN, text};

/// Check that an existing file is refused with one line, left as it was, and replaced with `--force`.
#[test]
fn existing_output_is_refused() {
    let lab = Lab::new();
    let archive = lab.path("archive.rawstack");
    fs::write(&archive, "precious").unwrap();
    let output = lab
        .recorder("archive.rawstack", &["--", "true"])
        .output()
        .code(2);
    output.one_line_error(&["archive.rawstack", "--force"]);
    assert_eq!(fs::read_to_string(&archive).unwrap(), "precious");
    let output = lab
        .recorder(
            "archive.rawstack",
            &["--force", "-F", "997", "--", "sh", "-c", SPIN],
        )
        .success();
    Recording::new(archive, output);
}

/// Check that an archive is readable by its owner only, and is never made through a symbolic link.
#[test]
fn output_is_private() {
    let lab = Lab::new();
    lab.recorder("archive.rawstack", &["--", "true"]).success();
    assert_eq!(
        fs::metadata(lab.path("archive.rawstack"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
    symlink(lab.path("elsewhere"), lab.path("link")).unwrap();
    for options in [&["--", "true"][..], &["--force", "--", "true"]] {
        lab.recorder("link", options)
            .output()
            .code(2)
            .one_line_error(&["link"]);
        assert!(
            !lab.path("elsewhere").exists(),
            "written through a symbolic link"
        );
    }
}

/// Check that the command's exit code is passed on, and that a command that is not there is an error of usage.
#[test]
fn exit_code_of_the_command() {
    let lab = Lab::new();
    lab.recorder("7.rawstack", &["--", "sh", "-c", "exit 7"])
        .output()
        .code(7);
    lab.recorder("0.rawstack", &["--", "sh", "-c", "exit 0"])
        .output()
        .code(0);
    let output = lab
        .recorder("none.rawstack", &["--", "/no/such/command"])
        .output()
        .code(2);
    output.one_line_error(&["/no/such/command"]);
}

/// Check that wrong options are refused with exit code 2.
#[test]
fn wrong_options() {
    let lab = Lab::new();
    lab.recorder("x.rawstack", &["--no-such-option"])
        .output()
        .code(2);
    lab.recorder("x.rawstack", &["-F", "0", "--", "true"])
        .output()
        .code(2);
    lab.recorder("x.rawstack", &["-p", "999999999", "-d", "1s"])
        .output()
        .code(2)
        .one_line_error(&["999999999"]);
    assert!(
        !lab.path("x.rawstack").exists(),
        "an archive of nothing was left behind"
    );
}

/// Start a busy program of `threads` threads beside a recording.
fn busy(threads: &str) -> Running {
    Run::new(workload("threads")).args([threads, "60"]).spawn()
}

/// Check that `-p` records that process only, and that `-d` ends it.
#[test]
fn one_process_for_a_time() {
    let lab = Lab::new();
    let (wanted, other) = (busy("1"), busy("1"));
    let pid = wanted.pid().to_string();
    let output = lab
        .recorder("archive.rawstack", &["-F", "997", "-p", &pid, "-d", "1s"])
        .success();
    let recording = Recording::new(lab.path("archive.rawstack"), output);
    let pids = recording.pids();
    assert_eq!(
        pids,
        BTreeSet::from([wanted.pid()]),
        "the other one is {}",
        other.pid()
    );
    assert!(
        recording.info.end_ns - recording.info.start_ns >= 1_000_000_000,
        "{:?}",
        recording.info
    );
}

/// Check that `-a` records all processes, and the kernel's threads with kernel frames only.
#[test]
fn whole_machine() {
    let lab = Lab::new();
    let (one, two) = (busy("1"), busy("1"));
    let output = lab
        .recorder("archive.rawstack", &["-F", "997", "-a", "-d", "1s"])
        .success();
    let recording = Recording::new(lab.path("archive.rawstack"), output);
    let pids = recording.pids();
    assert!(
        pids.contains(&one.pid()) && pids.contains(&two.pid()),
        "{pids:?}"
    );
}

/// Check that SIGINT and SIGTERM end a recording with a whole archive and exit code 0.
#[test]
fn signals_end_the_recording() {
    let lab = Lab::new();
    let busy = busy("2");
    let pid = busy.pid().to_string();
    for (signal, name) in [
        (Signal::INT, "int.rawstack"),
        (Signal::TERM, "term.rawstack"),
    ] {
        let archive = lab.path(name);
        let mut recorder = lab.recorder(name, &["-F", "997", "-p", &pid]).spawn();
        recorder.wait_until("samples are written", || has_content(&archive));
        sleep(Duration::from_millis(500));
        recorder.signal(signal);
        let recording = Recording::new(archive, recorder.wait().success());
        assert!(
            recording.info.samples > 100,
            "only {} samples",
            recording.info.samples
        );
    }
}

fn has_content(archive: &Path) -> bool {
    archive.metadata().is_ok_and(|metadata| metadata.len() > 0)
}

/// Check that the summary names counts, bytes and the command to go on with.
#[test]
fn summary() {
    let lab = Lab::new();
    let recording = lab.record(&["-F", "997"], &["sh", "-c", SPIN]);
    let summary = &recording.output.stderr;
    for word in ["samples", "complete", "bytes", "rawstack report"] {
        assert!(
            summary.contains(word),
            "no {word:?} in the summary:\n{summary}"
        );
    }
    let quiet = lab
        .recorder("quiet.rawstack", &["-q", "--", "true"])
        .success();
    assert_eq!(quiet.stderr, "", "-q silences");
}

/// Check that the same archive gives the same bytes each time, with every renderer.
#[test]
fn same_bytes_each_time() {
    let lab = Lab::new();
    let recording = lab.record(&["-F", "1997"], &[text(&workload("mixed-pie")), "1"]);
    let verbs: [(&str, &[&str]); 6] = [
        ("report", &[]),
        ("report", &["--json"]),
        ("report", &["--csv"]),
        ("dump", &[]),
        ("info", &["--json"]),
        ("flamegraph", &["-o", "-"]),
    ];
    for (verb, options) in verbs {
        let run = || {
            rawstack_on(verb, &recording.archive)
                .args(options)
                .success()
                .stdout
        };
        let (first, second) = (run(), run());
        assert!(!first.is_empty(), "{verb} {options:?} prints nothing");
        assert!(
            first == second,
            "{verb} {options:?} differs from one time to the next"
        );
    }
}
