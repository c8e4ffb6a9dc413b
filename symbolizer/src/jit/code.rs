//! What lies where in one process, now and for a while back: functions by address and time.

use std::collections::{BTreeMap, VecDeque};

use foldhash::HashMap;

/// A function's number in [`JitTable`](super::JitTable).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JitSymbolId(pub u32);

/// Size of the parts in which the past is kept, in bytes.
const PAGE: u64 = 4096;
/// Parts in which one function of the past is kept at most.
const MAX_PAGES: u64 = 16;
/// Functions of the past that are kept in one part: the latest.
const MAX_PAST: usize = 32;
/// Parts that are kept at most; then the past begins anew.
const MAX_PARTS: usize = 1 << 16;

/// A function in its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Code {
    /// First address, and the one behind the last.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Since when, monotonic clock.
    pub(super) since_ns: u64,
    pub(super) symbol: JitSymbolId,
    /// The reading of which file said so.
    pub(super) reading: u32,
}

#[derive(Clone, Copy, Debug)]
struct Past {
    code: Code,
    until_ns: u64,
}

/// The code of one process.
#[derive(Debug, Default)]
pub(super) struct CodeMap {
    now: BTreeMap<u64, Code>,
    past: HashMap<u64, VecDeque<Past>>,
}

impl CodeMap {
    /// The function that is now said to begin and end exactly there.
    pub(super) fn same_place(&mut self, start: u64, end: u64) -> Option<&mut Code> {
        self.now.get_mut(&start).filter(|code| code.end == end)
    }

    /// The function that is now said to begin there.
    pub(super) fn starting(&self, start: u64) -> Option<&Code> {
        self.now.get(&start)
    }

    /// Put a function in its place. What it covers is of the past from then on; what sticks out stays.
    pub(super) fn insert(&mut self, code: Code) {
        let Code {
            start,
            end,
            since_ns,
            ..
        } = code;
        let before = self.now.range(..start).next_back();
        let before = before.filter(|(_, old)| old.end > start);
        let inside = self.now.range(start..end);
        let covered: Vec<u64> = before
            .into_iter()
            .chain(inside)
            .map(|(&at, _)| at)
            .collect();
        for at in covered {
            let Some(old) = self.now.remove(&at) else {
                continue;
            };
            if old.start < start {
                self.now.insert(old.start, Code { end: start, ..old });
            }
            if old.end > end {
                self.now.insert(end, Code { start: end, ..old });
            }
            let code = Code {
                start: old.start.max(start),
                end: old.end.min(end),
                ..old
            };
            self.keep(Past {
                code,
                until_ns: since_ns,
            });
        }
        self.now.insert(start, code);
    }

    fn keep(&mut self, past: Past) {
        if past.until_ns <= past.code.since_ns {
            return;
        }
        if self.past.len() >= MAX_PARTS {
            self.past.clear();
        }
        let (first, last) = (past.code.start / PAGE, (past.code.end - 1) / PAGE);
        for page in first..=last.min(first + MAX_PAGES - 1) {
            let part = self.past.entry(page).or_default();
            if part.len() >= MAX_PAST {
                part.pop_front();
            }
            part.push_back(past);
        }
    }

    /// The function at `address` at `time_ns`; one that came later where none was there then. `until` says up to when
    /// what a reading said holds.
    pub(super) fn at(
        &self,
        address: u64,
        time_ns: u64,
        until: impl Fn(u32) -> u64,
    ) -> Option<JitSymbolId> {
        let holds = |code: &Code| (code.start..code.end).contains(&address);
        let is_valid = |code: &Code| until(code.reading) > time_ns;
        let now = self.now.range(..=address).next_back().map(|(_, code)| code);
        let now = now.filter(|code| holds(code) && is_valid(code));
        if let Some(code) = now.filter(|code| code.since_ns <= time_ns) {
            return Some(code.symbol);
        }
        let was = |past: &&Past| {
            let Past { code, until_ns } = *past;
            holds(code) && is_valid(code) && code.since_ns <= time_ns && time_ns < *until_ns
        };
        let past = self
            .past
            .get(&(address / PAGE))
            .into_iter()
            .flatten()
            .rev()
            .find(was);
        past.map(|past| past.code.symbol)
            .or(now.map(|code| code.symbol))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(start: u64, end: u64, since_ns: u64, symbol: u32) -> Code {
        Code {
            start,
            end,
            since_ns,
            symbol: JitSymbolId(symbol),
            reading: 0,
        }
    }

    fn at(map: &CodeMap, address: u64, time_ns: u64) -> Option<u32> {
        map.at(address, time_ns, |_| u64::MAX)
            .map(|symbol| symbol.0)
    }

    /// Check that an address holds the function of the time asked for, and what sticks out of an older one stays.
    #[test]
    fn reused() {
        let mut map = CodeMap::default();
        map.insert(code(0x1000, 0x1100, 0, 1));
        map.insert(code(0x1040, 0x1080, 50, 2));
        map.insert(code(0x1040, 0x1080, 70, 3));
        assert_eq!(at(&map, 0x1050, 49), Some(1));
        assert_eq!(at(&map, 0x1050, 50), Some(2));
        assert_eq!(at(&map, 0x1050, 69), Some(2));
        assert_eq!(at(&map, 0x1050, 70), Some(3));
        assert_eq!(
            (at(&map, 0x1000, 90), at(&map, 0x10ff, 90)),
            (Some(1), Some(1))
        );
        assert_eq!((at(&map, 0xfff, 90), at(&map, 0x1100, 90)), (None, None));
    }

    /// Check that a function made a moment after the sample names it where nothing was there before.
    #[test]
    fn later() {
        let mut map = CodeMap::default();
        map.insert(code(0x1000, 0x1100, 50, 1));
        assert_eq!(at(&map, 0x1000, 10), Some(1));
    }

    /// Check that what was said holds up to its end only.
    #[test]
    fn ended() {
        let mut map = CodeMap::default();
        map.insert(code(0x1000, 0x1100, 0, 1));
        let until = |_| 50;
        assert_eq!(map.at(0x1000, 49, until), Some(JitSymbolId(1)));
        assert_eq!(map.at(0x1000, 50, until), None);
    }

    /// Check that any number of functions in one place takes bounded room.
    #[test]
    fn bounded() {
        let mut map = CodeMap::default();
        for time in 0..100_000 {
            map.insert(code(0, u64::MAX, time, 1));
        }
        let kept: usize = map.past.values().map(VecDeque::len).sum();
        assert!(kept as u64 <= MAX_PAST as u64 * MAX_PAGES, "{kept}");
    }
}
