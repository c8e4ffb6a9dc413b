//! llvm-symbolizer 19 as an oracle: inlined functions with their lines, names as linked.

use std::path::Path;

use serde::Deserialize;

use super::{Answer, Function};
use crate::json::parse;
use crate::programs::require;
use crate::run::Run;

/// One answer as the tool prints it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Line {
    #[serde(default)]
    symbol: Vec<Symbol>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Symbol {
    function_name: String,
    file_name: String,
    line: u64,
}

/// Ask for each of `addresses`, as stated in `file`. Names are linkage names, not demangled.
pub fn symbolize(file: &Path, addresses: &[u64]) -> Vec<Answer> {
    require("llvm-symbolizer-19", "llvm-19");
    let input: String = addresses
        .iter()
        .map(|address| format!("{address:#x}\n"))
        .collect();
    let run = Run::new("llvm-symbolizer-19").args([
        "--output-style=JSON",
        "--inlines",
        "--no-demangle",
        "--obj",
    ]);
    let text = run
        .arg(file)
        .input(input)
        .env("DEBUGINFOD_URLS", "")
        .success()
        .stdout;
    let answers: Vec<Answer> = text.lines().map(|line| answer(parse(line))).collect();
    assert_eq!(
        answers.len(),
        addresses.len(),
        "llvm-symbolizer-19 answered another number of times"
    );
    answers
}

fn answer(line: Line) -> Answer {
    let known = |text: String| (!text.is_empty()).then_some(text);
    let function = |symbol: Symbol| Function {
        name: symbol.function_name,
        file: known(symbol.file_name),
        line: (symbol.line > 0).then_some(symbol.line),
    };
    Answer {
        functions: line.symbol.into_iter().map(function).collect(),
    }
}
