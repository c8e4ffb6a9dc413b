//! Single numbers with their names: text as addr2line users know it, and JSON lines.
//!
//! A program may ask for millions, so lines are put together in memory and what is the same for all is made once.

use std::io::Write;

use rawstack_format::record::Module;

use crate::resolve::{Answer, NamedFrame, Symbols};
use crate::text::{StringId, clean};

/// Version of the layout of a JSON line.
const SCHEMA: &str = "rawstack.symbolize.v1";

/// One number and what was found for it.
#[derive(Clone, Copy, Debug)]
pub struct NamedNumber<'n> {
    /// The number as given.
    pub number: u64,
    /// Offset in the file, where known.
    pub offset: Option<u64>,
    /// Address in the ELF, where known.
    pub address: Option<u64>,
    /// What was found.
    pub answer: &'n Answer,
}

/// Writes numbers of one module.
#[derive(Debug)]
pub struct NumberWriter<'s> {
    symbols: &'s Symbols,
    inlines: bool,
    layout: Layout,
}

/// How a number is written.
#[derive(Debug)]
enum Layout {
    Text,
    Addr2line,
    Json(JsonParts),
}

/// What each JSON line has in common with the others.
#[derive(Debug)]
struct JsonParts {
    head: Vec<u8>,
    tail: Vec<u8>,
    /// For each string, whether it stands in JSON as it is.
    plain: Vec<bool>,
}

impl<'s> NumberWriter<'s> {
    /// A writer of lines as addr2line users know them.
    pub fn text(symbols: &'s Symbols, inlines: bool) -> Self {
        Self {
            symbols,
            inlines,
            layout: Layout::Text,
        }
    }

    /// A writer of two lines a function, as `addr2line -f -i -C` prints them.
    pub fn addr2line(symbols: &'s Symbols, inlines: bool) -> Self {
        Self {
            layout: Layout::Addr2line,
            ..Self::text(symbols, inlines)
        }
    }

    /// A writer of one JSON object a line.
    pub fn json(symbols: &'s Symbols, inlines: bool, module: &Module) -> Self {
        let mut head = format!("{{\"schema\":\"{SCHEMA}\",\"build_id\":").into_bytes();
        let mut tail = b",\"module\":".to_vec();
        match &module.build_id {
            Some(build_id) => push_escaped(&build_id.to_string(), &mut head),
            None => head.extend_from_slice(b"null"),
        }
        push_escaped(&clean(&module.path), &mut tail);
        let strings = &symbols.strings;
        let ids = (0..strings.len()).filter_map(|id| u32::try_from(id).ok());
        let plain = ids.map(|id| is_plain(strings.get(StringId(id))));
        Self {
            symbols,
            inlines,
            layout: Layout::Json(JsonParts {
                head,
                tail,
                plain: plain.collect(),
            }),
        }
    }

    /// Append the line, or the lines, of one number to `out`.
    pub fn write(&self, named: &NamedNumber<'_>, out: &mut Vec<u8>) {
        match &self.layout {
            Layout::Json(parts) => self.write_json(parts, named, out),
            Layout::Text => self.write_text(named, out),
            Layout::Addr2line => self.write_addr2line(named, out),
        }
    }

    fn write_addr2line(&self, named: &NamedNumber<'_>, out: &mut Vec<u8>) {
        let strings = &self.symbols.strings;
        let mut frames = self.shown(named.answer).peekable();
        if frames.peek().is_none() {
            out.extend_from_slice(b"??\n??:0\n");
        }
        for frame in frames {
            let name = strings.get(frame.name);
            out.extend_from_slice(if name.is_empty() {
                b"??"
            } else {
                name.as_bytes()
            });
            out.push(b'\n');
            match frame.place.file.get() {
                Some(file) => out.extend_from_slice(strings.get(file).as_bytes()),
                None => out.extend_from_slice(b"??"),
            }
            out.push(b':');
            match frame.place.line {
                0 => out.push(b'?'),
                line => push_decimal(line, out),
            }
            out.push(b'\n');
        }
    }

    fn write_json(&self, parts: &JsonParts, named: &NamedNumber<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&parts.head);
        push_hex(b",\"offset\":", named.offset, out);
        push_hex(b",\"address\":", named.address, out);
        out.extend_from_slice(b",\"frames\":[");
        let mut first = true;
        for frame in self.shown(named.answer) {
            if !first {
                out.push(b',');
            }
            first = false;
            out.extend_from_slice(b"{\"name\":");
            self.push_string(parts, frame.name, out);
            out.extend_from_slice(b",\"linkage_name\":");
            self.push_string(parts, frame.linkage_name, out);
            out.extend_from_slice(b",\"file\":");
            match frame.place.file.get() {
                Some(file) => self.push_string(parts, file, out),
                None => out.extend_from_slice(b"null"),
            }
            push_number(b",\"line\":", frame.place.line, out);
            push_number(b",\"column\":", frame.place.column, out);
            out.extend_from_slice(if frame.inlined {
                b",\"inlined\":true}"
            } else {
                b",\"inlined\":false}"
            });
        }
        out.push(b']');
        out.extend_from_slice(&parts.tail);
        match named.answer.reason {
            Some(reason) => {
                out.extend_from_slice(b",\"reason\":\"");
                out.extend_from_slice(reason.name().as_bytes());
                out.push(b'"');
            }
            None => out.extend_from_slice(b",\"reason\":null"),
        }
        out.extend_from_slice(if named.answer.uncertain {
            b",\"uncertain\":true"
        } else {
            b",\"uncertain\":false"
        });
        push_hex(b",\"function_start\":", named.answer.unnamed_start(), out);
        out.extend_from_slice(b"}\n");
    }

    fn push_string(&self, parts: &JsonParts, id: StringId, out: &mut Vec<u8>) {
        let text = self.symbols.strings.get(id);
        let plain = parts.plain.get(id.0 as usize).copied().unwrap_or(false);
        if plain {
            out.push(b'"');
            out.extend_from_slice(text.as_bytes());
            out.push(b'"');
        } else {
            push_escaped(text, out);
        }
    }

    /// The number with its innermost frame on one line, and each frame around it on a line of its own.
    fn write_text(&self, named: &NamedNumber<'_>, out: &mut Vec<u8>) {
        let strings = &self.symbols.strings;
        // Writing to memory cannot fail.
        let _ = write!(out, "{:#018x}: ", named.number);
        let mut first = true;
        for frame in self.shown(named.answer) {
            if !first {
                out.extend_from_slice(b" (inlined by) ");
            }
            first = false;
            let name = strings.get(frame.name);
            out.extend_from_slice(if name.is_empty() {
                b"??"
            } else {
                name.as_bytes()
            });
            let file = frame.place.file.get();
            out.extend_from_slice(b" at ");
            out.extend_from_slice(file.map_or("??", |file| strings.get(file)).as_bytes());
            out.push(b':');
            push_decimal(frame.place.line, out);
            if frame.place.column != 0 {
                out.push(b':');
                push_decimal(frame.place.column, out);
            }
            if named.answer.uncertain {
                out.extend_from_slice(b" (uncertain)");
            }
            out.push(b'\n');
        }
        if first {
            let reason = named.answer.reason;
            let reason = reason.map_or("no-symbol", |reason| reason.name());
            let _ = match named.answer.unnamed_start() {
                Some(start) => {
                    writeln!(out, "?? at ??:0 ({reason}, in the function at {start:#x})")
                }
                None => writeln!(out, "?? at ??:0 ({reason})"),
            };
        }
    }

    /// All frames, or the outermost one, which stands for what is inlined into it.
    fn shown(&self, answer: &Answer) -> impl Iterator<Item = NamedFrame> + '_ {
        let inlines = self.inlines;
        self.symbols
            .frames(answer)
            .filter(move |frame| inlines || !frame.inlined)
    }
}

/// Whether JSON shows `text` as it is.
fn is_plain(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\')
}

fn push_escaped(text: &str, out: &mut Vec<u8>) {
    // Text can be written to memory as JSON whatever it is.
    let _ = serde_json::to_writer(out, text);
}

fn push_hex(key: &[u8], number: Option<u64>, out: &mut Vec<u8>) {
    out.extend_from_slice(key);
    match number {
        Some(number) => {
            let _ = write!(out, "\"{number:#x}\"");
        }
        None => out.extend_from_slice(b"null"),
    }
}

/// A number, null where it is 0.
fn push_number(key: &[u8], number: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(key);
    match number {
        0 => out.extend_from_slice(b"null"),
        number => push_decimal(number, out),
    }
}

fn push_decimal(number: u32, out: &mut Vec<u8>) {
    let start = out.len();
    let mut rest = number;
    loop {
        out.push(b'0' + u8::try_from(rest % 10).unwrap_or(0));
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if let Some(digits) = out.get_mut(start..) {
        digits.reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that lines put together by hand are what the JSON library makes of the same text and numbers.
    #[test]
    fn as_the_library() {
        for text in [
            "",
            "a::b<c>",
            "say \"x\"",
            "back\\slash",
            "\u{1b}[31m",
            "α\n",
        ] {
            let mut out = Vec::new();
            if is_plain(text) {
                out.extend_from_slice(format!("\"{text}\"").as_bytes());
            } else {
                push_escaped(text, &mut out);
            }
            assert_eq!(out, serde_json::to_vec(text).unwrap(), "{text}");
        }
        for number in [1, 9, 10, 4_294_967_295] {
            let mut out = Vec::new();
            push_decimal(number, &mut out);
            assert_eq!(out, number.to_string().into_bytes());
        }
    }
}
