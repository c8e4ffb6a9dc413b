//! Byte strings of one chunk: one after the other, with their lengths. Nothing is shared, so that what is unpacked is
//! never larger than the chunk.

use std::vec;

use rkyv::{Archive, Serialize};

use super::MAX_ROWS;
use super::column::{pack, unpack_as};
use crate::error::Invalid;
use crate::id::BuildId;

/// Most byte strings in one chunk.
const MAX_BLOBS: usize = 8 * MAX_ROWS;

/// Byte strings in the order in which the tables need them.
#[derive(Archive, Serialize)]
pub(crate) struct Blobs {
    pub(crate) count: u32,
    pub(crate) lengths: Vec<u8>,
    pub(crate) bytes: Vec<u8>,
}

/// Collects byte strings.
#[derive(Default)]
pub(crate) struct BlobWriter {
    lengths: Vec<u64>,
    bytes: Vec<u8>,
}

impl BlobWriter {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.lengths.push(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn push_build_id(&mut self, id: Option<&BuildId>) {
        self.push(id.map_or(&[], BuildId::as_bytes));
    }

    pub(crate) fn finish(self) -> Result<Blobs, Invalid> {
        if self.lengths.len() > MAX_BLOBS {
            return Err(Invalid::Rows);
        }
        let count = u32::try_from(self.lengths.len()).map_err(|_| Invalid::Rows)?;
        Ok(Blobs {
            count,
            lengths: pack(self.lengths),
            bytes: self.bytes,
        })
    }
}

/// Gives the byte strings back in their order.
pub(crate) struct BlobReader<'a> {
    lengths: vec::IntoIter<u32>,
    rest: &'a [u8],
}

impl<'a> BlobReader<'a> {
    pub(crate) fn new(blobs: &'a ArchivedBlobs) -> Result<Self, Invalid> {
        let count = blobs.count.to_native() as usize;
        if count > MAX_BLOBS {
            return Err(Invalid::Rows);
        }
        Ok(Self {
            lengths: unpack_as(&blobs.lengths, count)?.into_iter(),
            rest: &blobs.bytes,
        })
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Invalid> {
        let len = self.lengths.next().ok_or(Invalid::Text)?;
        let (bytes, rest) = self
            .rest
            .split_at_checked(len as usize)
            .ok_or(Invalid::Text)?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn string(&mut self) -> Result<String, Invalid> {
        let text = str::from_utf8(self.bytes()?).map_err(|_| Invalid::Text)?;
        Ok(text.to_owned())
    }

    pub(crate) fn build_id(&mut self) -> Result<Option<BuildId>, Invalid> {
        match self.bytes()? {
            [] => Ok(None),
            bytes => BuildId::new(bytes).map(Some).ok_or(Invalid::Value),
        }
    }

    /// Check that nothing is left over.
    pub(crate) fn finish(self) -> Result<(), Invalid> {
        if self.lengths.len() == 0 && self.rest.is_empty() {
            Ok(())
        } else {
            Err(Invalid::Text)
        }
    }
}
