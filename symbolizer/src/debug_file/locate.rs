//! Where the files of a module are: ordered candidates, each opened and held against the module's identity.

use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use rawstack_format::record::Module;

use super::elf::{DebugLink, ElfFile};
use super::identity::{is_same, tree_path};
use super::index::FolderIndex;
use rawstack_format::id::BuildId;

/// Where distributions put debug files.
const SYSTEM_FOLDER: &str = "/usr/lib/debug";

/// Where to look.
#[derive(Debug)]
pub struct Locator {
    folders: Vec<(PathBuf, OnceLock<FolderIndex>)>,
    system: Option<PathBuf>,
    recorded: bool,
}

/// Which rule found a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// A folder named with `--symbol-dir`.
    SymbolDir,
    /// A `.build-id` tree of the system.
    BuildIdTree,
    /// The debuglink of another file of the module.
    DebugLink,
    /// The path that was recorded.
    RecordedPath,
    /// The archive itself (the vDSO), or a file given by name.
    Given,
}

impl FoundBy {
    /// Name in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::SymbolDir => "symbol-dir",
            Self::BuildIdTree => "build-id",
            Self::DebugLink => "debuglink",
            Self::RecordedPath => "recorded-path",
            Self::Given => "given",
        }
    }
}

/// The files of one module.
#[derive(Debug, Default)]
pub struct ModuleFiles {
    /// Files in the order in which they were found, each with the rule that found it.
    pub files: Vec<(FoundBy, ElfFile)>,
    /// Whether something was at a candidate's place and was another build.
    pub mismatch: bool,
}

impl ModuleFiles {
    /// The file to take DWARF from.
    pub fn dwarf(&self) -> Option<&ElfFile> {
        self.files
            .iter()
            .map(|(_, file)| file)
            .find(|file| file.has_dwarf())
    }

    /// The file that holds the code itself.
    pub fn code(&self) -> Option<&ElfFile> {
        self.files
            .iter()
            .map(|(_, file)| file)
            .find(|file| !file.is_debug_only())
    }

    fn is_whole(&self) -> bool {
        self.dwarf().is_some() && self.files.iter().any(|(_, file)| file.has_symtab())
    }

    fn holds(&self, path: &Path) -> bool {
        self.files.iter().any(|(_, file)| file.path == path)
    }

    /// Open `path` and keep it if it is `module` and something is still missing.
    fn take(&mut self, module: &Module, rule: FoundBy, path: &Path) {
        if !self.is_whole() {
            self.open(module, rule, path);
        }
    }

    fn open(&mut self, module: &Module, rule: FoundBy, path: &Path) {
        if self.holds(path) || !path.exists() {
            return;
        }
        match ElfFile::open(path) {
            Ok(file) if is_same(module, &file) => self.files.push((rule, file)),
            Ok(_) => self.mismatch = true,
            Err(_) => {}
        }
    }
}

impl Locator {
    /// Look in `folders`, in that order, and with `system` in the places of this machine too.
    pub fn new(folders: Vec<PathBuf>, system: bool) -> Self {
        let folders = folders
            .into_iter()
            .map(|folder| (folder, OnceLock::new()))
            .collect();
        Self {
            folders,
            system: system.then(|| PathBuf::from(SYSTEM_FOLDER)),
            recorded: system,
        }
    }

    /// Find the files of `module`: enough for DWARF and symbols, or all there are.
    pub fn locate(&self, module: &Module) -> ModuleFiles {
        let mut found = ModuleFiles::default();
        self.in_folders(module, &mut found);
        if let (Some(system), Some(build_id)) = (&self.system, &module.build_id) {
            for path in tree_candidates(&system.join(".build-id"), build_id) {
                found.take(module, FoundBy::BuildIdTree, &path);
            }
        }
        let recorded = self.recorded_path(module);
        self.by_debug_link(module, recorded.as_deref(), &mut found);
        if let Some(path) = recorded {
            found.take(module, FoundBy::RecordedPath, &path);
            if found.code().is_none() {
                found.open(module, FoundBy::RecordedPath, &path);
            }
        }
        found
    }

    fn recorded_path(&self, module: &Module) -> Option<PathBuf> {
        let path = Path::new(&module.path);
        (self.recorded && path.is_absolute()).then(|| path.to_owned())
    }

    fn in_folders(&self, module: &Module, found: &mut ModuleFiles) {
        for (folder, index) in &self.folders {
            if let Some(build_id) = &module.build_id {
                let trees = [
                    folder.join(".build-id"),
                    folder.clone(),
                    folder.join("usr/lib/debug/.build-id"),
                ];
                for path in trees
                    .iter()
                    .flat_map(|tree| tree_candidates(tree, build_id))
                {
                    found.take(module, FoundBy::SymbolDir, &path);
                }
            }
            if let Some(below) = below_root(&module.path) {
                found.take(module, FoundBy::SymbolDir, &folder.join(below));
            }
            if found.is_whole() {
                return;
            }
            let index = index.get_or_init(|| FolderIndex::of(folder));
            let by_id = module
                .build_id
                .iter()
                .flat_map(|build_id| index.build_id(build_id));
            let by_hash = module.content_hash.iter().flat_map(|hash| index.hash(hash));
            for path in by_id.chain(by_hash) {
                found.take(module, FoundBy::SymbolDir, path);
            }
        }
    }

    /// Follow the debuglink of the files found so far, else of the recorded one.
    fn by_debug_link(&self, module: &Module, recorded: Option<&Path>, found: &mut ModuleFiles) {
        if found.is_whole() {
            return;
        }
        let mut links: Vec<(PathBuf, DebugLink)> = found
            .files
            .iter()
            .filter_map(|(_, file)| Some((file.path.clone(), file.debug_link()?)))
            .collect();
        if let Some(path) = recorded.filter(|path| path.exists())
            && let Ok(file) = ElfFile::open(path)
            && is_same(module, &file)
            && let Some(link) = file.debug_link()
        {
            links.push((path.to_owned(), link));
        }
        for (path, link) in links {
            for candidate in self.link_candidates(&path, &link) {
                if candidate != path
                    && !found.holds(&candidate)
                    && !found.is_whole()
                    && candidate.exists()
                {
                    take_linked(module, &link, &candidate, found);
                }
            }
        }
    }

    fn link_candidates(&self, path: &Path, link: &DebugLink) -> Vec<PathBuf> {
        let Some(folder) = path.parent() else {
            return Vec::new();
        };
        let mut candidates = vec![
            folder.join(&link.name),
            folder.join(".debug").join(&link.name),
        ];
        let roots = self
            .folders
            .iter()
            .map(|(folder, _)| folder)
            .chain(&self.system);
        if let Some(below) = folder.to_str().and_then(below_root) {
            candidates.extend(roots.map(|root| root.join(&below).join(&link.name)));
        }
        candidates
    }
}

/// Keep the file at the end of a debuglink: the build ID decides, the checksum only where the module has none.
fn take_linked(module: &Module, link: &DebugLink, path: &Path, found: &mut ModuleFiles) {
    let Ok(file) = ElfFile::open(path) else {
        return;
    };
    let same = match (&module.build_id, &file.build_id) {
        (Some(wanted), Some(there)) => wanted == there,
        _ => crc32(file.bytes()) == link.crc,
    };
    if same {
        found.files.push((FoundBy::DebugLink, file));
    } else {
        found.mismatch = true;
    }
}

/// The checksum of debuglinks.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// Debug file and executable of a `.build-id` tree.
fn tree_candidates(tree: &Path, build_id: &BuildId) -> Vec<PathBuf> {
    let Some((folder, name)) = tree_path(build_id) else {
        return Vec::new();
    };
    let folder = tree.join(folder);
    vec![folder.join(format!("{name}.debug")), folder.join(name)]
}

/// `path` as a path below a root, or nothing where it would lead out of it.
fn below_root(path: &str) -> Option<PathBuf> {
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

    /// Check the debuglink checksum with the well-known check value of CRC-32.
    #[test]
    fn link_checksum() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
