//! Code that programs make while they run: named elsewhere, by the maps that were recorded with it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use rawstack_test_support::Run;
use rawstack_test_support::bare_root::BareRoot;
use rawstack_test_support::json::{Report, Row, parse};
use rawstack_test_support::programs::{rawstack, require, script, workload};

use crate::recording::{Lab, Recording, text};

/// Around a change of code, in nanoseconds: between two readings of a map nobody can tell when it came.
const CHANGE_NS: u64 = 800_000_000;

/// Removes maps that programs leave in /tmp.
struct Leftover(PathBuf);

impl Drop for Leftover {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The perf maps of the processes of a recording.
fn leftovers(recording: &Recording) -> Vec<Leftover> {
    let pids = recording.info.jit_maps.iter().map(|map| map.pid);
    let path = |pid| PathBuf::from(format!("/tmp/perf-{pid}.map"));
    pids.map(|pid| Leftover(path(pid))).collect()
}

/// A root with the archive and `rawstack`, and nothing of the recorded machine.
fn elsewhere(recording: &Recording) -> BareRoot {
    let root = BareRoot::new();
    root.add_program(&rawstack());
    root.add_file(&recording.archive, "/archive.rawstack");
    root
}

/// A report made elsewhere.
fn report(root: &BareRoot, options: &[&str]) -> Report {
    let run = root.run("/bin/rawstack");
    let run = run.args(["report", "/archive.rawstack", "--json"]);
    parse(&run.args(options).success().stdout)
}

fn named<'r>(report: &'r Report, name: &str) -> Vec<&'r Row> {
    let rows = report.rows.iter();
    rows.filter(|row| row.name.contains(name) && row.module.as_deref() == Some("[jit]"))
        .collect()
}

/// Weight of the rows with that in their name, in percent of all: their own, and with what they call.
fn share(report: &Report, name: &str) -> (f64, f64) {
    let rows = named(report, name);
    let sum = |weight: fn(&Row) -> f64| rows.iter().map(|row| weight(row)).sum::<f64>();
    let (own, total) = (sum(|row| row.self_weight), sum(|row| row.total));
    (own * 100.0 / report.total, total * 100.0 / report.total)
}

/// Time and name of each sample's innermost frame in made code.
fn timed_names(root: &BareRoot) -> Vec<(u64, String)> {
    let run = root.run("/bin/rawstack");
    let run = run.args(["dump", "/archive.rawstack", "--format", "perf-script"]);
    let stdout = run.success().stdout;
    let sample = |block: &str| {
        let (head, frames) = block.split_once('\n')?;
        let time = head.split_whitespace().find(|word| word.ends_with(':'))?;
        let time = time.trim_end_matches(':').parse::<f64>().ok()?;
        let frame = frames.lines().find(|line| line.ends_with("([jit])"))?;
        let name = frame.trim().split_once(' ')?.1.trim_end_matches(" ([jit])");
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "microseconds since boot"
        )]
        let time_ns = (time * 1e9) as u64;
        Some((time_ns, name.to_owned()))
    };
    stdout.split("\n\n").filter_map(sample).collect()
}

/// Check that each of two functions at one address has its own name, away from the moment of the change.
fn check_change(root: &BareRoot, switched_ns: u64) {
    let names = timed_names(root);
    let before = names
        .iter()
        .filter(|(time, _)| time + CHANGE_NS < switched_ns);
    let after = names
        .iter()
        .filter(|(time, _)| *time > switched_ns + CHANGE_NS);
    for (samples, name) in [
        (before.collect::<Vec<_>>(), "first_function"),
        (after.collect(), "second_function"),
    ] {
        let rest = |other: &str| other != name && !other.starts_with("third_function");
        let wrong: Vec<_> = samples.iter().filter(|(_, other)| rest(other)).collect();
        assert!(samples.len() > 100, "only {} samples", samples.len());
        assert!(wrong.is_empty(), "not {name} at {switched_ns}: {wrong:?}");
        assert!(samples.iter().any(|(_, other)| other == name));
    }
}

/// The file that the workload said it wrote.
fn told_file(recording: &Recording) -> &str {
    let told = &recording.output.stdout;
    let rest = told.split_once("file ").map(|(_, rest)| rest);
    let file = rest.and_then(|rest| rest.lines().next());
    file.unwrap_or_else(|| panic!("no file: {told}"))
}

fn record_code(lab: &Lab, what: &str, seconds: &str) -> (Recording, Leftover) {
    let (program, dir) = (workload("jit_code"), lab.path(""));
    let command = [text(&program), what, seconds, text(&dir)];
    let recording = lab.record(&["-F", "997"], &command);
    let path = told_file(&recording);
    let leftover = Leftover(PathBuf::from(path));
    (recording, leftover)
}

/// Check that a perf map that grows names each function at its time, also where one took the place of another.
#[test]
fn address_used_again() {
    let lab = Lab::new();
    let (recording, map) = record_code(&lab, "map", "4");
    drop(map);
    let root = elsewhere(&recording);
    check_change(&root, recording.printed("switched"));
    let report = report(&root, &[]);
    let (third, _) = share(&report, "third_function with blanks");
    assert!((15.0..35.0).contains(&third), "{third} % of a quarter");
    let maps = &recording.info.jit_maps;
    assert_eq!((maps.len(), maps[0].functions), (1, 3), "{maps:?}");
    assert_eq!(maps[0].kind, "perf map");
}

/// Check that a jitdump names code by its records' own times, with lines, and where it was moved to.
#[test]
fn jitdump() {
    let lab = Lab::new();
    let (recording, dump) = record_code(&lab, "dump", "4");
    drop(dump);
    let root = elsewhere(&recording);
    check_change(&root, recording.printed("switched"));
    let lines = report(&root, &["--by", "line"]);
    let line = named(&lines, "first_function")
        .into_iter()
        .find(|row| row.line == Some(11));
    let line = line.unwrap_or_else(|| panic!("no line 11: {lines:?}"));
    assert_eq!(line.file.as_deref(), Some("/src/made.c"));
    assert!(line.self_weight * 100.0 / lines.total > 30.0, "{line:?}");
    // A quarter of the time in its first place, and a quarter in the second.
    let (second, _) = share(&report(&root, &[]), "second_function");
    assert!((40.0..60.0).contains(&second), "{second} % of a half");
}

/// Check that code without a word of it is told as such, by the recorder and in the report.
#[test]
fn no_map() {
    let lab = Lab::new();
    let (recording, _) = record_code(&lab, "none", "1");
    assert!(
        recording
            .output
            .stderr
            .contains("1 processes with code of their own making have none (1: there is none)"),
        "{}",
        recording.output.stderr
    );
    let root = elsewhere(&recording);
    let run = root
        .run("/bin/rawstack")
        .args(["symbols", "/archive.rawstack"]);
    let output = run.success().stdout;
    assert!(
        output.contains("[anonymous]") && output.contains("no JIT map was recorded"),
        "{output}"
    );
}

/// Check that a process in namespaces of its own is read there: by its own number, from its own /tmp.
#[test]
fn own_namespaces() {
    let lab = Lab::new();
    require("unshare", "util-linux");
    let program = workload("jit_code");
    // The program itself may lie below the /tmp that is covered.
    let inside = format!(
        "exec 3<{}; mount -t tmpfs none /tmp && /proc/self/fd/3 map 2 / && ls /tmp",
        text(&program)
    );
    let command = ["unshare", "--pid", "--mount", "--fork", "sh", "-c", &inside];
    let recording = lab.record(&["-F", "997"], &command);
    let path = told_file(&recording);
    let number: u32 = path
        .trim_start_matches("/tmp/perf-")
        .trim_end_matches(".map")
        .parse()
        .unwrap_or_else(|err| panic!("{path}: {err}"));
    assert!(number < 10, "{path} is no number of a new namespace");
    assert!(
        !Path::new(path).exists(),
        "{path} is not in a /tmp of its own"
    );
    let report = report(&elsewhere(&recording), &[]);
    for name in ["first_function", "second_function", "third_function"] {
        let (share, _) = share(&report, name);
        assert!(share > 5.0, "{share} % in {name}: {report:?}");
    }
}

/// Check that no file is read that a process has put there for others to read, or that holds a reader up.
#[test]
fn traps() {
    let lab = Lab::new();
    fs::write(lab.path("secret"), "1000 1000 a_secret_of_others\n")
        .unwrap_or_else(|err| panic!("{err}"));
    let traps = [
        ("link", "the path leads through a symbolic link"),
        ("hard", "it is no regular file of one name"),
        ("fifo", "it is no regular file of one name"),
        ("owner", "it belongs to another user"),
        ("old", "it is older than the program"),
    ];
    for (what, reason) in traps {
        let (program, dir) = (workload("jit_code"), lab.path(""));
        let options = ["-F", "997", "--force"];
        let recording = lab.record(&options, &[text(&program), what, "1", text(&dir)]);
        let file = recording
            .output
            .stdout
            .trim()
            .trim_start_matches("file ")
            .to_owned();
        let (_map, _other) = (
            Leftover(file.clone().into()),
            Leftover(format!("{file}.other").into()),
        );
        let told = format!("1 processes with code of their own making have none (1: {reason})");
        assert!(
            recording.output.stderr.contains(&told),
            "{what}: {}",
            recording.output.stderr
        );
        assert!(
            recording.info.jit_maps.is_empty(),
            "{what}: {:?}",
            recording.info.jit_maps
        );
    }
}

/// Check that an endless file is read up to a bound and told to be cut, and what stands at its beginning is used.
#[test]
fn endless_map() {
    let lab = Lab::new();
    let (recording, _map) = record_code(&lab, "sparse", "2");
    let maps = &recording.info.jit_maps;
    assert!(maps.len() == 1 && maps[0].bytes <= 128 << 20, "{maps:?}");
    assert!(
        recording.output.stderr.contains("1 not to the end"),
        "{}",
        recording.output.stderr
    );
    assert!(
        recording.info.bytes < 4 << 20,
        "{} bytes",
        recording.info.bytes
    );
    let (share, _) = share(&report(&elsewhere(&recording), &[]), "trapped_function");
    assert!(share > 50.0, "{share} % named");
}

/// Record an interpreter, report elsewhere, and check what share of the time its functions have.
fn check_interpreter(options: &[&str], command: &[&str], functions: &[(&str, f64)]) -> Recording {
    let lab = Lab::new();
    let recording = lab.record(options, command);
    drop(leftovers(&recording));
    let root = elsewhere(&recording);
    let report = report(&root, &[]);
    for (name, least) in functions {
        let (_, total) = share(&report, name);
        assert!(
            total >= *least,
            "{name} has {total} %, {least} % expected: {report:?}"
        );
    }
    recording
}

/// Check that a report made elsewhere has the names of JavaScript functions, from a perf map.
#[test]
fn node_perf_map() {
    require("node", "nodejs");
    let program = script("busy.js");
    let command = [
        "node",
        "--perf-basic-prof",
        "--interpreted-frames-native-stack",
        text(&program),
        "2",
    ];
    let functions = [
        ("outerLoop", 60.0),
        ("middleStep", 40.0),
        ("innerWork", 0.1),
    ];
    check_interpreter(&["-F", "997"], &command, &functions);
}

/// Check that the same names come from a jitdump, of which the archive holds no machine code.
#[test]
fn node_jitdump() {
    require("node", "nodejs");
    let program = script("busy.js");
    let command = [
        "node",
        "--perf-prof",
        "--interpreted-frames-native-stack",
        text(&program),
        "2",
    ];
    let functions = [("outerLoop", 50.0), ("middleStep", 40.0)];
    let recording = check_interpreter(&["-F", "997"], &command, &functions);
    let maps = &recording.info.jit_maps;
    assert!(
        maps.iter()
            .any(|map| map.kind == "jitdump" && map.functions > 100),
        "{maps:?}"
    );
}

/// Check that a report made elsewhere has the names of Java methods, from the map that the JVM writes as it ends.
#[test]
fn java_perf_map() {
    require("javac", "default-jdk-headless");
    let program = script("Busy.java");
    let flags = [
        "-XX:+UnlockDiagnosticVMOptions",
        "-XX:+DumpPerfMapAtExit",
        "-XX:+PreserveFramePointer",
    ];
    let command = [&["java"][..], &flags, &[text(&program), "3"]].concat();
    let functions = [("Busy.middleStep", 30.0), ("Busy.innerWork", 0.1)];
    check_interpreter(&["-F", "997"], &command, &functions);
}

/// A Python that has perf trampolines: 3.12 or newer. Debian 12 has none, and no registry does.
fn python() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let names = ["python3", "python3.14", "python3.13", "python3.12"];
    let on_path = env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name)));
    let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let installed = fs::read_dir(home.join(".pyenv/versions"))
        .into_iter()
        .flatten()
        .flatten();
    let installed = installed.map(|version| version.path().join("bin/python3"));
    let has_trampolines = |python: &PathBuf| {
        let test = "import sys; sys.exit(not hasattr(sys, 'activate_stack_trampoline'))";
        python.is_file()
            && Run::new(python)
                .args(["-c", test])
                .output()
                .status
                .success()
    };
    on_path.chain(installed).find(has_trampolines)
}

/// Check that a report made elsewhere has the names of Python functions. Without frame pointers in Python itself, as
/// most are built, only what is caught in a trampoline has one.
#[test]
fn python_perf_map() {
    let Some(python) = python() else {
        println!(
            "NOT RUN: no Python 3.12 or newer here; it is python3 since Debian 13, elsewhere `pyenv install 3.13`"
        );
        return;
    };
    let program = script("tiny.py");
    let command = [text(&python), "-X", "perf", text(&program), "2"];
    let functions = [("py::tiny_step:", 0.05)];
    let recording = check_interpreter(&["-F", "4997"], &command, &functions);
    let maps = &recording.info.jit_maps;
    assert!(maps.iter().any(|map| map.functions > 50), "{maps:?}");
}
