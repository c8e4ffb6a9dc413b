//! The kernel's own code: where an address lies, and the symbols that go into the archive. No address leaves here.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;

use rawstack_bpf::OrcTables;
use rawstack_format::id::BuildId;
use rawstack_format::record::{KernelModule, KernelSymbol, KernelSymbols, Vdso};

use crate::elf::{ElfFacts, build_id_in_notes};
use crate::proc_fs;

/// A BPF program without a known end is taken to be this long at most, in bytes.
const MAX_BPF_PROGRAM: u64 = 64 << 10;
/// Text symbols, and bytes of their names, that a large kernel has: tables for so many never grow, and take no memory for
/// what it has less.
const MANY_SYMBOLS: (usize, usize) = (256 << 10, 8 << 20);
/// How much of kallsyms is read at once, in bytes.
const KALLSYMS_BUFFER: usize = 32 << 10;

/// Where a kernel address lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the kernel proper: distance from `_stext`.
    Kernel(u64),
    /// In a kernel module: its number, distance from its `.text`.
    Module(usize, u64),
    /// In a BPF program: its name, distance from its start.
    Bpf(String, u64),
    /// Elsewhere: distance from `_stext`, wrapping below it.
    Unknown(u64),
    /// The kernel hides where it is.
    Hidden,
}

/// Where the kernel's code lies in memory.
#[derive(Debug, Default)]
pub(crate) struct KernelMap {
    /// Build ID of the kernel.
    pub(crate) build_id: Option<BuildId>,
    stext: u64,
    etext: u64,
    modules: Vec<(u64, KernelModule)>,
    bpf: BTreeMap<u64, (u64, String)>,
    symbols: SymbolTable,
    /// Where the kernel has its own table for unwinding.
    pub(crate) orc_tables: OrcTables,
    version: u32,
    /// The vDSO that processes have mapped.
    pub(crate) vdso: Option<Vdso>,
    /// Its length in memory, in bytes.
    pub(crate) vdso_len: u64,
}

impl KernelMap {
    /// Where `address` lies.
    pub(crate) fn locate(&self, address: u64) -> Place {
        if self.stext == 0 {
            return Place::Hidden;
        }
        if (self.stext..self.etext).contains(&address) {
            return Place::Kernel(address - self.stext);
        }
        let in_module = |(start, module): &(u64, KernelModule)| {
            address
                .checked_sub(*start)
                .is_some_and(|within| within < module.size)
        };
        if let Some(number) = self.modules.iter().position(in_module) {
            let start = self.modules.get(number).map_or(0, |module| module.0);
            return Place::Module(number, address - start);
        }
        match self.bpf.range(..=address).next_back() {
            Some((start, (length, name))) if address - start < *length => {
                Place::Bpf(name.clone(), address - start)
            }
            _ => Place::Unknown(address.wrapping_sub(self.stext)),
        }
    }

    /// A number that stands for what is loaded.
    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    /// The kernel modules, by number.
    pub(crate) fn modules(&self) -> impl Iterator<Item = &KernelModule> {
        self.modules.iter().map(|(_, module)| module)
    }

    /// Kernel code was made or freed.
    pub(crate) fn symbol_changed(&mut self, address: u64, length: u32, removed: bool, name: &[u8]) {
        if removed {
            self.bpf.remove(&address);
        } else {
            self.bpf.insert(
                address,
                (
                    u64::from(length),
                    String::from_utf8_lossy(name).into_owned(),
                ),
            );
        }
        self.version += 1;
    }

    /// Whether the kernel hides its addresses from us.
    pub(crate) fn is_hidden(&self) -> bool {
        self.stext == 0
    }

    /// Read it.
    pub(crate) fn read() -> Self {
        let vdso = vdso();
        let mut map = Self {
            build_id: build_id(),
            modules: modules(),
            vdso_len: vdso.as_ref().map_or(0, |vdso| vdso.image.len() as u64),
            vdso,
            ..Self::default()
        };
        // A few megabytes of text: never all of it in memory.
        if let Ok(file) = fs::File::open("/proc/kallsyms") {
            map.symbols.rows.reserve(MANY_SYMBOLS.0);
            map.symbols.names.reserve(MANY_SYMBOLS.1);
            map.read_symbols(BufReader::with_capacity(KALLSYMS_BUFFER, file));
        }
        map
    }

    /// Take the text symbols out of kallsyms' text, line by line.
    fn read_symbols(&mut self, mut text: impl BufRead) {
        let mut line = Vec::new();
        let mut last_module = (String::new(), None);
        while text
            .read_until(b'\n', &mut line)
            .is_ok_and(|length| length > 0)
        {
            if let Some(symbol) = KallsymsLine::parse(&line) {
                match symbol.name {
                    // Near the beginning: the kernel hides its addresses.
                    "_stext" if symbol.address == 0 => break,
                    "_stext" => self.stext = symbol.address,
                    "_etext" => self.etext = symbol.address,
                    _ => {}
                }
                if symbol.module.is_empty() {
                    self.orc_tables.note(symbol.name, symbol.address);
                }
                self.add_symbol(&symbol, &mut last_module);
            }
            line.clear();
        }
        if self.stext == 0 {
            (self.symbols, self.bpf) = Default::default();
        }
        self.symbols.sort();
        self.end_bpf_programs();
    }

    /// Keep a text symbol. Those of a module stand together: `last_module` is the one of the line before.
    fn add_symbol(&mut self, symbol: &KallsymsLine<'_>, last_module: &mut (String, Option<Owner>)) {
        if !matches!(symbol.kind, b't' | b'T' | b'w' | b'W') {
            return;
        }
        let owner = match symbol.module {
            "" => Some(Owner::KERNEL),
            "bpf" => {
                let name = symbol.name.to_owned();
                self.bpf.insert(symbol.address, (MAX_BPF_PROGRAM, name));
                None
            }
            name => {
                if last_module.0 != name {
                    let mut modules = self.modules.iter();
                    let number = modules.position(|(_, module)| module.name == name);
                    *last_module = (name.to_owned(), number.map(Owner::module));
                }
                last_module.1
            }
        };
        if let Some(owner) = owner {
            let KallsymsLine {
                address,
                kind,
                name,
                ..
            } = *symbol;
            self.symbols.push(address, kind, owner, name);
        }
    }

    /// All text symbols, in parts that fit a chunk.
    pub(crate) fn all_symbols(&self) -> Vec<KernelSymbols> {
        let all = self.symbols_record((0..self.symbols.len()).collect());
        if self.is_hidden() {
            Vec::new()
        } else {
            all.split()
        }
    }

    /// The symbols of these rows.
    pub(crate) fn symbols_record(&self, rows: Vec<u32>) -> KernelSymbols {
        let symbol = |row| {
            let (address, kind, owner, name) = self.symbols.get(row)?;
            let module = owner.number().and_then(|number| self.modules.get(number));
            let start = module.map_or(self.stext, |module| module.0);
            Some(KernelSymbol {
                offset: address.wrapping_sub(start),
                kind,
                module: module
                    .map(|module| module.1.name.clone())
                    .unwrap_or_default(),
                name: name.to_owned(),
            })
        };
        let mut symbols: Vec<_> = rows.into_iter().filter_map(symbol).collect();
        symbols.sort_by(|a, b| (&a.module, a.offset).cmp(&(&b.module, b.offset)));
        KernelSymbols {
            build_id: self.build_id.clone(),
            text_size: self.etext.wrapping_sub(self.stext),
            symbols,
            ..KernelSymbols::default()
        }
    }

    /// The rows of the symbols that cover `address`, or the byte before it: the call before a return address may be the
    /// last instruction of another symbol. All names of the place.
    pub(crate) fn symbols_at(&self, address: u64) -> Range<u32> {
        self.symbols.covering(address)
    }

    /// kallsyms tells no lengths: a BPF program ends where the next begins.
    fn end_bpf_programs(&mut self) {
        let starts: Vec<u64> = self.bpf.keys().copied().collect();
        for pair in starts.windows(2) {
            if let (&[start, next], Some((length, _))) =
                (pair, pair.first().and_then(|start| self.bpf.get_mut(start)))
            {
                *length = (*length).min(next - start);
            }
        }
    }
}

/// Whose a symbol is: 0 the kernel's, else the module's of that number and one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner(u16);

impl Owner {
    const KERNEL: Self = Self(0);

    fn module(number: usize) -> Self {
        Self(u16::try_from(number + 1).unwrap_or(u16::MAX))
    }

    fn number(self) -> Option<usize> {
        usize::from(self.0).checked_sub(1)
    }
}

/// Text symbols by address: a hundred thousand in a few megabytes.
#[derive(Debug, Default)]
struct SymbolTable {
    rows: Vec<SymbolRow>,
    names: String,
    /// The address of each so manieth row: a search then touches three pages of memory, not seventeen, none of which a
    /// recorder that is seldom awake finds in a cache.
    index: Vec<u64>,
}

/// Rows from one entry of the index to the next.
const INDEX_STEP: usize = 64;

/// Address, position of the name in `names`, its length, type letter, owner.
type SymbolRow = (u64, u32, u16, u8, Owner);

impl SymbolTable {
    fn push(&mut self, address: u64, kind: u8, owner: Owner, name: &str) {
        if let (Ok(at), Ok(length)) = (u32::try_from(self.names.len()), u16::try_from(name.len())) {
            self.rows.push((address, at, length, kind, owner));
            self.names.push_str(name);
        }
    }

    fn sort(&mut self) {
        // Without modules they come sorted, and sorting takes half as much memory again.
        if !self.rows.is_sorted_by_key(|row| row.0) {
            self.rows.sort_by_key(|row| row.0);
        }
        self.rows.shrink_to_fit();
        self.names.shrink_to_fit();
        let indexed = self.rows.iter().step_by(INDEX_STEP);
        self.index = indexed.map(|row| row.0).collect();
    }

    fn len(&self) -> u32 {
        u32::try_from(self.rows.len()).unwrap_or(u32::MAX)
    }

    fn get(&self, row: u32) -> Option<(u64, u8, Owner, &str)> {
        let &(address, at, length, kind, owner) = self.rows.get(row as usize)?;
        let name = self.names.get(at as usize..)?.get(..usize::from(length))?;
        Some((address, kind, owner, name))
    }

    /// How many rows are not behind `address`.
    fn end(&self, address: u64) -> usize {
        let blocks = self.index.partition_point(|&first| first <= address);
        let start = blocks.saturating_sub(1) * INDEX_STEP;
        let end = self.rows.len().min(start + INDEX_STEP);
        let block = self.rows.get(start..end).unwrap_or_default();
        start + block.partition_point(|row| row.0 <= address)
    }

    /// Rows of the last address that is not behind `address`; where that is `address` itself, of the one before it, too.
    fn covering(&self, address: u64) -> Range<u32> {
        let end = self.end(address);
        let before = self.rows.get(..end).unwrap_or_default();
        let same = |rows: &[SymbolRow]| {
            let last = rows.last().map(|row| row.0);
            rows.iter()
                .rev()
                .take_while(|row| Some(row.0) == last)
                .count()
        };
        let mut start = end - same(before);
        if before.last().is_some_and(|row| row.0 == address) {
            start -= same(before.get(..start).unwrap_or_default());
        }
        let row = |at| u32::try_from(at).unwrap_or(u32::MAX);
        row(start)..row(end)
    }
}

/// One line of `/proc/kallsyms`.
struct KallsymsLine<'a> {
    address: u64,
    kind: u8,
    name: &'a str,
    module: &'a str,
}

impl<'a> KallsymsLine<'a> {
    /// `ffffffff81000000 T name`, and behind a tabulator the module in brackets.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?.trim_end();
        let (address, rest) = line.split_once(' ')?;
        let (kind, rest) = rest.split_once(' ')?;
        let (name, module) = rest.split_once('\t').unwrap_or((rest, ""));
        // `$x` and its like mark where code and data of arm64 begin: they name nothing.
        if name.starts_with('$') {
            return None;
        }
        Some(Self {
            address: u64::from_str_radix(address, 16).ok()?,
            kind: *kind.as_bytes().first()?,
            name,
            module: module.trim_matches(['[', ']']),
        })
    }
}

/// Loaded kernel modules with the addresses of their `.text`.
fn modules() -> Vec<(u64, KernelModule)> {
    let list = fs::read_to_string("/proc/modules").unwrap_or_default();
    list.lines().filter_map(module).collect()
}

/// One line of `/proc/modules`: name, size, …
fn module(line: &str) -> Option<(u64, KernelModule)> {
    let mut fields = line.split_ascii_whitespace();
    let name = fields.next()?;
    let size = fields.next()?.parse().ok()?;
    let folder = format!("/sys/module/{name}");
    let notes = fs::read(format!("{folder}/notes/.note.gnu.build-id")).unwrap_or_default();
    let mut sections: Vec<(String, u64)> = fs::read_dir(format!("{folder}/sections"))
        .ok()?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let address = fs::read_to_string(entry.path()).ok()?;
            let address = u64::from_str_radix(address.trim().trim_start_matches("0x"), 16).ok()?;
            Some((entry.file_name().into_string().ok()?, address))
        })
        .collect();
    let text = sections.iter().find(|(section, _)| section == ".text")?.1;
    sections
        .iter_mut()
        .for_each(|(_, address)| *address = address.wrapping_sub(text));
    sections.sort();
    Some((
        text,
        KernelModule {
            name: name.to_owned(),
            build_id: build_id_in_notes(&notes),
            size,
            sections,
        },
    ))
}

/// The build ID of the kernel.
pub(crate) fn build_id() -> Option<BuildId> {
    build_id_in_notes(&fs::read("/sys/kernel/notes").unwrap_or_default())
}

/// The vDSO that this process, and so every process of its class, has mapped.
fn vdso() -> Option<Vdso> {
    let line = proc_fs::maps(std::process::id())
        .ok()?
        .lines
        .into_iter()
        .find(|line| line.path == b"[vdso]")?;
    let mut memory = fs::File::open("/proc/self/mem").ok()?;
    memory.seek(SeekFrom::Start(line.addresses.start)).ok()?;
    let length = usize::try_from(line.addresses.end - line.addresses.start).ok()?;
    let mut image = vec![0; length];
    memory.read_exact(&mut image).ok()?;
    let facts = ElfFacts::from_image(&image)?;
    Some(Vdso {
        build_id: facts.build_id,
        class: facts.class,
        image,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KALLSYMS: &str = "ffffffff81000000 T _stext\nffffffff81000000 T _text\nffffffff81000010 t a\n\
        ffffffff81000800 D data\nffffffff81001000 T _etext\nffffffffc0001000 t bpf_prog_1_x\t[bpf]\n\
        ffffffffc0001100 t bpf_prog_2_y\t[bpf]\n";

    /// Check that addresses are told as distances and that a BPF program ends where the next begins.
    #[test]
    fn places() {
        let mut map = KernelMap::default();
        map.read_symbols(KALLSYMS.as_bytes());
        assert_eq!(map.locate(0xffff_ffff_8100_0018), Place::Kernel(0x18));
        assert_eq!(
            map.locate(0xffff_ffff_c000_10ff),
            Place::Bpf("bpf_prog_1_x".into(), 0xff)
        );
        assert_eq!(
            map.locate(0xffff_ffff_c000_1100),
            Place::Bpf("bpf_prog_2_y".into(), 0)
        );
        assert_eq!(
            map.locate(0xffff_ffff_8000_0000),
            Place::Unknown(0u64.wrapping_sub(0x100_0000))
        );
        let symbols = map.all_symbols().swap_remove(0).symbols;
        let names: Vec<_> = symbols
            .iter()
            .map(|symbol| (symbol.offset, symbol.name.as_str()))
            .collect();
        assert_eq!(
            names,
            [(0, "_stext"), (0, "_text"), (0x10, "a"), (0x1000, "_etext")]
        );
    }

    /// Check that a place is covered by all names of the last address at or before it, by those of the byte before, and by
    /// none before the first.
    #[test]
    fn covering() {
        let mut map = KernelMap::default();
        map.read_symbols(KALLSYMS.as_bytes());
        let names = |address| {
            let record = map.symbols_record(map.symbols_at(address).collect());
            record
                .symbols
                .into_iter()
                .map(|symbol| symbol.name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(0xffff_ffff_8100_000f), ["_stext", "_text"]);
        assert_eq!(names(0xffff_ffff_8100_0010), ["_stext", "_text", "a"]);
        assert_eq!(names(0xffff_ffff_8100_0011), ["a"]);
        assert_eq!(names(0xffff_ffff_8100_0000), ["_stext", "_text"]);
        assert_eq!(names(0xffff_ffff_80ff_ffff), Vec::<String>::new());
    }

    /// Check that the index leads to the same row as a search through all of them.
    #[test]
    fn index() {
        let mut table = SymbolTable::default();
        for number in 0..1000_u64 {
            // Three at each address: some run over the end of a part of the index.
            table.push(number / 3 * 16, b't', Owner::KERNEL, "x");
        }
        table.sort();
        for address in 0..6000 {
            let whole = table.rows.partition_point(|row| row.0 <= address);
            assert_eq!(table.end(address), whole, "{address}");
        }
        assert_eq!(SymbolTable::default().end(1), 0);
    }

    /// Check that a kernel that hides its addresses gives no symbols and no places.
    #[test]
    fn hidden() {
        let mut map = KernelMap::default();
        let text = KALLSYMS
            .replace("ffffffff", "00000000")
            .replace("81000", "00000");
        map.read_symbols(text.as_bytes());
        assert_eq!(map.all_symbols(), []);
        assert_eq!(map.locate(0xffff_ffff_8100_0018), Place::Hidden);
    }

    /// Check that this machine's vDSO is a whole ELF image with code.
    #[test]
    fn own_vdso() {
        assert!(
            !ElfFacts::from_image(&vdso().unwrap().image)
                .unwrap()
                .segments
                .is_empty()
        );
    }
}
