//! Who is recorded: processes, threads, commands, cgroups, CPUs; what comes later, and what must not be there.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::Duration;

use rawstack_test_support::json::{Sample, report};
use rawstack_test_support::programs::{rawstack_record, require, workload};
use rawstack_test_support::{Run, Running};

use crate::recording::{Lab, Recording, text};

/// The workload `family`, running.
struct Family {
    _running: Running,
    pid: String,
    chosen: String,
}

impl Family {
    fn start(lab: &Lab, mode: &str) -> Self {
        Self::start_as(lab, Run::new(workload("family")), mode)
    }

    fn start_as(lab: &Lab, run: Run, mode: &str) -> Self {
        let told = lab.path("family");
        let mut running = run.args([text(&told), "60", mode]).spawn();
        running.wait_until("all threads run", || told.exists());
        let words = fs::read_to_string(&told).unwrap();
        let word = |at: usize| words.split_whitespace().nth(at).unwrap().to_owned();
        Self {
            pid: word(1),
            chosen: word(3),
            _running: running,
        }
    }
}

/// Busy threads that nobody asked for.
fn stranger() -> Running {
    Run::new(workload("threads")).args(["2", "60"]).spawn()
}

/// A workload that stays on one CPU.
fn on_cpu(cpu: &str, name: &str) -> Run {
    require("taskset", "util-linux");
    Run::new("taskset").args(["-c", cpu, text(&workload(name))])
}

/// Record with `options`, without a command.
fn record(lab: &Lab, options: &[&str]) -> Recording {
    let options = [options, &["-F", "1997", "--force"]].concat();
    let output = lab.recorder("archive.rawstack", &options).success();
    Recording::new(lab.path("archive.rawstack"), output)
}

/// The functions of `family` that worked.
fn workers(recording: &Recording) -> BTreeSet<String> {
    let rows = report(&recording.archive, &[]).rows;
    rows.into_iter()
        .filter(|row| row.name.starts_with("work_"))
        .map(|row| row.name)
        .collect()
}

fn comms(samples: &[Sample]) -> BTreeSet<&str> {
    samples.iter().map(|sample| sample.comm.as_str()).collect()
}

/// Check that a process is recorded with its threads and what they make later, and nobody else.
#[test]
fn process_with_what_it_makes() {
    let lab = Lab::new();
    let family = Family::start(&lab, "stay");
    let _stranger = stranger();
    let recording = record(&lab, &["-p", &family.pid, "-d", "1s"]);
    let expected = [
        "work_chosen",
        "work_grandchild",
        "work_made_child",
        "work_made_thread",
        "work_other",
    ];
    assert!(
        workers(&recording).iter().eq(expected),
        "{:?}",
        workers(&recording)
    );
    assert!(comms(&recording.samples()).iter().eq(["family"].iter()));
}

/// Check that a thread is recorded with the threads and processes that it makes later, and none beside it.
#[test]
fn thread_with_what_it_makes() {
    let lab = Lab::new();
    let family = Family::start(&lab, "stay");
    let recording = record(&lab, &["-t", &family.chosen, "-d", "1s"]);
    let expected = [
        "work_chosen",
        "work_grandchild",
        "work_made_child",
        "work_made_thread",
    ];
    assert!(
        workers(&recording).iter().eq(expected),
        "{:?}",
        workers(&recording)
    );
}

/// Check that a thread stays recorded when it executes another program and gets its process's TID by that.
#[test]
fn thread_that_executes() {
    let lab = Lab::new();
    let family = Family::start(&lab, "exec");
    let recording = record(&lab, &["-t", &family.chosen, "-d", "2s"]);
    let workers = workers(&recording);
    assert!(workers.contains("work_executed"), "{workers:?}");
    let tids: BTreeSet<String> = recording
        .samples()
        .iter()
        .map(|sample| sample.tid.to_string())
        .collect();
    assert!(
        tids.contains(&family.pid) && tids.contains(&family.chosen),
        "{tids:?}"
    );
}

/// Check that processes and threads add up, and CPUs restrict them.
#[test]
fn combined() {
    let lab = Lab::new();
    let family = Family::start_as(&lab, on_cpu("0", "family"), "stay");
    let here = on_cpu("0", "threads").args(["2", "60"]).spawn();
    let elsewhere = on_cpu("1", "threads").args(["2", "60"]).spawn();
    let strangers = format!("{},{}", here.pid(), elsewhere.pid());
    let options = [
        "-t",
        &family.chosen,
        "-p",
        &strangers,
        "-C",
        "0",
        "-d",
        "1s",
    ];
    let recording = record(&lab, &options);
    let cpus: BTreeSet<_> = recording.samples().iter().map(|it| it.cpu).collect();
    assert!(cpus.into_iter().eq([0]), "samples of another CPU");
    let pids = recording.pids();
    let (here, elsewhere) = (here.pid(), elsewhere.pid());
    assert!(
        pids.contains(&here) && !pids.contains(&elsewhere),
        "{pids:?}"
    );
    let workers = workers(&recording);
    assert!(workers.contains("work_chosen"), "{workers:?}");
    assert!(
        !workers.contains("work_other"),
        "a thread beside the one asked for"
    );
}

/// Check that a command with another target is a timer only.
#[test]
fn command_as_timer() {
    let lab = Lab::new();
    let stranger = stranger();
    let pid = stranger.pid().to_string();
    let command = workload("recurse");
    let recording = lab.record(&["-F", "997", "-p", &pid], &[text(&command), "1"]);
    let pids = recording.pids();
    assert!(pids.into_iter().eq([stranger.pid()]));
}

/// Check that nothing is recorded of what runs before a command has become itself.
#[test]
fn command_from_its_exec_on() {
    let lab = Lab::new();
    let mut samples = 0;
    for _ in 0..5 {
        let recording = lab.record(&["-F", "20000", "--force"], &["true"]);
        for sample in recording.samples() {
            samples += 1;
            let before = |path: &str| path.ends_with("/rawstack-record");
            let modules: Vec<_> = sample
                .user_frames()
                .filter_map(|frame| frame.path.as_deref())
                .collect();
            assert!(!modules.iter().any(|path| before(path)), "{modules:?}");
        }
    }
    assert!(samples > 10, "only {samples} samples");
}

/// A cgroup made for a test, with one below it.
struct TestCgroup {
    outer: PathBuf,
}

impl TestCgroup {
    fn make(hierarchy: &Path) -> Self {
        let outer = hierarchy.join(format!("rawstack-test-{}", process::id()));
        fs::create_dir_all(outer.join("inner"))
            .unwrap_or_else(|err| panic!("{}: {err}", outer.display()));
        Self { outer }
    }

    /// Put a running process into the cgroup `below`, which is made for it.
    fn put(&self, below: &str, running: &Running) {
        let folder = self.outer.join(below);
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(folder.join("cgroup.procs"), running.pid().to_string()))
            .unwrap_or_else(|err| panic!("{}: {err}", folder.display()));
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        for below in ["inner", "later", ""] {
            let folder = self.outer.join(below);
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Where cgroups can be made: the unified hierarchy, one with a controller, one without; those that this host has.
fn hierarchies() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let first = |wanted: &dyn Fn(&str, &str) -> bool| {
        mounts.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            let (point, kind, options) = (fields[1], fields[2], fields[3]);
            wanted(kind, options).then(|| PathBuf::from(point))
        })
    };
    let found = [
        first(&|kind, _| kind == "cgroup2"),
        first(&|kind, options| kind == "cgroup" && options.contains("freezer")),
        first(&|kind, options| kind == "cgroup" && options.contains("name=")),
    ];
    let found: Vec<_> = found.into_iter().flatten().collect();
    assert!(!found.is_empty(), "no cgroup hierarchy is mounted");
    found
}

/// Check that what is in a cgroup, below it, or in one made below it later is recorded, in each kind of hierarchy, and
/// that it restricts what is asked for besides.
#[test]
fn cgroups() {
    let lab = Lab::new();
    for hierarchy in hierarchies() {
        // First those that are to leave the cgroup, then the cgroup.
        let cgroup = TestCgroup::make(&hierarchy);
        let (inside, later, outside) = (stranger(), stranger(), stranger());
        cgroup.put("inner", &inside);
        let path = text(&cgroup.outer).to_owned();
        let recorder = lab
            .recorder(
                "archive.rawstack",
                &["--cgroup", &path, "-F", "997", "--force", "-d", "2s"],
            )
            .spawn();
        let archive = lab.path("archive.rawstack");
        let mut recorder = recorder;
        recorder.wait_until("the archive is there", || archive.exists());
        thread::sleep(Duration::from_millis(500));
        cgroup.put("later", &later);
        let recording = Recording::new(archive.clone(), recorder.wait().success());
        let pids = recording.pids();
        assert_eq!(pids, BTreeSet::from([inside.pid(), later.pid()]), "{path}");
        fs::remove_file(&archive).unwrap();

        let (both, relative) = (
            format!("{},{}", inside.pid(), outside.pid()),
            cgroup.outer.strip_prefix(&hierarchy).unwrap().join("inner"),
        );
        let recording = record(
            &lab,
            &["--cgroup", text(&relative), "-p", &both, "-d", "500ms"],
        );
        let pids = recording.pids();
        assert!(
            pids.into_iter().eq([inside.pid()]),
            "{}",
            relative.display()
        );
        fs::remove_file(&archive).unwrap();
        drop((inside, later, outside));
    }
}

/// Check that a target that is not there is refused in one line with its option and a cure.
#[test]
fn absent() {
    let lab = Lab::new();
    let refuse = |options: &[&str], words: &[&str]| {
        let output = lab.recorder("archive.rawstack", options).output().code(2);
        output.one_line_error(words);
    };
    refuse(
        &["-p", "2147483632"],
        &["--pid", "there is no process 2147483632"],
    );
    refuse(
        &["-t", "2147483632"],
        &["--tid", "there is no thread 2147483632"],
    );
    refuse(&["-C", "8000"], &["--cpu", "CPU 8000 is not online"]);
    refuse(
        &["--cgroup", "/etc"],
        &["--cgroup", "/etc is no folder of a cgroup file system"],
    );
    let hierarchy = hierarchies().remove(0);
    let cgroup = TestCgroup::make(&hierarchy);
    let missing = cgroup.outer.join("iner");
    refuse(
        &["--cgroup", text(&missing)],
        &["--cgroup", "there is no cgroup", "has inner"],
    );
}

/// Check that a recording is refused where process IDs are not those that the kernel's programs see.
#[test]
fn pid_namespace() {
    let lab = Lab::new();
    let output = Run::new("unshare")
        .args(["--pid", "--fork", "--mount-proc"])
        .arg(rawstack_record())
        .args(["-d", "100ms", "-o", text(&lab.path("archive.rawstack"))])
        .output()
        .code(2);
    output.one_line_error(&["within a PID namespace", "--pid=host"]);
}
