//! Files that end the process that reads them: here by being cut short while they are mapped.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rawstack_format::id::BuildId;
use serde_json::Value;

use super::archive::Archive;
use super::fixtures::sources;
use super::offline::{recorded, text_offsets};
use super::pieces::compile;
use super::places::{answer, misbehave};

/// A folder with two programs that have debug information, of other build IDs.
fn programs() -> tempfile::TempDir {
    let work = tempfile::tempdir().unwrap();
    fs::copy(sources().join("work.c"), work.path().join("work.c")).unwrap();
    for (name, level) in [("victim", "-O1"), ("other", "-O2")] {
        let args = [level, "-g", "-Wl,--build-id", "work.c", "-o", name];
        compile(work.path(), "gcc", &args);
    }
    work
}

/// An archive with samples all over the two programs, and in a third module that is nowhere.
fn archive(folder: &Path) -> PathBuf {
    let mut archive = Archive::new();
    archive.process(1, "program", "/");
    for name in ["victim", "other"] {
        let path = folder.join(name);
        let module = archive.module(recorded(&path));
        for offset in text_offsets(&path, 16) {
            let user = archive.user_stack(module, &[offset]);
            archive.user_sample(user);
        }
    }
    let mut gone = recorded(&folder.join("other"));
    gone.path = "/usr/bin/gone".to_owned();
    gone.build_id = BuildId::new(&[0x77; 20]);
    let module = archive.module(gone);
    let user = archive.user_stack(module, &[0x1000]);
    archive.user_sample(user);
    archive.write(folder, "a.rawstack")
}

fn cut_short(path: &Path) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(64).unwrap();
}

fn rawstack(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rawstack"));
    command
        .current_dir(folder)
        .env("XDG_CACHE_HOME", "/dev/null")
        .env("HOME", folder)
        .stdin(Stdio::null());
    command
}

fn report(folder: &Path, url: &str) -> Output {
    rawstack(folder)
        .args([
            "report",
            "--debuginfod",
            "--json",
            "--symbol-dir",
            ".",
            "a.rawstack",
        ])
        .env("DEBUGINFOD_URLS", url)
        .env("DEBUGINFOD_CACHE_PATH", folder.join("client"))
        .output()
        .unwrap()
}

/// Check that a program that is cut short while a report reads it costs its own names alone: everything else is as it is
/// without that file, the exit code is 0 and one line says what was left out.
#[test]
fn cut_short_while_reported() {
    let work = programs();
    let folder = work.path();
    archive(folder);
    let victim = folder.join("victim");
    // The server is asked for the third module, when the first one is mapped already.
    let (url, _) = misbehave(Box::new(move |_| {
        thread::sleep(Duration::from_millis(500));
        if victim.exists() {
            cut_short(&victim);
        }
        answer("404 Not Found", b"")
    }));
    let output = report(folder, &url);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let said: Vec<&str> = errors
        .lines()
        .filter(|line| line.contains("left out"))
        .collect();
    assert_eq!(said.len(), 1, "{errors}");
    assert!(
        said[0].contains("/victim is left out: the process that read it ended by SIGBUS"),
        "{errors}"
    );
    fs::remove_file(folder.join("victim")).unwrap();
    let without = report(folder, &url);
    assert!(without.status.success());
    assert_eq!(rows(&output), rows(&without));
}

/// The rows of a report. Why a file is not there may be told in other words.
fn rows(report: &Output) -> Vec<Value> {
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let mut rows = report["rows"].as_array().unwrap().clone();
    assert!(rows.iter().any(|row| row["name"] == "recurse"), "{rows:?}");
    for row in &mut rows {
        row.as_object_mut().unwrap().remove("reason");
    }
    rows
}

/// Check that numbers answered so far stay when a program is cut short between two of them, and that one line says so.
#[test]
fn cut_short_between_numbers() {
    let work = programs();
    let program = work.path().join("victim");
    let mut child: Child = rawstack(work.path())
        .args(["symbolize", "--file", "victim", "--offsets"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let offsets = text_offsets(&program, 16);
    writeln!(input, "{:#x}", offsets[offsets.len() / 2]).unwrap();
    let first = lines.next().unwrap().unwrap();
    assert!(!first.is_empty());
    cut_short(&program);
    // The pages of the first answer may be in memory still: those of another function are not.
    for offset in &offsets {
        if writeln!(input, "{offset:#x}").is_err() {
            break;
        }
    }
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(2));
    let mut errors = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut errors)
        .unwrap();
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("victim ended by SIGBUS"), "{errors}");
}

/// A large program with debug information, and numbers all over it.
fn large_program(folder: &Path) -> (&'static str, PathBuf) {
    let program = env!("CARGO_BIN_EXE_rawstack");
    let addresses: String = text_offsets(Path::new(program), 9973)
        .iter()
        .map(|offset| format!("{offset:x}\n"))
        .collect();
    let numbers = folder.join("numbers");
    fs::write(&numbers, addresses).unwrap();
    (program, numbers)
}

/// Whether a line says what failed. Threads that run out of memory at once write into one line, which may not end before ours:
/// what it begins with is the runtime's then, and nothing else.
fn is_failure(line: &str) -> bool {
    let words = ["memory", "allocation", "of", "bytes", "failed"];
    let of_runtime = |word: &str| words.contains(&word) || word.parse::<u64>().is_ok();
    line.split_once("rawstack: failed ")
        .is_some_and(|(before, _)| before.split_whitespace().all(of_runtime))
}

/// How many of `answers`, each under a limit of so many MiB, are none because the process that read ended by `signal`. The
/// others must be whole, or a line that says what failed.
fn deaths(whole: &Output, answers: impl Iterator<Item = (u64, Output)>, signal: &str) -> usize {
    assert!(whole.status.success() && whole.stdout.len() > 10_000);
    let died = answers.filter(|(mebibytes, output)| {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().last().unwrap_or_default();
        match output.status.code() {
            Some(0) => assert!(output.stdout == whole.stdout, "{mebibytes} MiB: {errors}"),
            Some(2) => assert!(is_failure(last), "{mebibytes} MiB: {errors}"),
            code => panic!("{mebibytes} MiB: exit code {code:?}: {errors}"),
        }
        last.contains(&format!(
            "the process that read {}",
            env!("CARGO_BIN_EXE_rawstack")
        )) && last.contains(signal)
    });
    died.count()
}

/// Check that where memory does not suffice, the answers are whole and the same or there are none, with a line that says what
/// failed on which file: at any limit, those under which allocations fail in the middle of reading among them.
#[test]
fn memory_that_does_not_suffice() {
    let work = tempfile::tempdir().unwrap();
    let (program, numbers) = large_program(work.path());
    let ask = |mebibytes: u64| {
        Command::new("prlimit")
            .arg(format!("--as={}", mebibytes << 20))
            .args([
                program,
                "symbolize",
                "--no-cache",
                "--offsets",
                "--file",
                program,
            ])
            .env_remove("RUST_BACKTRACE")
            .stdin(fs::File::open(&numbers).unwrap())
            .output()
            .expect("prlimit; this test needs it: apt-get install util-linux")
    };
    let answers = (40..640).step_by(40).map(|limit| (limit, ask(limit)));
    assert!(
        deaths(
            &ask(1 << 16),
            answers,
            "SIGABRT: there was not memory enough"
        ) > 0
    );
}

/// A control group whose memory is bounded, with a process that waits to be let go in it.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn new() -> Self {
        let root = Path::new("/sys/fs/cgroup");
        let first = root.join("memory");
        let root = if first.exists() {
            first
        } else {
            root.to_owned()
        };
        let group = root.join(format!("rawstack-test-{}", process::id()));
        fs::create_dir(&group).expect("a control group for memory; this test needs root");
        Self(group)
    }

    fn limit(&self, mebibytes: u64) {
        let names = ["memory.max", "memory.limit_in_bytes"];
        let file = names.iter().map(|name| self.0.join(name));
        let file = file.into_iter().find(|path| path.exists());
        let file = file.expect("control groups bound memory on this machine");
        fs::write(file, (mebibytes << 20).to_string()).unwrap();
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // The last process may still be on its way out.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Check that the same holds where the kernel kills the process that reads, because its control group has no more memory.
#[test]
fn killed_for_want_of_memory() {
    let work = tempfile::tempdir().unwrap();
    let (program, numbers) = large_program(work.path());
    let group = MemoryGroup::new();
    let ask = |mebibytes: u64| {
        group.limit(mebibytes);
        let join = format!("echo $$ >{}/cgroup.procs && exec \"$@\"", group.0.display());
        Command::new("sh")
            .args([
                "-c",
                &join,
                "sh",
                program,
                "symbolize",
                "--no-cache",
                "--offsets",
            ])
            .args(["--file", program])
            .stdin(fs::File::open(&numbers).unwrap())
            .output()
            .unwrap()
    };
    let answers = [64, 24, 8].map(|limit| (limit, ask(limit)));
    let whole = ask(4096);
    let why = "SIGKILL: there may not have been memory enough";
    assert!(deaths(&whole, answers.into_iter(), why) > 0);
}
