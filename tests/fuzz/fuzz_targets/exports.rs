//! An archive of any shape through every export: none panics, and the samples and weights of each are those of the archive.
#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use libfuzzer_sys::fuzz_target;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use rawstack_format::id::{Addr, BuildId, FileOffset, FrameIndex, ModuleIndex, StackId, StackIndex};
use rawstack_format::record::{
    Batch, Completion, Event, Frame, FrameKind, Module, ModuleKind, Process, Record, Recording, Sample, StackNode,
    State, Thread,
};
use rawstack_format::{Counters, Writer, WriterOptions};
use rawstack_symbolizer::export::firefox::Firefox;
use rawstack_symbolizer::export::folded::Folded;
use rawstack_symbolizer::export::lines::{CsvLines, JsonLines};
use rawstack_symbolizer::export::otlp::Otlp;
use rawstack_symbolizer::export::parquet::{Dataset, Options, Table};
use rawstack_symbolizer::export::perf_script::PerfScript;
use rawstack_symbolizer::export::perfetto::Perfetto;
use rawstack_symbolizer::export::pprof::Pprof;
use rawstack_symbolizer::export::speedscope::Speedscope;
use rawstack_symbolizer::export::{ExportSample, Exporter, Feed, Halves, Source, export_rows};
use rawstack_symbolizer::profile::rows::{Adder, Apart};
use rawstack_symbolizer::profile::{Filter, Profile, StackTree, load};
use rawstack_symbolizer::report::NameFilter;
use rawstack_symbolizer::symbolize::leave_raw;
use rawstack_symbolizer::symbolized::SymbolizedProfile;
use serde_json::Value;

/// Draws an archive from bytes; zeros when they are used up.
struct Draw<'i>(&'i [u8]);

impl Draw<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn below(&mut self, bound: u32) -> u32 {
        u32::from(self.byte()) % bound
    }

    /// An index that may lead nowhere, or none.
    fn index(&mut self, length: u32) -> u32 {
        match self.below(length + 2) {
            index if index == length + 1 => u32::MAX,
            index => index,
        }
    }

    fn text(&mut self) -> String {
        let texts = ["", "a", "a;b", "x\n\ny", "\"q,", "\u{1b}[2J", "</script>", "ß+0x1", " 7", "(deleted)", "="];
        texts[self.below(11) as usize].to_owned()
    }

    fn offset(&mut self) -> u64 {
        match self.below(4) {
            0 => u64::MAX - u64::from(self.byte()),
            1 => 0,
            _ => u64::from(self.byte()) << self.below(40),
        }
    }

    fn module(&mut self) -> Module {
        use ModuleKind::{Anonymous, BpfProgram, Elf, Kernel, KernelModule, Vdso};
        let kinds = [Elf, Elf, Kernel, KernelModule, Vdso, BpfProgram, Anonymous];
        let id = [self.byte()];
        Module {
            kind: kinds[self.below(7) as usize],
            build_id: BuildId::new(&id).filter(|_| id[0] % 2 == 0),
            path: self.text(),
            ..Module::default()
        }
    }

    fn frame(&mut self, modules: u32) -> Frame {
        use FrameKind::{KernelCaller, KernelLeaf, UserCaller, UserLeaf};
        Frame {
            kind: [UserLeaf, UserCaller, KernelLeaf, KernelCaller][self.below(4) as usize],
            address: Addr(self.offset()),
            module: ModuleIndex(self.index(modules)),
            offset: FileOffset(self.offset()),
        }
    }

    fn state(&mut self) -> State {
        State::ALL[self.below(8) as usize]
    }

    fn sample(&mut self, number: u64, stacks: u32) -> Sample {
        let owner = number - u64::from(self.below(3)).min(number - 1);
        Sample {
            id: StackId(number),
            owner: StackId(owner),
            time_ns: self.offset(),
            cpu: self.below(3),
            pid: self.below(3),
            tid: self.below(4),
            weight: u64::from(self.byte()) << 8,
            state: self.state(),
            kernel_cut: self.below(4) == 0,
            user: StackIndex(self.index(stacks)),
            kernel: StackIndex(self.index(stacks)),
            ..Sample::default()
        }
    }

    fn batch(&mut self) -> Batch {
        let modules: Vec<_> = (0..self.below(4)).map(|_| self.module()).collect();
        let frames: Vec<_> = (0..self.below(8)).map(|_| self.frame(modules.len() as u32)).collect();
        let mut stacks = Vec::new();
        for index in 0..self.below(12) {
            let parent = if index == 0 { u32::MAX } else { self.index(index) };
            let parent = StackIndex(if parent >= index { u32::MAX } else { parent });
            stacks.push(StackNode { parent, frame: FrameIndex(self.index(frames.len() as u32)) });
        }
        let count = stacks.len() as u32;
        let samples: Vec<_> = (1..=u64::from(self.below(20))).map(|number| self.sample(number, count)).collect();
        let completions = (0..self.below(4)).map(|_| Completion {
            owner: StackId(u64::from(self.below(20))),
            state: self.state(),
            user: StackIndex(self.index(count)),
            ..Completion::default()
        });
        let completions = completions.collect();
        let processes = (0..self.below(3)).map(|pid| Process {
            pid, comm: self.text(), cgroup: self.text(), ..Process::default()
        });
        let processes = processes.collect();
        let threads = (0..self.below(3)).map(|tid| Thread { tid, comm: self.text(), ..Thread::default() });
        let threads = threads.collect();
        Batch { processes, threads, modules, frames, stacks, samples, completions, ..Batch::default() }
    }
}

/// The archive; nothing where the format refuses it.
fn archive(input: &[u8]) -> Option<Vec<u8>> {
    let mut draw = Draw(input);
    let event = Event { name: "cpu-clock".to_owned(), unit: "ns".to_owned(), ..Event::default() };
    let recording = Recording {
        events: vec![event],
        start_ns: draw.offset(),
        start_wall_ns: draw.offset(),
        labels: vec![("service".to_owned(), draw.text()), ("service".to_owned(), draw.text())],
        ..Recording::default()
    };
    let mut writer = Writer::new(Vec::new(), WriterOptions::default()).expect("memory does not fail");
    for record in [Record::Recording(recording), Record::Batch(draw.batch())] {
        writer.write(&record, Counters::default()).ok()?;
    }
    Some(writer.finish().expect("memory does not fail"))
}

fn read(path: &Path, shared: &mut load::Shared, each: &mut load::EachSample<'_>) {
    load::read(shared, path, &Filter::default(), each).expect("what was written can be read");
}

fn added_up(path: &Path, apart: Apart) -> Profile {
    let mut shared = load::Shared { tree: StackTree::new(false), ..load::Shared::default() };
    let mut adder = Adder::new(apart);
    read(path, &mut shared, &mut |shared, sample, event| {
        adder.add(shared, sample, event, false);
        Ok(())
    });
    adder.finish(shared)
}

/// What an exporter makes of the samples one by one.
fn one_by_one(path: &Path, named: &SymbolizedProfile, exporter: &mut dyn Exporter) -> Vec<u8> {
    let mut out = Vec::new();
    let source = Source { profile: named, unit: "samples" };
    exporter.start(&source, &mut out).expect("memory does not fail");
    let names = NameFilter::default();
    let mut feed = Feed::new(source, &names);
    let mut again = load::Shared { tree: StackTree::new(false), ..load::Shared::default() };
    read(path, &mut again, &mut |_, sample, event| {
        let (kernel, kernel_cut) = sample.kernel_half(false);
        let halves = Halves { kernel, user: sample.user, end: (sample.row.state, kernel_cut) };
        let (thread, weight) = (sample.thread, sample.row.weight);
        let row = Some(&sample.row);
        feed.give(exporter, ExportSample { thread, event, weight, samples: 1, stack: &[], halves, row }, &mut out)
    });
    exporter.finish(&source, &mut out).expect("memory does not fail");
    out
}

/// Values of the samples of pprof's message: the sums of their numbers and of their weights.
fn pprof_sums(mut bytes: &[u8]) -> (u64, u64) {
    let mut sums = (0, 0);
    while let Some((field, part)) = next_field(&mut bytes) {
        let (2, Some(mut sample)) = (field, part) else { continue };
        while let Some((field, part)) = next_field(&mut sample) {
            if let (2, Some(mut values)) = (field, part) {
                sums.0 += varint(&mut values).expect("a number of samples");
                sums.1 += varint(&mut values).expect("a weight");
            }
        }
    }
    sums
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first < 0x80 {
            return Some(value);
        }
    }
    None
}

/// The next field: its number, and its bytes where it has a length.
fn next_field<'b>(bytes: &mut &'b [u8]) -> Option<(u64, Option<&'b [u8]>)> {
    let tag = varint(bytes)?;
    let value = varint(bytes)?;
    if tag & 7 != 2 {
        return Some((tag >> 3, None));
    }
    let (part, rest) = bytes.split_at(value as usize);
    *bytes = rest;
    Some((tag >> 3, Some(part)))
}

/// Rows and weight of the only file of samples below `folder`.
fn parquet_sums(folder: &Path) -> (u64, u64) {
    let mut path = folder.join("samples");
    while path.is_dir() {
        let mut inside = fs::read_dir(&path).expect("a folder").map(|entry| entry.expect("a name").path());
        path = inside.next().expect("a file");
        assert_eq!(inside.next(), None);
    }
    let file = SerializedFileReader::new(fs::File::open(path).expect("a file")).expect("Parquet");
    let names = file.metadata().file_metadata().schema().get_fields();
    let weight = names.iter().position(|field| field.name() == "weight").expect("a column");
    let rows = file.get_row_iter(None).expect("rows").map(|row| row.expect("a row"));
    rows.fold((0, 0), |sums, row| (sums.0 + 1, sums.1 + row.get_long(weight).expect("a number") as u64))
}

fn check_one_by_one(path: &Path, profile: &SymbolizedProfile, wanted: (u64, u64)) {
    let json = one_by_one(path, profile, &mut JsonLines::default());
    let lines = json.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let weights = lines.map(|line| serde_json::from_slice::<Value>(line).expect("JSON")["weight"].as_u64());
    assert_eq!(weights.fold((0, 0), |sums, weight| (sums.0 + 1, sums.1 + weight.expect("a weight"))), wanted);
    let csv = one_by_one(path, profile, &mut CsvLines::default());
    let mut csv = csv::Reader::from_reader(&csv[..]);
    let weights = csv.records().map(|row| row.expect("a row")[10].parse::<u64>().expect("a weight"));
    assert_eq!(weights.fold((0, 0), |sums, weight| (sums.0 + 1, sums.1 + weight)), wanted);
    let script = String::from_utf8(one_by_one(path, profile, &mut PerfScript)).expect("UTF-8");
    assert_eq!(script.split("\n\n").filter(|block| !block.trim().is_empty()).count() as u64, wanted.0);
    let firefox = one_by_one(path, profile, &mut Firefox::default());
    let firefox: Value = serde_json::from_slice(&firefox).expect("JSON");
    let threads = firefox["threads"].as_array().expect("threads");
    let lengths = threads.iter().map(|thread| thread["samples"]["length"].as_u64().expect("a length"));
    assert_eq!(lengths.sum::<u64>(), wanted.0);
    one_by_one(path, profile, &mut Perfetto::default());
    let folder = path.with_extension("dataset");
    let mut dataset = Dataset::new(Options { folder: folder.clone(), tables: Table::ALL.to_vec(), service: None });
    one_by_one(path, profile, &mut dataset);
    assert_eq!(parquet_sums(&folder), wanted);
    fs::remove_dir_all(folder).expect("a folder");
}

fn check_added_up(profile: &SymbolizedProfile, least: f64, wanted: (u64, u64)) {
    let write = |exporter: &mut dyn Exporter| {
        let mut out = Vec::new();
        export_rows(profile, &NameFilter::default(), least, exporter, &mut out).expect("memory does not fail");
        out
    };
    let folded = String::from_utf8(write(&mut Folded::default())).expect("UTF-8");
    let weights = folded.lines().map(|line| line.rsplit_once(' ').expect("a weight").1.parse::<u64>());
    assert_eq!(weights.map(|weight| weight.expect("a number")).sum::<u64>(), wanted.1);
    let speedscope: Value = serde_json::from_slice(&write(&mut Speedscope::default())).expect("JSON");
    let profiles = speedscope["profiles"].as_array().into_iter().flatten();
    let weights = profiles.flat_map(|profile| profile["weights"].as_array().expect("weights"));
    assert_eq!(weights.map(|weight| weight.as_u64().expect("a weight")).sum::<u64>(), wanted.1);
    if wanted.0 > 0 {
        assert_eq!(pprof_sums(&write(&mut Pprof::default())), wanted);
    }
    write(&mut Otlp::default());
}

fn place() -> PathBuf {
    std::env::temp_dir().join(format!("rawstack-fuzz-exports-{}", process::id()))
}

fuzz_target!(|input: &[u8]| {
    let Some((&least, input)) = input.split_first() else { return };
    let Some(bytes) = archive(input) else { return };
    let path = place();
    fs::write(&path, bytes).expect("the disk takes it");
    let mut wanted = (0, 0);
    let mut shared = load::Shared { tree: StackTree::new(false), ..load::Shared::default() };
    read(&path, &mut shared, &mut |_, sample, _| {
        wanted = (wanted.0 + 1, wanted.1 + sample.row.weight);
        Ok(())
    });
    check_one_by_one(&path, &leave_raw(Adder::default().finish(shared)), wanted);
    check_added_up(&leave_raw(added_up(&path, Apart::Facts)), f64::from(least % 50), wanted);
    let _ = fs::remove_file(&path);
});
