//! An archive with any names of processes, modules and kernel functions, written out in every layout: what comes out can
//! be read by others and never acts on a terminal.
#![no_main]

use std::fs;
use std::path::PathBuf;
use std::process;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use rawstack_format::id::{Addr, FileOffset, FrameIndex, ModuleIndex, StackId, StackIndex};
use rawstack_format::record::{
    Batch, Event, Frame, FrameKind, KernelSymbol, KernelSymbols, Module, Process, Record, Recording, Sample,
    StackNode, State,
};
use rawstack_format::{Counters, Writer, WriterOptions};
use rawstack_symbolizer::debug_file::locate::{Locator, Places};
use rawstack_symbolizer::export::flamegraph::{self, FlamegraphOptions};
use rawstack_symbolizer::profile::rows::{Adder, Apart};
use rawstack_symbolizer::profile::{Filter, StackTree, load};
use rawstack_symbolizer::report::{GroupBy, NameFilter, render, symbols, table};
use rawstack_symbolizer::resolve::{ResolveOptions, Symbolizer};
use rawstack_symbolizer::symbolize::symbolize;
use rawstack_symbolizer::text::Columns;

fn symbolizer() -> &'static Symbolizer {
    static SYMBOLIZER: OnceLock<Symbolizer> = OnceLock::new();
    SYMBOLIZER.get_or_init(|| Symbolizer::new(ResolveOptions { dwarf: false, origins: false }).expect("threads start"))
}

/// An archive of one sample, whose texts are parts of `input`.
fn archive(input: &[u8]) -> Vec<u8> {
    let mut texts = input.split(|&byte| byte == 0xff).map(|part| String::from_utf8_lossy(part).into_owned());
    let mut text = || texts.next().unwrap_or_default();
    let event = Event { name: text(), unit: text(), ..Event::default() };
    let recording = Recording { events: vec![event], host: vec![(text(), text())], ..Recording::default() };
    let symbol = KernelSymbol { offset: 0, kind: b'T', module: String::new(), name: text() };
    let kernel = KernelSymbols { part: 0, parts: 1, symbols: vec![symbol], ..KernelSymbols::default() };
    let user = Frame { address: Addr(0x1000), offset: FileOffset(0x1000), module: ModuleIndex(0), ..Frame::default() };
    let in_kernel = Frame { kind: FrameKind::KernelLeaf, module: ModuleIndex::NONE, ..Frame::default() };
    let node = |frame| StackNode { parent: StackIndex::NONE, frame: FrameIndex(frame) };
    let sample = Sample {
        id: StackId(1), owner: StackId(1), pid: 1, tid: 1, weight: 1, state: State::Complete,
        user: StackIndex(0), kernel: StackIndex(1), ..Sample::default()
    };
    let batch = Batch {
        processes: vec![Process { pid: 1, comm: text(), cgroup: text(), ..Process::default() }],
        modules: vec![Module { path: text(), ..Module::default() }],
        frames: vec![user, in_kernel],
        stacks: vec![node(0), node(1)],
        samples: vec![sample],
        ..Batch::default()
    };
    let mut writer = Writer::new(Vec::new(), WriterOptions::default()).expect("memory does not fail");
    let counters = Counters::default();
    for record in [Record::Recording(recording), Record::KernelSymbols(kernel), Record::Batch(batch)] {
        // Texts that are too long are refused.
        if writer.write(&record, counters).is_err() {
            break;
        }
    }
    writer.finish().expect("memory does not fail")
}

fn place() -> PathBuf {
    std::env::temp_dir().join(format!("rawstack-fuzz-writers-{}", process::id()))
}

fuzz_target!(|input: &[u8]| {
    let path = place();
    fs::write(&path, archive(input)).expect("the disk takes it");
    let filter = Filter::default();
    for (apart, by) in [(Apart::Stacks, GroupBy::Function), (Apart::Processes, GroupBy::Process)] {
        let mut shared = load::Shared { tree: StackTree::new(false), ..load::Shared::default() };
        let mut adder = Adder::new(apart);
        let read = load::read(&mut shared, &path, &filter, &mut |shared, sample, event| {
            adder.add(shared, sample, event, false);
            Ok(())
        });
        if read.is_err() {
            return;
        }
        let locator = Locator::new(Places::default());
        let named = symbolize(adder.finish(shared), &locator, symbolizer(), true, &|_| ());
        let table = table::table(&named, by, &NameFilter::default());
        let (mut json, mut csv, mut text, mut missing) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        render::write_json(&table, &mut json).expect("memory does not fail");
        render::write_csv(&table, &mut csv).expect("memory does not fail");
        render::write_text(&table, Columns(None), &mut text).expect("memory does not fail");
        symbols::write_json(&named, &mut missing).expect("memory does not fail");
        serde_json::from_slice::<serde_json::Value>(&json).expect("a report is JSON");
        for line in missing.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            serde_json::from_slice::<serde_json::Value>(line).expect("a module's line is JSON");
        }
        let text = String::from_utf8(text).expect("a report is UTF-8");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        let options = FlamegraphOptions { title: String::from_utf8_lossy(input).into_owned(), min_percent: 0.0 };
        let mut picture = Vec::new();
        if flamegraph::write(&named, &NameFilter::default(), &options, &mut picture).is_ok() {
            let picture = String::from_utf8(picture).expect("a picture is UTF-8");
            assert_eq!(picture.matches("<script").count(), 1, "{picture}");
        }
    }
    let _ = fs::remove_file(&path);
});
