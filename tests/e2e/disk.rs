//! Where a recording goes when the disk, or whoever reads the pipe, does not take it.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rawstack_test_support::json::info;
use rawstack_test_support::programs::{rawstack_record, workload};
use rawstack_test_support::{Run, Running};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};

use crate::output::{
    archives, assert_seamless, end_command, is_longer, is_named, many_bytes, many_stacks, reserved,
};
use crate::recording::{Lab, Recording};

/// A file system of a few bytes, in memory.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(lab: &Lab, size: &str) -> Self {
        let path = lab.path("disk");
        fs::create_dir(&path).unwrap();
        let disk = Self(path);
        Run::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"])
            .arg(&disk.0)
            .success();
        disk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Give it another size.
    fn resize(&self, size: &str) {
        Run::new("mount")
            .args(["-o", &format!("remount,size={size}")])
            .arg(&self.0)
            .success();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Run::new("umount").arg("-l").arg(&self.0).output();
    }
}

/// A file system of its own size on a device that has less room: it takes what the device then does not.
struct Overcommitted {
    path: PathBuf,
    _backing: SmallDisk,
}

impl Overcommitted {
    fn new(lab: &Lab) -> Self {
        let backing = SmallDisk::new(lab, "800k");
        let (image, path) = (backing.path("image"), lab.path("mounted"));
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        Run::new("mkfs.ext4")
            .args(["-q", "-O", "^has_journal"])
            .arg(&image)
            .success();
        fs::create_dir(&path).unwrap();
        Run::new("mount")
            .args(["-o", "loop"])
            .args([&image, &path])
            .success();
        Self {
            path,
            _backing: backing,
        }
    }
}

impl Drop for Overcommitted {
    fn drop(&mut self) {
        Run::new("umount").arg(&self.path).output();
    }
}

/// What the recorder says when it can keep no more.
const USED_UP: &str = "memory for what waits to be written is used up";

/// Check that a disk that is full for a time costs what memory could not hold, told as a gap, and nothing behind it:
/// the recording goes on, the archive is whole, and message and exit code say what is missing.
#[test]
fn disk_full_for_a_time() {
    let lab = Lab::new();
    let disk = SmallDisk::new(&lab, "1m");
    let archive = disk.path("d.rawstack");
    let mut recorder = many_bytes(&archive, &["--max-memory", "32M"]).spawn();
    wait_for(&mut recorder, USED_UP);
    sleep(Duration::from_secs(1));
    let full_until = monotonic_ns();
    disk.resize("100m");
    wait_for(&mut recorder, "samples are kept again");
    sleep(Duration::from_secs(1));
    recorder.signal(Signal::TERM);
    let output = recorder.wait().code(2);
    let told = output.stderr.lines().last().unwrap_or_default().to_owned();
    for part in [
        "d.rawstack",
        "No space left",
        "samples between",
        "are missing",
    ] {
        assert!(told.contains(part), "no {part:?} in: {told}");
    }
    let recording = Recording::new(archive, output);
    let drops = &recording.info.drops;
    let gap = drops.iter().find(|drop| drop.reason == "unwritten");
    let gap = gap.unwrap_or_else(|| panic!("no gap is told: {drops:?}"));
    assert!(gap.count > 1000, "{gap:?}");
    let samples = recording.samples();
    let within = |time: u64| gap.from_ns < time && time < gap.to_ns;
    assert!(!samples.iter().any(|sample| within(sample.time_ns)));
    let behind = samples.iter().filter(|sample| sample.time_ns > gap.to_ns);
    assert!(behind.count() > 1000, "nothing behind the gap");
    assert!(
        gap.to_ns >= full_until,
        "the gap ends while the disk is full"
    );
}

/// `CLOCK_MONOTONIC`, the clock of samples.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1_000_000_000 + now.tv_nsec).unwrap()
}

/// Wait until the recorder says `words`.
fn wait_for(recorder: &mut Running, words: &str) {
    let deadline = Instant::now() + Duration::from_secs(90);
    while !recorder.has_said(words) {
        assert!(
            !recorder.has_ended() && Instant::now() < deadline,
            "it ended, or took too long, before it said: {words}"
        );
        sleep(Duration::from_millis(5));
    }
}

/// Check that an outage that memory holds out costs nothing at all.
#[test]
fn disk_full_within_memory() {
    let lab = Lab::new();
    let disk = SmallDisk::new(&lab, "1m");
    let archive = disk.path("d.rawstack");
    // At a rate that the buffer holds for a second or two, whatever else this machine does.
    let mut recorder = many_stacks("2000", &archive, &[]).spawn();
    recorder.wait_until("it has begun", || is_longer(&archive, 1000));
    let filler = disk.path("filler");
    // As much as there is: the last write fails.
    fs::write(&filler, vec![1; 2 << 20]).unwrap_err();
    wait_for(&mut recorder, "No space left");
    sleep(Duration::from_secs(1));
    disk.resize("100m");
    wait_for(&mut recorder, "can be written again");
    let recording = Recording::new(archive, end_command(recorder));
    assert!(
        recording.info.drops.is_empty(),
        "{:?}",
        recording.info.drops
    );
    let samples = recording.samples();
    let gaps = samples
        .windows(2)
        .map(|pair| pair[1].time_ns.saturating_sub(pair[0].time_ns));
    assert!(
        gaps.max() < Some(1_000_000_000),
        "samples of a second are missing"
    );
}

/// Check that a limit of the file's length ends the archive with its last whole chunk, and that the recorder says what
/// is missing.
#[test]
fn file_too_large() {
    let lab = Lab::new();
    let archive = lab.path("q.rawstack");
    let line = r#"ulimit -f 100; exec "$0" -o "$1" -F 20000 -- "$2" 2 2"#;
    let output = Run::new("bash")
        .args(["-c", line])
        .arg(rawstack_record())
        .arg(&archive)
        .arg(workload("many_stacks"))
        .output()
        .code(2);
    let told = output.stderr.lines().last().unwrap_or_default();
    assert!(
        told.contains("File too large") && told.contains("and the end are missing"),
        "{told}"
    );
    let info = info(&archive);
    let keys: Vec<_> = info.damage.keys().map(String::as_str).collect();
    assert_eq!(keys, ["not_ended"], "only the end is missing");
    assert!(info.samples > 1000, "only {} samples", info.samples);
}

/// Check that it is told, and is a failure, when the disk did not take in the end what it had taken at first.
#[test]
fn failed_sync() {
    let lab = Lab::new();
    let disk = Overcommitted::new(&lab);
    let archive = disk.path.join("s.rawstack");
    let mut recorder = many_bytes(&archive, &[]).spawn();
    // More than the device holds.
    recorder.wait_until("it has written much", || is_longer(&archive, 1 << 20));
    recorder.signal(Signal::TERM);
    let output = recorder.wait().code(2);
    let told = output.stderr.lines().last().unwrap_or_default();
    assert!(
        told.contains("failed to sync") && told.contains("check the disk"),
        "{told}"
    );
}

/// Check that a folder that takes no more archives holds up nothing: what comes waits in memory, and goes into the next
/// archive when the folder takes one again.
#[test]
fn folder_read_only_for_a_time() {
    let lab = Lab::new();
    let folder = lab.path("folder");
    fs::create_dir(&folder).unwrap();
    let immutable = |how: &str| Run::new("chattr").arg(how).arg(&folder).success();
    let mut recorder = Run::new(rawstack_record())
        .arg("-o")
        .arg(folder.join("r.rawstack"))
        .args(["-F", "997", "--rotate", "1s", "--"])
        .arg(workload("threads"))
        .args(["2", "5"])
        .spawn();
    let first = folder.join("r.1.rawstack");
    recorder.wait_until("it has begun", || is_longer(&first, 1000));
    immutable("+i");
    sleep(Duration::from_secs(2));
    immutable("-i");
    let output = recorder.wait().success();
    assert!(
        output.stderr.contains("failed to write"),
        "{}",
        output.stderr
    );
    assert_seamless(&archives(&folder, "r"), reserved(&output));
}

/// Check that a reader that takes nothing for seconds costs samples, told as a gap, and neither memory nor the archive.
#[test]
fn slow_pipe() {
    let lab = Lab::new();
    let (archive, pipe, go) = (lab.path("p.rawstack"), lab.path("pipe"), lab.path("go"));
    Run::new("mkfifo").arg(&pipe).success();
    let reader = r#"exec < "$0"; while [ ! -e "$1" ]; do sleep 0.05; done; cat > "$2""#;
    let reader = Run::new("bash")
        .args(["-c", reader])
        .args([&pipe, &go, &archive])
        .spawn();
    let line = r#"exec "$0" -o - --max-memory 32M -F 20000 -- "$2" 2 110 > "$1""#;
    let mut recorder = Run::new("bash")
        .args(["-c", line])
        .arg(rawstack_record())
        .arg(&pipe)
        .arg(workload("many_stacks"))
        .deadline(Duration::from_secs(100))
        .spawn();
    wait_for(&mut recorder, USED_UP);
    sleep(Duration::from_secs(1));
    fs::write(&go, "").unwrap();
    wait_for(&mut recorder, "samples are kept again");
    recorder.signal(Signal::TERM);
    let output = recorder.wait().code(2);
    reader.wait().success();
    let told = output.stderr.lines().last().unwrap_or_default();
    assert!(
        told.contains("takes too long") && told.contains("are missing"),
        "{told}"
    );
    let info = Recording::new(archive, output).info;
    assert!(info.drops.iter().any(|drop| drop.reason == "unwritten"));
}

/// Check that a signal ends the recorder even where nobody takes what is left, and that it says what that is.
#[test]
fn ended_with_a_blocked_pipe() {
    let lab = Lab::new();
    let pipe = lab.path("pipe");
    Run::new("mkfifo").arg(&pipe).success();
    let line = r#"sleep 100 < "$1" & echo $!; exec "$0" -o - -F 20000 -d 60s -- "$2" 2 60 > "$1""#;
    let mut recorder = Run::new("bash")
        .args(["-c", line])
        .arg(rawstack_record())
        .arg(&pipe)
        .arg(workload("many_stacks"))
        .deadline(Duration::from_secs(30))
        .spawn();
    let pid = recorder.pid();
    recorder.wait_until("it records", || is_named(pid, "rawstack-record"));
    sleep(Duration::from_secs(2));
    recorder.signal(Signal::TERM);
    let output = recorder.wait().code(2);
    let told = output.stderr.lines().last().unwrap_or_default();
    assert!(told.contains("samples and the end are missing"), "{told}");
    Run::new("kill").arg(output.stdout.trim()).output();
}

/// Check that a pipe whose reader has seen enough ends the recording, and that this is no failure.
#[test]
fn closed_pipe() {
    let lab = Lab::new();
    let line = r#"set -o pipefail; "$0" -q -o - -F 997 -d 60s -- "$1" 2 60 | head -c 1000 > "$2""#;
    Run::new("bash")
        .args(["-c", line])
        .arg(rawstack_record())
        .arg(workload("threads"))
        .arg(lab.path("head"))
        .deadline(Duration::from_secs(30))
        .success();
    assert_eq!(fs::metadata(lab.path("head")).unwrap().len(), 1000);
}

/// Check that the recorder's memory stays below its bound while as good as every sample has a stack of its own and the
/// disk takes nothing.
#[test]
fn memory_bound() {
    let lab = Lab::new();
    let disk = SmallDisk::new(&lab, "256k");
    let archive = disk.path("d.rawstack");
    let mut recorder = many_bytes(&archive, &["--max-memory", "32M"]).spawn();
    wait_for(&mut recorder, USED_UP);
    sleep(Duration::from_secs(1));
    let peak = resident_peak(recorder.pid()).unwrap();
    recorder.signal(Signal::TERM);
    recorder.wait().code(2);
    assert!(peak <= 32 << 20, "{peak} bytes at the most");
}

/// The most memory that a process had so far, in bytes.
fn resident_peak(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}
