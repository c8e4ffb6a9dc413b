//! A perf.data file or stream as records in the order of their times. Knows no stacks.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::mem;
use std::path::Path;

use linux_perf_event_reader::{
    Endianness, EventRecord, RawData, RawEventRecord, RecordParseInfo, RecordType,
};

use super::attributes::{Attribute, Owners};
use super::bytes::Cursor;
use super::header::{self, Facts, take_announcement};
use super::maps::true_misc;
use super::rounds::{Raw, Rounds};
use super::unpack::Unpacker;
use super::{AUXTRACE, BUILD_ID, COMPRESSED, COMPRESSED2, FINISHED_ROUND, FIRST_USER_TYPE};
use super::{ImportError, Refusal};
use crate::guard::guarded;

/// Bytes of a record's header.
const HEADER_LEN: usize = 8;
/// Bytes that are read at once.
const READ_LEN: usize = 1 << 17;
/// Most events of a stream.
const MAX_ATTRIBUTES: usize = 4096;

/// What was met and is not in the archive, or could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    /// Records that could not be read.
    pub(super) damaged: u64,
    /// Bytes of AUX areas (hardware traces).
    pub(super) aux_bytes: u64,
    /// The file ended within a record, or before its end.
    pub(super) is_cut: bool,
}

/// An opened recording of perf.
pub(super) struct PerfData {
    input: Box<dyn Read>,
    /// Bytes of records that are left; `None`: to the end.
    left: Option<u64>,
    pub(super) endian: Endianness,
    pub(super) facts: Facts,
    pub(super) attributes: Vec<Attribute>,
    infos: Vec<RecordParseInfo>,
    owners: Owners,
    rounds: Rounds,
    unpacker: Unpacker,
    at_end: bool,
    /// The first record of a stream that is no announcement.
    first: Option<(u32, u16, Vec<u8>)>,
    pub(super) account: Account,
}

impl PerfData {
    /// Open the recording at `path` (`-`: a stream on standard input).
    pub(super) fn open(path: &Path) -> Result<Self, ImportError> {
        if path == Path::new("-") {
            let mut input: Box<dyn Read> =
                Box::new(BufReader::with_capacity(READ_LEN, io::stdin()));
            let (endian, size) = magic(&mut input)?;
            if size != 16 {
                return Err(Refusal::NoStream.into());
            }
            return Self::stream(input, endian, Facts::default());
        }
        let mut file = File::open(path)?;
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(Refusal::Folder.into());
        }
        if !meta.is_file() {
            return Err(Refusal::NoFile.into());
        }
        let (endian, size) = magic(&mut file)?;
        if size == 16 {
            // Build IDs stand at the end of a stream; a file can be read twice.
            let scanned = scan_build_ids(File::open(path)?, endian)?;
            return Self::stream(
                Box::new(BufReader::with_capacity(READ_LEN, file)),
                endian,
                scanned,
            );
        }
        let head = header::read(&mut file, endian)?;
        let mut data = Self::new(
            Box::new(BufReader::with_capacity(READ_LEN, file)),
            endian,
            head.facts,
            head.attributes,
        )?;
        data.left = (head.data_len > 0).then_some(head.data_len);
        data.account.is_cut = head.data_len == 0;
        Ok(data)
    }

    /// Read a stream's announcements.
    fn stream(
        mut input: Box<dyn Read>,
        endian: Endianness,
        mut facts: Facts,
    ) -> Result<Self, ImportError> {
        let mut attributes = Vec::new();
        let first = loop {
            let Some((kind, misc, body)) = next_record(&mut input, endian)? else {
                break None;
            };
            let heads = (&mut facts, &mut attributes);
            if attributes_are_many(heads.1) || !take_announcement(kind, &body, heads, endian) {
                break Some((kind, misc, body));
            }
        };
        if facts.described.len() == attributes.len() {
            for (attribute, described) in attributes.iter_mut().zip(&facts.described) {
                attribute.name.clone_from(&described.name);
            }
        }
        let mut data = Self::new(input, endian, facts, attributes)?;
        data.first = first;
        Ok(data)
    }

    fn new(
        input: Box<dyn Read>,
        endian: Endianness,
        facts: Facts,
        attributes: Vec<Attribute>,
    ) -> Result<Self, ImportError> {
        let infos: Vec<_> = attributes
            .iter()
            .map(|attribute| attribute.parse_info(endian))
            .collect();
        if !attributes.iter().any(Attribute::has_addresses) {
            return Err(Refusal::NoAddresses.into());
        }
        let owners = Owners::of(&attributes, &infos).ok_or(Refusal::NoIdentifier)?;
        Ok(Self {
            input,
            left: None,
            endian,
            facts,
            attributes,
            infos,
            owners,
            rounds: Rounds::default(),
            unpacker: Unpacker::default(),
            at_end: false,
            first: None,
            account: Account::default(),
        })
    }

    /// Records that came too late for their place in time.
    pub(super) fn late(&self) -> u64 {
        self.rounds.late
    }

    /// The next record with its time, 0 where it has none.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Raw)>, ImportError> {
        loop {
            if let Some(next) = self.rounds.pop() {
                return Ok(Some(next));
            }
            if self.at_end {
                return Ok(None);
            }
            if !self.read_one()? {
                self.at_end = true;
                self.rounds.end();
            }
        }
    }

    /// Read one record of the file; `false` at its end.
    fn read_one(&mut self) -> Result<bool, ImportError> {
        if let Some((kind, misc, body)) = self.first.take() {
            return self.take(kind, misc, body).map(|()| true);
        }
        if self.left == Some(0) {
            return Ok(false);
        }
        let (kind, misc, body) = match next_record(&mut self.input, self.endian) {
            Ok(Some(record)) => record,
            Ok(None) => {
                self.account.is_cut |= self.left.is_some();
                return Ok(false);
            }
            // What stands behind a record that cannot be is not known.
            Err(ImportError::Damaged(_)) => {
                self.account.is_cut = true;
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let length = (HEADER_LEN + body.len()) as u64;
        self.left = self.left.map(|left| left.saturating_sub(length));
        self.take(kind, misc, body)?;
        Ok(true)
    }

    fn take(&mut self, kind: u32, misc: u16, body: Vec<u8>) -> Result<(), ImportError> {
        match kind {
            FINISHED_ROUND => self.rounds.end_round(),
            COMPRESSED => self.unpack(&body)?,
            COMPRESSED2 => {
                let mut cursor = Cursor::new(&body, self.endian);
                let size = cursor.u64().and_then(|size| usize::try_from(size).ok());
                match size.and_then(|size| cursor.take(size)) {
                    Some(packed) => self.unpack(packed)?,
                    None => self.account.damaged += 1,
                }
            }
            AUXTRACE => self.skip_aux(&body)?,
            _ => self.queue(kind, misc, body),
        }
        Ok(())
    }

    /// What stands behind the record is as long as the record says.
    fn skip_aux(&mut self, body: &[u8]) -> Result<(), ImportError> {
        let size = Cursor::new(body, self.endian).u64().unwrap_or(0);
        let size = self.left.map_or(size, |left| size.min(left));
        let skipped = io::copy(&mut (&mut self.input).take(size), &mut io::sink())?;
        self.left = self.left.map(|left| left.saturating_sub(skipped));
        self.account.aux_bytes = self.account.aux_bytes.saturating_add(skipped);
        self.account.is_cut |= skipped < size;
        Ok(())
    }

    fn unpack(&mut self, packed: &[u8]) -> Result<(), ImportError> {
        let mut unpacker = mem::take(&mut self.unpacker);
        let endian = self.endian;
        let whole = unpacker.unpack(packed, endian, &mut |kind, misc, body| match kind {
            FINISHED_ROUND => self.rounds.end_round(),
            _ => self.queue(kind, misc, body),
        });
        self.unpacker = unpacker;
        if whole {
            Ok(())
        } else {
            Err(ImportError::Damaged("compressed records are damaged"))
        }
    }

    fn queue(&mut self, kind: u32, misc: u16, mut body: Vec<u8>) {
        if kind >= FIRST_USER_TYPE {
            if kind == BUILD_ID {
                return;
            }
            let raw = Raw {
                kind,
                misc,
                event: 0,
                body: body.into(),
            };
            return self.rounds.push(None, raw);
        }
        let event = self.owners.find(RecordType(kind), &body, self.endian);
        let Some((attribute, info)) = self.attributes.get(event).zip(self.infos.get(event)) else {
            return;
        };
        if RecordType(kind) == RecordType::SAMPLE
            && let Some(cut) = attribute.without_counters(&body, self.endian)
        {
            body = cut;
        }
        let record = RawEventRecord::new(RecordType(kind), misc, RawData::Single(&body), *info);
        let time = record.timestamp();
        let raw = Raw {
            kind,
            misc,
            event,
            body: body.into(),
        };
        self.rounds.push(time, raw);
    }

    /// Give `each` the decoded record; one that cannot be is counted.
    pub(super) fn decode(&mut self, raw: &Raw, each: &mut dyn FnMut(EventRecord<'_>)) {
        let Some(info) = self.infos.get(raw.event) else {
            return;
        };
        let kind = RecordType(raw.kind);
        let misc = if kind == RecordType::MMAP2 {
            let attribute = self.attributes.get(raw.event);
            let is_asked = attribute.is_some_and(Attribute::has_build_ids);
            true_misc(raw.misc, &raw.body, is_asked)
        } else {
            raw.misc
        };
        let record = RawEventRecord::new(kind, misc, RawData::Single(&raw.body), *info);
        // The library asserts what a file says.
        match guarded(|| record.parse()) {
            Some(Ok(parsed)) => each(parsed),
            _ => self.account.damaged += 1,
        }
    }
}

fn attributes_are_many(attributes: &[Attribute]) -> bool {
    attributes.len() >= MAX_ATTRIBUTES
}

/// The magic and the size behind it: 16 in streams.
fn magic(input: &mut dyn Read) -> Result<(Endianness, u64), ImportError> {
    let mut bytes = [0; 16];
    if let Err(error) = input.read_exact(&mut bytes) {
        return Err(match error.kind() {
            io::ErrorKind::UnexpectedEof => Refusal::NotPerf.into(),
            _ => error.into(),
        });
    }
    let endian = match &bytes[..8] {
        b"PERFILE2" => Endianness::LittleEndian,
        b"2ELIFREP" => Endianness::BigEndian,
        b"PERFFILE" => return Err(Refusal::Old.into()),
        _ => return Err(Refusal::NotPerf.into()),
    };
    let size = Cursor::new(&bytes[8..], endian).u64().unwrap_or(0);
    Ok((endian, size))
}

/// The next record: kind, `misc` and what stands behind the header; `None` at the end.
fn next_record(
    input: &mut dyn Read,
    endian: Endianness,
) -> Result<Option<(u32, u16, Vec<u8>)>, ImportError> {
    let mut header = [0; HEADER_LEN];
    let read = read_up_to(input, &mut header)?;
    if read == 0 {
        return Ok(None);
    }
    let mut cursor = Cursor::new(&header, endian);
    let numbers = (cursor.u32(), cursor.u16(), cursor.u16());
    let (Some(kind), Some(misc), Some(size)) = numbers else {
        return Err(ImportError::Damaged("a record is cut"));
    };
    let length = usize::from(size).checked_sub(HEADER_LEN);
    let length = length.filter(|_| read == HEADER_LEN);
    let mut body = vec![0; length.ok_or(ImportError::Damaged("a record is cut"))?];
    if read_up_to(input, &mut body)? < body.len() {
        return Err(ImportError::Damaged("a record is cut"));
    }
    Ok(Some((kind, misc, body)))
}

fn read_up_to(input: &mut dyn Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// The build IDs of a stream that is a file.
fn scan_build_ids(file: File, endian: Endianness) -> Result<Facts, ImportError> {
    let mut facts = Facts::default();
    let mut input = BufReader::with_capacity(READ_LEN, file);
    magic(&mut input)?;
    while let Ok(Some((kind, misc, body))) = next_record(&mut input, endian) {
        match kind {
            AUXTRACE => {
                let size = Cursor::new(&body, endian).u64().unwrap_or(0);
                io::copy(&mut (&mut input).take(size), &mut io::sink())?;
            }
            BUILD_ID => {
                facts.take_build_id(misc, &body, endian);
            }
            _ => {}
        }
    }
    Ok(facts)
}
