//! Chunks of an archive, unpacked ahead by a thread of their own. Knows no rows.
//!
//! Checking, unpacking and decoding take as long as adding up what comes of it, and neither needs the other.

use std::fmt;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use rawstack_format::{Chunk, Damage, Error, Header, Reader, Result};

/// Chunks that are held ready; each was a mebibyte at most before its rows were made of it.
const AHEAD: usize = 4;

/// What the thread found next.
enum Found {
    /// A chunk, and where it is the first of its part the account of the part before.
    Chunk(Box<Chunk>, Option<Damage>),
    /// The end, with the account of the last part.
    End(Damage),
}

/// The chunks of an archive in their order.
pub(super) struct Chunks {
    header: Header,
    found: Receiver<Result<Found>>,
    last_part: Option<Damage>,
    damage: Damage,
}

impl Chunks {
    /// Start to read `input`, whose header comes first.
    pub(super) fn read(input: impl Read + Send + 'static) -> Result<Self> {
        let reader = Reader::new(input)?;
        let header = *reader.header();
        let (sender, found) = sync_channel(AHEAD);
        let started = thread::Builder::new()
            .name("unpack".to_owned())
            .spawn(move || unpack(reader, &sender));
        started.map_err(failed)?;
        Ok(Self {
            header,
            found,
            last_part: None,
            damage: Damage::default(),
        })
    }

    /// The header.
    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// The next whole chunk; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Chunk>> {
        let ended = || failed(io::Error::other("the thread that reads it ended"));
        match self.found.recv().map_err(|_| ended())?? {
            Found::Chunk(chunk, before) => {
                self.last_part = before.or(self.last_part.take());
                Ok(Some(*chunk))
            }
            Found::End(damage) => {
                self.damage = damage;
                Ok(None)
            }
        }
    }

    /// What was found damaged or missing in the last part; there once [`next`](Self::next) gave the end.
    pub(super) fn damage(&self) -> &Damage {
        &self.damage
    }

    /// The account of the part before the one at hand.
    pub(super) fn last_part(&self) -> Option<&Damage> {
        self.last_part.as_ref()
    }
}

impl fmt::Debug for Chunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunks")
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

fn failed(source: io::Error) -> Error {
    Error::Read {
        position: 0,
        source,
    }
}

/// Give out chunks until the end, an error, or nobody wants any more.
fn unpack(mut reader: Reader<impl Read>, out: &SyncSender<Result<Found>>) {
    let mut part = None;
    loop {
        let next = reader.next().map(|chunk| match chunk {
            Some(chunk) => {
                let is_first = part.replace(chunk.info.part) != Some(chunk.info.part);
                let before = reader.last_part().filter(|_| is_first).cloned();
                Found::Chunk(Box::new(chunk), before)
            }
            None => Found::End(reader.damage().clone()),
        });
        let goes_on = matches!(next, Ok(Found::Chunk(..)));
        if out.send(next).is_err() || !goes_on {
            return;
        }
    }
}
