//! Chunks of an archive, unpacked ahead by a thread of their own. Knows no rows.
//!
//! Checking, unpacking and decoding take as long as adding up what comes of it, and neither needs the other.

use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, SendError, SyncSender, sync_channel};
use std::thread;

use rawstack_format::{Chunk, Damage, Error, Header, Reader, Result};

use super::load::Input;

/// Chunks that are held ready; each was a mebibyte at most before its rows were made of it.
const AHEAD: usize = 4;

/// What comes next.
enum Found {
    /// A chunk, and where it is the first of its part the account of the part before.
    Chunk(Box<Chunk>, Option<Damage>),
    /// The end, with the account of the last part.
    End(Damage),
}

/// Who unpacks.
enum Source {
    /// A thread of its own.
    Ahead(Receiver<Result<Found>>),
    /// Whoever asks: no thread could be started.
    Here(Box<Unpacker>),
}

/// The chunks of an archive in their order.
pub(super) struct Chunks {
    header: Header,
    source: Source,
    last_part: Option<Damage>,
    damage: Damage,
}

impl Chunks {
    /// Start to read `input`, whose header comes first.
    pub(super) fn read(input: Input) -> Result<Self> {
        let thread = thread::Builder::new().name("unpack".to_owned());
        Self::read_with(input, |work| thread.spawn(work).map(drop))
    }

    /// As [`read`](Self::read), with a thread that `start` starts.
    fn read_with(
        input: Input,
        start: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<()>,
    ) -> Result<Self> {
        let unpacker = Unpacker {
            reader: Reader::new(input)?,
            part: None,
        };
        let header = *unpacker.reader.header();
        // What a thread is to do is gone where it could not be started, so it gets the archive afterwards.
        let (give, take) = sync_channel::<Unpacker>(1);
        let (sender, found) = sync_channel(AHEAD);
        let work = move || {
            if let Ok(unpacker) = take.recv() {
                unpack(unpacker, &sender);
            }
        };
        let source = match start(Box::new(work)) {
            Ok(()) => match give.send(unpacker) {
                Ok(()) => Source::Ahead(found),
                Err(SendError(unpacker)) => Source::Here(Box::new(unpacker)),
            },
            Err(_) => Source::Here(Box::new(unpacker)),
        };
        Ok(Self {
            header,
            source,
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
        let found = match &mut self.source {
            Source::Ahead(found) => found.recv().map_err(|_| ended())??,
            Source::Here(unpacker) => unpacker.next()?,
        };
        match found {
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

fn ended() -> Error {
    Error::Read {
        position: 0,
        source: io::Error::other("the thread that reads it ended"),
    }
}

/// Unpacks one chunk after the other.
struct Unpacker {
    reader: Reader<Input>,
    /// The part that the last chunk was of.
    part: Option<u16>,
}

impl Unpacker {
    fn next(&mut self) -> Result<Found> {
        let Some(chunk) = self.reader.next()? else {
            return Ok(Found::End(self.reader.damage().clone()));
        };
        let is_first = self.part.replace(chunk.info.part) != Some(chunk.info.part);
        let before = self.reader.last_part().filter(|_| is_first).cloned();
        Ok(Found::Chunk(Box::new(chunk), before))
    }
}

/// Give out chunks until the end, an error, or nobody wants any more.
fn unpack(mut unpacker: Unpacker, out: &SyncSender<Result<Found>>) {
    loop {
        let next = unpacker.next();
        let goes_on = matches!(next, Ok(Found::Chunk(..)));
        if out.send(next).is_err() || !goes_on {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::load::input;
    use super::*;

    /// Check that an archive is read the same where no thread can be started.
    #[test]
    fn without_a_thread() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/archives/v1");
        let path = folder.join("merged.rawstack");
        let open = || input(&path).unwrap();
        let refuse = |_| Err(io::ErrorKind::WouldBlock.into());
        let read = |mut chunks: Chunks| {
            let mut kinds = Vec::new();
            while let Some(chunk) = chunks.next().unwrap() {
                kinds.push((chunk.info.kind, chunk.info.position));
            }
            (kinds, chunks.damage().clone())
        };
        let alone = Chunks::read_with(open(), refuse).unwrap();
        assert!(matches!(alone.source, Source::Here(_)));
        let ahead = Chunks::read(open()).unwrap();
        assert!(matches!(ahead.source, Source::Ahead(_)));
        let (alone, ahead) = (read(alone), read(ahead));
        assert!(alone.0.len() > 3);
        assert_eq!(alone, ahead);
    }
}
