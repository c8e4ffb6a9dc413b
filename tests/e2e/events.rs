//! Events: each is counted as often as it happened, with the stack that it happened on.
//!
//! The workload `hits` makes everything happen a known number of times and prints it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use rawstack_test_support::json::{Sample, rawstack_on};
use rawstack_test_support::programs::{rawstack_record, require, workload};
use rawstack_test_support::{Run, elf};

use crate::recording::{Lab, Recording, text};

const MODES: [&str; 2] = ["deferred", "immediate"];

/// The workload, its library, and options that record `events` of them, each hit.
fn options_of<'a>(mode: &'a str, events: &'a [String]) -> Vec<&'a str> {
    let mut options = vec!["--user-stacks", mode, "-c", "1"];
    events
        .iter()
        .for_each(|event| options.extend(["-e", event.as_str()]));
    options
}

/// Weight of each event's samples, of the process that has the name `hits` and is not its own child.
fn weights(samples: &[Sample]) -> BTreeMap<&str, u64> {
    let pid = samples
        .iter()
        .find(|sample| sample.comm == "hits")
        .unwrap()
        .pid;
    let mut weights = BTreeMap::new();
    for sample in samples.iter().filter(|sample| sample.pid == pid) {
        *weights.entry(sample.event.as_str()).or_default() += sample.weight;
    }
    weights
}

/// Names of the user functions of each sample, leaf first, without those that are inlined, by event.
fn stacks(archive: &Path) -> Vec<(String, Vec<String>)> {
    let output = Run::new(rawstack_test_support::programs::rawstack())
        .args(["dump", "--format", "perf-script", "--no-inlines"])
        .arg(archive)
        .success();
    let samples = output.stdout.split("\n\n");
    samples
        .filter_map(|sample| {
            let mut lines = sample.trim_start_matches('\n').lines();
            // `comm pid/tid [cpu] time: weight EVENT: `
            let event = lines
                .next()?
                .trim_end()
                .trim_end_matches(':')
                .rsplit(' ')
                .next()?;
            let names = lines
                .filter(|line| !line.ends_with("([kernel])"))
                .filter_map(|line| {
                    let (_, rest) = line.trim_start().split_once(' ')?;
                    Some(rest.rsplit_once(" (")?.0.to_owned())
                });
            Some((event.to_owned(), names.collect()))
        })
        .collect()
}

/// Check that probes, markers, versions, PLT entries, tracepoints and what the kernel counts come out as often as they
/// happened, several in one recording, in both modes; and the semaphore tells the program that somebody looks.
#[test]
fn each_is_counted_exactly() {
    let lab = Lab::new();
    let (hits, library) = (workload("hits"), workload("libhits.so"));
    let (hits, library) = (text(&hits), text(&library));
    let events = [
        format!("uprobe:{hits}:probed"),
        format!("uretprobe:{hits}:probed"),
        format!("uprobe:{hits}:recurse"),
        format!("uretprobe:{hits}:recurse"),
        format!("uprobe:{hits}:versioned@plt"),
        format!("uprobe:{library}:versioned@HITS_1"),
        format!("uprobe:{library}:versioned@@HITS_2"),
        format!("usdt:{hits}:hits:request"),
        format!("usdt:{hits}:hits:guarded"),
        "sched:sched_process_fork".to_owned(),
        "page-faults".to_owned(),
        "context-switches".to_owned(),
    ];
    for mode in MODES {
        let options = [&options_of(mode, &events)[..], &["--force"]].concat();
        let recording = lab.record(&options, &[hits, "1000"]);
        let samples = recording.samples();
        let weights = weights(&samples);
        let (calls, recursions) = (recording.printed("calls"), recording.printed("recursions"));
        let versioned = recording.printed("versioned");
        assert_eq!(
            recording.printed("guarded"),
            calls,
            "the semaphore was not up all the time"
        );
        let wanted = [
            calls,
            calls,
            recursions,
            recursions,
            versioned,
            versioned,
            versioned,
            calls,
            calls,
            recording.printed("forks"),
        ];
        for (event, wanted) in events.iter().zip(wanted) {
            assert_eq!(weights.get(event.as_str()), Some(&wanted), "{event} {mode}");
        }
        // The workload asked before it ended, and what came before its own start is not all recorded.
        let (faults, switches) = (recording.printed("faults"), recording.printed("switches"));
        assert!(weights["page-faults"] >= recording.printed("touched"));
        assert!(
            weights["page-faults"].abs_diff(faults) < 200,
            "{weights:?} {faults}"
        );
        assert!(
            weights["context-switches"].abs_diff(switches) < 20,
            "{weights:?} {switches}"
        );
    }
}

/// Check that with `-c N` each sample weighs N, and their sum is the number of hits but for what a CPU still holds.
#[test]
fn one_in_seven() {
    let lab = Lab::new();
    let hits = workload("hits");
    let probe = format!("uprobe:{}:probed", text(&hits));
    let options = ["-c", "7", "-e", &probe, "-e", "page-faults"];
    let recording = lab.record(&options, &[text(&hits), "5000"]);
    let samples = recording.samples();
    assert!(samples.iter().all(|sample| sample.weight == 7));
    let cpus = 2 * 7;
    let weights = weights(&samples);
    let calls = recording.printed("calls");
    assert!(
        weights[probe.as_str()] <= calls && weights[probe.as_str()] + cpus >= calls,
        "{weights:?}"
    );
    assert!(
        weights["page-faults"] + cpus >= recording.printed("touched"),
        "{weights:?}"
    );
}

/// Check that a clock weighs nanoseconds beside a probe that weighs hits, both in one recording.
#[test]
fn each_its_own_weight() {
    let lab = Lab::new();
    let hits = workload("hits");
    let probe = format!("uprobe:{}:slow", text(&hits));
    let options = [
        "-F",
        "1000",
        "-e",
        "task-clock",
        "-e",
        &probe,
        "-e",
        "cpu-clock:u",
    ];
    let recording = lab.record(&options, &[text(&hits), "10", "0.5"]);
    let samples = recording.samples();
    for sample in &samples {
        let wanted = if sample.event == probe { 1 } else { 1_000_000 };
        assert_eq!(sample.weight, wanted, "{}", sample.event);
        let in_kernel = sample
            .frames
            .first()
            .is_some_and(|frame| frame.kind == "kernel");
        assert!(sample.event != "cpu-clock:u" || !in_kernel, "{sample:?}");
    }
    assert_eq!(weights(&samples)[probe.as_str()], 1);
    let seen: BTreeSet<&str> = samples.iter().map(|sample| sample.event.as_str()).collect();
    assert_eq!(seen.len(), 3, "{seen:?}");
}

/// Check that counters which this machine lacks are replaced by one clock, that it is said, and where it has them that
/// they run.
#[test]
fn hardware_counters_or_a_clock() {
    let lab = Lab::new();
    let options = [
        "-F",
        "997",
        "-e",
        "cycles",
        "-e",
        "instructions",
        "-e",
        "cpu-clock",
    ];
    let recording = lab.record(&options, &[text(&workload("hits")), "10", "0.5"]);
    let samples = recording.samples();
    let seen: BTreeSet<&str> = samples.iter().map(|sample| sample.event.as_str()).collect();
    if Path::new("/sys/bus/event_source/devices/cpu").exists() {
        assert_eq!(
            seen,
            BTreeSet::from(["cpu-clock", "cycles", "instructions"])
        );
        return;
    }
    assert_eq!(seen, BTreeSet::from(["cpu-clock"]));
    let said = recording.output.stderr.lines();
    let said: Vec<&str> = said
        .filter(|line| line.contains("runs in its place"))
        .collect();
    assert_eq!(said.len(), 2, "{}", recording.output.stderr);
    assert!(said[0].contains("cycles") && said[1].contains("instructions"));
    let notes = recording.info.host["event_notes"]
        .as_str()
        .unwrap_or_default();
    assert!(
        notes.contains("cycles") && notes.contains("cpu-clock at 997 Hz"),
        "{notes}"
    );
}

/// Check that a function on which a uretprobe sits has its true caller in every stack through it: of ticks in user code,
/// of switches in the kernel, of probes inside, and of the uretprobe itself; in both modes.
#[test]
fn true_caller_under_a_uretprobe() {
    let lab = Lab::new();
    let hits = workload("hits");
    let path = text(&hits);
    let names = ["slow", "probed", "recurse"];
    let probes = names.map(|name| format!("uretprobe:{path}:{name}"));
    let entry = format!("uprobe:{path}:probed");
    for mode in MODES {
        let mut options = vec!["--user-stacks", mode, "-F", "2000", "--force"];
        for event in ["cpu-clock", "context-switches", &entry] {
            options.extend(["-e", event]);
        }
        probes
            .iter()
            .for_each(|probe| options.extend(["-e", probe.as_str()]));
        let recording = lab.record(&options, &[path, "200", "0.5"]);
        let stacks = stacks(&recording.archive);
        let dump = rawstack_on("dump", &recording.archive).success().stdout;
        assert!(
            !dump.contains("[uprobes]"),
            "a trampoline in a stack, {mode}"
        );
        assert_callers(&stacks, mode);
        // The return of slow() is where its caller goes on.
        for names in of(&stacks, &probes[0]) {
            assert_eq!(names[..2], ["slow_caller", "main"], "{mode}");
        }
        for names in of(&stacks, &entry) {
            assert!(names[0] == "probed" && names[1] != "probed", "{names:?}");
        }
        let depth = |names: &[String]| names.iter().filter(|name| *name == "recurse").count();
        let depths: BTreeSet<usize> = of(&stacks, &probes[2]).map(depth).collect();
        assert_eq!(depths, (0..20).collect(), "{mode}");
    }
}

/// The stacks of one event.
fn of<'a>(stacks: &'a [(String, Vec<String>)], event: &str) -> impl Iterator<Item = &'a [String]> {
    let matching = stacks.iter().filter(move |(other, _)| other == event);
    matching.map(|(_, names)| names.as_slice())
}

/// Each function of the workload has the caller that its source says. Ticks may come before a frame is there.
fn assert_callers(stacks: &[(String, Vec<String>)], mode: &str) {
    const OWN: [&str; 6] = ["slow", "probed", "recurse", "slow_caller", "caller", "main"];
    let mut checked = BTreeMap::<(&str, &str), usize>::new();
    let mut missed = Vec::new();
    for (event, names) in stacks {
        // Behind what the kernel was at.
        let leaf = names.iter().position(|name| OWN.contains(&name.as_str()));
        for (at, pair) in names.windows(2).enumerate() {
            let callers: &[&str] = match pair[0].as_str() {
                "slow" => &["slow_caller"],
                "probed" => &["caller", "slow"],
                "recurse" => &["recurse", "main"],
                "slow_caller" | "caller" => &["main"],
                _ => continue,
            };
            // Interrupted on its first instructions, or anywhere in a leaf without a frame: its caller is missed.
            let is_often_called = matches!(pair[0].as_str(), "probed" | "recurse" | "caller");
            let may_miss = Some(at) == leaf && !event.starts_with("u");
            if may_miss && is_often_called {
                continue;
            }
            if !callers.contains(&pair[1].as_str()) {
                assert!(may_miss, "{event} {mode}: {names:?}");
                missed.push(names);
                continue;
            }
            *checked.entry((event, pair[0].as_str())).or_default() += 1;
        }
    }
    // Each of the others is entered once.
    assert!(missed.len() <= 2, "{mode}: {missed:?}");
    // slow() is mostly in probed(), which has no frame: what the stack shows next is where slow() returns to.
    for wanted in [("cpu-clock", "slow_caller"), ("context-switches", "slow")] {
        assert!(
            checked.get(&wanted).is_some_and(|count| *count > 3),
            "{wanted:?} {checked:?}"
        );
    }
}

/// Check that a file without symbols can be probed by offset, and that the caller is there all the same.
#[test]
fn stripped_file_by_offset() {
    let lab = Lab::new();
    let (hits, stripped) = (workload("hits"), workload("hits-stripped"));
    let address = elf::symbols(&hits)["probed"];
    let segments = elf::segments(&hits);
    let offset = (0..=address)
        .rev()
        .find(|offset| elf::address_of(&segments, *offset) == Some(address));
    let probe = format!("uprobe:{}:{:#x}", text(&stripped), offset.unwrap());
    let recording = lab.record(&["-e", &probe], &[text(&stripped), "300"]);
    let samples = recording.samples();
    assert_eq!(samples.len(), 300);
    let caller = elf::symbols(&hits)["caller"];
    for sample in samples {
        let return_address = sample
            .user_frames()
            .nth(1)
            .and_then(|frame| frame.file_offset());
        let within = elf::address_of(&segments, return_address.unwrap()).unwrap() - caller;
        assert!(
            (1..64).contains(&within),
            "{within} bytes behind the caller's start"
        );
    }
}

/// Check that one process is recorded of two that hit the same probe.
#[test]
fn one_process_of_two() {
    let lab = Lab::new();
    let hits = workload("hits");
    let spawn = || Run::new(&hits).args(["10", "20"]).spawn();
    let (wanted, _other) = (spawn(), spawn());
    let (pid, probe) = (
        wanted.pid().to_string(),
        format!("uprobe:{}:probed", text(&hits)),
    );
    let options = ["-e", &probe, "-p", &pid, "-d", "500ms"];
    let output = lab.recorder("archive.rawstack", &options).success();
    let recording = Recording::new(lab.path("archive.rawstack"), output);
    let pids = recording.pids();
    assert_eq!(pids, BTreeSet::from([wanted.pid()]));
}

/// A recorder in a world of its own, which `setup` makes.
fn inside(setup: &str, archive: &Path, options: &[&str], command: &[&str]) -> Run {
    require("unshare", "util-linux");
    let script = format!("{setup}; exec \"$@\"");
    Run::new("unshare")
        .args(["-m", "sh", "-ec", &script, "sh"])
        .arg(rawstack_record())
        .arg("-o")
        .arg(archive)
        .args(options)
        .arg("--")
        .args(command)
        .deadline(Duration::from_secs(60))
}

const WITH_TRACEFS: &str =
    "mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing";
const WITHOUT_TRACEFS: &str = "mount -t tmpfs none /sys/kernel/tracing; \
    if [ -d /sys/kernel/debug/tracing ]; then mount -t tmpfs none /sys/kernel/debug/tracing; fi";

/// Fail unless each sample has both halves.
fn assert_halves(samples: &[Sample]) {
    for sample in samples {
        let of = |kind| {
            sample
                .frames
                .iter()
                .filter(|frame| frame.kind == kind)
                .count()
        };
        assert!(
            of("kernel") > 0 && of("user") > 0,
            "a half is missing: {sample:?}"
        );
    }
}

/// Check that with tracefs a tracepoint of one system call counts that call, and that a wrong name gets near ones.
#[test]
fn tracepoints_with_tracefs() {
    let lab = Lab::new();
    let (hits, archive) = (workload("hits"), lab.path("archive.rawstack"));
    let options = [
        "-e",
        "syscalls:sys_enter_getppid",
        "-e",
        "task:task_newtask",
    ];
    let output = inside(WITH_TRACEFS, &archive, &options, &[text(&hits), "1000"]).success();
    let recording = Recording::new(archive, output);
    let samples = recording.samples();
    let weights = weights(&samples);
    assert_eq!(
        weights["syscalls:sys_enter_getppid"],
        recording.printed("calls")
    );
    assert_eq!(weights["task:task_newtask"], recording.printed("forks"));
    assert_halves(&samples);
    let wrong = ["-e", "syscalls:sys_enter_getpid2"];
    inside(WITH_TRACEFS, &lab.path("x.rawstack"), &wrong, &["true"])
        .output()
        .code(2)
        .one_line_error(&[
            "sys_enter_getpid2",
            "did you mean",
            "syscalls:sys_enter_getpid",
        ]);
}

/// Check that without tracefs the same tracepoints are found by their bare names, that the stack begins where the kernel
/// hits them, and that one which has no such name says what to do.
#[test]
fn tracepoints_without_tracefs() {
    let lab = Lab::new();
    let (hits, archive) = (workload("hits"), lab.path("archive.rawstack"));
    let options = ["-e", "raw_syscalls:sys_enter", "-e", "task:task_newtask"];
    let output = inside(WITHOUT_TRACEFS, &archive, &options, &[text(&hits), "1000"]).success();
    let recording = Recording::new(archive, output);
    let samples = recording.samples();
    let weights = weights(&samples);
    assert_eq!(weights["task:task_newtask"], recording.printed("forks"));
    assert!(weights["raw_syscalls:sys_enter"] > recording.printed("calls"));
    assert_halves(&samples);
    let is_of_recorder = |sample: &Sample| {
        let path = sample.frames[0].path.as_deref();
        path.is_some_and(|path| path.contains("bpf_prog"))
    };
    assert!(
        !samples.iter().any(is_of_recorder),
        "the recorder's own frame is on top"
    );
    let only_there = ["-e", "syscalls:sys_enter_getppid"];
    inside(
        WITHOUT_TRACEFS,
        &lab.path("x.rawstack"),
        &only_there,
        &["true"],
    )
    .output()
    .code(2)
    .one_line_error(&["syscalls:sys_enter_getppid", "tracefs", "raw_syscalls"]);
}

/// Check that what is not there is refused in one line that says what is, before anything is run or written.
#[test]
fn what_is_not_there() {
    let lab = Lab::new();
    let (hits, stripped) = (workload("hits"), workload("hits-stripped"));
    let (hits, stripped) = (text(&hits), text(&stripped));
    let uprobe = |symbol: &str| format!("uprobe:{hits}:{symbol}");
    let mut wrong = vec![
        ("cycels".to_owned(), vec!["cycels", "did you mean cycles"]),
        ("page-fault".to_owned(), vec!["page-faults"]),
        ("cpu-clock:G".to_owned(), vec!["modifier G"]),
        ("cqu/event=1/".to_owned(), vec!["cqu"]),
        ("sched:sched_swich".to_owned(), vec!["sched_switch"]),
        (uprobe("probbed"), vec!["probbed", "did you mean probed"]),
        (uprobe("versioned@pltt"), vec!["versioned@plt"]),
        (
            format!("uprobe:{stripped}:probed"),
            vec!["no function probed", "offset"],
        ),
        ("uprobe:/nonexistent:main".to_owned(), vec!["/nonexistent"]),
        ("uprobe:/etc/passwd:main".to_owned(), vec!["no ELF file"]),
        (format!("usdt:{hits}:hits:reqest"), vec!["hits:request"]),
        ("uprobe:libc.so.6:memcpy".to_owned(), vec!["chooses"]),
    ];
    if !Path::new("/sys/bus/event_source/devices/kprobe").exists() {
        wrong.push(("kprobe:do_nanosleep".to_owned(), vec!["CONFIG_KPROBES"]));
    }
    for (event, words) in wrong {
        let ran = lab.path("ran");
        let output = lab
            .recorder("x.rawstack", &["-e", &event, "--", "touch"])
            .arg(&ran)
            .output()
            .code(2);
        output.one_line_error(&words);
        assert!(!ran.exists() && !lab.path("x.rawstack").exists(), "{event}");
    }
}

/// Check the kernel's own counts, as perf reads them, of the same process at the same time.
#[test]
fn as_perf_counts() {
    let lab = Lab::new();
    require("perf", "linux-perf");
    let hits = workload("hits");
    let counts = lab.path("counts");
    let perf = [
        "perf",
        "stat",
        "-x,",
        "-e",
        "page-faults,context-switches,minor-faults",
        "-o",
    ];
    let command = [&perf[..], &[text(&counts), text(&hits), "1000"]].concat();
    let events = [
        "-c",
        "1",
        "-e",
        "page-faults",
        "-e",
        "context-switches",
        "-e",
        "minor-faults",
    ];
    let recording = lab.record(&events, &command);
    let samples = recording.samples();
    let text = std::fs::read_to_string(&counts).unwrap();
    for event in ["page-faults", "context-switches", "minor-faults"] {
        let line = text
            .lines()
            .find(|line| line.contains(event))
            .unwrap_or_else(|| panic!("{text}"));
        let counted: u64 = line
            .split(',')
            .next()
            .and_then(|count| count.parse().ok())
            .unwrap();
        // perf's counts go with the children; from exec on, as the name does.
        let named = samples
            .iter()
            .filter(|sample| sample.comm == "hits" && sample.event == event);
        let recorded: u64 = named.map(|sample| sample.weight).sum();
        assert!(
            recorded.abs_diff(counted) <= 5 + counted / 100,
            "{event}: {recorded}, perf {counted}"
        );
    }
}
