//! Functions, names and lines of all maps, each kept once, in bounded number.

use std::ops::Range;

use super::code::JitSymbolId;
use crate::text::{ByteTable, StringId};

/// Functions that are kept in all: more are passed over, and told.
const MAX_SYMBOLS: usize = 4 << 20;
/// Bytes of their names, each once.
const MAX_NAMES: usize = 256 << 20;
/// Lines that are kept in all.
const MAX_LINES: usize = 8 << 20;
/// V8 adds the length of an ELF header to the addresses of lines, since perf once lost as much when it made ELF files.
const ELF_HEADER: u64 = 0x40;

/// Address, file and line.
pub(super) type Told = (u64, StringId, u32);

/// A function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    pub(super) name: StringId,
    pub(super) start: u64,
    pub(super) process: u32,
    /// Its lines: from and up to where among all.
    pub(super) lines: (u32, u32),
}

/// A line of a function.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Distance from the function's start.
    pub(super) offset: u64,
    pub(super) file: StringId,
    pub(super) line: u32,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) symbols: Vec<Symbol>,
    pub(super) names: ByteTable,
    name_bytes: usize,
    pub(super) lines: Vec<Line>,
    pub(super) is_full: bool,
}

impl Store {
    pub(super) fn name(&mut self, name: &[u8]) -> StringId {
        if self.name_bytes >= MAX_NAMES {
            self.is_full = true;
            return StringId::NONE;
        }
        let before = self.names.len();
        let id = self.names.intern(name);
        if self.names.len() > before {
            self.name_bytes += name.len();
        }
        id
    }

    pub(super) fn symbol(&mut self, symbol: Symbol) -> Option<JitSymbolId> {
        if self.symbols.len() >= MAX_SYMBOLS {
            self.is_full = true;
            return None;
        }
        self.symbols.push(symbol);
        u32::try_from(self.symbols.len() - 1).ok().map(JitSymbolId)
    }

    /// Keep the lines of a function, in the order of their addresses.
    pub(super) fn add_lines(&mut self, place: &Range<u64>, lines: &mut Vec<Told>) -> (u32, u32) {
        let count = |store: &Self| u32::try_from(store.lines.len()).unwrap_or(u32::MAX);
        let first = count(self);
        let lowest = lines.iter().map(|&(address, _, _)| address).min();
        if lowest == place.start.checked_add(ELF_HEADER) {
            lines
                .iter_mut()
                .for_each(|(address, _, _)| *address -= ELF_HEADER);
        }
        lines.retain(|(address, _, _)| place.contains(address));
        lines.sort_by_key(|&(address, _, _)| address);
        for (address, file, line) in lines.drain(..) {
            let offset = address - place.start;
            if self.lines.len() >= MAX_LINES {
                self.is_full = true;
                break;
            }
            self.lines.push(Line { offset, file, line });
        }
        (first, count(self))
    }
}
