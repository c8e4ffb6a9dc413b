//! `rawstack diff` and `rawstack calibrate`, on archives whose costs are known: verdicts, formats, thresholds, refusals.

pub(crate) mod builds;

use std::fs;
use std::path::Path;

use builds::Build;
use rawstack_format::record::{Drop, DropReason, Module, Record, Run, Sample};
use tempfile::TempDir;

use super::archive::Archive;
use super::page::run_script;
use super::run::{Ran, check_golden, rawstack, succeed};

fn pair(base: Archive, new: Archive) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    base.write(folder.path(), "base.rawstack");
    new.write(folder.path(), "new.rawstack");
    folder
}

fn diff(folder: &Path, more: &[&str]) -> Ran {
    rawstack(
        folder,
        &[&["diff", "-q", "base.rawstack", "new.rawstack"], more].concat(),
    )
}

fn json(folder: &Path, more: &[&str]) -> (i32, serde_json::Value) {
    let ran = diff(folder, &[&["--format", "json"], more].concat());
    let value = serde_json::from_str(&ran.out)
        .unwrap_or_else(|error| panic!("{error}: {} {}", ran.out, ran.err));
    (ran.code, value)
}

fn row<'v>(value: &'v serde_json::Value, name: &str) -> &'v serde_json::Value {
    let rows = value["rows"].as_array().unwrap();
    rows.iter()
        .find(|row| row["name"] == name)
        .unwrap_or_else(|| panic!("no row {name}: {value}"))
}

/// A pair in which one function is heavier, one lighter, one came, and one has another suffix.
fn changed() -> TempDir {
    let new = Build::new(2)
        .with("parse", 390)
        .with("log", 20)
        .without("compress.constprop.0")
        .with("compress.isra.1", 100);
    pair(Build::new(1).archive(), new.with("fresh", 40).archive())
}

/// Check each format against its golden file, and that the same archives give the same bytes.
#[test]
fn formats() {
    let folder = changed();
    for format in ["text", "markdown", "json", "junit", "sarif"] {
        let ran = diff(folder.path(), &["--format", format]);
        assert_eq!(ran.code, 1, "{format}: {}", ran.err);
        assert_eq!(ran.out, diff(folder.path(), &["--format", format]).out);
        check_golden(&format!("diff/changed.{format}"), &ran.out);
    }
    let explained = [
        "diff",
        "explain",
        "parse",
        "base.rawstack",
        "new.rawstack",
        "-q",
    ];
    check_golden("diff/explained.txt", &succeed(folder.path(), &explained));
}

/// Check that what changed is told and nothing else: a function under another suffix is the same, and costs are per work.
#[test]
fn known_changes() {
    let folder = changed();
    let (code, found) = json(folder.path(), &[]);
    assert_eq!((code, &found["verdict"]), (1, &"regression".into()));
    let verdicts: Vec<(&str, &str)> = found["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            (
                row["name"].as_str().unwrap(),
                row["verdict"].as_str().unwrap(),
            )
        })
        .collect();
    for (name, verdict) in [
        ("parse", "regression"),
        ("fresh", "regression"),
        ("log", "improvement"),
        ("compress", "same"),
        ("hash", "same"),
    ] {
        assert!(verdicts.contains(&(name, verdict)), "{name}: {verdicts:?}");
    }
    let parse = row(&found, "parse");
    // 300 samples of 1 ms in each run, 1000 units of work.
    assert!(
        (parse["base"].as_f64().unwrap() / 300_000.0 - 1.0).abs() < 0.05,
        "{parse}"
    );
    assert!(
        (parse["change"].as_f64().unwrap() - 0.3).abs() < 0.06,
        "{parse}"
    );
    assert!(row(&found, "fresh")["change"].is_null());
    assert_eq!(found["unjudged"]["functions"], 1);
}

/// Check that two recordings of one build pass, and that several archives joined by commas are one side.
#[test]
fn same_build() {
    let folder = pair(Build::new(1).archive(), Build::new(2).archive());
    let (code, found) = json(folder.path(), &[]);
    assert_eq!((code, &found["verdict"]), (0, &"pass".into()), "{found}");
    let parts = ["base.rawstack,new.rawstack", "new.rawstack,base.rawstack"];
    let joined = rawstack(
        folder.path(),
        &["diff", "-q", parts[0], parts[1], "--format", "json"],
    );
    let joined: serde_json::Value = serde_json::from_str(&joined.out).unwrap();
    assert_eq!(
        (&joined["base"]["runs"], &joined["verdict"]),
        (&10.into(), &"pass".into())
    );
}

/// Check that runs of twice the work are not slower, and that without a declared work runs of twice the length are not.
#[test]
fn longer_runs() {
    let mut longer = Build::new(2);
    longer
        .functions
        .iter_mut()
        .for_each(|(_, samples)| *samples *= 2);
    longer.work = 2000.0;
    let folder = pair(Build::new(1).archive(), longer.archive());
    assert_eq!(json(folder.path(), &[]).1["verdict"], "pass");
    assert_eq!(
        json(folder.path(), &["--cost", "run"]).1["verdict"],
        "regression"
    );
    let (_, by_ratio) = json(folder.path(), &["--cost", "ratio"]);
    assert_eq!(
        (&by_ratio["verdict"], &by_ratio["total_judged"]),
        (&"pass".into(), &false.into())
    );
    assert!(
        (by_ratio["scale"].as_f64().unwrap() - 2.0).abs() < 0.1,
        "{by_ratio}"
    );
}

/// Check that what keeps two sides from being compared makes the outcome inconclusive, with its reason.
#[test]
fn inconclusive() {
    let slower = || Build::new(2).with("parse", 600);
    let check = |new: Archive, more: &[&str], said: &str| {
        let folder = pair(Build::new(1).archive(), new);
        let (code, found) = json(folder.path(), more);
        assert_eq!(
            (code, &found["verdict"]),
            (3, &"inconclusive".into()),
            "{said}: {found}"
        );
        let reasons = found["reasons"].to_string();
        assert!(reasons.contains(said), "{said}: {reasons}");
    };
    let mut kernel = slower().archive();
    kernel
        .recording()
        .host
        .retain(|(name, _)| name != "kernel_release");
    kernel
        .recording()
        .host
        .push(("kernel_release".to_owned(), "6.19.0".to_owned()));
    check(
        kernel,
        &[],
        "the kernel differs: 6.18.0 in BASE, 6.19.0 in NEW",
    );
    let mut frequency = slower().archive();
    frequency.recording().events[0].period = 2_000_000;
    check(frequency, &[], "the frequency differs");
    let mut lossy = slower().archive();
    lossy.lose(Drop {
        reason: DropReason::BufferFull,
        count: 200,
        ..Drop::default()
    });
    check(lossy, &[], "of the samples of NEW were lost");
    check(
        Build {
            runs: 2,
            ..slower()
        }
        .archive(),
        &[],
        "NEW has 2 runs, and 3 are needed",
    );
    let mut nameless = slower().archive();
    let unknown = nameless.module(Module {
        path: "/opt/gone".to_owned(),
        ..Module::default()
    });
    let stack = nameless.user_stack(unknown, &[0x10]);
    (0..200).for_each(|_| nameless.user_sample(stack));
    check(nameless, &[], "of NEW: give both sides' debug files");
    check(
        Build::new(3).archive(),
        &["--detect", "0.5"],
        "and 0.5 % was asked for",
    );
}

/// Check that one run a side never fails a build by itself, whatever it shows, and does with the noise that was measured.
#[test]
fn single_runs() {
    let one = |build: Build| Build { runs: 1, ..build };
    let folder = pair(
        one(Build::new(1)).archive(),
        one(Build::new(2).with("parse", 600)).archive(),
    );
    let (code, found) = json(folder.path(), &[]);
    assert_eq!(
        (code, &found["verdict"], &found["within_run"]),
        (3, &"inconclusive".into(), &true.into())
    );
    assert!(
        found["reasons"]
            .to_string()
            .contains("within this run only"),
        "{found}"
    );
    assert_eq!(row(&found, "parse")["verdict"], "regression");
    assert_eq!(diff(folder.path(), &["--fail-on", "regression"]).code, 0);

    Build {
        runs: 12,
        ..Build::new(5)
    }
    .archive()
    .write(folder.path(), "same.rawstack");
    succeed(
        folder.path(),
        &["calibrate", "-q", "same.rawstack", "-o", "noise.json"],
    );
    let noise = fs::read_to_string(folder.path().join("noise.json")).unwrap();
    assert!(
        noise.contains("\"rawstack.noise.v1\"") && noise.contains("\"runs\": 12"),
        "{noise}"
    );
    let (code, found) = json(folder.path(), &["--noise", "noise.json"]);
    assert_eq!(
        (code, &found["verdict"]),
        (1, &"regression".into()),
        "{found}"
    );
    one(Build::new(7))
        .archive()
        .write(folder.path(), "new.rawstack");
    let (code, found) = json(folder.path(), &["--noise", "noise.json"]);
    assert_eq!((code, &found["verdict"]), (0, &"pass".into()), "{found}");
}

/// Check the file of thresholds: margins of patterns, what is allowed, until when, and that an option goes before it.
#[test]
fn thresholds() {
    let folder = pair(
        Build::new(1).archive(),
        Build::new(2).with("parse", 390).archive(),
    );
    let config = |text: &str| fs::write(folder.path().join("rawstack-diff.toml"), text).unwrap();
    let allow = |until: &str| {
        format!("[[allow]]\npattern = '^parse$|total'\nreason = 'checks more'\nuntil = {until}\n")
    };
    // The recording is of 2025-11-24.
    config(&allow("2025-11-24"));
    let (code, found) = json(folder.path(), &[]);
    assert_eq!(
        (code, row(&found, "parse")["verdict"].as_str()),
        (0, Some("allowed")),
        "{found}"
    );
    assert_eq!(row(&found, "parse")["why"], "checks more");
    config(&allow("2025-11-23"));
    let (code, found) = json(folder.path(), &[]);
    assert_eq!(code, 1);
    assert!(
        found["notes"]
            .to_string()
            .contains("parse is no longer allowed: checks more"),
        "{found}"
    );
    config("[limits]\nmargin = 50\n");
    assert_eq!(diff(folder.path(), &[]).code, 0);
    assert_eq!(diff(folder.path(), &["--margin", "2"]).code, 1);
    config("[[function]]\npattern = 'parse'\nmargin = 50\n");
    assert_eq!(row(&json(folder.path(), &[]).1, "parse")["verdict"], "same");
    config("[limits]\nmargn = 5\n");
    let ran = diff(folder.path(), &[]);
    assert_eq!((ran.code, ran.err.lines().count()), (2, 1));
    assert!(
        ran.err.contains("rawstack-diff.toml") && ran.err.contains("margn"),
        "{}",
        ran.err
    );
}

/// Check that a function under a new name is told as such, moved and not failed, and the same when that is accepted.
#[test]
fn renamed() {
    let base = Build::new(1);
    let folder = pair(
        base.archive(),
        base.clone().without("sort").with("order", 121).archive(),
    );
    let (code, found) = json(folder.path(), &[]);
    assert_eq!(code, 0, "{found}");
    assert_eq!(
        (&found["renamed"][0]["from"], &found["renamed"][0]["to"]),
        (&"sort".into(), &"order".into())
    );
    assert_eq!(row(&found, "order")["verdict"], "moved");
    let (_, accepted) = json(folder.path(), &["--accept-renames"]);
    assert_eq!(row(&accepted, "order")["verdict"], "same");
}

/// Check that a comment for a pull request stays within what hosts take, with what matters at its start.
#[test]
fn long_comment() {
    let many = |salt: u32, samples: u32| {
        let name = |number: u32| {
            format!(
                "a_function_with_quite_a_long_name::{}::{number}",
                "x".repeat(100)
            )
        };
        let functions = (0..600)
            .map(|number| (name(number), if number == 0 { samples } else { 12 }))
            .collect();
        Build {
            functions,
            ..Build::new(salt)
        }
    };
    let folder = pair(many(1, 100).archive(), many(2, 400).archive());
    let ran = diff(folder.path(), &["--format", "markdown"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(
        ran.out.chars().count() < 65_536,
        "{}",
        ran.out.chars().count()
    );
    assert!(
        ran.out.contains("The rest is left out")
            && ran
                .out
                .lines()
                .take(8)
                .any(|line| line.contains("**slower**"))
    );
    let opened = ran.out.matches("<details>").count();
    assert_eq!(opened, ran.out.matches("</details>").count());
}

/// Check that what cannot be compared at all ends with 2 and one line: other events, no file, standard input, no function.
#[test]
fn refused() {
    let mut other = Build::new(2).archive();
    other.recording().events[0].name = "cycles".to_owned();
    let folder = pair(Build::new(1).archive(), other);
    fs::write(folder.path().join("bad.json"), "{}").unwrap();
    for (args, said) in [
        (
            &["base.rawstack", "new.rawstack"][..],
            "BASE has cpu-clock, NEW has cycles",
        ),
        (&["base.rawstack", "gone.rawstack"], "gone.rawstack"),
        (&["base.rawstack", "-"], "standard input"),
        (
            &["base.rawstack", "base.rawstack", "--noise", "bad.json"],
            "bad.json",
        ),
        (
            &["base.rawstack", "base.rawstack", "--q", "2"],
            "`--q` is 2",
        ),
        (
            &["base.rawstack", "base.rawstack", "--config", "none.toml"],
            "none.toml",
        ),
        (
            &["explain", "nothing", "base.rawstack", "base.rawstack"],
            "`nothing`",
        ),
    ] {
        let ran = rawstack(folder.path(), &[&["diff"], args].concat());
        assert_eq!(
            (ran.code, ran.err.lines().count()),
            (2, 1),
            "{args:?}: {}",
            ran.err
        );
        assert!(ran.err.contains(said), "{args:?}: {}", ran.err);
    }
}

/// Check that an archive which says of each sample that it is of another run, or declares more runs than its functions can be
/// told for, is refused by name, and takes neither the memory nor the time that it asks for.
#[test]
fn endless_runs() {
    let mut one_each = Build::new(1).archive();
    for run in 0..20_000 {
        one_each.sample(Sample {
            pid: 1,
            tid: 1,
            run,
            ..Sample::default()
        });
    }
    let functions = (0..600).map(|number| (format!("f{number}"), 2)).collect();
    let mut declared = Build {
        functions,
        ..Build::new(2)
    }
    .archive();
    let runs = (0..40_000).map(|run| Run {
        run,
        start_ns: 1,
        end_ns: 2,
        work: 1.0,
        exit: 0,
    });
    declared.record(Record::Runs(runs.collect()));
    for (archive, said) in [
        (one_each, "the runs, or parts of them, beyond 16384"),
        (declared, "functions in 40005 runs are too many"),
    ] {
        let folder = pair(archive, Build::new(3).archive());
        let ran = diff(folder.path(), &[]);
        assert_eq!((ran.code, ran.err.lines().count()), (2, 1), "{}", ran.err);
        assert!(
            ran.err.contains(said) && ran.err.contains("--run"),
            "{}",
            ran.err
        );
        let some = diff(folder.path(), &["--run", "0-4"]);
        assert!(some.code != 2, "{}", some.err);
    }
}

/// Run a check of tests/page/compare.py on the archives of `folder`.
fn browse(folder: &Path, check: &str) {
    run_script("compare.py", folder, check);
}

/// Check that every box of the page has the costs that JSON states, in each view, what is gone and new included; and that
/// table, search, zoom and keys work, in a real browser.
#[test]
fn page_in_chromium() {
    let base = Build::new(1).with("vanished", 50);
    let new = Build::new(2).with("parse", 390).with("fresh", 40);
    let folder = pair(base.archive(), new.archive());
    browse(folder.path(), "numbers");
    browse(folder.path(), "working");
    let page = |name: &str| {
        assert_eq!(
            diff(folder.path(), &["--format", "html", "-o", name]).code,
            1
        );
        fs::read_to_string(folder.path().join(name)).unwrap()
    };
    let text = page("a.html");
    assert_eq!(text, page("b.html"));
    assert!(text.contains("default-src 'none'"));
}

/// Check that names which are markup or script stay text in the page, in a comment, and in XML.
#[test]
fn hostile_names() {
    let script = "</script><script>window.owned = 3</script>";
    let build = |salt: u32, samples: u32| Build::new(salt).with(script, samples);
    let folder = pair(build(1, 100).archive(), build(2, 200).archive());
    browse(folder.path(), "hostile");
    for format in ["markdown", "junit"] {
        let ran = diff(folder.path(), &["--format", format]);
        assert_eq!(ran.code, 1);
        assert!(
            ran.out.contains("window") && !ran.out.contains("<script"),
            "{format}: {}",
            ran.out
        );
    }
}
