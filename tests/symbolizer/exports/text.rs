//! Exports as text: folded stacks, JSON lines, CSV, perf script.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use inferno::collapse::Collapse;
use inferno::collapse::perf::{Folder, Options};
use inferno::flamegraph;

use super::consumers::{export, output, read_with, report};
use crate::golden::folder;
use crate::run::rawstack;

fn leaves(text: &str) -> BTreeMap<String, u64> {
    let mut by_leaf = BTreeMap::new();
    for line in text.lines() {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        let leaf = stack.rsplit(';').next().unwrap().trim_end_matches("_[k]");
        *by_leaf.entry(leaf.to_owned()).or_insert(0) += weight.parse::<u64>().unwrap();
    }
    by_leaf
}

/// Where Debian's package of Devel::NYTProf has FlameGraph's own program.
const FLAMEGRAPH: &str = "/usr/share/perl5/Devel/NYTProf/flamegraph.pl";

/// Weights of the boxes of a picture, sorted.
fn boxes(picture: &str) -> Vec<&str> {
    let titles = picture.split("<title>").skip(1);
    let mut weights: Vec<_> = titles
        .filter_map(|title| title.split_once(" ns, ")?.0.rsplit_once('('))
        .map(|(_, weight)| weight)
        .collect();
    weights.sort_unstable();
    weights
}

/// Check that folded stacks are sorted, that inferno takes them as sorted and draws what FlameGraph draws, and that their
/// leaves are the report's.
#[test]
fn folded() {
    let work = tempfile::tempdir().unwrap();
    let file = export(work.path(), "folded", "golden.folded", &[]);
    let text = fs::read_to_string(&file).unwrap();
    let stacks: Vec<_> = text
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap().0)
        .collect();
    assert!(stacks.is_sorted(), "{text}");
    let mut options = flamegraph::Options::default();
    options.no_sort = true;
    options.count_name = "ns".to_owned();
    let mut picture = Vec::new();
    flamegraph::from_lines(&mut options, text.lines(), &mut picture).unwrap();
    let picture = String::from_utf8(picture).unwrap();
    let report = report(&[]);
    assert!(picture.contains("all (20,000,000 ns, 100%)"), "{picture}");
    let options = [FLAMEGRAPH, "--countname", "ns", "--minwidth", "0"];
    let other = output(Command::new("perl").args(options).arg(&file));
    assert!(other.contains("all (20,000,000 ns, 100%)"), "{other}");
    assert_eq!(boxes(&picture), boxes(&other));
    assert!(boxes(&picture).len() > 20, "{picture}");
    let mut own = report.own;
    let semicolon: Vec<_> = own
        .keys()
        .filter(|name| name.contains(';'))
        .cloned()
        .collect();
    assert_eq!(semicolon.len(), 1);
    for name in semicolon {
        let weight = own.remove(&name).unwrap();
        own.insert(name.replace(';', ":"), weight);
    }
    assert_eq!(leaves(&text), own);
}

/// Stacks without the branches below `least`, worked out on the text: threads by thread, branches of all threads.
fn cut(text: &str, least: u64) -> BTreeMap<String, u64> {
    let stacks = || {
        text.lines().map(|line| {
            let (stack, weight) = line.rsplit_once(' ').unwrap();
            let (thread, stack) = stack.split_once(';').unwrap();
            (thread, stack, weight.parse::<u64>().unwrap())
        })
    };
    let weight_of = |branch: &str| -> u64 {
        let is_below = |stack: &str| {
            let rest = stack.strip_prefix(branch);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(';'))
        };
        let below = stacks().filter(|(_, stack, _)| is_below(stack));
        below.map(|(_, _, weight)| weight).sum()
    };
    let mut cut = BTreeMap::new();
    for (thread, stack, weight) in stacks() {
        let mut kept = stack;
        while let Some((callers, _)) = kept.rsplit_once(';')
            && weight_of(kept) < least
        {
            kept = callers;
        }
        *cut.entry(format!("{thread};{kept}")).or_insert(0) += weight;
    }
    cut
}

/// Check that `--min` gives small branches to their callers and changes no sum, in each format that adds up, and that
/// the others refuse it.
#[test]
fn small_branches() {
    let work = tempfile::tempdir().unwrap();
    let plain = export(work.path(), "folded", "all.folded", &["--no-inlines"]);
    let plain = fs::read_to_string(plain).unwrap();
    let options = ["--no-inlines", "--min", "11"];
    let file = export(work.path(), "folded", "cut.folded", &options);
    let text = fs::read_to_string(file).unwrap();
    let lines = text.lines().map(|line| line.rsplit_once(' ').unwrap());
    let found: BTreeMap<String, u64> = lines
        .map(|(stack, weight)| (stack.to_owned(), weight.parse().unwrap()))
        .collect();
    assert_eq!(found, cut(&plain, 2_200_000));
    assert!(found.len() < plain.lines().count(), "{text}");
    let own = leaves(&text);
    let file = export(work.path(), "speedscope", "cut.speedscope.json", &options);
    let totals = read_with("speedscope.py", &file);
    assert_eq!(by_text(totals.own), own);
    let file = export(work.path(), "otlp", "cut.otlp", &options);
    assert_eq!(by_text(read_with("otlp.py", &file).own), own);
    for format in [
        "firefox",
        "perfetto",
        "perf-script",
        "json",
        "csv",
        "parquet",
    ] {
        let args = [
            "export",
            "golden.rawstack",
            "--min",
            "1",
            "--format",
            format,
        ];
        let ran = rawstack(folder(), &[&args[..], &["-o", "/dev/null"]].concat());
        let expected = "rawstack: failed to export: --min is of formats that add samples up: folded, pprof, \
            speedscope, otlp\n";
        assert_eq!((ran.code, ran.err.as_str()), (2, expected), "{format}");
    }
}

/// Names as folded stacks have them.
fn by_text(own: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let own = own.into_iter();
    own.map(|(name, weight)| (name.replace(';', ":"), weight))
        .collect()
}

/// Check that inferno folds the perf-script export to the report's self times.
#[test]
fn perf_script() {
    let work = tempfile::tempdir().unwrap();
    let file = export(work.path(), "perf-script", "golden.txt", &[]);
    let mut folded = Vec::new();
    Folder::from(Options::default())
        .collapse(&*fs::read(file).unwrap(), &mut folded)
        .unwrap();
    let found = leaves(&String::from_utf8(folded).unwrap());
    let report = report(&[]);
    assert_eq!(found.values().sum::<u64>(), report.total);
    for name in ["innermost", "work", "vfs_read"] {
        assert_eq!(found.get(name), report.own.get(name), "{name}");
    }
}

/// Check that the weights of JSON lines and of CSV rows, by leaf, are the report's self times.
#[test]
fn samples_one_by_one() {
    let work = tempfile::tempdir().unwrap();
    let report = report(&[]);
    let file = export(work.path(), "json", "golden.json", &[]);
    let mut own = BTreeMap::new();
    for line in fs::read_to_string(file).unwrap().lines() {
        let sample: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(sample["schema"], "rawstack.samples.v1");
        let leaf = sample["frames"][0]["name"].as_str().unwrap();
        *own.entry(leaf.to_owned()).or_insert(0) += sample["weight"].as_u64().unwrap();
    }
    assert_eq!(own, report.own);
    let file = export(work.path(), "csv", "golden.csv", &[]);
    let mut rows = csv::Reader::from_path(file).unwrap();
    let headings = rows.headers().unwrap().clone();
    let at = |name: &str| headings.iter().position(|heading| heading == name).unwrap();
    let total: u64 = rows
        .records()
        .map(|row| row.unwrap()[at("weight")].parse::<u64>().unwrap())
        .sum();
    assert_eq!(total, report.total);
    assert!(at("stack") > 0);
}
