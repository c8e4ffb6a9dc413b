//! What an ELF file says of itself, as binutils reads it.

use std::collections::HashMap;
use std::path::Path;

use crate::programs::require;
use crate::run::Run;

/// One PT_LOAD segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it starts in the file, in bytes.
    pub offset: u64,
    /// Address that the file states for its first byte.
    pub address: u64,
    /// Bytes that it has in the file.
    pub file_size: u64,
    /// Whether it holds code.
    pub executable: bool,
}

/// Build ID, lower-case hexadecimal; fails where there is none.
pub fn build_id(file: &Path) -> String {
    require("readelf", "binutils");
    let notes = Run::new("readelf").arg("-nW").arg(file).success().stdout;
    notes
        .lines()
        .find_map(|line| Some(line.split_once("Build ID: ")?.1.trim()))
        .unwrap_or_else(|| panic!("{} has no build ID", file.display()))
        .to_owned()
}

/// The PT_LOAD segments, in the file's order.
pub fn segments(file: &Path) -> Vec<Segment> {
    require("readelf", "binutils");
    let headers = Run::new("readelf").arg("-lW").arg(file).success().stdout;
    headers
        .lines()
        .filter_map(|line| parse_load(line.trim()))
        .collect()
}

/// Addresses of the functions in the symbol table, by their names as linked. Names of local functions may repeat: then
/// it is the last one's.
pub fn symbols(file: &Path) -> HashMap<String, u64> {
    require("nm", "binutils");
    let list = Run::new("nm")
        .args(["--defined-only", "--"])
        .arg(file)
        .success()
        .stdout;
    let symbol = |line: &str| -> Option<(String, u64)> {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        words
            .next()
            .filter(|kind| ["t", "T", "w", "W", "i", "u", "V"].contains(kind))?;
        Some((words.next()?.to_owned(), address))
    };
    list.lines().filter_map(symbol).collect()
}

/// Address that stands in the file for the code at `offset`; `None` where no executable segment holds it.
pub fn address_of(segments: &[Segment], offset: u64) -> Option<u64> {
    segments
        .iter()
        .filter(|segment| segment.executable)
        .find_map(|segment| {
            let within = offset.checked_sub(segment.offset)?;
            (within < segment.file_size).then(|| segment.address + within)
        })
}

/// `LOAD 0x001000 0x0000000000401000 0x0000000000401000 0x0004e9 0x0004e9 R E 0x1000`
fn parse_load(line: &str) -> Option<Segment> {
    let words: Vec<&str> = line.strip_prefix("LOAD ")?.split_whitespace().collect();
    let number = |at: usize| u64::from_str_radix(words.get(at)?.strip_prefix("0x")?, 16).ok();
    Some(Segment {
        offset: number(0)?,
        address: number(1)?,
        file_size: number(3)?,
        // The flags stand between the sizes and the alignment, as one to three words.
        executable: words
            .get(5..words.len() - 1)?
            .iter()
            .any(|flags| flags.contains('E')),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a code segment and a data segment are read, and that only code has addresses.
    #[test]
    fn load_lines() {
        let code = parse_load(
            "LOAD  0x049aa0 0x0000000000249aa0 0x0000000000249aa0 0x0a4bd0 0x0a4bd0 R E 0x200000",
        );
        let data = parse_load(
            "LOAD  0x0ee670 0x00000000004ee670 0x00000000004ee670 0x007540 0x007540 RW  0x200000",
        );
        let segments: Vec<Segment> = [code, data].into_iter().flatten().collect();
        assert_eq!(
            segments
                .iter()
                .map(|segment| segment.executable)
                .collect::<Vec<_>>(),
            [true, false]
        );
        assert_eq!(address_of(&segments, 0x04_9ab0), Some(0x24_9ab0));
        assert_eq!(address_of(&segments, 0x0e_e680), None);
    }
}
