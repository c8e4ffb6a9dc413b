//! What was found for each module, and what is missing.

use std::io::Write;

use serde::Serialize;

use crate::error::Result;
use crate::symbolized::FoundFile;
use crate::symbolized::{ModuleSymbols, SymbolizedProfile};

#[derive(Serialize)]
struct JsonModule<'m> {
    path: &'m str,
    build_id: Option<&'m str>,
    frames: u64,
    named: u64,
    files: Vec<JsonFile<'m>>,
    damaged: bool,
    unresolved: Vec<JsonReason>,
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
    module
        .frames
        .saturating_sub(module.unresolved.iter().map(|(_, count)| count).sum())
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
            path: &module.path,
            build_id: module.build_id.as_deref(),
            frames: module.frames,
            named: named(module),
            files: files.collect(),
            damaged: module.damaged,
            unresolved: reasons.collect(),
        };
        serde_json::to_writer(&mut *out, &row)?;
        out.write_all(b"\n")?;
    }
    Ok(())
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
        for (reason, count) in &module.unresolved {
            writeln!(out, "  missing   {count}: {}", reason.explanation())?;
        }
    }
    Ok(())
}
