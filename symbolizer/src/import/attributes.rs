//! What was sampled: the attributes of perf's events, and which records are whose.

use std::num::NonZeroU64;

use byteorder::{BigEndian, LittleEndian};
use foldhash::HashMap;
use linux_perf_event_reader::{
    AttrFlags, Endianness, PerfEventAttr, PerfEventType, RawData, RecordIdParseInfo,
    RecordParseInfo, RecordType, SampleFormat, SamplingPolicy, SoftwareCounterType, get_record_id,
    get_record_identifier,
};
use rawstack_format::record::Event;

use super::bytes::Cursor;

/// Events that are read.
const MAX_EVENTS: usize = 4096;
/// Where `read_format` stands in an attribute.
const READ_FORMAT_AT: usize = 32;
/// `PERF_FORMAT_TOTAL_TIME_ENABLED`, `_TOTAL_TIME_RUNNING`, `_ID`, `_GROUP`, `_LOST`.
const READ_FORMATS: [u64; 5] = [1, 2, 4, 8, 16];

/// One event of perf.
#[derive(Clone, Debug)]
pub(super) struct Attribute {
    pub(super) attr: PerfEventAttr,
    /// `read_format` whole, with what the library does not know.
    read_format: u64,
    pub(super) name: String,
    pub(super) ids: Vec<u64>,
}

impl Attribute {
    /// Read one from the front of `bytes`, without name and IDs; gives also its length.
    pub(super) fn parse(bytes: &[u8], endian: Endianness) -> Option<(Self, usize)> {
        let (attr, length) = match endian {
            Endianness::LittleEndian => PerfEventAttr::parse::<_, LittleEndian>(bytes),
            Endianness::BigEndian => PerfEventAttr::parse::<_, BigEndian>(bytes),
        }
        .ok()?;
        let mut format = Cursor::new(bytes.get(READ_FORMAT_AT..)?, endian);
        let attribute = Self {
            read_format: format.u64()?,
            name: plain_name(&attr.type_),
            ids: Vec::new(),
            attr,
        };
        Some((attribute, usize::try_from(length).ok()?))
    }

    /// Whether its samples say where the program was.
    pub(super) fn has_addresses(&self) -> bool {
        let format = self.attr.sample_format;
        !self.is_dummy() && format.intersects(SampleFormat::IP | SampleFormat::CALLCHAIN)
    }

    /// Whether its records of mappings are to have build IDs.
    pub(super) fn has_build_ids(&self) -> bool {
        self.attr.flags.contains(AttrFlags::BUILD_ID)
    }

    /// It has no samples, and stands for mappings and names.
    pub(super) fn is_dummy(&self) -> bool {
        matches!(
            self.attr.type_,
            PerfEventType::Software(SoftwareCounterType::Dummy | SoftwareCounterType::BpfOutput)
        )
    }

    /// As the archive has it.
    pub(super) fn event(&self) -> Event {
        let is_clock = matches!(
            self.attr.type_,
            PerfEventType::Software(SoftwareCounterType::CpuClock | SoftwareCounterType::TaskClock)
        );
        let (period, frequency) = match self.attr.sampling_policy {
            SamplingPolicy::Period(period) => (period.get(), 0),
            SamplingPolicy::Frequency(frequency) => (0, frequency),
            SamplingPolicy::NoSampling => (0, 0),
        };
        let unit = match self.weight() {
            Weight::One => "samples",
            _ if is_clock => "ns",
            _ => "events",
        };
        Event {
            name: self.name.clone(),
            unit: unit.to_owned(),
            period,
            frequency,
        }
    }

    /// Where the weight of a sample comes from.
    pub(super) fn weight(&self) -> Weight {
        match self.attr.sampling_policy {
            _ if self.attr.sample_format.contains(SampleFormat::PERIOD) => Weight::Stated,
            SamplingPolicy::Period(period) => Weight::Fixed(period),
            _ => Weight::One,
        }
    }

    /// How its records are read. Counters beside a sample are cut out of it before.
    pub(super) fn parse_info(&self, endian: Endianness) -> RecordParseInfo {
        let mut info = RecordParseInfo::new(&self.attr, endian);
        info.sample_format.remove(SampleFormat::READ);
        info
    }

    /// A sample without the counters beside it (`:S`), which the library takes for what they are not; nothing where
    /// there are none.
    pub(super) fn without_counters(&self, body: &[u8], endian: Endianness) -> Option<Vec<u8>> {
        let format = self.attr.sample_format;
        if !format.contains(SampleFormat::READ) {
            return None;
        }
        let before = format
            & (SampleFormat::IDENTIFIER
                | SampleFormat::IP
                | SampleFormat::TID
                | SampleFormat::TIME
                | SampleFormat::ADDR
                | SampleFormat::ID
                | SampleFormat::STREAM_ID
                | SampleFormat::CPU
                | SampleFormat::PERIOD);
        let start = before.bits().count_ones() as usize * 8;
        let [enabled, running, id, group, lost] =
            READ_FORMATS.map(|bit| self.read_format & bit != 0);
        let times = usize::from(enabled) + usize::from(running);
        let value = 1 + usize::from(id) + usize::from(lost);
        let words = if group {
            let count = Cursor::new(body.get(start..)?, endian).u64()?;
            let count = usize::try_from(count).ok()?;
            count.checked_mul(value)?.checked_add(1 + times)?
        } else {
            value + times
        };
        let end = words.checked_mul(8)?.checked_add(start)?;
        Some([body.get(..start)?, body.get(end..)?].concat())
    }
}

/// The weight of a sample.
#[derive(Clone, Copy, Debug)]
pub(super) enum Weight {
    /// It says so.
    Stated,
    /// The same for all.
    Fixed(NonZeroU64),
    /// Not known: samples are counted.
    One,
}

/// The attributes and names of a section `EVENT_DESC`.
pub(super) fn described(section: &[u8], endian: Endianness) -> Option<Vec<Attribute>> {
    let mut cursor = Cursor::new(section, endian);
    let count = cursor.u32()? as usize;
    let size = cursor.u32()? as usize;
    let mut found = Vec::new();
    for _ in 0..count.min(MAX_EVENTS) {
        let (mut attribute, length) = Attribute::parse(cursor.take(size)?, endian)?;
        if length > size {
            return None;
        }
        let ids = cursor.u32()?;
        attribute.name = cursor.string()?;
        for _ in 0..ids {
            attribute.ids.push(cursor.u64()?);
        }
        found.push(attribute);
    }
    Some(found)
}

/// The attribute in a record `HEADER_ATTR`, behind which its IDs stand.
pub(super) fn announced(body: &[u8], endian: Endianness) -> Option<Attribute> {
    let (mut attribute, length) = Attribute::parse(body, endian)?;
    let mut cursor = Cursor::new(body.get(length..)?, endian);
    while let Some(id) = cursor.u64() {
        attribute.ids.push(id);
    }
    Some(attribute)
}

/// Which event a record is of.
#[derive(Debug)]
pub(super) struct Owners {
    ids: HashMap<u64, usize>,
    place: IdPlace,
}

#[derive(Debug)]
enum IdPlace {
    /// There is only one event.
    None,
    /// All events have it at this place.
    Same(RecordIdParseInfo),
    /// First in samples and, when told so, last in other records.
    Identifier(bool),
}

impl Owners {
    /// `None` where records cannot be told apart.
    pub(super) fn of(attributes: &[Attribute], infos: &[RecordParseInfo]) -> Option<Self> {
        let mut ids = HashMap::default();
        for (index, attribute) in attributes.iter().enumerate() {
            ids.extend(attribute.ids.iter().map(|&id| (id, index)));
        }
        let first = infos.first()?.id_parse_info;
        let has_identifier = |attribute: &Attribute| {
            let format = attribute.attr.sample_format;
            format.contains(SampleFormat::IDENTIFIER)
        };
        let all = |attribute: &Attribute| attribute.attr.flags.contains(AttrFlags::SAMPLE_ID_ALL);
        let place = if attributes.len() == 1 {
            IdPlace::None
        } else if infos.iter().all(|info| info.id_parse_info == first) {
            IdPlace::Same(first)
        } else if attributes.iter().all(has_identifier) {
            IdPlace::Identifier(attributes.iter().all(all))
        } else {
            return None;
        };
        Some(Self { ids, place })
    }

    /// The event of a record; the first where nothing says it.
    pub(super) fn find(&self, kind: RecordType, body: &[u8], endian: Endianness) -> usize {
        let data = RawData::Single(body);
        let id = match (&self.place, endian) {
            (IdPlace::None, _) => None,
            (IdPlace::Same(info), Endianness::LittleEndian) => {
                get_record_id::<LittleEndian>(kind, data, info)
            }
            (IdPlace::Same(info), Endianness::BigEndian) => {
                get_record_id::<BigEndian>(kind, data, info)
            }
            (IdPlace::Identifier(all), Endianness::LittleEndian) => {
                get_record_identifier::<LittleEndian>(kind, data, *all)
            }
            (IdPlace::Identifier(all), Endianness::BigEndian) => {
                get_record_identifier::<BigEndian>(kind, data, *all)
            }
        };
        id.and_then(|id| self.ids.get(&id)).copied().unwrap_or(0)
    }
}

/// Name of an event that has none in the file.
fn plain_name(kind: &PerfEventType) -> String {
    match kind {
        PerfEventType::Software(SoftwareCounterType::CpuClock) => "cpu-clock",
        PerfEventType::Software(SoftwareCounterType::TaskClock) => "task-clock",
        PerfEventType::Software(SoftwareCounterType::PageFaults) => "page-faults",
        PerfEventType::Software(SoftwareCounterType::ContextSwitches) => "context-switches",
        PerfEventType::Software(_) => "software",
        PerfEventType::Hardware(..) => "hardware",
        PerfEventType::Tracepoint(_) => "tracepoint",
        PerfEventType::HwCache(..) => "hardware-cache",
        PerfEventType::Breakpoint(..) => "breakpoint",
        PerfEventType::DynamicPmu(..) => "raw",
    }
    .to_owned()
}
