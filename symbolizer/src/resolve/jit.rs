//! Addresses in code that processes made → functions and places, out of their maps.

use foldhash::HashMap;

use super::dwarf::Place;
use super::module::{ModuleAnswer, ModuleAnswers, NamedFunction};
use crate::jit::{JitSymbolId, JitTable};
use crate::text::{StringId, clean_bytes};

/// The questions about code that processes made.
#[derive(Clone, Copy, Debug)]
pub struct JitQuery<'q> {
    /// What their maps say.
    pub table: &'q JitTable,
    /// Functions with addresses in them, sorted and without repetition; `lookup_offset` has been applied.
    pub wanted: &'q [(JitSymbolId, u64)],
}

/// An answer for each of `wanted`.
pub(super) fn resolve_jit(query: &JitQuery<'_>) -> ModuleAnswers {
    let mut found = ModuleAnswers::default();
    let mut files: HashMap<&[u8], u32> = HashMap::default();
    let mut last = None;
    for &(symbol, address) in query.wanted {
        if last != Some(symbol) {
            let name = match query.table.name(symbol) {
                [] => StringId::NONE,
                name => found.names.intern(name),
            };
            // Whatever looks like a linker's name is one: of a compiler that runs in the process.
            found.functions.push(NamedFunction {
                name,
                ..NamedFunction::default()
            });
            last = Some(symbol);
        }
        let mut answer = ModuleAnswer {
            function: u32::try_from(found.functions.len() - 1).ok().into(),
            ..ModuleAnswer::default()
        };
        if let Some((file, line)) = query.table.line(symbol, address) {
            let next = u32::try_from(found.files.len()).unwrap_or(u32::MAX);
            let number = *files.entry(file).or_insert(next);
            if number == next {
                found.files.push(clean_bytes(file));
            }
            answer.place = Place {
                file: Some(number),
                line,
                ..Place::default()
            };
        }
        found.answers.push(answer);
    }
    found
}
