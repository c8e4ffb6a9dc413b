//! Where source files are on this machine, and their lines. Knows nothing of profiles.
//!
//! Paths come from debug information, which may be hostile: only regular files are read, of bounded size, and no path
//! leaves the folder that it is looked for in.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use foldhash::HashMap;

use crate::text::clean;

/// Largest source file that is read, in bytes.
const MAX_FILE: u64 = 32 << 20;
/// Longest line that is shown, in bytes.
const MAX_LINE: usize = 1000;

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct SourcePlaces {
    /// Beginnings of paths, and what stands in their place here.
    pub maps: Vec<(String, PathBuf)>,
    /// Folders: with the whole path below them, or with the last parts of it.
    pub folders: Vec<PathBuf>,
}

/// A source file that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceText {
    /// Where.
    pub path: String,
    /// Its lines, safe to print.
    pub lines: Vec<String>,
}

/// Finds source files, each once.
#[derive(Debug, Default)]
pub struct SourceFiles {
    places: SourcePlaces,
    known: HashMap<String, Option<SourceText>>,
}

impl SourceFiles {
    /// Look in `places`, then where the path itself says.
    pub fn new(places: SourcePlaces) -> Self {
        Self {
            places,
            known: HashMap::default(),
        }
    }

    /// The file that debug information calls `path`.
    pub fn find(&mut self, path: &str) -> Option<&SourceText> {
        if !self.known.contains_key(path) {
            let found = candidates(&self.places, path)
                .into_iter()
                .find_map(|file| read(&file));
            self.known.insert(path.to_owned(), found);
        }
        self.known.get(path)?.as_ref()
    }
}

/// Places that the file may be in, the most certain first.
fn candidates(places: &SourcePlaces, path: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for (from, to) in &places.maps {
        let rest = path.strip_prefix(from.trim_end_matches('/'));
        let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('/') || from.is_empty());
        if let Some(below) = rest.and_then(|rest| parts(Path::new(rest))) {
            found.push(to.join(below.iter().collect::<PathBuf>()));
        }
    }
    if let Some(parts) = parts(Path::new(path)) {
        for folder in &places.folders {
            let tails = (0..parts.len()).filter_map(|skipped| parts.get(skipped..));
            found.extend(tails.map(|tail| folder.join(tail.iter().collect::<PathBuf>())));
        }
    }
    if Path::new(path).is_absolute() {
        found.push(PathBuf::from(path));
    }
    found
}

/// The parts of a path; none where it leads out of where it starts.
fn parts(path: &Path) -> Option<Vec<&OsStr>> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => parts.push(part),
            Component::ParentDir => {
                parts.pop()?;
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Some(parts)
}

fn read(path: &Path) -> Option<SourceText> {
    let meta = fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() > MAX_FILE {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path)
        .ok()?
        .take(MAX_FILE)
        .read_to_end(&mut bytes)
        .ok()?;
    let line = |line: &[u8]| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text =
            String::from_utf8_lossy(line.get(..MAX_LINE).unwrap_or(line)).replace('\t', "    ");
        clean(&text).into_owned()
    };
    let lines = bytes
        .strip_suffix(b"\n")
        .unwrap_or(&bytes)
        .split(|&byte| byte == b'\n')
        .map(line);
    Some(SourceText {
        path: clean(&path.to_string_lossy()).into_owned(),
        lines: lines.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check the order of places: what is mapped, folders with the longest part of the path first, the path itself.
    #[test]
    fn order() {
        let places = SourcePlaces {
            maps: vec![("/build".to_owned(), PathBuf::from("/src"))],
            folders: vec![PathBuf::from("/tree")],
        };
        let found = candidates(&places, "/build/app/../lib/a.c");
        let expected = [
            "/src/lib/a.c",
            "/tree/build/lib/a.c",
            "/tree/lib/a.c",
            "/tree/a.c",
            "/build/app/../lib/a.c",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
        let other: Vec<_> = candidates(&places, "/builder/a.c");
        assert!(other.iter().all(|path| !path.starts_with("/src")));
    }

    /// Check that no path leads out of a folder that it is looked for in.
    #[test]
    fn no_way_out() {
        let places = SourcePlaces {
            maps: vec![("".to_owned(), PathBuf::from("/src"))],
            folders: vec![PathBuf::from("/tree")],
        };
        assert!(candidates(&places, "../../etc/passwd").is_empty());
        assert!(candidates(&places, "a/../../b").is_empty());
    }
}
