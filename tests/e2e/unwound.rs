//! Copies of stacks, unwound: recorded here, resolved here and elsewhere.

use std::collections::BTreeMap;
use std::path::Path;

use rawstack_test_support::bare_root::BareRoot;
use rawstack_test_support::json::{Sample, parse, rawstack_on};
use rawstack_test_support::programs::{rawstack, workload};
use serde_json::Value;

use crate::recording::{Lab, Recording, percent, text};

/// Record a workload with copies of its stacks.
fn record(lab: &Lab, name: &str, seconds: &str) -> Recording {
    let options = ["-F", "997", "--unwind", "stack-copy:256K"];
    let recording = lab.record(&options, &[text(&workload(name)), seconds]);
    recording.assert_deferred();
    recording
}

fn dump(archive: &Path, options: &[&str]) -> String {
    rawstack_on("dump", archive).args(options).success().stdout
}

fn samples(text: &str) -> Vec<Sample> {
    text.lines().map(parse).collect()
}

/// How many user stacks ended how, as `info` tells, and how many there are.
fn ends(archive: &Path) -> (BTreeMap<String, u64>, u64) {
    let told = rawstack_on("info", archive).arg("--json").success().stdout;
    let info: Value = parse(&told);
    let ends = info["unwound"].as_object().expect("stacks were unwound");
    let ends = ends.iter().map(|(end, count)| {
        let count = count.as_u64().expect("a count");
        (end.clone(), count)
    });
    let ends: BTreeMap<String, u64> = ends.collect();
    let all = ends.values().sum();
    (ends, all)
}

/// Addresses of the user half.
fn user(sample: &Sample) -> Vec<&str> {
    let frames = sample.user_frames();
    frames
        .filter_map(|frame| frame.address.as_deref())
        .collect()
}

/// Check that stacks of a program without frame pointers reach their outermost frame, that every sample's root is where
/// threads begin, and that the number of threads changes nothing.
#[test]
fn to_the_outermost_frame() {
    let lab = Lab::new();
    let recording = record(&lab, "unwound_cpp", "1");
    let (ends, all) = ends(&recording.archive);
    let reached = ends.get("outermost").copied().unwrap_or(0);
    assert!(all > 300 && reached * 100 >= all * 98, "{ends:?}");
    let folded = rawstack_on("export", &recording.archive)
        .args(["--format", "folded", "--no-kernel", "-q"])
        .success()
        .stdout;
    let (mut known, mut lines) = (0, 0);
    for line in folded.lines() {
        let root = line.split(';').nth(1).unwrap_or_default();
        let is_root = |name: &&str| root.contains(*name);
        lines += 1;
        known += usize::from(["_start", "clone"].iter().any(is_root));
    }
    assert!(
        percent(known, lines) > 95.0,
        "{known} of {lines}: {folded:.4000}"
    );
    let one = |threads: &str| {
        let run = rawstack_on("dump", &recording.archive).env("RAYON_NUM_THREADS", threads);
        run.success().stdout
    };
    let first = one("1");
    assert!(
        first == one("2") && first == one("5"),
        "another result with more threads"
    );
    let recorded = dump(&recording.archive, &["--stacks", "frame-pointers"]);
    assert!(!recorded.contains("\"unwound\"") && first.contains("\"unwound\":\"outermost\""));
    let depth = |text: &str| -> usize { samples(text).iter().map(|one| user(one).len()).sum() };
    assert!(depth(&first) > 2 * depth(&recorded));
}

/// Check that of a program with frame pointers an unwound stack has all that the kernel's side walked, from the leaf up to
/// where libc begins; but for the caller that a walk by frame pointers misses where a function has not set its own yet.
#[test]
fn as_frame_pointers_say() {
    let lab = Lab::new();
    let recording = record(&lab, "recurse", "0.7");
    let unwound = samples(&dump(&recording.archive, &[]));
    let walked = samples(&dump(&recording.archive, &["--stacks", "frame-pointers"]));
    assert_eq!(unwound.len(), walked.len());
    let (mut same, mut all) = (0, 0);
    for (unwound, walked) in unwound.iter().zip(&walked) {
        let (long, short) = (user(unwound), user(walked));
        if short.len() < 2 || unwound.state != "complete" {
            continue;
        }
        let with_caller = [&short[..1], long.get(1..2).unwrap_or_default(), &short[1..]].concat();
        all += 1;
        same += usize::from(long.starts_with(&short) || long.starts_with(&with_caller));
    }
    assert!(all > 300 && percent(same, all) > 99.0, "{same} of {all}");
}

/// Check that with nothing but what was packed on the recorded host the same stacks come out, without it others, and that
/// sizes are told.
#[test]
fn with_the_pack_alone() {
    let lab = Lab::new();
    let recording = record(&lab, "unwound_rust", "0.7");
    let root = BareRoot::new();
    root.add_program(&rawstack());
    root.add_file(&recording.archive, "/archive.rawstack");
    let pack = lab.path("pack.tar");
    let told = rawstack_on("symbols", &recording.archive)
        .arg("--pack")
        .arg(&pack)
        .success()
        .stderr;
    assert!(
        told.contains(" files in ") && told.contains("whose originals have"),
        "{told}"
    );
    root.add_file(&pack, "/pack.tar");
    let there = |verb: &str, options: &[&str]| {
        let run = root.run("/bin/rawstack").args([verb, "/archive.rawstack"]);
        run.args(options).success().stdout
    };
    let packed = ["--symbol-dir", "/pack.tar"];
    let here = dump(&recording.archive, &[]);
    assert!(here == there("dump", &packed), "other stacks with the pack");
    let alone = there("dump", &[]);
    let outermost = |text: &str| text.matches("\"unwound\":\"outermost\"").count();
    assert!(
        outermost(&alone) * 10 < outermost(&here),
        "{} of {} without any file",
        outermost(&alone),
        outermost(&here)
    );
    let report = there("report", &[&packed[..], &["--json", "-q"]].concat());
    let report: Value = parse(&report);
    let names = report["rows"].as_array().expect("rows").iter();
    let main = names.filter(|row| row["name"].as_str() == Some("_start"));
    assert!(
        main.map(|row| row["total"].as_u64()).max().flatten() > Some(0),
        "{report:.2000}"
    );
}

/// Check that what scrubbing makes of an archive holds no memory and the same stacks, is whole, and can be merged and
/// scrubbed again; and that without unwinding frame pointers' stacks stay.
#[test]
fn scrubbed() {
    let lab = Lab::new();
    let recording = record(&lab, "unwound_c", "1");
    let scrub = |options: &[&str], name: &str| {
        let made = lab.path(name);
        let run = rawstack_on("scrub", &recording.archive).args(options);
        let told = run.arg("-o").arg(&made).success().stderr;
        let info = rawstack_on("info", &made).args(["--json", "--raw"]);
        let info: Value = parse(&info.success().stdout);
        assert_eq!(info["copies"], Value::Null, "{told}");
        assert_eq!(info["samples"].as_u64(), Some(recording.info.samples));
        rawstack_on("verify", &made).success();
        (made, told)
    };
    let (clean, told) = scrub(&[], "clean.rawstack");
    assert!(told.contains("user stacks"), "{told}");
    let wanted = samples(&dump(&recording.archive, &[]));
    let found = samples(&dump(&clean, &[]));
    let recorded = samples(&dump(&recording.archive, &["--stacks", "frame-pointers"]));
    let mut same = 0;
    for ((wanted, found), recorded) in wanted.iter().zip(&found).zip(&recorded) {
        assert_eq!((&wanted.id, wanted.pid), (&found.id, found.pid));
        let is_same = user(wanted) == user(found);
        assert!(is_same || user(recorded) == user(found), "{found:?}");
        same += usize::from(is_same);
    }
    assert!(percent(same, wanted.len()) > 95.0, "{same} are the same");
    let kernel = |samples: &[Sample]| -> usize {
        let frames = samples.iter().map(|one| one.kernel_frames().count());
        frames.sum()
    };
    assert_eq!(kernel(&wanted), kernel(&found));
    let (plain, _) = scrub(&["--stacks", "frame-pointers"], "plain.rawstack");
    assert_eq!(
        dump(&plain, &[]),
        dump(&recording.archive, &["--stacks", "frame-pointers"])
    );
}

/// Check that stacks with uretprobes on them are unwound to their outermost frame, through the functions themselves and not
/// through what the probes put there.
#[test]
fn under_uretprobes() {
    let lab = Lab::new();
    let hits = workload("hits");
    let path = text(&hits);
    let probes = ["slow", "probed", "recurse"].map(|name| format!("uretprobe:{path}:{name}"));
    let mut options = vec!["-F", "1997", "--unwind", "stack-copy", "-e", "cpu-clock"];
    for probe in &probes {
        options.extend(["-e", probe]);
    }
    let recording = lab.record(&options, &[path, "200", "0.5"]);
    let (ends, all) = ends(&recording.archive);
    let reached = ends.get("outermost").copied().unwrap_or(0);
    assert!(all > 300 && reached * 100 >= all * 98, "{ends:?}");
    let samples = samples(&dump(&recording.archive, &[]));
    let is_probes = |path: &str| path.contains("uprobes");
    let through = samples.iter().filter(|sample| {
        let mut paths = sample
            .user_frames()
            .filter_map(|frame| frame.path.as_deref());
        // A thread can be in the trampoline itself.
        paths.nth(1).is_some_and(is_probes)
    });
    assert_eq!(through.count(), 0);
}

/// Weight of the stacks of a folded file with `spin` in them that have all of `chain`, from the root on, and of those that
/// end in the last of it.
fn with_chain(folded: &str, chain: &[&str], last: &str) -> (u64, u64) {
    let (mut whole, mut all) = (0, 0);
    for line in folded.lines() {
        let (stack, weight) = line.rsplit_once(' ').expect("a weight");
        let weight: u64 = weight.parse().expect("a number");
        let mut frames = stack.split(';').skip(1).peekable();
        if !frames.clone().any(|frame| frame == last) {
            continue;
        }
        all += weight;
        let is_root = frames.peek().is_some_and(|root| root.contains(chain[0]));
        let has = |wanted: &&str| frames.any(|frame| frame.contains(wanted));
        whole += if is_root && chain.iter().all(has) {
            weight
        } else {
            0
        };
    }
    (whole, all)
}

/// Check that stacks with a frame that is larger than any copy are whole to their outermost frame, on a main stack, a
/// thread's, and one that a signal handler with a stack of its own has interrupted.
#[test]
fn across_large_frames() {
    let main = ["_start", "main", "below", "large"];
    let thread = ["clone", "start_thread", "thread_main", "below", "large"];
    let signal = [&main[..], &["interrupt", "raise", "on_signal"]].concat();
    for (mode, words) in [("deferred", "addresses"), ("immediate", "all")] {
        let lab = Lab::new();
        let mut options = vec!["-F", "997", "--unwind", "stack-copy", "--user-stacks", mode];
        options.extend(["--copy-words", words]);
        let recording = lab.record(&options, &[text(&workload("large_frames")), "1"]);
        let distances = recording.output.stdout.lines().skip(1).map(|line| {
            let distance = line.split(' ').nth(2).expect("a distance");
            u64::from_str_radix(distance, 16).expect("a number")
        });
        let distances: Vec<u64> = distances.collect();
        assert!(
            distances.len() == 3 && distances.iter().all(|&bytes| bytes > 700 << 10),
            "the condition was not made: {distances:x?}"
        );
        let (ends, all) = ends(&recording.archive);
        let reached = ends.get("outermost").copied().unwrap_or(0);
        assert!(reached * 100 >= all * 98, "{mode}: {ends:?}");
        let folded = rawstack_on("export", &recording.archive)
            .args(["--format", "folded", "--no-kernel", "-q"])
            .success()
            .stdout;
        let sample = 1_000_000_000 / 997;
        for (chain, last) in [
            (&main[..], "work"),
            (&thread, "thread_main"),
            (&signal, "on_signal"),
        ] {
            let (whole, all) = with_chain(&folded, chain, last);
            assert!(all / sample > 200, "{mode}, {last}: {all}: {folded:.4000}");
            // Of the first, the others' calls of `work` have another root.
            let least = if last == "work" { 60 } else { 98 };
            assert!(
                whole * 100 >= all * least,
                "{mode}, {last}: {whole} of {all}: {folded:.4000}"
            );
        }
    }
}
