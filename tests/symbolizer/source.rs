//! Source lines of functions.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::golden::folder;
use super::run::{check_golden, rawstack, succeed};

/// Report source of the golden archive with a tree of sources in `work`.
fn args<'a>(wanted: &'a str, options: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec![
        "report",
        "-q",
        "golden.rawstack",
        "--symbol-dir",
        "debug",
        "--source",
        wanted,
    ];
    args.extend_from_slice(options);
    args
}

/// A source file with numbered lines, below `work`.
fn write_source(work: &Path, file: &str) -> String {
    let path = work.join("src").join(Path::new(file).file_name().unwrap());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let lines: Vec<String> = (1..=400)
        .map(|line| format!("\tline {line} \u{1b}[31m"))
        .collect();
    fs::write(&path, lines.join("\n")).unwrap();
    work.join("src").to_str().unwrap().to_owned()
}

fn json(wanted: &str, options: &[&str]) -> Value {
    serde_json::from_str(&succeed(
        folder(),
        &args(wanted, &[options, &["--json"]].concat()),
    ))
    .unwrap()
}

/// Check that missing source is told and does not keep the lines' numbers back, and the text for people.
#[test]
fn missing_source() {
    let text = succeed(folder(), &args("^work$|inlined", &[]));
    assert!(
        text.contains("not found here; name its folder with --source-dir"),
        "{text}"
    );
    check_golden("report/source-missing.txt", &text);
    let report = json(".", &[]);
    let functions = report["functions"].as_array().unwrap();
    assert!(functions.iter().all(|function| function["found"].is_null()));
    assert!(
        functions
            .iter()
            .any(|function| !function["lines"].as_array().unwrap().is_empty())
    );
}

/// Check that numbers of lines are those of `report --by line`, and those of functions those of `report`.
#[test]
fn same_numbers() {
    let report = json(".", &[]);
    let table = |by: &str| -> Value {
        let args = [
            "report",
            "-q",
            "golden.rawstack",
            "--symbol-dir",
            "debug",
            "--json",
            "--by",
            by,
        ];
        serde_json::from_str(&succeed(folder(), &args)).unwrap()
    };
    let (lines, functions) = (table("line"), table("function"));
    assert_eq!(report["total"], lines["total"]);
    let mut seen = 0;
    for function in report["functions"].as_array().unwrap() {
        let rows = functions["rows"].as_array().unwrap();
        let same =
            |row: &&Value| row["name"] == function["name"] && row["module"] == function["module"];
        assert_eq!(function["total"], rows.iter().find(same).unwrap()["total"]);
        for line in function["lines"].as_array().unwrap() {
            let rows = lines["rows"].as_array().unwrap().iter();
            let mut rows = rows.filter(|row| {
                same(row) && row["line"] == line["line"] && row["file"] == function["file"]
            });
            let row = rows.next().unwrap();
            assert_eq!(
                (&line["self"], &line["total"]),
                (&row["self"], &row["total"])
            );
            seen += 1;
        }
    }
    assert!(seen > 3);
}

/// Check that source is found by a mapping and by a folder, with the lines around those that took time, and that nothing
/// in it acts on the terminal.
#[test]
fn found_source() {
    let work = tempfile::tempdir().unwrap();
    let report = json(".", &[]);
    let mut functions = report["functions"].as_array().unwrap().iter();
    let function = functions
        .find(|function| !function["file"].is_null())
        .unwrap();
    let file = function["file"].as_str().unwrap();
    let line = function["lines"][0]["line"].as_u64().unwrap();
    let folder_here = write_source(work.path(), file);
    let from = Path::new(file).parent().unwrap().to_str().unwrap();
    let map = format!("{from}={folder_here}");
    let wanted = format!("^{}$", function["name"].as_str().unwrap());
    for options in [["--source-map", &map], ["--source-dir", &folder_here]] {
        let text = succeed(folder(), &args(&wanted, &options));
        assert!(
            text.contains(&format!("line {line} ")),
            "{options:?}: {text}"
        );
        assert!(
            text.contains(&format!("line {} ", line + 3)),
            "{options:?}: {text}"
        );
        assert!(!text.contains('\u{1b}') && !text.contains('\t'), "{text}");
        let json = json(&wanted, &options);
        let found = json["functions"][0]["found"].as_str().unwrap();
        assert!(found.starts_with(&folder_here), "{found}");
    }
}

/// Check what is refused, each in a line, and that nothing matching is told.
#[test]
fn refusals() {
    for (options, expected) in [
        (["--source", "("], "--source"),
        (["--source-map", "nothing"], "give FROM=TO"),
        (["--source-dir", "none"], "failed to open --source-dir none"),
    ] {
        let all = if options[0] == "--source" {
            ["report", "golden.rawstack", options[0], options[1]].to_vec()
        } else {
            args(".", &options)
        };
        let ran = rawstack(folder(), &all);
        assert_eq!(ran.code, 2, "{}", ran.err);
        assert!(ran.err.contains(expected), "{}", ran.err);
    }
    let ran = rawstack(
        folder(),
        &["report", "golden.rawstack", "--source", "no such function"],
    );
    assert_eq!(ran.code, 0);
    assert!(ran.err.contains("matches no function"), "{}", ran.err);
}
