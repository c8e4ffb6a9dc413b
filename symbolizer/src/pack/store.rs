//! Where a set of packed files is put: a folder, or a tar file by its name. Knows no ELF.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tar::{Builder, Header};

use super::PackedFile;
use crate::staged::Staged;

/// A set that is written.
pub enum Store {
    /// Below a folder, beside what is there.
    Folder(PathBuf),
    /// Into a tar file, which takes its place once it is whole.
    Tar(Staged, Builder<File>),
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = match self {
            Self::Folder(folder) => folder,
            Self::Tar(staged, _) => staged.target(),
        };
        f.debug_tuple("Store").field(&target).finish()
    }
}

impl Store {
    /// Begin a set at `path`: a tar file where it is called `.tar`, else a folder, which is made.
    pub fn create(path: &Path) -> io::Result<Self> {
        if path.extension() == Some("tar".as_ref()) {
            let staged = Staged::create(path)?;
            let set = Builder::new(staged.file().try_clone()?);
            return Ok(Self::Tar(staged, set));
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
            Self::Tar(_, set) => {
                set.append_data(&mut header(file.bytes.len()), &file.name, &*file.bytes)
            }
        }
    }

    /// End the set.
    pub fn finish(self) -> io::Result<()> {
        match self {
            Self::Folder(_) => Ok(()),
            Self::Tar(staged, set) => set.into_inner().and_then(|_| staged.keep()),
        }
    }
}

/// The header of a regular file: nobody's, of no time, so that the same set is the same bytes.
fn header(size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(size as u64);
    for set in [Header::set_mtime, Header::set_uid, Header::set_gid] {
        set(&mut header, 0);
    }
    header
}
