//! A root directory that holds nothing but what a test puts there: another machine, as far as files go.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::programs::{require, require_root, temp_dir};
use crate::run::Run;

/// The directory. It starts empty.
#[derive(Debug)]
pub struct BareRoot {
    dir: TempDir,
}

impl BareRoot {
    /// A new one, with an empty `/tmp`.
    pub fn new() -> Self {
        let root = Self { dir: temp_dir() };
        make_dirs(&root.path().join("tmp"));
        root
    }

    /// Where it lies on this machine.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Where `inside`, an absolute path within, lies on this machine.
    pub fn outside(&self, inside: &str) -> PathBuf {
        self.path().join(inside.trim_start_matches('/'))
    }

    /// Copy a file to the absolute path `inside`.
    pub fn add_file(&self, file: &Path, inside: &str) {
        let to = self.outside(inside);
        make_dirs(to.parent().unwrap_or(self.path()));
        fs::copy(file, &to).unwrap_or_else(|err| {
            panic!(
                "failed to copy {} to {}: {err}",
                file.display(),
                to.display()
            )
        });
    }

    /// Copy a program to `/bin`, with the shared libraries that it is linked with to where they are found.
    pub fn add_program(&self, program: &Path) {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        self.add_file(program, &format!("/bin/{name}"));
        // ldd fails on a static program, which needs nothing.
        let libraries = Run::new("ldd").arg(program).output().stdout;
        for library in libraries
            .split_whitespace()
            .filter(|word| word.starts_with('/'))
        {
            self.add_file(Path::new(library), library);
        }
    }

    /// A command that will see this directory as `/`, no network, no other process, and no `/proc`.
    pub fn run(&self, program: &str) -> Run {
        require_root();
        require("unshare", "util-linux");
        // No mount is made in the new namespace, so nothing can spread from it; and in a chroot of its own, `unshare`
        // could not change how the root's mount spreads.
        let options = "--mount --propagation=unchanged --net --ipc --uts --pid --fork --kill-child --wd / --root";
        Run::new("unshare")
            .args(options.split(' '))
            .arg(self.path())
            .arg(program)
    }
}

impl Default for BareRoot {
    fn default() -> Self {
        Self::new()
    }
}

fn make_dirs(dir: &Path) {
    fs::create_dir_all(dir).unwrap_or_else(|err| panic!("failed to make {}: {err}", dir.display()));
}

#[cfg(test)]
mod tests {
    /// Tests that need root; see DEVELOPING.md.
    mod root {
        use super::super::*;

        /// Check that a program runs in the bare root and finds only what was put there.
        #[test]
        fn sees_only_what_was_added() {
            let root = BareRoot::new();
            root.add_program(Path::new("/bin/ls"));
            root.add_file(Path::new("/etc/os-release"), "/data/file");
            let output = root.run("/bin/ls").args(["/", "/data"]).success();
            assert!(
                output.stdout.starts_with("/:\nbin\ndata\nlib"),
                "{}",
                output.stdout
            );
            assert!(
                output.stdout.ends_with("/data:\nfile\n"),
                "{}",
                output.stdout
            );
            root.run("/bin/ls").arg("/etc").output().code(2);
        }
    }
}
