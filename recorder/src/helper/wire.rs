//! Requests to the worker and its answers, and how they lie on a socket. Knows not how they are answered.

use std::io::{self, Read, Write};
use std::ops::Range;

use rawstack_format::id::{BuildId, FileOffset};
use rawstack_format::record::Segment;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::elf::ElfFacts;
use crate::jit;
use crate::proc_fs::{Maps, ProcessFacts};

/// Longest request in bytes.
pub(super) const MAX_REQUEST: usize = 64 << 10;
/// Longest answer in bytes.
pub(super) const MAX_ANSWER: usize = 8 << 20;
/// Bytes in front of each: length and number.
const HEAD: usize = 8;

/// What the recorder wants to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Request {
    /// All processes there are.
    Pids,
    /// Facts and executable mappings of these.
    Processes(Vec<u32>),
    /// Facts of these.
    Facts(Vec<u32>),
    /// The name of a thread.
    ThreadName { pid: u32, tid: u32 },
    /// The executable mappings of a process.
    Maps(u32),
    /// The file behind a mapping.
    File(FileRequest),
    /// A piece of a file that tells of code that a process makes.
    JitFile(jit::Request),
    /// No more of those of this process.
    ForgetJit(u32),
}

/// The file behind a mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileRequest {
    /// Process ID.
    pub(crate) pid: u32,
    /// Addresses of the mapping.
    pub(crate) addresses: Range<u64>,
    /// Its path as the kernel gives it.
    pub(crate) path: Vec<u8>,
    /// Major and minor device number, inode; all 0 where not known.
    pub(crate) file: (u32, u32, u64),
    /// Build ID, where known.
    pub(crate) build_id: Option<Vec<u8>>,
    /// When it was mapped or, if nobody told of that, first seen; monotonic clock.
    pub(crate) seen_ns: u64,
}

/// What the worker says, in the order of requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    Pids(Vec<u32>),
    /// In the order asked for; `None` for one that is gone.
    Processes(Vec<Option<ProcessAnswer>>),
    /// In the order asked for; `None` for one that is gone.
    Facts(Vec<Option<ProcessFacts>>),
    ThreadName(Option<Vec<u8>>),
    /// `None` where they may not be read.
    Maps(Option<Maps>),
    /// `None` where it could not be opened, or is not the one that is mapped.
    File(Option<FileFacts>),
    JitFile(Result<jit::Piece, jit::Refusal>),
    Forgotten,
}

/// A process with its mappings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessAnswer {
    /// Facts.
    pub(crate) facts: ProcessFacts,
    /// Executable mappings; not whole where they may not be read.
    pub(crate) maps: Maps,
}

/// What there is to know of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileFacts {
    class: u8,
    machine: u16,
    build_id: Option<Vec<u8>>,
    /// Offset, address, file size, flags of each code segment.
    segments: Vec<(u64, u64, u64, u32)>,
    /// Of a file without build ID.
    pub(crate) content_hash: Option<[u8; 16]>,
}

impl FileFacts {
    /// To send.
    pub(super) fn new(elf: ElfFacts, content_hash: Option<[u8; 16]>) -> Self {
        let row = |segment: &Segment| {
            (
                segment.offset.0,
                segment.vaddr,
                segment.file_size,
                segment.flags,
            )
        };
        Self {
            class: elf.class,
            machine: elf.machine,
            build_id: elf.build_id.map(|id| id.as_bytes().to_vec()),
            segments: elf.segments.iter().map(row).collect(),
            content_hash,
        }
    }

    /// What an archive says of the file, if it is an ELF file: of its segments those with code.
    pub(crate) fn elf(&self) -> ElfFacts {
        let segment = |&(offset, vaddr, file_size, flags): &(u64, u64, u64, u32)| Segment {
            offset: FileOffset(offset),
            vaddr,
            file_size,
            flags,
        };
        ElfFacts {
            class: self.class,
            machine: self.machine,
            build_id: self.build_id.as_deref().and_then(BuildId::new),
            segments: self.segments.iter().map(segment).collect(),
            data: Vec::new(),
        }
    }
}

/// Send `message`, numbered, of at most `limit` bytes.
pub(super) fn send(
    mut to: impl Write,
    number: u32,
    message: &impl Serialize,
    limit: usize,
) -> io::Result<()> {
    let mut bytes = postcard::to_extend(message, vec![0; HEAD]).map_err(io::Error::other)?;
    let length = bytes.len() - HEAD;
    if length > limit {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let head = u64::from(number) << 32 | u64::try_from(length).unwrap_or(0);
    if let Some(place) = bytes.first_chunk_mut() {
        *place = head.to_le_bytes();
    }
    to.write_all(&bytes)
}

/// Bytes that have come, up to a whole message.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
}

impl Inbox {
    /// Forget what has come.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The length and number of the message that begins here, once its head has come.
    fn head(&self) -> Option<(usize, u32)> {
        let head = u64::from_le_bytes(*self.bytes.first_chunk()?);
        let length = usize::try_from(head & u64::from(u32::MAX)).ok()?;
        Some((length, u32::try_from(head >> 32).ok()?))
    }

    /// Read once. The message with its number, if that made it whole; an error for the end, for one that is longer than
    /// `limit`, or that is none.
    pub(super) fn read<T: DeserializeOwned>(
        &mut self,
        mut from: impl Read,
        limit: usize,
    ) -> io::Result<Option<(u32, T)>> {
        const STEP: usize = 16 << 10;
        let filled = self.bytes.len();
        let wanted = self.head().map_or(STEP, |(length, _)| HEAD + length);
        // Not all at once: what is claimed may never come.
        let room = wanted.saturating_sub(filled).clamp(STEP, 256 << 10);
        self.bytes.resize(filled + room, 0);
        let read = from.read(self.bytes.get_mut(filled..).unwrap_or_default());
        self.bytes
            .truncate(filled + read.as_ref().copied().unwrap_or(0));
        if read? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some((length, number)) = self.head() else {
            return Ok(None);
        };
        if length > limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let Some(message) = self.bytes.get(HEAD..HEAD + length) else {
            return Ok(None);
        };
        let message = postcard::from_bytes(message).map_err(io::Error::other)?;
        self.bytes.drain(..HEAD + length);
        Ok(Some((number, message)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};

    use super::*;

    fn request() -> Request {
        Request::File(FileRequest {
            pid: 7,
            addresses: 1..u64::MAX,
            path: b"/a\xff".to_vec(),
            file: (1, 2, 3),
            build_id: Some(vec![4; 20]),
            seen_ns: 5,
        })
    }

    /// Check that a message comes out as it went in, also when it comes byte by byte, with another behind it.
    #[test]
    fn piecemeal() {
        let mut bytes = Vec::new();
        send(&mut bytes, 5, &request(), MAX_REQUEST).unwrap();
        send(&mut bytes, 6, &Request::Pids, MAX_REQUEST).unwrap();
        let mut inbox = Inbox::default();
        let mut came = Vec::new();
        for byte in bytes {
            came.extend(
                inbox
                    .read::<Request>([byte].as_slice(), MAX_REQUEST)
                    .unwrap(),
            );
        }
        assert_eq!(came, [(5, request()), (6, Request::Pids)]);
    }

    /// Check that a message over the limit is refused by the sender and, by its head alone, by the receiver.
    #[test]
    fn too_long() {
        let many = Request::Facts(vec![u32::MAX; MAX_REQUEST]);
        assert!(send(io::sink(), 0, &many, MAX_REQUEST).is_err());
        let head = (u64::try_from(MAX_REQUEST).unwrap() + 1).to_le_bytes();
        let mut inbox = Inbox::default();
        assert!(inbox.read::<Request>(head.as_slice(), MAX_REQUEST).is_err());
    }

    proptest! {
        /// Check that no bytes panic, whatever message is expected in them.
        #[test]
        fn any_bytes(bytes in any::<Vec<u8>>()) {
            let _ = postcard::from_bytes::<Request>(&bytes);
            let _ = postcard::from_bytes::<Answer>(&bytes);
        }
    }
}
