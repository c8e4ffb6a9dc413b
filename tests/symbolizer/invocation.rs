//! Help, exit codes, pipes and messages.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use rawstack_symbolizer::debug_file::elf::ElfFile;

use super::fixtures::GOLDEN_ID;
use super::golden::folder;
use super::run::{check_golden, rawstack, succeed, with_input};

/// Check the help of each verb; every one has examples.
#[test]
fn help() {
    let short = |name: &str, args: &[&str]| {
        let text = succeed(folder(), args);
        assert!(text.contains("EXAMPLES:"), "{name}");
        check_golden(&format!("help/{name}.txt"), &text);
    };
    short("rawstack", &["--help"]);
    for verb in [
        "info",
        "verify",
        "dump",
        "report",
        "flamegraph",
        "export",
        "symbols",
        "symbolize",
        "cache",
        "tui",
        "merge",
        "scrub",
        "import",
        "diff",
        "calibrate",
    ] {
        short(verb, &[verb, "--help"]);
    }
}

/// Check that usage errors and missing files end with 2 and a line that says what failed and on what.
#[test]
fn errors_are_one_line() {
    let usage = rawstack(folder(), &["report"]);
    assert_eq!(usage.code, 2);
    let missing = rawstack(folder(), &["report", "none.rawstack"]);
    assert_eq!(missing.code, 2);
    assert_eq!(
        missing.err,
        "rawstack: failed to open none.rawstack: No such file or directory (os error 2)\n"
    );
    fs::write(folder().join("text.rawstack"), "no archive").unwrap();
    for verb in ["info", "verify", "dump", "report", "symbols", "flamegraph"] {
        let ran = rawstack(folder(), &[verb, "text.rawstack"]);
        assert_eq!(
            (ran.code, ran.err.lines().count()),
            (2, 1),
            "{verb}: {}",
            ran.err
        );
        assert!(
            ran.err
                .starts_with("rawstack: failed to read text.rawstack: "),
            "{}",
            ran.err
        );
    }
    let folder_as_file = rawstack(folder(), &["info", "."]);
    assert_eq!(
        (folder_as_file.code, folder_as_file.err.lines().count()),
        (2, 1)
    );
}

/// Check that a reader that closes the pipe is no error.
#[test]
fn closed_pipe() {
    for args in [
        &["dump", "golden.rawstack"][..],
        &["report", "--json", "golden.rawstack"],
        &["info", "golden.rawstack"],
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_rawstack"))
            .args(args)
            .current_dir(folder())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let mut errors = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut errors)
            .unwrap();
        assert!(!errors.contains("write"), "{errors}");
        assert_eq!(child.wait().unwrap().code(), Some(0), "{args:?}: {errors}");
    }
}

/// Check that a file stays as it is while the command that is to write it fails, and that nothing is left beside it.
#[test]
fn output_only_when_whole() {
    let work = tempfile::tempdir().unwrap();
    let held = work.path().join("held");
    fs::write(&held, "held").unwrap();
    fs::write(work.path().join("text.rawstack"), "no archive").unwrap();
    let text = work.path().join("text.rawstack");
    let text = text.to_str().unwrap();
    let target = ["-o", held.to_str().unwrap()];
    for format in ["json", "pprof", "firefox"] {
        // The second archive of the two is the one that fails.
        let files = ["export", "golden.rawstack", text, "--format", format, "-q"];
        let ran = rawstack(folder(), &[&files[..], &target].concat());
        assert_eq!(ran.code, 2, "{format}: {}", ran.err);
        assert_eq!(fs::read_to_string(&held).unwrap(), "held", "{format}");
    }
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 2);
    succeed(
        folder(),
        &[&["report", "golden.rawstack"][..], &target].concat(),
    );
    let own = succeed(folder(), &["report", "golden.rawstack"]);
    assert_eq!(fs::read_to_string(&held).unwrap(), own);
}

/// Check that `-o FILE` and `-o -` give the same bytes, and that a place that cannot be written is told.
#[test]
fn output_file() {
    let direct = succeed(folder(), &["info", "golden.rawstack", "-o", "-"]);
    assert_eq!(
        succeed(folder(), &["info", "golden.rawstack", "-o", "info.txt"]),
        ""
    );
    assert_eq!(
        fs::read_to_string(folder().join("info.txt")).unwrap(),
        direct
    );
    let ran = rawstack(
        folder(),
        &["info", "golden.rawstack", "-o", "none/info.txt"],
    );
    assert_eq!(ran.code, 2);
    assert!(
        ran.err
            .starts_with("rawstack: failed to create none/info.txt: "),
        "{}",
        ran.err
    );
}

/// Check that numbers come from standard input, in any number a line, and that a wrong one is told.
#[test]
fn numbers_from_standard_input() {
    let base = [
        "symbolize",
        "--build-id",
        GOLDEN_ID,
        "--symbol-dir",
        "debug",
    ];
    let given = succeed(folder(), &[&base[..], &["401016", "4010aa"]].concat());
    let piped = with_input(folder(), &base, "401016\n\n  0x4010AA\n");
    assert_eq!((piped.code, piped.out), (0, given));
    let wrong = with_input(folder(), &base, "401016\nmain\n");
    assert_eq!(wrong.code, 2);
    assert!(
        wrong.err.contains("failed to read number `main`"),
        "{}",
        wrong.err
    );
}

/// Check that `record` runs the program beside it or on PATH, and says so when there is none.
#[test]
fn record_hands_over() {
    let folder = super::fixtures::folder().join("record");
    fs::create_dir_all(&folder).unwrap();
    let recorder = folder.join("rawstack-record");
    fs::write(&recorder, "#!/bin/sh\necho \"recorder got $*\"\nexit 7\n").unwrap();
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&recorder, executable).unwrap();
    let run = |path: &str| {
        // A copy, for there may be a real recorder beside the program that was built.
        let program = folder.join("bin").join("rawstack");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        let _ = fs::hard_link(env!("CARGO_BIN_EXE_rawstack"), &program);
        let args = ["record", "-d", "1s", "--help"];
        Command::new(&program)
            .args(args)
            .env("PATH", path)
            .output()
            .unwrap()
    };
    let found = run(&format!("{}:/bin:/usr/bin", folder.display()));
    assert_eq!(
        String::from_utf8(found.stdout).unwrap(),
        "recorder got -d 1s --help\n"
    );
    assert_eq!(found.status.code(), Some(7));
    let missing = run("/nonexistent");
    assert_eq!(missing.status.code(), Some(2));
    assert!(
        String::from_utf8(missing.stderr)
            .unwrap()
            .starts_with("rawstack: failed to find rawstack-record")
    );
}

/// Check that an archive may come from standard input where one pass is enough, and that two passes are refused.
#[test]
fn archive_from_standard_input() {
    let whole = succeed(folder(), &["dump", "golden.rawstack"]);
    let run = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_rawstack"))
            .args(args)
            .stdin(fs::File::open(folder().join("golden.rawstack")).unwrap())
            .output()
            .unwrap()
    };
    let piped = run(&["dump", "-"]);
    assert_eq!(String::from_utf8(piped.stdout).unwrap(), whole);
    let twice = run(&["dump", "--format", "perf-script", "-"]);
    assert_eq!(twice.status.code(), Some(2));
}

/// Check that the number of threads changes nothing in the output.
#[test]
fn any_number_of_threads() {
    let program = super::fixtures::build("rust");
    let numbers: Vec<String> = super::offline::text_offsets(&program, 13)
        .iter()
        .map(|offset| format!("{offset:x}"))
        .collect();
    let run = |threads: &str| {
        Command::new(env!("CARGO_BIN_EXE_rawstack"))
            .args(["symbolize", "--json", "--offsets", "--file"])
            .arg(&program)
            .args(&numbers)
            .env("RAYON_NUM_THREADS", threads)
            .output()
            .unwrap()
            .stdout
    };
    let one = run("1");
    assert!(one.len() > 100_000);
    assert!(one == run("2") && one == run("7"));
}

/// Check that a terminal sees progress once the work takes more than a second, and nothing before; and that a pipe never
/// does.
#[test]
fn progress_on_a_terminal() {
    let program = env!("CARGO_BIN_EXE_rawstack");
    let on_terminal = |wait: &str| {
        let command = format!(
            "(sleep {wait}; cat golden.rawstack) | {program} report --no-cache - >/dev/null"
        );
        let seen = folder().join(format!("typescript-{wait}"));
        let mut script = Command::new("script");
        script
            .args(["-qec", &command])
            .arg(&seen)
            .current_dir(folder());
        let status = script
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
        fs::read_to_string(seen).unwrap()
    };
    assert!(on_terminal("1.7").contains("reading"));
    assert!(!on_terminal("0").contains("reading"));
}

/// Check that numbers which come through a pipe are answered while it is open.
#[test]
fn answers_while_the_pipe_is_open() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rawstack"))
        .args([
            "symbolize",
            "--build-id",
            GOLDEN_ID,
            "--symbol-dir",
            "debug",
        ])
        .current_dir(folder())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    for (asked, answered) in [("40105e\n", "recurse"), ("40104e 4010aa\n", "recurse")] {
        input.write_all(asked.as_bytes()).unwrap();
        let line = answers.next().unwrap().unwrap();
        assert!(
            line.contains(&format!(": {answered} at ")),
            "{asked}: {line}"
        );
    }
    assert!(answers.next().unwrap().unwrap().contains(": bare at "));
    drop(input);
    assert!(answers.next().is_none());
    assert!(child.wait().unwrap().success());
}

/// Check the layout of addr2line beside addr2line itself: the same bytes for every address of every function that the
/// program states a size of, with the functions inlined there, and for an address of none.
#[test]
fn layout_of_addr2line() {
    let program = super::fixtures::build("c-gcc-dwarf4-fixed");
    let file = ElfFile::open(&program).unwrap();
    let mut addresses = Vec::new();
    file.for_each_symbol(&mut |symbol| {
        // What the linker adds has no debug information, and addr2line names what lies around it.
        if symbol.kind == 2 && symbol.size > 0 && !symbol.name.starts_with(b"_") {
            addresses.extend(symbol.svma..symbol.svma + symbol.size);
        }
    });
    assert!(addresses.len() > 500);
    addresses.push(0x10);
    let numbers: Vec<String> = addresses
        .iter()
        .map(|address| format!("{address:#x}"))
        .collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    let path = program.to_str().unwrap();
    let args = [&["-f", "-i", "-C", "-e", path], &numbers[..]].concat();
    let theirs = String::from_utf8(super::fixtures::tool("addr2line", args).stdout).unwrap();
    let args = [
        &["symbolize", "--format", "addr2line", "--file", path],
        &numbers[..],
    ]
    .concat();
    let ours = succeed(folder(), &args);
    let plain = |line: &str| line.split(" (discriminator").next().unwrap().to_owned();
    let theirs: Vec<String> = theirs.lines().map(plain).collect();
    let ours: Vec<&str> = ours.lines().collect();
    assert_eq!(ours.len(), theirs.len());
    let differing = ours
        .iter()
        .zip(&theirs)
        .filter(|(ours, theirs)| *ours != *theirs);
    assert_eq!(differing.collect::<Vec<_>>(), []);
}

/// Check that lines fit a terminal, and that a pipe gets whole ones.
#[test]
fn lines_fit_the_terminal() {
    let seen = folder().join("typescript-columns");
    let program = env!("CARGO_BIN_EXE_rawstack");
    let report = "report -q golden.rawstack --symbol-dir debug --no-cache --by line";
    let command = format!("stty rows 24 cols 50; {program} {report}");
    let mut script = Command::new("script");
    script.args(["-qec", &command]).arg(&seen);
    let script = script.current_dir(folder()).stdin(Stdio::null());
    assert!(script.stdout(Stdio::null()).status().unwrap().success());
    let text = fs::read_to_string(seen).unwrap();
    let rows: Vec<&str> = text.lines().filter(|line| line.contains('%')).collect();
    assert!(rows.iter().any(|row| row.contains('…')), "{text}");
    assert!(
        rows.iter().all(|row| row.trim_end().chars().count() <= 50),
        "{text}"
    );
    let whole = succeed(folder(), &report.split(' ').collect::<Vec<_>>());
    assert!(!whole.contains('…'));
}
