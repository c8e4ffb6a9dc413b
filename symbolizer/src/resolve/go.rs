//! Functions and lines of Go programs from `.gopclntab`, which the runtime needs and stripping leaves.
//!
//! Layouts since Go 1.16. Everything in the table is an offset from a part of it; a damaged one names nothing.

use crate::debug_file::elf::ElfFile;
use crate::debug_file::relocations;

/// Functions that are read at most.
const MAX_FUNCTIONS: u64 = 1 << 22;
/// Steps of a function's line table at most: its longest functions have some ten thousand.
const MAX_STEPS: usize = 1 << 20;
/// Longest name, in bytes.
const MAX_NAME: usize = 1 << 14;

/// The table of one program.
#[derive(Debug)]
pub(super) struct GoTable<'a> {
    bytes: &'a [u8],
    big_endian: bool,
    /// Size of a pointer in bytes, and what a step in the line table counts.
    pointer: usize,
    quantum: u64,
    /// Whether entries are offsets from the text (since 1.18).
    relative: bool,
    functions: u64,
    text: u64,
    names: usize,
    units: usize,
    files: usize,
    steps: usize,
    table: usize,
}

/// A function.
#[derive(Clone, Copy, Debug)]
pub(super) struct GoFunction<'a> {
    /// First address.
    pub(super) start: u64,
    /// Address behind the last.
    pub(super) end: u64,
    /// Name.
    pub(super) name: &'a [u8],
    /// Where its row lies, from the table's start.
    row: usize,
}

impl<'a> GoTable<'a> {
    /// The table of `file`, if it has one.
    pub(super) fn of(file: &'a ElfFile) -> Option<Self> {
        let names = [".gopclntab", ".data.rel.ro.gopclntab", ".data.rel.ro"];
        let section = names.iter().find_map(|name| file.section(name))?;
        let svma = section.svma;
        let bytes = file.range(section.offset, section.size)?;
        let mut table = Self::parse(bytes, file.big_endian)?;
        if table.relative {
            table.text = text_start(file, svma, &table);
        }
        Some(table)
    }

    fn parse(bytes: &'a [u8], big_endian: bool) -> Option<Self> {
        let magic: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
        let magic = if big_endian {
            u32::from_be_bytes(magic)
        } else {
            u32::from_le_bytes(magic)
        };
        // Go 1.16, 1.18, 1.20.
        let relative = match magic {
            0xffff_fffa => false,
            0xffff_fff0 | 0xffff_fff1 => true,
            _ => return None,
        };
        let [0, 0, quantum, pointer] = *bytes.get(4..8)? else {
            return None;
        };
        let pointer = usize::from(pointer);
        if !matches!(pointer, 4 | 8) || !matches!(quantum, 1 | 2 | 4) {
            return None;
        }
        let mut table = Self {
            bytes,
            big_endian,
            pointer,
            quantum: quantum.into(),
            relative,
            functions: 0,
            text: 0,
            names: 0,
            units: 0,
            files: 0,
            steps: 0,
            table: 0,
        };
        let word = |number: usize| table.word(8 + number * pointer, pointer);
        let part = |number: usize| usize::try_from(word(number)?).ok();
        // nfunc, nfiles, then since 1.18 the start of the text, then where the parts are.
        let first = if relative { 3 } else { 2 };
        let (functions, text) = (word(0)?, if relative { word(2)? } else { 0 });
        let parts = [0, 1, 2, 3, 4].map(|number| part(first + number));
        let [
            Some(names),
            Some(units),
            Some(files),
            Some(steps),
            Some(rows),
        ] = parts
        else {
            return None;
        };
        (table.names, table.units, table.files) = (names, units, files);
        (table.steps, table.table) = (steps, rows);
        (table.functions, table.text) = (functions, text);
        (functions <= MAX_FUNCTIONS).then_some(table)
    }

    /// `size` bytes at `at` as a number.
    fn word(&self, at: usize, size: usize) -> Option<u64> {
        let bytes = self.bytes.get(at..at.checked_add(size)?)?;
        let fold = |number: u64, &byte: &u8| number << 8 | u64::from(byte);
        Some(if self.big_endian {
            bytes.iter().fold(0, fold)
        } else {
            bytes.iter().rev().fold(0, fold)
        })
    }

    /// Size of one half of an entry of the function table.
    fn half(&self) -> usize {
        if self.relative { 4 } else { self.pointer }
    }

    fn entry(&self, number: u64) -> Option<(u64, usize)> {
        let half = self.half();
        let at = usize::try_from(number).ok()?.checked_mul(2 * half)?;
        let at = self.table.checked_add(at)?;
        let start = self.word(at, half)?;
        // The last entry is an end and has no row.
        let row = self.word(at.checked_add(half)?, half).unwrap_or(0);
        let row = self.table.checked_add(usize::try_from(row).ok()?)?;
        Some((self.text.checked_add(start)?, row))
    }

    /// All functions, in the order of the table.
    pub(super) fn functions(&self) -> impl Iterator<Item = GoFunction<'a>> + '_ {
        (0..self.functions).filter_map(|number| {
            let (start, row) = self.entry(number)?;
            let (end, _) = self.entry(number + 1)?;
            let name = self.word(row.checked_add(self.first_size())?, 4)?;
            let at = self.names.checked_add(usize::try_from(name).ok()?)?;
            Some(GoFunction {
                start,
                end,
                name: self.text_at(at)?,
                row,
            })
        })
    }

    /// Size of the entry that a function's row begins with.
    fn first_size(&self) -> usize {
        if self.relative { 4 } else { self.pointer }
    }

    fn text_at(&self, at: usize) -> Option<&'a [u8]> {
        let tail = self.bytes.get(at..)?;
        let tail = tail.get(..MAX_NAME).unwrap_or(tail);
        let length = tail.iter().position(|&byte| byte == 0)?;
        tail.get(..length)
    }

    /// File and line of `address`, which lies in `function`.
    pub(super) fn place(&self, function: &GoFunction<'a>, address: u64) -> Option<(&'a [u8], u32)> {
        // Behind the entry: name, arguments, deferreturn, pcsp, pcfile, pcln, npcdata, unit; each of four bytes.
        let field = |number: usize| {
            let at = function.row.checked_add(self.first_size() + number * 4)?;
            self.word(at, 4)
        };
        let file = self.value(field(4)?, function, address)?;
        let line = self.value(field(5)?, function, address)?;
        let unit = field(7)?;
        let file = unit.checked_add(u64::try_from(file).ok()?)?;
        let at = usize::try_from(file.checked_mul(4)?).ok()?;
        let name = self.word(self.units.checked_add(at)?, 4)?;
        let at = self.files.checked_add(usize::try_from(name).ok()?)?;
        Some((self.text_at(at)?, u32::try_from(line).ok()?))
    }

    /// The value at `address` in the table of steps at `table`: pairs of how much the value and the address go on.
    fn value(&self, table: u64, function: &GoFunction<'a>, address: u64) -> Option<i64> {
        let at = self.steps.checked_add(usize::try_from(table).ok()?)?;
        let mut rest = self.bytes.get(at..)?;
        let (mut value, mut reached) = (-1i64, function.start);
        for step in 0..MAX_STEPS {
            let change = varint(&mut rest)?;
            if change == 0 && step > 0 {
                return None;
            }
            let half = i64::from(change >> 1);
            value = value.checked_add(if change & 1 == 0 { half } else { !half })?;
            let length = u64::from(varint(&mut rest)?);
            reached = reached.checked_add(length.checked_mul(self.quantum)?)?;
            if address < reached {
                return Some(value);
            }
        }
        None
    }
}

/// A number in groups of seven bits, the lowest first.
fn varint(rest: &mut &[u8]) -> Option<u32> {
    let mut number = 0u32;
    for shift in [0, 7, 14, 21, 28] {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        number |= u32::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Address that entries count from: as the table has it, which in a position-independent program only its relocation
/// tells; else the symbol `runtime.text`, else the start of `.text` (before it stands what C was linked in).
fn text_start(file: &ElfFile, svma: u64, table: &GoTable<'_>) -> u64 {
    let code = file.code_ranges();
    let is_code = |address: u64| code.iter().any(|range| range.contains(&address));
    if is_code(table.text) {
        return table.text;
    }
    let place = svma.saturating_add(8 + 2 * table.pointer as u64);
    let mut start = None;
    relocations::for_each(file, &mut |row| {
        if row.offset == place && is_code(row.addend.cast_unsigned()) {
            start = Some(row.addend.cast_unsigned());
        }
    });
    if start.is_none() {
        file.for_each_symbol(&mut |symbol| {
            if symbol.name == b"runtime.text" {
                start = Some(symbol.svma);
            }
        });
    }
    let section = file.section(".text").map(|text| text.svma);
    start.or(section).unwrap_or(table.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of Go 1.16 with two functions, written down by hand from the layout of that release.
    fn table_of_1_16() -> Vec<u8> {
        let mut bytes = vec![0xfa, 0xff, 0xff, 0xff, 0, 0, 1, 8];
        let words = |bytes: &mut Vec<u8>, list: &[u64]| {
            list.iter()
                .for_each(|word| bytes.extend(word.to_le_bytes()));
        };
        // Two functions, one file; names at 64, units at 80, files at 84, steps at 96, functions at 104.
        words(&mut bytes, &[2, 1, 64, 80, 84, 96, 104]);
        bytes.extend(b"main.a\0main.b\0\0\0");
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(b"/src/a.go\0\0\0");
        // At 0: value -1 + 1 = 0 for 32 bytes. At 3: 9 for 16 bytes, 10 for 16 more.
        bytes.extend([2, 32, 0, 20, 16, 2, 16, 0]);
        words(&mut bytes, &[0x1000, 40, 0x1020, 80, 0x1040]);
        for (entry, name) in [(0x1000u64, 0u32), (0x1020, 7)] {
            words(&mut bytes, &[entry]);
            for field in [name, 0, 0, 0, 0, 3, 0, 0] {
                bytes.extend(field.to_le_bytes());
            }
        }
        bytes
    }

    /// Check the layout of Go 1.16, whose entries are addresses.
    #[test]
    fn layout_of_1_16() {
        let bytes = table_of_1_16();
        let table = GoTable::parse(&bytes, false).unwrap();
        let functions: Vec<_> = table.functions().collect();
        let rows = functions
            .iter()
            .map(|function| (function.start, function.end, function.name));
        let expected: [(u64, u64, &[u8]); 2] =
            [(0x1000, 0x1020, b"main.a"), (0x1020, 0x1040, b"main.b")];
        assert!(rows.eq(expected));
        let line = |address| table.place(&functions[0], address).map(|place| place.1);
        assert_eq!(
            table.place(&functions[0], 0x1000),
            Some((&b"/src/a.go"[..], 9))
        );
        assert_eq!(
            (line(0x100f), line(0x1010), line(0x1020)),
            (Some(9), Some(10), None)
        );
    }

    /// Check that a table with any byte changed, or cut anywhere, is read to its end.
    #[test]
    fn damaged_tables() {
        let whole = table_of_1_16();
        let read = |bytes: &[u8]| {
            let Some(table) = GoTable::parse(bytes, false) else {
                return;
            };
            for function in table.functions().take(16) {
                let _ = table.place(&function, function.start);
            }
        };
        for place in 0..whole.len() {
            read(&whole[..place]);
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[place] = value;
                read(&bytes);
            }
        }
    }
}
