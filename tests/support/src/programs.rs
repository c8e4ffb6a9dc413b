//! Where the programs are: ours, the workloads, and those that others made.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::geteuid;
use tempfile::TempDir;

use crate::Run;
use crate::turn::lock;

/// How long cargo may take to build the programs.
const BUILD_DEADLINE: Duration = Duration::from_secs(1200);

/// The file `rawstack`.
pub fn rawstack() -> PathBuf {
    built_program("rawstack")
}

/// The file `rawstack-record`.
pub fn rawstack_record() -> PathBuf {
    built_program("rawstack-record")
}

/// A workload of tests/workloads, built when it is not there yet or its source is newer.
pub fn workload(name: &str) -> PathBuf {
    let out = target_dir().join("workloads");
    let source = workspace_dir().join("tests/workloads");
    let _one_make = lock("workloads");
    Run::new("make")
        .arg("-s")
        .arg("-C")
        .arg(source)
        .arg(format!("OUT={}", out.display()))
        .arg(name)
        .success();
    out.join(name)
}

/// A source file of tests/workloads that runs without being built: a script.
pub fn script(name: &str) -> PathBuf {
    workspace_dir().join("tests/workloads").join(name)
}

/// Fail unless `command` is on PATH; `package` is where Debian has it.
pub fn require(command: &str, package: &str) {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).any(|dir| dir.join(command).is_file());
    assert!(
        found,
        "{command} is missing: install the package {package} (`make test` does it)"
    );
}

/// Fail unless this is root.
pub fn require_root() {
    assert!(
        geteuid().is_root(),
        "this test records and needs root: run `make test`, or the test through sudo"
    );
}

/// A new folder on the disk that holds the build, removed with the value. /tmp may lie in memory.
pub fn temp_dir() -> TempDir {
    let parent = target_dir().join("tmp");
    fs::create_dir_all(&parent)
        .and_then(|()| TempDir::new_in(&parent))
        .unwrap_or_else(|err| panic!("failed to make a folder in {}: {err}", parent.display()))
}

/// Root of the workspace.
pub fn workspace_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap_or_else(|err| panic!("workspace: {err}"))
}

/// Where cargo builds: `target`.
pub fn target_dir() -> PathBuf {
    parent_of(&profile_dir())
}

/// Where cargo puts the programs of this test's profile: `target/debug`.
fn profile_dir() -> PathBuf {
    let test = env::current_exe().unwrap_or_else(|err| panic!("where is this test? {err}"));
    parent_of(&parent_of(&test))
}

fn parent_of(path: &Path) -> PathBuf {
    path.parent()
        .unwrap_or_else(|| panic!("{} has no folder", path.display()))
        .to_owned()
}

/// A program of the workspace. `RAWSTACK_BIN_DIR` says where they are; without it cargo makes them first.
fn built_program(name: &str) -> PathBuf {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    let dir = DIR.get_or_init(|| match env::var_os("RAWSTACK_BIN_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => build_programs(),
    });
    let program = dir.join(name);
    assert!(
        program.is_file(),
        "{} is missing: cargo build --workspace --bins",
        program.display()
    );
    program
}

fn build_programs() -> PathBuf {
    let dir = profile_dir();
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut run = Run::new(cargo)
        .args(["build", "--quiet", "--workspace", "--bins"])
        .current_dir(workspace_dir());
    if dir.ends_with("release") {
        run = run.arg("--release");
    }
    run.deadline(BUILD_DEADLINE).success();
    dir
}
