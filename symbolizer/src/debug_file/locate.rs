//! Where the files of a module are: stages in a fixed order, each candidate opened and held against the module's identity.
//!
//! A stage is gone through as a whole, so that of two files with one build ID the richer can win; the next one follows
//! only where debug information or the symbol table is still missing.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rawstack_format::id::BuildId;
use rawstack_format::record::{Module, ModuleKind};

use super::companion::SplitSearch;
use super::debuginfod::Client;
use super::elf::{AlternateLink, DebugLink, ElfFile};
pub use super::files::{FoundBy, ModuleFiles, Outcome, Tried};
use super::files::{open_candidate, real_and_given};
use super::identity::is_same;
use super::index::FolderIndex;
use super::mmap::FileBytes;
pub use super::places::Places;
use super::places::{below_root, perf_candidates, tree_candidates};
use super::tar::TarFile;
use super::{kernel, minidebug, moved};

/// Looks for files of modules.
#[derive(Debug)]
pub struct Locator {
    places: Places,
    /// What is in each folder of the command line.
    indexes: Vec<OnceLock<FolderIndex>>,
    /// What is in each tar file of the command line, where it is one.
    tars: Vec<OnceLock<Option<TarFile>>>,
    /// Asks servers, where that was wished.
    client: Option<Client>,
}

impl Locator {
    /// Look in `places`.
    pub fn new(places: Places) -> Self {
        let indexes = places.folders.iter().map(|_| OnceLock::new()).collect();
        let tars = places.folders.iter().map(|_| OnceLock::new()).collect();
        Self {
            places,
            indexes,
            tars,
            client: None,
        }
    }

    /// Ask servers too, by `client`.
    pub fn with_client(self, client: Client) -> Self {
        Self {
            client: Some(client),
            ..self
        }
    }

    /// Find the files of `module`: enough for DWARF and symbols, or all there are.
    pub fn locate(&self, module: &Module) -> ModuleFiles {
        self.complete(module, ModuleFiles::default())
    }

    /// Find what `found` lacks of `module`.
    pub fn complete(&self, module: &Module, mut found: ModuleFiles) -> ModuleFiles {
        let stages = [
            Self::in_tars,
            Self::in_folders,
            Self::in_perf_cache,
            Self::in_system,
            Self::by_debug_link,
            Self::in_client_cache,
            Self::ask_servers,
            Self::at_recorded_path,
        ];
        for stage in stages {
            if found.is_whole() {
                break;
            }
            stage(self, module, &mut found);
        }
        if let Some(path) = self
            .recorded_path(module)
            .filter(|_| found.code().is_none())
        {
            found.take(module, FoundBy::RecordedPath, &path);
        }
        minidebug::add(&mut found);
        moved::keep_one_place(module, &mut found);
        self.find_companions(module, &mut found);
        found
    }

    fn recorded_path(&self, module: &Module) -> Option<PathBuf> {
        let path = Path::new(plain_path(module));
        (self.places.this_machine && path.is_absolute()).then(|| path.to_owned())
    }

    fn indexes(&self) -> impl Iterator<Item = (&Path, &FolderIndex)> {
        let folders = self.places.folders.iter().zip(&self.indexes);
        folders.map(|(folder, index)| {
            let index = index.get_or_init(|| FolderIndex::of(folder));
            (folder.as_path(), index)
        })
    }

    fn in_tars(&self, module: &Module, found: &mut ModuleFiles) {
        for (path, tar) in self.places.folders.iter().zip(&self.tars) {
            let Some(tar) = tar.get_or_init(|| TarFile::open(path)) else {
                continue;
            };
            let files = match (&module.build_id, &module.content_hash) {
                (Some(build_id), _) => tar.build_id(build_id),
                (None, Some(hash)) => tar.hash(hash).into_iter().collect(),
                (None, None) => Vec::new(),
            };
            for (name, bytes) in files {
                let place = path.join(name);
                match ElfFile::parse(&place, FileBytes::from(bytes.to_vec())) {
                    Ok(file) => found.take_file(module, FoundBy::SymbolDir, file),
                    Err(_) => found.note(FoundBy::SymbolDir, &place, Outcome::NotElf),
                }
            }
        }
    }

    fn in_folders(&self, module: &Module, found: &mut ModuleFiles) {
        let rule = FoundBy::SymbolDir;
        for folder in &self.places.folders {
            if let Some(build_id) = &module.build_id {
                for path in folder_trees(folder, build_id) {
                    // A folder may be laid out in several ways: what it is not is not worth telling.
                    if path.exists() {
                        found.take(module, rule, &path);
                    }
                }
            }
            if let Some(path) = below_root(plain_path(module)).map(|below| folder.join(below))
                && path.exists()
            {
                found.take(module, rule, &path);
            }
        }
        if found.is_whole() {
            return;
        }
        for (folder, index) in self.indexes() {
            let mut paths: Vec<&PathBuf> = Vec::new();
            match (&module.build_id, &module.content_hash) {
                (Some(build_id), _) => paths.extend(index.build_id(build_id)),
                (None, Some(hash)) => paths.extend(index.hash(hash)),
                (None, None) => {}
            }
            if module.kind == ModuleKind::KernelModule {
                paths.extend(index.packed_module(&module.path));
            }
            if paths.is_empty() {
                found.note(rule, folder, Outcome::Absent);
            }
            for path in paths {
                found.take(module, rule, path);
            }
        }
    }

    fn in_perf_cache(&self, module: &Module, found: &mut ModuleFiles) {
        if let (Some(cache), Some(build_id)) = (&self.places.perf_cache, &module.build_id) {
            let tree = cache.join(".build-id");
            for path in perf_candidates(&tree, build_id) {
                if path.is_file() {
                    found.take(module, FoundBy::PerfCache, &path);
                }
            }
        }
    }

    fn in_system(&self, module: &Module, found: &mut ModuleFiles) {
        let rule = FoundBy::BuildIdTree;
        if let Some(build_id) = &module.build_id {
            for folder in &self.places.system {
                for path in tree_candidates(&folder.join(".build-id"), build_id) {
                    found.take(module, rule, &path);
                }
            }
        }
        if self.places.this_machine && !found.is_whole() {
            for path in kernel::places(module, &self.places.system) {
                found.take(module, rule, &path);
            }
        }
    }

    /// Follow the debuglink of the files found so far, else of the recorded one.
    fn by_debug_link(&self, module: &Module, found: &mut ModuleFiles) {
        let mut links: Vec<(PathBuf, DebugLink)> = found
            .files
            .iter()
            .filter_map(|(_, file)| Some((file.path.clone(), file.debug_link()?)))
            .collect();
        if let Some(path) = self.recorded_path(module)
            && let Ok(file) = open_candidate(&path)
            && is_same(module, &file)
            && let Some(link) = file.debug_link()
        {
            links.push((path, link));
        }
        for (path, link) in links {
            for candidate in self.link_candidates(&path, &link) {
                let real = candidate.canonicalize().ok();
                let names_itself = real.is_some() && real == path.canonicalize().ok();
                if !names_itself && !found.holds(&candidate) {
                    take_linked(module, &link, &candidate, found);
                }
            }
        }
    }

    fn link_candidates(&self, path: &Path, link: &DebugLink) -> Vec<PathBuf> {
        let mut candidates = Vec::new();
        for path in real_and_given(path) {
            let Some(folder) = path.parent() else {
                continue;
            };
            candidates.push(folder.join(&link.name));
            candidates.push(folder.join(".debug").join(&link.name));
            let below = folder.to_str().and_then(below_root);
            let roots = self.places.folders.iter().chain(&self.places.system);
            candidates
                .extend(roots.filter_map(|root| Some(root.join(below.as_ref()?).join(&link.name))));
        }
        candidates
    }

    fn in_client_cache(&self, module: &Module, found: &mut ModuleFiles) {
        if let (Some(cache), Some(build_id)) = (&self.places.client_cache, &module.build_id) {
            let folder = cache.join(build_id.to_string());
            for name in ["debuginfo", "executable"] {
                let path = folder.join(name);
                // What a server did not have is remembered as an empty file.
                if path.metadata().is_ok_and(|found| found.len() > 0) {
                    found.take(module, FoundBy::ClientCache, &path);
                }
            }
        }
    }

    /// Ask for the debug file, and where no server has it for the program, which may have symbols.
    fn ask_servers(&self, module: &Module, found: &mut ModuleFiles) {
        let (Some(client), Some(build_id)) = (&self.client, &module.build_id) else {
            return;
        };
        for kind in ["debuginfo", "executable"] {
            let fetched = client.fetch(build_id, kind);
            for (url, outcome) in fetched.tried {
                found.note(FoundBy::Server, Path::new(&url), outcome);
                found.mismatch |= outcome == Outcome::OtherBuild;
            }
            if let Some(file) = fetched.file {
                found.files.push((FoundBy::Server, file));
                return;
            }
        }
    }

    fn at_recorded_path(&self, module: &Module, found: &mut ModuleFiles) {
        if let Some(path) = self.recorded_path(module) {
            found.take(module, FoundBy::RecordedPath, &path);
        }
    }

    /// Find what else belongs to the debug information that was found.
    fn find_companions(&self, module: &Module, found: &mut ModuleFiles) {
        let Some(file) = found.dwarf() else {
            return;
        };
        let (alternate, missing) = match file.alternate_link() {
            Some(link) => match self.alternate(file, &link) {
                Some(alternate) => (Some(alternate), None),
                None => (None, Some(link.name)),
            },
            None => (None, None),
        };
        let mut folders = self.places.folders.clone();
        let files = found.files.iter().map(|(_, file)| file.path.clone());
        for path in files.chain(self.recorded_path(module)) {
            let paths = real_and_given(&path).into_iter();
            folders.extend(paths.filter_map(|path| Some(path.parent()?.to_owned())));
        }
        let split = SplitSearch::new(folders);
        let mut owners: Vec<&Path> = vec![&file.path];
        owners.extend(found.files.iter().map(|(_, file)| file.path.as_path()));
        owners.push(Path::new(plain_path(module)));
        let package = owners.iter().find_map(|path| split.package(path));
        found.alternate = alternate;
        found.missing_alternate = missing;
        found.package = package;
        found.split = split;
    }

    /// The alternate file of `file`: by its build ID where there are trees, then by its name.
    fn alternate(&self, file: &ElfFile, link: &AlternateLink) -> Option<ElfFile> {
        let build_id = &link.build_id;
        let mut places: Vec<PathBuf> = Vec::new();
        for folder in &self.places.folders {
            places.extend(folder_trees(folder, build_id));
        }
        for folder in &self.places.system {
            places.extend(tree_candidates(&folder.join(".build-id"), build_id));
        }
        for path in real_and_given(&file.path) {
            let folder = path.parent()?;
            places.push(folder.join(&link.name));
            let last = Path::new(&link.name).file_name()?;
            places.push(folder.join(".dwz").join(last));
        }
        let last = Path::new(&link.name).file_name()?;
        let roots = self.places.folders.iter().chain(&self.places.system);
        places.extend(roots.map(|root| root.join(".dwz").join(last)));
        if let Some(cache) = &self.places.client_cache {
            places.push(cache.join(build_id.to_string()).join("debuginfo"));
        }
        let open = |path: &Path| {
            let file = open_candidate(path).ok()?;
            (file.build_id.as_ref() == Some(build_id)).then_some(file)
        };
        let placed = places.iter().find_map(|path| open(path));
        let placed = placed.or_else(|| {
            let mut indexed = self
                .indexes()
                .flat_map(|(_, index)| index.build_id(build_id));
            indexed.find_map(|path| open(path))
        });
        let client = self.client.as_ref();
        placed.or_else(|| client?.fetch(build_id, "debuginfo").file)
    }
}

/// The recorded path without what the kernel puts behind that of a deleted file.
fn plain_path(module: &Module) -> &str {
    let path = &module.path;
    path.strip_suffix(" (deleted)").unwrap_or(path)
}

/// Candidates in a folder of the command line: a tree itself, one that holds it, and a copy of a root.
fn folder_trees(folder: &Path, build_id: &BuildId) -> Vec<PathBuf> {
    let below = [
        ".build-id",
        "",
        "usr/lib/debug/.build-id",
        "usr/lib/.build-id",
    ];
    let trees = below.iter().map(|below| folder.join(below));
    trees
        .flat_map(|tree| {
            let mut paths = tree_candidates(&tree, build_id);
            paths.extend(perf_candidates(&tree, build_id));
            paths.retain(|path| path.is_file());
            paths
        })
        .collect()
}

/// Keep the file at the end of a debuglink: the build ID decides, the checksum only where one of both has none.
fn take_linked(module: &Module, link: &DebugLink, path: &Path, found: &mut ModuleFiles) {
    let rule = FoundBy::DebugLink;
    let file = match open_candidate(path) {
        Ok(file) => file,
        Err(outcome) => return found.note(rule, path, outcome),
    };
    let same = match (&module.build_id, &file.build_id) {
        (Some(wanted), Some(there)) => wanted == there,
        _ => crc32(file.bytes()) == link.crc,
    };
    let outcome = if same {
        Outcome::Found
    } else {
        Outcome::OtherBuild
    };
    found.settle(rule, path, outcome, file);
}

/// The checksum of debuglinks.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the debuglink checksum with the well-known check value of CRC-32.
    #[test]
    fn link_checksum() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
