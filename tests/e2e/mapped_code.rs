//! What archives with copies of stacks say of the code of their processes: all of it, since only unwinding tells what of it
//! a stack needs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::BufReader;
use std::path::Path;

use rawstack_format::Reader;
use rawstack_format::copies::CopyLoss;
use rawstack_format::record::{Mapping, Module, ModuleKind, Record};
use rawstack_test_support::programs::workload;

use crate::recording::{Lab, text};

/// What an archive says of mappings, and which processes have copies.
#[derive(Default)]
struct Known {
    mappings: Vec<(Mapping, Option<Module>)>,
    copies: BTreeMap<u32, u64>,
}

impl Known {
    fn read(archive: &Path) -> Self {
        let file = BufReader::new(fs::File::open(archive).unwrap());
        let mut reader = Reader::new(file).unwrap();
        let mut known = Self::default();
        let mut modules: HashMap<(u32, u32), Module> = HashMap::new();
        while let Some(chunk) = reader.next().unwrap() {
            match chunk.record {
                Some(Record::StackCopies(copies)) => {
                    let mut reader = copies.reader();
                    while let Some(copy) = reader.next() {
                        if copy.loss == CopyLoss::None {
                            *known.copies.entry(copy.pid).or_default() += 1;
                        }
                    }
                }
                Some(Record::Batch(batch)) => {
                    for (index, module) in (batch.first_module..).zip(batch.modules) {
                        modules.insert((batch.epoch, index), module);
                    }
                    for mapping in batch.mappings {
                        let index = mapping.module.get();
                        let module = index.and_then(|index| modules.get(&(batch.epoch, index)));
                        known.mappings.push((mapping, module.cloned()));
                    }
                }
                _ => {}
            }
        }
        known
    }

    /// Whether it knows what a line of `/proc/PID/maps` says.
    fn has(&self, pid: u32, line: &str) -> bool {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = words[0].split_once('-').unwrap();
        let hex = |text| u64::from_str_radix(text, 16).unwrap();
        let (start, end, offset) = (hex(start), hex(end), hex(words[2]));
        let path = words.get(5).copied().unwrap_or_default();
        self.mappings.iter().any(|(mapping, module)| {
            let Some(module) = module else { return false };
            let is_module = match path {
                "" => module.kind == ModuleKind::Anonymous,
                "[vdso]" => module.kind == ModuleKind::Vdso,
                path => {
                    mapping.path == path && module.build_id.is_some() && !module.segments.is_empty()
                }
            };
            let range = (mapping.start.0, mapping.end.0);
            let has_offset = path.is_empty() || mapping.offset.0 == offset;
            mapping.pid == pid && range == (start, end) && has_offset && is_module
        })
    }
}

/// Check that all code of a process that has copies is told, with build ID and segments: what was mapped before the
/// recording's first look and after it, and of programs that were gone in milliseconds.
#[test]
fn all_code() {
    let lab = Lab::new();
    let options = ["-F", "4999", "--unwind", "stack-copy"];
    let recording = lab.record(&options, &[text(&workload("mapped")), "0.2"]);
    let known = Known::read(&recording.archive);
    let (mut processes, mut lines) = (BTreeSet::new(), 0);
    for line in recording.output.stdout.lines() {
        let rest = line.strip_prefix("code ").unwrap();
        let (pid, line) = rest.split_once(' ').unwrap();
        let pid = pid.parse().unwrap();
        // What is not sampled behind its start may have been mapped later than it was copied.
        let is_copied = known.copies.get(&pid).is_some_and(|&copies| copies > 10);
        if is_copied && !line.ends_with("[vsyscall]") {
            assert!(
                known.has(pid, line),
                "process {pid}: {line}\n{:#?}",
                known.mappings
            );
            processes.insert(pid);
            lines += 1;
        }
    }
    assert!(processes.len() > 10, "{} processes", processes.len());
    assert!(lines > 3 * processes.len(), "{lines} lines");
}

/// Check that where stacks are not copied, only mappings that frames lie in are told.
#[test]
fn no_more_than_needed() {
    let lab = Lab::new();
    let recording = lab.record(&["-F", "499"], &[text(&workload("mapped")), "0.2"]);
    let known = Known::read(&recording.archive);
    let is_libm = |path: &str| path.contains("/libm.so");
    assert!(!known.mappings.is_empty());
    assert!(
        !known
            .mappings
            .iter()
            .any(|(mapping, _)| is_libm(&mapping.path))
    );
}
