//! pprof, read by `go tool pprof`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use rawstack_symbolizer::debug_file::elf::ElfFile;

use super::consumers::{Totals, export, output, report, totals};
use crate::fixtures;
use crate::offline::archive_of;
use crate::run::succeed;

fn pprof(work: &Path, args: &[&str], files: &[&Path]) -> String {
    let mut command = Command::new("go");
    command.args(["tool", "pprof"]).args(args).args(files);
    command
        .env("PPROF_TMPDIR", work)
        .env("PPROF_BINARY_PATH", work);
    output(&mut command)
}

/// The table of `-top`.
fn top(work: &Path, args: &[&str], files: &[&Path]) -> Totals {
    let all = ["-top", "-nodefraction=0", "-nodecount=1000", "-unit=ns"];
    let text = pprof(work, &[&all[..], args].concat(), files);
    let number = |word: &str| word.trim_end_matches("ns").parse::<i64>().unwrap();
    let mut totals = Totals::default();
    let rows = text
        .lines()
        .skip_while(|line| line.split_whitespace().next() != Some("flat"))
        .skip(1);
    for row in rows {
        let columns: Vec<_> = row.split_whitespace().take(5).collect();
        let (own, cumulative) = (number(columns[0]), number(columns[3]));
        let name = columns.iter().fold(row, |rest, column| {
            rest.trim_start().strip_prefix(column).unwrap()
        });
        let name = name
            .trim()
            .trim_end_matches(" (inline)")
            .trim_end_matches(" (partial-inline)");
        let (own, cumulative) = (
            u64::try_from(own).unwrap(),
            u64::try_from(cumulative).unwrap(),
        );
        totals.total += own;
        totals.cumulative.insert(name.to_owned(), cumulative);
        if own > 0 {
            totals.own.insert(name.to_owned(), own);
        }
    }
    totals
}

/// Check that pprof's table has the self and total times of the report, recursion and inlined functions included.
#[test]
fn top_is_the_report() {
    let work = tempfile::tempdir().unwrap();
    let file = export(work.path(), "pprof", "golden.pb.gz", &[]);
    assert_eq!(top(work.path(), &[], &[&file]), report(&[]));
    for label in ["comm=worker", "tid=101", "tid=101:101"] {
        let threads = top(work.path(), &[&format!("-tagfocus={label}")], &[&file]);
        assert_eq!(threads, report(&["--tid", "101"]), "{label}");
    }
}

/// Check that a selection is exported as it is reported.
#[test]
fn selection() {
    let work = tempfile::tempdir().unwrap();
    for options in [
        &["--no-kernel"][..],
        &["--focus", "recurse", "--hide", "middle"],
        &["--no-inlines", "--pid", "100"],
    ] {
        let file = export(work.path(), "pprof", "selected.pb.gz", options);
        assert_eq!(
            top(work.path(), &[], &[&file]).total,
            report(options).total,
            "{options:?}"
        );
    }
}

/// Check that what is two archives minus one of them is the other.
#[test]
fn difference() {
    let work = tempfile::tempdir().unwrap();
    let one = export(work.path(), "pprof", "one.pb.gz", &[]);
    let two = export(work.path(), "pprof", "two.pb.gz", &["golden.rawstack"]);
    let base = format!("-diff_base={}", one.display());
    assert_eq!(top(work.path(), &[&base], &[&two]), report(&[]));
}

/// Check that pprof shows build IDs, also of what has no names, labels and both values of each sample.
#[test]
fn raw_listing() {
    let work = tempfile::tempdir().unwrap();
    let file = export(work.path(), "pprof", "golden.pb.gz", &[]);
    let text = pprof(work.path(), &["-raw"], &[&file]);
    for expected in [
        "samples/count cpu/nanoseconds[dflt]",
        "/opt/app/golden 00112233445566778899aabbccddeeff00112233 [FN][FL][LN][IN]",
        "cgroup:[/system/web.service] comm:[worker] process:[server]\n",
        "pid:[100] tid:[101]\n",
        "innermost /src/golden.c:6",
        "PeriodType: cpu nanoseconds",
        "Period: 1000000",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let file = export(work.path(), "pprof", "raw.pb.gz", &["--raw"]);
    let text = pprof(work.path(), &["-raw"], &[&file]);
    let mapping = "/opt/app/golden 00112233445566778899aabbccddeeff00112233 \n";
    assert!(text.contains(mapping), "{text}");
}

/// Check that pprof itself finds the names of a raw export in the programs, by build ID and address: as it finds them
/// for each offset of the code, so do we.
#[test]
fn resolved_by_pprof() {
    for program in ["c-gcc-dwarf4-fixed", "c-gcc-pie"] {
        let work = tempfile::tempdir().unwrap();
        let path = fixtures::build(program);
        archive_of(&path, 7).write(work.path(), "all.rawstack");
        let raw = ["export", "all.rawstack", "--raw", "--format", "pprof"];
        succeed(work.path(), &[&raw[..], &["-o", "raw.pb.gz"]].concat());
        let id = ElfFile::open(&path).unwrap().build_id.unwrap().to_string();
        let place = work.path().join(id);
        fs::create_dir(&place).unwrap();
        symlink(&path, place.join(program)).unwrap();
        let found = top(work.path(), &[], &[&work.path().join("raw.pb.gz")]);
        let args = ["report", "all.rawstack", "--json", "--no-inlines"];
        let report = totals(&succeed(work.path(), &args));
        // Here it reads debug information alone and without inlined functions, and calls what has none by the file.
        let named = found.own.iter().filter(|(name, _)| !name.starts_with('['));
        for (name, own) in named.clone() {
            assert_eq!(report.own.get(name), Some(own), "{program}: {name}");
        }
        assert!(named.count() >= 5, "{program}: {found:?}");
    }
}
