//! What would make the next recording of the kind, or its names, better: commands and options, each for something that was
//! seen.

use rawstack_format::record::{DropReason, Mode, ModuleKind, State};

use super::Nameless;
use crate::profile::tree::{Jit, TreeFrame, shown_path};
use crate::profile::{Profile, Summary};
use crate::report::render::share;
use crate::text::clean;

/// Samples below which shares are mostly chance.
const FEW_SAMPLES: u64 = 1000;
/// Share of a module's samples without callers from which on it was built without frame pointers, in percent.
const ALONE_PERCENT: f64 = 20.0;
/// Samples that have to be seen for that.
const LEAST_SAMPLES: u64 = 20;

/// A line for each thing.
pub(super) fn lines(profile: &Profile, nameless: Nameless<'_>, summary: &Summary) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(few_samples(summary));
    lines.extend(cut_stacks(summary));
    lines.extend(losses(summary));
    lines.extend(capture_mode(summary));
    // Copies of stacks need none.
    if summary.copies.is_empty() {
        lines.extend(frame_pointers(profile));
    }
    lines.extend(kernel_symbols(profile));
    lines.extend(made_code(profile));
    lines.extend(no_build_ids(profile));
    lines.extend(names(profile, nameless));
    lines
}

fn option<'s>(summary: &'s Summary, name: &str) -> Option<&'s str> {
    let options = &summary.recording.as_ref()?.options;
    let found = options.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.as_str())
}

fn names(profile: &Profile, nameless: Nameless<'_>) -> Option<String> {
    const WHERE: &str = "`rawstack symbols FILE` tells of each module which debug files are here, and which package has the others";
    match nameless {
        Some(counts) => {
            let missing: u64 = counts.iter().sum();
            (missing > 0).then(|| format!("{missing} frames have no name here: {WHERE}"))
        }
        None => {
            let mut frames = profile.tree.frames().iter();
            frames
                .any(|frame| !frame.kernel)
                .then(|| format!("names: {WHERE}"))
        }
    }
}

fn is_imported(summary: &Summary) -> bool {
    let recording = summary.recording.as_ref();
    recording.is_some_and(|recording| recording.writer.starts_with("rawstack import"))
}

fn few_samples(summary: &Summary) -> Option<String> {
    let samples = summary.samples;
    (samples < FEW_SAMPLES).then(|| {
        format!("few samples: of {samples} a share is known to some {:.0} % of the whole; record longer (-d) or more often (-F)", 100.0 / (samples.max(1) as f64).sqrt())
    })
}

fn cut_stacks(summary: &Summary) -> Option<String> {
    let cut = *summary.states.get(State::Truncated as usize)?;
    let limit = option(summary, "max-frames");
    let limit = limit.map_or_else(String::new, |limit| format!(" (it was {})", clean(limit)));
    (cut > 0 && !is_imported(summary))
        .then(|| format!("{cut} stacks were cut: record with a larger --max-frames{limit}"))
}

fn losses(summary: &Summary) -> Vec<String> {
    let count = |reason: DropReason| summary.drops.get(&reason).map_or(0, |total| total.count);
    let full = count(DropReason::BufferFull) + count(DropReason::UserHalf);
    let mut lines = Vec::new();
    if full > 0 {
        lines.push(format!(
            "{full} samples or halves were lost as a buffer was full: record with a larger --max-memory, or less often (-F)"
        ));
    }
    let unwritten = count(DropReason::Unwritten);
    if unwritten > 0 {
        lines.push(format!(
            "{unwritten} samples were lost as the disk did not keep up: record to another one, or with a larger --max-memory"
        ));
    }
    if count(DropReason::SideBand) > 0 {
        lines.push(
            "names and mappings were lost: record with a larger --max-memory, or fewer processes (-p, --cgroup)"
                .to_owned(),
        );
    }
    lines
}

fn capture_mode(summary: &Summary) -> Option<String> {
    let recording = summary.recording.as_ref()?;
    let faulted = *summary.states.get(State::Faulted as usize)?;
    (recording.mode == Mode::Immediate && faulted > 0).then(|| {
        format!("{faulted} stacks were not in memory at the tick: Linux 6.18 and newer take them when the task returns")
    })
}

/// Modules in which many stacks have one frame and no caller.
fn frame_pointers(profile: &Profile) -> Vec<String> {
    let modules = profile.tree.modules();
    let mut counts = vec![(0u64, 0u64); modules.len()];
    for row in &profile.rows {
        let mut frames = profile.tree.stack(row.user);
        let leaf = frames.next().and_then(|leaf| profile.tree.frame(leaf));
        let Some(count) = leaf.and_then(|leaf| counts.get_mut(leaf.module.index())) else {
            continue;
        };
        let caller = frames.next().and_then(|caller| profile.tree.frame(caller));
        let is_alone = caller.is_none_or(|caller| modules.get(caller.module.index()).is_none());
        count.0 = count.0.saturating_add(row.samples);
        count.1 = count
            .1
            .saturating_add(if is_alone { row.samples } else { 0 });
    }
    let suspects = modules
        .iter()
        .zip(counts)
        .filter(|((_, module), (all, alone))| {
            module.kind == ModuleKind::Elf
                && *all >= LEAST_SAMPLES
                && share(*alone, *all) >= ALONE_PERCENT
        });
    let line = |((_, module), (all, alone)): (&(u32, _), (u64, u64))| {
        format!(
            "{alone} of {all} samples in {} know no caller: build it with -fno-omit-frame-pointer",
            shown_path(module)
        )
    };
    suspects.map(line).collect()
}

fn frames_of(profile: &Profile, kind: ModuleKind) -> impl Iterator<Item = &TreeFrame> {
    profile.tree.frames().iter().filter(move |frame| {
        let module = profile.tree.modules().get(frame.module.index());
        module.is_some_and(|(_, module)| module.kind == kind)
    })
}

fn kernel_symbols(profile: &Profile) -> Option<String> {
    let is_missing = profile.kernels.iter().all(|kernel| kernel.is_empty());
    let has_frames = frames_of(profile, ModuleKind::Kernel).next().is_some();
    (is_missing && has_frames).then(|| {
        "no symbols of the kernel: record as root; of a perf.data import again with --kallsyms"
            .to_owned()
    })
}

fn made_code(profile: &Profile) -> Option<String> {
    let frames = frames_of(profile, ModuleKind::Anonymous)
        .filter(|frame| matches!(frame.jit, Jit::At(_)))
        .count();
    (frames > 0 && profile.jit.files().is_empty()).then(|| {
        format!("{frames} frames in code made at run time have no names: let the runtime write a perf map or jitdump (node --perf-basic-prof, python -X perf, java with perf-map-agent)")
    })
}

fn no_build_ids(profile: &Profile) -> Vec<String> {
    let modules = profile.tree.modules().iter();
    let bare = modules.filter(|(_, module)| {
        module.kind == ModuleKind::Elf && module.build_id.is_none() && module.content_hash.is_none()
    });
    let line = |(_, module): &(u32, _)| {
        format!(
            "{} has no build ID: link it with -Wl,--build-id",
            shown_path(module)
        )
    };
    bare.map(line).collect()
}
