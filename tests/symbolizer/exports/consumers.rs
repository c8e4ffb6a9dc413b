//! What a consumer found in an export, and what the report says of the same archive.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::golden::folder;
use crate::run::succeed;

/// Options with which the golden archive is exported and reported.
pub(super) const NAMED: [&str; 3] = ["golden.rawstack", "--symbol-dir", "debug"];

/// Self and total by function, and the sum of all.
#[derive(Debug, Default, Deserialize, PartialEq)]
pub(super) struct Totals {
    pub(super) total: u64,
    #[serde(rename = "self")]
    pub(super) own: BTreeMap<String, u64>,
    pub(super) cumulative: BTreeMap<String, u64>,
}

/// What the report says; functions of one name are one here, as they are to most programs.
pub(super) fn report(options: &[&str]) -> Totals {
    let text = succeed(
        folder(),
        &[&["report", "--json"], &NAMED[..], options].concat(),
    );
    totals(&text)
}

/// Self and total by function of a report as JSON.
pub(super) fn totals(text: &str) -> Totals {
    let report: serde_json::Value = serde_json::from_str(text).unwrap();
    let mut totals = Totals {
        total: report["total"].as_u64().unwrap(),
        ..Totals::default()
    };
    for row in report["rows"].as_array().unwrap() {
        let name = row["name"].as_str().unwrap();
        let own = row["self"].as_u64().unwrap();
        totals
            .cumulative
            .insert(name.to_owned(), row["total"].as_u64().unwrap());
        if own > 0 {
            totals.own.insert(name.to_owned(), own);
        }
    }
    assert!(totals.total > 0);
    totals
}

/// Write an export of the golden archive into `work`, twice: the bytes must be the same.
pub(super) fn export(work: &Path, format: &str, name: &str, options: &[&str]) -> PathBuf {
    let write = |name: &str| {
        let path = work.join(name);
        let target = ["--format", format, "-o", path.to_str().unwrap()];
        let args = [&["export"], &NAMED[..], &target[..], options].concat();
        assert_eq!(succeed(folder(), &args), "");
        path
    };
    let first = write(name);
    let second = write(&format!("again-{name}"));
    assert_eq!(
        std::fs::read(&first).unwrap(),
        std::fs::read(second).unwrap(),
        "{format}: two runs differ"
    );
    first
}

/// Run a program that has to succeed; its standard output.
pub(super) fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {err}");
    String::from_utf8(output.stdout).unwrap()
}

/// The folder that `scripts/setup test` puts other programs into.
pub(super) fn consumers() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"),
        PathBuf::from,
    );
    let folder = target.join("consumers");
    assert!(
        folder.join("ready").exists(),
        "{} lacks the programs that read exports: run scripts/setup test",
        folder.display()
    );
    folder.canonicalize().unwrap()
}

/// Run one of our readers, which is written with a library of others; it prints totals. It knows the golden archive.
pub(super) fn read_with(script: &str, file: &Path) -> Totals {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/symbolizer/exports");
    let python = consumers().join("python/bin/python3");
    let text = output(
        Command::new(python)
            .arg("-B")
            .arg(scripts.join(script))
            .arg(file)
            .arg("golden"),
    );
    serde_json::from_str(&text).unwrap()
}
