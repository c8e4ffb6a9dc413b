//! Processes that come and go: short ones, deleted ones, children, interpreters.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use rawstack_test_support::json::{Frame, Sample, parse_hex, report, symbolize};
use rawstack_test_support::programs::{script, workload};
use rawstack_test_support::{Run, elf};

use crate::recording::{Lab, Recording, percent, text};

/// Check that the code of children that live for 2 ms can be named, where all of it was mapped before the recording by a
/// parent that hardly runs.
#[test]
fn short_children_of_a_waiting_parent() {
    let lab = Lab::new();
    let told = lab.path("forks");
    let mut forks = Run::new(workload("forks"))
        .args([text(&told), "60"])
        .spawn();
    forks.wait_until("a child has ended", || told.exists());
    let options = ["-p", &forks.pid().to_string(), "-F", "1997", "-d", "1s"];
    let output = lab.recorder("archive.rawstack", &options).success();
    let recording = Recording::new(lab.path("archive.rawstack"), output);

    let samples = recording.samples();
    let frames = samples.iter().flat_map(Sample::user_frames);
    let frames: Vec<&Frame> = frames.filter(|frame| !frame.is_kernel_page()).collect();
    let unplaced = frames.iter().find(|frame| !frame.is_placed());
    assert!(unplaced.is_none(), "{unplaced:?}");
    let rows = report(&recording.archive, &[]).rows;
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert!(names.contains(&"work_child"), "{names:?}");
}

/// Check that processes of under 5 ms, half of them from a file deleted at once, leave frames that can be placed.
#[test]
fn thousand_short_processes() {
    let lab = Lab::new();
    let program = workload("spawn1000");
    let dir = lab.path("");
    let recording = lab.record(&["-F", "1997"], &[text(&program), text(&dir), "1000"]);
    assert_eq!(recording.printed("ended"), 1000, "not all children ran");

    let samples = recording.samples();
    let frames: Vec<&Frame> = samples
        .iter()
        .flat_map(Sample::user_frames)
        .filter(|f| !f.is_kernel_page())
        .collect();
    let placed = frames.iter().filter(|frame| frame.is_placed()).count();
    assert!(frames.len() > 2000, "only {} user frames", frames.len());
    assert!(
        percent(placed, frames.len()) >= 99.9,
        "{placed} of {} user frames are placed",
        frames.len()
    );

    // A walk through the C library, which has no frame pointers, meets other words of the stack: text of arguments and
    // environment among them, which must not get into an archive.
    let words: Vec<_> = frames
        .iter()
        .filter(|frame| {
            frame
                .address
                .as_deref()
                .is_some_and(|address| parse_hex(address) >= 1 << 47)
        })
        .collect();
    assert!(
        words.is_empty(),
        "{} words of memory are told as addresses: {:?} …",
        words.len(),
        words[0]
    );

    // A copy is the same module, and its process is named after the copy.
    let build_id = elf::build_id(&program);
    let in_copies = samples
        .iter()
        .filter(|sample| sample.comm.starts_with("copy-"))
        .flat_map(Sample::user_frames)
        .filter(|frame| frame.build_id.as_deref() == Some(build_id.as_str()))
        .count();
    assert!(in_copies > 500, "only {in_copies} frames in deleted files");
    let pids: BTreeSet<u32> = samples.iter().map(|sample| sample.pid).collect();
    assert!(
        pids.len() > 900,
        "only {} of 1,000 processes have a sample",
        pids.len()
    );
}

/// Check that code which a program copied to memory without a file, as those do that want huge pages, is named by the file:
/// a part or all of it, before the recording or during it, wherever the linker put it.
#[test]
fn copied_code() {
    let lab = Lab::new();
    for (program, how) in [
        ("huge_text", "part"),
        ("huge_text", "whole"),
        ("huge_text-gap", "part"),
        ("huge_text-gap", "whole"),
    ] {
        let path = workload(program);
        let mut running = Run::new(&path).args(["60", how]).spawn();
        let maps = format!("/proc/{}/maps", running.pid());
        running.wait_until("the code is copied", || {
            let maps = fs::read_to_string(&maps).unwrap();
            let is_bare = |line: &str| line.contains(" r-xp ") && line.ends_with(" 00:00 0 ");
            maps.lines().any(is_bare)
        });
        let pid = running.pid().to_string();
        let options = ["--force", "-F", "997", "-d", "1s", "-p", &pid];
        let output = lab.recorder("before.rawstack", &options).success();
        let before = Recording::new(lab.path("before.rawstack"), output);
        drop(running);
        let command = [text(&path), "1.5", how];
        let during = lab.record(&["--force", "-F", "997"], &command);
        for (when, recording) in [("before", before), ("during", during)] {
            let rows = report(&recording.archive, &[]).rows;
            let total: f64 = rows.iter().map(|row| row.self_weight).sum();
            let worked = rows.iter().find(|row| row.name == "work_in_copy");
            let worked = worked.map_or(0.0, |row| row.self_weight);
            assert!(
                worked > total * 0.9,
                "{program} {how}, copied {when}: {worked} of {total}\n{rows:?}"
            );
        }
    }
}

/// Check that COMMAND and its child are sampled from their first instruction on.
#[test]
fn from_the_first_instruction() {
    let lab = Lab::new();
    let program = workload("first_instruction");
    let output = lab
        .recorder("archive.rawstack", &["-F", "1997", "--"])
        .arg(&program)
        .output()
        .code(7);
    let recording = Recording::new(lab.path("archive.rawstack"), output);
    let samples = recording.samples();

    let leaves: Vec<(u32, u64)> = samples
        .iter()
        .filter_map(|sample| Some((sample.pid, sample.user_frames().next()?)))
        .filter(|(_, frame)| frame.path.as_deref() == Some(text(&program)))
        .filter_map(|(pid, frame)| Some((pid, frame.file_offset()?)))
        .collect();
    let offsets: Vec<u64> = leaves.iter().map(|(_, offset)| *offset).collect();
    let names: Vec<String> = symbolize(&program, &offsets)
        .into_iter()
        .map(|answer| {
            answer
                .frames
                .last()
                .map_or(String::new(), |frame| frame.name.clone())
        })
        .collect();
    let pids: BTreeSet<u32> = leaves.iter().map(|(pid, _)| *pid).collect();
    assert_eq!(pids.len(), 2, "parent and child: {pids:?}");
    for pid in pids {
        let count = |wanted: &str| {
            leaves
                .iter()
                .zip(&names)
                .filter(|((other, _), name)| *other == pid && *name == wanted)
                .count()
        };
        let (first, second) = (count("first_work"), count("second_work"));
        assert!(second > 20, "only {second} samples in second_work");
        assert!(
            first * 100 >= second * 70,
            "{first} samples in first_work, {second} in second_work"
        );
    }
}

/// Check that threads are told apart by ID and name.
#[test]
fn threads_by_name() {
    let lab = Lab::new();
    let program = workload("threads");
    let recording = lab.record(&["-F", "997"], &[text(&program), "6", "2"]);
    let samples = recording.samples();
    let comms: BTreeSet<&str> = samples.iter().map(|sample| sample.comm.as_str()).collect();
    let workers = [
        "worker-0", "worker-1", "worker-2", "worker-3", "worker-4", "worker-5",
    ];
    for worker in workers {
        assert!(comms.contains(worker), "no sample of {worker}: {comms:?}");
        let of_worker = samples.iter().filter(|sample| sample.comm == worker);
        let tids: BTreeSet<u32> = of_worker.map(|sample| sample.tid).collect();
        assert_eq!(tids.len(), 1, "{worker} has {tids:?}");
    }
    let rows = report(&recording.archive, &["--by", "thread"]).rows;
    for worker in workers {
        assert!(
            rows.iter().any(|row| row.name.contains(worker)),
            "no row for {worker}: {rows:?}"
        );
    }
}

/// Check that an interpreter and a shell with its children are recorded like anything else.
#[test]
fn interpreter_and_shell() {
    let lab = Lab::new();
    let (python, shell) = (script("busy.py"), script("busy.sh"));
    for (command, comm) in [
        (vec!["python3", text(&python), "1"], "python3"),
        (vec!["sh", text(&shell), "100"], "sh"),
    ] {
        let options = ["-F", "997", "--force"];
        let recording = lab.record(&options, &command);
        let samples = recording.samples();
        let own = samples.iter().filter(|sample| sample.comm == comm).count();
        assert!(own > 20, "only {own} samples of {comm}");
    }
}

/// Check that time spent in the vDSO has the vDSO's names.
#[test]
fn vdso() {
    let lab = Lab::new();
    let recording = lab.record(&["-F", "997"], &[text(&workload("vdso_clock")), "1"]);
    let rows = report(&recording.archive, &[]).rows;
    let vdso = rows.iter().filter(|row| {
        row.module
            .as_deref()
            .is_some_and(|module| module.contains("[vdso]"))
    });
    let named = vdso.filter(|row| row.name.contains("clock_gettime") && row.self_weight > 0.0);
    assert!(named.count() > 0, "no clock_gettime of [vdso]: {rows:?}");
}

/// Check that a sample has the name that its thread had at its time, and a forked child that of the thread that made it.
#[test]
fn names_over_time() {
    let lab = Lab::new();
    let recording = lab.record(&["-F", "997"], &[text(&workload("names")), "2"]);
    let samples = recording.samples();
    for (who, before, after) in [
        ("main", "name-one", "name-two"),
        ("thread", "thread-one", "thread-two"),
    ] {
        let renamed_ns = recording.printed(who);
        let times = |name: &str| -> Vec<u64> {
            let named = samples.iter().filter(|sample| sample.comm == name);
            named.map(|sample| sample.time_ns).collect()
        };
        let (before, after) = (times(before), times(after));
        assert!(
            before.len() > 20 && after.len() > 20,
            "{who}: {} and {}",
            before.len(),
            after.len()
        );
        // It says so a moment before it does it.
        let last = before.iter().max().copied().unwrap_or_default();
        assert!(
            last < renamed_ns + 50_000_000,
            "{who} was renamed at {renamed_ns}, and has its name at {last}"
        );
        assert!(
            after.iter().all(|&time| time >= renamed_ns),
            "{who} has its name before {renamed_ns}"
        );
    }
    let child = u32::try_from(recording.printed("child")).unwrap_or_default();
    let of_child: Vec<_> = samples
        .iter()
        .filter(|sample| sample.pid == child)
        .collect();
    assert!(
        of_child.len() > 20,
        "only {} samples of the child",
        of_child.len()
    );
    let named = of_child.iter().filter(|sample| sample.comm == "thread-two");
    assert_eq!(named.count(), of_child.len(), "{:?}", of_child[0]);
}

/// Check that a process that is moved to another cgroup is told to be in each at its time.
#[test]
fn moved_to_another_cgroup() {
    let lab = Lab::new();
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let unified = mounts.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (place, kind) = (words.next()?, words.next()?);
        (kind == "cgroup2").then(|| Path::new(place).to_owned())
    });
    let unified =
        unified.unwrap_or_else(|| panic!("no unified cgroup hierarchy is mounted:\n{mounts}"));
    let name = format!("rawstack-test-{}", process::id());
    let groups = ["a", "b"].map(|part| Folder(unified.join(format!("{name}-{part}"))));
    groups.iter().for_each(|group| {
        fs::create_dir(&group.0).unwrap_or_else(|err| panic!("{:?}: {err}", group.0))
    });
    let [a, b] = groups.each_ref().map(|group| text(&group.0));
    let program = workload("threads");
    let command = format!(
        "echo $$ > {a}/cgroup.procs && {{ {} 1 7 & }} && sleep 2 && echo $! > {b}/cgroup.procs && wait",
        text(&program)
    );
    let recording = lab.record(&["-F", "199"], &["sh", "-c", &command]);
    let report = report(&recording.archive, &["--by", "cgroup"]);
    let share = |part: &str| {
        let row = report
            .rows
            .iter()
            .find(|row| row.name == format!("/{name}-{part}"));
        row.map_or(0.0, |row| row.total * 100.0 / report.total)
    };
    let (a, b) = (share("a"), share("b"));
    assert!(
        a > 25.0 && b > 35.0 && a + b > 90.0,
        "{a} % and {b} %: {report:?}"
    );
}

/// Removes a folder that is empty by then.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
