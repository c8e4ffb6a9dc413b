//! Runs `rawstack` and compares with golden files.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

/// Where no folder can be made: tests neither use nor leave results, but for those that are about them.
const NO_CACHE: &str = "/dev/null";

/// What a run gave.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Run in `folder`.
pub(crate) fn rawstack(folder: &Path, args: &[&str]) -> Ran {
    with_input(folder, args, "")
}

/// Run in `folder` with standard input.
pub(crate) fn with_input(folder: &Path, args: &[&str], input: &str) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rawstack"))
        .args(args)
        .current_dir(folder)
        .env_remove("COLUMNS")
        .env("XDG_CACHE_HOME", NO_CACHE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let feed = thread::spawn(move || {
        // A program that does not read its input closes it.
        let _ = stdin.write_all(input.as_bytes());
    });
    let output = child.wait_with_output().unwrap();
    feed.join().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Run and expect success.
pub(crate) fn succeed(folder: &Path, args: &[&str]) -> String {
    let ran = rawstack(folder, args);
    assert_eq!(ran.code, 0, "rawstack {args:?}: {}", ran.err);
    ran.out
}

/// Compare `text` with the golden file `name`; with UPDATE_GOLDEN=1 the file is written.
pub(crate) fn check_golden(name: &str, text: &str) {
    let path = golden_path(name);
    if env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        return;
    }
    let held = fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("{}: {error}; write it with UPDATE_GOLDEN=1", path.display())
    });
    let differing = held
        .lines()
        .zip(text.lines())
        .position(|(held, text)| held != text);
    let line = differing.unwrap_or_else(|| held.lines().count().min(text.lines().count()));
    let (held_line, text_line) = (held.lines().nth(line), text.lines().nth(line));
    assert!(
        held == text,
        "{name} differs in line {}:\n held: {held_line:?}\n  now: {text_line:?}\nUPDATE_GOLDEN=1 rewrites it",
        line + 1
    );
}

fn golden_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/golden")
        .join(name)
}
