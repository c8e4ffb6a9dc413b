//! Answers as bytes, for the cache: rows of fixed size, sorted by offset, so that a few are found among many.
//!
//! The bytes were written by this program and their checksum holds; all the same nothing in them is trusted.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use foldhash::HashMap;
use rawstack_format::id::FileOffset;

use super::dwarf::Place;
use super::file_offset::Svma;
use super::module::{FunctionOrigin, ModuleAnswer, ModuleAnswers, NamedFunction};
use super::reason::UnresolvedReason;
use super::symbols::FunctionAt;
use crate::cache::file_facts;
use crate::text::StringId;

/// Counts of answers, functions, origins of functions, names, files and files of split units.
const HEADER: usize = 24;
/// Offset, address, function or how far into one without a name, file, line, column, reason, bits: whether there is an
/// address, whether it is uncertain, whether the function has no name.
const ANSWER: usize = 40;
/// Numbers in front of the path of a file.
const FACTS: usize = 40;
/// Name, caller, file, line, column of the call, whether the name is the source's.
const FUNCTION: usize = 24;
/// File and line of a function's declaration, and the address of its entry.
const ORIGIN: usize = 16;
/// No function, file or name.
const NONE: u32 = u32::MAX;

/// Reasons that are the same each time; answers with others are not stored.
const REASONS: [UnresolvedReason; 2] = [
    UnresolvedReason::NoSymbol,
    UnresolvedReason::OutsideSegments,
];

/// Answers to `offsets`, sorted, as bytes. An answer whose reason may be another one the next time is left out.
pub(super) fn encode(offsets: &[FileOffset], found: &ModuleAnswers) -> Vec<u8> {
    let mut answers = Vec::new();
    for (offset, answer) in offsets.iter().zip(&found.answers) {
        let reason = match answer.reason {
            None => 0,
            Some(reason) => match (1u32..).zip(REASONS).find(|(_, known)| *known == reason) {
                Some((code, _)) => code,
                None => continue,
            },
        };
        answers.extend_from_slice(&offset.0.to_le_bytes());
        answers.extend_from_slice(&answer.svma.map_or(0, |svma| svma.0).to_le_bytes());
        let Place { file, line, column } = answer.place;
        let (function, unnamed) = match answer.function {
            FunctionAt::Unknown => (NONE, false),
            FunctionAt::Row(row) => (row, false),
            FunctionAt::Unnamed(distance) => (distance, true),
        };
        let words = [
            function,
            file.unwrap_or(NONE),
            line,
            column,
            reason,
            u32::from(answer.svma.is_some())
                | u32::from(answer.uncertain) << 1
                | u32::from(unnamed) << 2,
        ];
        push_words(&words, &mut answers);
    }
    let mut functions = Vec::new();
    for function in &found.functions {
        let Place { file, line, column } = function.call;
        let words = [
            function.name.0,
            function.caller.unwrap_or(NONE),
            file.unwrap_or(NONE),
            line,
            column,
            u32::from(function.plain),
        ];
        push_words(&words, &mut functions);
    }
    let mut origins = Vec::new();
    for origin in &found.origins {
        let Place { file, line, .. } = origin.declared;
        push_words(&[file.unwrap_or(NONE), line], &mut origins);
        origins.extend_from_slice(&origin.entry.to_le_bytes());
    }
    let names = (0..found.names.len()).map(|id| found.names.get(StringId(word(id))));
    let files = found.files.iter().map(String::as_bytes);
    let split: Vec<Vec<u8>> = found.split.iter().map(|path| split_file(path)).collect();
    let counts = [
        answers.len() / ANSWER,
        found.functions.len(),
        found.origins.len(),
        found.names.len(),
        found.files.len(),
        split.len(),
    ];
    let mut out = Vec::with_capacity(HEADER + answers.len() + functions.len() + origins.len());
    push_words(&counts.map(word), &mut out);
    out.append(&mut answers);
    out.append(&mut functions);
    out.append(&mut origins);
    push_texts(names, &mut out);
    push_texts(files, &mut out);
    push_texts(split.iter().map(Vec::as_slice), &mut out);
    out
}

/// A file of split units as it is now: what tells that it was written anew or is gone, and its path.
fn split_file(path: &Path) -> Vec<u8> {
    let facts = path.metadata().map(|file| file_facts(&file));
    let facts = facts.unwrap_or_default().map(u64::to_le_bytes);
    [facts.as_flattened(), path.as_os_str().as_bytes()].concat()
}

fn word(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(NONE)
}

fn push_words(words: &[u32], out: &mut Vec<u8>) {
    words
        .iter()
        .for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

/// The ends of all texts as 64-bit numbers, then the texts.
fn push_texts<'t>(texts: impl Iterator<Item = &'t [u8]>, out: &mut Vec<u8>) {
    let mut joined = Vec::new();
    for text in texts {
        joined.extend_from_slice(text);
        out.extend_from_slice(&(joined.len() as u64).to_le_bytes());
    }
    out.append(&mut joined);
}

/// Answers in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored<'b> {
    answers: &'b [[u8; ANSWER]],
    functions: &'b [[u8; FUNCTION]],
    origins: &'b [[u8; ORIGIN]],
    names: Texts<'b>,
    files: Texts<'b>,
    split: Texts<'b>,
}

#[derive(Clone, Copy, Debug)]
struct Texts<'b> {
    ends: &'b [[u8; 8]],
    joined: &'b [u8],
}

impl<'b> Texts<'b> {
    /// `count` texts at the start of `bytes`, and what stands behind them.
    fn split(bytes: &'b [u8], count: usize) -> Option<(Self, &'b [u8])> {
        let (ends, rest) = rows::<8>(bytes, count)?;
        let length = ends.last().map_or(0, |end| u64::from_le_bytes(*end));
        let (joined, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        Some((Self { ends, joined }, rest))
    }

    fn get(&self, index: u32) -> Option<&'b [u8]> {
        let end = |index: usize| -> Option<usize> {
            usize::try_from(u64::from_le_bytes(*self.ends.get(index)?)).ok()
        };
        let index = index as usize;
        let start = match index.checked_sub(1) {
            Some(before) => end(before)?,
            None => 0,
        };
        self.joined.get(start..end(index)?)
    }
}

/// `count` rows of `N` bytes, and what stands behind them.
fn rows<const N: usize>(bytes: &[u8], count: usize) -> Option<(&[[u8; N]], &[u8])> {
    let (rows, rest) = bytes.split_at_checked(count.checked_mul(N)?)?;
    Some((rows.as_chunks::<N>().0, rest))
}

/// The word at `place`, counted in words.
fn word_at(row: &[u8], place: usize) -> Option<u32> {
    let bytes = row.as_chunks::<4>().0.get(place)?;
    Some(u32::from_le_bytes(*bytes))
}

fn known(word: u32) -> Option<u32> {
    (word != NONE).then_some(word)
}

impl<'b> Stored<'b> {
    /// Look at bytes that [`encode`] made; nothing where they are not.
    pub(super) fn parse(bytes: &'b [u8]) -> Option<Self> {
        let (header, rest) = bytes.split_at_checked(HEADER)?;
        let count = |place| word_at(header, place).map(|count| count as usize);
        let (answers, rest) = rows(rest, count(0)?)?;
        let (functions, rest) = rows(rest, count(1)?)?;
        let (origins, rest) = rows(rest, count(2)?)?;
        let (names, rest) = Texts::split(rest, count(3)?)?;
        let (files, rest) = Texts::split(rest, count(4)?)?;
        let (split, rest) = Texts::split(rest, count(5)?)?;
        rest.is_empty().then_some(Self {
            answers,
            functions,
            origins,
            names,
            files,
            split,
        })
    }

    /// The files of split units that answered, if all of them are as they were.
    fn split_files(&self) -> Option<BTreeSet<PathBuf>> {
        let held = (0..word(self.split.ends.len())).map(|place| self.split.get(place));
        let checked = held.map(|text| {
            let path = PathBuf::from(OsStr::from_bytes(text?.get(FACTS..)?));
            (text? == split_file(&path)).then_some(path)
        });
        checked.collect()
    }

    fn offset(row: &[u8; ANSWER]) -> FileOffset {
        let bytes = row.first_chunk::<8>().copied().unwrap_or_default();
        FileOffset(u64::from_le_bytes(bytes))
    }

    /// All offsets, sorted.
    pub(super) fn offsets(&self) -> Vec<FileOffset> {
        self.answers.iter().map(Self::offset).collect()
    }

    /// The answers to those of `offsets` that are stored, with these offsets; and those that are not. Nothing where a file of
    /// split units has changed.
    pub(super) fn take(
        &self,
        offsets: &[FileOffset],
    ) -> Option<(Vec<FileOffset>, ModuleAnswers, Vec<FileOffset>)> {
        let mut taker = Taker {
            stored: self,
            found: ModuleAnswers {
                split: self.split_files()?,
                ..ModuleAnswers::default()
            },
            functions: HashMap::default(),
            files: HashMap::default(),
        };
        let (mut there, mut missing) = (Vec::new(), Vec::new());
        for &offset in offsets {
            match self.answers.binary_search_by_key(&offset, Self::offset) {
                Ok(place) => {
                    taker.answer(self.answers.get(place)?)?;
                    there.push(offset);
                }
                Err(_) => missing.push(offset),
            }
        }
        Some((there, taker.found, missing))
    }
}

/// Takes rows out of stored answers, with what they refer to.
struct Taker<'s, 'b> {
    stored: &'s Stored<'b>,
    found: ModuleAnswers,
    functions: HashMap<u32, u32>,
    files: HashMap<u32, u32>,
}

impl Taker<'_, '_> {
    fn answer(&mut self, row: &[u8; ANSWER]) -> Option<()> {
        let svma = u64::from_le_bytes(*row.get(8..)?.first_chunk::<8>()?);
        let at = |place: usize| word_at(row, 4 + place);
        let bits = at(5)?;
        let function = match known(at(0)?) {
            _ if bits & 4 != 0 => FunctionAt::Unnamed(at(0)?),
            Some(function) => FunctionAt::Row(self.function(function)?),
            None => FunctionAt::Unknown,
        };
        let reason = match at(4)? {
            0 => None,
            code => Some(*REASONS.get(code as usize - 1)?),
        };
        let place = self.place(at(1)?, at(2)?, at(3)?)?;
        self.found.answers.push(ModuleAnswer {
            function,
            place,
            svma: (bits & 1 != 0).then_some(Svma(svma)),
            reason,
            uncertain: bits & 2 != 0,
        });
        Some(())
    }

    /// The new number of a function; those that it is inlined into come before it.
    fn function(&mut self, wanted: u32) -> Option<u32> {
        let mut chain = Vec::new();
        let mut next = Some(wanted);
        let mut caller = None;
        while let Some(number) = next {
            if let Some(&taken) = self.functions.get(&number) {
                caller = Some(taken);
                break;
            }
            let row = self.stored.functions.get(number as usize)?;
            chain.push(number);
            next = known(word_at(row, 1)?);
            // Callers have smaller numbers, so this ends.
            next.is_none_or(|next| next < number).then_some(())?;
        }
        for number in chain.into_iter().rev() {
            let row = self.stored.functions.get(number as usize)?;
            let at = |place| word_at(row, place);
            let name = match known(at(0)?) {
                Some(name) => self.found.names.intern(self.stored.names.get(name)?),
                None => StringId::NONE,
            };
            let call = self.place(at(2)?, at(3)?, at(4)?)?;
            let taken = word(self.found.functions.len());
            self.found.functions.push(NamedFunction {
                name,
                plain: at(5)? == 1,
                caller,
                call,
            });
            self.origin(number)?;
            self.functions.insert(number, taken);
            caller = Some(taken);
        }
        caller
    }

    /// Take what tells function `number` apart, for the function that was taken last.
    fn origin(&mut self, number: u32) -> Option<()> {
        let Some(row) = self.stored.origins.get(number as usize) else {
            return Some(());
        };
        let origin = FunctionOrigin {
            declared: self.place(word_at(row, 0)?, word_at(row, 1)?, 0)?,
            entry: u64::from_le_bytes(*row.get(8..)?.first_chunk::<8>()?),
        };
        let before = self.found.functions.len().saturating_sub(1);
        self.found.origins.resize(before, FunctionOrigin::default());
        self.found.origins.push(origin);
        Some(())
    }

    fn place(&mut self, file: u32, line: u32, column: u32) -> Option<Place> {
        let file = match known(file) {
            Some(file) => Some(self.file(file)?),
            None => None,
        };
        Some(Place { file, line, column })
    }

    fn file(&mut self, wanted: u32) -> Option<u32> {
        if let Some(&taken) = self.files.get(&wanted) {
            return Some(taken);
        }
        let path = String::from_utf8_lossy(self.stored.files.get(wanted)?);
        let taken = word(self.found.files.len());
        self.found.files.push(path.into_owned());
        self.files.insert(wanted, taken);
        Some(taken)
    }
}

/// The answers to `offsets` out of two sets, each of which comes with the offsets that it answers, sorted.
pub(super) fn join(
    mut first: (Vec<FileOffset>, ModuleAnswers),
    second: (&[FileOffset], &ModuleAnswers),
) -> (Vec<FileOffset>, ModuleAnswers) {
    let (offsets, more) = second;
    let functions = word(first.1.functions.len());
    let files = word(first.1.files.len());
    let moved = |place: Place| place.behind(files);
    if !more.origins.is_empty() {
        let origins = more.origins.iter().map(|origin| FunctionOrigin {
            declared: moved(origin.declared),
            ..*origin
        });
        first
            .1
            .origins
            .resize(first.1.functions.len(), FunctionOrigin::default());
        first.1.origins.extend(origins);
    }
    first.1.files.extend_from_slice(&more.files);
    first.1.split.extend(more.split.iter().cloned());
    for function in &more.functions {
        let name = match function.name {
            StringId::NONE => StringId::NONE,
            name => first.1.names.intern(more.names.get(name)),
        };
        first.1.functions.push(NamedFunction {
            name,
            plain: function.plain,
            caller: function
                .caller
                .map(|caller| caller.saturating_add(functions)),
            call: moved(function.call),
        });
    }
    let answers = more.answers.iter().map(|answer| ModuleAnswer {
        function: answer.function.behind(functions),
        place: moved(answer.place),
        ..*answer
    });
    let old = first.0.into_iter().zip(first.1.answers);
    let new = offsets.iter().copied().zip(answers);
    let mut rows: Vec<(FileOffset, ModuleAnswer)> = old.chain(new).collect();
    rows.sort_by_key(|(offset, _)| *offset);
    let (offsets, answers) = rows.into_iter().unzip();
    first.1.answers = answers;
    first.1.damaged |= more.damaged;
    first.1.damage = first.1.damage.or(more.damage);
    first.1.missing = more.missing.clone();
    (offsets, first.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three offsets: in a function inlined into another, in none, in one without a name.
    fn sample() -> (Vec<FileOffset>, ModuleAnswers) {
        let mut found = ModuleAnswers::default();
        let names = ["outer", "inner"].map(|name| found.names.intern(name.as_bytes()));
        found.files = vec!["/a.c".to_owned(), "/b.h".to_owned()];
        let place = |file, line| Place {
            file: Some(file),
            line,
            column: 3,
        };
        for (name, caller) in names.into_iter().zip([None, Some(0)]) {
            found.functions.push(NamedFunction {
                name,
                plain: caller.is_some(),
                caller,
                call: place(0, 7),
            });
        }
        found.origins = vec![FunctionOrigin {
            declared: Place {
                column: 0,
                ..place(1, 5)
            },
            entry: u64::MAX - 1,
        }];
        let named = ModuleAnswer {
            function: FunctionAt::Row(1),
            place: place(1, 9),
            svma: Some(Svma(0x10)),
            reason: None,
            uncertain: true,
        };
        let nameless = ModuleAnswer {
            reason: Some(UnresolvedReason::NoSymbol),
            svma: Some(Svma(0x20)),
            ..ModuleAnswer::default()
        };
        let unnamed = ModuleAnswer {
            function: FunctionAt::Unnamed(0x12),
            svma: Some(Svma(0x30)),
            ..nameless
        };
        found.answers = vec![named, nameless, unnamed];
        (
            vec![0x10, 0x20, 0x30].into_iter().map(FileOffset).collect(),
            found,
        )
    }

    /// What a set of answers says, whatever its numbers.
    fn told(offsets: &[FileOffset], found: &ModuleAnswers) -> Vec<String> {
        let place = |place: Place| {
            let file = place.file.map(|file| found.files[file as usize].clone());
            format!("{file:?}:{}:{}", place.line, place.column)
        };
        let line = |(offset, answer): (&FileOffset, &ModuleAnswer)| {
            let mut text = format!("{offset:?} {:?} {:?}", answer.svma, answer.reason);
            text += &place(answer.place);
            if answer.function.row().is_none() {
                text += &format!(" {:?}", answer.function);
            }
            let mut next = answer.function.row();
            while let Some(number) = next {
                let function = &found.functions[number as usize];
                let origin = found
                    .origins
                    .get(number as usize)
                    .copied()
                    .unwrap_or_default();
                let name = String::from_utf8_lossy(found.names.get(function.name));
                text += &format!(" {name} {} {}", function.plain, place(function.call));
                text += &format!(" {} {:#x}", place(origin.declared), origin.entry);
                next = function.caller;
            }
            text
        };
        offsets.iter().zip(&found.answers).map(line).collect()
    }

    /// Check that stored answers say the same when they are taken out, all or one, and joined with others.
    #[test]
    fn there_and_back() {
        let (offsets, found) = sample();
        let bytes = encode(&offsets, &found);
        let stored = Stored::parse(&bytes).unwrap();
        assert_eq!(stored.offsets(), offsets);
        let (there, taken, missing) = stored.take(&offsets).unwrap();
        assert_eq!(told(&there, &taken), told(&offsets, &found));
        assert!(missing.is_empty());
        let wanted = [FileOffset(0), FileOffset(0x20)];
        let (there, taken, missing) = stored.take(&wanted).unwrap();
        assert_eq!((there.len(), missing), (1, vec![FileOffset(0)]));
        assert!(taken.functions.is_empty());
        let (one, first, _) = stored.take(&[FileOffset(0x20)]).unwrap();
        let (two, second, _) = stored.take(&[FileOffset(0x10), FileOffset(0x30)]).unwrap();
        let (both, joined) = join((one, first), (&two, &second));
        assert_eq!(told(&both, &joined), told(&offsets, &found));
    }

    /// Check that bytes cut or changed anywhere give other answers or none, and never a panic.
    #[test]
    fn hostile_bytes() {
        let (offsets, found) = sample();
        let bytes = encode(&offsets, &found);
        for place in 0..bytes.len() {
            assert!(Stored::parse(&bytes[..place]).is_none());
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[place] ^= 1 << bit;
                let stored = Stored::parse(&changed);
                let _ = stored.map(|stored| stored.take(&offsets));
            }
        }
    }
}
