//! Rights: what the recorder's processes still may do while it records, and how it lives without them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rawstack_test_support::json::Sample;
use rawstack_test_support::programs::{rawstack_record, require, workload};
use rawstack_test_support::{Output, Run, Running, elf};
use rustix::process::{Pid, Signal, kill_process};

use crate::recording::{Lab, Recording, text};

/// CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_CHECKPOINT_RESTORE.
const READING: u64 = 1 << 2 | 1 << 19 | 1 << 40;
/// CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF: what the supervisor may keep besides.
const SUPERVISING: u64 = READING | 1 << 21 | 1 << 38 | 1 << 39;
/// The user nobody.
const NOBODY: u32 = 65534;

/// `/proc/PID/task/TID/status`, by name.
type Status = BTreeMap<String, String>;

fn status(task: &Path) -> Option<Status> {
    let text = fs::read_to_string(task.join("status")).ok()?;
    let pair = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_owned(), value.trim().to_owned()))
    };
    Some(text.lines().filter_map(pair).collect())
}

/// Of every thread of a process.
fn statuses(pid: u32) -> Vec<Status> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("a live process");
    tasks
        .filter_map(|task| status(&task.ok()?.path()))
        .collect()
}

fn capabilities(status: &Status, set: &str) -> u64 {
    u64::from_str_radix(&status[set], 16).expect("a set of capabilities")
}

fn children(pid: u32) -> Vec<u32> {
    let pids = fs::read_dir("/proc").expect("/proc is there");
    pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|child| {
            let status = status(Path::new(&format!("/proc/{child}")));
            status.is_some_and(|status| status["PPid"] == pid.to_string())
        })
        .collect()
}

/// The supervisor of a recorder, and its workers.
fn helpers(recorder: u32) -> (u32, Vec<u32>) {
    let is_supervisor = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.windows(17).any(|part| part == b"--rawstack-helper")
    };
    let supervisor = children(recorder).into_iter().find(is_supervisor);
    let supervisor = supervisor.expect("a recorder has a helper");
    let workers = children(supervisor);
    assert!(!workers.is_empty(), "a helper has workers");
    (supervisor, workers)
}

/// A recorder of all that runs, which has given up its rights.
fn locked_recorder(lab: &Lab) -> Running {
    let mut running = lab.recorder("archive.rawstack", &["-F", "997"]).spawn();
    let task = PathBuf::from(format!("/proc/{}", running.pid()));
    running.wait_until("it has a system call filter", || {
        status(&task).is_some_and(|status| status["Seccomp"] == "2")
    });
    running
}

/// End the recording.
fn end(running: Running) -> Output {
    running.signal(Signal::INT);
    running.wait().success()
}

/// Check that the writing process has nothing left, in any thread, and its helpers no more than their list; and that
/// what starts afterwards is recorded with modules and build IDs all the same.
#[test]
fn nothing_left() {
    let lab = Lab::new();
    let running = locked_recorder(&lab);
    let threads = statuses(running.pid());
    assert!(threads.len() >= 2, "a thread reads, another writes");
    for status in &threads {
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(capabilities(status, set), 0, "{set} of {}", status["Name"]);
        }
        assert_eq!(status["NoNewPrivs"], "1", "{}", status["Name"]);
        assert_eq!(status["Seccomp"], "2", "{}", status["Name"]);
    }
    let (supervisor, workers) = helpers(running.pid());
    let of_workers = workers.into_iter().map(|worker| (worker, READING));
    for (pid, list) in of_workers.chain([(supervisor, SUPERVISING)]) {
        for status in statuses(pid) {
            for set in ["CapPrm", "CapBnd"] {
                let more = capabilities(&status, set) & !list;
                assert_eq!(more, 0, "{set} of helper {pid} beyond its list");
            }
            assert_eq!(status["NoNewPrivs"], "1");
        }
    }

    let program = lab.path("started-later");
    fs::copy(workload("vdso_clock"), &program).unwrap();
    Run::new(&program).arg("0.5").success();
    let recording = Recording::new(lab.path("archive.rawstack"), end(running));
    let samples = recording.samples();
    let later: Vec<_> = samples
        .iter()
        .filter(|sample| sample.comm == "started-later")
        .collect();
    assert!(later.len() > 100, "only {} samples", later.len());
    let build_id = elf::build_id(&program);
    let placed = |sample: &&&Sample| {
        sample
            .user_frames()
            .any(|frame| frame.build_id.as_deref() == Some(&build_id))
    };
    assert!(later.iter().filter(placed).count() * 10 > later.len() * 9);
}

/// Check that a recorder that is killed leaves no helper behind.
#[test]
fn helpers_end_with_the_recorder() {
    let lab = Lab::new();
    let running = locked_recorder(&lab);
    let (supervisor, workers) = helpers(running.pid());
    running.signal(Signal::KILL);
    running.wait();
    let lives = |pid: u32| {
        let status = status(Path::new(&format!("/proc/{pid}")));
        status.is_some_and(|status| !status["State"].starts_with('Z'))
    };
    for _ in 0..500 {
        if !lives(supervisor) && !workers.iter().copied().any(lives) {
            return;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("a helper outlives its recorder by five seconds");
}

fn kill(pid: u32) {
    let number = i32::try_from(pid).ok();
    let pid = number.and_then(Pid::from_raw).expect("a process ID");
    kill_process(pid, Signal::KILL).expect("it lives until now");
}

/// Check that a worker that dies is replaced and told of, and that what runs later is still read.
#[test]
fn worker_is_replaced() {
    let lab = Lab::new();
    let mut running = locked_recorder(&lab);
    let (supervisor, workers) = helpers(running.pid());
    workers.iter().copied().for_each(kill);
    let program = lab.path("no-build-id");
    fs::copy(workload("vdso_clock"), &program).unwrap();
    Run::new("objcopy")
        .args(["--remove-section", ".note.gnu.build-id"])
        .arg(&program)
        .success();
    // The first question fails with the worker; then there is another.
    Run::new(&program).arg("0.3").success();
    let is_new = |worker: &u32| !workers.contains(worker);
    running.wait_until("there is a worker in the place of the killed ones", || {
        children(supervisor).iter().any(is_new)
    });
    let output = end(running);
    assert!(
        output.stderr.contains("1 crashed the reader"),
        "{}",
        output.stderr
    );
    Recording::new(lab.path("archive.rawstack"), output);
}

/// Check that the recording goes on when the helper is gone, and that this is said.
#[test]
fn goes_on_without_helper() {
    let lab = Lab::new();
    let running = locked_recorder(&lab);
    let (supervisor, _) = helpers(running.pid());
    kill(supervisor);
    let program = lab.path("started-later");
    fs::copy(workload("vdso_clock"), &program).unwrap();
    Run::new(&program).arg("0.5").success();
    let output = end(running);
    assert!(
        output.stderr.contains("the helper process is gone"),
        "{}",
        output.stderr
    );
    let recording = Recording::new(lab.path("archive.rawstack"), output);
    let samples = recording.samples();
    // The kernel itself told of its mappings and their build IDs.
    let later = samples
        .iter()
        .filter(|sample| sample.comm == "started-later");
    assert!(later.count() > 100);
}

/// Check that an ordinary user with two capabilities records a program of his, and that what he may not see is no error.
#[test]
fn two_capabilities() {
    require("setpriv", "util-linux");
    let lab = Lab::new();
    let folder = lab.path("");
    chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let (recorder, program) = (lab.path("rawstack-record"), lab.path("program"));
    fs::copy(rawstack_record(), &recorder).unwrap();
    fs::copy(workload("vdso_clock"), &program).unwrap();
    let archive = lab.path("archive.rawstack");
    let options = "--reuid 65534 --regid 65534 --clear-groups --inh-caps=-all,+bpf,+perfmon \
                   --ambient-caps=+bpf,+perfmon --bounding-set=-all,+bpf,+perfmon";
    let output = Run::new("setpriv")
        .args(options.split_whitespace())
        .arg(&recorder)
        .args([
            "-a",
            "-F",
            "997",
            "-o",
            text(&archive),
            "--",
            text(&program),
            "1",
        ])
        .success();
    let recording = Recording::new(archive, output);
    let build_id = elf::build_id(&program);
    let samples = recording.samples();
    let placed = samples.iter().filter(|sample| {
        let mut frames = sample.user_frames();
        frames.any(|frame| frame.build_id.as_deref() == Some(&build_id))
    });
    assert!(placed.count() > 300);
}
