//! A tree of separate debug files, as distributions install them below `/usr/lib/debug`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::elf::build_id;
use crate::programs::require;
use crate::run::Run;

/// Put the debug information of `binaries` into `root/.build-id/ab/cdef….debug`, without their code.
pub fn make(root: &Path, binaries: &[&Path]) {
    for binary in binaries {
        add(root, binary);
    }
}

/// Path of the debug file of `build_id` below `root`.
pub fn path(root: &Path, build_id: &str) -> PathBuf {
    let (first, rest) = build_id
        .split_at_checked(2)
        .unwrap_or_else(|| panic!("{build_id} is too short a build ID"));
    root.join(".build-id")
        .join(first)
        .join(format!("{rest}.debug"))
}

fn add(root: &Path, binary: &Path) {
    require("objcopy", "binutils");
    let debug = path(root, &build_id(binary));
    let dir = debug.parent().unwrap_or(root);
    fs::create_dir_all(dir).unwrap_or_else(|err| panic!("failed to make {}: {err}", dir.display()));
    Run::new("objcopy")
        .arg("--only-keep-debug")
        .arg(binary)
        .arg(&debug)
        .success();
}
