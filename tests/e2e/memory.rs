//! What is out of memory at the tick: the page with a build ID, the pages of a stack.

use rawstack_test_support::elf;
use rawstack_test_support::json::{Frame, Sample, symbolize};
use rawstack_test_support::programs::workload;

use crate::recording::{Lab, Recording, percent, text};

/// Check that each user frame has module, offset and build ID while the page with the build ID is out of memory.
#[test]
fn evicted_elf_header() {
    let lab = Lab::new();
    let (program, library) = (workload("evict_header"), workload("libevict.so"));
    let recording = lab.record(&["-F", "1997"], &[text(&program), "3"]);
    recording.assert_deferred();
    let (drops, out) = (recording.printed("drops"), recording.printed("out"));
    assert!(
        out * 100 >= drops * 95,
        "the condition was not made: out {out} times of {drops}"
    );

    let samples = recording.samples();
    let frames: Vec<&Frame> = samples.iter().flat_map(Sample::user_frames).collect();
    let lost: Vec<_> = frames
        .iter()
        .filter(|frame| !frame.is_placed() && !frame.is_kernel_page())
        .collect();
    assert!(
        lost.is_empty(),
        "{} of {} user frames: {:?} …",
        lost.len(),
        frames.len(),
        lost[0]
    );

    for (file, at_least) in [(&program, 1000), (&library, 500)] {
        let build_id = elf::build_id(file);
        let own = frames
            .iter()
            .filter(|frame| frame.path.as_deref() == Some(text(file)));
        let (right, wrong): (Vec<&Frame>, Vec<&Frame>) =
            own.partition(|frame| frame.build_id.as_deref() == Some(build_id.as_str()));
        assert!(
            wrong.is_empty(),
            "{} with another build ID: {:?} …",
            wrong.len(),
            wrong[0]
        );
        assert!(
            right.len() > at_least,
            "only {} frames in {}",
            right.len(),
            file.display()
        );
    }
}

/// Record the workload whose stack is out of memory but for the leaf's page.
fn record_deep_stack(lab: &Lab, options: &[&str], depth: &str) -> Recording {
    let (program, stack) = (workload("deep_stack"), lab.path("stack"));
    let options = [&["-F", "997"], options].concat();
    let recording = lab.record(&options, &[text(&program), text(&stack), depth, "3"]);
    let (checks, out) = (recording.printed("checks"), recording.printed("out"));
    assert!(
        out * 100 >= checks * 95,
        "the condition was not made: out {out} times of {checks}"
    );
    recording
}

/// The samples with their user frames' names as far as they lie in the workload, leaf first; only samples of the thread
/// that spins.
fn named_stacks(recording: &Recording) -> Vec<(Sample, Vec<String>)> {
    let program = workload("deep_stack");
    let own = |frame: &Frame| frame.path.as_deref() == Some(text(&program));
    let samples: Vec<Sample> = recording.samples();
    let mut offsets: Vec<u64> = Vec::new();
    for sample in &samples {
        for (depth, frame) in sample
            .user_frames()
            .enumerate()
            .filter(|(_, frame)| own(frame))
        {
            offsets.extend(lookup_offset(depth, frame));
        }
    }
    offsets.sort_unstable();
    offsets.dedup();
    let answers = symbolize(&program, &offsets);
    let name = |offset: u64| -> Option<String> {
        let answer = &answers[offsets.binary_search(&offset).ok()?];
        Some(answer.frames.last()?.name.clone())
    };
    let names = |sample: &Sample| -> Vec<String> {
        let frames = sample
            .user_frames()
            .enumerate()
            .filter(|(_, frame)| own(frame));
        frames
            .filter_map(|(depth, frame)| name(lookup_offset(depth, frame)?))
            .collect()
    };
    let named = samples.into_iter().map(|sample| {
        let names = names(&sample);
        (sample, names)
    });
    named
        .filter(|(_, names)| names.iter().any(|name| name == "leaf"))
        .collect()
}

/// Where to look a frame up: a caller's address is that of the instruction behind its call.
fn lookup_offset(depth: usize, frame: &Frame) -> Option<u64> {
    frame.file_offset()?.checked_sub(u64::from(depth > 0))
}

/// The names of the calls from the top down to `leaf`, by what the workload says it does.
fn expected_calls(depth: usize) -> Vec<String> {
    (0..depth).map(|n| format!("frame_{}", n % 8)).collect()
}

/// The calls above `leaf` in a stack, outermost first.
fn calls(names: &[String]) -> Vec<String> {
    names
        .iter()
        .rev()
        .filter(|name| name.starts_with("frame_"))
        .cloned()
        .collect()
}

/// Check that all 110 calls are seen, in their order, though their pages are out at each tick.
#[test]
fn stack_out_of_memory_deferred() {
    let lab = Lab::new();
    let recording = record_deep_stack(&lab, &[], "110");
    recording.assert_deferred();
    let stacks = named_stacks(&recording);
    assert!(
        stacks.len() > 1000,
        "only {} samples in the leaf",
        stacks.len()
    );
    let expected = expected_calls(110);
    let whole = stacks
        .iter()
        .filter(|(_, names)| calls(names) == expected)
        .count();
    assert_eq!(whole, stacks.len(), "stacks with all 110 calls, of all");
    let complete = stacks
        .iter()
        .filter(|(sample, _)| sample.state == "complete")
        .count();
    assert_eq!(complete, stacks.len(), "stacks said to be complete, of all");
}

/// Check that a stack deeper than the kernel's limit is either whole or says that it is truncated.
#[test]
fn stack_deeper_than_the_kernel_walks() {
    let lab = Lab::new();
    let recording = record_deep_stack(&lab, &[], "300");
    recording.assert_deferred();
    let stacks = named_stacks(&recording);
    assert!(
        stacks.len() > 1000,
        "only {} samples in the leaf",
        stacks.len()
    );
    let expected = expected_calls(300);
    for (sample, names) in &stacks {
        let calls = calls(names);
        match sample.state.as_str() {
            "complete" => assert_eq!(calls, expected, "said to be complete"),
            "truncated" => {
                assert!(calls.len() > 100, "only {} calls of 300", calls.len());
                // The inner end of a stack is kept.
                assert!(
                    expected.ends_with(&calls),
                    "another part of the stack: {calls:?}"
                );
            }
            state => panic!("{} calls in state {state}", calls.len()),
        }
    }
}

/// Check that, without page faults, the few frames in memory are all there is, and that the state says so.
#[test]
fn stack_out_of_memory_immediate() {
    let lab = Lab::new();
    let recording = record_deep_stack(&lab, &["--user-stacks", "immediate"], "110");
    assert_eq!(recording.info.mode, "immediate");
    let stacks = named_stacks(&recording);
    assert!(
        stacks.len() > 1000,
        "only {} samples in the leaf",
        stacks.len()
    );
    let cut: Vec<_> = stacks
        .iter()
        .filter(|(_, names)| calls(names).len() < 110)
        .collect();
    assert!(
        percent(cut.len(), stacks.len()) > 95.0,
        "{} of {} are cut",
        cut.len(),
        stacks.len()
    );
    for (sample, names) in &cut {
        assert_eq!(sample.state, "faulted", "{names:?}");
    }
    // The kernel may keep a page that it was told to drop, while it looks at it itself.
    let long = cut.iter().filter(|(_, names)| calls(names).len() >= 20);
    let long = percent(long.count(), cut.len());
    assert!(
        long < 2.0,
        "{long} % of the cut stacks have 20 calls or more"
    );
}
