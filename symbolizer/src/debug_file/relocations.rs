//! Relocations of a file as plain rows. Knows no meaning of their kinds.

use object::Endianness;
use object::elf;
use object::read::SectionIndex;
use object::read::elf::{FileHeader, Rel, Rela, SectionHeader, SectionTable, Sym, SymbolTable};

use super::elf::ElfFile;

/// One relocation.
#[derive(Clone, Copy, Debug)]
pub struct Relocation<'a> {
    /// Section that it changes, where the table says so (in object files).
    pub section: u32,
    /// Place: an address, in object files an offset in the section.
    pub offset: u64,
    /// `R_*`, by machine.
    pub kind: u32,
    /// What is added, where the row holds it.
    pub addend: i64,
    /// Name of the symbol, empty where there is none.
    pub name: &'a [u8],
    /// `st_value` of the symbol.
    pub value: u64,
    /// Section of the symbol, 0 where there is none.
    pub of_section: u16,
}

/// Go through the relocations of all tables, each table in the order of its rows; a damaged one ends early.
pub fn for_each<'a>(file: &'a ElfFile, each: &mut dyn FnMut(Relocation<'a>)) {
    let _ = match file.class {
        32 => read::<elf::FileHeader32<Endianness>>(file.bytes(), each),
        _ => read::<elf::FileHeader64<Endianness>>(file.bytes(), each),
    };
}

fn read<'a, H: FileHeader<Endian = Endianness>>(
    data: &'a [u8],
    each: &mut dyn FnMut(Relocation<'a>),
) -> Option<()> {
    let header = H::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, data).ok()?;
    let reader = Reader::<H> {
        endian,
        data,
        sections: &sections,
        mips64el: header.is_mips64el(endian),
    };
    for row in sections.iter() {
        reader.table(row, each);
    }
    Some(())
}

struct Reader<'r, 'a, H: FileHeader<Endian = Endianness>> {
    endian: Endianness,
    data: &'a [u8],
    sections: &'r SectionTable<'a, H>,
    mips64el: bool,
}

impl<'a, H: FileHeader<Endian = Endianness>> Reader<'_, 'a, H> {
    fn table(&self, row: &H::SectionHeader, each: &mut dyn FnMut(Relocation<'a>)) {
        let endian = self.endian;
        let section = row.sh_info(endian);
        if let Ok(Some((rows, link))) = row.rela(endian, self.data) {
            let symbols = self.symbols(link);
            for row in rows {
                let base = Relocation {
                    section,
                    offset: row.r_offset(endian).into(),
                    kind: row.r_type(endian, self.mips64el).0,
                    addend: row.r_addend(endian).into(),
                    ..Relocation::NONE
                };
                each(self.with_symbol(base, row.symbol(endian, self.mips64el), &symbols));
            }
        } else if let Ok(Some((rows, link))) = row.rel(endian, self.data) {
            let symbols = self.symbols(link);
            for row in rows {
                let base = Relocation {
                    section,
                    offset: row.r_offset(endian).into(),
                    kind: row.r_type(endian).0,
                    ..Relocation::NONE
                };
                each(self.with_symbol(base, row.symbol(endian), &symbols));
            }
        }
    }

    fn symbols(&self, link: SectionIndex) -> Option<SymbolTable<'a, H>> {
        self.sections
            .symbol_table_by_index(self.endian, self.data, link)
            .ok()
    }

    fn with_symbol(
        &self,
        base: Relocation<'a>,
        index: Option<object::SymbolIndex>,
        symbols: &Option<SymbolTable<'a, H>>,
    ) -> Relocation<'a> {
        let found = symbols.as_ref().zip(index);
        let found = found.and_then(|(table, index)| Some((table, table.symbol(index).ok()?)));
        let Some((table, symbol)) = found else {
            return base;
        };
        Relocation {
            name: table.symbol_name(self.endian, symbol).unwrap_or_default(),
            value: symbol.st_value(self.endian).into(),
            of_section: symbol.st_shndx(self.endian).0,
            ..base
        }
    }
}

impl Relocation<'_> {
    const NONE: Self = Self {
        section: 0,
        offset: 0,
        kind: 0,
        addend: 0,
        name: &[],
        value: 0,
        of_section: 0,
    };
}
