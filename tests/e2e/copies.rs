//! Copies of stacks: they hold what the programs had there, whatever stack it was.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::BufReader;
use std::path::Path;

use rawstack_format::Reader;
use rawstack_format::copies::{CopyLoss, Span, StackCopy};
use rawstack_format::record::{Record, Sample, State};
use rawstack_test_support::json::{Sample as DumpedSample, parse, rawstack_on};
use rawstack_test_support::programs::workload;

use crate::recording::{Lab, Recording, SPIN, percent, text};

/// A block of known words on a stack of the workload `copied`.
#[derive(Clone, Debug)]
struct Block {
    tid: u32,
    start: u64,
    words: u64,
    seed: u64,
    step: u64,
}

impl Block {
    fn end(&self) -> u64 {
        self.start + self.words * 8
    }

    /// The word at `address`, which is in the block.
    fn word(&self, address: u64) -> u64 {
        let number = (address - self.start) / 8;
        self.seed.wrapping_add(number.wrapping_mul(self.step))
    }

    /// Whether the copy is of the call that has the block in its frame.
    fn is_in(&self, copy: &StackCopy<'_>) -> bool {
        let near = self.start.saturating_sub(2048)..=self.start;
        copy.tid == self.tid && copy.register(7).is_some_and(|sp| near.contains(&sp))
    }

    /// Words of the block that were copied, and whether all of them are as the program wrote them.
    fn compare(&self, copy: &StackCopy<'_>) -> (u64, bool) {
        let to = self.end().min(copy.start.0 + copy.asked);
        let words = (self.start..to).step_by(8);
        let copied = words.filter_map(|address| Some((address, copy.word(address)?)));
        copied.fold((0, true), |(count, equal), (address, word)| {
            (count + 1, equal && word == self.word(address))
        })
    }
}

/// Blocks by the name of their stack.
fn blocks(stdout: &str) -> BTreeMap<String, Block> {
    let block = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next()?.to_owned();
        let mut hex = || u64::from_str_radix(words.next()?, 16).ok();
        let (tid, start) = (hex()?, hex()?);
        let count = words.next()?.parse().ok()?;
        let mut hex = || u64::from_str_radix(words.next()?, 16).ok();
        let block = Block {
            tid: u32::try_from(tid).ok()?,
            start,
            words: count,
            seed: hex()?,
            step: hex()?,
        };
        Some((name, block))
    };
    stdout.lines().filter_map(block).collect()
}

/// Go through all copies of an archive, whole or not.
fn for_each_copy(archive: &Path, mut take: impl FnMut(&StackCopy<'_>)) -> Vec<Sample> {
    let file = BufReader::new(fs::File::open(archive).unwrap());
    let mut reader = Reader::new(file).unwrap();
    let mut samples = Vec::new();
    while let Some(chunk) = reader.next().unwrap() {
        match chunk.record {
            Some(Record::StackCopies(copies)) => {
                let mut reader = copies.reader();
                while let Some(copy) = reader.next() {
                    take(&copy);
                }
            }
            Some(Record::Batch(batch)) => samples.extend(batch.samples),
            _ => {}
        }
    }
    samples
}

/// Copies of calls that have a block in their frame, by the name of the stack.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    /// All.
    copies: u64,
    /// Those in which what was copied of the block is as the program wrote it.
    equal: u64,
    /// Those that have the block whole.
    whole: u64,
    /// Those of which pages are missing.
    partial: u64,
    /// Those whose stack goes on behind what was asked for.
    cut: u64,
}

/// Look at each copy of a recording of the workload `copied`, of `bytes` at most.
fn look(recording: &Recording, bytes: u64) -> BTreeMap<String, Found> {
    let blocks = blocks(&recording.output.stdout);
    assert_eq!(blocks.len(), 5, "{}", recording.output.stdout);
    let mut found: BTreeMap<String, Found> = BTreeMap::new();
    let mut owners = BTreeSet::new();
    let samples = for_each_copy(&recording.archive, |copy| {
        assert!(owners.insert(copy.owner), "two copies: {copy:?}");
        if copy.loss != CopyLoss::None {
            return;
        }
        let sp = copy.register(7).unwrap();
        assert!(
            copy.start.0 <= sp && sp - copy.start.0 <= 128 + 7,
            "{copy:?}"
        );
        assert!(copy.register(16).is_some() && copy.register(17).is_none());
        let span = copy.end.0 - copy.start.0;
        assert_eq!(copy.asked, span.min(bytes), "{copy:?}");
        assert_eq!(copy.is_cut(), span > bytes, "{copy:?}");
        for (name, block) in blocks.iter().filter(|(_, block)| block.is_in(copy)) {
            let (words, is_equal) = block.compare(copy);
            let found = found.entry(name.clone()).or_default();
            found.copies += 1;
            found.equal += u64::from(is_equal && words > 0);
            found.whole += u64::from(is_equal && words == block.words);
            found.partial += u64::from(!copy.missing.is_empty());
            found.cut += u64::from(copy.is_cut());
        }
    });
    let complete: Vec<&Sample> = samples
        .iter()
        .filter(|sample| sample.state == State::Complete)
        .collect();
    let with_copy = complete
        .iter()
        .filter(|sample| owners.contains(&sample.owner));
    let (with_copy, all) = (with_copy.count(), complete.len());
    assert!(
        percent(with_copy, all) > 95.0,
        "{with_copy} of {all} samples have a copy"
    );
    found
}

/// Check that a stack was met, and that the block was copied as it was. While it is being filled it is not yet.
fn check(name: &str, found: Found) {
    let Found { copies, equal, .. } = found;
    assert!(copies > 50, "{name}: {found:?}");
    assert!(equal * 100 >= copies * 95, "{name}: {found:?}");
}

/// Check that copies of main, thread, alternate signal and coroutine stacks hold what the program had there, that one
/// of a stack larger than a copy may be says that it is cut, and that all say that memory was copied.
#[test]
fn every_sort_of_stack() {
    let lab = Lab::new();
    let options = ["-F", "997", "--unwind", "stack-copy", "--copy-words", "all"];
    let recording = lab.record(&options, &[text(&workload("copied")), "0.4"]);
    recording.assert_deferred();
    for (name, found) in look(&recording, 64 << 10) {
        check(&name, found);
        assert_eq!(found.partial, 0, "{name}: {found:?}");
        let (whole, cut) = if name == "deep" {
            (0, found.copies)
        } else {
            (found.equal, 0)
        };
        assert_eq!((found.whole, found.cut), (whole, cut), "{name}: {found:?}");
    }
    let said = &recording.output.stderr;
    assert!(
        said.contains("copies ") && said.contains("memory of programs"),
        "{said}"
    );
    let told = rawstack_on("info", &recording.archive).success().stdout;
    assert!(told.contains("memory of the recorded programs"), "{told}");
    let json = rawstack_on("info", &recording.archive)
        .arg("--json")
        .success()
        .stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["copies"]["taken"].as_u64() > Some(500), "{json}");
    assert!(json["copies"]["cut"].as_u64() > Some(50), "{json}");
}

/// Check the same with copies taken at the tick itself, and with more of each stack.
#[test]
fn immediate_and_large() {
    let lab = Lab::new();
    let options = [
        "-F",
        "997",
        "--user-stacks",
        "immediate",
        "--unwind",
        "stack-copy:256K",
        "--copy-words",
        "all",
    ];
    let recording = lab.record(&options, &[text(&workload("copied")), "0.3"]);
    assert_eq!(recording.info.mode, "immediate");
    for (name, found) in look(&recording, 256 << 10) {
        check(&name, found);
        assert!(found.whole * 100 >= found.copies * 90, "{name}: {found:?}");
    }
}

/// Check that who reads copies goes ahead of what is recorded, and only then: among more threads that want to run than
/// there are CPUs its share of the time is too small for megabytes of copies.
#[test]
fn read_ahead_of_the_recorded() {
    // Something to record, too, however quick the machine is.
    let script = format!("{SPIN}; sleep 0.5; cut -d ' ' -f 19 /proc/$PPID/stat");
    for (unwind, nice) in [("stack-copy", "-10"), ("fp", "0")] {
        let lab = Lab::new();
        let recording = lab.record(&["-F", "499", "--unwind", unwind], &["sh", "-c", &script]);
        assert_eq!(recording.output.stdout.trim(), nice, "{unwind}");
    }
}

/// Copies of the thread of the workload `deep_stack`, those that miss pages, and the bytes that these miss on average.
fn deep(mode: &str) -> (u64, u64, u64) {
    let lab = Lab::new();
    let (program, stack) = (workload("deep_stack"), lab.path("stack"));
    let options = [
        "-F",
        "499",
        "--unwind",
        "stack-copy:128K",
        "--user-stacks",
        mode,
    ];
    let recording = lab.record(&options, &[text(&program), text(&stack), "110", "2"]);
    let (checks, out) = (recording.printed("checks"), recording.printed("out"));
    assert!(
        out * 100 >= checks * 95,
        "the condition was not made: out {out} times of {checks}"
    );
    let (mut copies, mut partial, mut missing) = (0, 0, 0);
    for_each_copy(&recording.archive, |copy| {
        let gaps: u64 = copy.missing.iter().map(|gap| gap.len).sum();
        // The thread's: above the leaf there are 110 frames of 800 bytes.
        if copy.loss == CopyLoss::None && copy.asked > 80_000 {
            copies += 1;
            partial += u64::from(gaps > 0);
            missing += gaps;
            assert_eq!(copy.copied() + gaps, copy.asked);
        }
    });
    assert!(copies > 100, "{copies} copies");
    (copies, partial, missing / copies)
}

/// Check that of a stack whose pages are out of memory all is copied on the return, and that a copy made at the tick says
/// what is missing.
#[test]
fn pages_that_are_out() {
    let (copies, partial, _) = deep("deferred");
    assert!(partial * 100 <= copies, "{partial} of {copies} miss pages");
    let (copies, partial, missing) = deep("immediate");
    assert!(
        partial * 100 >= copies * 80,
        "{partial} of {copies} miss pages"
    );
    assert!(missing > 40_000, "{missing} bytes are missing");
}

/// Check that where nothing else is asked for, only addresses are kept: numbers on the stack are left out and not taken for 0,
/// and a copy is as long as ever.
#[test]
fn addresses_only() {
    let lab = Lab::new();
    let options = ["-F", "997", "--unwind", "stack-copy"];
    let recording = lab.record(&options, &[text(&workload("copied")), "0.2"]);
    let blocks = blocks(&recording.output.stdout);
    let (mut copies, mut words, mut left_out) = (0, 0, 0);
    for_each_copy(&recording.archive, |copy| {
        for block in blocks.values().filter(|block| block.is_in(copy)) {
            let to = block.end().min(copy.start.0 + copy.asked);
            for address in (block.start..to).step_by(8) {
                let word = copy.word(address).expect("a word that is in memory");
                assert!(
                    word <= 1 || word != block.word(address),
                    "{address:#x} of {block:?}"
                );
                words += 1;
                left_out += usize::from(word == 1);
            }
            copies += 1;
        }
    });
    assert!(
        copies > 100 && words > 100 * 512,
        "{words} words in {copies} copies"
    );
    // The program fills a block once: until then memory may be 0.
    assert!(
        percent(left_out, words) > 95.0,
        "{left_out} of {words} words are left out"
    );
    assert_eq!(recording.info.options["copy-words"], "addresses");
    let said = &recording.output.stderr;
    assert!(
        said.contains("holds addresses from memory of programs"),
        "{said}"
    );
}

/// The stack of a copy, by the frame pointers in it, with what uretprobes replaced.
fn walk(copy: &StackCopy<'_>) -> Option<Vec<u64>> {
    let (mut fp, sp) = (copy.register(6).unwrap_or(0), copy.register(7)?);
    let mut frames = vec![copy.register(16)?];
    let mut below = sp;
    while fp >= below && fp.is_multiple_of(8) && fp < copy.end.0 {
        match copy.word(fp + 8)? {
            0 => break,
            found => frames.push(copy.return_address(found, fp + 16)?),
        }
        below = fp + 1;
        fp = copy.word(fp)?;
    }
    Some(frames)
}

/// Check that walking a copy gives, frame for frame, what the kernel's side walked for the same sample: registers and
/// memory are of one moment. Calls into the kernel from the workload take the way by the return. What is left of a copy
/// where only addresses are kept is enough for it.
#[test]
fn walks_as_the_recorder() {
    for (mode, words) in [
        ("deferred", "all"),
        ("immediate", "all"),
        ("deferred", "addresses"),
    ] {
        let lab = Lab::new();
        let options = [
            "-F",
            "1997",
            "--unwind",
            "stack-copy",
            "--user-stacks",
            mode,
            "--copy-words",
            words,
        ];
        let (program, file) = (workload("read_heavy"), lab.path("file"));
        let recording = lab.record(&options, &[text(&program), text(&file), "1"]);
        let (equal, all) = compare_walks(&recording, |_| true);
        assert!(all > 300, "{mode}, {words}: {all} samples with copies");
        assert!(
            percent(equal, all) > 99.0,
            "{mode}, {words}: {equal} of {all} are equal"
        );
    }
}

/// Samples whose copy is walked as the recorder walked them, and all of those whose copy has what it takes, of events that `wants`
/// names.
fn compare_walks(recording: &Recording, wants: impl Fn(&str) -> bool) -> (usize, usize) {
    let mut walked = BTreeMap::new();
    for_each_copy(&recording.archive, |copy| {
        let frames = walk(copy);
        if copy.loss == CopyLoss::None && (frames.is_some() || copy.missing.is_empty()) {
            walked.insert(copy.owner.0, frames);
        }
    });
    let (mut equal, mut all) = (0, 0);
    let dumped = rawstack_on("dump", &recording.archive)
        .args(["--stacks", "frame-pointers"])
        .success();
    let samples = dumped.stdout.lines().map(parse::<DumpedSample>);
    for sample in samples.filter(|sample| sample.state == "complete") {
        let Some(walked) = walked.get(&number(&sample.id)) else {
            continue;
        };
        if !wants(&sample.event) {
            continue;
        }
        let addresses: Vec<u64> = sample
            .user_frames()
            .filter_map(|frame| hex(frame.address.as_deref()?))
            .collect();
        all += 1;
        equal += usize::from(walked.as_ref() == Some(&addresses));
    }
    (equal, all)
}

/// Check that of a stack with a frame that is larger than a copy the end is copied, too, that neither the program's arguments
/// and environment nor what the C library keeps of a thread are, and that all is told as it is.
#[test]
fn ends_of_stacks() {
    let lab = Lab::new();
    let options = ["-F", "997", "--unwind", "stack-copy", "--copy-words", "all"];
    let recording = lab.record(&options, &[text(&workload("large_frames")), "0.6"]);
    let printed = &recording.output.stdout;
    let numbers = |line: &str| -> Vec<u64> {
        let numbers = line.split(' ').skip(1);
        let numbers = numbers.map(|number| u64::from_str_radix(number, 16).unwrap());
        numbers.collect()
    };
    let lines: Vec<Vec<u64>> = printed.lines().map(numbers).collect();
    let [arguments, _, thread, _] = lines.as_slice() else {
        panic!("{printed}");
    };
    let (mut long, mut of_thread, mut of_handler) = (0, 0, 0);
    for_each_copy(&recording.archive, |copy| {
        if copy.loss != CopyLoss::None {
            return;
        }
        let spans: Vec<Span> = copy.spans().collect();
        for span in &spans {
            assert!(span.asked <= 64 << 10 && span.start.0 + span.asked <= span.end.0);
            let is_clear = span.end.0 <= arguments[0] || span.start.0 > arguments[1];
            assert!(is_clear, "{copy:?} of {printed}");
        }
        let [first, .., last] = spans.as_slice() else {
            return;
        };
        // The end of a stack is copied up to its last whole word.
        assert_eq!(last.start.0 + last.asked, last.end.0 & !7, "{copy:?}");
        assert_eq!(last.asked, 64 << 10, "{copy:?}");
        long += 1;
        if u64::from(copy.tid) == thread[0] {
            assert!(
                (first.end, last.end.0) == (last.end, thread[2]),
                "{copy:?} of {printed}"
            );
            of_thread += 1;
        }
        if spans.len() == 3 {
            assert!(first.end != last.end && spans[1].end == last.end && !copy.is_cut());
            of_handler += 1;
        }
    });
    assert!(
        long > 90 && of_thread > 30 && of_handler > 30,
        "{long}, {of_thread}, {of_handler}"
    );
}

/// Check that copies of stacks with uretprobes on them tell where each function really returns to, and which of their words
/// are the probes' doing.
#[test]
fn under_uretprobes() {
    let lab = Lab::new();
    let hits = workload("hits");
    let path = text(&hits);
    let probes = ["slow", "probed", "recurse"].map(|name| format!("uretprobe:{path}:{name}"));
    for mode in ["deferred", "immediate"] {
        let mut options = vec!["--user-stacks", mode, "-F", "2000", "--force"];
        options.extend(["--unwind", "stack-copy", "-e", "cpu-clock"]);
        options.extend(["-e", "context-switches"]);
        for probe in &probes {
            options.extend(["-e", probe]);
        }
        let recording = lab.record(&options, &[path, "200", "0.5"]);
        let (mut depths, mut replaced) = (BTreeSet::new(), 0);
        for_each_copy(&recording.archive, |copy| {
            let Some(trampoline) = copy.trampoline() else {
                return;
            };
            depths.insert(copy.return_addresses().len());
            let words = (copy.start.0..copy.start.0 + copy.asked).step_by(8);
            replaced += words
                .filter(|&address| copy.word(address) == Some(trampoline.0))
                .filter(|&address| copy.return_address(trampoline.0, address + 8).is_some())
                .count();
        });
        assert!(replaced > 300, "{mode}: {replaced} replaced");
        // When the innermost returns, its own address is put back.
        assert!(
            (1..20).all(|depth| depths.contains(&depth)),
            "{mode}: {depths:?}"
        );
        let is_wanted = |event: &str| matches!(event, "cpu-clock" | "context-switches");
        let (equal, all) = compare_walks(&recording, is_wanted);
        assert!(all > 300, "{mode}: {all} samples with copies");
        assert!(
            percent(equal, all) > 99.0,
            "{mode}: {equal} of {all} are equal"
        );
    }
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// An ID as `dump` gives it.
fn number(id: &serde_json::Value) -> u64 {
    id.as_u64().or_else(|| hex(id.as_str()?)).expect("an ID")
}

/// Check that an archive with copies that is cut anywhere keeps those of its whole chunks, and that one without copies can
/// be made of it, which has all else.
#[test]
fn cut_and_scrubbed() {
    let lab = Lab::new();
    let options = ["-F", "2003", "--unwind", "stack-copy"];
    let recording = lab.record(&options, &[text(&workload("copied")), "0.3"]);
    let mut all = Vec::new();
    for_each_copy(&recording.archive, |copy| {
        all.push((copy.owner, copy.copied()))
    });
    let bytes = fs::read(&recording.archive).unwrap();
    let cut = lab.path("cut.rawstack");
    let mut last = all.len();
    for part in (1..8).rev() {
        fs::write(&cut, &bytes[..bytes.len() * part / 8 + 13]).unwrap();
        let mut kept = Vec::new();
        for_each_copy(&cut, |copy| kept.push((copy.owner, copy.copied())));
        assert!(kept.len() <= last && all.starts_with(&kept), "{part}/8");
        last = kept.len();
    }
    let clean = lab.path("clean.rawstack");
    rawstack_on("scrub", &recording.archive)
        .args(["--stacks", "frame-pointers"])
        .arg("-o")
        .arg(&clean)
        .success();
    assert_eq!(
        for_each_copy(&clean, |copy| panic!("{copy:?}")).len() as u64,
        recording.info.samples
    );
    let dump = |archive: &Path| {
        let run = rawstack_on("dump", archive).args(["--stacks", "frame-pointers"]);
        run.success().stdout
    };
    assert_eq!(dump(&clean), dump(&recording.archive));
    let merged = lab.path("merged.rawstack");
    let merge = |option: &[&str]| {
        let run = rawstack_on("merge", &recording.archive).args(option);
        run.arg("-o").arg(&merged).arg("--force").success();
    };
    merge(&["--drop-copies"]);
    for_each_copy(&merged, |copy| panic!("{copy:?}"));
    merge(&[]);
    let mut kept = Vec::new();
    for_each_copy(&merged, |copy| kept.push((copy.owner, copy.copied())));
    assert_eq!(kept, all);
}
