//! One module's addresses → functions and places: debug information first, then symbol tables.

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use foldhash::HashMap;
use rawstack_format::id::FileOffset;
use rawstack_format::record::Module;

use super::damage::Damage;
use super::demangle::STUB;
use super::dwarf::{self, Budget, Companions, DwarfSections, Place, Task};
use super::elf_symbols::{Symbol, SymbolTable};
use super::fde::FunctionBounds;
use super::file_offset::{Svma, to_svma};
use super::go::{GoFunction, GoTable};
use super::reason::UnresolvedReason;
use super::short_name::is_short_for;
use super::symbols::FunctionAt;
use crate::debug_file::elf::ElfFile;
use crate::debug_file::locate::ModuleFiles;
use crate::text::{ByteTable, StringId, clean_bytes};

/// Time for the debug information of one module, however small, on however busy a machine; then its symbols answer for
/// the rest. A whole unit of a large program takes a tenth of a second.
const MODULE_TIME: Duration = Duration::from_secs(10);
/// Bytes of entries that give it one more second: a thirtieth of what they take on a slow machine.
const BYTES_PER_SECOND: u64 = 4 << 20;

/// Bytes of names of one module, and what is kept of a name beyond them.
const MAX_NAMES: usize = 48 << 20;
const SHORT_NAME: usize = 128;

/// What to read.
#[derive(Clone, Copy, Debug)]
pub struct ResolveOptions {
    /// Read DWARF; else symbol tables only.
    pub dwarf: bool,
    /// Tell functions of one name apart: by where they are declared and entered. It takes memory.
    pub origins: bool,
}

/// A function of the answers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NamedFunction {
    /// Name, in [`ModuleAnswers::names`].
    pub(super) name: StringId,
    /// Whether it is the source's name and not the linker's.
    pub(super) plain: bool,
    /// Function that it is inlined into.
    pub(super) caller: Option<u32>,
    /// Where it is called from then.
    pub(super) call: Place,
}

/// What tells a function apart from others of its name.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FunctionOrigin {
    /// Where it is declared: file and line.
    pub(super) declared: Place,
    /// Address at which it is entered, as the files state it; 0 of one that is inlined.
    pub(super) entry: u64,
}

/// The answer for one offset.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ModuleAnswer {
    pub(super) function: FunctionAt,
    pub(super) place: Place,
    pub(super) svma: Option<Svma>,
    pub(super) reason: Option<UnresolvedReason>,
    /// Whether the name comes from a symbol that states no size.
    pub(super) uncertain: bool,
}

/// All answers of a module, free of the files they came from.
#[derive(Debug, Default)]
pub(super) struct ModuleAnswers {
    /// One for each offset.
    pub(super) answers: Vec<ModuleAnswer>,
    pub(super) functions: Vec<NamedFunction>,
    /// By function, if asked; nothing is known of functions behind the last one.
    pub(super) origins: Vec<FunctionOrigin>,
    pub(super) files: Vec<String>,
    pub(super) names: ByteTable,
    /// Whether debug information was damaged, beyond the limits or given up.
    pub(super) damaged: bool,
    /// What was wrong with it.
    pub(super) damage: Option<Damage>,
    /// Files of split units that answered.
    pub(super) split: BTreeSet<PathBuf>,
    /// What the debug information refers to and is not there.
    pub(super) missing: MissingPieces,
}

/// Pieces of debug information that are not there: what would have been in them has no name or a lesser one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingPieces {
    /// Object files of split units (`.dwo`) that were needed, sorted.
    pub split: Vec<String>,
    /// The alternate file (`dwz`).
    pub alternate: Option<String>,
}

impl MissingPieces {
    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.split.is_empty() && self.alternate.is_none()
    }
}

/// Resolve `offsets`, sorted and without repetition, of an ELF module.
pub(super) fn resolve_elf(
    module: &Module,
    files: &ModuleFiles,
    offsets: &[FileOffset],
    options: ResolveOptions,
) -> ModuleAnswers {
    let mut found = ModuleAnswers {
        answers: translate(module, files, offsets),
        ..ModuleAnswers::default()
    };
    let mut wanted: Vec<Svma> = found
        .answers
        .iter()
        .filter_map(|answer| answer.svma)
        .collect();
    wanted.sort_unstable();
    wanted.dedup();
    if wanted.is_empty() || files.files.is_empty() {
        return found;
    }
    let mut starts = Vec::new();
    if let Some(file) = files.dwarf().filter(|_| options.dwarf) {
        match DwarfSections::load(file) {
            Ok(sections) => {
                starts = found.add_dwarf(&sections, (files, file), &wanted, options.origins);
                sections.release_all();
            }
            Err(error) => found.note(Damage::Section(error)),
        }
    }
    found.add_symbols(files, &starts, options.origins);
    found.add_go_places(files);
    found
}

/// The other files of the debug information; one that cannot be read counts as missing.
fn companions(files: &ModuleFiles) -> Companions<'_> {
    let alternate = files.alternate.as_ref();
    let package = files.package.as_ref();
    Companions {
        alternate: alternate.and_then(|file| DwarfSections::load(file).ok()),
        package: package.and_then(|file| DwarfSections::load_split(file).ok()),
        search: files.split.clone(),
    }
}

/// Offsets → addresses of the files, by the recorded segments, else by those of a file that is not cut down to debug
/// information.
fn translate(module: &Module, files: &ModuleFiles, offsets: &[FileOffset]) -> Vec<ModuleAnswer> {
    let own = files.code().map(|file| &file.segments);
    let segments = if module.segments.is_empty() {
        own
    } else {
        Some(&module.segments)
    };
    let reason = match segments {
        _ if files.files.is_empty() && files.mismatch => UnresolvedReason::OtherBuild,
        _ if files.files.is_empty() => UnresolvedReason::NoDebugFile,
        None => UnresolvedReason::NoSegments,
        Some(_) => UnresolvedReason::OutsideSegments,
    };
    let place = |&offset: &FileOffset| {
        let recorded = segments.and_then(|segments| to_svma(segments, offset, module.page_size));
        let svma = recorded.map(|Svma(recorded)| Svma(recorded.wrapping_sub(files.moved)));
        let known = svma.is_some() && !files.files.is_empty();
        ModuleAnswer {
            svma,
            reason: (!known).then_some(reason),
            ..ModuleAnswer::default()
        }
    };
    offsets.iter().map(place).collect()
}

impl ModuleAnswers {
    /// Keep a name; once all of them take more than any program's do, only the start of it.
    fn intern_name(&mut self, name: &[u8]) -> StringId {
        let full = self.names.bytes() > MAX_NAMES;
        let cut = name.get(..SHORT_NAME).filter(|_| full);
        if cut.is_some() {
            self.note(Damage::Entries);
        }
        self.names.intern(cut.unwrap_or(name))
    }

    /// Remember what is wrong with the debug information; the first word counts.
    fn note(&mut self, damage: Damage) {
        self.damaged = true;
        self.damage.get_or_insert(damage);
    }

    /// Answers that all say why there is none.
    pub(super) fn unresolved(count: usize, reason: UnresolvedReason) -> Self {
        let answer = ModuleAnswer {
            reason: Some(reason),
            ..ModuleAnswer::default()
        };
        Self {
            answers: vec![answer; count],
            ..Self::default()
        }
    }

    /// Take what the debug information says; gives the first address of each function.
    fn add_dwarf(
        &mut self,
        sections: &DwarfSections<'_>,
        (files, file): (&ModuleFiles, &ElfFile),
        wanted: &[Svma],
        origins: bool,
    ) -> Vec<Svma> {
        let size = u64::try_from(sections.entries_size()).unwrap_or(u64::MAX) / BYTES_PER_SECOND;
        let budget = Budget::new(MODULE_TIME.saturating_add(Duration::from_secs(size)));
        let code = file.code_ranges();
        let companions = companions(files);
        let task = Task {
            wanted,
            declarations: origins,
            budget: &budget,
        };
        let found = dwarf::resolve(sections, &companions, &code, &task);
        if budget.was_spent() {
            self.note(Damage::Time);
        } else if found.damaged {
            self.note(Damage::Entries);
        }
        self.files = found.files;
        self.split = found.split;
        self.missing = MissingPieces {
            split: found.missing.into_iter().collect(),
            alternate: files.missing_alternate.clone(),
        };
        for (number, function) in (0u32..).zip(&found.functions) {
            let name = match (&function.name, found.scopes.get(&number)) {
                (Some(name), Some(scope)) => self.intern_name(&[scope, &name[..]].concat()),
                (Some(name), None) => self.intern_name(name),
                (None, _) => StringId::NONE,
            };
            let row = NamedFunction {
                name,
                plain: function.plain,
                caller: function.caller,
                call: function.call,
            };
            self.functions.push(row);
        }
        let origins = found.functions.iter().zip(&found.declared);
        self.origins = origins
            .map(|(function, &declared)| FunctionOrigin {
                declared,
                entry: match function.caller {
                    Some(_) => 0,
                    None => function.start,
                },
            })
            .collect();
        for answer in &mut self.answers {
            let place = answer
                .svma
                .and_then(|svma| wanted.binary_search(&svma).ok());
            if let Some(dwarf) = place.and_then(|place| found.answers.get(place)) {
                answer.function = dwarf.function.into();
                answer.place = dwarf.place;
            }
        }
        found
            .functions
            .iter()
            .map(|function| Svma(function.start))
            .collect()
    }

    /// Let symbols name functions whose debug information has no full name, and what has no function yet. `starts`
    /// holds the first address of each function.
    ///
    /// A function is named by the symbol where it is entered, whatever address in it was asked for.
    fn add_symbols(&mut self, files: &ModuleFiles, starts: &[Svma], origins: bool) {
        // Reading all symbols takes a while, and good debug information leaves nothing to ask them.
        let all: Vec<&ElfFile> = files.files.iter().map(|(_, file)| file).collect();
        let symbols = LazyCell::new(|| SymbolTable::of(&all));
        let bounds = LazyCell::new(|| FunctionBounds::of(&all));
        for (function, &start) in (0u32..).zip(starts) {
            let nameless = self.is_nameless(function);
            let open = |row: &NamedFunction| row.caller.is_none() && (row.plain || nameless);
            if self.functions.get(function as usize).is_some_and(open)
                && let Some(symbol) = symbols.find(start)
                && (nameless || self.is_short_for(function, symbol))
            {
                self.rename(function, symbol);
            }
        }
        let roots = self.roots();
        let mut rows: HashMap<(Svma, Svma), u32> = HashMap::default();
        for index in 0..self.answers.len() {
            let Some(answer) = self.answers.get(index).copied() else {
                continue;
            };
            let Some(svma) = answer.svma else { continue };
            let root = answer
                .function
                .row()
                .and_then(|function| roots.get(function as usize));
            if root.is_some_and(|&root| !self.is_nameless(root)) {
                continue;
            }
            // A symbol without size reaches to the next one, over functions that have none.
            let symbol = symbols.find(svma).filter(|symbol| {
                let bounded = || {
                    bounds
                        .find(svma)
                        .is_none_or(|(start, _)| start <= symbol.start)
                };
                root.is_none() && (symbol.sized || bounded())
            });
            let function = symbol.map(|symbol| self.symbol_row(&mut rows, symbol, origins));
            let reason = if self.damaged {
                UnresolvedReason::DamagedDebugInfo
            } else {
                UnresolvedReason::NoSymbol
            };
            if let Some(answer) = self.answers.get_mut(index) {
                answer.uncertain = symbol.is_some_and(|symbol| !symbol.sized);
                answer.reason = function.is_none().then_some(reason);
                answer.function = match function {
                    Some(row) => FunctionAt::Row(row),
                    None => bounds.find(svma).map_or(FunctionAt::Unknown, |(start, _)| {
                        FunctionAt::unnamed(start, svma)
                    }),
                };
            }
        }
    }

    /// Let Go's own table tell the places that debug information does not.
    fn add_go_places(&mut self, files: &ModuleFiles) {
        let open =
            |answer: &ModuleAnswer| answer.svma.is_some() && answer.place == Place::default();
        if !self.answers.iter().any(open) {
            return;
        }
        let Some(table) = files.files.iter().find_map(|(_, file)| GoTable::of(file)) else {
            return;
        };
        let mut functions: Vec<GoFunction<'_>> = table.functions().collect();
        functions.sort_by_key(|function| function.start);
        let mut rows: HashMap<&[u8], u32> = HashMap::default();
        for answer in self.answers.iter_mut().filter(|answer| open(answer)) {
            let Some(Svma(address)) = answer.svma else {
                continue;
            };
            let after = functions.partition_point(|function| function.start <= address);
            let function = after.checked_sub(1).and_then(|place| functions.get(place));
            let function = function.filter(|function| address < function.end);
            let Some((file, line)) = function.and_then(|found| table.place(found, address)) else {
                continue;
            };
            let next = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
            let row = *rows.entry(file).or_insert(next);
            if row == next {
                self.files.push(clean_bytes(file));
            }
            answer.place = Place {
                file: Some(row),
                line,
                column: 0,
            };
        }
    }

    /// For each function the one that it was at last inlined into. Callers come before what is inlined into them.
    fn roots(&self) -> Vec<u32> {
        let mut roots: Vec<u32> = Vec::with_capacity(self.functions.len());
        for (function, row) in (0u32..).zip(&self.functions) {
            let of_caller = row.caller.and_then(|caller| roots.get(caller as usize));
            roots.push(of_caller.copied().unwrap_or(function));
        }
        roots
    }

    fn is_nameless(&self, function: u32) -> bool {
        self.functions
            .get(function as usize)
            .is_none_or(|row| row.name == StringId::NONE)
    }

    /// Whether the symbol's mangled name is of the same function as a short name.
    fn is_short_for(&self, function: u32, symbol: &Symbol<'_>) -> bool {
        let row = self.functions.get(function as usize);
        row.is_some_and(|row| row.plain && is_short_for(self.names.get(row.name), symbol.name))
    }

    fn rename(&mut self, function: u32, symbol: &Symbol<'_>) {
        let name = self.names.intern(whole_function(symbol.name));
        if let Some(row) = self.functions.get_mut(function as usize) {
            row.name = name;
            row.plain = false;
        }
    }

    fn symbol_row(
        &mut self,
        rows: &mut HashMap<(Svma, Svma), u32>,
        symbol: &Symbol<'_>,
        origins: bool,
    ) -> u32 {
        let range = (symbol.start, symbol.end);
        if let Some(&row) = rows.get(&range) {
            return row;
        }
        let row = if symbol.stub {
            self.name_row(&[symbol.name, STUB].concat())
        } else {
            self.name_row(symbol.name)
        };
        if origins {
            self.origins.resize(row as usize, FunctionOrigin::default());
            self.origins.push(FunctionOrigin {
                entry: symbol.start.0,
                ..FunctionOrigin::default()
            });
        }
        rows.insert(range, row);
        row
    }

    /// A new function that is nothing but a linker's name.
    pub(super) fn name_row(&mut self, name: &[u8]) -> u32 {
        let name = self.names.intern(name);
        self.functions.push(NamedFunction {
            name,
            ..NamedFunction::default()
        });
        u32::try_from(self.functions.len() - 1).unwrap_or(u32::MAX)
    }
}

/// A symbol's name without what the compiler puts behind the names of a function's parts and copies.
fn whole_function(name: &[u8]) -> &[u8] {
    const PARTS: [&str; 5] = [".cold", ".part.", ".constprop.", ".isra.", ".lto_priv."];
    let first = PARTS.iter().filter_map(|part| {
        name.windows(part.len())
            .position(|window| window == part.as_bytes())
    });
    let end = first.min().unwrap_or(name.len());
    name.get(..end).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that suffixes of function parts are taken off, several at once too, and other dots stay.
    #[test]
    fn parts_of_functions() {
        assert_eq!(whole_function(b"_Z3foov.part.0.cold"), b"_Z3foov");
        assert_eq!(whole_function(b"_Z3foov.constprop.1"), b"_Z3foov");
        assert_eq!(whole_function(b"_ZN3a..bE"), b"_ZN3a..bE");
    }
}
