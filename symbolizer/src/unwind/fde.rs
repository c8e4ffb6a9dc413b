//! Tables of call frame information in a file: address → row. Knows no registers and no processes.
//!
//! `.eh_frame_hdr` is searched where it is there and laid out as linkers lay it out; else an index is made of all entries
//! once. Entries beyond [`MAX_ENTRY`] are refused, so that no row takes long.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::OnceLock;

use gimli::{
    BaseAddresses, CieOrFde, CommonInformationEntry, DebugFrame, EhFrame, Encoding, EndianSlice,
    LittleEndian, Register, UnwindContext, UnwindOffset, UnwindSection, UnwindTableRow, Vendor,
};

use crate::debug_file::elf::ElfFile;
use crate::debug_file::section::{self, Section};

/// Bytes that a CIE or an FDE may have: real ones have a few hundred, generated code some thousand.
const MAX_ENTRY: u64 = 1 << 16;
/// Functions that an index holds at most.
const MAX_FUNCTIONS: usize = 1 << 22;
/// The layout that all linkers write: count as 4 bytes, table of signed 4 bytes that count from the section's address.
const COUNT_AND_TABLE: [u8; 2] = [0x03, 0x3b];
/// `eh_frame_ptr` as a signed 4-byte distance from itself.
const FROM_ITSELF: u8 = 0x1b;

/// Bytes of one file.
type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Cie<'a> = CommonInformationEntry<Slice<'a>>;

/// Where a table's bytes are.
#[derive(Debug)]
enum Bytes {
    InFile(Range<u64>),
    Owned(Vec<u8>),
}

impl Bytes {
    fn of(file: &ElfFile, found: &Section) -> Option<Self> {
        match section::content(file, found).ok()? {
            Cow::Borrowed([]) => None,
            Cow::Borrowed(_) => Some(Self::InFile(
                found.offset..found.offset.checked_add(found.size)?,
            )),
            Cow::Owned(plain) => Some(Self::Owned(plain)),
        }
    }

    fn get<'a>(&'a self, file: &'a ElfFile) -> &'a [u8] {
        match self {
            Self::InFile(range) => {
                let found = file.range(range.start, range.end.saturating_sub(range.start));
                found.unwrap_or_default()
            }
            Self::Owned(plain) => plain,
        }
    }
}

/// A function of an index.
#[derive(Clone, Copy, Debug)]
struct Function {
    start: u64,
    length: u32,
    entry: u32,
}

/// One section of call frame information.
#[derive(Debug)]
pub(super) struct FrameTable {
    /// Number of the file among the module's.
    pub(super) file: usize,
    bytes: Bytes,
    svma: u64,
    is_debug: bool,
    header: Option<(Bytes, u64)>,
    bases: BaseAddresses,
    vendor: Vendor,
    index: OnceLock<Vec<Function>>,
}

/// The row for an address.
#[derive(Debug)]
pub(super) struct FoundRow<'r> {
    /// Rules.
    pub(super) row: &'r UnwindTableRow<usize>,
    /// The section that expressions lie in.
    pub(super) section: &'r [u8],
    /// How expressions are encoded.
    pub(super) encoding: Encoding,
    /// Column of the return address.
    pub(super) return_address: Register,
    /// Whether the caller was interrupted rather than has called.
    pub(super) is_signal: bool,
}

/// The table is damaged at this address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Damaged;

impl FrameTable {
    /// The tables of file number `number`, those that are surest first.
    pub(super) fn all(number: usize, file: &ElfFile) -> Vec<Self> {
        // Both machines are read as little-endian ones with addresses of 8 bytes.
        if file.big_endian || file.class != 64 {
            return Vec::new();
        }
        let loaded = Self::loaded(number, file).or_else(|| Self::by_segment(number, file));
        let debug = file
            .section(".debug_frame")
            .or_else(|| file.section(".zdebug_frame"));
        let debug = debug.and_then(|found| {
            let bytes = Bytes::of(file, found)?;
            Some(Self::new(number, file, bytes, 0, true))
        });
        loaded.into_iter().chain(debug).collect()
    }

    fn new(number: usize, file: &ElfFile, bytes: Bytes, svma: u64, is_debug: bool) -> Self {
        let address = |name: &str| file.section(name).map_or(0, |section| section.svma);
        let vendor = match file.machine {
            183 => Vendor::AArch64,
            _ => Vendor::Default,
        };
        Self {
            file: number,
            bytes,
            svma,
            is_debug,
            header: None,
            bases: BaseAddresses::default()
                .set_eh_frame(svma)
                .set_text(address(".text"))
                .set_got(address(".got")),
            vendor,
            index: OnceLock::new(),
        }
    }

    fn loaded(number: usize, file: &ElfFile) -> Option<Self> {
        let found = file.section(".eh_frame")?;
        let bytes = Bytes::of(file, found)?;
        let header = file.section(".eh_frame_hdr");
        let header = header.and_then(|found| Some((Bytes::of(file, found)?, found.svma)));
        Some(Self {
            header,
            ..Self::new(number, file, bytes, found.svma, false)
        })
    }

    /// By the program header, where a file has no section headers.
    fn by_segment(number: usize, file: &ElfFile) -> Option<Self> {
        let segment = file.frame_header.filter(|_| file.sections.is_empty())?;
        let end = segment.offset.0.checked_add(segment.file_size)?;
        let header = Bytes::InFile(segment.offset.0..end);
        let &[_, encoding, _, _, ref rest @ ..] = header.get(file) else {
            return None;
        };
        let distance = i32::from_le_bytes(*rest.first_chunk::<4>()?);
        let place = segment.vaddr.checked_add(4)?;
        let svma = place
            .checked_add_signed(distance.into())
            .filter(|_| encoding == FROM_ITSELF)?;
        let load = file.segments.iter().find(|load| {
            let within = svma.checked_sub(load.vaddr);
            within.is_some_and(|within| within < load.file_size)
        })?;
        let start = load.offset.0.checked_add(svma - load.vaddr)?;
        let bytes = Bytes::InFile(start..load.offset.0.checked_add(load.file_size)?);
        Some(Self {
            header: Some((header, segment.vaddr)),
            ..Self::new(number, file, bytes, svma, false)
        })
    }

    /// Give `take` the row for `svma`, where there is one.
    pub(super) fn row<T>(
        &self,
        file: &ElfFile,
        svma: u64,
        context: &mut UnwindContext<usize>,
        take: impl FnOnce(FoundRow<'_>) -> T,
    ) -> Result<Option<T>, Damaged> {
        let bytes = self.bytes.get(file);
        let slice = EndianSlice::new(bytes, LittleEndian);
        if self.is_debug {
            let mut table = DebugFrame::from(slice);
            table.set_address_size(8);
            table.set_vendor(self.vendor);
            self.row_of(&table, (bytes, file), svma, context, take)
        } else {
            let mut table = EhFrame::from(slice);
            table.set_address_size(8);
            table.set_vendor(self.vendor);
            self.row_of(&table, (bytes, file), svma, context, take)
        }
    }

    fn row_of<'a, S, T>(
        &self,
        table: &S,
        (bytes, file): (&'a [u8], &ElfFile),
        svma: u64,
        context: &mut UnwindContext<usize>,
        take: impl FnOnce(FoundRow<'_>) -> T,
    ) -> Result<Option<T>, Damaged>
    where
        S: UnwindSection<Slice<'a>>,
        S::Offset: UnwindOffset<usize>,
    {
        let offset = match self.by_header(file, svma) {
            Some(found) => found,
            None => self.by_index(table, bytes, svma),
        };
        let Some(offset) = offset else {
            return Ok(None);
        };
        if !is_short(bytes, offset) {
            return Err(Damaged);
        }
        let cie = |table: &S, bases: &BaseAddresses, at| short_cie(table, bytes, bases, at);
        let fde = table.fde_from_offset(&self.bases, offset.into(), cie);
        let fde = fde.map_err(|_| Damaged)?;
        if !fde.contains(svma) {
            return Ok(None);
        }
        let (encoding, return_address) =
            (fde.cie().encoding(), fde.cie().return_address_register());
        let is_signal = fde.is_signal_trampoline();
        let row = fde
            .unwind_info_for_address(table, &self.bases, context, svma)
            .map_err(|_| Damaged)?;
        Ok(Some(take(FoundRow {
            row,
            section: bytes,
            encoding,
            return_address,
            is_signal,
        })))
    }

    /// The entry that the sorted table of `.eh_frame_hdr` names for `svma`; nothing where there is no such table.
    fn by_header(&self, file: &ElfFile, svma: u64) -> Option<Option<usize>> {
        let (bytes, base) = self.header.as_ref()?;
        let &[1, _, count_as, table_as, ref rest @ ..] = bytes.get(file) else {
            return None;
        };
        if [count_as, table_as] != COUNT_AND_TABLE {
            return None;
        }
        let count = u32::from_le_bytes(*rest.get(4..)?.first_chunk::<4>()?);
        let (rows, _) = rest.get(8..)?.as_chunks::<8>();
        let rows = rows.get(..usize::try_from(count).ok()?)?;
        if rows.is_empty() {
            return None;
        }
        let at = |number: i32| base.wrapping_add_signed(number.into());
        let split = |&[a, b, c, d, e, f, g, h]: &[u8; 8]| {
            let start = i32::from_le_bytes([a, b, c, d]);
            (at(start), at(i32::from_le_bytes([e, f, g, h])))
        };
        let after = rows.partition_point(|row| split(row).0 <= svma);
        let row = after.checked_sub(1).and_then(|last| rows.get(last));
        let entry = row.and_then(|row| split(row).1.checked_sub(self.svma));
        Some(entry.and_then(|entry| usize::try_from(entry).ok()))
    }

    fn by_index<'a, S>(&self, table: &S, bytes: &'a [u8], svma: u64) -> Option<usize>
    where
        S: UnwindSection<Slice<'a>>,
        S::Offset: UnwindOffset<usize>,
    {
        let index = self.index.get_or_init(|| index(table, bytes, &self.bases));
        let after = index.partition_point(|function| function.start <= svma);
        let function = index.get(after.checked_sub(1)?)?;
        (svma - function.start < function.length.into()).then_some(function.entry as usize)
    }
}

/// Whether the entry at `offset` is not longer than is read.
fn is_short(section: &[u8], offset: usize) -> bool {
    let Some(head) = section
        .get(offset..)
        .and_then(|rest| rest.first_chunk::<4>())
    else {
        return false;
    };
    u64::from(u32::from_le_bytes(*head)) <= MAX_ENTRY
}

/// The CIE at `at`, if it is not longer than is read.
fn short_cie<'a, S>(
    table: &S,
    bytes: &'a [u8],
    bases: &BaseAddresses,
    at: S::Offset,
) -> gimli::Result<Cie<'a>>
where
    S: UnwindSection<Slice<'a>>,
    S::Offset: UnwindOffset<usize>,
{
    if is_short(bytes, UnwindOffset::into(at)) {
        table.cie_from_offset(bases, at)
    } else {
        Err(gimli::Error::UnsupportedOffset)
    }
}

/// All functions of a table, by address; a damaged table ends early.
fn index<'a, S>(table: &S, bytes: &'a [u8], bases: &BaseAddresses) -> Vec<Function>
where
    S: UnwindSection<Slice<'a>>,
    S::Offset: UnwindOffset<usize>,
{
    let mut functions = Vec::new();
    let mut last: Option<(usize, Cie<'a>)> = None;
    let mut entries = table.entries(bases);
    while let Ok(Some(entry)) = entries.next()
        && functions.len() < MAX_FUNCTIONS
    {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let row = partial.parse(|table: &S, bases, at| {
            let place: usize = UnwindOffset::into(at);
            if let Some((held, cie)) = &last
                && *held == place
            {
                return Ok(cie.clone());
            }
            let cie = short_cie(table, bytes, bases, at)?;
            last = Some((place, cie.clone()));
            Ok(cie)
        });
        let Ok(row) = row else { continue };
        // What the linker left out of the program stays here, at address 0.
        if let Ok(entry) = u32::try_from(row.offset())
            && row.initial_address() != 0
            && row.len() > 0
        {
            functions.push(Function {
                start: row.initial_address(),
                length: u32::try_from(row.len()).unwrap_or(u32::MAX),
                entry,
            });
        }
    }
    functions.sort_by_key(|function| function.start);
    functions
}
