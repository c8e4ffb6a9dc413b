//! The page of `rawstack flamegraph`: what is in the file, and what it does in a real browser.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use rawstack_format::record::{
    FrameKind, KernelSymbol, KernelSymbols, Module, ModuleKind, Record, Sample,
};

use super::archive::{self, Archive};
use super::golden::folder;
use super::run::{rawstack, succeed};

/// Run a check of tests/page/browser.py, which compares with other commands, on the archive of `folder`.
fn browse(folder: &Path, check: &str) {
    run_script("browser.py", folder, check);
}

/// Run a check of one of the scripts in tests/page on the archives of `folder`, in a real browser.
pub(crate) fn run_script(name: &str, folder: &Path, check: &str) {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/page");
    let done = Command::new(scripts.join(name))
        .arg(env!("CARGO_BIN_EXE_rawstack"))
        .arg(folder)
        .arg(check)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{check}: {said}");
}

/// The golden archive under the name that the checks take.
fn golden() -> tempfile::TempDir {
    let work = tempfile::tempdir().unwrap();
    fs::copy(
        folder().join("golden.rawstack"),
        work.path().join("a.rawstack"),
    )
    .unwrap();
    symlink(folder().join("debug"), work.path().join("debug")).unwrap();
    work
}

/// Check that the same archive gives the same page, that it names no other place, and that its policy comes first.
#[test]
fn one_closed_file() {
    let work = golden();
    let page = || {
        succeed(
            work.path(),
            &[
                "flamegraph",
                "a.rawstack",
                "-q",
                "--symbol-dir",
                "debug",
                "-o",
                "p.html",
            ],
        );
        fs::read_to_string(work.path().join("p.html")).unwrap()
    };
    let text = page();
    assert_eq!(text, page());
    let policy = text.find("Content-Security-Policy").unwrap();
    assert!(text.contains("default-src 'none'"));
    assert!(policy < text.find("<style").unwrap() && policy < text.find("<script").unwrap());
    for refused in ["http:", "https:", "src=", "href=", "@import", "url("] {
        assert!(!text.contains(refused), "{refused}");
    }
}

/// Check that a page without a sample is an error that says so, and leaves an older file alone.
#[test]
fn nothing_to_draw() {
    let work = golden();
    fs::write(work.path().join("p.html"), "older").unwrap();
    let ran = rawstack(
        work.path(),
        &["flamegraph", "a.rawstack", "--pid", "7", "-o", "p.html"],
    );
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("no sample is selected"), "{}", ran.err);
    assert_eq!(
        fs::read_to_string(work.path().join("p.html")).unwrap(),
        "older"
    );
}

/// Check that all numbers, and those of a span, a process, a thread and a CPU, are those of report.
#[test]
fn numbers_in_chromium() {
    browse(golden().path(), "numbers");
}

/// Check search, zoom and its history, graphs apart, callers and callees, keys, themes and paper.
#[test]
fn working_in_chromium() {
    browse(golden().path(), "working");
}

/// Check that names which are markup or script stay text, that nothing is run or asked for, and that times may lie far
/// apart.
#[test]
fn hostile_names_in_chromium() {
    let work = tempfile::tempdir().unwrap();
    fs::create_dir(work.path().join("debug")).unwrap();
    let script = "</script><script>window.owned = 3</script>";
    let mut archive = Archive::new();
    let symbol = KernelSymbol {
        offset: 0x1000,
        kind: b't',
        name: script.to_owned(),
        ..KernelSymbol::default()
    };
    archive.record(Record::KernelSymbols(KernelSymbols {
        parts: 1,
        text_size: 0x10_0000,
        symbols: vec![symbol],
        ..KernelSymbols::default()
    }));
    archive.process(1, "<img src=x onerror='window.owned = 4'>", "/");
    archive.process(2, "\"'`;--></style>", "/");
    let kernel = archive.module(Module {
        kind: ModuleKind::Kernel,
        path: "[kernel]".to_owned(),
        ..Module::default()
    });
    let frame = archive.frame(FrameKind::KernelLeaf, kernel, 0x1004);
    let kernel = archive.stack(&[frame]);
    for (pid, path) in [(1, "/opt/<svg onload=alert(1)>"), (2, "/opt/<b>bold<!--")] {
        let module = archive.module(Module {
            path: path.to_owned(),
            build_id: None,
            ..archive::golden_module()
        });
        let user = archive.user_stack(module, &[0x1016, 0x105f]);
        archive.sample(Sample {
            pid,
            tid: pid,
            user,
            kernel,
            ..Sample::default()
        });
    }
    // As far from the others as can be said.
    archive.sample(Sample {
        pid: 2,
        tid: 2,
        kernel,
        time_ns: u64::MAX,
        ..Sample::default()
    });
    archive.write(work.path(), "a.rawstack");
    browse(work.path(), "hostile");
}
