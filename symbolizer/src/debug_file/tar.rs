//! A tar file with a `.build-id` tree: where its files are. Knows no ELF.

use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::Path;

use rawstack_format::id::BuildId;
use tar::{Archive, Entry, EntryType};

use super::identity::tree_path;
use super::mmap::FileBytes;

/// Bytes of headers and long names that are read: those of a quarter of a million files. Contents are skipped.
const MAX_READ: u64 = 128 << 20;

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
        let mut archive = Archive::new(Bounded {
            bytes: Cursor::new(&bytes[..]),
            left: MAX_READ,
        });
        let entries = archive.entries_with_seek().ok()?;
        let entries = entries
            .map_while(Result::ok)
            .filter_map(|entry| regular(&entry, bytes.len()))
            .collect();
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

/// Name, start and end of a regular file that is whole.
fn regular<R: Read>(entry: &Entry<'_, R>, length: usize) -> Option<(String, usize, usize)> {
    // Files with holes are of a kind of their own.
    if !matches!(entry.header().entry_type(), EntryType::Regular) {
        return None;
    }
    let start = usize::try_from(entry.raw_file_position()).ok()?;
    let end = start.checked_add(usize::try_from(entry.size()).ok()?)?;
    let name = String::from_utf8(entry.path_bytes().into_owned()).ok()?;
    (end <= length).then_some((name, start, end))
}

/// Reads no more than a number of bytes: names may be as long as the file.
struct Bounded<'b> {
    bytes: Cursor<&'b [u8]>,
    left: u64,
}

impl Read for Bounded<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.by_ref().take(self.left).read(out)?;
        self.left -= read as u64;
        Ok(read)
    }
}

impl Seek for Bounded<'_> {
    fn seek(&mut self, place: SeekFrom) -> io::Result<u64> {
        self.bytes.seek(place)
    }
}
