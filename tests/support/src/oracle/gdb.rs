//! gdb as an oracle: the function blocks and the line at an address, through its own reader of DWARF.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::{Answer, Function};
use crate::json::parse;
use crate::programs::{require, temp_dir};
use crate::run::Run;

/// Asks gdb for each address and prints a line of JSON each: gdb's own commands have no form that names inlined functions
/// without a running process.
const SCRIPT: &str = r#"
import gdb, json, sys

def functions_at(address):
    block = gdb.block_for_pc(address)
    names = []
    while block is not None and not block.is_global and not block.is_static:
        if block.function is not None:
            names.append(block.function.print_name)
        block = block.superblock
    return names

def symbol_at(address):
    text = gdb.execute(f"info symbol {address}", to_string=True)
    return None if text.startswith("No symbol") else text.split(" in section ")[0].rsplit(" + ", 1)[0].strip()

for address in open(sys.argv[0]).read().split():
    address = int(address, 16)
    position = gdb.find_pc_line(address)
    names = functions_at(address) or [name for name in [symbol_at(address)] if name]
    file = position.symtab.filename if position.symtab else None
    print("ANSWER " + json.dumps({"names": names, "file": file, "line": position.line or None}))
"#;

/// One answer as the script prints it.
#[derive(Debug, Deserialize)]
struct Line {
    names: Vec<String>,
    file: Option<String>,
    line: Option<u64>,
}

/// Ask for each of `addresses`, as stated in `file`. Only the innermost function comes with file and line, and names are
/// demangled, without parameters where gdb has none.
pub fn symbolize(file: &Path, addresses: &[u64]) -> Vec<Answer> {
    require("gdb", "gdb");
    let dir = temp_dir();
    let (script, list) = (dir.path().join("ask.py"), dir.path().join("addresses"));
    let text: String = addresses
        .iter()
        .map(|address| format!("{address:#x}\n"))
        .collect();
    let script_text = SCRIPT.replace("sys.argv[0]", &format!("{:?}", list.display().to_string()));
    fs::write(&script, script_text)
        .and_then(|()| fs::write(&list, text))
        .unwrap_or_else(|err| panic!("gdb script: {err}"));
    let options = [
        "-batch",
        "-nx",
        "-iex",
        "set debuginfod enabled off",
        "-ex",
        "set print asm-demangle on",
    ];
    let run = Run::new("gdb")
        .args(options)
        .arg(file)
        .arg("-x")
        .arg(&script);
    let output = run.success().stdout;
    let answers: Vec<Answer> = output
        .lines()
        .filter_map(|line| line.strip_prefix("ANSWER "))
        .map(|line| answer(parse(line)))
        .collect();
    assert_eq!(
        answers.len(),
        addresses.len(),
        "gdb answered another number of times:\n{output}"
    );
    answers
}

fn answer(line: Line) -> Answer {
    let mut functions: Vec<Function> = line
        .names
        .into_iter()
        .map(|name| Function {
            name,
            ..Function::default()
        })
        .collect();
    if let Some(innermost) = functions.first_mut() {
        innermost.file = line.file;
        innermost.line = line.line;
    }
    Answer { functions }
}
