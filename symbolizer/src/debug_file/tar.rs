//! A tar file with a `.build-id` tree: where its files are. Knows no ELF.

use std::ops::Range;
use std::path::Path;
use std::str;

use rawstack_format::id::BuildId;

use super::identity::tree_path;
use super::mmap::FileBytes;

/// Bytes of a block.
const BLOCK: usize = 512;
/// Entries that are gone through.
const MAX_ENTRIES: usize = 1 << 20;

/// The regular files of a tar file.
#[derive(Debug)]
pub(super) struct TarFile {
    bytes: FileBytes,
    /// Name, start and end of each.
    entries: Vec<(String, usize, usize)>,
}

impl TarFile {
    /// Open the file at `path`, if it is called `.tar`; a damaged one ends early.
    pub(super) fn open(path: &Path) -> Option<Self> {
        if path.extension() != Some("tar".as_ref()) || !path.is_file() {
            return None;
        }
        let bytes = FileBytes::open(path).ok()?;
        let mut entries = Vec::new();
        let mut at = 0;
        while let Some((name, is_file, size)) = entry(&bytes, at)
            && entries.len() < MAX_ENTRIES
        {
            let start = at + BLOCK;
            let Some(end) = start.checked_add(size).filter(|&end| end <= bytes.len()) else {
                break;
            };
            if is_file {
                entries.push((name, start, end));
            }
            at = end.next_multiple_of(BLOCK);
        }
        Some(Self { bytes, entries })
    }

    /// Files of this build ID, by their place in the tree: debug files first.
    pub(super) fn build_id(&self, build_id: &BuildId) -> Vec<(&str, &[u8])> {
        let Some((folder, name)) = tree_path(build_id) else {
            return Vec::new();
        };
        let place = format!(".build-id/{folder}/{name}");
        let ends = [format!("{place}.debug"), place];
        let of = |end: &String| {
            let found = self
                .entries
                .iter()
                .find(|(name, ..)| name.ends_with(end.as_str()))?;
            let (name, start, end) = found;
            Some((name.as_str(), self.bytes.get(*start..*end)?))
        };
        ends.iter().filter_map(of).collect()
    }

    /// Files without build ID that this hash names.
    pub(super) fn hash(&self, hash: &[u8; 16]) -> Option<(&str, &[u8])> {
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let end = format!("no-build-id/{hex}");
        let (name, start, end) = self
            .entries
            .iter()
            .find(|(name, ..)| name.ends_with(&end))?;
        Some((name, self.bytes.get(*start..*end)?))
    }
}

/// Name, whether it is a regular file, and size of the entry whose header is at `at`; nothing at the end.
fn entry(bytes: &[u8], at: usize) -> Option<(String, bool, usize)> {
    let block = bytes.get(at..at.checked_add(BLOCK)?)?;
    let text = |range: Range<usize>| {
        let field = block.get(range)?;
        let end = field
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(field.len());
        str::from_utf8(field.get(..end)?).ok()
    };
    let name = text(0..100).filter(|name| !name.is_empty())?;
    let size = usize::from_str_radix(text(124..136)?.trim(), 8).ok()?;
    let prefix = text(345..500).filter(|_| block.get(257..262) == Some(b"ustar"));
    let name = match prefix {
        Some(prefix) if !prefix.is_empty() && block.get(262) == Some(&0) => {
            format!("{prefix}/{name}")
        }
        _ => name.to_owned(),
    };
    Some((name, matches!(block.get(156), Some(b'0' | 0)), size))
}
