//! llvm-symbolizer 19 as an oracle: inlined functions with their lines.

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

/// Ask for each of `addresses`, as stated in `file`.
pub fn symbolize(file: &Path, addresses: &[u64]) -> Vec<Answer> {
    let (linked, demangled) = (
        ask(file, addresses, "--no-demangle"),
        ask(file, addresses, "--demangle"),
    );
    linked
        .into_iter()
        .zip(demangled)
        .map(|(linked, demangled)| answer(linked, demangled))
        .collect()
}

fn ask(file: &Path, addresses: &[u64], demangle: &str) -> Vec<Line> {
    require("llvm-symbolizer-19", "llvm-19");
    let input: String = addresses
        .iter()
        .map(|address| format!("{address:#x}\n"))
        .collect();
    let options = ["--output-style=JSON", "--inlines", demangle, "--obj"];
    let run = Run::new("llvm-symbolizer-19")
        .args(options)
        .arg(file)
        .env("DEBUGINFOD_URLS", "");
    let lines: Vec<Line> = run
        .input(input)
        .success()
        .stdout
        .lines()
        .map(parse)
        .collect();
    assert_eq!(
        lines.len(),
        addresses.len(),
        "llvm-symbolizer-19 answered another number of times"
    );
    lines
}

fn answer(linked: Line, demangled: Line) -> Answer {
    let function = |(linked, demangled): (Symbol, Symbol)| Function {
        name: demangled.function_name,
        linkage_name: Some(linked.function_name),
        file: (!linked.file_name.is_empty()).then_some(linked.file_name),
        line: (linked.line > 0).then_some(linked.line),
    };
    Answer {
        functions: linked
            .symbol
            .into_iter()
            .zip(demangled.symbol)
            .map(function)
            .collect(),
    }
}
