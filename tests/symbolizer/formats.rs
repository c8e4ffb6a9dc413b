//! Consumers that others wrote read what is written.

use std::collections::BTreeMap;

use super::fixtures::GOLDEN_ID;
use super::golden::folder;
use super::run::succeed;

/// Check that inferno folds the perf-script text to the weights that the report has.
#[test]
fn perf_script_is_readable() {
    use inferno::collapse::Collapse;
    use inferno::collapse::perf::{Folder, Options};

    let text = succeed(
        folder(),
        &[
            "dump",
            "--format",
            "perf-script",
            "--symbol-dir",
            "debug",
            "golden.rawstack",
        ],
    );
    let mut folded = Vec::new();
    let mut options = Options::default();
    options.annotate_kernel = true;
    Folder::from(options)
        .collapse(text.as_bytes(), &mut folded)
        .unwrap();
    let folded = String::from_utf8(folded).unwrap();
    let mut samples = 0;
    let mut by_leaf = BTreeMap::new();
    for line in folded.lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let count: u64 = count.parse().unwrap();
        samples += count;
        *by_leaf
            .entry(stack.rsplit(';').next().unwrap().to_owned())
            .or_insert(0u64) += count;
    }
    let report = succeed(
        folder(),
        &[
            "report",
            "golden.rawstack",
            "--symbol-dir",
            "debug",
            "--json",
        ],
    );
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(samples, report["total"].as_u64().unwrap());
    let rows = report["rows"].as_array().unwrap();
    for name in ["innermost", "work", "do_idle"] {
        let own = rows.iter().find(|row| row["name"] == name).unwrap()["self"]
            .as_u64()
            .unwrap();
        let leaf = by_leaf
            .iter()
            .find(|(leaf, _)| leaf.trim_end_matches("_[k]").trim_end_matches("_[i]") == name);
        assert_eq!(
            leaf.map_or(0, |(_, weight)| *weight),
            own,
            "{name}: {by_leaf:?}"
        );
    }
}

/// Check that the keys that scripts rely on are there, in each JSON.
#[test]
fn json_keys() {
    let keys_of = |text: &str| -> Vec<String> {
        let value: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        value.as_object().unwrap().keys().cloned().collect()
    };
    let all = |args: &[&str], wanted: &str| {
        let keys = keys_of(&succeed(folder(), args));
        for key in wanted.split(' ') {
            assert!(keys.contains(&key.to_owned()), "{args:?}: {key} is missing");
        }
    };
    all(
        &["info", "--json", "golden.rawstack"],
        "format_version mode host options start_ns end_ns samples ids drops processes threads stacks modules bytes damage",
    );
    all(
        &["dump", "golden.rawstack"],
        "time_ns cpu pid tid comm event weight run id state frames",
    );
    all(
        &["report", "golden.rawstack", "--json"],
        "schema unit total by rows",
    );
    let numbers = [
        "symbolize",
        "--build-id",
        GOLDEN_ID,
        "--symbol-dir",
        "debug",
        "--json",
        "401016",
    ];
    all(&numbers, "build_id offset address frames module reason");
}

/// Check that the sum of all self times is the total, for every kind of row.
#[test]
fn self_times_sum_up() {
    for by in [
        "function", "line", "module", "thread", "process", "cgroup", "cpu", "event",
    ] {
        let text = succeed(
            folder(),
            &[
                "report",
                "golden.rawstack",
                "--symbol-dir",
                "debug",
                "--json",
                "--by",
                by,
            ],
        );
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        let rows = report["rows"].as_array().unwrap();
        let sum: u64 = rows.iter().map(|row| row["self"].as_u64().unwrap()).sum();
        assert_eq!(sum, report["total"].as_u64().unwrap(), "{by}");
        assert!(
            rows.iter()
                .all(|row| row["total"].as_u64() >= row["self"].as_u64()),
            "{by}"
        );
    }
}

/// Check that a tree agrees with the table: what stands at the top of the callers is the self times, the self times of
/// the callees sum up to them, and what a row has and its children do not is its own.
#[test]
fn trees_are_the_table() {
    let json = |options: &[&str]| -> serde_json::Value {
        let base = [
            "report",
            "golden.rawstack",
            "--symbol-dir",
            "debug",
            "--json",
        ];
        serde_json::from_str(&succeed(folder(), &[&base[..], options].concat())).unwrap()
    };
    let sums = |report: &serde_json::Value, depth: Option<u64>| {
        let mut sums = BTreeMap::new();
        for row in report["rows"].as_array().unwrap() {
            let own = row["self"].as_u64().unwrap();
            if own > 0 && depth.is_none_or(|depth| row["depth"] == depth) {
                *sums.entry(row["name"].to_string()).or_insert(0) += own;
            }
        }
        sums
    };
    let table = sums(&json(&[]), None);
    assert!(table.len() > 5);
    assert_eq!(sums(&json(&["--tree", "callers"]), Some(0)), table);
    let callees = json(&["--tree", "callees"]);
    assert_eq!(sums(&callees, None), table);
    let rows = callees["rows"].as_array().unwrap();
    for (index, row) in rows.iter().enumerate() {
        let depth = row["depth"].as_u64().unwrap();
        let below = rows[index + 1..].iter();
        let below = below.take_while(|row| row["depth"].as_u64().unwrap() > depth);
        let children: u64 = below
            .filter(|row| row["depth"] == depth + 1)
            .map(|row| row["total"].as_u64().unwrap())
            .sum();
        let own = row["self"].as_u64().unwrap();
        assert_eq!(row["total"].as_u64().unwrap(), own + children, "{row}");
    }
}
