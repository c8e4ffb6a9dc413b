//! Files that hold a part of another file's debug information: `.dwo` and `.dwp` of split DWARF.
//!
//! They have no build ID. What ties them to a program is the number that the compiler gave each split unit, which the
//! reader of the unit compares; here is only where they may be.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::elf::ElfFile;

/// Folders in which pieces are looked for, at most.
const MAX_FOLDERS: usize = 64;

/// Where the pieces of one module's debug information may be.
#[derive(Clone, Debug, Default)]
pub struct SplitSearch {
    folders: Vec<PathBuf>,
}

impl SplitSearch {
    /// Look in `folders`, in this order, and in what a unit itself names as the folder it was compiled in.
    pub fn new(folders: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut search = Self::default();
        for folder in folders.into_iter().take(MAX_FOLDERS) {
            if !search.folders.contains(&folder) {
                search.folders.push(folder);
            }
        }
        search
    }

    /// Places of the object file `name` of a unit that was compiled in `comp_dir`, the likeliest first.
    ///
    /// A build elsewhere leaves absolute paths that mean nothing here: so the name is tried below each folder too, whole
    /// and by its last part alone.
    pub fn places(&self, comp_dir: &[u8], name: &[u8]) -> Vec<PathBuf> {
        let name = Path::new(OsStr::from_bytes(name));
        let Some(last) = name.file_name() else {
            return Vec::new();
        };
        let comp_dir = Path::new(OsStr::from_bytes(comp_dir));
        let below: PathBuf = name
            .components()
            .filter(|part| matches!(part, Component::Normal(_)))
            .collect();
        let mut places = Vec::new();
        for folder in &self.folders {
            places.push(folder.join(&below));
            places.push(folder.join(last));
        }
        let compiled = comp_dir.join(name);
        if compiled.is_absolute() {
            places.push(compiled);
        }
        places
    }

    /// The package of split units that belongs to `file`: `program.dwp` or `program.debug.dwp`, beside it or in a folder.
    pub fn package(&self, file: &Path) -> Option<ElfFile> {
        let mut names = Vec::new();
        for path in [Some(file.to_owned()), file.canonicalize().ok()]
            .into_iter()
            .flatten()
        {
            names.extend(package_names(&path));
        }
        let mut places = names.clone();
        for folder in &self.folders {
            places.extend(
                names
                    .iter()
                    .filter_map(|name| Some(folder.join(name.file_name()?))),
            );
        }
        let is_package = |file: &ElfFile| {
            [".debug_cu_index"]
                .iter()
                .any(|name| file.section(name).is_some())
        };
        places
            .iter()
            .filter(|place| place.is_file())
            .filter_map(|place| ElfFile::open(place).ok())
            .find(is_package)
    }
}

/// Names of the package of the file at `path`: with the ending put behind the name, and in the place of `.debug`.
fn package_names(path: &Path) -> Vec<PathBuf> {
    let mut behind = path.as_os_str().to_owned();
    behind.push(".dwp");
    let mut names = vec![PathBuf::from(behind)];
    if path.extension() == Some(OsStr::new("debug")) {
        names.push(path.with_extension("dwp"));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the places of an object file, and that its name does not lead out of a folder.
    #[test]
    fn object_places() {
        let search = SplitSearch::new([PathBuf::from("/a"), PathBuf::from("/a")]);
        let places = search.places(b"/build", b"../out/unit.dwo");
        let expected = ["/a/out/unit.dwo", "/a/unit.dwo", "/build/../out/unit.dwo"];
        assert_eq!(places, expected.map(PathBuf::from));
        assert_eq!(search.places(b"relative", b".."), Vec::<PathBuf>::new());
    }
}
