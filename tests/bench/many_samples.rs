//! Writes an archive of many samples, and a perf.data of as many as are asked for: the same stacks in the same order.
//!
//! `many-samples SAMPLES STACKS ARCHIVE PERF_SAMPLES PERF_DATA ELF…`: STACKS are distinct; code addresses are those of
//! the ELF files' functions.
#![allow(
    clippy::unwrap_used,
    reason = "a helper of the benchmark fails with it"
)]

use std::collections::HashMap;
use std::env;
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use rawstack_format::id::{Addr, FileOffset, FrameIndex, ModuleIndex, StackId, StackIndex};
use rawstack_format::record::{
    Batch, End, Event, Frame, FrameKind, Module, Process, Record, Recording, Run, Sample,
    StackNode, State, Thread,
};
use rawstack_format::{Counters, Writer, WriterOptions};
use rawstack_symbolizer::debug_file::elf::{ElfFile, PF_X};

/// Functions that stacks are made of.
const FUNCTIONS: usize = 20_000;
/// Rows of one batch.
const ROWS: usize = 4096;
/// Processes and their threads.
const PIDS: u32 = 8;
/// Runs that samples are divided into.
const RUNS: u64 = 5;
/// Time between samples, which is also their weight.
const STEP_NS: u64 = 1_000_000;
const FUNC: u8 = 2;

/// A number that is the same each time and looks like chance (splitmix64).
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A function: module and offset in its file.
#[derive(Clone, Copy)]
struct Function {
    module: u32,
    offset: u64,
}

/// Where module number `module` is mapped: all of its file at one bias, as far as code goes.
fn base(module: u32) -> u64 {
    0x7f00_0000_0000 + u64::from(module) * (1 << 32)
}

struct Workload {
    modules: Vec<Module>,
    functions: Vec<Function>,
    /// Distinct stacks.
    stacks: u64,
}

impl Workload {
    fn of(paths: &[String], stacks: u64) -> Self {
        let (mut modules, mut all) = (Vec::new(), Vec::new());
        for (number, path) in (0u32..).zip(paths) {
            let file = ElfFile::open(Path::new(path)).unwrap();
            let code: Vec<_> = file
                .segments
                .iter()
                .filter(|s| s.flags & PF_X != 0)
                .collect();
            file.for_each_symbol(&mut |symbol| {
                let within = |s: &&&rawstack_format::record::Segment| {
                    symbol.svma >= s.vaddr && symbol.svma - s.vaddr < s.file_size
                };
                if symbol.kind == FUNC
                    && symbol.size > 8
                    && let Some(segment) = code.iter().find(within)
                {
                    let offset = segment.offset.0 + (symbol.svma - segment.vaddr) + 5;
                    all.push(Function {
                        module: number,
                        offset,
                    });
                }
            });
            modules.push(Module {
                class: file.class,
                machine: file.machine,
                page_size: 4096,
                build_id: file.build_id.clone(),
                path: path.clone(),
                segments: file.segments.clone(),
                ..Module::default()
            });
        }
        let pick = |n: usize| all[usize::try_from(mix(n as u64) % all.len() as u64).unwrap()];
        Self {
            modules,
            functions: (0..FUNCTIONS).map(pick).collect(),
            stacks,
        }
    }

    /// Functions of a stack, root first: near stacks share their outer frames.
    fn stack(&self, stack: u64) -> impl Iterator<Item = usize> + '_ {
        let depth = 12 + mix(stack / 64) % 24;
        (0..depth).map(move |level| {
            // The outermost frame is shared by all, the innermost is the stack's own.
            let shared = stack >> (18u64.saturating_sub(level * 18 / (depth - 1)));
            usize::try_from(mix(shared ^ (level << 40)) % FUNCTIONS as u64).unwrap()
        })
    }

    /// The stack of a sample: some are met much more often than others.
    fn choose(&self, sample: u64) -> u64 {
        // The third power of an even number in 0..1, in 32 bits.
        let even = mix(sample ^ 0x5eed) >> 32;
        let cube = (((even * even) >> 32) * even) >> 32;
        ((cube * self.stacks) >> 32).min(self.stacks - 1)
    }
}

fn thread_of(sample: u64) -> (u32, u32) {
    let pid = 1000 + u32::try_from(mix(sample) % u64::from(PIDS)).unwrap() * 10;
    (pid, pid + u32::try_from(mix(sample + 1) % 4).unwrap())
}

/// An archive as a recorder would write it: tables first met, then samples.
struct Archive {
    writer: Writer<BufWriter<File>>,
    batch: Batch,
    counters: Counters,
    stacks: Vec<StackIndex>,
    /// Nodes of the prefix tree: each is written once, as a recorder does.
    nodes: HashMap<(StackIndex, u32), StackIndex>,
    next_stack: u32,
    next_frame: u32,
}

impl Archive {
    fn flush(&mut self) {
        let next = Batch {
            first_module: self.batch.first_module
                + u32::try_from(self.batch.modules.len()).unwrap(),
            first_frame: self.next_frame,
            first_stack: self.next_stack,
            ..Batch::default()
        };
        let done = std::mem::replace(&mut self.batch, next);
        self.counters.ids += done.samples.len() as u64;
        self.writer
            .write(&Record::Batch(done), self.counters)
            .unwrap();
    }

    fn tables(&mut self, workload: &Workload) {
        self.batch.modules.clone_from(&workload.modules);
        for pid in (0..PIDS).map(|number| 1000 + number * 10) {
            let comm = format!("server-{pid}");
            self.batch.processes.push(Process {
                pid,
                comm: comm.clone(),
                ..Process::default()
            });
            self.batch.threads.extend((pid..pid + 4).map(|tid| Thread {
                pid,
                tid,
                comm: comm.clone(),
                ..Thread::default()
            }));
        }
        self.flush();
        for kind in [FrameKind::UserCaller, FrameKind::UserLeaf] {
            for function in &workload.functions {
                let (module, offset) = (ModuleIndex(function.module), FileOffset(function.offset));
                let address = Addr(base(function.module) + function.offset);
                self.batch.frames.push(Frame {
                    kind,
                    address,
                    module,
                    offset,
                });
                self.next_frame += 1;
                if self.batch.frames.len() == ROWS {
                    self.flush();
                }
            }
        }
    }

    fn samples(&mut self, workload: &Workload, samples: u64) {
        for number in 0..samples {
            let user = self.stack(workload, workload.choose(number));
            let (pid, tid) = thread_of(number);
            let id = StackId(number + 1);
            self.batch.samples.push(Sample {
                id,
                owner: id,
                time_ns: number * STEP_NS,
                cpu: u32::try_from(number % 2).unwrap(),
                pid,
                tid,
                weight: STEP_NS,
                run: u32::try_from(number * RUNS / samples).unwrap(),
                state: State::Complete,
                user,
                kernel: StackIndex::NONE,
                ..Sample::default()
            });
            if self.batch.samples.len().max(self.batch.stacks.len()) >= ROWS {
                self.flush();
            }
        }
        self.flush();
    }

    fn stack(&mut self, workload: &Workload, stack: u64) -> StackIndex {
        let known = self.stacks[usize::try_from(stack).unwrap()];
        if known != StackIndex::NONE {
            return known;
        }
        let functions: Vec<usize> = workload.stack(stack).collect();
        let mut parent = StackIndex::NONE;
        for (level, function) in functions.iter().enumerate() {
            let leaf = level + 1 == functions.len();
            // Callers have the first frame indices, leaves those behind.
            let frame = u32::try_from(function + if leaf { FUNCTIONS } else { 0 }).unwrap();
            parent = *self.nodes.entry((parent, frame)).or_insert_with(|| {
                let node = StackNode {
                    parent,
                    frame: FrameIndex(frame),
                };
                self.batch.stacks.push(node);
                self.next_stack += 1;
                StackIndex(self.next_stack - 1)
            });
        }
        self.stacks[usize::try_from(stack).unwrap()] = parent;
        parent
    }
}

fn write_archive(path: &str, workload: &Workload, samples: u64) {
    let writer = Writer::new(
        BufWriter::new(File::create(path).unwrap()),
        WriterOptions::default(),
    )
    .unwrap();
    let mut archive = Archive {
        writer,
        batch: Batch::default(),
        counters: Counters::default(),
        stacks: vec![StackIndex::NONE; usize::try_from(workload.stacks).unwrap()],
        nodes: HashMap::new(),
        next_stack: 0,
        next_frame: 0,
    };
    let event = Event {
        name: "cpu-clock".to_owned(),
        unit: "ns".to_owned(),
        period: STEP_NS,
        frequency: 0,
    };
    let recording = Recording {
        events: vec![event],
        ..Recording::default()
    };
    archive
        .writer
        .write(&Record::Recording(recording), Counters::default())
        .unwrap();
    archive.tables(workload);
    archive.samples(workload, samples);
    let length_ns = samples * STEP_NS / RUNS;
    let runs = (0..RUNS).map(|run| Run {
        run: u32::try_from(run).unwrap(),
        start_ns: run * length_ns,
        end_ns: (run + 1) * length_ns,
        work: 1.0,
        exit: 0,
    });
    let runs = Record::Runs(runs.collect());
    archive.writer.write(&runs, archive.counters).unwrap();
    let mut states = [0; 8];
    states[State::Complete as usize] = samples;
    let end = End {
        end_ns: samples * STEP_NS,
        reserved: samples,
        states,
        exit: -1,
        ..End::default()
    };
    archive
        .writer
        .write(&Record::End(end), archive.counters)
        .unwrap();
    archive.writer.finish().unwrap().flush().unwrap();
}

/// Bytes of `perf_event_attr`, of its first version with all that is set here.
const ATTR: usize = 64;
/// Bytes of the file's header.
const HEADER: usize = 104;

fn record(out: &mut BufWriter<File>, kind: u32, misc: u16, body: &[u8]) {
    out.write_all(&kind.to_le_bytes()).unwrap();
    out.write_all(&misc.to_le_bytes()).unwrap();
    let length = u16::try_from(body.len() + 8).unwrap();
    out.write_all(&length.to_le_bytes()).unwrap();
    out.write_all(body).unwrap();
}

fn text(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.resize((bytes.len() + 1).next_multiple_of(8), 0);
    bytes
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A perf.data with one event, and nothing that its readers can do without.
fn write_perf(path: &str, workload: &Workload, samples: u64) {
    let mut out = BufWriter::new(File::create(path).unwrap());
    out.write_all(&[0; HEADER]).unwrap();
    let mut attr = vec![0u8; ATTR];
    attr[0..4].copy_from_slice(&1u32.to_le_bytes()); // PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK (0)
    attr[4..8].copy_from_slice(&64u32.to_le_bytes());
    attr[16..24].copy_from_slice(&STEP_NS.to_le_bytes());
    // IP, TID, TIME, CALLCHAIN, PERIOD.
    attr[24..32].copy_from_slice(&(1u64 | 2 | 4 | 0x20 | 0x100).to_le_bytes());
    out.write_all(&attr).unwrap();
    out.write_all(&[0; 16]).unwrap(); // its IDs: none
    let start = (HEADER + ATTR + 16) as u64;
    for pid in (0..PIDS).map(|number| 1000 + number * 10) {
        let id = [pid.to_le_bytes(), pid.to_le_bytes()].concat();
        record(
            &mut out,
            3,
            0,
            &[id.clone(), text(&format!("server-{pid}"))].concat(),
        );
        for (number, module) in (0u32..).zip(&workload.modules) {
            // The whole file in one mapping, as the archive has it.
            let facts = words(&[base(number), 1 << 31, 0]);
            let (device, flags) = (vec![0; 24], words(&[5 | 2 << 32]));
            record(
                &mut out,
                10,
                2,
                &[id.clone(), facts, device, flags, text(&module.path)].concat(),
            );
        }
    }
    for number in 0..samples {
        let (pid, tid) = thread_of(number);
        let functions: Vec<usize> = workload.stack(workload.choose(number)).collect();
        let addresses = functions.iter().rev().map(|&function| {
            let function = workload.functions[function];
            base(function.module) + function.offset
        });
        let chain: Vec<u64> = [0u64.wrapping_sub(512)]
            .into_iter()
            .chain(addresses)
            .collect();
        let mut body = words(&[chain[1]]);
        body.extend([pid.to_le_bytes(), tid.to_le_bytes()].concat());
        body.extend(words(&[number * STEP_NS, STEP_NS, chain.len() as u64]));
        body.extend(words(&chain));
        record(&mut out, 9, 2, &body);
    }
    let size = out.stream_position().unwrap() - start;
    out.seek(SeekFrom::Start(0)).unwrap();
    out.write_all(b"PERFILE2").unwrap();
    let (header, attr) = (HEADER as u64, ATTR as u64 + 16);
    let rest = [header, attr, header, attr, start, size, 0, 0, 0, 0, 0, 0];
    out.write_all(&words(&rest)).unwrap();
    out.flush().unwrap();
}

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let [
        samples,
        stacks,
        archive,
        perf_samples,
        perf_data,
        files @ ..,
    ] = &args[..]
    else {
        panic!("many-samples SAMPLES STACKS ARCHIVE PERF_SAMPLES PERF_DATA ELF…");
    };
    let workload = Workload::of(files, stacks.parse().unwrap());
    write_archive(archive, &workload, samples.parse().unwrap());
    write_perf(perf_data, &workload, perf_samples.parse().unwrap());
}
