//! Events: each kind is hooked in for a moment, with the recorder's own programs.

use std::ffi::CString;
use std::path::Path;
use std::{env, fs};

use rawstack_bpf::{
    Config, Counter, Mode, OffCpu, Origin, Probe, Programs, Rate, Room, SideBand, Source, Targets,
    can_defer, online_cpus,
};

use super::{Check, Verdict};
use crate::elf::ElfFacts;
use crate::error::Result;

/// Where tracefs is.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const PMUS: &str = "/sys/bus/event_source/devices";
/// A function of the kernel that is on every machine and seldom runs.
const KERNEL_FUNCTION: &str = "do_exit";
/// Of the clock, in nanoseconds: it starts within that time.
const PERIOD: u64 = 10_000_000;

pub(super) fn checks() -> Vec<Check> {
    let clock = Origin::Counter(Counter::cpu_clock(PERIOD));
    let programs = Verdict::of(
        hook_in("cpu-clock", Some(clock)),
        "loaded, hooked in and let go",
    );
    let build_ids = Check::wanted("build IDs by the kernel", build_ids());
    let others = if matches!(programs, Verdict::Works(_)) {
        kinds()
    } else {
        // What keeps one from being loaded keeps all.
        KINDS
            .into_iter()
            .map(|name| Check::wanted(name, Verdict::Missing("see programs".to_owned())))
            .collect()
    };
    let programs = Check::needed("programs, ring buffer", programs);
    [vec![programs, build_ids], others].concat()
}

/// Events besides the clock, as [`kinds`] looks at them.
const KINDS: [&str; 6] = [
    "hardware counters",
    "off-cpu",
    "tracepoints",
    "raw tracepoints",
    "uprobes",
    "kprobes",
];

fn kinds() -> Vec<Check> {
    let raw = Origin::RawTracepoint {
        name: "sched_process_exit".to_owned(),
        every: 1,
    };
    let verdicts = [
        counters(),
        Verdict::of(hook_in("off-cpu", None), ""),
        tracepoints(),
        Verdict::of(hook_in("sched_process_exit", Some(raw)), ""),
        uprobe(),
        kprobe(),
    ];
    let checks = KINDS.into_iter().zip(verdicts);
    checks
        .map(|(name, verdict)| Check::wanted(name, verdict))
        .collect()
}

/// Hook an event in on one CPU, off-cpu where it has no origin, and let it go.
fn hook_in(name: &str, origin: Option<Origin>) -> Result<()> {
    let off_cpu = origin.is_none().then_some(OffCpu {
        number: 0,
        min_ns: 0,
    });
    let mode = if can_defer()?.is_ok() {
        Mode::Deferred
    } else {
        Mode::Immediate
    };
    let source = |origin| Source {
        name: name.to_owned(),
        number: 0,
        origin,
    };
    let config = Config {
        mode,
        kernel_stacks: true,
        max_user_frames: 127,
        events: origin.into_iter().map(source).collect(),
        off_cpu,
        targets: Targets::default(),
        copy_bytes: 0,
        ring_bytes: 1 << 20,
        wakeup_bytes: 1 << 19,
        max_threads: 1024,
    };
    let cpus = online_cpus()?;
    let mut room = Room::default();
    let mut programs = Programs::load(&mut room, &config)?;
    programs.attach()?;
    programs.start(cpus.get(..1).unwrap_or(&cpus))?;
    Ok(programs.stop()?)
}

fn build_ids() -> Verdict {
    let why = "this kernel does not tell them (5.12 and newer do): each file is read once, while it is there";
    match SideBand::open(&[0]) {
        Ok(side_band) => Verdict::when(
            side_band.has_build_ids(),
            "told as soon as code is mapped",
            why,
        ),
        Err(error) => Verdict::Missing(error.to_string()),
    }
}

/// Cycles, as `perf_event_open` numbers them.
fn counters() -> Verdict {
    let cycles = Counter {
        pmu: 0,
        config: [0, 0, 0],
        rate: Rate::Period(1 << 40),
        is_clock: false,
        ..Counter::cpu_clock(0)
    };
    match hook_in("cycles", Some(Origin::Counter(cycles))) {
        Ok(()) => Verdict::Works("cycles, instructions and others".to_owned()),
        Err(error) => Verdict::Missing(format!(
            "{error}: this machine has none, or its host gives none; cpu-clock is taken instead"
        )),
    }
}

fn tracepoints() -> Verdict {
    let read = |folder: &&str| {
        let path = Path::new(folder).join("events/sched/sched_process_exit/id");
        fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
    };
    let Some(id) = TRACEFS.iter().find_map(read) else {
        return Verdict::Missing(
            "tracefs cannot be read: only raw tracepoints; mount -t tracefs tracefs /sys/kernel/tracing, as root or \
             with CAP_DAC_READ_SEARCH"
                .to_owned(),
        );
    };
    let tracepoint = Origin::Tracepoint { id, every: 1 };
    Verdict::of(hook_in("sched:sched_process_exit", Some(tracepoint)), "")
}

/// The number of a PMU.
fn pmu(name: &str) -> Option<u32> {
    let text = fs::read_to_string(Path::new(PMUS).join(name).join("type"));
    text.ok()?.trim().parse().ok()
}

/// In this very program, at the start of its code.
fn uprobe() -> Verdict {
    let Some(pmu) = pmu("uprobe") else {
        return Verdict::Missing(
            "the kernel has none; CONFIG_UPROBES=y, CONFIG_UPROBE_EVENTS=y".to_owned(),
        );
    };
    let file = env::current_exe().ok();
    let place = file
        .as_ref()
        .and_then(|path| CString::new(path.as_os_str().as_encoded_bytes()).ok());
    let facts = file.and_then(|path| ElfFacts::read(&fs::File::open(path).ok()?));
    let offset = facts.and_then(|facts| Some(facts.segments.first()?.offset.0));
    let (Some(place), Some(offset)) = (place, offset) else {
        return Verdict::Missing("this program's own file cannot be read to try it".to_owned());
    };
    let probe = Probe {
        pmu,
        config: 0,
        place,
        offset,
        every: 1,
        is_in_user: true,
        is_entry: false,
    };
    Verdict::of(hook_in("uprobe", Some(Origin::Probe(probe))), "")
}

fn kprobe() -> Verdict {
    let Some(pmu) = pmu("kprobe") else {
        return Verdict::Missing(
            "the kernel has none; CONFIG_KPROBES=y, CONFIG_KPROBE_EVENTS=y".to_owned(),
        );
    };
    let probe = Probe {
        pmu,
        config: 0,
        place: CString::new(KERNEL_FUNCTION).unwrap_or_default(),
        offset: 0,
        every: 1,
        is_in_user: false,
        is_entry: true,
    };
    Verdict::of(hook_in("kprobe", Some(Origin::Probe(probe))), "")
}
