//! Chunks to records, with an account of damage. Needs nothing but a stream, forwards.

use std::fmt;
use std::io::Read;
use std::mem;

use rkyv::util::AlignedVec;
use zstd::bulk::Decompressor;

use crate::chunk::{ChunkInfo, FRAME_LEN, Frame, Kind, MAX_RAW_LEN, MAX_STORED_LEN};
use crate::compress;
use crate::content;
use crate::damage::{Cause, Damage, Gap};
use crate::encoded::Encoded;
use crate::error::{Error, Result};
use crate::header::{HEADER_LEN, Header};
use crate::record::Record;
use crate::source::Source;

/// Work on chunks that turn out damaged, in bytes, that is allowed beyond [`WASTE_FACTOR`].
const WASTE_BASE: u64 = 64 << 20;

/// Work on damaged chunks that is allowed for each byte read. An archive can be made in which a frame stands every 64
/// bytes and claims a mebibyte; honest damage is far below.
const WASTE_FACTOR: u64 = 4;

/// One whole chunk.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Chunk {
    /// What its frame says.
    pub info: ChunkInfo,
    /// Its content. `None` for an index, for a kind or kind version that this program does not know, and for what the
    /// [`Selection`] leaves out.
    pub record: Option<Record>,
    /// The chunk as it is stored, to be put into another archive; only where the reader
    /// [keeps](Reader::keeping_stored) it.
    pub stored: Option<Encoded>,
}

/// Which chunks to unpack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Selection {
    /// All.
    #[default]
    All,
    /// These kinds.
    Only(Vec<Kind>),
    /// None: frames and checksums only.
    Frames,
}

impl Selection {
    fn has(&self, kind: Kind) -> bool {
        match self {
            Self::All => true,
            Self::Only(kinds) => kinds.contains(&kind),
            Self::Frames => false,
        }
    }
}

/// Reads an archive from a stream, in bounded memory: one chunk at a time.
pub struct Reader<R> {
    source: Source<R>,
    header: Header,
    selection: Selection,
    unpacker: Unpacker,
    damage: Damage,
    /// The part at hand, once a chunk was read.
    part: Option<u16>,
    /// The account of the part before.
    last_part: Option<Damage>,
    keeps_stored: bool,
    /// End of the last whole chunk.
    whole_end: u64,
    next_seq: u32,
    /// IDs that whole chunks account for: the total of the last one's frame.
    ids: u64,
    /// Highest total of IDs in a frame whose chunk is damaged.
    damaged_ids: u64,
    /// First thing found wrong since the last whole chunk.
    cause: Option<Cause>,
    wasted: u64,
}

impl<R: Read> Reader<R> {
    /// Read the header.
    pub fn new(inner: R) -> Result<Self> {
        let mut source = Source::new(inner);
        let (header, header_copy) = Header::from_bytes(source.peek(HEADER_LEN)?)?;
        let header_len = header.header_len as usize;
        source.peek(header_len)?;
        source.advance(header_len);
        Ok(Self {
            whole_end: source.position(),
            source,
            header,
            selection: Selection::All,
            unpacker: Unpacker::default(),
            damage: Damage {
                header_copy,
                ..Damage::default()
            },
            part: None,
            last_part: None,
            keeps_stored: false,
            next_seq: 0,
            ids: 0,
            damaged_ids: 0,
            cause: None,
            wasted: 0,
        })
    }

    /// Unpack only what `selection` says. Checksums are checked in any case.
    #[must_use]
    pub fn with_selection(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// Give each chunk as it is stored, too.
    #[must_use]
    pub fn keeping_stored(mut self) -> Self {
        self.keeps_stored = true;
        self
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What was found damaged or missing so far; of a merged archive in the part at hand.
    ///
    /// Damage between two parts counts to the later one, all but IDs that the earlier one is known to have lost.
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// The final account of the part before the one at hand. A chunk of a new part ends the one before.
    pub fn last_part(&self) -> Option<&Damage> {
        self.last_part.as_ref()
    }

    /// The next whole chunk; `None` at the end. Damage is skipped and goes to the account; only a failing stream is an
    /// error.
    #[allow(clippy::should_implement_trait)] // An iterator could not lend the account between two chunks.
    pub fn next(&mut self) -> Result<Option<Chunk>> {
        loop {
            let position = self.source.position();
            let bytes = self.source.peek(FRAME_LEN)?;
            if bytes.len() < FRAME_LEN {
                let len = bytes.len();
                if len > 0 {
                    self.note(Cause::Cut);
                    self.source.advance(len);
                }
                self.finish();
                return Ok(None);
            }
            let Some(mut frame) = Frame::from_bytes(bytes, self.header.salt, position) else {
                self.note(Cause::NoFrame);
                self.source.advance(FRAME_LEN);
                continue;
            };
            if !self.header.has_parts() {
                frame.info.part = 0;
            }
            match self.open(&frame)? {
                Ok(chunk) => return Ok(Some(chunk)),
                Err(cause) => {
                    self.note(cause);
                    if self.part.unwrap_or(0) == frame.info.part {
                        self.damaged_ids = self.damaged_ids.max(frame.info.counters.ids);
                    }
                    self.skip_damaged(&frame.info)?;
                }
            }
        }
    }

    /// Take the chunk behind a frame whose own checksum holds, or say what is wrong with it.
    fn open(&mut self, frame: &Frame) -> Result<Result<Chunk, Cause>> {
        let info = frame.info;
        let stored_len = info.stored_len as usize;
        if stored_len > MAX_STORED_LEN || info.raw_len as usize > MAX_RAW_LEN {
            return Ok(Err(Cause::Length));
        }
        if info.seq < self.next_seq || self.part.is_some_and(|part| info.part < part) {
            return Ok(Err(Cause::Sequence));
        }
        let len = FRAME_LEN + stored_len.next_multiple_of(FRAME_LEN);
        let bytes = self.source.peek(len)?;
        if bytes.len() < len {
            return Ok(Err(Cause::Cut));
        }
        if crc32c::crc32c(&bytes[FRAME_LEN..]) != frame.payload_crc {
            return Ok(Err(Cause::Checksum));
        }
        let stored = &bytes[FRAME_LEN..FRAME_LEN + stored_len];
        let known = content::is_known(info.kind, info.version);
        let mut record = None;
        if known && info.kind != Kind::INDEX && self.selection.has(info.kind) {
            match self.unpacker.unpack(&info, stored)? {
                Ok(content) => record = content,
                Err(cause) => return Ok(Err(cause)),
            }
        }
        let stored = self
            .keeps_stored
            .then(|| Encoded::copied(&info, &bytes[FRAME_LEN..], frame.payload_crc));
        self.accept(&info, known, record.as_ref());
        self.source.advance(len);
        self.whole_end = self.source.position();
        Ok(Ok(Chunk {
            info,
            record,
            stored,
        }))
    }

    /// Account for a whole chunk and for the gap before it.
    fn accept(&mut self, info: &ChunkInfo, known: bool, record: Option<&Record>) {
        if self.part != Some(info.part) {
            self.enter(info.part);
        }
        let missing = info.seq - self.next_seq;
        if missing > 0 || info.position > self.whole_end {
            self.damage.lost_chunks += u64::from(missing);
            let before = info.counters.ids.saturating_sub(record.map_or(0, own_ids));
            self.damage.push(Gap {
                start: self.whole_end,
                end: info.position,
                first_seq: self.next_seq,
                next_seq: Some(info.seq),
                lost_ids: before.saturating_sub(self.ids),
                cause: self.cause.unwrap_or(Cause::Sequence),
            });
        }
        self.cause = None;
        self.damaged_ids = 0;
        self.ids = info.counters.ids;
        self.next_seq = info.seq.saturating_add(1);
        self.damage.whole_chunks += 1;
        self.damage.unknown_chunks += u64::from(!known);
        if info.kind != Kind::INDEX && info.kind != Kind::PART {
            self.damage.ended = info.kind == Kind::END;
        }
    }

    /// Begin the account of `part`, whose first whole chunk is at hand.
    fn enter(&mut self, part: u16) {
        let Some(last) = self.part.replace(part) else {
            self.damage.lost_parts = part.into();
            return;
        };
        let lost_ids = self.damaged_ids.saturating_sub(self.ids);
        if lost_ids > 0 {
            self.damage.push(Gap {
                start: self.whole_end,
                end: self.whole_end,
                first_seq: self.next_seq,
                next_seq: None,
                lost_ids,
                cause: self.cause.unwrap_or(Cause::Sequence),
            });
        }
        let begun = Damage {
            lost_parts: u64::from(part - last) - 1,
            ..Damage::default()
        };
        self.last_part = Some(mem::replace(&mut self.damage, begun));
        (self.ids, self.damaged_ids) = (0, 0);
    }

    /// Account for what is behind the last whole chunk.
    fn finish(&mut self) {
        let end = self.source.position();
        if let Some(cause) = self.cause.take() {
            self.damage.tail_bytes = end - self.whole_end;
            self.damage.push(Gap {
                start: self.whole_end,
                end,
                first_seq: self.next_seq,
                next_seq: None,
                lost_ids: self.damaged_ids.saturating_sub(self.ids),
                cause,
            });
            self.whole_end = end;
        }
    }

    fn note(&mut self, cause: Cause) {
        self.cause.get_or_insert(cause);
    }

    /// Go on behind the frame of a damaged chunk: bytes may be missing, so the next chunk may start within its length.
    /// Only when that was tried too often, go on behind the whole chunk.
    fn skip_damaged(&mut self, info: &ChunkInfo) -> Result<()> {
        let len = usize::try_from(info.len_in_file())
            .unwrap_or(usize::MAX)
            .min(FRAME_LEN + MAX_STORED_LEN);
        self.wasted = self.wasted.saturating_add(len as u64);
        let allowed = self
            .source
            .position()
            .saturating_mul(WASTE_FACTOR)
            .saturating_add(WASTE_BASE);
        let skip = if self.wasted > allowed {
            len
        } else {
            FRAME_LEN
        };
        self.source.peek(skip)?;
        self.source.advance(skip);
        Ok(())
    }
}

/// Turns the stored bytes of chunks into records.
#[derive(Default)]
struct Unpacker {
    /// Made when the first chunk is unpacked: it is larger than all the rest of a reader.
    decompressor: Option<Decompressor<'static>>,
    raw: AlignedVec,
}

impl Unpacker {
    /// Unpack the content of a chunk of a known kind and version, or say what is wrong with it.
    fn unpack(&mut self, info: &ChunkInfo, stored: &[u8]) -> Result<Result<Option<Record>, Cause>> {
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new().map_err(Error::Decompressor)?),
        };
        if !compress::decompress(decompressor, stored, info.raw_len as usize, &mut self.raw) {
            return Ok(Err(Cause::Compression));
        }
        Ok(content::decode(info.kind, info.version, &self.raw).map_err(Cause::Content))
    }
}

/// IDs that a record accounts for.
fn own_ids(record: &Record) -> u64 {
    let Record::Batch(batch) = record else {
        return 0;
    };
    let dropped = batch
        .drops
        .iter()
        .filter(|drop| drop.reason.counts_ids())
        .map(|drop| drop.count);
    dropped.fold(batch.samples.len() as u64, u64::saturating_add)
}

impl<R> fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("header", &self.header)
            .field("damage", &self.damage)
            .finish_non_exhaustive()
    }
}
