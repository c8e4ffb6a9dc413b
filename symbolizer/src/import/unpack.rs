//! Compressed records, unpacked piece by piece: one zstd stream through all of them.

use std::fmt;

use linux_perf_event_reader::Endianness;
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use super::bytes::Cursor;

/// Bytes that are unpacked at once.
const PIECE: usize = 1 << 16;
/// Bytes of a record's header.
const HEADER_LEN: usize = 8;

/// Called with kind, `misc` and body of each record.
pub(super) type EachRecord<'f> = dyn FnMut(u32, u16, Vec<u8>) + 'f;

/// Unpacks records.
#[derive(Default)]
pub(super) struct Unpacker {
    decoder: Option<Decoder<'static>>,
    /// The start of a record whose rest is still to come: less than 64 KiB.
    begun: Vec<u8>,
}

impl Unpacker {
    /// Unpack the next part of the stream; `false` where it is damaged.
    pub(super) fn unpack(
        &mut self,
        packed: &[u8],
        endian: Endianness,
        each: &mut EachRecord<'_>,
    ) -> bool {
        if self.decoder.is_none() {
            self.decoder = Decoder::new().ok();
        }
        let Some(decoder) = &mut self.decoder else {
            return false;
        };
        let mut input = InBuffer::around(packed);
        let mut piece = vec![0; PIECE];
        loop {
            let mut output = OutBuffer::around(&mut piece[..]);
            let before = input.pos();
            if decoder.run(&mut input, &mut output).is_err() {
                return false;
            }
            let filled = output.pos();
            if filled == 0 && input.pos() == before && before < packed.len() {
                return false;
            }
            self.begun.extend_from_slice(&piece[..filled]);
            let Some(used) = split(&self.begun, endian, each) else {
                return false;
            };
            self.begun.drain(..used);
            if filled < PIECE && input.pos() == packed.len() {
                return true;
            }
        }
    }
}

/// Give all whole records at the start of `bytes`, and say how long they are; nothing where one cannot be.
fn split(bytes: &[u8], endian: Endianness, each: &mut EachRecord<'_>) -> Option<usize> {
    let mut cursor = Cursor::new(bytes, endian);
    let mut used = 0;
    while cursor.rest().len() >= HEADER_LEN {
        let (kind, misc, size) = (cursor.u32()?, cursor.u16()?, cursor.u16()?);
        let length = usize::from(size).checked_sub(HEADER_LEN)?;
        let Some(body) = cursor.take(length) else {
            break;
        };
        each(kind, misc, body.to_vec());
        used += usize::from(size);
    }
    Some(used)
}

impl fmt::Debug for Unpacker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unpacker").finish_non_exhaustive()
    }
}
