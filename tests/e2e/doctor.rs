//! `--doctor`: what it finds on this host, with all rights and with none.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rawstack_test_support::Run;
use rawstack_test_support::programs::{rawstack_record, require, require_root, temp_dir};
use rawstack_test_support::turn::take_turn;

/// The word and the text of the line of a check.
fn line<'a>(report: &'a str, name: &str) -> (&'a str, &'a str) {
    let line = report.lines().find_map(|line| {
        let (word, rest) = line.trim_start().split_once("  ")?;
        Some((word.trim(), rest.trim_start().strip_prefix(name)?.trim()))
    });
    line.unwrap_or_else(|| panic!("no line on {name}:\n{report}"))
}

fn has_pmu(name: &str) -> bool {
    Path::new("/sys/bus/event_source/devices")
        .join(name)
        .exists()
}

/// Check that root lacks nothing that a recording needs, that what the kernel lacks is told with its cure, and that
/// nothing is written.
#[test]
fn as_root() {
    require_root();
    let _turn = take_turn();
    let dir = temp_dir();
    let output = Run::new(rawstack_record())
        .arg("--doctor")
        .current_dir(dir.path())
        .success();
    let report = output.stdout;
    for name in [
        "version",
        "type information",
        "lockdown",
        "capabilities to record",
        "capabilities to see all",
        "helper process",
        "system call filter",
        "programs, ring buffer",
        "raw tracepoints",
        "mappings",
        "mapped files",
        "output folder",
    ] {
        assert_eq!(line(&report, name).0, "works", "{name}\n{report}");
    }
    for (name, pmu, cure) in [
        ("kprobes", "kprobe", "CONFIG_KPROBES=y"),
        ("uprobes", "uprobe", "CONFIG_UPROBES=y"),
    ] {
        let (word, text) = line(&report, name);
        if has_pmu(pmu) {
            assert_eq!(word, "works", "{report}");
        } else {
            assert!(word == "missing" && text.contains(cure), "{report}");
        }
    }
    assert!(report.ends_with("A recording with default options works here.\n"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// Check that nobody is told which capabilities are missing and how to get them, and that the exit code says that
/// nothing can be recorded.
#[test]
fn as_nobody() {
    require("setpriv", "util-linux");
    require_root();
    let _turn = take_turn();
    let dir = temp_dir();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let recorder = dir.path().join("rawstack-record");
    fs::copy(rawstack_record(), &recorder).unwrap();
    let output = Run::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .args(["--inh-caps=-all", "--bounding-set=-all"])
        .arg(&recorder)
        .arg("--doctor")
        .current_dir("/")
        .output()
        .code(1);
    let report = output.stdout;
    let (word, text) = line(&report, "capabilities to record");
    assert_eq!(word, "missing");
    for part in ["CAP_BPF", "setcap cap_", ",cap_bpf+ep", "run as root"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(line(&report, "programs, ring buffer").0, "missing");
    let (word, text) = line(&report, "mappings");
    assert!(
        word == "missing" && text.contains("CAP_SYS_PTRACE"),
        "{report}"
    );
    let (word, text) = line(&report, "output folder");
    assert!(word == "missing" && text.contains("-o"), "{report}");
    assert!(!report.contains("A recording with default options works"));
}
