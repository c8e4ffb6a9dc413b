//! What was found for each module, and what is missing.

use std::io::Write;

use serde::Serialize;

use super::install::advice;
use crate::error::Result;
use crate::resolve::MissingPieces;
use crate::symbolized::FoundFile;
use crate::symbolized::{ModuleSymbols, Outcome, SymbolizedProfile, Tried};
use crate::text::clean;

/// Version of the layout of a JSON line.
const SCHEMA: &str = "rawstack.symbols.v1";

#[derive(Serialize)]
struct JsonModule<'m> {
    schema: &'static str,
    path: &'m str,
    build_id: Option<&'m str>,
    frames: u64,
    named: u64,
    files: Vec<JsonFile<'m>>,
    damaged: bool,
    unresolved: Vec<JsonReason>,
    missing_split: &'m [String],
    missing_alternate: Option<&'m str>,
    tried: Vec<JsonTried>,
    install: Option<String>,
}

#[derive(Serialize)]
struct JsonTried {
    found_by: &'static str,
    place: String,
    outcome: &'static str,
}

#[derive(Serialize)]
struct JsonFile<'m> {
    found_by: &'static str,
    path: &'m str,
    dwarf: bool,
    symtab: bool,
}

#[derive(Serialize)]
struct JsonReason {
    reason: &'static str,
    count: u64,
}

/// Modules with frames, the one with the most first.
fn sorted(profile: &SymbolizedProfile) -> Vec<&ModuleSymbols> {
    let mut modules: Vec<_> = profile
        .modules
        .iter()
        .filter(|module| module.frames > 0)
        .collect();
    modules.sort_by(|a, b| {
        b.frames
            .cmp(&a.frames)
            .then_with(|| (&a.path, &a.build_id).cmp(&(&b.path, &b.build_id)))
    });
    modules
}

fn named(module: &ModuleSymbols) -> u64 {
    module.frames.saturating_sub(module.nameless())
}

/// Write one JSON object a module.
pub fn write_json(profile: &SymbolizedProfile, out: &mut dyn Write) -> Result<()> {
    for module in sorted(profile) {
        let file = |file: &FoundFile| -> (&'static str, bool, bool) {
            (file.rule, file.dwarf, file.symtab)
        };
        let files = module.files.iter().map(|found| {
            let (found_by, dwarf, symtab) = file(found);
            JsonFile {
                found_by,
                path: &found.path,
                dwarf,
                symtab,
            }
        });
        let reasons = module.unresolved.iter().map(|&(reason, count)| JsonReason {
            reason: reason.name(),
            count,
        });
        let row = JsonModule {
            schema: SCHEMA,
            path: &module.path,
            build_id: module.build_id.as_deref(),
            frames: module.frames,
            named: named(module),
            files: files.collect(),
            damaged: module.damaged,
            unresolved: reasons.collect(),
            missing_split: &module.missing.split,
            missing_alternate: module.missing.alternate.as_deref(),
            tried: module.tried.iter().map(json_tried).collect(),
            install: advice(module),
        };
        serde_json::to_writer(&mut *out, &row)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

fn json_tried(tried: &Tried) -> JsonTried {
    JsonTried {
        found_by: tried.rule.name(),
        place: clean(&tried.place).into_owned(),
        outcome: tried.outcome.name(),
    }
}

/// Write for people.
pub fn write_text(profile: &SymbolizedProfile, out: &mut dyn Write) -> Result<()> {
    for module in sorted(profile) {
        let build_id = module.build_id.as_deref().unwrap_or("none");
        writeln!(out, "{}", module.path)?;
        writeln!(out, "  build ID  {build_id}")?;
        writeln!(
            out,
            "  addresses {} of {} have names",
            named(module),
            module.frames
        )?;
        for file in &module.files {
            let holds = match (file.dwarf, file.symtab) {
                (true, true) => "debug information and symbols",
                (true, false) => "debug information",
                (false, true) => "symbols",
                (false, false) => "exported symbols",
            };
            writeln!(out, "  found     {} ({}): {holds}", file.path, file.rule)?;
        }
        if module.damaged {
            writeln!(
                out,
                "  damaged   debug information is damaged or too large; symbols stand in"
            )?;
        }
        for line in missing_pieces(&module.missing) {
            writeln!(out, "  missing   {line}")?;
        }
        for (reason, count) in &module.unresolved {
            writeln!(out, "  missing   {count}: {}", reason.explanation())?;
        }
        let advice = advice(module);
        if advice.is_some() {
            write_tried(module, out)?;
        }
        if let Some(advice) = advice {
            writeln!(out, "  install   {advice}")?;
        }
    }
    Ok(())
}

/// Places that were looked at in vain.
fn write_tried(module: &ModuleSymbols, out: &mut dyn Write) -> Result<()> {
    let failed = |tried: &&Tried| tried.outcome != Outcome::Found;
    for tried in module.tried.iter().filter(failed) {
        let place = clean(&tried.place);
        let (rule, outcome) = (tried.rule.name(), tried.outcome.explanation());
        writeln!(out, "  tried     {place} ({rule}): {outcome}")?;
    }
    Ok(())
}

/// A line for each kind of piece that is not there.
pub fn missing_pieces(missing: &MissingPieces) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(first) = missing.split.first() {
        let more = match missing.split.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        lines.push(format!(
            "split debug information {first}{more}: symbols stand in; put it or the .dwp beside the file, or name its \
             folder with --symbol-dir"
        ));
    }
    if let Some(name) = &missing.alternate {
        let name = clean(name);
        lines.push(format!(
            "shared debug information {name} (dwz): names that stand in it alone are not known; name its folder with \
             --symbol-dir"
        ));
    }
    lines
}
