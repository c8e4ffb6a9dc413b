//! The answers of all modules together: functions, places and names, each name once.

use std::iter;

use rayon::prelude::*;

use super::demangle::demangle;
use super::dwarf;
use super::file_offset::Svma;
use super::module::ModuleAnswers;
use super::reason::UnresolvedReason;
use crate::text;
use crate::text::{ByteTable, StringId, StringTable};

/// Frames that one address gives at most: a deeper chain of inlined functions keeps its innermost and its root.
const MAX_INLINED: usize = 256;

/// A function in a chain of inlined ones.
#[derive(Clone, Copy, Debug)]
struct Function {
    /// Name as the linker knows it, or the source name.
    raw: StringId,
    /// Whether `raw` is a name of the source, to be shown as it is.
    plain: bool,
    caller: Option<u32>,
    call: Place,
}

/// A place in the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// File.
    pub file: StringId,
    /// Line, 0 where there is none.
    pub line: u32,
    /// Column, 0 where there is none.
    pub column: u32,
}

/// What tells functions of one name in one module apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// File in which the function is declared.
    pub file: StringId,
    /// Line of the declaration, 0 where it is not told.
    pub line: u32,
    /// Address at which it is entered, as its files state it; 0 of one that is inlined.
    pub entry: u64,
}

/// The function at an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FunctionAt {
    /// Nothing tells of one.
    #[default]
    Unknown,
    /// It is this row of the functions.
    Row(u32),
    /// The tables for unwinding say that one is there, and nothing what it is called: so many bytes lie between its
    /// first and the address.
    Unnamed(u32),
}

impl FunctionAt {
    /// A function without a name that begins at `start`, at an address in it.
    pub(super) fn unnamed(start: Svma, address: Svma) -> Self {
        let distance = address.0.checked_sub(start.0);
        let distance = distance.and_then(|distance| u32::try_from(distance).ok());
        distance.map_or(Self::Unknown, Self::Unnamed)
    }

    /// Its row.
    pub(super) fn row(self) -> Option<u32> {
        match self {
            Self::Row(row) => Some(row),
            Self::Unknown | Self::Unnamed(_) => None,
        }
    }

    /// Where its row is behind `first` others.
    pub(super) fn behind(self, first: u32) -> Self {
        match self {
            Self::Row(row) => Self::Row(row.saturating_add(first)),
            other => other,
        }
    }
}

impl From<Option<u32>> for FunctionAt {
    fn from(row: Option<u32>) -> Self {
        row.map_or(Self::Unknown, Self::Row)
    }
}

/// What is known of one looked-up address.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    function: FunctionAt,
    place: Place,
    /// Address in the module's ELF, where the offset could be translated.
    pub svma: Option<Svma>,
    /// Why there is no name.
    pub reason: Option<UnresolvedReason>,
    /// Whether the name is a guess: of a symbol that does not say how far it reaches.
    pub uncertain: bool,
}

impl Answer {
    /// An answer that says why there is none.
    pub fn unresolved(reason: UnresolvedReason) -> Self {
        Self {
            function: FunctionAt::Unknown,
            place: Place::default(),
            svma: None,
            reason: Some(reason),
            uncertain: false,
        }
    }

    /// Bytes between the address and the first of its function, where that has no name and is known by the tables for
    /// unwinding alone.
    pub fn bytes_into_unnamed(&self) -> Option<u64> {
        match self.function {
            FunctionAt::Unnamed(distance) => Some(u64::from(distance)),
            FunctionAt::Unknown | FunctionAt::Row(_) => None,
        }
    }

    /// Address, as the module's files state it, at which such a function begins.
    pub fn unnamed_start(&self) -> Option<u64> {
        self.svma?.0.checked_sub(self.bytes_into_unnamed()?)
    }
}

/// One frame of the chain at an address.
#[derive(Clone, Copy, Debug)]
pub struct NamedFrame {
    /// Name for people.
    pub name: StringId,
    /// Name as the linker knows it.
    pub linkage_name: StringId,
    /// Place in the source.
    pub place: Place,
    /// Whether the function was inlined into the next frame.
    pub inlined: bool,
    /// Which function of that name it is.
    pub origin: Origin,
}

/// Functions and names of all modules.
#[derive(Debug, Default)]
pub struct Symbols {
    /// Strings that are shown, safe to show.
    pub strings: StringTable,
    raw: ByteTable,
    /// For each raw name the shown name and the linkage name, both shown as IDs of `strings`.
    shown: Vec<(StringId, StringId)>,
    /// The same for names of the source.
    functions: Vec<Function>,
    /// By function, where it was asked; nothing is known of those behind the last one.
    origins: Vec<Origin>,
}

impl Symbols {
    /// Take over a module's answers; [`finish`](Self::finish) must follow before frames are asked for.
    pub(super) fn merge(&mut self, module: &ModuleAnswers) -> Vec<Answer> {
        let names: Vec<StringId> = (0..module.names.len())
            .map(|id| {
                u32::try_from(id).map_or(StringId::NONE, |id| {
                    self.raw.intern(module.names.get(StringId(id)))
                })
            })
            .collect();
        let files: Vec<StringId> = module
            .files
            .iter()
            .map(|file| self.strings.intern(file))
            .collect();
        let first = u32::try_from(self.functions.len()).unwrap_or(u32::MAX);
        let place = |place: dwarf::Place| Place {
            file: place
                .file
                .and_then(|file| files.get(file as usize).copied())
                .unwrap_or_default(),
            line: place.line,
            column: place.column,
        };
        let functions = module.functions.iter().map(|function| Function {
            raw: names
                .get(function.name.0 as usize)
                .copied()
                .unwrap_or_default(),
            plain: function.plain,
            caller: function.caller.map(|caller| caller.saturating_add(first)),
            call: place(function.call),
        });
        let origins = module.origins.iter().map(|origin| Origin {
            file: place(origin.declared).file,
            line: origin.declared.line,
            entry: origin.entry,
        });
        if !module.origins.is_empty() {
            self.origins.resize(self.functions.len(), Origin::default());
            self.origins.extend(origins);
        }
        self.functions.extend(functions);
        let answers = module.answers.iter().map(|answer| Answer {
            function: answer.function.behind(first),
            place: place(answer.place),
            svma: answer.svma,
            reason: answer.reason,
            uncertain: answer.uncertain,
        });
        answers.collect()
    }

    /// Make the names that are shown, each distinct one once, in parallel.
    pub(super) fn finish(&mut self) {
        let start = self.shown.len();
        let raw = &self.raw;
        let ids = start..raw.len();
        let made: Vec<(String, String)> = ids
            .into_par_iter()
            .map(|id| {
                let bytes = u32::try_from(id).map_or(&[][..], |id| raw.get(StringId(id)));
                (demangle(bytes), text::clean_bytes(bytes))
            })
            .collect();
        for (name, linkage_name) in made {
            let pair = (
                self.strings.intern(&name),
                self.strings.intern(&linkage_name),
            );
            self.shown.push(pair);
        }
    }

    /// The frames at an address, innermost first; none where nothing is known of it.
    ///
    /// A place without a function (assembly without symbols) is one frame without names.
    pub fn frames<'s>(&'s self, answer: &Answer) -> impl Iterator<Item = NamedFrame> + use<'s> {
        let nameless = NamedFrame {
            name: StringId::NONE,
            linkage_name: StringId::NONE,
            place: answer.place,
            inlined: false,
            origin: Origin::default(),
        };
        let row = answer.function.row();
        let only_place = row.is_none() && answer.place.file != StringId::NONE;
        let mut next = row;
        let mut place = answer.place;
        let mut depth = 0;
        let chain = iter::from_fn(move || {
            depth += 1;
            let mut number = next? as usize;
            let mut function = self.functions.get(number)?;
            if depth == MAX_INLINED {
                // Callers come before what is inlined into them, so this ends.
                let behind = |function: &Function| {
                    let caller = function.caller? as usize;
                    Some((caller, self.functions.get(caller)?))
                };
                while let Some(caller) = behind(function) {
                    place = function.call;
                    (number, function) = caller;
                }
            }
            let (name, linkage_name) = self
                .shown
                .get(function.raw.0 as usize)
                .copied()
                .unwrap_or_default();
            let name = if function.plain { linkage_name } else { name };
            let frame = NamedFrame {
                name,
                linkage_name,
                place,
                inlined: function.caller.is_some(),
                origin: self.origins.get(number).copied().unwrap_or_default(),
            };
            place = function.call;
            next = function.caller;
            Some(frame)
        });
        chain.chain(only_place.then_some(nameless))
    }
}
