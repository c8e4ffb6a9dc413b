//! Recorded processes that try to hold the recorder up, or to have it read what is not theirs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rawstack_test_support::bare_root::BareRoot;
use rawstack_test_support::json::Sample;
use rawstack_test_support::programs::{rawstack_record, require, script, workload};
use rawstack_test_support::{Run, Running, elf};
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::Signal;

use crate::recording::{Lab, Recording, text};

/// A recorder that may not use `map_files`, and so has to look for a mapped file by its path.
fn recorder_by_path(lab: &Lab) -> Run {
    require("setpriv", "util-linux");
    Run::new("setpriv")
        .arg("--bounding-set=-checkpoint_restore,-sys_admin")
        .arg(rawstack_record())
        .args(["-o", text(&lab.path("by-path.rawstack")), "--force"])
        .args(["-F", "997"])
}

fn by_path(lab: &Lab, options: &[&str]) -> Recording {
    let output = recorder_by_path(lab).args(options).success();
    Recording::new(lab.path("by-path.rawstack"), output)
}

fn with_all_rights(lab: &Lab, options: &[&str]) -> Recording {
    let options = [&["-F", "997", "--force"], options].concat();
    let output = lab.recorder("archive.rawstack", &options).success();
    Recording::new(lab.path("archive.rawstack"), output)
}

/// The build IDs, or none, of all frames in the file `path`, which must be some.
fn build_ids(samples: &[Sample], path: &Path) -> Vec<Option<String>> {
    let mut ids: Vec<_> = samples
        .iter()
        .flat_map(Sample::user_frames)
        .filter(|frame| frame.path.as_deref() == Some(text(path)))
        .map(|frame| frame.build_id.clone())
        .collect();
    assert!(ids.len() > 50, "{} frames in {}", ids.len(), path.display());
    ids.sort();
    ids.dedup();
    ids
}

/// A program that runs from a file of its own, before anything is recorded.
fn running_program(lab: &Lab) -> (PathBuf, Running) {
    let program = lab.path("program");
    fs::copy(workload("vdso_clock"), &program).expect("a copy of the program");
    let running = Run::new(&program).arg("60").spawn();
    (program, running)
}

/// Check that a pipe in the place of a running program is not opened, and that the true file is found where rights
/// suffice.
#[test]
fn pipe_in_place_of_the_program() {
    let lab = Lab::new();
    let (program, running) = running_program(&lab);
    let build_id = elf::build_id(&program);
    // Until it is mapped.
    sleep(Duration::from_millis(200));
    fs::remove_file(&program).unwrap();
    mkfifoat(CWD, &program, Mode::RUSR | Mode::WUSR).unwrap();
    let pid = running.pid().to_string();
    let recording = by_path(&lab, &["-p", &pid, "-d", "1s"]);
    assert_eq!(build_ids(&recording.samples(), &program), [None]);
    let recording = with_all_rights(&lab, &["-p", &pid, "-d", "1s"]);
    assert_eq!(build_ids(&recording.samples(), &program), [Some(build_id)]);
}

/// Check that a link in a process's own root does not lead into the recorder's.
#[test]
fn link_out_of_a_root() {
    let lab = Lab::new();
    let root = BareRoot::new();
    let program = workload("vdso_clock");
    root.add_program(&program);
    let _running = root.run("/bin/vdso_clock").arg("60").spawn();
    sleep(Duration::from_millis(500));
    let inside = root.outside("/bin/vdso_clock");
    fs::remove_file(&inside).unwrap();
    symlink(workload("recurse"), &inside).unwrap();
    // The kernel tells paths as seen from the recorder's root.
    let samples = by_path(&lab, &["-a", "-d", "1s"]).samples();
    assert_eq!(build_ids(&samples, &inside), [None]);
    let samples = with_all_rights(&lab, &["-a", "-d", "1s"]).samples();
    let build_id = elf::build_id(&program);
    assert_eq!(build_ids(&samples, &inside), [Some(build_id)]);
}

/// Check that a file which takes the place of one that runs is never taken for it, however close behind it comes.
#[test]
fn swapped_files() {
    const ROUNDS: usize = 150;
    let lab = Lab::new();
    let (first, second, place) = (lab.path("first"), lab.path("second"), lab.path("place"));
    fs::copy(workload("vdso_clock"), &first).unwrap();
    // Without a build ID the kernel tells device and inode instead, and the path is all there is to find the file by.
    Run::new("objcopy")
        .args(["--remove-section", ".note.gnu.build-id"])
        .arg(&first)
        .success();
    fs::copy(workload("recurse"), &second).unwrap();
    let mut recorder = recorder_by_path(&lab).args(["-a"]).spawn();
    let archive = lab.path("by-path.rawstack");
    recorder.wait_until("it records", || {
        archive.metadata().is_ok_and(|meta| meta.len() > 0)
    });
    for round in 0..ROUNDS {
        let spare = lab.path("spare");
        fs::copy(&first, &place).unwrap();
        fs::copy(&second, &spare).unwrap();
        let running = Run::new(&place).arg("0.02").spawn();
        sleep(Duration::from_millis(u64::try_from(round % 10).unwrap()));
        fs::rename(&spare, &place).unwrap();
        running.wait().success();
    }
    recorder.signal(Signal::INT);
    let recording = Recording::new(archive, recorder.wait().success());
    assert_eq!(build_ids(&recording.samples(), &place), [None]);
}

/// A file system that answers no more, and a program that runs from it.
struct Silent {
    folder: PathBuf,
    server: Running,
    program: Running,
}

impl Silent {
    fn start(lab: &Lab) -> Self {
        let (folder, stop) = (lab.path("mounted"), lab.path("stop"));
        fs::create_dir(&folder).expect("a folder to mount on");
        let mut server = Run::new(script("never_answers.py"))
            .args([&folder, &workload("vdso_clock"), &stop])
            .spawn();
        let path = folder.join("program");
        server.wait_until("it is mounted", || path.exists());
        let program = Run::new(&path).arg("60").spawn();
        sleep(Duration::from_millis(500));
        fs::write(&stop, "").expect("a file in the lab");
        Self {
            folder,
            server,
            program,
        }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // Ahead of all else: nothing may be asked of a file system that does not answer.
        self.server.signal(Signal::KILL);
        let options = ["-l", "-i", "--no-canonicalize"];
        Run::new("umount").args(options).arg(&self.folder).output();
    }
}

/// Check that a file system which never answers holds nothing up: others are read and nothing is lost, and it is told.
#[test]
fn file_system_that_never_answers() {
    let lab = Lab::new();
    let silent = Silent::start(&lab);
    let (program, _running) = running_program(&lab);
    sleep(Duration::from_millis(200));
    let recording = with_all_rights(&lab, &["-a", "-d", "3s"]);
    assert!(
        recording.output.stderr.contains(" took too long"),
        "{}",
        recording.output.stderr
    );
    assert!(
        recording.info.drops.is_empty(),
        "{:?}",
        recording.info.drops
    );
    let samples = recording.samples();
    let silent_pid = silent.program.pid();
    let hung = samples.iter().filter(|sample| sample.pid == silent_pid);
    assert!(
        hung.count() > 500,
        "the silent program is recorded all the same"
    );
    let known = build_ids(&samples, &program);
    assert_eq!(known, [Some(elf::build_id(&program))]);
}

/// Check that a file which claims to be without measure is recorded as what it is: a file without a build ID.
#[test]
fn endless_file() {
    let lab = Lab::new();
    let file = lab.path("endless");
    let recording = lab.record(
        &["-F", "997"],
        &[text(&workload("strange_elf")), text(&file), "0.5"],
    );
    assert_eq!(recording.printed("ran"), 1);
    assert_eq!(build_ids(&recording.samples(), &file), [None]);
    // Read without harm, not killed over it.
    assert!(
        !recording.output.stderr.contains("unread"),
        "{}",
        recording.output.stderr
    );
}
