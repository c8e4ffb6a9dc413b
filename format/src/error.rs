//! Why writing or opening an archive failed. Damage in the chunks of an archive is no error: see `damage`.

use std::io;
use std::path::PathBuf;
use std::result;

use crate::chunk::{FRAME_LEN, MAX_RAW_LEN};
use crate::header::feature_names;

/// Result of this crate.
pub type Result<T, E = Error> = result::Result<T, E>;

/// What kept an archive from being written or opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The output exists already.
    #[error("{} exists already", path.display())]
    Exists {
        /// The output.
        path: PathBuf,
    },
    /// The output exists and is something that is never replaced: a symbolic link, a directory, a device.
    #[error("{} is not a regular file and is not replaced", path.display())]
    NotRegular {
        /// The output.
        path: PathBuf,
    },
    /// The output could not be created.
    #[error("failed to create {}", path.display())]
    Create {
        /// The output.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// A chunk could not be written. An [`ArchiveFile`](crate::ArchiveFile) ends with the chunk before it, and writing
    /// may go on.
    #[error(
        "failed to write the chunk at byte {position}; the archive ends with the chunk before it"
    )]
    Write {
        /// Where the chunk would have stood, in bytes.
        position: u64,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// What was written could not be brought to the disk.
    #[error("failed to sync the archive to disk")]
    Sync(#[source] io::Error),
    /// The archive could not be read.
    #[error("failed to read the archive at byte {position}")]
    Read {
        /// Bytes read before.
        position: u64,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// zstd could not be set up for reading.
    #[error("failed to set up decompression")]
    Decompressor(#[source] io::Error),
    /// A record is larger than a chunk may be. Nothing was written.
    #[error("a record of {len} bytes does not fit a chunk of {MAX_RAW_LEN}")]
    ChunkTooLarge {
        /// Raw length of the record, in bytes.
        len: usize,
    },
    /// A record contradicts itself, so that no reader would accept it. Nothing was written.
    #[error("the record is not valid: {0}")]
    InvalidRecord(Invalid),
    /// zstd failed. Nothing was written.
    #[error("failed to compress a chunk")]
    Compress(#[source] io::Error),
    /// All 2³² sequence numbers are used.
    #[error("the archive has as many chunks as it can")]
    TooManyChunks,
    /// All 2¹⁶ numbers of parts are used, or the archive is not one that has parts.
    #[error("the archive has as many parts as it can")]
    TooManyParts,
    /// The input does not start as an archive does.
    #[error("not a Rawstack archive")]
    NotAnArchive,
    /// The input ends within the first 64 bytes.
    #[error("the archive's header is cut: {len} of {} bytes", FRAME_LEN)]
    HeaderCut {
        /// Bytes that are there.
        len: usize,
    },
    /// Both copies of the header are damaged.
    #[error("both copies of the archive's header are damaged")]
    HeaderDamaged,
    /// The archive is of a later major version.
    #[error("archive format {major}.{minor} is newer than this program")]
    Version {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// The archive uses features that cannot be ignored and that this program does not know.
    #[error("the archive needs what this program does not know: {}", feature_names(*bits))]
    UnknownFeatures {
        /// The unknown bits of the header's `incompat` word.
        bits: u64,
    },
    /// The archive's rkyv roots have another byte order, pointer width, alignment or version.
    #[error("the archive's encoding {found:02x?} is not known to this program")]
    Encoding {
        /// The header's descriptor.
        found: [u8; 4],
    },
}

impl Error {
    /// Whether the file system or a limit left no room: worth another try when there is room again.
    pub fn is_out_of_space(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let Self::Write { source, .. } = self else {
            return false;
        };
        matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
    }
}

/// Why the content of a chunk is refused, although its checksum holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// The rkyv root is not laid out as its kind and version say.
    #[error("layout")]
    Layout,
    /// A table has more rows than allowed, or tables that belong together differ in length.
    #[error("number of rows")]
    Rows,
    /// A column's length is no multiple of its rows, or a value does not fit its type.
    #[error("column")]
    Column,
    /// Text is not UTF-8 or its lengths do not add up.
    #[error("text")]
    Text,
    /// A number stands for no variant, or a size is out of its range.
    #[error("value")]
    Value,
    /// An index points behind the rows written so far, or a stack node at itself or at a later one.
    #[error("reference")]
    Reference,
}
