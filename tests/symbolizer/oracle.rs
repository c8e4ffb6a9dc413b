//! Names, files, lines, columns and inlined functions beside those of llvm-symbolizer 19, for every byte of code.
//!
//! Where both differ there is a reason, and gdb, or the rule in question, agrees with us. The reasons are listed in
//! [`Reason`] and each fixture may differ for these only, so that a new difference fails.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use rawstack_symbolizer::debug_file::elf::ElfFile;
use serde_json::Value;

use super::fixtures::{FIXTURES, tool};
use super::run::with_input;

/// Why a frame may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    /// Line 0 means that the compiler knows no place; llvm-symbolizer still shows that row's column. gdb shows none.
    ColumnOfLineZero,
    /// Without debug information llvm-symbolizer takes the file from the STT_FILE symbol before. gdb shows none.
    FileOfSymbol,
    /// llvm-symbolizer takes the outermost name from the symbol table, with the suffix of the part or copy
    /// (`.cold`, `.constprop.0`, `.139`). gdb shows the function's own name.
    SuffixOfPart,
    /// Several symbols are at this address (aliases, constructors D1 and D2, functions that the linker folded), and
    /// both names are among them.
    Alias,
    /// The compiler states no linkage name; ours is the name of the source, which the symbol's mangled name contains.
    SourceName,
    /// The compiler states no name of an inlined lambda but `operator()`; ours begins with the function that it stands in.
    ScopeOfLambda,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame {
    name: String,
    file: String,
    line: u64,
    column: u64,
}

fn frames(value: &Value, list: &str, [name, file, line, column]: [&str; 4]) -> Vec<Frame> {
    let text = |frame: &Value, key: &str| frame[key].as_str().unwrap_or_default().to_owned();
    let frame = |frame: &Value| Frame {
        name: text(frame, name),
        file: text(frame, file),
        line: frame[line].as_u64().unwrap_or(0),
        column: frame[column].as_u64().unwrap_or(0),
    };
    let frames: Vec<_> = value[list].as_array().unwrap().iter().map(frame).collect();
    if frames.is_empty() {
        vec![frame(&Value::Null)]
    } else {
        frames
    }
}

/// Addresses of `.text`, every `step`th.
fn addresses(file: &ElfFile, step: usize) -> Vec<u64> {
    let text = file.section(".text").unwrap();
    (text.svma..text.svma + text.size).step_by(step).collect()
}

fn ours(program: &Path, addresses: &[u64]) -> Vec<Vec<Frame>> {
    let input: String = addresses
        .iter()
        .map(|address| format!("{address:#x}\n"))
        .collect();
    let ran = with_input(
        Path::new("/"),
        &["symbolize", "--json", "--file", program.to_str().unwrap()],
        &input,
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    let row = |line: &str| {
        frames(
            &serde_json::from_str(line).unwrap(),
            "frames",
            ["linkage_name", "file", "line", "column"],
        )
    };
    ran.out.lines().map(row).collect()
}

fn theirs(program: &Path, addresses: &[u64]) -> Vec<Vec<Frame>> {
    let mut all = Vec::new();
    for part in addresses.chunks(4096) {
        let fixed = [
            "--inlines",
            "--output-style=JSON",
            "--no-demangle",
            "-e",
            program.to_str().unwrap(),
        ];
        let numbers = part.iter().map(|address| format!("{address:#x}"));
        let output = tool(
            "llvm-symbolizer-19",
            fixed.iter().map(ToString::to_string).chain(numbers),
        );
        let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        all.extend(rows.iter().map(|row| {
            frames(
                row,
                "Symbol",
                ["FunctionName", "FileName", "Line", "Column"],
            )
        }));
    }
    all
}

/// Names of all code symbols by address.
fn symbols(file: &ElfFile) -> HashMap<String, u64> {
    let mut all = HashMap::new();
    file.for_each_symbol(&mut |symbol| {
        all.insert(
            String::from_utf8_lossy(symbol.name).into_owned(),
            symbol.svma,
        );
    });
    all
}

/// Why these two may differ; `Err` where there is no reason.
fn reason(
    our: &Frame,
    their: &Frame,
    outermost: bool,
    symbols: &HashMap<String, u64>,
) -> Result<Vec<Reason>, ()> {
    let mut reasons = Vec::new();
    if our.name != their.name {
        let scope = our.name.strip_suffix(&their.name);
        let is_lambda = scope.is_some_and(|scope| scope.ends_with("::{lambda}::"));
        let reason = match is_lambda && !outermost {
            true => Some(Reason::ScopeOfLambda),
            false => name_reason(&our.name, &their.name, symbols).filter(|_| outermost),
        };
        reasons.push(reason.ok_or(())?);
    }
    if our.file != their.file {
        if !(our.file.is_empty() && our.line == 0 && their.line == 0) {
            return Err(());
        }
        reasons.push(Reason::FileOfSymbol);
    }
    if our.line != their.line {
        return Err(());
    }
    if our.column != their.column {
        if our.line != 0 || our.column != 0 {
            return Err(());
        }
        reasons.push(Reason::ColumnOfLineZero);
    }
    Ok(reasons)
}

fn name_reason(our: &str, their: &str, symbols: &HashMap<String, u64>) -> Option<Reason> {
    if their
        .strip_prefix(our)
        .is_some_and(|suffix| !our.is_empty() && suffix.starts_with('.'))
    {
        return Some(Reason::SuffixOfPart);
    }
    let place = |name: &str| symbols.get(name).copied();
    if place(our).is_some() && place(our) == place(their) {
        return Some(Reason::Alias);
    }
    let source = our.split('<').next().unwrap_or(our);
    let mangled = their.starts_with("_Z") && their.contains(&format!("{}{source}", source.len()));
    mangled.then_some(Reason::SourceName)
}

/// Compare every address of a program; gives how often each reason was met.
fn compare(program: &Path, step: usize) -> BTreeMap<Reason, usize> {
    let file = ElfFile::open(program).unwrap();
    let addresses = addresses(&file, step);
    let symbols = symbols(&file);
    let mut met = BTreeMap::new();
    let (ours, theirs) = (ours(program, &addresses), theirs(program, &addresses));
    assert_eq!(
        (ours.len(), theirs.len()),
        (addresses.len(), addresses.len())
    );
    for ((address, our), their) in addresses.iter().zip(&ours).zip(&theirs) {
        let told = || {
            format!(
                "{} at {address:#x}:\n  ours   {our:?}\n  theirs {their:?}",
                program.display()
            )
        };
        assert_eq!(our.len(), their.len(), "depth: {}", told());
        for (depth, (our_frame, their_frame)) in our.iter().zip(their).enumerate() {
            let reasons = reason(our_frame, their_frame, depth + 1 == our.len(), &symbols);
            let reasons = reasons.unwrap_or_else(|()| panic!("frame {depth} of {}", told()));
            reasons
                .into_iter()
                .for_each(|reason| *met.entry(reason).or_insert(0) += 1);
        }
    }
    met
}

/// Check each fixture against llvm-symbolizer 19 at every byte of its code, at every 7th of the large ones.
#[test]
fn every_address() {
    use Reason::{Alias, ColumnOfLineZero, FileOfSymbol, ScopeOfLambda, SourceName, SuffixOfPart};
    for fixture in FIXTURES {
        let large = fixture.compiler == "rustc" || fixture.options.contains(&"-static");
        let met = compare(&fixture.build(), if large { 7 } else { 1 });
        let allowed: &[Reason] = match fixture.compiler {
            "gcc" => &[FileOfSymbol, SuffixOfPart, Alias],
            "g++" => &[FileOfSymbol, SuffixOfPart, Alias, SourceName, ScopeOfLambda],
            "clang" | "clang++" => &[FileOfSymbol, ColumnOfLineZero, Alias],
            _ => &[FileOfSymbol, ColumnOfLineZero, Alias, SuffixOfPart],
        };
        let other: Vec<_> = met
            .iter()
            .filter(|(reason, _)| !allowed.contains(reason))
            .collect();
        assert!(other.is_empty(), "{}: {other:?}", fixture.name);
        // shapes.cpp sorts by a lambda that g++ inlines.
        assert_eq!(
            met.contains_key(&ScopeOfLambda),
            fixture.compiler == "g++",
            "{}: {met:?}",
            fixture.name
        );
    }
}

/// Check that gdb agrees on the function, and on the line wherever a statement begins, at every 5th byte of the small
/// programs.
///
/// gdb leaves out rows that begin no statement, line 0 among them, and answers with an earlier row then: four of five
/// addresses are not concerned.
#[test]
fn gdb_agrees() {
    for name in [
        "c-gcc-pie",
        "c-gcc-dwarf4-fixed",
        "c-clang-dwarf2",
        "c-clang-gaps",
    ] {
        let program = super::fixtures::build(name);
        let addresses = addresses(&ElfFile::open(&program).unwrap(), 5);
        let asked = addresses
            .iter()
            .map(|address| format!("info line *{address:#x}"));
        let commands: Vec<String> = asked
            .flat_map(|command| ["-ex".to_owned(), command])
            .collect();
        let fixed = ["-batch", "-nx", program.to_str().unwrap()].map(str::to_owned);
        let answers =
            String::from_utf8(tool("gdb", fixed.into_iter().chain(commands)).stdout).unwrap();
        let is_answer = |line: &&str| line.starts_with("Line ") || line.starts_with("No line ");
        let answers: Vec<&str> = answers.lines().filter(is_answer).collect();
        assert_eq!(answers.len(), addresses.len(), "{name}");
        let mut same = 0;
        for ((address, our), their) in addresses
            .iter()
            .zip(ours(&program, &addresses))
            .zip(answers)
        {
            // Line 12 of "work.c" starts at address 0x… <leaf+4> and ends at …
            let line: u64 = their
                .split_whitespace()
                .nth(1)
                .and_then(|word| word.parse().ok())
                .unwrap_or(0);
            same += usize::from(our[0].line == line);
            let outermost = our.last().unwrap();
            if line != 0 && !outermost.name.is_empty() {
                let symbol = their.split(['<', '>', '+']).nth(1).unwrap();
                assert_eq!(
                    outermost.name,
                    symbol.split('.').next().unwrap(),
                    "{name} at {address:#x}: {their}"
                );
            }
        }
        assert!(
            same * 5 >= addresses.len() * 4,
            "{name}: {same} of {} lines",
            addresses.len()
        );
    }
}

/// Check names against blazesym, a second resolver in Rust, at every 11th byte of one program of each language.
#[test]
fn blazesym_agrees() {
    use blazesym::symbolize::source::{Elf, Source};
    use blazesym::symbolize::{Input, Symbolizer};
    for name in ["c-gcc-pie", "cpp-clang", "rust"] {
        let program = super::fixtures::build(name);
        let file = ElfFile::open(&program).unwrap();
        let addresses = addresses(&file, 11);
        let symbolizer = Symbolizer::builder().enable_demangling(false).build();
        let source = Source::Elf(Elf::new(&program));
        let theirs = symbolizer
            .symbolize(&source, Input::VirtOffset(&addresses))
            .unwrap();
        let symbols = symbols(&file);
        for ((address, our), their) in addresses.iter().zip(ours(&program, &addresses)).zip(theirs)
        {
            let Some(symbol) = their.as_sym() else {
                continue;
            };
            let outermost = &our.last().unwrap().name;
            let same = *outermost == symbol.name
                || name_reason(outermost, &symbol.name, &symbols).is_some();
            assert!(same, "{name} at {address:#x}: {our:?} and {}", symbol.name);
        }
    }
}
