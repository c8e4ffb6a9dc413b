//! Where distributions keep kernels and their modules: named after releases, not after build IDs.

use std::fs;
use std::path::{Path, PathBuf};

use rawstack_format::record::{Module, ModuleKind};

/// Releases that are looked at.
const MAX_RELEASES: usize = 64;
/// Folders below each other, and entries, of a release's modules.
const MAX_DEPTH: usize = 16;
const MAX_ENTRIES: usize = 1 << 16;

/// Files that may be `module`, which is the kernel or a part of it; none for others. Their build IDs decide.
pub(super) fn places(module: &Module, debug_folders: &[PathBuf]) -> Vec<PathBuf> {
    match module.kind {
        ModuleKind::Kernel => images(debug_folders),
        ModuleKind::KernelModule => modules(&module.path, debug_folders),
        _ => Vec::new(),
    }
}

fn images(debug_folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in debug_folders {
        found.extend(named(&folder.join("boot"), "vmlinux-"));
        let releases = named(&folder.join("lib/modules"), "");
        found.extend(releases.into_iter().map(|release| release.join("vmlinux")));
    }
    let releases = named(Path::new("/lib/modules"), "").into_iter();
    found.extend(
        releases.flat_map(|release| [release.join("vmlinux"), release.join("build/vmlinux")]),
    );
    found.extend(named(Path::new("/boot"), "vmlinux-"));
    found.retain(|path| path.is_file());
    found
}

fn modules(name: &str, debug_folders: &[PathBuf]) -> Vec<PathBuf> {
    let roots = debug_folders
        .iter()
        .map(|folder| folder.join("lib/modules"));
    let roots = roots.chain([PathBuf::from("/lib/modules")]);
    let mut found = Vec::new();
    for release in roots.flat_map(|root| named(&root, "")) {
        find_module(&release, name, &mut found);
    }
    found
}

/// What in `folder` begins with `prefix`, sorted.
fn named(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let matching = entries.filter(|entry| {
        let name = entry.file_name();
        name.to_str().is_some_and(|name| name.starts_with(prefix))
    });
    let mut paths: Vec<PathBuf> = matching
        .take(MAX_RELEASES)
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths
}

fn find_module(release: &Path, name: &str, found: &mut Vec<PathBuf>) {
    let mut folders = vec![(release.to_owned(), 0)];
    let mut left = MAX_ENTRIES;
    while let Some((folder, depth)) = folders.pop() {
        let mut entries: Vec<_> = fs::read_dir(&folder)
            .into_iter()
            .flatten()
            .flatten()
            .take(left)
            .collect();
        left = left.saturating_sub(entries.len());
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if kind.is_dir() && depth < MAX_DEPTH {
                folders.push((entry.path(), depth + 1));
            } else if kind.is_file() && module_name(&entry.path()).as_deref() == Some(name) {
                found.push(entry.path());
            }
        }
    }
}

/// The name under which the kernel knows the module in the file at `path`: the kernel has underscores where files may
/// have dashes. Nothing for other files.
pub(super) fn module_name(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    let file = file.strip_suffix(".debug").unwrap_or(file);
    let packed = [".xz", ".zst", ".gz"].iter();
    let plain = packed
        .filter_map(|ending| file.strip_suffix(ending))
        .next()
        .unwrap_or(file);
    Some(plain.strip_suffix(".ko")?.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the names of modules in files, packed or not.
    #[test]
    fn names_of_modules() {
        let name = |path: &str| module_name(Path::new(path));
        assert_eq!(name("/a/snd-hda.ko.xz").as_deref(), Some("snd_hda"));
        assert_eq!(name("/a/xfs.ko").as_deref(), Some("xfs"));
        assert_eq!(name("/a/xfs.ko.debug").as_deref(), Some("xfs"));
        assert_eq!(name("/a/xfs.so"), None);
    }
}
