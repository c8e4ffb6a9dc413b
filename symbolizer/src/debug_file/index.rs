//! A folder of ELF files, indexed once by build ID and content hash.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use foldhash::{HashMap, HashSet};
use rawstack_format::id::BuildId;

use super::elf::ElfFile;
use super::identity::content_hash;
use super::kernel::module_name;

/// Folders below each other.
const MAX_DEPTH: usize = 24;
/// Files and folders that are looked at.
const MAX_ENTRIES: usize = 1 << 20;

/// Where files of an identity are, in the order of their paths.
#[derive(Debug, Default)]
pub(super) struct FolderIndex {
    by_build_id: HashMap<BuildId, Vec<PathBuf>>,
    by_hash: HashMap<[u8; 16], Vec<PathBuf>>,
    /// Compressed kernel modules, by the name under which the kernel knows them: reading them all takes long.
    packed_modules: HashMap<String, Vec<PathBuf>>,
}

impl FolderIndex {
    /// Look at every file below `folder`. Links to files count, links to folders are not followed.
    pub(super) fn of(folder: &Path) -> Self {
        let mut index = Self::default();
        let mut seen = HashSet::default();
        let mut folders = vec![(folder.to_owned(), 0)];
        let mut left = MAX_ENTRIES;
        while let Some((folder, depth)) = folders.pop() {
            let Ok(entries) = fs::read_dir(&folder) else {
                continue;
            };
            let mut paths: Vec<_> = entries.flatten().take(left).collect();
            left = left.saturating_sub(paths.len());
            paths.sort_by_key(fs::DirEntry::file_name);
            let mut below = Vec::new();
            for entry in paths {
                let Ok(kind) = entry.file_type() else {
                    continue;
                };
                if kind.is_dir() && depth < MAX_DEPTH {
                    below.push((entry.path(), depth + 1));
                } else if !kind.is_dir() {
                    index.add(entry.path(), &mut seen);
                }
            }
            folders.extend(below.into_iter().rev());
        }
        index
    }

    fn add(&mut self, path: PathBuf, seen: &mut HashSet<PathBuf>) {
        if path.extension() != Some("ko".as_ref())
            && let Some(name) = module_name(&path)
            && path.is_file()
            && !is_elf(&path)
        {
            self.packed_modules.entry(name).or_default().push(path);
            return;
        }
        if !is_elf(&path) || !path.canonicalize().is_ok_and(|real| seen.insert(real)) {
            return;
        }
        let Ok(file) = ElfFile::open(&path) else {
            return;
        };
        match &file.build_id {
            Some(build_id) => self
                .by_build_id
                .entry(build_id.clone())
                .or_default()
                .push(path),
            None => self
                .by_hash
                .entry(content_hash(file.bytes()))
                .or_default()
                .push(path),
        }
    }

    /// Files with this build ID.
    pub(super) fn build_id(&self, build_id: &BuildId) -> &[PathBuf] {
        self.by_build_id.get(build_id).map_or(&[], Vec::as_slice)
    }

    /// Compressed kernel modules of this name.
    pub(super) fn packed_module(&self, name: &str) -> &[PathBuf] {
        self.packed_modules.get(name).map_or(&[], Vec::as_slice)
    }

    /// Files without build ID and with this content.
    pub(super) fn hash(&self, hash: &[u8; 16]) -> &[PathBuf] {
        self.by_hash.get(hash).map_or(&[], Vec::as_slice)
    }
}

/// Whether a regular file starts as ELF files do.
fn is_elf(path: &Path) -> bool {
    let regular = path
        .metadata()
        .is_ok_and(|found| found.is_file() && found.len() >= 52);
    let mut magic = [0; 4];
    regular
        && File::open(path)
            .and_then(|mut file| file.read_exact(&mut magic))
            .is_ok()
        && magic == *b"\x7fELF"
}
