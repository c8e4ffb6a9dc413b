//! The head of a perf.data file: sections, facts of the host, build IDs. Every size is held against the file's.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use linux_perf_event_reader::Endianness;
use rawstack_format::id::BuildId;

use super::attributes::{Attribute, announced, described};
use super::bytes::{Cursor, text};
use super::{ImportError, Refusal};

/// Longest section that is read into memory, in bytes.
const MAX_SECTION: u64 = 64 << 20;
/// Least length of an attribute.
const MIN_ATTRIBUTE: u64 = 64;
/// Most event IDs of one event.
const MAX_IDS: u64 = 1 << 20;
/// Bits of `misc` that say whose a record is: 1 is the kernel.
const CPU_MODE: u16 = 7;
/// Bit of `misc`: the build ID says how long it is.
const BUILD_ID_SIZE: u16 = 1 << 15;

/// Features by number, as far as they are read here.
pub(super) mod feature {
    pub(in crate::import) const BUILD_ID: u32 = 2;
    pub(in crate::import) const HOSTNAME: u32 = 3;
    pub(in crate::import) const OS_RELEASE: u32 = 4;
    pub(in crate::import) const VERSION: u32 = 5;
    pub(in crate::import) const ARCH: u32 = 6;
    pub(in crate::import) const CPUS: u32 = 7;
    pub(in crate::import) const EVENT_DESC: u32 = 12;
    pub(in crate::import) const STAT: u32 = 19;
    pub(in crate::import) const CLOCK_DATA: u32 = 29;
    pub(in crate::import) const SIMPLEPERF: u32 = 128;
}

/// What the file says of the recording.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) hostname: Option<String>,
    pub(super) release: Option<String>,
    pub(super) perf_version: Option<String>,
    pub(super) arch: Option<String>,
    pub(super) cpus: Option<u32>,
    /// Wall clock and perf's clock at one instant, in nanoseconds.
    pub(super) clocks: Option<(u64, u64)>,
    /// Build IDs: path, whether of the kernel's, ID.
    pub(super) build_ids: Vec<(String, bool, BuildId)>,
    /// Events with their names.
    pub(super) described: Vec<Attribute>,
}

impl Facts {
    /// Take what a feature says; what is damaged in it is left out.
    pub(super) fn take(&mut self, number: u32, section: &[u8], endian: Endianness) {
        let mut cursor = Cursor::new(section, endian);
        match number {
            feature::HOSTNAME => self.hostname = cursor.string(),
            feature::OS_RELEASE => self.release = cursor.string(),
            feature::VERSION => self.perf_version = cursor.string(),
            feature::ARCH => self.arch = cursor.string(),
            feature::CPUS => self.cpus = cursor.take(4).and_then(|_| cursor.u32()),
            feature::EVENT_DESC => self.described = described(section, endian).unwrap_or_default(),
            feature::CLOCK_DATA => {
                // Version, clock.
                self.clocks = cursor
                    .take(8)
                    .and_then(|_| Some((cursor.u64()?, cursor.u64()?)));
            }
            feature::BUILD_ID => {
                let mut next = || {
                    cursor.take(4)?;
                    let (misc, size) = (cursor.u16()?, cursor.u16()?);
                    Some((misc, cursor.take(usize::from(size).checked_sub(8)?)?))
                };
                while let Some((misc, body)) = next() {
                    self.take_build_id(misc, body, endian);
                }
            }
            _ => {}
        }
    }

    /// Take a record that says a file's build ID.
    pub(super) fn take_build_id(&mut self, misc: u16, body: &[u8], endian: Endianness) {
        let mut cursor = Cursor::new(body, endian);
        let mut parse = || {
            // Process.
            cursor.take(4)?;
            let id = cursor.take(24)?;
            // Older perfs do not say the length: zeros at the end are none of it.
            let length = if misc & BUILD_ID_SIZE != 0 {
                usize::from(id[20]).min(20)
            } else {
                let words = id[..20]
                    .chunks(4)
                    .rposition(|word| word.iter().any(|&byte| byte != 0));
                words.map_or(0, |last| (last + 1) * 4)
            };
            let build_id = BuildId::new(&id[..length])?;
            Some((text(cursor.rest()), misc & CPU_MODE == 1, build_id))
        };
        self.build_ids.extend(parse());
    }

    /// Build ID of the file at `path`; of the kernel by any of its names.
    pub(super) fn build_id(&self, path: &str, kernel: bool) -> Option<&BuildId> {
        let mut rows = self.build_ids.iter();
        let found = rows.find(|(held, of_kernel, _)| held == path && *of_kernel == kernel);
        found.map(|(_, _, build_id)| build_id)
    }

    /// Build ID of the kernel itself.
    pub(super) fn kernel_build_id(&self) -> Option<&BuildId> {
        let is_kernel = |path: &str| {
            path.starts_with("[kernel.kallsyms]")
                || path
                    .rsplit('/')
                    .next()
                    .is_some_and(|name| name.starts_with("vmlinux"))
                || path.contains("[kernel.vmlinux]")
        };
        let mut rows = self.build_ids.iter();
        let found = rows.find(|(path, of_kernel, _)| *of_kernel && is_kernel(path));
        found.map(|(_, _, build_id)| build_id)
    }
}

/// The head of a file that is no stream.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) facts: Facts,
    pub(super) attributes: Vec<Attribute>,
    /// Length of the records; 0 where perf was killed before it knew.
    pub(super) data_len: u64,
}

struct Sections<'f> {
    file: &'f mut File,
    len: u64,
    endian: Endianness,
}

#[derive(Clone, Copy)]
struct Section {
    offset: u64,
    size: u64,
}

/// Read the head of `file`, and go to its first record. The magic was read.
pub(super) fn read(file: &mut File, endian: Endianness) -> Result<Head, ImportError> {
    let len = file.metadata()?.len();
    let mut sections = Sections { file, len, endian };
    let head = sections.read(Section {
        offset: 0,
        size: 104,
    })?;
    let mut cursor = Cursor::new(&head, endian);
    cursor.take(16);
    let mut number = || cursor.u64().unwrap_or(0);
    let attr_size = number();
    let mut section = || Section {
        offset: number(),
        size: number(),
    };
    let (attrs, data) = (section(), section());
    section();
    let features: Vec<u64> = (0..4).map(|_| number()).collect();
    let (facts, mut attributes) = (
        sections.facts(data, &features)?,
        sections.attributes(attrs, attr_size)?,
    );
    for attribute in &mut attributes {
        let same = |other: &&Attribute| {
            other.ids.first() == attribute.ids.first() && !other.ids.is_empty()
        };
        if let Some(described) = facts.described.iter().find(same) {
            attribute.name.clone_from(&described.name);
        }
    }
    if facts.described.len() == attributes.len() {
        for (attribute, described) in attributes.iter_mut().zip(&facts.described) {
            attribute.name.clone_from(&described.name);
        }
    }
    sections.file.seek(SeekFrom::Start(data.offset))?;
    Ok(Head {
        facts,
        attributes,
        data_len: data.size,
    })
}

impl Sections<'_> {
    fn read(&mut self, section: Section) -> Result<Vec<u8>, ImportError> {
        let end = section.offset.checked_add(section.size);
        if end.is_none_or(|end| end > self.len) || section.size > MAX_SECTION {
            return Err(ImportError::Damaged("a section lies beyond the file's end"));
        }
        let size = usize::try_from(section.size).unwrap_or(0);
        let mut bytes = vec![0; size];
        self.file.seek(SeekFrom::Start(section.offset))?;
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// What the features say: their places stand behind the records.
    fn facts(&mut self, data: Section, features: &[u64]) -> Result<Facts, ImportError> {
        let has = |number: u32| {
            let word = features.get(number as usize / 64);
            word.is_some_and(|word| word >> (number % 64) & 1 != 0)
        };
        if has(feature::SIMPLEPERF) {
            return Err(Refusal::Simpleperf.into());
        }
        if has(feature::STAT) {
            return Err(Refusal::Counts.into());
        }
        let mut facts = Facts::default();
        let all: Vec<u32> = (0..256).filter(|&number| has(number)).collect();
        if data.size == 0 {
            return Ok(facts);
        }
        let table = Section {
            offset: data.offset.saturating_add(data.size),
            size: all.len() as u64 * 16,
        };
        // A file that was cut has records and no features.
        let Ok(table) = self.read(table) else {
            return Ok(facts);
        };
        let mut cursor = Cursor::new(&table, self.endian);
        for number in all {
            let section = cursor.u64().zip(cursor.u64());
            let Some((offset, size)) = section else { break };
            let wanted = [
                feature::BUILD_ID,
                feature::HOSTNAME,
                feature::OS_RELEASE,
                feature::VERSION,
                feature::ARCH,
                feature::CPUS,
                feature::EVENT_DESC,
                feature::CLOCK_DATA,
            ];
            if wanted.contains(&number)
                && let Ok(bytes) = self.read(Section { offset, size })
            {
                facts.take(number, &bytes, self.endian);
            }
        }
        Ok(facts)
    }

    /// The attributes, each with the place of its IDs behind it.
    fn attributes(&mut self, section: Section, entry: u64) -> Result<Vec<Attribute>, ImportError> {
        if entry < MIN_ATTRIBUTE + 16 {
            return Err(ImportError::Damaged("its attributes are too short"));
        }
        let bytes = self.read(section)?;
        let mut attributes = Vec::new();
        let size = usize::try_from(entry).unwrap_or(usize::MAX);
        for entry in bytes.chunks_exact(size) {
            let (mut attribute, length) = Attribute::parse(entry, self.endian)
                .ok_or(ImportError::Damaged("an event is not known or damaged"))?;
            let mut place = Cursor::new(entry.get(length..).unwrap_or_default(), self.endian);
            if let Some((offset, size)) = place.u64().zip(place.u64())
                && size <= MAX_IDS * 8
            {
                let ids = self.read(Section { offset, size })?;
                let mut ids = Cursor::new(&ids, self.endian);
                while let Some(id) = ids.u64() {
                    attribute.ids.push(id);
                }
            }
            attributes.push(attribute);
        }
        Ok(attributes)
    }
}

/// Take a record of a stream that says what the head of a file would have said; `false` for others.
pub(super) fn take_announcement(
    kind: u32,
    body: &[u8],
    (facts, attributes): (&mut Facts, &mut Vec<Attribute>),
    endian: Endianness,
) -> bool {
    match kind {
        super::HEADER_ATTR => attributes.extend(announced(body, endian)),
        super::HEADER_FEATURE => {
            let mut cursor = Cursor::new(body, endian);
            if let Some(number) = cursor.u64().and_then(|number| u32::try_from(number).ok()) {
                facts.take(number, cursor.rest(), endian);
            }
        }
        _ => return false,
    }
    true
}
