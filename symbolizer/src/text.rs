//! Text that came from elsewhere, made safe to show; and a table of distinct strings.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// Longest text that is kept, in bytes. The longest C++ names of real programs have some ten thousand.
const MAX_LENGTH: usize = 1 << 16;

/// Whether `c` could act on a terminal or change the order in which text is read.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

/// `text` without characters that act instead of being shown: each stands as its code, `\u{1b}`; cut where endless.
pub fn clean(text: &str) -> Cow<'_, str> {
    let fits = text.len() <= MAX_LENGTH;
    // Nearly all names are printable ASCII, which is quick to see.
    let plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if fits && (plain || !text.chars().any(is_unsafe)) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::new();
    for c in text.chars() {
        if safe.len() >= MAX_LENGTH {
            safe.push('…');
            break;
        }
        if is_unsafe(c) {
            // Writing to a String cannot fail.
            let _ = write!(safe, "\\u{{{:x}}}", u32::from(c));
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// How long a line may be: what a terminal shows, or without end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Columns(pub Option<usize>);

impl Columns {
    /// `line`, cut where it would not fit; its last character says so.
    pub fn fit(self, line: &str) -> Cow<'_, str> {
        let Some(columns) = self.0 else {
            return Cow::Borrowed(line);
        };
        let mut starts = line.char_indices().map(|(start, _)| start);
        let Some(last) = starts.nth(columns.saturating_sub(1)) else {
            return Cow::Borrowed(line);
        };
        match (starts.next(), line.get(..last)) {
            (Some(_), Some(kept)) => Cow::Owned(format!("{kept}…")),
            _ => Cow::Borrowed(line),
        }
    }
}

/// As [`clean`], for bytes that need not be UTF-8.
pub fn clean_bytes(bytes: &[u8]) -> String {
    let cut = bytes.get(..4 * MAX_LENGTH).unwrap_or(bytes);
    let text = String::from_utf8_lossy(cut);
    clean(&text).into_owned()
}

/// Index of a string in a [`StringTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StringId(pub u32);

impl StringId {
    /// No string.
    pub const NONE: Self = Self(u32::MAX);

    /// The ID, or nothing for [`NONE`](Self::NONE).
    pub fn get(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }
}

impl Default for StringId {
    fn default() -> Self {
        Self::NONE
    }
}

/// Distinct byte strings in the order in which they came.
#[derive(Default)]
pub struct ByteTable {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    index: HashTable<u32>,
    hasher: FixedState,
}

impl ByteTable {
    /// The ID of `value`, new where it is not known yet. A table that is full (4 billion) answers `NONE`.
    pub fn intern(&mut self, value: &[u8]) -> StringId {
        let Self {
            bytes,
            ends,
            index,
            hasher,
        } = self;
        let hash = hasher.hash_one(value);
        if let Some(&found) = index.find(hash, |&id| slot(bytes, ends, id) == value) {
            return StringId(found);
        }
        let Some(id) = u32::try_from(ends.len()).ok().filter(|&id| id != u32::MAX) else {
            return StringId::NONE;
        };
        bytes.extend_from_slice(value);
        ends.push(bytes.len());
        index.insert_unique(hash, id, |&id| hasher.hash_one(slot(bytes, ends, id)));
        StringId(id)
    }

    /// The bytes of `id`, empty for `NONE`.
    pub fn get(&self, id: StringId) -> &[u8] {
        if id == StringId::NONE {
            &[]
        } else {
            slot(&self.bytes, &self.ends, id.0)
        }
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of all strings.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

impl fmt::Debug for ByteTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ByteTable({} strings)", self.len())
    }
}

fn slot<'a>(bytes: &'a [u8], ends: &[usize], id: u32) -> &'a [u8] {
    let (start, end) = span(ends, id);
    bytes.get(start..end).unwrap_or_default()
}

/// Distinct strings, made safe to show.
#[derive(Default)]
pub struct StringTable {
    text: String,
    ends: Vec<usize>,
    index: HashTable<u32>,
    hasher: FixedState,
}

impl StringTable {
    /// The ID of `text`, cleaned. A table that is full (4 billion) answers `NONE`.
    pub fn intern(&mut self, text: &str) -> StringId {
        let value = clean(text);
        let Self {
            text,
            ends,
            index,
            hasher,
        } = self;
        let hash = hasher.hash_one(&*value);
        if let Some(&found) = index.find(hash, |&id| part(text, ends, id) == value) {
            return StringId(found);
        }
        let Some(id) = u32::try_from(ends.len()).ok().filter(|&id| id != u32::MAX) else {
            return StringId::NONE;
        };
        text.push_str(&value);
        ends.push(text.len());
        index.insert_unique(hash, id, |&id| hasher.hash_one(part(text, ends, id)));
        StringId(id)
    }

    /// The string of `id`, empty for `NONE`.
    pub fn get(&self, id: StringId) -> &str {
        if id == StringId::NONE {
            ""
        } else {
            part(&self.text, &self.ends, id.0)
        }
    }

    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

impl fmt::Debug for StringTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StringTable({} strings)", self.len())
    }
}

fn part<'a>(text: &'a str, ends: &[usize], id: u32) -> &'a str {
    let (start, end) = span(ends, id);
    text.get(start..end).unwrap_or_default()
}

/// Where the string `id` starts and ends.
fn span(ends: &[usize], id: u32) -> (usize, usize) {
    let id = id as usize;
    let before = id.checked_sub(1).and_then(|before| ends.get(before));
    (
        before.copied().unwrap_or(0),
        ends.get(id).copied().unwrap_or(0),
    )
}

/// Text as it may stand in XML or HTML, in an attribute too. Names hold no control characters any more.
pub fn escaped_markup(text: &str) -> String {
    let mut safe = String::new();
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that escape sequences, line ends and direction marks become visible, and plain text stays as it is.
    #[test]
    fn cleaned() {
        assert!(matches!(clean("core::fmt<α>"), Cow::Borrowed(_)));
        assert_eq!(
            clean("a\x1b[31mb\nc\u{202e}d\u{9b}"),
            "a\\u{1b}[31mb\\u{a}c\\u{202e}d\\u{9b}"
        );
        assert_eq!(clean_bytes(b"a\xff\x07"), "a\u{fffd}\\u{7}");
        assert!(clean(&"x".repeat(1 << 20)).len() < MAX_LENGTH + 8);
    }

    /// Check that a line that fits stays, that a longer one is cut to the columns, and that a pipe gets all of it.
    #[test]
    fn fitted() {
        assert_eq!(Columns(Some(3)).fit("αβγ"), "αβγ");
        assert_eq!(Columns(Some(3)).fit("αβγδ"), "αβ…");
        assert_eq!(Columns(Some(0)).fit("ab"), "…");
        assert_eq!(Columns(None).fit("αβγδ"), "αβγδ");
    }

    /// Check that equal strings get one ID and that IDs lead back.
    #[test]
    fn interned_once() {
        let mut table = StringTable::default();
        let ids: Vec<_> = ["a", "b", "", "a", "b"]
            .iter()
            .map(|text| table.intern(text))
            .collect();
        assert_eq!(ids[0], ids[3]);
        assert_eq!(ids[1], ids[4]);
        assert_eq!(table.len(), 3);
        assert_eq!(table.get(ids[1]), "b");
        assert_eq!(table.get(StringId::NONE), "");
        assert_eq!(table.get(StringId(77)), "");
    }
}
