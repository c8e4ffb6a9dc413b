//! Parquet, read with DuckDB and pyarrow.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::consumers::{NAMED, read_with, report};
use crate::archive;
use crate::golden::folder;
use crate::run::{rawstack, succeed};

fn export(dataset: &Path, options: &[&str]) {
    let target = ["--format", "parquet", "-o", dataset.to_str().unwrap()];
    let args = [&["export"], &NAMED[..], &target[..], options].concat();
    assert_eq!(succeed(folder(), &args), "");
}

/// Bytes and inode of each file below `folder`, by path.
fn files(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u64)> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
                continue;
            }
            let inode = path.metadata().unwrap().ino();
            let name = path.strip_prefix(folder).unwrap().to_owned();
            found.insert(name, (fs::read(&path).unwrap(), inode));
        }
    }
    found
}

fn table(path: &Path) -> String {
    let first = path.components().next().unwrap();
    first.as_os_str().to_str().unwrap().to_owned()
}

/// Check that DuckDB and pyarrow find the report's self and total times, that two runs write the same bytes, and that
/// the second one leaves what is there untouched.
#[test]
fn totals_are_the_report() {
    let work = tempfile::tempdir().unwrap();
    let dataset = work.path().join("dataset");
    export(&dataset, &[]);
    assert_eq!(read_with("parquet.py", &dataset), report(&[]));
    let first = files(&dataset);
    assert_eq!(first.len(), 8, "{:?}", first.keys());
    export(&dataset, &[]);
    assert_eq!(files(&dataset), first);
    let selection = ["--no-inlines", "--pid", "100", "--focus", "recurse"];
    let dataset = work.path().join("selected");
    export(&dataset, &[&selection[..], &["--no-kernel"]].concat());
    assert_eq!(
        read_with("parquet.py", &dataset),
        report(&[&selection[..], &["--no-kernel"]].concat())
    );
}

/// Check that resolving again writes symbols and nothing else, also where there were none before.
#[test]
fn symbols_apart() {
    let work = tempfile::tempdir().unwrap();
    export(work.path(), &["--raw"]);
    let raw = files(work.path());
    assert!(!raw.keys().any(|path| table(path) == "symbols"), "{raw:?}");
    export(work.path(), &["--tables", "symbols"]);
    let mut named = files(work.path());
    assert_eq!(read_with("parquet.py", work.path()), report(&[]));
    named.retain(|path, _| table(path) != "symbols");
    assert_eq!(named, raw);
    export(work.path(), &["--tables", "symbols", "--no-inlines"]);
    assert_eq!(
        read_with("parquet.py", work.path()),
        report(&["--no-inlines"])
    );
    export(work.path(), &[]);
    let mut again = files(work.path());
    again.retain(|path, _| table(path) != "symbols");
    assert_eq!(again, raw);
}

/// Check that recordings stand side by side, that a service is a partition, and that another service's samples move.
#[test]
fn several_recordings() {
    let work = tempfile::tempdir().unwrap();
    let dataset = work.path().join("dataset");
    export(&dataset, &[]);
    let one = report(&[]);
    let mut other = archive::golden();
    other.recording().start_wall_ns += 86_400_000_000_000;
    other.recording().labels = vec![("service".to_owned(), "web/eu".to_owned())];
    other.write(work.path(), "other.rawstack");
    let target = dataset.to_str().unwrap();
    let other = work.path().join("other.rawstack");
    export(&dataset, &[other.to_str().unwrap()]);
    let both = read_with("parquet.py", &dataset);
    assert_eq!(both.total, 2 * one.total);
    for (name, own) in &one.own {
        assert_eq!(both.own[name], 2 * own, "{name}");
    }
    let samples = |dataset: &Path| {
        let files = files(dataset).into_keys();
        let samples = files.filter(|path| table(path) == "samples");
        let folders = samples.map(|path| path.parent().unwrap().to_str().unwrap().to_owned());
        folders.collect::<Vec<_>>()
    };
    let expected = [
        "samples/date=2025-11-24/service=unknown",
        "samples/date=2025-11-25/service=web%2Feu",
    ];
    assert_eq!(samples(&dataset), expected);
    let args = ["export", "golden.rawstack", "--format", "parquet", "--raw"];
    succeed(
        folder(),
        &[&args[..], &["--service", "db", "-o", target]].concat(),
    );
    let expected = ["samples/date=2025-11-24/service=db", expected[1]];
    assert_eq!(samples(&dataset), expected);
}

/// Check what is refused, each with a line that says what to do, and that nothing is written then.
#[test]
fn refusals() {
    let work = tempfile::tempdir().unwrap();
    let file = work.path().join("file");
    fs::write(&file, "held").unwrap();
    let (file, dataset) = (file.to_str().unwrap(), work.path().join("dataset"));
    let dataset = dataset.to_str().unwrap();
    let refused = |options: &[&str], expected: &str| {
        let args = [&["export", "golden.rawstack", "--format"], options].concat();
        let ran = rawstack(folder(), &args);
        assert_eq!((ran.code, ran.err.as_str()), (2, expected), "{options:?}");
    };
    let folder_wanted =
        "rawstack: failed to export: parquet is a folder of files; name one with -o\n";
    refused(&["parquet"], folder_wanted);
    refused(&["parquet", "-o", "-"], folder_wanted);
    refused(
        &["parquet", "-o", file],
        &format!(
            "rawstack: failed to write {file}: it is no folder, and parquet is one; name another with -o\n"
        ),
    );
    refused(
        &["parquet", "-o", dataset, "--hide", "x"],
        "rawstack: failed to export: --hide is of names, and stacks in parquet have none; hide in the query\n",
    );
    refused(
        &["parquet", "-o", dataset, "--raw", "--tables", "symbols"],
        "rawstack: failed to export: there are no symbols with --raw; leave one of the two out\n",
    );
    refused(
        &["csv", "-o", dataset, "--service", "web"],
        "rawstack: failed to export: --tables and --service are of --format parquet\n",
    );
    refused(
        &["parquet", "-q", "-o", dataset, "golden.rawstack"],
        "rawstack: failed to write: two of the archives are of the same recording; give it once\n",
    );
    assert!(!Path::new(dataset).exists());
}
