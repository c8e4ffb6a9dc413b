//! A visit to one unit: entries, lines and names of the wanted addresses in it, and then the unit is gone.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use gimli::{DebugInfoOffset, Unit};

use super::files::Files;
use super::lambdas;
use super::names::NameFinder;
use super::program::{RawPlace, find_rows};
use super::split::{Pieces, Split};
use super::units::Units;
use super::walk::{Found, find_functions};
use super::{Answer, Budget, Function, Place, Slice, Task};

/// What stands before the names of lambdas, by function.
type Scopes = Vec<(u32, Arc<[u8]>)>;

/// What one unit says of its wanted addresses.
#[derive(Debug, Default)]
pub(super) struct UnitAnswers<'a> {
    pub(super) answers: Vec<Answer>,
    pub(super) functions: Vec<Function<'a>>,
    /// Where they are declared, if that was asked.
    pub(super) declared: Vec<Place>,
    /// By function what stands before its name.
    pub(super) scopes: Scopes,
    pub(super) files: Vec<String>,
    /// Whether not all of it could be read.
    pub(super) damaged: bool,
    /// File with the unit's entries, where they are in one of their own, ...
    pub(super) split: Option<PathBuf>,
    /// ... and its name where it was not found.
    pub(super) missing: Option<String>,
}

/// Functions that contain wanted addresses.
struct Functions<'a> {
    /// For each wanted address its innermost function.
    innermost: Vec<Option<u32>>,
    rows: Vec<(Function<'a>, Option<RawPlace>)>,
    /// Where they are declared, if that was asked, ...
    declared: Vec<Place>,
    scopes: Scopes,
    /// ... and the files of it.
    paths: Vec<String>,
    /// Whether not all entries could be read.
    damaged: bool,
}

/// Visit unit number `place`; nothing where its header or root is damaged.
pub(super) fn visit<'a>(
    units: &Units<'a, '_>,
    place: usize,
    wanted: &[u64],
    pieces: &Pieces<'a>,
    task: &Task<'_>,
) -> Option<UnitAnswers<'a>> {
    let unit = units.open(place)?;
    let asked = pieces.ask(units, &unit, |units, unit| {
        read_functions(units, unit, wanted, task).into_owned()
    });
    let own = || read_functions(units, &unit, wanted, task);
    let (functions, split, missing) = match asked {
        Split::Full(functions, file) => (functions, file, None),
        Split::Whole => (own(), None, None),
        Split::Missing(name) => (own(), None, Some(name)),
    };
    let rows = match &unit.line_program {
        Some(program) => find_rows(units, program.header(), wanted, task.budget),
        None => vec![None; wanted.len()],
    };
    let mut files = Files::new(units, &unit);
    let answers = functions.innermost.iter().zip(rows);
    let answers = answers.map(|(&function, row)| Answer {
        function,
        place: row.map(|row| files.place(row)).unwrap_or_default(),
    });
    let answers = answers.collect();
    let rows = functions.rows.into_iter().map(|(function, call)| Function {
        call: call.map_or(function.call, |call| files.place(call)),
        ..function
    });
    let rows = rows.collect();
    // Files of declarations come behind those of lines and calls.
    let first = u32::try_from(files.paths.len()).unwrap_or(u32::MAX);
    let declared = functions.declared.into_iter();
    let declared = declared.map(|place| place.behind(first)).collect();
    files.paths.extend(functions.paths);
    Some(UnitAnswers {
        answers,
        functions: rows,
        declared,
        scopes: functions.scopes,
        files: files.paths,
        damaged: functions.damaged,
        split,
        missing,
    })
}

/// Find the functions of a unit with their names; files of calls stay as the line program numbers them.
fn read_functions<'a>(
    units: &Units<'a, '_>,
    unit: &Unit<Slice<'a>>,
    wanted: &[u64],
    task: &Task<'_>,
) -> Functions<'a> {
    let found = find_functions(units, unit, wanted, task.budget);
    let (numbers, used) = number_used(&found);
    let number = |node: u32| numbers.get(node as usize).copied().flatten();
    let mut names = NameFinder::new(units, unit, task.declarations);
    let mut declared = Vec::new();
    let used = used
        .iter()
        .filter_map(|&node| found.nodes.get(node as usize));
    let mut unnamed = Vec::new();
    let rows = used.enumerate().map(|(row, node)| {
        let name = names.names(node.entry);
        if task.declarations {
            declared.push(name.declared);
        }
        unnamed.extend(lambdas::unnamed(&name, task.declarations).map(|lambda| (row, lambda)));
        let (line, column) = (node.call_line, node.call_column);
        let function = Function {
            name: name.linkage_name.or(name.name).map(Cow::Borrowed),
            plain: name.linkage_name.is_none(),
            caller: node.parent.and_then(number),
            call: Place {
                file: None,
                line,
                column,
            },
            start: node.start,
        };
        let call = node.call_file.map(|file| RawPlace { file, line, column });
        (function, call)
    });
    let rows: Vec<_> = rows.collect();
    let scopes = complete_lambdas((&rows, &mut declared), &unnamed, &mut names, task.budget);
    let innermost = found
        .innermost
        .iter()
        .map(|node| node.and_then(number))
        .collect();
    Functions {
        innermost,
        rows,
        declared,
        scopes,
        paths: names.paths,
        damaged: found.damaged,
    }
}

/// Give lambdas, by row and entry, the places that their own entries leave out; gives what stands before their names.
fn complete_lambdas<'a>(
    (rows, declared): (&[(Function<'a>, Option<RawPlace>)], &mut [Place]),
    unnamed: &[(usize, DebugInfoOffset)],
    names: &mut NameFinder<'_, 'a, '_>,
    budget: &Budget,
) -> Scopes {
    let mut scopes = Scopes::new();
    if unnamed.is_empty() {
        return scopes;
    }
    let found = lambdas::find(names, unnamed.iter().map(|(_, at)| *at).collect(), budget);
    for (row, at) in unnamed {
        let (Some((function, _)), Some(lambda)) = (rows.get(*row), found.get(at)) else {
            continue;
        };
        if let Some(declared) = declared.get_mut(*row).filter(|held| held.line == 0) {
            *declared = lambda.declared;
        }
        // What is not inlined gets the name of the symbol at its entry.
        if function.caller.is_some()
            && function.plain
            && let Some(scope) = &lambda.scope
        {
            scopes.extend(u32::try_from(*row).map(|row| (row, Arc::clone(scope))));
        }
    }
    scopes
}

impl Functions<'_> {
    /// Free of the sections that the names came from.
    fn into_owned(self) -> Functions<'static> {
        let owned = |name: Cow<'_, [u8]>| Cow::Owned(name.into_owned());
        let rows = self.rows.into_iter().map(|(function, call)| {
            let function = Function {
                name: function.name.map(owned),
                plain: function.plain,
                caller: function.caller,
                call: function.call,
                start: function.start,
            };
            (function, call)
        });
        Functions {
            innermost: self.innermost,
            rows: rows.collect(),
            declared: self.declared,
            scopes: self.scopes,
            paths: self.paths,
            damaged: self.damaged,
        }
    }
}

/// Number the nodes that an answer needs, in their order: for each node its number, and the nodes by number.
fn number_used(found: &Found) -> (Vec<Option<u32>>, Vec<u32>) {
    let mut needed = vec![false; found.nodes.len()];
    for innermost in found.innermost.iter().flatten() {
        let mut next = Some(*innermost);
        while let Some(node) = next {
            let Some(flag) = needed.get_mut(node as usize).filter(|flag| !**flag) else {
                break;
            };
            *flag = true;
            next = found.nodes.get(node as usize).and_then(|node| node.parent);
        }
    }
    let used: Vec<u32> = (0u32..)
        .zip(&needed)
        .filter(|(_, needed)| **needed)
        .map(|(node, _)| node)
        .collect();
    let mut numbers = vec![None; needed.len()];
    for (number, &node) in (0u32..).zip(&used) {
        if let Some(slot) = numbers.get_mut(node as usize) {
            *slot = Some(number);
        }
    }
    (numbers, used)
}
