//! Archives whose copies of stacks were made to kill their reader: each is answered within 5 seconds of CPU time and 512 MiB,
//! and what was not followed to its end is told.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use rawstack_format::copies::{CopiesBuilder, NewCopy, Registers, StackCopies, X86_64};
use rawstack_format::id::{Addr, BuildId, FileOffset, ModuleIndex, StackId};
use rawstack_format::record::{Mapping, Module, ModuleKind, Record, Sample, Segment};

use super::archive::Archive;
use super::killer_elf::{Elf, TEXT};
use super::killers::{CPU_SECONDS, MEMORY_KIB};

const STACK: u64 = 0x7fff_0000_0000;
const CODE: u64 = 0x5555_0000_0000;
/// Bytes of the largest copy that a recorder takes.
const LARGEST: u64 = 512 << 10;
/// Return addresses that are copied at most in one archive.
const WORDS: u64 = LARGEST / 8;

const BUILD_ID: [u8; 8] = [1; 8];
/// Places in the program's functions.
const PLAIN: u64 = 0x20;
const ENDLESS: u64 = 0x120;

/// A program: `_start`, whose return address lies at the stack pointer, and a signal frame whose
/// caller has the same stack pointer.
fn program() -> Vec<u8> {
    let entry = |head: &[u8], instructions: &[u8]| {
        let length = u32::try_from(head.len() + instructions.len()).unwrap();
        [&length.to_le_bytes(), head, instructions].concat()
    };
    // Versions 1, factors 1 and -8, return address in column 16; the second CIE's functions are signal frames.
    let plain = entry(
        &[0xff, 0xff, 0xff, 0xff, 1, 0, 1, 0x78, 16],
        &[0x0c, 7, 8, 0x90, 1],
    );
    let returns = [0x0c, 7, 0, 0x11, 16, 0];
    let signal = entry(
        &[0xff, 0xff, 0xff, 0xff, 1, b'z', b'S', 0, 1, 0x78, 16, 0],
        &returns,
    );
    let function = |common: usize, start: u64, more: &[u8]| {
        let common = u32::try_from(common).unwrap().to_le_bytes();
        let head = [
            &common[..],
            &start.to_le_bytes(),
            &0x100_u64.to_le_bytes(),
            more,
        ];
        entry(&head.concat(), &[])
    };
    let first = function(0, TEXT, &[]);
    let second = function(plain.len() + first.len(), TEXT + 0x100, &[0]);
    let table = [plain, first, signal, second].concat();
    let note = [
        &[4, 0, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0][..],
        b"GNU\0",
        &BUILD_ID,
    ]
    .concat();
    Elf::new()
        .symbol(b"_start", TEXT, 0x100)
        .debug(".note.gnu.build-id", &note, 2)
        .debug(".debug_frame", &table, 0)
        .bytes()
}

/// As many copies as a chunk takes, at most `most`: of thread `tid` at `leaf`, with these words.
fn chunk(first: u64, most: u64, copy: impl Fn(u64) -> (u32, u64, Vec<u64>)) -> (StackCopies, u64) {
    let mut builder = CopiesBuilder::default();
    for number in 0..most {
        let (tid, leaf, words) = copy(number);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut registers = Registers::default();
        registers.set(7, STACK);
        registers.set(16, CODE + leaf);
        let span = bytes.len() as u64;
        let taken = builder.push(&NewCopy {
            owner: StackId(first + number),
            pid: 7,
            tid,
            machine: X86_64,
            registers,
            start: Addr(STACK),
            end: Addr(STACK + span),
            asked: span,
            bytes: &bytes,
            ..NewCopy::default()
        });
        if !taken.unwrap() {
            return (builder.take(), number);
        }
    }
    (builder.take(), most)
}

/// An archive of `chunks` chunks of such copies, each with a sample.
fn archive(folder: &Path, chunks: u64, most: u64, copy: impl Fn(u64, u64) -> (u32, u64, Vec<u64>)) {
    fs::write(folder.join("program"), program()).unwrap();
    let mut archive = Archive::new();
    let segment = Segment {
        offset: FileOffset(0),
        vaddr: TEXT,
        file_size: 0x1000,
        flags: 5,
    };
    let module = archive.module(Module {
        kind: ModuleKind::Elf,
        machine: X86_64,
        build_id: BuildId::new(&BUILD_ID),
        path: folder.join("program").to_str().unwrap().to_owned(),
        segments: vec![segment],
        page_size: 4096,
        ..Module::default()
    });
    assert_eq!(module, ModuleIndex(0));
    archive.process(7, "x", "/");
    archive.mapping(Mapping {
        pid: 7,
        start: Addr(CODE),
        end: Addr(CODE + 0x1000),
        module,
        ..Mapping::default()
    });
    let mut first = 1;
    for number in 0..chunks {
        let (copies, count) = chunk(first, most, |row| copy(number, row));
        archive.record(Record::StackCopies(copies));
        for row in 0..count {
            let (tid, ..) = copy(number, row);
            let id = archive.sample(Sample {
                pid: 7,
                tid,
                ..Sample::default()
            });
            assert_eq!(id, StackId(first + row));
        }
        archive.end_batch();
        first += count;
    }
    archive.write(folder, "a.rawstack");
}

fn run(folder: &Path, args: &[&str]) -> Output {
    let limited = format!(
        "ulimit -d {MEMORY_KIB}; ulimit -t {CPU_SECONDS}; exec timeout -s KILL 120 \"$0\" \"$@\""
    );
    Command::new("sh")
        .args(["-c", &limited, env!("CARGO_BIN_EXE_rawstack")])
        .args(args)
        .current_dir(folder)
        .output()
        .unwrap()
}

/// Check that each verb that unwinds comes to its end, and that the report tells `end` of some stacks.
fn check(folder: &Path, end: &str) {
    let given = ["--symbol-dir", "."];
    for args in [
        &["report", "-q", "--json", "a.rawstack"][..],
        &["dump", "a.rawstack", "-o", "dumped"],
        &["scrub", "a.rawstack", "-o", "scrubbed"],
    ] {
        let output = run(folder, &[args, &given].concat());
        let told = String::from_utf8_lossy(&output.stderr);
        let told: String = told.chars().take(500).collect();
        assert!(
            output.status.success(),
            "{args:?}: {:?}\n{told}",
            output.status
        );
    }
    let info = run(
        folder,
        &["info", "--json", "a.rawstack", "--symbol-dir", "."],
    );
    let info = String::from_utf8_lossy(&info.stdout).into_owned();
    assert!(info.contains(&format!("\"{end}\":")), "{info}");
}

/// Check stacks that never end, as many as fit, in a file of some kilobytes.
#[test]
fn endless_stacks() {
    let folder = tempfile::tempdir().unwrap();
    archive(folder.path(), 4, u64::MAX, |_, _| {
        (7, ENDLESS, vec![CODE + ENDLESS])
    });
    check(folder.path(), "too_deep");
}

/// Check the deepest stacks that there can be, of as many threads as fit: what is kept of each is bounded in all.
#[test]
fn deep_stacks_of_many_threads() {
    let folder = tempfile::tempdir().unwrap();
    let words = vec![CODE + PLAIN; usize::try_from(WORDS).unwrap()];
    archive(folder.path(), 2, u64::MAX, |_, row| {
        (u32::try_from(row).unwrap() + 7, PLAIN, words.clone())
    });
    check(folder.path(), "too_deep");
}

/// Check deep stacks of which no two have a caller in common.
#[test]
fn stacks_with_nothing_in_common() {
    let folder = tempfile::tempdir().unwrap();
    archive(folder.path(), 2, u64::MAX, |chunk, row| {
        let mut words = vec![CODE + PLAIN; usize::try_from(WORDS).unwrap() - 600];
        words.push(CODE + chunk);
        words.extend(vec![CODE + PLAIN + row % 0x80; 500]);
        (7, PLAIN, words)
    });
    check(folder.path(), "too_deep");
}
