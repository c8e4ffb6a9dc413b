//! Where a set of packed files is put: a folder, or a tar file by its name. Knows no ELF.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::PackedFile;
use crate::staged::Staged;

/// Bytes of a block of a tar file.
const BLOCK: usize = 512;

/// A set that is written.
#[derive(Debug)]
pub enum Store {
    /// Below a folder, beside what is there.
    Folder(PathBuf),
    /// Into a tar file, which takes its place once it is whole.
    Tar(Staged),
}

impl Store {
    /// Begin a set at `path`: a tar file where it is called `.tar`, else a folder, which is made.
    pub fn create(path: &Path) -> io::Result<Self> {
        if path.extension() == Some("tar".as_ref()) {
            return Staged::create(path).map(Self::Tar);
        }
        fs::create_dir_all(path)?;
        Ok(Self::Folder(path.to_owned()))
    }

    /// Add a file.
    pub fn add(&mut self, file: &PackedFile<'_>) -> io::Result<()> {
        match self {
            Self::Folder(folder) => {
                let path = folder.join(&file.name);
                if let Some(parent) = path.parent() {
                    fs::create_dir_all(parent)?;
                }
                let staged = Staged::create(&path)?;
                staged.file().write_all(&file.bytes)?;
                staged.keep_if_new()
            }
            Self::Tar(staged) => {
                let mut out = staged.file();
                out.write_all(&header(&file.name, file.bytes.len())?)?;
                out.write_all(&file.bytes)?;
                let rest = file.bytes.len().next_multiple_of(BLOCK) - file.bytes.len();
                out.write_all(&[0; BLOCK][..rest])
            }
        }
    }

    /// End the set.
    pub fn finish(self) -> io::Result<()> {
        match self {
            Self::Folder(_) => Ok(()),
            Self::Tar(staged) => {
                staged.file().write_all(&[0; 2 * BLOCK])?;
                staged.keep()
            }
        }
    }
}

/// The header of a regular file in the ustar layout: nobody's, of no time, so that the same set is the same bytes.
fn header(name: &str, size: usize) -> io::Result<[u8; BLOCK]> {
    let mut block = [0; BLOCK];
    let size = format!("{size:011o}\0");
    if name.len() >= 100 || size.len() > 12 {
        return Err(io::Error::other("a file is too large for a tar file"));
    }
    let mut put = |at: usize, text: &[u8]| {
        if let Some(place) = block.get_mut(at..at + text.len()) {
            place.copy_from_slice(text);
        }
    };
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, size.as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    let sum = format!("{sum:06o}\0 ");
    if let Some(place) = block.get_mut(148..156) {
        place.copy_from_slice(sum.as_bytes());
    }
    Ok(block)
}
