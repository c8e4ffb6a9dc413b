//! Where to look: the folders of the command line, of this user and of this machine. Looks at nothing itself.

use std::env;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use rawstack_format::id::BuildId;

use super::identity::tree_path;

/// Where distributions put debug files.
const SYSTEM_FOLDER: &str = "/usr/lib/debug";

/// Places that a module's files may be in.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Folders of the command line, in their order.
    pub folders: Vec<PathBuf>,
    /// Folder in which perf keeps copies of what it recorded.
    pub perf_cache: Option<PathBuf>,
    /// Folders that hold `.build-id` trees and, below the path of a program's folder, what debuglinks name.
    pub system: Vec<PathBuf>,
    /// Folder that debuginfod clients keep downloads in.
    pub client_cache: Option<PathBuf>,
    /// Whether recorded paths, and the places of kernels, mean something here.
    pub this_machine: bool,
}

impl Places {
    /// `folders`, and nothing of this machine.
    pub fn only(folders: Vec<PathBuf>) -> Self {
        Self {
            folders,
            ..Self::default()
        }
    }

    /// `folders` first, then the places of this user and this machine.
    pub fn of_machine(folders: Vec<PathBuf>) -> Self {
        let home = || env::var_os("HOME").filter(|home| Path::new(home).is_absolute());
        Self {
            folders,
            perf_cache: home().map(|home| Path::new(&home).join(".debug")),
            system: vec![PathBuf::from(SYSTEM_FOLDER)],
            client_cache: client_cache(&|name| env::var_os(name)),
            this_machine: true,
        }
    }
}

/// Where debuginfod clients keep downloads, as elfutils' own has it.
pub(super) fn client_cache(variable: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    if let Some(path) = set("DEBUGINFOD_CACHE_PATH") {
        return Some(PathBuf::from(path));
    }
    let home = set("HOME").map(PathBuf::from);
    // Older clients used a folder of their own, and newer ones go on with it where it is.
    let older = home
        .as_ref()
        .map(|home| home.join(".debuginfod_client_cache"));
    if let Some(older) = older.filter(|older| older.is_dir()) {
        return Some(older);
    }
    let base = set("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.or_else(|| Some(home?.join(".cache")))?;
    Some(base.join("debuginfod_client"))
}

/// What may be in a `.build-id` tree: debug file and program, or what perf keeps there.
pub(super) fn tree_candidates(tree: &Path, build_id: &BuildId) -> Vec<PathBuf> {
    let Some((folder, name)) = tree_path(build_id) else {
        return Vec::new();
    };
    let folder = tree.join(folder);
    vec![folder.join(format!("{name}.debug")), folder.join(name)]
}

/// What perf keeps below a link in its tree.
pub(super) fn perf_candidates(tree: &Path, build_id: &BuildId) -> Vec<PathBuf> {
    let Some((folder, name)) = tree_path(build_id) else {
        return Vec::new();
    };
    let entry = tree.join(folder).join(name);
    // Before Linux 4.12 the link led to the file itself.
    vec![
        entry.join("debug"),
        entry.join("elf"),
        entry.join("vdso"),
        entry,
    ]
}

/// `path` as a path below a root, or nothing where it would lead out of it.
pub(super) fn below_root(path: &str) -> Option<PathBuf> {
    let path = Path::new(path).strip_prefix("/").ok()?;
    let inside = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    (inside && path.components().next().is_some()).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a recorded path with `..` does not lead out of a folder.
    #[test]
    fn no_way_out() {
        assert_eq!(
            below_root("/usr/bin/true"),
            Some(PathBuf::from("usr/bin/true"))
        );
        assert_eq!(below_root("/usr/../../etc/x"), None);
        assert_eq!(below_root("relative"), None);
        assert_eq!(below_root("/"), None);
    }

    /// Check the order in which the variables tell the client's folder.
    #[test]
    fn folder_of_clients() {
        let ask = |set: &[(&str, &str)]| {
            let of = |name: &str| {
                let found = set.iter().find(|(held, _)| *held == name);
                found.map(|(_, value)| OsString::from(value))
            };
            client_cache(&of)
        };
        let home = ("HOME", "/nonexistent");
        let of_home = PathBuf::from("/nonexistent/.cache/debuginfod_client");
        assert_eq!(ask(&[home]), Some(of_home.clone()));
        assert_eq!(ask(&[home, ("DEBUGINFOD_CACHE_PATH", "")]), Some(of_home));
        assert_eq!(
            ask(&[home, ("XDG_CACHE_HOME", "/x")]),
            Some(PathBuf::from("/x/debuginfod_client"))
        );
        let set = [
            home,
            ("XDG_CACHE_HOME", "/x"),
            ("DEBUGINFOD_CACHE_PATH", "/c"),
        ];
        assert_eq!(ask(&set), Some(PathBuf::from("/c")));
        assert_eq!(ask(&[]), None);
    }
}
