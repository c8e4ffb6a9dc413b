//! Recordings of two commands, as two hosts would make them, merged into one archive.

use std::path::Path;

use rawstack_test_support::Run;
use rawstack_test_support::json::{self, Report, rawstack_on, samples};
use rawstack_test_support::programs::{rawstack, workload};

use crate::recording::{Lab, text};

/// `report --json` of several archives at once.
fn report(archives: &[&Path], options: &[&str]) -> Report {
    let run = Run::new(rawstack()).args(["report", "--json"]);
    let run = archives.iter().fold(run, |run, archive| run.arg(archive));
    json::parse(&run.args(options).success().stdout)
}

/// Check that the merged archive of two recordings is whole, has the samples of both one after the other, gives the
/// report of both together by function, module, thread and process, and tells of each part what its archive told.
#[test]
fn two_recordings() {
    let lab = Lab::new();
    let record = |name: &str, options: &[&str], program: &str, arguments: &[&str]| {
        let program = workload(program);
        let recorder = lab.recorder(name, options).arg("--").arg(text(&program));
        recorder.args(arguments).success();
        lab.path(name)
    };
    let one = record("one.rawstack", &["-F", "997"], "mixed-clang", &["1"]);
    let two = record(
        "two.rawstack",
        &["-F", "499", "--label", "host=b"],
        "threads",
        &["2", "1"],
    );
    let merged = lab.path("both.rawstack");
    Run::new(rawstack())
        .arg("merge")
        .args([&one, &two])
        .arg("-o")
        .arg(&merged)
        .success();

    rawstack_on("verify", &merged).success();
    let dump = |archive: &Path| rawstack_on("dump", archive).success().stdout;
    assert_eq!(dump(&merged), dump(&one) + &dump(&two));
    let counts = [&one, &two].map(|archive| samples(archive).len());
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
    for by in ["function", "module", "thread", "process"] {
        let options = ["--by", by];
        let (whole, parts) = (
            report(&[&merged], &options),
            report(&[&one, &two], &options),
        );
        assert!(whole.rows.len() > 1, "{by}: {} rows", whole.rows.len());
        assert_eq!(whole, parts, "{by}");
    }
    let (told, parts) = (json::info(&merged), [json::info(&one), json::info(&two)]);
    let sum: u64 = parts.iter().map(|part| part.ids.reserved).sum();
    assert_eq!(told.ids.reserved, sum);
    let info = rawstack_on("info", &merged).success().stdout;
    for archive in [&one, &two] {
        let alone = rawstack_on("info", archive).success().stdout;
        // Below the heading, which has the archive's own path and length.
        let (_, alone) = alone.split_once('\n').unwrap();
        assert!(info.contains(alone), "{info}\nhas no\n{alone}");
    }
}
