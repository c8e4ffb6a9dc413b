//! Merged archives say what their parts say.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use proptest::collection;
use proptest::prelude::{ProptestConfig, any, prop, prop_assert_eq, proptest};
use rawstack_format::record::{Sample, State};
use serde_json::Value;

use super::archive::{self, Archive};
use super::golden::folder;
use super::run::{rawstack, succeed, with_input};

/// Two different archives, one of them killed, with the same pids, IDs, epochs and kernel frames.
fn inputs(folder: &Path) -> [&'static str; 3] {
    archive::golden().write(folder, "one.rawstack");
    let killed = archive::golden().bytes(false);
    fs::write(folder.join("cut.rawstack"), &killed[..killed.len() - 900]).unwrap();
    let mut other = Archive::new();
    other.event("page-faults", "events");
    other.process(100, "other", "/elsewhere");
    let module = other.module(archive::golden_module());
    let user = other.user_stack(module, &[0x1002, 0x10a3]);
    for event in [0, 1, 1] {
        other.sample(Sample {
            pid: 100,
            tid: 100,
            user,
            event,
            ..Sample::default()
        });
    }
    other.write(folder, "two.rawstack");
    ["one.rawstack", "cut.rawstack", "two.rawstack"]
}

fn merge(folder: &Path, files: &[&str], target: &str) -> String {
    let args = [&["merge", "-o", target], files].concat();
    let ran = rawstack(folder, &args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran.err
}

/// Check that whatever reads archives prints of the merged one, byte for byte, what it prints of its parts together.
#[test]
fn sum_of_the_parts() {
    let work = tempfile::tempdir().unwrap();
    let files = inputs(work.path());
    let told = merge(work.path(), &files, "all.rawstack");
    assert!(told.contains("cut.rawstack is not whole: "), "{told}");
    assert!(told.contains("3 archives"), "{told}");
    let together = |verb: &[&str], options: &[&str]| {
        let parts = succeed(work.path(), &[verb, &files, options].concat());
        let merged = succeed(work.path(), &[verb, &["all.rawstack"], options].concat());
        assert_eq!(merged, parts, "{verb:?} {options:?}");
        assert!(!parts.is_empty());
    };
    let symbols = folder().join("debug");
    let symbols = [
        "--symbol-dir",
        symbols.to_str().unwrap(),
        "--event",
        "cpu-clock",
        "--json",
    ];
    for by in [
        "function", "line", "module", "thread", "process", "cgroup", "cpu", "event",
    ] {
        together(&["report", "--by", by], &symbols);
    }
    together(&["report", "--tree", "callers"], &symbols);
    together(&["report"], &["--run", "1", "--csv"]);
    for format in ["folded", "speedscope", "json", "csv", "perf-script"] {
        together(&["export", "--format", format], &["--event", "cpu-clock"]);
    }
    together(
        &["flamegraph", "--title", "t", "-o", "-"],
        &["--event", "cpu-clock"],
    );
    let binary = |files: &[&str], format: &str| {
        let options = [
            "export",
            "-q",
            "-o",
            "out",
            "--format",
            format,
            "--event",
            "cpu-clock",
        ];
        succeed(work.path(), &[&options, files].concat());
        fs::read(work.path().join("out")).unwrap()
    };
    for format in ["pprof", "firefox", "otlp"] {
        assert_eq!(
            binary(&files, format),
            binary(&["all.rawstack"], format),
            "{format}"
        );
    }
    for verb in ["dump", "verify", "info", "symbols"] {
        let one = |file: &str| rawstack(work.path(), &[verb, file]).out;
        let parts = files.map(one);
        let merged = one("all.rawstack");
        // Of modules that several archives have, `symbols` tells once.
        if verb != "symbols" {
            assert_eq!(merged, parts.concat(), "{verb}");
        }
        assert!(parts[0].lines().all(|line| merged.contains(line)), "{verb}");
    }
    assert_eq!(rawstack(work.path(), &["verify", "all.rawstack"]).code, 1);
}

/// Check the numbers of `info --json`: sums for the whole, and each part as it was by itself.
#[test]
fn info() {
    let work = tempfile::tempdir().unwrap();
    let files = inputs(work.path());
    merge(work.path(), &files, "all.rawstack");
    let info = |file: &str| -> Value {
        serde_json::from_str(&succeed(work.path(), &["info", "--json", file])).unwrap()
    };
    let whole = info("all.rawstack");
    let alone: Vec<Value> = files.iter().map(|file| info(file)).collect();
    let sum = |pointer: &str| -> u64 {
        let of = |info: &Value| info.pointer(pointer).and_then(Value::as_u64).unwrap();
        let sum = alone.iter().map(of).sum();
        assert_eq!(of(&whole), sum, "{pointer}");
        sum
    };
    assert_eq!(sum("/samples"), 20 + 9 + 3);
    for pointer in [
        "/ids/reserved",
        "/ids/states/complete",
        "/processes",
        "/threads",
        "/stacks",
    ] {
        sum(pointer);
    }
    for ((part, alone), file) in whole["parts"]
        .as_array()
        .unwrap()
        .iter()
        .zip(alone)
        .zip(files)
    {
        let mut part = part.clone();
        assert_eq!(part.as_object_mut().unwrap().remove("path").unwrap(), *file);
        assert_eq!(part, alone, "{file}");
    }
    let bytes = fs::metadata(work.path().join("all.rawstack"))
        .unwrap()
        .len();
    assert_eq!(whole["bytes"], bytes);
    assert_eq!(whole["host"]["hostname"], "web-1");
}

/// Check that the same inputs give the same bytes, another order others, and that merging what was merged gives the
/// same parts as merging all at once.
#[test]
fn merged_again() {
    let work = tempfile::tempdir().unwrap();
    let [one, cut, two] = inputs(work.path());
    let bytes = |name: &str| fs::read(work.path().join(name)).unwrap();
    merge(work.path(), &[one, cut, two], "a.rawstack");
    merge(work.path(), &[one, cut, two], "b.rawstack");
    assert_eq!(bytes("a.rawstack"), bytes("b.rawstack"));
    merge(work.path(), &[two, cut, one], "c.rawstack");
    assert_ne!(bytes("a.rawstack"), bytes("c.rawstack"));
    merge(work.path(), &[one, cut], "half.rawstack");
    merge(work.path(), &["half.rawstack", two], "again.rawstack");
    for verb in ["info", "dump", "verify"] {
        let print = |file: &str| rawstack(work.path(), &[verb, file]).out;
        assert_eq!(print("again.rawstack"), print("a.rawstack"), "{verb}");
    }
    assert_eq!(bytes("again.rawstack").len(), bytes("a.rawstack").len());
}

/// Check that nothing is overwritten unasked and never through a symbolic link, that inputs are looked at before an
/// output is made, and that half an output does not stay.
#[test]
fn output_rules() {
    let work = tempfile::tempdir().unwrap();
    let [one, _, two] = inputs(work.path());
    let fail = |args: &[&str], expected: &str| {
        let ran = rawstack(work.path(), &[&["merge"], args].concat());
        assert_eq!((ran.code, ran.err.lines().count()), (2, 1), "{}", ran.err);
        assert!(ran.err.contains(expected), "{}", ran.err);
    };
    merge(work.path(), &["o*.rawstack", two], "out");
    let mode = fs::metadata(work.path().join("out"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    fail(
        &[one, "-o", "out"],
        "it exists; name another with -o, or overwrite it with --force",
    );
    succeed(work.path(), &["merge", one, "-q", "-o", "out", "--force"]);
    assert_eq!(
        succeed(work.path(), &["dump", "out"]),
        succeed(work.path(), &["dump", one])
    );
    symlink(work.path().join(two), work.path().join("link")).unwrap();
    for force in [&["--force"][..], &[]] {
        fail(
            &[&[one, "-o", "link"], force].concat(),
            "not a regular file",
        );
    }
    fail(
        &[one, two, "-o", two, "--force"],
        "it is an archive to read from",
    );
    fs::write(work.path().join("text"), "no archive").unwrap();
    fail(&[one, "text", "-o", "new"], "text: not a Rawstack archive");
    fail(&[one, "none", "-o", "new"], "failed to open none");
    fail(&["-", one, "-", "-o", "new"], "standard input twice");
    assert!(!work.path().join("new").exists());
}

/// Check that an archive may come from standard input and go to standard output.
#[test]
fn pipes() {
    let work = tempfile::tempdir().unwrap();
    let ran = with_input(
        work.path(),
        &["merge", "-", "-o", "x.rawstack"],
        "no archive",
    );
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("not a Rawstack archive"), "{}", ran.err);
    let [one, _, two] = inputs(work.path());
    let shell = format!(
        "cat {one} | $0 merge - {two} -o - | $0 verify - && cat {one} | $0 merge -q - {two} -o p.rawstack"
    );
    let done = std::process::Command::new("sh")
        .args(["-c", &shell, env!("CARGO_BIN_EXE_rawstack")])
        .current_dir(work.path())
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    let dumped = succeed(work.path(), &["dump", one]) + &succeed(work.path(), &["dump", two]);
    assert_eq!(succeed(work.path(), &["dump", "p.rawstack"]), dumped);
}

/// Check that parts missing from a merged archive that was cut are told, also after it was merged again.
#[test]
fn cut_merges() {
    let work = tempfile::tempdir().unwrap();
    let [one, _, two] = inputs(work.path());
    merge(work.path(), &[one, two, one], "all.rawstack");
    let bytes = fs::read(work.path().join("all.rawstack")).unwrap();
    let mut reader = rawstack_format::Reader::new(bytes.as_slice()).unwrap();
    let mut cut = 0;
    while let Some(chunk) = reader.next().unwrap() {
        if chunk.info.part == 1 {
            cut = usize::try_from(chunk.info.position + chunk.info.len_in_file()).unwrap();
        }
    }
    fs::write(work.path().join("half.rawstack"), &bytes[..cut]).unwrap();
    merge(work.path(), &["half.rawstack", one], "again.rawstack");
    for file in ["half.rawstack", "again.rawstack"] {
        let ran = rawstack(work.path(), &["verify", file]);
        assert_eq!(ran.code, 1);
        let lines: Vec<_> = ran
            .out
            .lines()
            .filter(|line| !line.starts_with(' '))
            .collect();
        assert!(lines[0].starts_with("one.rawstack: whole"), "{}", ran.out);
        assert!(
            lines[1].starts_with("two.rawstack: not whole"),
            "{}",
            ran.out
        );
        assert!(
            ran.out.contains("ended here, before its last part"),
            "{}",
            ran.out
        );
    }
}

/// An archive whose size and content follow from `seed`.
fn drawn(seed: u64) -> Archive {
    let mut archive = Archive::new();
    let mut number = seed | 1;
    let mut next = |bound: u64| {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (number >> 33) % bound
    };
    for epoch in 0..=next(3) {
        if epoch > 0 {
            archive.next_epoch();
        }
        let module = archive.module(archive::golden_module());
        for _ in 0..next(4) {
            let pid = u32::try_from(next(3) + 1).unwrap();
            archive.process(pid, &format!("p{}", next(3)), "/");
            let offsets: Vec<u64> = (0..=next(4)).map(|_| 0x1000 + next(0xb0)).collect();
            let user = archive.user_stack(module, &offsets);
            for _ in 0..next(20) {
                let state = if next(9) == 0 {
                    State::Pending
                } else {
                    State::Complete
                };
                archive.sample(Sample {
                    pid,
                    tid: pid,
                    user,
                    state,
                    run: u32::try_from(next(3)).unwrap(),
                    ..Sample::default()
                });
            }
            archive.end_batch();
        }
    }
    archive
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) })]

    /// Check that of any archives, whole, cut or damaged, and merged in any grouping, `verify` and `dump` say of the
    /// merged archive what they say of each.
    #[test]
    fn any_archives(
        parts in collection::vec((any::<u64>(), 0..4_u8, any::<prop::sample::Index>()), 1..5),
        split in any::<prop::sample::Index>(),
    ) {
        let work = tempfile::tempdir().unwrap();
        let mut files = Vec::new();
        for (number, (seed, harm, place)) in parts.into_iter().enumerate() {
            let mut bytes = drawn(seed).bytes(harm != 1);
            // Both copies of the header make an archive; what is behind may be anything.
            let at = 128 + place.index(bytes.len() - 128);
            match harm {
                2 => bytes.truncate(at),
                3 => bytes[at] ^= 0x40,
                _ => {}
            }
            let name = format!("{number}.rawstack");
            fs::write(work.path().join(&name), bytes).unwrap();
            files.push(name);
        }
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let (first, rest) = files.split_at(split.index(files.len()));
        if !first.is_empty() {
            merge(work.path(), first, "first");
        }
        let again = [if first.is_empty() { &[][..] } else { &["first"] }, rest].concat();
        merge(work.path(), &again, "all");
        for verb in ["verify", "dump"] {
            let ran = |file: &str| rawstack(work.path(), &[verb, file]);
            let parts: Vec<_> = files.iter().map(|file| ran(file)).collect();
            let merged = ran("all");
            let together: String = parts.iter().map(|part| part.out.as_str()).collect();
            prop_assert_eq!(merged.out, together);
            prop_assert_eq!(Some(merged.code), parts.iter().map(|part| part.code).max());
        }
    }
}

/// Check that a merged archive with any single byte changed is read in all its parts or refused, and never a panic.
#[test]
fn changed_merges() {
    let work = tempfile::tempdir().unwrap();
    let files = inputs(work.path());
    merge(work.path(), &files, "all.rawstack");
    let whole = fs::read(work.path().join("all.rawstack")).unwrap();
    let target: PathBuf = work.path().join("changed.rawstack");
    for place in (128..whole.len()).step_by(331) {
        let mut bytes = whole.clone();
        bytes[place] ^= 0x20;
        fs::write(&target, bytes).unwrap();
        let ran = rawstack(work.path(), &["verify", "changed.rawstack"]);
        assert_eq!(ran.code, 1, "byte {place}: {}", ran.err);
        let again = rawstack(
            work.path(),
            &["merge", "changed.rawstack", "--force", "-o", "x"],
        );
        assert_eq!(again.code, 0, "byte {place}: {}", again.err);
        let of_copy = rawstack(work.path(), &["dump", "x"]).out;
        assert_eq!(
            of_copy,
            rawstack(work.path(), &["dump", "changed.rawstack"]).out,
            "byte {place}"
        );
    }
}
