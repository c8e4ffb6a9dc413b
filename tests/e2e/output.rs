//! Where a recording goes when it is long or bounded: several archives, one of a size, what memory holds.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rawstack_test_support::json::{self, Info, info, rawstack_on, samples};
use rawstack_test_support::programs::{rawstack_record, workload};
use rawstack_test_support::{Output, Run, Running};
use rustix::process::{Pid, Signal, kill_process};

use crate::recording::{Lab, Recording, text};

/// A recorder of a workload that gives as many bytes as it can, until it is told to end.
pub(crate) fn many_bytes(output: &Path, options: &[&str]) -> Run {
    many_stacks("20000", output, options)
}

/// The same, at `frequency` in Hz.
pub(crate) fn many_stacks(frequency: &str, output: &Path, options: &[&str]) -> Run {
    Run::new(rawstack_record())
        .arg("-o")
        .arg(output)
        .args(["-F", frequency])
        .args(options)
        .arg("--")
        .arg(workload("many_stacks"))
        .args(["2", "110"])
        .deadline(Duration::from_secs(100))
}

/// End the command of [`many_bytes`], and with it the recording, which may take as long as it takes to write all.
pub(crate) fn end_command(recorder: Running) -> Output {
    let pid = recorder.pid().to_string();
    Run::new("pkill")
        .args(["-TERM", "-P", &pid, "many_stacks"])
        .success();
    recorder.wait().code(128 + 15)
}

/// The archives `name.1.rawstack`, … that are in the folder, in the order of their numbers, each of which must be whole.
pub(crate) fn archives(folder: &Path, name: &str) -> Vec<(u64, PathBuf, Info)> {
    let numbered = |path: PathBuf| {
        let file = path.file_name()?.to_str()?;
        let number = file
            .strip_prefix(&format!("{name}."))?
            .strip_suffix(".rawstack")?
            .parse()
            .ok()?;
        Some((number, path))
    };
    let entries = fs::read_dir(folder).unwrap();
    let mut found: Vec<(u64, PathBuf)> = entries
        .filter_map(|entry| numbered(entry.unwrap().path()))
        .collect();
    found.sort_unstable();
    let whole = |(number, path): (u64, PathBuf)| {
        rawstack_on("verify", &path).success();
        let info = info(&path);
        // The last may have begun just before the end.
        info.ids.assert_adds_up();
        assert!(info.damage.is_empty(), "{number}: {:?}", info.damage);
        (number, path, info)
    };
    found.into_iter().map(whole).collect()
}

/// IDs that the recorder says the kernel reserved.
pub(crate) fn reserved(output: &Output) -> u64 {
    let line = output.stderr.lines().find(|line| line.starts_with("IDs "));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number
        .and_then(|number| number.replace(',', "").parse().ok())
        .unwrap_or_else(|| panic!("no count of IDs in\n{}", output.stderr))
}

/// Fail unless the archives hold every ID once, one archive beginning where the one before ends.
pub(crate) fn assert_seamless(archives: &[(u64, PathBuf, Info)], reserved: u64) {
    let sum: u64 = archives.iter().map(|(_, _, info)| info.ids.reserved).sum();
    assert_eq!(sum, reserved, "IDs in the archives, and in the kernel");
    for pair in archives.windows(2) {
        let (before, after) = (&pair[0], &pair[1]);
        assert_eq!(before.0 + 1, after.0, "a number is missing");
        assert!(
            after.2.start_ns <= before.2.end_ns,
            "a gap between {} and {}",
            before.1.display(),
            after.1.display()
        );
    }
    let mut ids = BTreeSet::new();
    for (_, path, _) in archives {
        for sample in samples(path) {
            let id = sample.id.to_string();
            assert!(ids.insert(id), "{:?} is in two archives", sample.id);
        }
    }
}

/// Whether the process has this name by now.
pub(crate) fn is_named(pid: u32, name: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
}

/// Whether there are more bytes by now.
pub(crate) fn is_longer(archive: &Path, bytes: u64) -> bool {
    archive
        .metadata()
        .is_ok_and(|metadata| metadata.len() > bytes)
}

/// Check that archives in turn hold every ID once with no gap between, name their functions each by itself, and go on
/// in number behind an earlier recording's.
#[test]
fn rotated_by_time() {
    let lab = Lab::new();
    for first in [1, 4] {
        let output = lab
            .recorder(
                "app.rawstack",
                &["-F", "1997", "--rotate", "1s", "-a", "--"],
            )
            .arg(workload("blocked"))
            .args(["60", "3", "end"])
            .success();
        let mut archives = archives(&lab.path(""), "app");
        archives.retain(|(number, _, _)| *number >= first);
        assert!(archives.len() >= 3, "only {}", archives.len());
        assert_seamless(&archives, reserved(&output));
        // The command may have ended before the last began.
        for (_, path, info) in archives.iter().rev().skip(1) {
            let report = json::report(path, &["--comm", "blocked"]);
            let known = report
                .rows
                .iter()
                .any(|row| row.name == "main" || row.name == "start_thread");
            assert!(known, "{}: {:?}", path.display(), report.rows);
            assert_eq!(info.options["rotate"], "1s");
        }
        for (_, path, _) in archives.iter().skip(3) {
            fs::remove_file(path).unwrap();
        }
    }
}

/// Check that archives also begin when they should where nothing is to be written then.
#[test]
fn rotated_ahead_of_a_write() {
    let lab = Lab::new();
    let options = ["-F", "97", "--rotate", "1s", "-d", "8s"];
    let recorder = lab.recorder("app.rawstack", &options).arg("-a");
    let reserved = reserved(&recorder.success());
    let archives = archives(&lab.path(""), "app");
    // Were they begun at writes alone, there would be six.
    assert!(archives.len() >= 7, "only {}", archives.len());
    assert_seamless(&archives, reserved);
}

/// Check that archives stay below the size that was asked for, that only the newest are kept, and that a report takes
/// them together.
#[test]
fn rotated_by_size() {
    let lab = Lab::new();
    let options = ["--rotate", "1M", "--keep", "2"];
    let mut recorder = many_bytes(&lab.path("app.rawstack"), &options).spawn();
    let third = lab.path("app.3.rawstack");
    recorder.wait_until("there is a third archive", || third.exists());
    end_command(recorder);
    let archives = archives(&lab.path(""), "app");
    let [(number, older, one), (next, newer, two)] = archives.as_slice() else {
        panic!("{} archives are kept", archives.len());
    };
    assert_eq!((*number + 1, *next >= 3), (*next, true));
    assert!(one.bytes <= 1 << 20 && two.bytes <= 1 << 20);
    assert!(one.bytes > 700_000, "ended early: {} bytes", one.bytes);
    assert!(two.start_ns <= one.end_ns);
    let total = |path: &Path, options: &[&str]| json::report(path, options).total;
    let together = total(older, &[text(newer)]);
    let apart = total(older, &[]) + total(newer, &[]);
    assert!((together - apart).abs() < 1.0, "{together} is not {apart}");
}

/// Check that the next archive begins on SIGUSR2, too.
#[test]
fn rotated_on_request() {
    let lab = Lab::new();
    let mut recorder = lab
        .recorder("app.rawstack", &["-F", "1997", "--rotate", "1h", "--"])
        .arg(workload("threads"))
        .args(["2", "3"])
        .spawn();
    let [first, second] = [1, 2].map(|number| lab.path(&format!("app.{number}.rawstack")));
    recorder.wait_until("it has begun", || is_longer(&first, 1000));
    recorder.signal(Signal::USR2);
    recorder.wait_until("there is a second archive", || second.exists());
    let output = recorder.wait().success();
    let archives = archives(&lab.path(""), "app");
    assert_eq!(archives.len(), 2);
    assert_seamless(&archives, reserved(&output));
}

/// Check that every archive but the last is whole when the recorder is killed while it goes from one to the next.
#[test]
fn killed_while_rotating() {
    let lab = Lab::new();
    for wait_ms in [0, 1, 300] {
        let name = format!("k{wait_ms}.rawstack");
        let mut recorder = many_bytes(&lab.path(&name), &["--rotate", "1M"]).spawn();
        let second = lab.path(&format!("k{wait_ms}.2.rawstack"));
        recorder.wait_until("there is a second archive", || second.exists());
        sleep(Duration::from_millis(wait_ms));
        let pid = recorder.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        recorder.signal(Signal::KILL);
        assert_eq!(recorder.wait().signal(), Some(Signal::KILL.as_raw()));
        // Nobody else ends the command now.
        Run::new("kill").args(children.split_whitespace()).output();
        let last = (1..)
            .take_while(|number| lab.path(&format!("k{wait_ms}.{number}.rawstack")).exists())
            .last()
            .unwrap();
        let last = lab.path(&format!("k{wait_ms}.{last}.rawstack"));
        let is_begun = last.metadata().unwrap().len() > 0;
        if is_begun {
            let info = info(&last);
            let keys: Vec<_> = info.damage.keys().map(String::as_str).collect();
            assert!(
                keys.iter()
                    .all(|key| ["not_ended", "gaps", "tail_bytes", "gap_bytes"].contains(key)),
                "{keys:?}"
            );
        }
        fs::remove_file(&last).unwrap();
        assert!(!archives(&lab.path(""), &format!("k{wait_ms}")).is_empty());
    }
}

/// Check that a recording ends by itself before its archive gets longer than allowed, whole and without failure.
#[test]
fn max_size() {
    let lab = Lab::new();
    let archive = lab.path("m.rawstack");
    let output = many_bytes(&archive, &["--max-size", "1M"]).success();
    assert!(
        output.stderr.contains("ended at the size"),
        "{}",
        output.stderr
    );
    let recording = Recording::new(archive, output);
    let bytes = recording.info.bytes;
    assert!((700_000..=1 << 20).contains(&bytes), "{bytes} bytes");
}

/// Check that a flight recorder writes what it holds on each signal and at the end, the last of the recording each
/// time, complete in itself, while it goes on recording.
#[test]
fn flight_recorder() {
    let lab = Lab::new();
    let mut recorder = lab
        .recorder(
            "f.rawstack",
            &["--flight-recorder", "1s", "-F", "997", "-a", "--"],
        )
        .arg(workload("blocked"))
        .args(["60", "6", "end"])
        .spawn();
    for number in [1, 2] {
        sleep(Duration::from_secs(2));
        recorder.signal(Signal::USR2);
        let archive = lab.path(&format!("f.{number}.rawstack"));
        recorder.wait_until("it writes", || {
            archive.exists() && info(&archive).damage.is_empty()
        });
    }
    let output = recorder.wait().success();
    let archives = archives(&lab.path(""), "f");
    assert_eq!(archives.len(), 3, "{}", output.stderr);
    for pair in archives.windows(2) {
        assert!(pair[0].2.end_ns < pair[1].2.end_ns);
    }
    for (number, path, info) in &archives {
        let held = Duration::from_nanos(info.end_ns - info.start_ns);
        assert!(
            held >= Duration::from_millis(900) && held < Duration::from_secs(2),
            "{number} holds {held:?}"
        );
        assert!(info.ids.reserved < reserved(&output));
        let report = json::report(path, &["--comm", "blocked"]);
        assert!(report.rows.iter().any(|row| row.name == "start_thread"));
    }
    assert!(!lab.path("f.rawstack").exists());
}

/// Check that a flight recorder holds no more bytes than it may, the newest samples among them.
#[test]
fn flight_recorder_by_size() {
    let lab = Lab::new();
    let mut recorder = many_bytes(&lab.path("f.rawstack"), &["--flight-recorder", "1M"]).spawn();
    let pid = recorder.pid();
    recorder.wait_until("it records", || is_named(pid, "rawstack-record"));
    let mut number = 0;
    recorder.wait_until("it holds what it may", || {
        sleep(Duration::from_millis(300));
        kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::USR2).unwrap();
        let next = lab.path(&format!("f.{}.rawstack", number + 1));
        number += u64::from(next.exists());
        is_longer(&lab.path(&format!("f.{number}.rawstack")), 850_000)
    });
    // An eighth of it, the least that can be let go, takes less.
    sleep(Duration::from_secs(4));
    let output = end_command(recorder);
    let archives = archives(&lab.path(""), "f");
    let (_, path, info) = archives.last().unwrap();
    // What is held is bounded; the beginning of an archive comes on top.
    assert!((700_000..1_150_000).contains(&info.bytes), "{}", info.bytes);
    assert!(
        info.ids.reserved < reserved(&output) && info.start_ns > archives[0].2.start_ns,
        "nothing was let go"
    );
    let last = samples(path).iter().map(|sample| sample.time_ns).max();
    assert!(last.is_some_and(|last| last + 1_000_000_000 > info.end_ns));
}

/// Check that options that cannot go together are refused with a cure.
#[test]
fn refused() {
    let lab = Lab::new();
    for (options, words) in [
        (&["-o", "-", "--rotate", "1s"][..], &["--rotate", "-o"][..]),
        (
            &["-o", "-", "--flight-recorder", "1s"],
            &["--flight-recorder", "-o"],
        ),
        (&["--max-size", "1K"], &["--max-size", "1M"]),
        (
            &[
                "-o",
                "/nonexistent/x",
                "--flight-recorder",
                "1s",
                "-d",
                "1s",
            ],
            &["/nonexistent", "-o"],
        ),
    ] {
        Run::new(rawstack_record())
            .args(options)
            .current_dir(lab.path(""))
            .output()
            .code(2)
            .one_line_error(words);
    }
}
