//! Files that were made to kill their reader by what stands around debug information: names, compressed sections, headers,
//! notes and links.

use super::killer_elf::{Dwarf, Elf, TEXT};
use super::killers::Outcome::{Answer, Noted, Refused};
use super::killers::{check, named};

/// Check names of megabytes, in debug information and in symbol tables, and names that unfold without end.
#[test]
fn names() {
    let mut long = Dwarf::new();
    long.strings = vec![b'x'; 10_000_000];
    long.function_at(0);
    let mut many = Dwarf::new();
    many.strings = (0..8_000_000u32)
        .map(|n| b'a' + u8::try_from(n % 23).unwrap())
        .collect();
    many.function_at(0);
    for number in 0..200_000 {
        many.inlined_at(number * 31);
    }
    let symbol = |name: &[u8]| Elf::new().symbol(name, TEXT, 0x100).bytes();
    let mut table = Elf::new();
    for number in 0..100_000 {
        table = table.symbol_at(number * 90, TEXT, 0x100);
    }
    let names = vec![b'_'; 10_000_000];
    let mut nested = Elf::new();
    for number in 0..200_000u64 {
        nested = nested.symbol_at(1, TEXT, 0x100_0000 - number);
    }
    let doubling = (0..40).fold("_Z1fI1aIiiE".to_owned(), |name, step| {
        let back = char::from_digit(step % 36, 36).unwrap().to_uppercase();
        format!("{name}1aIS{back}_S{back}_E")
    });
    let back_references = format!("_RNvC1a{}", "B_".repeat(20_000));
    check(vec![
        ("name-10m", long.program(), Answer("xxxx")),
        ("names-200k", many.program(), Answer("abcd")),
        ("symbol-10m", symbol(&[b'y'; 10_000_000]), Answer("yyyy")),
        (
            "symbols-underscores",
            table.names(&names).bytes(),
            Answer("____"),
        ),
        (
            "symbols-nested",
            nested.names(b"\0n\0").bytes(),
            Answer("n at"),
        ),
        (
            "symbol-pointers",
            symbol(format!("_Z1f{}i", "P".repeat(60_000)).as_bytes()),
            Answer("_Z1fPPP"),
        ),
        (
            "symbol-doubling",
            symbol(format!("{doubling}Evv").as_bytes()),
            Answer("f"),
        ),
        (
            "symbol-templates",
            symbol(format!("_Z1f{}", "I1a".repeat(20_000)).as_bytes()),
            Answer("_Z1fI1a"),
        ),
        (
            "symbol-rust-back",
            symbol(back_references.as_bytes()),
            Answer("_R"),
        ),
        (
            "symbol-rust-deep",
            symbol(format!("_RN{}C1a1b", "vN".repeat(30_000)).as_bytes()),
            Answer("_R"),
        ),
        (
            "symbol-no-utf8",
            symbol(b"bad\xff\xfe\x1b[2J"),
            Answer("bad"),
        ),
    ]);
}

/// Check compressed sections that grow a thousandfold or claim to.
#[test]
fn compressed() {
    let gigabyte = vec![0u8; 1 << 30];
    let zstd = zstd::bulk::compress(&gigabyte, 1).unwrap();
    drop(gigabyte);
    let claim = |method: u32, size: u64, stored: &[u8]| {
        let header = [
            &method.to_le_bytes()[..],
            &[0; 4],
            &size.to_le_bytes(),
            &1u64.to_le_bytes(),
        ]
        .concat();
        named()
            .debug(".debug_info", &[header, stored.to_vec()].concat(), 1 << 11)
            .bytes()
    };
    let older = |size: u64| {
        let stored = [&b"ZLIB"[..], &size.to_be_bytes(), &[0x78, 0x9c, 1, 2, 3]].concat();
        named().debug(".zdebug_info", &stored, 0).bytes()
    };
    let part = zstd::bulk::compress(&vec![0u8; 60 << 20], 1).unwrap();
    let header = [
        &2u32.to_le_bytes()[..],
        &[0; 4],
        &(60u64 << 20).to_le_bytes(),
        &1u64.to_le_bytes(),
    ]
    .concat();
    let stored = [header, part].concat();
    let sections = [
        "info",
        "line",
        "str",
        "abbrev",
        "ranges",
        "rnglists",
        "aranges",
        "addr",
        "line_str",
        "str_offsets",
    ];
    let all = sections.iter().fold(named(), |elf, name| {
        elf.debug(&format!(".debug_{name}"), &stored, 1 << 11)
    });
    check(vec![
        (
            "zstd-1g",
            claim(2, 1 << 30, &zstd),
            Noted("section claims to grow to 1073741824 bytes; symbols stand in"),
        ),
        (
            "zlib-2-46",
            claim(1, 1 << 46, &[0x78, 0x9c]),
            Noted("section claims to grow to 70368744177664 bytes"),
        ),
        (
            "zlib-2-64",
            claim(1, u64::MAX, &[0x78, 0x9c]),
            Noted("section claims to grow to 18446744073709551615 bytes"),
        ),
        (
            "zlib-damaged",
            claim(1, 1000, &[0x78, 0x9c, 0xff, 0xff]),
            Noted("damaged compressed section"),
        ),
        (
            "unknown-method",
            claim(77, 1000, &[1, 2, 3]),
            Noted("unknown compression of a section"),
        ),
        (
            "zdebug-2-63",
            older(1 << 63),
            Noted("section claims to grow to 9223372036854775808 bytes"),
        ),
        (
            "zstd-ten-sections",
            all.bytes(),
            Noted("section claims to grow to 62914560 bytes"),
        ),
    ]);
}

/// Check headers that count to 2^32, lie outside of their file, or lie over each other.
#[test]
fn headers() {
    let changed = |places: &[(usize, &[u8])]| {
        let mut bytes = Elf::new().bytes();
        for (place, value) in places {
            bytes[*place..*place + value.len()].copy_from_slice(value);
        }
        bytes
    };
    let section_count = |count: u64| {
        let mut bytes = changed(&[(60, &[0, 0])]);
        let table = usize::try_from(u64::from_le_bytes(bytes[40..48].try_into().unwrap())).unwrap();
        bytes[table + 32..table + 40].copy_from_slice(&count.to_le_bytes());
        bytes
    };
    check(vec![
        (
            "phnum-2-32",
            changed(&[(56, &[0xff, 0xff])]),
            Answer("401010"),
        ),
        ("shnum-2-32", section_count(1 << 32), Answer("401010")),
        ("shnum-2-64", section_count(u64::MAX), Answer("401010")),
        (
            "shoff-outside",
            changed(&[(40, &[0xff; 8])]),
            Answer("401010"),
        ),
        ("shentsize-0", changed(&[(58, &[0, 0])]), Answer("401010")),
        ("phentsize-1", changed(&[(54, &[1, 0])]), Answer("401010")),
        (
            "shstrndx-outside",
            changed(&[(62, &[0xfe, 0xfe])]),
            Answer("401010"),
        ),
        (
            "text",
            b"\x7fELF but not more than this text, which is long enough for a header".to_vec(),
            Refused("not an ELF file, or its headers are damaged"),
        ),
        (
            "class-9",
            changed(&[(4, &[9])]),
            Refused("not an ELF file, or its headers are damaged"),
        ),
        ("cut", Elf::new().bytes()[..64].to_vec(), Answer("401010")),
    ]);
}

/// Check notes, symbol tables and links that lie over each other, or count to 2^60.
#[test]
fn notes_and_links() {
    let mut notes = named().debug(
        ".note",
        &[4, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, b'X', 0, 0, 0].repeat(500_000),
        0,
    );
    for _ in 0..20_000 {
        notes = notes.note_over_all();
    }
    let odd_note = [
        4u32.to_le_bytes(),
        u32::MAX.to_le_bytes(),
        3u32.to_le_bytes(),
    ]
    .concat();
    let endless = Elf::new()
        .symbol(b"_start", TEXT, 0x100)
        .table_size(1 << 60);
    let link = |name: &[u8]| {
        Elf::new()
            .symbol(b"_start", TEXT, 0x100)
            .debug(".gnu_debuglink", name, 0)
            .bytes()
    };
    check(vec![
        ("notes-20k-times-500k", notes.bytes(), Answer("_start")),
        (
            "note-2-32",
            Elf::new()
                .symbol(b"_start", TEXT, 0x100)
                .debug(".note", &odd_note, 0)
                .bytes(),
            Answer("_start"),
        ),
        ("symtab-2-60", endless.bytes(), Answer("401010")),
        (
            "link-itself",
            link(b"link-itself\0\0\0\0\0"),
            Answer("_start"),
        ),
        ("link-endless", link(&[b'l'; 10_000_000]), Answer("_start")),
    ]);
}
