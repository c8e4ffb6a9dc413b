//! A window that moves over a stream: what the reader looks at. Knows nothing of chunks.

use std::io::{self, Read};

use crate::error::{Error, Result};

/// Least number of bytes asked for at once.
const READ_LEN: usize = 64 * 1024;

/// A stream with the bytes around its current position in memory.
pub(crate) struct Source<R> {
    inner: R,
    /// What is in memory; `start` bytes of it are behind the current position.
    buffer: Vec<u8>,
    start: usize,
    /// Position of `buffer[start]` in the stream.
    position: u64,
    at_end: bool,
}

impl<R: Read> Source<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            buffer: Vec::new(),
            start: 0,
            position: 0,
            at_end: false,
        }
    }

    /// Current position, in bytes from the start.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The next `len` bytes, fewer where the stream ends before.
    pub(crate) fn peek(&mut self, len: usize) -> Result<&[u8]> {
        if self.buffer.len() - self.start < len && !self.at_end {
            self.fill(len)?;
        }
        Ok(&self.buffer[self.start..self.buffer.len().min(self.start + len)])
    }

    /// Go on by `len` bytes that [`peek`](Self::peek) showed.
    pub(crate) fn advance(&mut self, len: usize) {
        let len = len.min(self.buffer.len() - self.start);
        self.start += len;
        self.position += len as u64;
    }

    fn fill(&mut self, len: usize) -> Result<()> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let mut filled = self.buffer.len();
        self.buffer.resize(filled + (len - filled).max(READ_LEN), 0);
        while filled < len {
            match self.inner.read(&mut self.buffer[filled..]) {
                Ok(0) => {
                    self.at_end = true;
                    break;
                }
                Ok(count) => filled += count,
                Err(source) if source.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    self.buffer.truncate(filled);
                    return Err(Error::Read {
                        position: self.position + filled as u64,
                        source,
                    });
                }
            }
        }
        self.buffer.truncate(filled);
        Ok(())
    }
}
