//! A visit to one unit: entries, lines and names of the wanted addresses in it, and then the unit is gone.

use super::files::Files;
use super::names::NameFinder;
use super::program::{RawPlace, find_rows};
use super::units::Units;
use super::walk::{Found, find_functions};
use super::{Answer, Budget, Function, Place};

/// What one unit says of its wanted addresses.
#[derive(Debug, Default)]
pub(super) struct UnitAnswers<'a> {
    pub(super) answers: Vec<Answer>,
    pub(super) functions: Vec<Function<'a>>,
    pub(super) files: Vec<String>,
    /// Whether not all of it could be read.
    pub(super) damaged: bool,
}

/// Visit unit number `place`; nothing where its header or root is damaged.
pub(super) fn visit<'a>(
    units: &Units<'a, '_>,
    place: usize,
    wanted: &[u64],
    budget: &Budget,
) -> Option<UnitAnswers<'a>> {
    let unit = units.open(place)?;
    let found = find_functions(units, &unit, wanted, budget);
    let rows = match &unit.line_program {
        Some(program) => find_rows(units, program.header(), wanted, budget),
        None => vec![None; wanted.len()],
    };
    let mut files = Files::new(units, &unit);
    let (numbers, used) = number_used(&found);
    let mut names = NameFinder::new(units, &unit);
    let functions = used
        .iter()
        .filter_map(|&node| found.nodes.get(node as usize))
        .map(|node| {
            let name = names.names(node.entry);
            let call = match node.call_file {
                Some(file) => files.place(RawPlace {
                    file,
                    line: node.call_line,
                    column: node.call_column,
                }),
                None => Place {
                    file: None,
                    line: node.call_line,
                    column: node.call_column,
                },
            };
            let caller = node
                .parent
                .and_then(|parent| numbers.get(parent as usize).copied().flatten());
            Function {
                linkage_name: name.linkage_name,
                name: name.name,
                caller,
                call,
                start: node.start,
            }
        });
    let functions = functions.collect();
    let answers = found.innermost.iter().zip(rows).map(|(node, row)| Answer {
        function: node.and_then(|node| numbers.get(node as usize).copied().flatten()),
        place: row.map(|row| files.place(row)).unwrap_or_default(),
    });
    let answers = answers.collect();
    Some(UnitAnswers {
        answers,
        functions,
        files: files.paths,
        damaged: found.damaged,
    })
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
