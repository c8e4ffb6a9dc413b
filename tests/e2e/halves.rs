//! Kernel and user half of a sample are one stack.

use std::fs;

use rawstack_test_support::json::rawstack_on;
use rawstack_test_support::programs::workload;

use crate::recording::{Lab, percent, text};

/// One box of a flame graph.
#[derive(Debug)]
struct Frame {
    name: String,
    left: f64,
    right: f64,
    height: f64,
}

/// The boxes of an SVG as inferno writes it: `<g><title>name (12 samples, 3%)</title><rect x="1%" y="2" width="3%" …`.
fn frames_of(svg: &str) -> Vec<Frame> {
    let attribute = |text: &str, name: &str| -> Option<f64> {
        let value = text
            .split_once(&format!(" {name}=\""))?
            .1
            .split_once('"')?
            .0;
        value.trim_end_matches('%').parse().ok()
    };
    svg.split("<title>")
        .skip(1)
        .filter_map(|text| {
            let (title, rest) = text.split_once("</title>")?;
            let rect = rest.split_once("<rect")?.1.split_once('>')?.0;
            let left = attribute(rect, "x")?;
            Some(Frame {
                name: title
                    .rsplit_once(" (")
                    .map_or(title, |(name, _)| name)
                    .to_owned(),
                left,
                right: left + attribute(rect, "width")?,
                height: attribute(rect, "y")?,
            })
        })
        .collect()
}

/// Whether `upper` stands on `lower`, somewhere above it.
fn stands_on(upper: &Frame, lower: &Frame) -> bool {
    const ROUNDING: f64 = 0.01;
    upper.height < lower.height
        && upper.left + ROUNDING >= lower.left
        && upper.right <= lower.right + ROUNDING
}

/// Check that samples in read(2) have both halves, kernel first, and that one flame graph shows them as one stack.
#[test]
fn read_shows_kernel_on_user_frames() {
    let lab = Lab::new();
    let (program, file) = (workload("read_heavy"), lab.path("file"));
    let recording = lab.record(&["-F", "997"], &[text(&program), text(&file), "2"]);

    let samples = recording.samples_in("complete");
    let both = samples
        .iter()
        .filter(|s| s.kernel_frames().count() > 0 && s.user_frames().count() > 0)
        .count();
    assert!(
        percent(both, samples.len()) > 80.0,
        "{both} of {} have both halves",
        samples.len()
    );
    for sample in &samples {
        let kernel = sample
            .frames
            .iter()
            .take_while(|frame| frame.kind == "kernel")
            .count();
        assert_eq!(
            kernel,
            sample.kernel_frames().count(),
            "a kernel frame above a user frame: {sample:?}"
        );
    }

    let svg = lab.path("graph.svg");
    rawstack_on("flamegraph", &recording.archive)
        .arg("-o")
        .arg(&svg)
        .success();
    let frames = frames_of(
        &fs::read_to_string(&svg).unwrap_or_else(|err| panic!("{}: {err}", svg.display())),
    );
    for (user, kernel) in [("read_zeroes", "read_zero"), ("read_file", "filemap_read")] {
        let lower: Vec<&Frame> = frames
            .iter()
            .filter(|frame| frame.name.contains(user))
            .collect();
        let found = frames
            .iter()
            .filter(|frame| frame.name.contains(kernel) && !frame.name.contains(user))
            .any(|upper| lower.iter().any(|lower| stands_on(upper, lower)));
        let names: Vec<&str> = frames.iter().map(|frame| frame.name.as_str()).collect();
        assert!(found, "{kernel} does not stand on {user} in {names:?}");
    }
}

/// Check that the boxes of an SVG are read with their places.
#[test]
fn svg_boxes() {
    let svg = r#"<g><title>main (9 samples, 90.00%)</title><rect x="0.5%" y="50" width="90%" height="15"/></g>
        <g><title>f (1) (2 samples, 20%)</title><rect x="10%" y="34" width="20%" height="15"/></g>"#;
    let frames = frames_of(svg);
    assert_eq!(
        frames
            .iter()
            .map(|frame| frame.name.as_str())
            .collect::<Vec<_>>(),
        ["main", "f (1)"]
    );
    assert!(stands_on(&frames[1], &frames[0]) && !stands_on(&frames[0], &frames[1]));
}
