//! Unwound stacks beside those of gdb: registers and stack bytes of programs without frame pointers, stopped anywhere.
//!
//! `tests/unwind/sample.py` takes the samples. `make test` takes a few hundred; with `UNWIND_SAMPLES` as many as that.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rawstack_format::record::Module;
use rawstack_symbolizer::debug_file::elf::ElfFile;
use rawstack_symbolizer::debug_file::locate::{FoundBy, ModuleFiles};
use rawstack_symbolizer::debug_file::mmap::FileBytes;
use rawstack_symbolizer::unwind::{
    AddressSpace, CopiedStack, End, FoundBy as By, Machine, Mapped, ModuleId, Registers,
    StackMemory, Unwinder, Unwound,
};

/// Samples of each program that a usual run takes.
const USUAL: usize = 120;
/// Samples of each stop, one instruction apart.
const STEPS: usize = 4;
/// Frames that gdb was asked for.
const MOST_FRAMES: usize = 1000;

/// A sample with what gdb says of it.
#[derive(Debug)]
struct Sample {
    space: usize,
    registers: Registers,
    copies: Vec<(u64, Vec<u8>)>,
    frames: Vec<u64>,
    is_outermost: bool,
}

/// Samples of a program, with its address spaces.
#[derive(Debug, Default)]
struct Samples {
    unwinder: Unwinder,
    spaces: Vec<AddressSpace>,
    samples: Vec<Sample>,
}

/// Reads what `sample.py` wrote.
struct Words<'b>(&'b [u8]);

impl<'b> Words<'b> {
    fn word(&mut self) -> u64 {
        let (word, rest) = self.0.split_first_chunk().unwrap();
        self.0 = rest;
        u64::from_le_bytes(*word)
    }

    fn count(&mut self) -> usize {
        usize::try_from(self.word()).unwrap()
    }

    fn bytes(&mut self) -> &'b [u8] {
        let count = self.count();
        let (bytes, rest) = self.0.split_at(count);
        self.0 = rest;
        bytes
    }
}

impl Samples {
    fn read(content: &[u8]) -> Self {
        let mut words = Words(content);
        let mut samples = Self::default();
        let mut known = BTreeMap::new();
        while !words.0.is_empty() {
            match words.word() {
                1 => samples.read_space(&mut words, &mut known),
                _ => samples.read_sample(&mut words),
            }
        }
        samples
    }

    fn read_space(
        &mut self,
        words: &mut Words<'_>,
        known: &mut BTreeMap<String, Option<ModuleId>>,
    ) {
        let mut rows = Vec::new();
        for _ in 0..words.count() {
            let [start, end, offset] = [0; 3].map(|_| words.word());
            let path = String::from_utf8(words.bytes().to_vec()).unwrap();
            rows.push((start, end, offset, path));
        }
        let vdso = words.bytes();
        let unwinder = &mut self.unwinder;
        let mapped = rows.into_iter().map(|(start, end, offset, path)| {
            let module = *known.entry(path.clone()).or_insert_with(|| {
                let file = match path.as_str() {
                    "[vdso]" => ElfFile::parse(Path::new("[vdso]"), FileBytes::from(vdso.to_vec())),
                    path => ElfFile::open(Path::new(path)),
                };
                let files = ModuleFiles {
                    files: vec![(FoundBy::Given, file.ok()?)],
                    ..ModuleFiles::default()
                };
                Some(unwinder.add(Module::default(), files))
            });
            Mapped {
                start,
                end,
                offset,
                module,
            }
        });
        let space = AddressSpace::new(mapped);
        self.spaces.push(space);
    }

    fn read_sample(&mut self, words: &mut Words<'_>) {
        let mut registers = Registers::new(Machine::X86_64);
        for number in 0..17 {
            registers.set(number, words.word());
        }
        let copies = (0..words.count()).map(|_| (words.word(), words.bytes().to_vec()));
        let copies = copies.collect();
        let (count, is_outermost) = (words.count(), words.word() != 0);
        self.samples.push(Sample {
            space: self.spaces.len() - 1,
            registers,
            copies,
            // gdb guesses a caller at 0 where a coroutine's first function has no rule: that is no frame.
            frames: (0..count)
                .map(|_| words.word())
                .filter(|&address| address != 0)
                .collect(),
            is_outermost,
        });
    }

    /// Leave of registers and memory only what a recorder keeps with `--copy-words addresses`: what may be an address of
    /// code, or of the stack further out, or of another stack; and 1 for all else that is not 0.
    fn keep_addresses(&mut self) {
        for sample in &mut self.samples {
            let space = &self.spaces[sample.space];
            let bounds = |(start, bytes): &(u64, Vec<u8>)| (*start, *start + bytes.len() as u64);
            let parts: Vec<(u64, u64)> = sample.copies.iter().map(bounds).collect();
            let before = sample.copies.clone();
            // Of what was not copied nothing is known.
            let may_be_code = |place: u64| {
                let copied = before.iter().find_map(|(start, bytes)| {
                    let at = usize::try_from(place.checked_sub(*start)?).ok()?;
                    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
                });
                copied.is_none_or(|word| space.find(word).is_some())
            };
            let is_pointer = |word: u64, place: u64| {
                let is_above = |&(start, end): &(u64, u64)| {
                    let own = (start..end).contains(&place);
                    (start..=end).contains(&word) && !(own && word <= place)
                };
                word.is_multiple_of(8) && parts.iter().any(is_above)
            };
            // A return address is near what points at a frame, or behind the pointer itself.
            let is_frame = |word: u64, place: u64| {
                (-1..=7).any(|at| may_be_code(word.wrapping_add_signed(at * 8)))
                    || may_be_code(place + 8)
            };
            let is_kept = |word: u64, place: u64| {
                space.find(word).is_some() || is_pointer(word, place) && is_frame(word, place)
            };
            for (start, bytes) in &mut sample.copies {
                // As words lie in memory, wherever the copy begins.
                let skipped = (start.wrapping_neg() % 8) as usize;
                for (number, word) in bytes[skipped..]
                    .as_chunks_mut::<8>()
                    .0
                    .iter_mut()
                    .enumerate()
                {
                    let place = *start + skipped as u64 + number as u64 * 8;
                    let value = u64::from_le_bytes(*word);
                    if value != 0 && !is_kept(value, place) {
                        *word = 1_u64.to_le_bytes();
                    }
                }
            }
            let mut kept = Registers::new(Machine::X86_64);
            let leaf = sample.registers.get(7).unwrap_or(0).wrapping_sub(128);
            for number in 0..17 {
                let value = sample.registers.get(number).unwrap_or(0);
                let is_needed = space.find(value).is_some() || is_pointer(value, leaf);
                let is_end = number == 6 && value == 0;
                if number == 7 || number == 16 || is_end || is_needed {
                    kept.set(number, value);
                }
            }
            sample.registers = kept;
        }
    }

    /// Unwind all of them, with so many threads.
    fn unwind(&mut self, threads: usize) -> Vec<Unwound> {
        let parts: Vec<Vec<(u64, &[u8])>> = self
            .samples
            .iter()
            .map(|sample| {
                sample
                    .copies
                    .iter()
                    .map(|(start, bytes)| (*start, &bytes[..]))
                    .collect()
            })
            .collect();
        let stacks: Vec<CopiedStack<'_>> = self
            .samples
            .iter()
            .zip(&parts)
            .map(|(sample, parts)| CopiedStack {
                registers: sample.registers,
                memory: StackMemory {
                    parts,
                    end: 0,
                    replaced: &[],
                },
                space: &self.spaces[sample.space],
            })
            .collect();
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| self.unwinder.unwind_all(&stacks))
    }
}

/// A workload, built where it is not there yet.
fn workload(name: &str) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = Path::new(env!("CARGO_BIN_EXE_rawstack"))
        .ancestors()
        .nth(2)
        .unwrap();
    let out = target.join("workloads");
    let made = Command::new("make")
        .args(["-s", "-C"])
        .arg(here.join("../tests/workloads"))
        .arg(format!("OUT={}", out.display()))
        .arg(name)
        .status();
    assert!(made.unwrap().success());
    out.join(name)
}

/// Let gdb take `count` samples of `program`, given `argument`.
fn take(program: &Path, argument: &str, count: usize) -> Samples {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("samples");
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/unwind/sample.py");
    let gdb = Command::new("gdb")
        .args(["-batch", "-nx", "-x"])
        .arg(&script)
        .arg("--args")
        .arg(program)
        .arg(argument)
        .env("SAMPLES", count.to_string())
        .env("OUT", &out)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let samples = Samples::read(&fs::read(&out).unwrap());
    let said = String::from_utf8_lossy(&gdb.stderr);
    assert!(samples.samples.len() >= count, "{program:?}: {said}");
    samples
}

/// Whether an unwound stack is gdb's: the same addresses, all by rules, and the same end.
fn is_same(sample: &Sample, unwound: &Unwound) -> bool {
    let addresses: Vec<u64> = unwound
        .frames
        .iter()
        .map(|frame| frame.address.0)
        .take(MOST_FRAMES)
        .collect();
    let by_rules = unwound
        .frames
        .iter()
        .all(|frame| frame.by != By::FramePointer);
    let whole = sample.frames.len() < MOST_FRAMES;
    let same_end = !whole || (unwound.end == End::Outermost) == sample.is_outermost;
    addresses == sample.frames && by_rules && same_end
}

fn compare(name: &str) {
    compare_program(name, &workload(name), "3600");
}

fn compare_program(name: &str, program: &Path, argument: &str) {
    let count = env::var("UNWIND_SAMPLES").map_or(USUAL, |text| text.parse().unwrap());
    let mut samples = take(program, argument, count);
    let unwound = samples.unwind(1);
    assert!(
        unwound == samples.unwind(3),
        "{name}: another result with three threads"
    );
    samples.keep_addresses();
    let sifted = samples.unwind(1);
    let other = unwound
        .iter()
        .zip(&sifted)
        .filter(|(all, kept)| all != kept);
    let other: Vec<_> = other.collect();
    println!(
        "{name}: {} stacks are others where only addresses are kept",
        other.len()
    );
    assert!(other.is_empty(), "{other:#?}");
    let mut differing = Vec::new();
    let mut lost = 0;
    for (sample, unwound) in samples.samples.iter().zip(&unwound) {
        if !is_same(sample, unwound) {
            // While libgcc puts a handler's registers in place, no rule is right: gdb takes data for return addresses.
            let space = &samples.spaces[sample.space];
            let is_code = |&address: &u64| space.find(address).is_some();
            if !sample.frames.iter().all(is_code)
                || (!sample.is_outermost && unwound.end == End::Zero)
            {
                assert_ne!(unwound.end, End::Outermost);
                lost += 1;
                continue;
            }
            let ours: Vec<_> = unwound
                .frames
                .iter()
                .map(|frame| format!("{:x}", frame.address.0))
                .collect();
            let gdb: Vec<_> = sample
                .frames
                .iter()
                .map(|address| format!("{address:x}"))
                .collect();
            differing.push(format!(
                "{:?}: {ours:?}\n  gdb, outermost {}: {gdb:?}",
                unwound.end, sample.is_outermost
            ));
        }
    }
    let outermost = unwound
        .iter()
        .filter(|unwound| unwound.end == End::Outermost)
        .count();
    let frames: usize = unwound.iter().map(|unwound| unwound.frames.len()).sum();
    println!(
        "{name}: {} of {} stacks differ, gdb lost {lost}, {outermost} reached the outermost frame, {frames} frames",
        differing.len(),
        unwound.len()
    );
    // One in a hundred; but one stop is several samples.
    assert!(
        lost <= unwound.len() / 100 + 2 * STEPS,
        "gdb lost its way in {lost} stacks"
    );
    // One in a thousand.
    let allowed = unwound.len() / 1000;
    assert!(differing.len() <= allowed, "{}", differing.join("\n"));
}

/// Check that stacks of a C program are gdb's: callbacks of libc, frames of any size and alignment, signal handlers on two
/// stacks, coroutines, functions that do not return, the linkage table, the vDSO.
#[test]
fn c_stacks_are_those_of_gdb() {
    compare("unwound_c");
}

/// Check that stacks of a C++ program are gdb's: exceptions on their way, virtual functions, lambdas in algorithms.
#[test]
fn cpp_stacks_are_those_of_gdb() {
    compare("unwound_cpp");
}

/// Check that stacks of a Rust program are gdb's: closures in sorts, trait objects, panics on their way, formatting.
#[test]
fn rust_stacks_are_those_of_gdb() {
    compare("unwound_rust");
}

/// Check that stacks of an interpreter with its libraries are gdb's.
#[test]
fn python_stacks_are_those_of_gdb() {
    // Of what stands on the path the interpreter itself, which gdb can run.
    let asked = Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .output()
        .unwrap();
    let python = String::from_utf8(asked.stdout).unwrap();
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/unwind/busy.py");
    compare_program(
        "python3",
        Path::new(python.trim()),
        script.to_str().unwrap(),
    );
}
