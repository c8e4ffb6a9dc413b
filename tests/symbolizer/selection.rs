//! Options that select samples and stacks.

use rawstack_format::record::Sample;
use serde_json::Value;

use super::archive::Archive;
use super::golden::folder;
use super::run::{rawstack, succeed};

fn report(options: &[&str]) -> Value {
    let base = [
        "report",
        "golden.rawstack",
        "--symbol-dir",
        "debug",
        "--json",
    ];
    serde_json::from_str(&succeed(folder(), &[&base[..], options].concat())).unwrap()
}

fn samples(options: &[&str]) -> u64 {
    report(options)["samples"].as_u64().unwrap()
}

fn names(options: &[&str]) -> Vec<String> {
    let report = report(options);
    let rows = report["rows"].as_array().unwrap();
    rows.iter()
        .map(|row| row["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Check that each option of selection keeps what it names, and that complements add up.
#[test]
fn by_sample() {
    let all = samples(&[]);
    assert_eq!(all, 20);
    assert_eq!(samples(&["--pid", "100"]) + samples(&["--pid", "200"]), all);
    assert_eq!(samples(&["--pid", "100,200"]), all);
    assert_eq!(samples(&["--tid", "101"]), 4);
    assert_eq!(samples(&["--comm", "worker"]), 4);
    assert_eq!(samples(&["--comm", "server"]), samples(&["--pid", "100"]));
    assert_eq!(
        samples(&["--cgroup", "/system"]),
        samples(&["--pid", "100"])
    );
    assert_eq!(samples(&["--cpu", "0"]) + samples(&["--cpu", "1-3"]), all);
    assert_eq!(samples(&["--event", "cpu-clock"]), all);
    assert_eq!(samples(&["--run", "0"]), 9);
    assert_eq!(samples(&["--time", "..5ms"]), 4);
    assert_eq!(samples(&["--time", "5ms.."]), all - 4);
    assert_eq!(samples(&["--pid", "100", "--cpu", "1"]), 4);
}

/// Check that an event nobody recorded is an error that names those that were, for each command that selects.
#[test]
fn unknown_event() {
    for verb in ["report", "flamegraph", "dump"] {
        let ran = rawstack(
            folder(),
            &[verb, "golden.rawstack", "--event", "cycles", "-o", "-"],
        );
        assert_eq!(ran.code, 2, "{verb}");
        let expected =
            "failed to find event `cycles` of --event: it was not recorded; give one of cpu-clock";
        assert!(ran.err.contains(expected), "{verb}: {}", ran.err);
    }
}

/// Check that of several events the first is shown alone, that it is said, and that each can be asked for.
#[test]
fn several_events() {
    let work = tempfile::tempdir().unwrap();
    let mut archive = Archive::new();
    archive.event("page-faults", "events");
    for (event, weight) in [(0, 1000), (1, 3), (0, 500), (1, 4)] {
        archive.sample(Sample {
            event,
            weight,
            ..Sample::default()
        });
    }
    archive.write(work.path(), "several.rawstack");
    let total = |options: &[&str]| {
        let ran = rawstack(
            work.path(),
            &[&["report", "--json", "several.rawstack"], options].concat(),
        );
        let report: Value = serde_json::from_str(&ran.out).unwrap();
        let unit = report["unit"].as_str().unwrap().to_owned();
        (report["total"].as_u64().unwrap(), unit, ran.err)
    };
    let (clock, unit, said) = total(&[]);
    assert_eq!((clock, unit.as_str()), (1500, "ns"));
    assert!(
        said.contains("this is event cpu-clock alone; --event shows another: page-faults"),
        "{said}"
    );
    let (faults, unit, said) = total(&["--event", "page-faults"]);
    assert_eq!((faults, unit.as_str(), said.as_str()), (7, "events", ""));
    let (samples, unit, _) = total(&["--by", "event"]);
    assert_eq!((samples, unit.as_str()), (4, "samples"));
}

/// Check that kernel frames are left out, and that their samples stay.
#[test]
fn without_kernel() {
    assert!(names(&[]).contains(&"vfs_read".to_owned()));
    assert!(!names(&["--no-kernel"]).contains(&"vfs_read".to_owned()));
    assert_eq!(samples(&["--no-kernel"]), samples(&[]));
}

/// Check focus, ignore and hide: the first two choose stacks, the third only leaves frames out.
#[test]
fn by_name() {
    let all = samples(&[]);
    assert_eq!(
        samples(&["--focus", "^recurse$"]) + samples(&["--ignore", "^recurse$"]),
        all
    );
    assert!(!names(&["--ignore", "^recurse$"]).contains(&"recurse".to_owned()));
    assert_eq!(samples(&["--hide", "^innermost$"]), all);
    let hidden = report(&["--hide", "^innermost$"]);
    let rows = hidden["rows"].as_array().unwrap();
    let middle = rows.iter().find(|row| row["name"] == "middle").unwrap();
    assert!(middle["self"].as_u64().unwrap() > 0);
}

/// Check that recursion counts once in totals.
#[test]
fn recursion_counts_once() {
    let report = report(&["--pid", "100", "--focus", "recurse"]);
    let rows = report["rows"].as_array().unwrap();
    let recurse = rows.iter().find(|row| row["name"] == "recurse").unwrap();
    assert_eq!(recurse["total"], report["total"]);
}

/// Check that rows below the least share are left out and the total stays.
#[test]
fn least_share() {
    let cut = report(&["--min", "20"]);
    assert_eq!(cut["total"], report(&[])["total"]);
    let least = cut["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["total"].as_u64().unwrap())
        .min()
        .unwrap();
    assert!(least * 5 >= cut["total"].as_u64().unwrap());
}

/// Check that an option that cannot be read is told in one line, with what to give, and ends with 2.
#[test]
fn unreadable_options() {
    let cases = [
        ["--time", "5s"],
        ["--cpu", "x"],
        ["--focus", "("],
        ["--run", "3-1"],
    ];
    for [option, value] in cases {
        let ran = rawstack(folder(), &["report", "golden.rawstack", option, value]);
        assert_eq!(ran.code, 2, "{option}");
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
        assert!(
            ran.err.starts_with("rawstack: failed to read"),
            "{}",
            ran.err
        );
    }
}

/// Check that a pattern stands for the archives that it matches, that one without a match is an error, and that a file
/// whose own name looks like a pattern is that file.
#[test]
fn patterns() {
    let work = tempfile::tempdir().unwrap();
    for name in ["a-1.rawstack", "a-2.rawstack", "b.rawstack", "[a].rawstack"] {
        let mut archive = Archive::new();
        archive.sample(Sample::default());
        archive.write(work.path(), name);
    }
    let samples = |files: &[&str]| {
        let text = succeed(work.path(), &[&["report", "--json", "-q"], files].concat());
        let report: Value = serde_json::from_str(&text).unwrap();
        report["samples"].as_u64().unwrap()
    };
    assert_eq!(samples(&["a-*.rawstack"]), 2);
    assert_eq!(samples(&["?-[12].rawstack", "b.rawstack"]), 3);
    assert_eq!(samples(&["[a].rawstack"]), 1);
    let ran = rawstack(work.path(), &["report", "c-*.rawstack"]);
    assert_eq!(ran.code, 2);
    let expected = "rawstack: failed to find an archive: no file matches `c-*.rawstack`\n";
    assert_eq!(ran.err, expected);
}

/// Check that an archive is never taken as the file to write.
#[test]
fn archive_as_output() {
    let work = tempfile::tempdir().unwrap();
    let path = Archive::new().write(work.path(), "only.rawstack");
    let before = std::fs::read(&path).unwrap();
    for verb in [&["report"][..], &["export", "--format", "folded"]] {
        let args = ["only.rawstack", "-o", "./only.rawstack"];
        let ran = rawstack(work.path(), &[verb, &args].concat());
        assert_eq!(ran.code, 2);
        assert!(
            ran.err.contains("it is an archive to read from"),
            "{}",
            ran.err
        );
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
}
