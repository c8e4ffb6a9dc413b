//! Leaves the machine code out of a jitdump: bytes of it become zeros, all else stays where it is.
//!
//! Names need no code, an archive should hold no memory of a process, and zeros take no room. The layout is that of
//! perf's `jitdump-specification.txt`: a header that tells its own size, then records that begin with type and size.

/// Size of a record's beginning: type, size, time.
const RECORD: usize = 16;
/// Bytes between that and the name in a record of a function with its code.
const LOAD_FIELDS: u64 = 40;
/// Types of records: a function with its code, code that was moved, lines of the code. Others do not stay.
const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
const CODE_DEBUG_INFO: u32 = 2;
/// `JiTD` as a little-endian number; the other order is a dump of another machine.
const MAGIC: u32 = 0x4a69_5444;

/// What the next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The beginning of the file or of a record, as far as it has come.
    Start { is_file: bool },
    /// So many bytes stay; then comes a name, with so many bytes left of the record.
    Fields(u64, u64),
    /// So many bytes stay.
    Keep(u64),
    /// The name of a function stays up to its end; so many bytes are left of the record.
    Name(u64),
    /// So many bytes become zeros.
    Erase(u64),
    /// What comes is no jitdump: nothing of it stays.
    Broken,
}

/// Goes through a jitdump from its beginning, piece by piece.
#[derive(Clone, Debug)]
pub(crate) struct CodeEraser {
    state: State,
    /// The beginning of a record that a piece ended in.
    start: Vec<u8>,
}

impl Default for CodeEraser {
    fn default() -> Self {
        Self {
            state: State::Start { is_file: true },
            start: Vec::new(),
        }
    }
}

impl CodeEraser {
    /// Erase what is code in the next piece.
    pub(crate) fn erase(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let taken = self.step(bytes).clamp(1, bytes.len());
            bytes = bytes.get_mut(taken..).unwrap_or_default();
        }
    }

    /// Take some bytes, and say how many.
    fn step(&mut self, bytes: &mut [u8]) -> usize {
        let upto = |left: u64| usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        match self.state {
            State::Start { is_file } => {
                let missing = RECORD - self.start.len();
                let (more, _) = bytes.split_at(missing.min(bytes.len()));
                self.start.extend_from_slice(more);
                let taken = more.len();
                if self.start.len() == RECORD {
                    self.state = self.begin(is_file);
                    self.start.clear();
                    if self.state == State::Broken {
                        bytes.fill(0);
                    }
                }
                taken
            }
            State::Fields(left, rest) => {
                let taken = upto(left);
                let (left, rest) = (left - taken as u64, rest - taken as u64);
                self.state = match (left, rest) {
                    (0, 0) => State::Start { is_file: false },
                    (0, rest) => State::Name(rest),
                    _ => State::Fields(left, rest),
                };
                taken
            }
            State::Keep(left) => {
                let taken = upto(left);
                self.go_on(left, taken, State::Keep);
                taken
            }
            State::Name(left) => {
                let room = bytes.get(..upto(left)).unwrap_or_default();
                let end = room.iter().position(|&byte| byte == 0);
                let taken = end.map_or(room.len(), |end| end + 1);
                self.go_on(
                    left,
                    taken,
                    if end.is_some() {
                        State::Erase
                    } else {
                        State::Name
                    },
                );
                taken
            }
            State::Erase(left) => {
                let taken = upto(left);
                bytes.get_mut(..taken).unwrap_or_default().fill(0);
                self.go_on(left, taken, State::Erase);
                taken
            }
            State::Broken => {
                bytes.fill(0);
                bytes.len()
            }
        }
    }

    fn go_on(&mut self, left: u64, taken: usize, state: fn(u64) -> State) {
        let left = left - taken as u64;
        self.state = if left == 0 {
            State::Start { is_file: false }
        } else {
            state(left)
        };
    }

    /// What follows the 16 bytes that begin the file or a record.
    fn begin(&self, is_file: bool) -> State {
        let word = |at: usize| {
            let bytes = self
                .start
                .get(at..at + 4)
                .and_then(|bytes| bytes.try_into().ok());
            u32::from_le_bytes(bytes.unwrap_or_default())
        };
        let (kind, size) = (word(0), if is_file { word(8) } else { word(4) });
        let Some(rest) = u64::from(size).checked_sub(RECORD as u64) else {
            return State::Broken;
        };
        if is_file {
            return if kind == MAGIC && rest > 0 {
                State::Keep(rest)
            } else {
                State::Broken
            };
        }
        match kind {
            _ if rest == 0 => State::Start { is_file: false },
            CODE_LOAD if rest >= LOAD_FIELDS => State::Fields(LOAD_FIELDS, rest),
            CODE_MOVE | CODE_DEBUG_INFO => State::Keep(rest),
            _ => State::Erase(rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let size = u32::try_from(RECORD + body.len()).unwrap();
        [
            &kind.to_le_bytes()[..],
            &size.to_le_bytes(),
            &7u64.to_le_bytes(),
            body,
        ]
        .concat()
    }

    fn load(name: &[u8], code: &[u8]) -> Vec<u8> {
        let fields = vec![1; usize::try_from(LOAD_FIELDS).unwrap()];
        record(CODE_LOAD, &[&fields, name, b"\0", code].concat())
    }

    fn dump(records: &[Vec<u8>]) -> Vec<u8> {
        let mut header = MAGIC.to_le_bytes().to_vec();
        header.extend(1u32.to_le_bytes());
        header.extend(40u32.to_le_bytes());
        header.extend([9; 28]);
        [header, records.concat()].concat()
    }

    fn erased(whole: &[u8], step: usize) -> Vec<u8> {
        let (mut eraser, mut out) = (CodeEraser::default(), whole.to_vec());
        out.chunks_mut(step).for_each(|piece| eraser.erase(piece));
        out
    }

    /// Check that code and unknown records become zeros and all else stays, wherever the pieces are cut.
    #[test]
    fn code_only() {
        let input = [
            load(b"first", b"CODE"),
            record(CODE_DEBUG_INFO, b"line"),
            record(4, b"unwinding"),
            record(CODE_MOVE, b"moved"),
            record(3, b""),
            load(b"last", b"MORE CODE"),
        ];
        let mut expected = input.clone();
        let zero = |record: &mut Vec<u8>, from: usize| record[from..].fill(0);
        zero(&mut expected[0], 16 + 40 + 6);
        zero(&mut expected[2], 16);
        zero(&mut expected[5], 16 + 40 + 5);
        let (input, expected) = (dump(&input), dump(&expected));
        for step in 1..=input.len() {
            assert_eq!(erased(&input, step), expected, "in pieces of {step}");
        }
    }

    /// Check that nothing stays of what is no jitdump, and that any sizes are gone through to the end.
    #[test]
    fn no_dump() {
        assert!(
            erased(&[b'x'; 100], 100)[RECORD..]
                .iter()
                .all(|&byte| byte == 0)
        );
        for size in [0, 1, 15, 16, 17, 55, 56, 57, u32::MAX] {
            let mut odd = load(b"a", b"CODE");
            odd[4..8].copy_from_slice(&size.to_le_bytes());
            let whole = dump(&[odd, load(b"b", b"CODE")]);
            assert_eq!(erased(&whole, 7).len(), whole.len());
        }
    }
}
