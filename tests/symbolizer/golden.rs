//! One golden file for each command and format.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::run::{check_golden, rawstack, succeed};
use super::{archive, fixtures};

/// A folder with the golden archive, whole and cut, and the debug file of its program.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = fixtures::folder().join("golden-archives");
        fs::create_dir_all(&folder).unwrap();
        archive::golden().write(&folder, "golden.rawstack");
        let killed = archive::golden().bytes(false);
        fs::write(
            folder.join("killed.rawstack"),
            &killed[..killed.len() - 900],
        )
        .unwrap();
        let mut damaged = archive::golden().bytes(true);
        let middle = damaged.len() / 2;
        damaged[middle] ^= 0x10;
        fs::write(folder.join("damaged.rawstack"), damaged).unwrap();
        let tree = fixtures::debug_tree(&fixtures::golden(), fixtures::GOLDEN_ID);
        let link = folder.join("debug");
        let _ = fs::remove_file(&link);
        symlink(tree, link).unwrap();
        folder
    })
}

/// Run twice, compare both runs with each other and with the golden file.
fn check(name: &str, args: &[&str]) {
    let out = succeed(folder(), args);
    assert_eq!(out, succeed(folder(), args), "two runs of {args:?} differ");
    assert!(
        !out.contains('\u{1b}') && !out.contains('\u{202e}'),
        "control characters in {name}"
    );
    check_golden(name, &out);
}

/// Check `info` as text and as JSON, of a whole archive with the share of frames that have names, and of one that was
/// cut, without.
#[test]
fn info() {
    check(
        "info/golden.txt",
        &["info", "golden.rawstack", "--symbol-dir", "debug"],
    );
    check(
        "info/golden.json",
        &["info", "--json", "--symbol-dir", "debug", "golden.rawstack"],
    );
    check("info/killed.txt", &["info", "--raw", "killed.rawstack"]);
    check(
        "info/damaged.json",
        &["info", "--json", "--raw", "damaged.rawstack"],
    );
}

/// Check that `verify` ends with 0 for a whole archive, with 1 for others, and says what is wrong.
#[test]
fn verify() {
    check("verify/golden.txt", &["verify", "golden.rawstack"]);
    for name in ["killed", "damaged"] {
        let ran = rawstack(folder(), &["verify", &format!("{name}.rawstack")]);
        assert_eq!(ran.code, 1, "{}", ran.err);
        check_golden(&format!("verify/{name}.txt"), &ran.out);
    }
}

/// Check `dump` as JSON lines and as perf-script text.
#[test]
fn dump() {
    check("dump/golden.json", &["dump", "golden.rawstack"]);
    check(
        "dump/golden.txt",
        &[
            "dump",
            "--format",
            "perf-script",
            "--symbol-dir",
            "debug",
            "golden.rawstack",
        ],
    );
}

/// Check the table for every kind of row.
#[test]
fn report_by() {
    for by in [
        "function", "line", "module", "thread", "process", "cgroup", "cpu", "event",
    ] {
        let args = [
            "report",
            "golden.rawstack",
            "--symbol-dir",
            "debug",
            "--by",
            by,
        ];
        check(&format!("report/{by}.txt"), &args);
    }
}

/// Check the table as JSON and CSV, without inlined functions, with symbols only, and of two archives.
#[test]
fn report_forms() {
    let base = ["report", "golden.rawstack", "--symbol-dir", "debug"];
    check("report/golden.json", &[&base[..], &["--json"]].concat());
    check("report/golden.csv", &[&base[..], &["--csv"]].concat());
    check(
        "report/no-inlines.txt",
        &[&base[..], &["--no-inlines"]].concat(),
    );
    check(
        "report/symbols-only.txt",
        &[&base[..], &["--symbols-only"]].concat(),
    );
    check(
        "report/two.txt",
        &[&base[..], &["golden.rawstack", "--by", "process"]].concat(),
    );
}

/// Check the trees of callers and callees, whole and with small parts folded.
#[test]
fn report_trees() {
    for tree in ["callers", "callees"] {
        let base = [
            "report",
            "golden.rawstack",
            "--symbol-dir",
            "debug",
            "--tree",
            tree,
        ];
        check(&format!("report/{tree}.txt"), &base);
        let folded = [&base[..], &["--min", "12", "--csv"]].concat();
        check(&format!("report/{tree}.csv"), &folded);
    }
}

/// Check what standard error says of frames without names: one line a module.
#[test]
fn report_warnings() {
    let ran = rawstack(
        folder(),
        &["report", "golden.rawstack", "--symbol-dir", "debug"],
    );
    check_golden("report/golden.err", &ran.err);
    let quiet = rawstack(
        folder(),
        &["report", "-q", "killed.rawstack", "--symbol-dir", "debug"],
    );
    assert_eq!((quiet.code, quiet.err.as_str()), (0, ""));
}

/// Check the flame graph, and that it holds kernel and user halves as one stack.
#[test]
fn flamegraph() {
    check(
        "flamegraph/golden.svg",
        &[
            "flamegraph",
            "golden.rawstack",
            "--symbol-dir",
            "debug",
            "-o",
            "-",
        ],
    );
    let svg = succeed(
        folder(),
        &["flamegraph", "golden.rawstack", "--symbol-dir", "debug"],
    );
    assert!(svg.contains("vfs_read") && svg.contains("innermost") && !svg.contains("<script>;"));
}

/// Check what `symbols` says of each module.
#[test]
fn symbols() {
    check(
        "symbols/golden.txt",
        &["symbols", "golden.rawstack", "--symbol-dir", "debug"],
    );
    check(
        "symbols/golden.json",
        &[
            "symbols",
            "golden.rawstack",
            "--symbol-dir",
            "debug",
            "--json",
        ],
    );
}

/// Check `symbolize` by build ID and by file, with addresses and offsets, as text and JSON.
#[test]
fn symbolize() {
    let by_id = [
        "symbolize",
        "--build-id",
        fixtures::GOLDEN_ID,
        "--symbol-dir",
        "debug",
    ];
    let numbers = [
        "0x401016",
        "401105",
        "40105e",
        "0x4010aa",
        "ffffffffffffffff",
    ];
    check("symbolize/build-id.txt", &[&by_id[..], &numbers].concat());
    check(
        "symbolize/build-id.json",
        &[&by_id[..], &["--json"], &numbers].concat(),
    );
    let program = fixtures::golden();
    let by_file = [
        "symbolize",
        "--file",
        program.to_str().unwrap(),
        "--offsets",
        "1016",
        "1105",
        "10aa",
    ];
    check("symbolize/offsets.txt", &by_file);
}
