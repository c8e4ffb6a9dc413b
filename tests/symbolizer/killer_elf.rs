//! Makes ELF files and debug information by hand, with numbers that no linker would write.

/// Address of the code.
pub(crate) const TEXT: u64 = 0x40_1000;
/// Bytes of code, and where they are in the file.
const TEXT_SIZE: u64 = 0x1000;
const TEXT_AT: u64 = 0x1000;

/// An unsigned LEB128 number.
pub(crate) fn leb(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(number & 0x7f).unwrap();
        number >>= 7;
        bytes.push(if number == 0 { low } else { low | 0x80 });
        if number == 0 {
            return bytes;
        }
    }
}

fn size(length: usize) -> u64 {
    length as u64
}

/// A program with code at [`TEXT`].
pub(crate) struct Elf {
    /// Name, type, flags, content, link, entry size, and the size that is stated instead of the content's.
    sections: Vec<Section>,
    symbols: Vec<u8>,
    names: Vec<u8>,
    notes_over_all: usize,
    table_size: Option<u64>,
}

struct Section {
    name: String,
    kind: u32,
    flags: u64,
    content: Vec<u8>,
}

impl Elf {
    pub(crate) fn new() -> Self {
        Self {
            sections: Vec::new(),
            symbols: vec![0; 24],
            names: vec![0],
            notes_over_all: 0,
            table_size: None,
        }
    }

    /// Add a section; one whose name begins with `.note` holds notes.
    pub(crate) fn debug(mut self, name: &str, content: &[u8], flags: u64) -> Self {
        self.sections.push(Section {
            name: name.to_owned(),
            kind: if name.starts_with(".note") { 7 } else { 1 },
            flags,
            content: content.to_vec(),
        });
        self
    }

    /// Add a section of notes that covers what the first one covers.
    pub(crate) fn note_over_all(mut self) -> Self {
        self.notes_over_all += 1;
        self
    }

    /// Add a function.
    pub(crate) fn symbol(mut self, name: &[u8], address: u64, length: u64) -> Self {
        let at = u32::try_from(self.names.len()).unwrap();
        self.names.extend_from_slice(name);
        self.names.push(0);
        self.symbol_at(at, address, length)
    }

    /// Add a function whose name starts at `at` among the names.
    pub(crate) fn symbol_at(mut self, at: u32, address: u64, length: u64) -> Self {
        self.symbols.extend(at.to_le_bytes());
        self.symbols.extend([0x12, 0, 1, 0]);
        self.symbols.extend(address.to_le_bytes());
        self.symbols.extend(length.to_le_bytes());
        self
    }

    /// Take these bytes as the names of all symbols.
    pub(crate) fn names(mut self, names: &[u8]) -> Self {
        self.names = names.to_vec();
        self
    }

    /// State another size of the symbol table.
    pub(crate) fn table_size(mut self, bytes: u64) -> Self {
        self.table_size = Some(bytes);
        self
    }

    /// The file.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0u8; usize::try_from(TEXT_AT + TEXT_SIZE).unwrap()];
        let mut headers: Vec<Header> = vec![[0; 9]];
        let mut section_names = vec![0u8];
        let mut name = |text: &str| {
            let at = size(section_names.len());
            section_names.extend(text.as_bytes());
            section_names.push(0);
            at
        };
        headers.push([name(".text"), 1, 6, TEXT, TEXT_AT, TEXT_SIZE, 0, 0, 0]);
        let symbols = self.table_size.unwrap_or(size(self.symbols.len()));
        headers.push([
            name(".symtab"),
            2,
            0,
            0,
            size(bytes.len()),
            symbols,
            3,
            1,
            24,
        ]);
        bytes.extend(&self.symbols);
        headers.push([
            name(".strtab"),
            3,
            0,
            0,
            size(bytes.len()),
            size(self.names.len()),
            0,
            0,
            0,
        ]);
        bytes.extend(&self.names);
        for section in &self.sections {
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            let (at, length) = (size(bytes.len()), size(section.content.len()));
            let kind = u64::from(section.kind);
            headers.push([
                name(&section.name),
                kind,
                section.flags,
                0,
                at,
                length,
                0,
                0,
                0,
            ]);
            bytes.extend(&section.content);
        }
        if let Some(&first) = headers.get(4) {
            headers.extend(vec![first; self.notes_over_all]);
        }
        headers.push([name(".shstrtab"), 3, 0, 0, size(bytes.len()), 0, 0, 0, 0]);
        headers.last_mut().unwrap()[5] = size(section_names.len());
        bytes.extend(&section_names);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let table = size(bytes.len());
        bytes.extend(headers.iter().flat_map(section_header));
        let count = u16::try_from(headers.len()).unwrap();
        bytes[..64].copy_from_slice(&file_header(table, count));
        bytes[64..120].copy_from_slice(&code_segment());
        bytes
    }
}

/// Name, type, flags, address, offset, size, link, information, entry size.
type Header = [u64; 9];

fn section_header(header: &Header) -> Vec<u8> {
    let [
        name,
        kind,
        flags,
        address,
        offset,
        length,
        link,
        info,
        entry,
    ] = header;
    let narrow = |number: &u64| u32::try_from(*number).unwrap().to_le_bytes();
    let wide = |number: &u64| number.to_le_bytes();
    let mut bytes = [narrow(name), narrow(kind)].concat();
    bytes.extend([flags, address, offset, length].map(wide).concat());
    bytes.extend([narrow(link), narrow(info)].concat());
    bytes.extend([&1, entry].map(wide).concat());
    bytes
}

fn file_header(table: u64, count: u16) -> Vec<u8> {
    let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    header.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    header.extend(
        [TEXT, 64, table]
            .iter()
            .flat_map(|number| number.to_le_bytes()),
    );
    header.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0]);
    header.extend(count.to_le_bytes());
    header.extend((count - 1).to_le_bytes());
    header
}

fn code_segment() -> Vec<u8> {
    let words = [
        1 | 5 << 32,
        TEXT_AT,
        TEXT,
        TEXT,
        TEXT_SIZE,
        TEXT_SIZE,
        0x1000,
    ];
    words
        .iter()
        .flat_map(|word: &u64| word.to_le_bytes())
        .collect()
}

/// Code, tag, whether it has children, names and forms of attributes.
type Row = (u64, u64, u8, &'static [(u64, u64)]);

/// The table of abbreviations: that of [`Dwarf`], or any bytes.
pub(crate) struct Abbreviations(Vec<u8>);

impl Abbreviations {
    pub(crate) fn raw(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// 1 unit with lines, 12 without, 2 function, 3 inlined, 4 block, 5 declaration, 6 function that refers, 7 indirect, 8 function with a
    /// sibling, 9 function with ranges, 10 and 11 function and inlined with a name elsewhere.
    fn usual() -> Self {
        let rows: [Row; 12] = [
            (1, 0x11, 1, &[(0x11, 1), (0x12, 7), (0x10, 0x17)]),
            (2, 0x2e, 1, &[(3, 8), (0x11, 1), (0x12, 7)]),
            (3, 0x1d, 1, &[(0x11, 1), (0x12, 0xb)]),
            (4, 0x0b, 1, &[]),
            (5, 0x2e, 0, &[(0x47, 0x13)]),
            (6, 0x2e, 0, &[(0x11, 1), (0x12, 7), (0x31, 0x13)]),
            (7, 0x34, 0, &[(3, 0x16)]),
            (8, 0x13, 1, &[(1, 0x13)]),
            (9, 0x2e, 0, &[(0x55, 0x17)]),
            (10, 0x2e, 1, &[(3, 0xe), (0x11, 1), (0x12, 7)]),
            (11, 0x1d, 1, &[(3, 0xe), (0x11, 1), (0x12, 0xb)]),
            (12, 0x11, 1, &[(0x11, 1), (0x12, 7)]),
        ];
        let mut bytes = Vec::new();
        for (code, tag, children, attributes) in rows {
            bytes.extend([leb(code), leb(tag), vec![children]].concat());
            for &(name, form) in attributes {
                bytes.extend([leb(name), leb(form)].concat());
            }
            bytes.extend([0, 0]);
        }
        bytes.push(0);
        Self(bytes)
    }
}

/// Debug information of one unit of DWARF 4 that covers the code.
pub(crate) struct Dwarf {
    pub(crate) info: Vec<u8>,
    pub(crate) abbreviations: Abbreviations,
    pub(crate) strings: Vec<u8>,
    pub(crate) ranges: Vec<u8>,
    pub(crate) aranges: Vec<u8>,
    line: Vec<u8>,
    /// Bytes that stand for all units.
    pub(crate) raw: Option<Vec<u8>>,
}

/// Bytes of the unit's header.
const UNIT_HEADER: usize = 11;

impl Dwarf {
    pub(crate) fn new() -> Self {
        let mut info = vec![12];
        info.extend(TEXT.to_le_bytes());
        info.extend(TEXT_SIZE.to_le_bytes());
        Self {
            info,
            abbreviations: Abbreviations::usual(),
            strings: Vec::new(),
            ranges: Vec::new(),
            aranges: Vec::new(),
            line: Vec::new(),
            raw: None,
        }
    }

    /// Offset of the next entry in its unit.
    pub(crate) fn here(&self) -> u32 {
        u32::try_from(UNIT_HEADER + self.info.len()).unwrap()
    }

    fn covers(&mut self) {
        self.info.extend(TEXT.to_le_bytes());
        self.info.extend(0x100u64.to_le_bytes());
    }

    /// A function that is open for its children.
    pub(crate) fn function(&mut self, name: &str) {
        self.info.push(2);
        self.info.extend(name.as_bytes());
        self.info.push(0);
        self.covers();
    }

    /// The same for `size` bytes at `start`.
    pub(crate) fn function_in(&mut self, name: &str, start: u64, size: u64) {
        self.info.push(2);
        self.info.extend(name.as_bytes());
        self.info.push(0);
        self.info.extend(start.to_le_bytes());
        self.info.extend(size.to_le_bytes());
    }

    /// The same with its name in `.debug_str`.
    pub(crate) fn function_at(&mut self, name: u32) {
        self.info.push(10);
        self.info.extend(name.to_le_bytes());
        self.covers();
    }

    /// A function inlined into what is open.
    pub(crate) fn inlined(&mut self) {
        self.info.push(3);
        self.info.extend(TEXT.to_le_bytes());
        self.info.push(0xff);
    }

    /// The same with its name in `.debug_str`.
    pub(crate) fn inlined_at(&mut self, name: u32) {
        self.info.push(11);
        self.info.extend(name.to_le_bytes());
        self.info.extend(TEXT.to_le_bytes());
        self.info.push(0xff);
    }

    /// A declaration that refers to another entry.
    pub(crate) fn declares(&mut self, other: u32) {
        self.info.push(5);
        self.info.extend(other.to_le_bytes());
    }

    /// A function that refers to another entry for its name.
    pub(crate) fn refers(&mut self, other: u32) {
        self.info.push(6);
        self.covers();
        self.info.extend(other.to_le_bytes());
    }

    /// A type with a sibling, and no end of its children.
    pub(crate) fn sibling(&mut self, other: u32) {
        self.info.push(8);
        self.info.extend(other.to_le_bytes());
    }

    /// A function whose ranges are at `offset`.
    pub(crate) fn ranged(&mut self, offset: u32) {
        self.info.push(9);
        self.info.extend(offset.to_le_bytes());
    }

    /// A line program of DWARF 5: what follows the lengths of its instructions, and the instructions.
    pub(crate) fn lines(&mut self, tables: &[u8], program: &[u8]) {
        self.info[0] = 1;
        self.info.splice(17..17, 0u32.to_le_bytes());
        let fixed = [
            &[1, 1, 1, 0xfb, 14, 13][..],
            &[0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1],
        ]
        .concat();
        let header = [&fixed[..], tables].concat();
        let mut body = vec![5, 0, 8, 0];
        body.extend(u32::try_from(header.len()).unwrap().to_le_bytes());
        body.extend(&header);
        body.extend(program);
        self.line = [&u32::try_from(body.len()).unwrap().to_le_bytes()[..], &body].concat();
    }

    /// A table of `count` addresses for the unit.
    pub(crate) fn address_table(&self, count: u32) -> Vec<u8> {
        let mut body = vec![2, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0];
        for number in 0..u64::from(count) {
            body.extend((TEXT + number % TEXT_SIZE).to_le_bytes());
            body.extend(16u64.to_le_bytes());
        }
        body.extend([0; 16]);
        [&u32::try_from(body.len()).unwrap().to_le_bytes()[..], &body].concat()
    }

    /// The whole program, with `_start` as its symbol.
    pub(crate) fn program(self) -> Vec<u8> {
        let units = self.raw.unwrap_or_else(|| {
            let length = u32::try_from(self.info.len() + UNIT_HEADER - 4).unwrap();
            [
                &length.to_le_bytes()[..],
                &[4, 0, 0, 0, 0, 0, 8],
                &self.info,
            ]
            .concat()
        });
        let elf = Elf::new().symbol(b"_start", TEXT, 0x100);
        let parts = [
            (".debug_info", units),
            (".debug_abbrev", self.abbreviations.0),
            (".debug_str", self.strings),
            (".debug_ranges", self.ranges),
            (".debug_aranges", self.aranges),
            (".debug_line", self.line),
        ];
        let filled = parts.iter().filter(|(_, content)| !content.is_empty());
        filled
            .fold(elf, |elf, (name, content)| elf.debug(name, content, 0))
            .bytes()
    }
}
