//! Perf maps: lines of `START SIZE NAME`, numbers in hexadecimal. Later lines replace earlier ones.
//!
//! Folklore: some write `0x` before the numbers; names have spaces, and in Node `LazyCompile:~f /app/x.js:3`; the last
//! line of a file that is being written is cut.

use rawstack_format::id::Addr;

use super::Entry;

/// Longest line that is kept from one piece to the next; the longest names have some thousand bytes.
const MAX_LINE: usize = 1 << 16;

/// Reads a perf map piece by piece.
#[derive(Debug, Default)]
pub struct MapReader {
    /// Line that the last piece ended in.
    rest: Vec<u8>,
    /// What comes up to the next line end belongs to a line that is lost or too long.
    is_skipping: bool,
}

impl MapReader {
    /// A reader for what follows a gap.
    pub fn behind_gap() -> Self {
        Self {
            is_skipping: true,
            ..Self::default()
        }
    }

    /// Read the next piece.
    pub fn read(&mut self, bytes: &[u8], each: &mut dyn FnMut(Entry<'_>)) {
        let mut lines = bytes.split(|&byte| byte == b'\n').peekable();
        while let Some(line) = lines.next() {
            let is_whole = lines.peek().is_some();
            if !self.is_skipping && self.rest.is_empty() && is_whole {
                each_line(line, each);
                continue;
            }
            if self.rest.len() + line.len() > MAX_LINE {
                self.is_skipping = true;
            }
            if self.is_skipping {
                self.rest.clear();
            } else {
                self.rest.extend_from_slice(line);
            }
            if is_whole {
                each_line(&self.rest, each);
                self.rest.clear();
                self.is_skipping = false;
            }
        }
    }
}

fn each_line(line: &[u8], each: &mut dyn FnMut(Entry<'_>)) {
    if let Some(entry) = parse(line) {
        each(entry);
    }
}

fn parse(line: &[u8]) -> Option<Entry<'_>> {
    let line = line.strip_suffix(b"\r").unwrap_or(line).trim_ascii_start();
    let (start, rest) = number(line)?;
    let (size, name) = number(rest)?;
    let fits = size > 0 && start.checked_add(size).is_some();
    (fits && !name.is_empty()).then_some(Entry::Function {
        start: Addr(start),
        size,
        name,
        time_ns: None,
    })
}

/// The hexadecimal number that a line begins with, and what follows the blanks behind it.
fn number(line: &[u8]) -> Option<(u64, &[u8])> {
    let end = line
        .iter()
        .position(|&byte| byte == b' ' || byte == b'\t')?;
    let (digits, rest) = line.split_at(end);
    let digits = std::str::from_utf8(digits).ok()?;
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    // from_str_radix would take a sign.
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = is_plain.then(|| u64::from_str_radix(digits, 16).ok())??;
    Some((number, rest.trim_ascii_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<(u64, u64, String)> {
        let (mut reader, mut found) = (MapReader::default(), Vec::new());
        for piece in pieces {
            reader.read(piece, &mut |entry| {
                if let Entry::Function {
                    start, size, name, ..
                } = entry
                {
                    found.push((start.0, size, String::from_utf8_lossy(name).into_owned()));
                }
            });
        }
        found
    }

    /// Check that names keep their text, and that what is no line of a map is passed over.
    #[test]
    fn lines() {
        let text = b"7f00 10 LazyCompile:~foo /app/x.js:3\n0x10 0x20 py::f:/a b.py\r\n\nnonsense\n10 0 empty\n\
                     10 1 \n-1 10 sign\nffffffffffffffff 2 over\n+10 10 sign\n20 8  spaced name \n30 8 cut";
        let expected = [
            (0x7f00, 0x10, "LazyCompile:~foo /app/x.js:3"),
            (0x10, 0x20, "py::f:/a b.py"),
            (0x20, 8, "spaced name "),
        ];
        let expected = expected.map(|(start, size, name)| (start, size, name.to_owned()));
        assert_eq!(read(&[text]), expected);
    }

    /// Check that pieces may be cut anywhere.
    #[test]
    fn pieces() {
        let text = b"10 10 first\n20 10 second\n30 10 third\n";
        let whole = read(&[text]);
        assert_eq!(whole.len(), 3);
        for at in 0..text.len() {
            assert_eq!(read(&[&text[..at], &text[at..]]), whole, "cut at {at}");
        }
    }

    /// Check that a line without end is dropped, what follows it is read, and a gap costs the line it is in.
    #[test]
    fn endless_line() {
        let long = vec![b'x'; MAX_LINE];
        assert_eq!(read(&[b"10 10 a", &long, &long, b"\n20 10 b\n"]).len(), 1);
        let mut count = 0;
        MapReader::behind_gap().read(b"10 f\n20 10 b\n", &mut |_| count += 1);
        assert_eq!(count, 1);
    }
}
