//! A place in bytes of debug information: numbers are read, everything else is stepped over. Knows no entries.

use gimli::{DwForm, Encoding, RunTimeEndian, constants};

/// A place in bytes. Every step gives nothing where the bytes end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'a> {
    bytes: &'a [u8],
    at: usize,
    big_endian: bool,
}

/// How the bytes of an attribute are stepped over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// So many bytes.
    Fixed(u32),
    /// A LEB128 number.
    Leb,
    /// A length of so many bytes, then that many bytes.
    Block(u8),
    /// A length as LEB128, then that many bytes.
    LebBlock,
    /// Text up to and with its NUL.
    Text,
    /// The form stands in the entry itself.
    Indirect,
}

/// Forms that lie within each other by `DW_FORM_indirect`: more is nonsense.
const MAX_INDIRECT: usize = 4;

impl Step {
    /// The step over a value of `form`; nothing for a form that is not known.
    pub(super) fn of(form: DwForm, encoding: Encoding) -> Option<Self> {
        let word = u32::from(encoding.format.word_size());
        let address = u32::from(encoding.address_size);
        Some(match form {
            constants::DW_FORM_flag_present | constants::DW_FORM_implicit_const => Self::Fixed(0),
            constants::DW_FORM_data1
            | constants::DW_FORM_flag
            | constants::DW_FORM_ref1
            | constants::DW_FORM_strx1
            | constants::DW_FORM_addrx1 => Self::Fixed(1),
            constants::DW_FORM_data2
            | constants::DW_FORM_ref2
            | constants::DW_FORM_strx2
            | constants::DW_FORM_addrx2 => Self::Fixed(2),
            constants::DW_FORM_strx3 | constants::DW_FORM_addrx3 => Self::Fixed(3),
            constants::DW_FORM_data4
            | constants::DW_FORM_ref4
            | constants::DW_FORM_ref_sup4
            | constants::DW_FORM_strx4
            | constants::DW_FORM_addrx4 => Self::Fixed(4),
            constants::DW_FORM_data8
            | constants::DW_FORM_ref8
            | constants::DW_FORM_ref_sig8
            | constants::DW_FORM_ref_sup8 => Self::Fixed(8),
            constants::DW_FORM_data16 => Self::Fixed(16),
            constants::DW_FORM_addr => Self::Fixed(address),
            constants::DW_FORM_ref_addr if encoding.version <= 2 => Self::Fixed(address),
            constants::DW_FORM_ref_addr
            | constants::DW_FORM_sec_offset
            | constants::DW_FORM_strp
            | constants::DW_FORM_line_strp
            | constants::DW_FORM_strp_sup
            | constants::DW_FORM_GNU_ref_alt
            | constants::DW_FORM_GNU_strp_alt => Self::Fixed(word),
            constants::DW_FORM_udata
            | constants::DW_FORM_sdata
            | constants::DW_FORM_ref_udata
            | constants::DW_FORM_strx
            | constants::DW_FORM_addrx
            | constants::DW_FORM_loclistx
            | constants::DW_FORM_rnglistx
            | constants::DW_FORM_GNU_addr_index
            | constants::DW_FORM_GNU_str_index => Self::Leb,
            constants::DW_FORM_block1 => Self::Block(1),
            constants::DW_FORM_block2 => Self::Block(2),
            constants::DW_FORM_block4 => Self::Block(4),
            constants::DW_FORM_block | constants::DW_FORM_exprloc => Self::LebBlock,
            constants::DW_FORM_string => Self::Text,
            constants::DW_FORM_indirect => Self::Indirect,
            _ => return None,
        })
    }
}

impl<'a> Bytes<'a> {
    /// The start of `bytes`.
    pub(super) fn new(bytes: &'a [u8], endian: RunTimeEndian) -> Self {
        Self {
            bytes,
            at: 0,
            big_endian: endian == RunTimeEndian::Big,
        }
    }

    /// Bytes behind the start.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// Whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Go to `position`, at most to the end.
    pub(super) fn seek(&mut self, position: usize) {
        self.at = position.min(self.bytes.len());
    }

    /// One byte.
    #[inline(always)]
    pub(super) fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    /// Step over `count` bytes.
    #[inline(always)]
    pub(super) fn skip(&mut self, count: usize) -> Option<()> {
        let next = self.at.checked_add(count)?;
        (next <= self.bytes.len()).then_some(())?;
        self.at = next;
        Some(())
    }

    /// A number of `size` bytes, 8 at most.
    #[inline(always)]
    pub(super) fn number(&mut self, size: usize) -> Option<u64> {
        let start = self.at;
        self.skip(size)?;
        let part = self.bytes.get(start..self.at)?;
        let mut wide = [0u8; 8];
        if self.big_endian {
            wide.get_mut(8usize.checked_sub(size)?..)?
                .copy_from_slice(part);
            Some(u64::from_be_bytes(wide))
        } else {
            wide.get_mut(..size)?.copy_from_slice(part);
            Some(u64::from_le_bytes(wide))
        }
    }

    /// An unsigned LEB128 number; what does not fit into 64 bits is cut.
    #[inline(always)]
    pub(super) fn uleb(&mut self) -> Option<u64> {
        let first = self.byte()?;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        let mut shift = 7;
        loop {
            let byte = self.byte()?;
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            }
            if byte < 0x80 {
                return Some(value);
            }
            shift = (shift + 7).min(64);
        }
    }

    /// A signed LEB128 number; what does not fit into 64 bits is cut.
    #[inline(always)]
    pub(super) fn sleb(&mut self) -> Option<i64> {
        let mut value = 0u64;
        let mut shift = 0;
        loop {
            let byte = self.byte()?;
            if shift < 64 {
                value |= u64::from(byte & 0x7f) << shift;
            }
            shift = (shift + 7).min(64);
            if byte < 0x80 {
                if shift < 64 && byte & 0x40 != 0 {
                    value |= u64::MAX << shift;
                }
                return Some(value.cast_signed());
            }
        }
    }

    /// Step over one value.
    #[inline(always)]
    pub(super) fn step(&mut self, step: Step, encoding: Encoding) -> Option<()> {
        let step = match step {
            Step::Fixed(count) => return self.skip(count as usize),
            Step::Indirect => Step::of(self.indirect_form()?, encoding)?,
            other => other,
        };
        let length = match step {
            Step::Fixed(count) => u64::from(count),
            Step::Leb => {
                while self.byte()? >= 0x80 {}
                0
            }
            Step::Block(width) => self.number(usize::from(width))?,
            Step::LebBlock => self.uleb()?,
            Step::Text => self.text().map(|_| 0)?,
            Step::Indirect => return None,
        };
        self.skip(usize::try_from(length).ok()?)
    }

    /// The form that `DW_FORM_indirect` stands for.
    pub(super) fn indirect_form(&mut self) -> Option<DwForm> {
        for _ in 0..MAX_INDIRECT {
            let form = DwForm(u16::try_from(self.uleb()?).ok()?);
            if form != constants::DW_FORM_indirect {
                return Some(form);
            }
        }
        None
    }

    /// Text that ends with a NUL, without it.
    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let length = rest.iter().position(|&byte| byte == 0)?;
        self.at += length + 1;
        rest.get(..length)
    }
}
