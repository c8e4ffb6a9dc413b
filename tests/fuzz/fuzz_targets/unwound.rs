//! Any copies of stacks in an archive, with any call frame information of their programs: every sample comes out, the same
//! each time, and what scrubbing makes of it is whole and has the same stacks.
#![no_main]

#[allow(dead_code)]
#[path = "../../symbolizer/killer_elf.rs"]
mod killer_elf;

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;

use killer_elf::{Elf, TEXT};
use libfuzzer_sys::fuzz_target;
use rawstack_format::copies::{CopiesBuilder, CopyLoss, NewCopy, Registers, Span, StackCopies, X86_64};
use rawstack_format::id::{Addr, FileOffset, FrameIndex, ModuleIndex, StackId, StackIndex};
use rawstack_format::record::{
    Batch, Completion, End, Frame, FrameKind, Mapping, Module, Record, Sample, Segment, StackNode, State,
};
use rawstack_format::{Counters, Writer, WriterOptions};
use rawstack_symbolizer::copied::{Stacks, Unwinding};
use rawstack_symbolizer::debug_file::elf::ElfFile;
use rawstack_symbolizer::debug_file::locate::ModuleFiles;
use rawstack_symbolizer::debug_file::mmap::FileBytes;
use rawstack_symbolizer::merge::Inputs;
use rawstack_symbolizer::profile::{Filter, StackTree, load};

const STACK: u64 = 0x7fff_0000_0000;
const FAR: u64 = STACK + 0x10_0000;
const CODE: u64 = 0x1000;
/// Bytes of a stack.
const MOST: usize = 512;

/// What is left of the input.
struct Input<'i>(&'i [u8]);

impl<'i> Input<'i> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn bytes(&mut self, most: usize) -> &'i [u8] {
        let count = usize::from(self.byte()) * 2;
        let (bytes, rest) = self.0.split_at(count.min(most).min(self.0.len()));
        self.0 = rest;
        bytes
    }
}

fn copies(input: &mut Input<'_>, first: u64, count: u64) -> StackCopies {
    let mut builder = CopiesBuilder::default();
    for owner in first..first + count {
        let mut registers = Registers::default();
        let (code, frame, loss) = (input.byte(), input.byte(), input.byte() % 16 == 0);
        registers.set(16, CODE + u64::from(code));
        registers.set(7, STACK);
        // On either stack: what lies on the other one is found through this register alone.
        let stack = if code & 16 == 0 { STACK } else { FAR };
        registers.set(6, stack + u64::from(frame) * 8);
        let bytes = if loss { &[] } else { input.bytes(MOST) };
        let bytes = &bytes[..bytes.len() & !7];
        // With a hole, or with another stack.
        let first = if frame & 2 == 0 { bytes.len() } else { bytes.len() / 16 * 8 };
        let asked = (bytes.len() - first) as u64;
        let far = Span { start: Addr(FAR), end: Addr(FAR + asked), asked };
        let further = if asked > 0 { &[far][..] } else { &[] };
        // What is not copied has no span.
        let more = if loss { 0 } else { u64::from(code & 8) };
        let own = STACK + first as u64 + more;
        let end = if asked > 0 && frame & 4 != 0 { FAR + asked } else { own };
        let copy = NewCopy {
            owner: StackId(owner), pid: 7, tid: 7 + u32::from(frame & 1), machine: X86_64, registers,
            loss: if loss { CopyLoss::BufferFull } else { CopyLoss::None },
            start: Addr(STACK), end: Addr(end), asked: first as u64, further, bytes,
            program_since_ns: u64::from(code & 1) * 3, ..NewCopy::default()
        };
        assert!(builder.push(&copy).expect("the copy is sound"), "a chunk holds so few");
    }
    builder.take()
}

fn batch(input: &mut Input<'_>, epoch: u32, first: u64, count: u64) -> Batch {
    let segment = Segment { offset: FileOffset(0), vaddr: TEXT, file_size: 0x1000, flags: 5 };
    let module = Module { segments: vec![segment], page_size: 4096, path: "m".to_owned(), ..Module::default() };
    let mapping = |since_ns| Mapping {
        pid: 7, start: Addr(CODE), end: Addr(CODE + 0x1000), since_ns, module: ModuleIndex(0), ..Mapping::default()
    };
    let frame = |kind, offset: u64| Frame {
        kind, address: Addr(CODE + offset), module: ModuleIndex(0), offset: FileOffset(offset),
    };
    let frames = vec![
        frame(FrameKind::UserCaller, input.byte().into()), frame(FrameKind::UserLeaf, input.byte().into()),
    ];
    let node = |parent, frame| StackNode { parent, frame: FrameIndex(frame) };
    let stacks = vec![node(StackIndex::NONE, 0), node(StackIndex(0), 1), node(StackIndex(1), 0)];
    let mut batch = Batch {
        epoch, modules: vec![module], mappings: vec![mapping(u64::from(input.byte() & 7))], frames, stacks,
        ..Batch::default()
    };
    for id in first..first + count {
        let choice = input.byte();
        let user = [StackIndex(0), StackIndex(1), StackIndex(2), StackIndex::NONE][usize::from(choice & 3)];
        let state = if choice & 4 == 0 { State::Complete } else { State::Pending };
        batch.samples.push(Sample {
            id: StackId(id), owner: StackId(id), pid: 7, tid: 7, weight: 1, time_ns: (choice & 7).into(), state,
            user: if state == State::Pending { StackIndex::NONE } else { user }, ..Sample::default()
        });
        if state == State::Pending && choice & 8 == 0 {
            batch.completions.push(Completion { owner: StackId(id), user, ..Completion::default() });
        }
    }
    batch
}

fn archive(input: &mut Input<'_>) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), WriterOptions::default()).expect("memory does not fail");
    let (mut first, mut states, mut counters) = (1, [0; 8], Counters::default());
    for _ in 0..1 + input.byte() % 3 {
        let (count, epoch) = (u64::from(input.byte() % 8), u32::from(input.byte() & 1));
        let told = copies(input, first, count);
        writer.write(&Record::StackCopies(told), counters).expect("copies are sound");
        let batch = batch(input, epoch, first, count);
        for sample in &batch.samples {
            let is_done = batch.completions.iter().any(|row| row.owner == sample.owner);
            states[if is_done { State::Complete } else { sample.state } as usize] += 1;
        }
        counters.ids += count;
        writer.write(&Record::Batch(batch), counters).expect("a batch is sound");
        first += count;
    }
    let end = End { reserved: counters.ids, states, ..End::default() };
    writer.write(&Record::End(end), counters).expect("an end is sound");
    writer.finish().expect("memory does not fail")
}

fn unwinding(file: &[u8], stacks: Stacks) -> Unwinding {
    let file = file.to_vec();
    Unwinding::new(stacks, Arc::new(move |_| {
        let bytes = FileBytes::from(file.clone());
        ModuleFiles::given(ElfFile::parse(Path::new("m"), bytes).expect("the headers are sound"))
    }))
}

/// Addresses of each user half, whether it reached its end, and whether all is as it should be.
fn read(path: &Path, unwinding: Option<Unwinding>) -> (Vec<(u64, Vec<u64>, bool)>, bool) {
    let mut shared = load::Shared { tree: StackTree::new(true), unwinding, ..load::Shared::default() };
    let mut found = Vec::new();
    load::read(&mut shared, path, &Filter::default(), &mut |shared, sample, _| {
        let frames = shared.tree.stack(sample.user).filter_map(|id| shared.tree.frame(id));
        let frames = frames.filter(|frame| frame.mark.is_none()).map(|frame| frame.address.0);
        let is_reached = sample.end.is_some_and(|end| end.is_reached());
        found.push((sample.row.id.0, frames.collect(), is_reached));
        Ok(())
    })
    .expect("what was written can be read");
    let is_whole = shared.archives.iter().all(|archive| archive.problems().is_empty());
    assert!(shared.archives.iter().all(|archive| archive.ends.total() <= found.len() as u64));
    (found, is_whole)
}

/// Threads of a pool that has ended are still on their way out when leaks are looked for.
#[unsafe(no_mangle)]
extern "C" fn __asan_default_options() -> *const std::ffi::c_char {
    c"detect_leaks=0".as_ptr()
}

fn place(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("rawstack-fuzz-unwound-{}-{name}", process::id()))
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let mut elf = Elf::new().symbol(b"_start", TEXT, 0x100);
    for name in [".eh_frame", ".debug_frame"] {
        elf = elf.debug(name, input.bytes(MOST), 2);
    }
    let file = elf.bytes();
    let (path, clean) = (place("a"), place("b"));
    fs::write(&path, archive(&mut input)).expect("the disk takes it");
    let auto = read(&path, Some(unwinding(&file, Stacks::Auto)));
    assert_eq!(auto, read(&path, Some(unwinding(&file, Stacks::Auto))));
    let copies = read(&path, Some(unwinding(&file, Stacks::Copies)));
    assert!(auto.1 && copies.1 && auto.0.len() == copies.0.len());
    let mut options = WriterOptions::default();
    options.merged = true;
    let mut writer = Writer::new(Vec::new(), options).expect("memory does not fail");
    let inputs = Inputs::open(vec![path.clone()]).expect("it is an archive");
    let scrubbed = inputs.unwinding_copies(Some(unwinding(&file, Stacks::Auto))).merge(&mut writer, &|| ());
    scrubbed.expect("it is whole");
    writer.end().expect("memory does not fail");
    fs::write(&clean, writer.finish().expect("memory does not fail")).expect("the disk takes it");
    let (plain, is_whole) = read(&clean, None);
    assert!(is_whole && plain.len() == auto.0.len());
    for (before, after) in auto.0.iter().zip(&plain) {
        assert_eq!(before.0, after.0);
        assert!(!before.2 || before.1 == after.1, "{before:x?} {after:x?}");
    }
    for made in [path, clean] {
        _ = fs::remove_file(made);
    }
});
