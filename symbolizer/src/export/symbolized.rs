//! Single numbers with their names: text as addr2line users know it, and JSON lines.

use std::io::Write;

use rawstack_format::record::Module;
use serde::Serialize;

use crate::error::Result;
use crate::resolve::{Answer, NamedFrame, Symbols};
use crate::text::clean;

/// One number and what was found for it.
#[derive(Clone, Copy, Debug)]
pub struct NamedNumber<'n> {
    /// Its module.
    pub module: &'n Module,
    /// The number as given.
    pub number: u64,
    /// Offset in the file, where known.
    pub offset: Option<u64>,
    /// Address in the ELF, where known.
    pub address: Option<u64>,
    /// What was found.
    pub answer: &'n Answer,
    /// Names.
    pub symbols: &'n Symbols,
}

#[derive(Serialize)]
struct JsonNumber<'n> {
    build_id: Option<String>,
    offset: Option<String>,
    address: Option<String>,
    frames: Vec<JsonFrame<'n>>,
    module: &'n str,
    reason: Option<&'static str>,
    uncertain: bool,
}

#[derive(Serialize)]
struct JsonFrame<'n> {
    name: &'n str,
    linkage_name: &'n str,
    file: Option<&'n str>,
    line: Option<u32>,
    column: Option<u32>,
    inlined: bool,
}

/// Write one JSON object and a line end.
pub fn write_json(named: &NamedNumber<'_>, inlines: bool, out: &mut dyn Write) -> Result<()> {
    let strings = &named.symbols.strings;
    let hex = |number: u64| format!("{number:#x}");
    let frames = shown(named, inlines).map(|frame| JsonFrame {
        name: strings.get(frame.name),
        linkage_name: strings.get(frame.linkage_name),
        file: frame.place.file.get().map(|file| strings.get(file)),
        line: (frame.place.line != 0).then_some(frame.place.line),
        column: (frame.place.column != 0).then_some(frame.place.column),
        inlined: frame.inlined,
    });
    let path = clean(&named.module.path);
    let row = JsonNumber {
        build_id: named.module.build_id.as_ref().map(ToString::to_string),
        offset: named.offset.map(hex),
        address: named.address.map(hex),
        frames: frames.collect(),
        module: &path,
        reason: named.answer.reason.map(|reason| reason.name()),
        uncertain: named.answer.uncertain,
    };
    serde_json::to_writer(&mut *out, &row)?;
    out.write_all(b"\n")?;
    Ok(())
}

/// Write the number with its innermost frame on one line, and each frame around it on a line of its own.
pub fn write_text(named: &NamedNumber<'_>, inlines: bool, out: &mut dyn Write) -> Result<()> {
    let strings = &named.symbols.strings;
    write!(out, "{:#018x}: ", named.number)?;
    let mut first = true;
    for frame in shown(named, inlines) {
        if !first {
            out.write_all(b" (inlined by) ")?;
        }
        first = false;
        let file = frame
            .place
            .file
            .get()
            .map_or("??", |file| strings.get(file));
        let name = strings.get(frame.name);
        out.write_all(if name.is_empty() {
            b"??"
        } else {
            name.as_bytes()
        })?;
        write!(out, " at {file}:{}", frame.place.line)?;
        if frame.place.column != 0 {
            write!(out, ":{}", frame.place.column)?;
        }
        if named.answer.uncertain {
            out.write_all(b" (uncertain)")?;
        }
        out.write_all(b"\n")?;
    }
    if first {
        let reason = named
            .answer
            .reason
            .map_or("no-symbol", |reason| reason.name());
        writeln!(out, "?? at ??:0 ({reason})")?;
    }
    Ok(())
}

/// All frames, or the outermost one, which stands for what is inlined into it.
fn shown<'n>(named: &NamedNumber<'n>, inlines: bool) -> impl Iterator<Item = NamedFrame> + use<'n> {
    named
        .symbols
        .frames(named.answer)
        .filter(move |frame| inlines || !frame.inlined)
}
