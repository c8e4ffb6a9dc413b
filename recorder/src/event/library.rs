//! Programs and libraries by bare name, as the shell and the loader would find them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders that the loader always looks at.
const USUAL: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];
/// Files of folders that one file may name, all in all.
const MAX_CONFIGS: usize = 256;

/// The file that `path` means: itself where it is there; a bare name is looked for on PATH and among the libraries.
pub(crate) fn find(path: &Path) -> Option<PathBuf> {
    if path.is_file() {
        return path.canonicalize().ok();
    }
    if path.components().count() != 1 || path.is_absolute() {
        return None;
    }
    let search = env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = env::split_paths(&search).collect();
    dirs.extend(library_dirs(Path::new("/etc/ld.so.conf")));
    let mut found = dirs.iter().map(|dir| dir.join(path));
    found.find(|path| path.is_file())?.canonicalize().ok()
}

/// The folders that the loader's configuration names, and the usual ones.
fn library_dirs(config: &Path) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    let mut configs = vec![config.to_owned()];
    let mut seen = Vec::new();
    while let Some(config) = configs.pop().filter(|_| seen.len() < MAX_CONFIGS) {
        let real = config.canonicalize().unwrap_or_default();
        if seen.contains(&real) {
            continue;
        }
        seen.push(real);
        let text = fs::read_to_string(&config).unwrap_or_default();
        let lines = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default().trim());
        for line in lines.filter(|line| !line.is_empty()) {
            match line.strip_prefix("include ") {
                Some(pattern) => configs.extend(matching(&config, pattern.trim())),
                None => dirs.push(PathBuf::from(line)),
            }
        }
    }
    dirs.extend(USUAL.map(PathBuf::from));
    dirs
}

/// The files of `include DIR/*.conf`, the only form that is in use.
fn matching(config: &Path, pattern: &str) -> Vec<PathBuf> {
    let base = config.parent().unwrap_or(Path::new("/"));
    let pattern = base.join(pattern);
    if !pattern.ends_with("*.conf") {
        return vec![pattern];
    }
    let dir = pattern.parent().unwrap_or(base);
    let entries = dir.read_dir().into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "conf")
        })
        .collect();
    files.sort_unstable_by(|a, b| b.cmp(a));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that included files are followed, in their order, even where they include each other.
    #[test]
    fn configured_dirs() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("d")).unwrap();
        fs::write(path("ld.so.conf"), "include d/*.conf\n/opt/lib # mine\n").unwrap();
        fs::write(path("d/a.conf"), "/a\ninclude ../ld.so.conf\n").unwrap();
        fs::write(path("d/b.conf"), "/b\n").unwrap();
        let dirs = library_dirs(&path("ld.so.conf"));
        for wanted in ["/a", "/b", "/opt/lib", "/usr/lib"] {
            assert!(dirs.iter().any(|dir| dir == Path::new(wanted)), "{dirs:?}");
        }
    }

    /// Check that a bare name is found on PATH, and that a path is taken as it is.
    #[test]
    fn bare_names() {
        assert!(find(Path::new("sh")).is_some_and(|path| path.is_absolute()));
        assert_eq!(find(Path::new("./sh-is-not-here")), None);
        assert_eq!(find(Path::new("no-such-program-anywhere")), None);
    }
}
