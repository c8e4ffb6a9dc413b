//! Files that end the process that reads them: here by being cut short while they are mapped.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
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
