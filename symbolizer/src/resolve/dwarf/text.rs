//! Names in the string sections, cut where they are endless: a name of megabytes must not be gone through for each of
//! the entries that share it.

use std::ffi::CStr;

use gimli::{AttributeValue, Dwarf, Section, Unit};

use super::Slice;

/// Longest text that is read, in bytes.
const MAX_TEXT: usize = 1 << 16;

/// The text that a value stands for.
pub(super) fn text<'a>(
    dwarf: &Dwarf<Slice<'a>>,
    unit: &Unit<Slice<'a>>,
    value: AttributeValue<Slice<'a>>,
) -> Option<&'a [u8]> {
    match value {
        AttributeValue::DebugStrRef(offset) => at(dwarf.debug_str.reader(), offset.0),
        AttributeValue::DebugLineStrRef(offset) => at(dwarf.debug_line_str.reader(), offset.0),
        AttributeValue::DebugStrOffsetsIndex(index) => {
            let offset = dwarf.string_offset(unit, index).ok()?;
            at(dwarf.debug_str.reader(), offset.0)
        }
        AttributeValue::DebugStrRefSup(offset) => at(dwarf.sup()?.debug_str.reader(), offset.0),
        value => dwarf
            .attr_string(unit, value)
            .ok()
            .map(|text| cut(text.slice())),
    }
}

/// The text at `offset` of a section.
fn at<'a>(section: &Slice<'a>, offset: usize) -> Option<&'a [u8]> {
    let rest = section.slice().get(offset..)?;
    let window = cut(rest);
    match CStr::from_bytes_until_nul(window) {
        Ok(text) => Some(text.to_bytes()),
        // Text without an end is damage, unless the end is only too far away.
        Err(_) => (window.len() < rest.len()).then_some(window),
    }
}

fn cut(text: &[u8]) -> &[u8] {
    text.get(..MAX_TEXT).unwrap_or(text)
}
