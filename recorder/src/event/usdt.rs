//! Static markers (`<sys/sdt.h>`): notes in which a file says where they are.

use object::Endianness;
use object::endian::Endian;

/// The note's type.
const MARKER: u32 = 3;

/// One place of a marker; a marker can have many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marker {
    /// Provider.
    pub(crate) provider: String,
    /// Name.
    pub(crate) name: String,
    /// Address that the file states.
    pub(crate) address: u64,
    /// Address of the counter that says whether somebody looks; 0: there is none.
    pub(crate) semaphore: u64,
}

/// All markers among `notes`. `word` is the size of an address, in bytes; `base` where `.stapsdt.base` really is: the
/// file was changed (prelink) by as much as that differs from what a note says.
pub(crate) fn markers(
    mut notes: &[u8],
    endian: Endianness,
    word: usize,
    base: Option<u64>,
) -> Vec<Marker> {
    let mut found = Vec::new();
    while let Some((note, rest)) = note(notes, endian) {
        if note.kind == MARKER && note.name == b"stapsdt\0" {
            found.extend(marker(note.desc, endian, word, base));
        }
        notes = rest;
    }
    found
}

/// One note.
struct Note<'a> {
    name: &'a [u8],
    kind: u32,
    desc: &'a [u8],
}

/// The first note, and what is behind it.
fn note(notes: &[u8], endian: Endianness) -> Option<(Note<'_>, &[u8])> {
    let number = |at: usize| Some(endian.read_u32(*notes.get(at..)?.first_chunk()?));
    let length = |at| usize::try_from(number(at)?).ok();
    let (name_len, desc_len) = (length(0)?, length(4)?);
    let name_room = name_len.checked_next_multiple_of(4)?;
    let (name, rest) = notes.get(12..)?.split_at_checked(name_room)?;
    let desc_room = desc_len.checked_next_multiple_of(4)?;
    let note = Note {
        name: name.get(..name_len)?,
        kind: number(8)?,
        desc: rest.get(..desc_len)?,
    };
    Some((note, rest.get(desc_room.min(rest.len())..)?))
}

fn marker(desc: &[u8], endian: Endianness, word: usize, base: Option<u64>) -> Option<Marker> {
    let address = |number: usize| {
        let bytes = desc.get(number * word..)?;
        Some(match word {
            4 => endian.read_u32(*bytes.first_chunk()?).into(),
            _ => endian.read_u64(*bytes.first_chunk()?),
        })
    };
    let (place, said_base, semaphore) = (address(0)?, address(1)?, address(2)?);
    let moved = base.map_or(0, |base| base.wrapping_sub(said_base));
    let mut texts = desc.get(3 * word..)?.split(|byte| *byte == 0);
    let mut text = || Some(String::from_utf8_lossy(texts.next()?).into_owned());
    Some(Marker {
        provider: text()?,
        name: text()?,
        address: place.wrapping_add(moved),
        semaphore: match semaphore {
            0 => 0,
            semaphore => semaphore.wrapping_add(moved),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut desc = Vec::new();
        for address in [0x1139u64, 0x2004, 0x4030] {
            desc.extend(address.to_ne_bytes());
        }
        desc.extend(b"app\0request\0-4@%eax\0");
        let mut notes = Vec::new();
        for number in [8, u32::try_from(desc.len()).unwrap(), MARKER] {
            notes.extend(number.to_ne_bytes());
        }
        notes.extend(b"stapsdt\0");
        notes.extend(&desc);
        notes.resize(notes.len().next_multiple_of(4), 0);
        notes
    }

    /// Check that all of a marker is read, moved by as much as its base.
    #[test]
    fn whole_note() {
        let endian = object::NativeEndian;
        let endian = if endian.is_big_endian() {
            Endianness::Big
        } else {
            Endianness::Little
        };
        let twice = [sample(), sample()].concat();
        let found = markers(&twice, endian, 8, Some(0x3004));
        assert_eq!(found.len(), 2);
        let wanted = Marker {
            provider: "app".to_owned(),
            name: "request".to_owned(),
            address: 0x2139,
            semaphore: 0x5030,
        };
        assert_eq!(found[1], wanted);
        assert_eq!(markers(&twice, endian, 8, None)[0].address, 0x1139);
    }

    /// Check that a note cut anywhere, or with lengths beyond it, ends the reading.
    #[test]
    fn cut_notes() {
        let notes = sample();
        for end in 0..notes.len() {
            markers(&notes[..end], Endianness::Little, 8, None);
        }
        let mut bad = notes.clone();
        bad[..4].fill(0xff);
        assert!(markers(&bad, Endianness::Little, 8, None).is_empty());
    }
}
