//! What is kept of earlier results: the same bytes come out with it and without it, and it never outlives its files.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};
use std::thread;

use rawstack_symbolizer::debug_file::elf::ElfFile;

use super::fixtures;
use super::golden;
use super::pieces::compile;

/// A home for one test's cache.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn entries(&self) -> usize {
        let folder = fs::read_dir(self.0.path().join("rawstack"));
        folder.map_or(0, Iterator::count)
    }

    fn command(&self, folder: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rawstack"));
        command
            .args(args)
            .current_dir(folder)
            .env("XDG_CACHE_HOME", self.0.path());
        command
    }

    fn run(&self, folder: &Path, args: &[&str]) -> Output {
        let output = self.command(folder, args).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {errors}");
        output
    }

    fn text(&self, folder: &Path, args: &[&str]) -> String {
        String::from_utf8(self.run(folder, args).stdout).unwrap()
    }
}

/// Addresses all over a program's code.
fn addresses(program: &Path) -> Vec<String> {
    let file = ElfFile::open(program).unwrap();
    let code = file
        .code_ranges()
        .into_iter()
        .flat_map(|range| range.step_by(13));
    code.map(|address| format!("{address:x}")).collect()
}

/// Check that output and messages are the same bytes without the cache, with an empty one, with one that knows half,
/// and with one that knows all, on one thread and on several.
#[test]
fn same_bytes() {
    let folder = golden::folder();
    let program = fixtures::build("cpp-gcc");
    let program = program.to_str().unwrap();
    let all = addresses(Path::new(program));
    let half: Vec<&str> = all.iter().step_by(2).map(String::as_str).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let golden = ["golden.rawstack", "--symbol-dir", "debug"];
    let asked = |verb: &[&'static str], rest: &[&str]| -> Vec<String> {
        let words = verb.iter().chain(rest);
        words.map(|word| (*word).to_owned()).collect()
    };
    let given = [&["--file", program], &all[..]].concat();
    let verbs = [
        asked(&["report"], &golden),
        asked(&["report", "--by", "line", "--json"], &golden),
        asked(&["flamegraph"], &golden),
        asked(&["dump", "--format", "perf-script"], &golden),
        asked(&["symbols", "--json"], &golden),
        asked(&["symbolize"], &given),
        asked(&["symbolize", "--json"], &given),
    ];
    let home = Home::new();
    home.run(
        folder,
        &[&["symbolize", "--file", program], &half[..]].concat(),
    );
    for verb in &verbs {
        let verb: Vec<&str> = verb.iter().map(String::as_str).collect();
        let expected = home.run(folder, &[&verb[..], &["--no-cache"]].concat());
        for threads in ["1", "8"] {
            for turn in ["first", "second"] {
                let mut command = home.command(folder, &verb);
                let output = command.env("RAYON_NUM_THREADS", threads).output().unwrap();
                assert!(
                    output == expected,
                    "{turn} with {threads} threads: {verb:?}"
                );
            }
        }
    }
    assert!(home.entries() >= 2);
}

/// Check that a known answer is not looked up again: it stays when the debug information is destroyed without a trace,
/// and only --no-cache sees that.
#[test]
fn known_answers() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    fs::copy(fixtures::build("c-gcc-pie"), &program).unwrap();
    let home = Home::new();
    let address = main_of(&program);
    let ask = |options: &[&str]| {
        let mut args = vec!["symbolize", "--file", "program", &address];
        args.extend(options);
        home.text(folder.path(), &args)
    };
    let before = ask(&[]);
    assert!(before.contains("work.c:"), "{before}");
    let file = ElfFile::open(&program).unwrap();
    let section = file.section(".debug_info").unwrap().clone();
    let written = program.metadata().unwrap().modified().unwrap();
    drop(file);
    let mut bytes = fs::read(&program).unwrap();
    let start = usize::try_from(section.offset).unwrap();
    bytes[start..start + usize::try_from(section.size).unwrap()].fill(0);
    // In place: the same inode, size and time.
    fs::write(&program, bytes).unwrap();
    File::options()
        .append(true)
        .open(&program)
        .unwrap()
        .set_modified(written)
        .unwrap();
    assert_eq!(ask(&[]), before);
    let without = ask(&["--no-cache"]);
    assert!(without.contains("main at ??:0"), "{without}");
    assert_eq!(ask(&[]), before);
}

fn main_of(program: &Path) -> String {
    let mut main = 0;
    ElfFile::open(program)
        .unwrap()
        .for_each_symbol(&mut |symbol| {
            if symbol.name == b"main" {
                main = symbol.svma;
            }
        });
    format!("{main:x}")
}

/// Check that better debug information is used as soon as it is there, though lesser answers are kept; and that a
/// program which was built anew has new answers.
#[test]
fn better_files() {
    let folder = tempfile::tempdir().unwrap();
    let (program, whole) = (folder.path().join("program"), fixtures::build("c-gcc-pie"));
    let address = main_of(&whole);
    let debug = folder.path().join("debug");
    fs::create_dir(&debug).unwrap();
    fixtures::tool(
        "objcopy",
        [
            "--strip-debug".as_ref(),
            whole.as_os_str(),
            program.as_os_str(),
        ],
    );
    let home = Home::new();
    let ask = || {
        home.text(
            folder.path(),
            &[
                "symbolize",
                "--file",
                "program",
                "--symbol-dir",
                "debug",
                &address,
            ],
        )
    };
    for _ in 0..2 {
        assert!(ask().contains("main at ??:0"));
    }
    fixtures::tool(
        "objcopy",
        [
            "--only-keep-debug".as_ref(),
            whole.as_os_str(),
            debug.join("program.debug").as_os_str(),
        ],
    );
    for _ in 0..2 {
        assert!(ask().contains("work.c:"));
    }
    fs::remove_file(debug.join("program.debug")).unwrap();
    assert!(ask().contains("main at ??:0"));
    // Another program at the same place.
    fs::copy(fixtures::build("cpp-gcc"), &program).unwrap();
    let address = main_of(&program);
    let text = home.text(folder.path(), &["symbolize", "--file", "program", &address]);
    assert!(text.contains("shapes.cpp:"), "{text}");
}

/// Check that several at once, each with other questions, all answer as one alone would, and leave a cache that does.
#[test]
fn several_at_once() {
    let program = fixtures::build("rust");
    let numbers = addresses(&program);
    let home = Home::new();
    let ask = |part: &[String], cached: bool| {
        let mut args = vec!["symbolize", "--file", program.to_str().unwrap()];
        args.extend((!cached).then_some("--no-cache"));
        args.extend(part.iter().map(String::as_str));
        home.text(Path::new("/"), &args)
    };
    let step = 300;
    assert!(numbers.len() > 10 * step);
    thread::scope(|scope| {
        for turn in 0..8 {
            // Each overlaps with the next.
            let part = &numbers[turn * step..(turn + 3) * step];
            scope.spawn(move || assert!(ask(part, true) == ask(part, false)));
        }
    });
    let part = &numbers[..10 * step];
    assert!(ask(part, true) == ask(part, false));
    let left = fs::read_dir(home.0.path().join("rawstack")).unwrap();
    let names: Vec<_> = left
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        names.iter().all(|name| name.ends_with(".answers")),
        "{names:?}"
    );
}

/// Check that nobody else can read the cache, that it is told of and emptied, and that commands work where there can be
/// none.
#[test]
fn private_and_told() {
    let home = Home::new();
    let program = fixtures::build("c-gcc-pie");
    let address = main_of(&program);
    let args = ["symbolize", "--file", program.to_str().unwrap(), &address];
    let text = home.text(Path::new("/"), &args);
    let folder = home.0.path().join("rawstack");
    let entry = fs::read_dir(&folder).unwrap().next().unwrap().unwrap();
    assert_eq!(
        folder.metadata().unwrap().permissions().mode() & 0o777,
        0o700
    );
    assert_eq!(
        entry.metadata().unwrap().permissions().mode() & 0o777,
        0o600
    );
    let told: serde_json::Value =
        serde_json::from_str(&home.text(Path::new("/"), &["cache", "--json"])).unwrap();
    assert_eq!(told["path"], folder.to_str().unwrap());
    assert_eq!(
        (&told["entries"], &told["bytes"]),
        (&1.into(), &entry.metadata().unwrap().size().into())
    );
    let cleared = home.text(Path::new("/"), &["cache", "--clear"]);
    assert!(cleared.contains(": 0 entries, 0 of "), "{cleared}");
    assert_eq!(home.entries(), 0);
    home.run(
        Path::new("/"),
        &[
            "symbolize",
            "--no-cache",
            "--file",
            program.to_str().unwrap(),
            &address,
        ],
    );
    assert_eq!(home.entries(), 0);
    // A file where the folder should be.
    fs::remove_dir(&folder).unwrap();
    fs::write(&folder, "in the way").unwrap();
    assert_eq!(home.text(Path::new("/"), &args), text);
    let mut homeless = Command::new(env!("CARGO_BIN_EXE_rawstack"));
    let output = homeless
        .args(args)
        .env_remove("XDG_CACHE_HOME")
        .env_remove("HOME")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
}

/// Check that answers out of a file of split units go with it: they are given while it stays, and when it is gone, or
/// another has taken its place, what is said is what is said without the cache.
#[test]
fn split_units() {
    let work = tempfile::tempdir().unwrap();
    let folder = work.path();
    fs::copy(fixtures::sources().join("work.c"), folder.join("work.c")).unwrap();
    let build = |folder: &Path, name: &str| {
        let args = [
            "-O2",
            "-g",
            "-gsplit-dwarf",
            "-Wl,--build-id",
            "-c",
            "work.c",
        ];
        compile(folder, "gcc", &[&args[..], &["-o", "unit.o"]].concat());
        compile(folder, "gcc", &["-Wl,--build-id", "unit.o", "-o", name]);
    };
    build(folder, "program");
    let all = addresses(&folder.join("program"));
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let home = Home::new();
    let ask = |option: &[&str]| {
        let args = [&["symbolize", "--file", "program"], option, &all].concat();
        let output = home.run(folder, &args);
        (output.stdout, output.stderr)
    };
    let whole = ask(&["--no-cache"]);
    assert_eq!(ask(&[]), whole);
    assert_eq!(home.entries(), 1);
    // Its content is not looked at again as long as it seems the same.
    let dwo = folder.join("unit.dwo");
    let bytes = fs::read(&dwo).unwrap();
    let time = fs::metadata(&dwo).unwrap().modified().unwrap();
    fs::write(&dwo, vec![0; bytes.len()]).unwrap();
    File::options()
        .write(true)
        .open(&dwo)
        .unwrap()
        .set_modified(time)
        .unwrap();
    assert_eq!(ask(&[]), whole);
    fs::write(&dwo, "no unit").unwrap();
    let other = ask(&["--no-cache"]);
    assert_ne!(other, whole);
    assert_eq!(ask(&[]), other);
    fs::remove_file(&dwo).unwrap();
    assert_eq!(ask(&[]), ask(&["--no-cache"]));
    fs::write(&dwo, &bytes).unwrap();
    assert_eq!(ask(&[]), whole);
}
