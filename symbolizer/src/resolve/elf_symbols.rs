//! Names from symbol tables: the innermost symbol that contains an address. Knows no DWARF.

use std::cmp::Reverse;
use std::ops::Range;

use super::file_offset::Svma;
use super::go::{GoFunction, GoTable};
use super::plt::{self, Stub, Target};
use crate::debug_file::elf::{ElfFile, RawSymbol};

/// Steps out of nested symbols: real ones nest two or three deep.
const MAX_NESTING: usize = 256;
/// Symbols that are kept at most.
const MAX_SYMBOLS: usize = 1 << 25;
/// Bytes of names that are compared: a table may have a million names of 64 KiB that are the same.
const COMPARED: usize = 256;
/// `STT_NOTYPE`, `STT_FUNC`, `STT_GNU_IFUNC`; `STB_GLOBAL`, `STB_WEAK`.
const NOTYPE: u8 = 0;
const FUNC: u8 = 2;
const IFUNC: u8 = 10;
const GLOBAL: u8 = 1;
const WEAK: u8 = 2;

/// A symbol that holds code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol<'a> {
    /// First address.
    pub(super) start: Svma,
    /// Address behind the last.
    pub(super) end: Svma,
    /// Name as the linker knows it.
    pub(super) name: &'a [u8],
    /// Whether the symbol states its size; else `end` is where the next one starts.
    pub(super) sized: bool,
    /// Whether it is the stub of a function of that name, not the function.
    pub(super) stub: bool,
    bind: u8,
    /// The symbol around this one, as an index.
    outer: u32,
}

/// Code symbols of one module, from all of its files.
#[derive(Debug, Default)]
pub(super) struct SymbolTable<'a> {
    symbols: Vec<Symbol<'a>>,
}

impl<'a> SymbolTable<'a> {
    /// The union of the symbols of `files`, which describe the same module: a stripped binary keeps names in `.dynsym`
    /// that its debug file leaves out. Stubs come in addition, and what Go's runtime needs where no symbols are left.
    pub(super) fn of(files: &[&'a ElfFile]) -> Self {
        let mut symbols = Vec::new();
        for file in files {
            let code = file.code_ranges();
            file.for_each_symbol(&mut |raw| {
                if symbols.len() < MAX_SYMBOLS
                    && let Some(symbol) = code_symbol(&raw, &code)
                {
                    symbols.push(symbol);
                }
            });
        }
        let stubs = files.iter().flat_map(|file| plt::stubs(file));
        let stubs: Vec<_> = stubs
            .filter_map(|stub| stub_symbol(&stub, &symbols))
            .collect();
        symbols.extend(stubs);
        if !files.iter().any(|file| file.has_symtab()) {
            for table in files.iter().filter_map(|file| GoTable::of(file)) {
                symbols.extend(table.functions().map(go_symbol));
            }
        }
        Self::from_symbols(symbols)
    }

    fn from_symbols(mut symbols: Vec<Symbol<'a>>) -> Self {
        symbols.sort_unstable_by(|a, b| order(a).cmp(&order(b)));
        // One symbol a range, and a sized one before one without size: the order puts the better first.
        symbols.dedup_by(|later, first| {
            later.start == first.start && (later.end == first.end || !later.sized)
        });
        bound_sizeless(&mut symbols);
        symbols.sort_by_key(|symbol| (symbol.start, Reverse(symbol.end)));
        nest(&mut symbols);
        Self { symbols }
    }

    /// The innermost symbol that contains `address`.
    pub(super) fn find(&self, address: Svma) -> Option<&Symbol<'a>> {
        let after = self
            .symbols
            .partition_point(|symbol| symbol.start <= address);
        let mut candidate = self.symbols.get(after.checked_sub(1)?)?;
        for _ in 0..MAX_NESTING {
            if address < candidate.end {
                return Some(candidate);
            }
            candidate = self.symbols.get(candidate.outer as usize)?;
        }
        None
    }
}

/// Sort key: ranges by start, then the order in which aliases are preferred: sized, not weak, global, fewer leading
/// underscores, longer, alphabetical (as perf does, so that both name the same one).
fn order<'s>(symbol: &Symbol<'s>) -> impl Ord + use<'s> {
    let start = symbol.name.get(..COMPARED).unwrap_or(symbol.name);
    let underscores = start.iter().take_while(|&&byte| byte == b'_').count();
    let by_name = (underscores, Reverse(symbol.name.len()), start);
    (
        symbol.start,
        Reverse(symbol.sized),
        symbol.end,
        symbol.bind == WEAK,
        symbol.bind != GLOBAL,
        by_name,
    )
}

/// Take `raw` if it names code; the end of one without size is its section's for now.
fn code_symbol<'a>(raw: &RawSymbol<'a>, code: &[Range<u64>]) -> Option<Symbol<'a>> {
    let reserved = raw.section == 0 || raw.section >= 0xff00 && raw.section != 0xffff;
    let mapping_symbol = raw.name.first() == Some(&b'$') && raw.kind == NOTYPE;
    if reserved
        || mapping_symbol
        || raw.name.is_empty()
        || !matches!(raw.kind, NOTYPE | FUNC | IFUNC)
    {
        return None;
    }
    let place = code
        .partition_point(|range| range.start <= raw.svma)
        .checked_sub(1)?;
    let section = code.get(place).filter(|range| raw.svma < range.end)?;
    let sized = raw.size != 0;
    let end = if sized {
        raw.svma.saturating_add(raw.size)
    } else {
        section.end
    };
    Some(Symbol {
        start: Svma(raw.svma),
        end: Svma(end),
        name: raw.name,
        sized,
        stub: false,
        bind: raw.bind,
        outer: u32::MAX,
    })
}

/// The symbol of a stub, named after what it leads to.
fn stub_symbol<'a>(stub: &Stub<'a>, symbols: &[Symbol<'a>]) -> Option<Symbol<'a>> {
    let name = match stub.target {
        Target::Name(name) => name,
        Target::ChosenBy(address) => {
            let at = symbols.iter().filter(|symbol| symbol.start.0 == address);
            at.min_by(|a, b| order(a).cmp(&order(b)))?.name
        }
    };
    Some(Symbol {
        stub: true,
        ..sized_symbol(stub.start, stub.end, name)
    })
}

fn go_symbol<'a>(function: GoFunction<'a>) -> Symbol<'a> {
    sized_symbol(function.start, function.end, function.name)
}

fn sized_symbol(start: u64, end: u64, name: &[u8]) -> Symbol<'_> {
    Symbol {
        start: Svma(start),
        end: Svma(end),
        name,
        sized: true,
        stub: false,
        bind: 0,
        outer: u32::MAX,
    }
}

/// Let symbols without size end where the next symbol starts, if that comes before their section's end.
fn bound_sizeless(symbols: &mut [Symbol<'_>]) {
    let mut next: Option<Svma> = None;
    let mut later: Option<Svma> = None;
    for symbol in symbols.iter_mut().rev() {
        if later != Some(symbol.start) {
            next = later;
            later = Some(symbol.start);
        }
        if let Some(next) = next.filter(|_| !symbol.sized) {
            symbol.end = symbol.end.min(next);
        }
    }
}

/// Link each symbol to the one around it.
fn nest(symbols: &mut [Symbol<'_>]) {
    let mut open: Vec<(Svma, u32)> = Vec::new();
    for (index, symbol) in (0u32..).zip(symbols.iter_mut()) {
        while open.last().is_some_and(|&(end, _)| end <= symbol.start) {
            open.pop();
        }
        symbol.outer = open.last().map_or(u32::MAX, |&(_, outer)| outer);
        open.push((symbol.end, index));
    }
}

#[cfg(test)]
mod tests {
    use std::{slice, str};

    use super::*;

    fn table(rows: &[(u64, u64, &'static str, u8)]) -> SymbolTable<'static> {
        let raw = rows.iter().map(|&(svma, size, name, bind)| RawSymbol {
            name: name.as_bytes(),
            svma,
            size,
            kind: FUNC,
            bind,
            section: 1,
        });
        let code = 0..0x1000;
        SymbolTable::from_symbols(
            raw.filter_map(|raw| code_symbol(&raw, slice::from_ref(&code)))
                .collect(),
        )
    }

    fn name(table: &SymbolTable<'static>, address: u64) -> Option<&'static str> {
        table
            .find(Svma(address))
            .map(|symbol| str::from_utf8(symbol.name).unwrap())
    }

    /// Check that behind a nested symbol the outer one is found again: every tool but gdb loses it.
    #[test]
    fn nested_symbols() {
        let table = table(&[(0, 0x41, "outer", 1), (0x10, 8, "inner", 1)]);
        assert_eq!(name(&table, 0x8), Some("outer"));
        assert_eq!(name(&table, 0x12), Some("inner"));
        assert_eq!(name(&table, 0x20), Some("outer"));
        assert_eq!(name(&table, 0x41), None);
    }

    /// Check that a symbol without size ends at the next symbol or with its section.
    #[test]
    fn sizeless_symbols() {
        let table = table(&[
            (0x10, 0, "start", 1),
            (0x30, 0x10, "next", 1),
            (0x80, 0, "last", 1),
        ]);
        assert_eq!(name(&table, 0x2f), Some("start"));
        assert_eq!(name(&table, 0x30), Some("next"));
        assert_eq!(name(&table, 0x50), None);
        assert_eq!(name(&table, 0xfff), Some("last"));
        assert_eq!(name(&table, 0x1000), None);
    }

    /// Check the order of aliases: sized, not weak, global, fewer underscores, longer.
    #[test]
    fn alias_order() {
        let sized = [(0, 0, "sizeless", 1), (0, 8, "__sized", 0)];
        assert_eq!(name(&table(&sized), 0), Some("__sized"));
        let strong = [(0, 8, "weak_one", 2), (0, 8, "__GI_strong", 0)];
        assert_eq!(name(&table(&strong), 0), Some("__GI_strong"));
        let global = [(0, 8, "local_one", 0), (0, 8, "_global", 1)];
        assert_eq!(name(&table(&global), 0), Some("_global"));
        let underscores = [(0, 8, "__strtok", 1), (0, 8, "strtok", 1), (0, 8, "abc", 1)];
        assert_eq!(name(&table(&underscores), 0), Some("strtok"));
    }
}
