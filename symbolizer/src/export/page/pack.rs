//! Numbers and text → what stands in the page: columns of LEB128, as one zlib stream, in base64.

use std::io::{self, Write};

use base64::engine::general_purpose::{GeneralPurpose, STANDARD};
use base64::write::EncoderWriter;
use flate2::Compression;
use flate2::write::ZlibEncoder;

/// Bytes that are gathered before they are compressed.
const ROOM: usize = 1 << 16;

/// Writes columns.
pub(crate) struct Packer<'w> {
    out: ZlibEncoder<EncoderWriter<'static, GeneralPurpose, &'w mut dyn Write>>,
    room: Vec<u8>,
}

impl<'w> Packer<'w> {
    pub(crate) fn new(out: &'w mut dyn Write) -> Self {
        let text = EncoderWriter::new(out, &STANDARD);
        Self {
            out: ZlibEncoder::new(text, Compression::new(6)),
            room: Vec::with_capacity(ROOM + 16),
        }
    }

    /// Bytes with their length before them.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.number(bytes.len() as u64)?;
        self.flush()?;
        self.out.write_all(bytes)
    }

    /// A column; its length is known to the reader.
    pub(crate) fn column(&mut self, numbers: impl Iterator<Item = u64>) -> io::Result<()> {
        for number in numbers {
            self.number(number)?;
        }
        Ok(())
    }

    fn number(&mut self, number: u64) -> io::Result<()> {
        let mut rest = number;
        while rest >= 0x80 {
            self.room.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        self.room.push((rest & 0x7f) as u8);
        if self.room.len() >= ROOM {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.room)?;
        self.room.clear();
        Ok(())
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        self.out.finish()?.finish()?;
        Ok(())
    }
}
