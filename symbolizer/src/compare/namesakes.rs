//! Functions that have one name: which of them are the same on both sides.
//!
//! Where both sides have one build of a module, functions are told apart by where they are declared, or by where they
//! are entered if that is not told. Where builds differ, functions of one name are one, but for closures and lambdas of
//! one parent: their numbers count what stands before them in the source, so they are aligned in its order.

use std::collections::BTreeMap;
use std::mem;

use foldhash::HashMap;

use super::functions::FunctionKey;
use super::key::{parent_of, without_signature};
use crate::origins::Origin;
use crate::resolve::Place;
use crate::symbolized::SymbolizedProfile;
use crate::text::StringId;

/// Closures of one parent that are aligned on either side: the time goes with the square.
const MOST: usize = 256;

/// What a pair of closures in the same place of its parent is worth beside what they do.
const IN_PLACE: f64 = 0.2;
/// What any pair in the right order is worth.
const IN_ORDER: f64 = 0.1;

/// Named frame, module and origin: what frames are told apart by.
type Kind = (u32, Option<u32>, Origin);

/// A function as one build has it.
#[derive(Clone, Debug)]
pub(super) struct Namesake {
    pub(super) kind: Kind,
    /// Its module of the profile.
    pub(super) build: Option<u32>,
    /// Whether that is of the new side.
    pub(super) is_new: bool,
    /// Whether both sides have this build and no other.
    pub(super) is_same: bool,
    /// Numbers of the closures in its name.
    pub(super) numbers: Vec<u32>,
    /// Address of its entry, unless it is not told, or is that of a part or a copy.
    pub(super) entry: Option<u64>,
}

impl Namesake {
    /// File and line of its declaration.
    fn declared(&self) -> Option<Declared> {
        let Origin { file, line, .. } = self.kind.2;
        (line > 0).then_some((line, file))
    }
}

/// Line and file of a declaration.
type Declared = (u32, StringId);

/// What people tell functions of one name apart by.
#[derive(Clone, Copy, Debug)]
enum Whereabouts {
    Declared(Declared),
    Entered(u64),
}

/// What makes frames of one build one function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identity {
    /// Line and file: in the order of the source.
    Declared(Declared),
    /// Numbers of closures.
    Numbered(Vec<u32>),
    /// Module and address.
    Entered(Option<u32>, u64),
    /// Nothing is known.
    Any,
}

/// Functions of one name.
#[derive(Debug, Default)]
struct Group {
    members: Vec<Namesake>,
    /// For each member the place among the slots.
    slots: Vec<usize>,
    /// Where the functions are, by slot.
    places: Vec<Option<Whereabouts>>,
    /// Where builds differ and closures have to be aligned.
    sequences: Vec<Sequence>,
}

/// Closures of one parent in one build, in the order of the source.
type Sequence = Vec<Closure>;

/// A closure as one build has it.
#[derive(Debug)]
struct Closure {
    members: Vec<usize>,
    declared: Option<Declared>,
    /// Line, counted from where its parent is declared.
    line: Option<i64>,
    /// What its samples were seen doing: lines of its own and functions called, each with its weight.
    seen: BTreeMap<Seen, f64>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Seen {
    Line(i64, u32),
    Callee(String),
}

/// Lines of a function's declaration, by build.
type Lines = HashMap<Option<u32>, u32>;

/// All functions by name.
#[derive(Debug, Default)]
pub(super) struct Namesakes {
    index: BTreeMap<FunctionKey, usize>,
    groups: Vec<Group>,
    /// For each kind of frames its group, and its place among the members.
    of_kind: HashMap<Kind, (usize, usize)>,
    /// Closures that are to be aligned: group, build and closure.
    wanted: HashMap<Kind, (usize, usize, usize)>,
}

impl Namesakes {
    /// Add a function under its name.
    pub(super) fn add(&mut self, key: &FunctionKey, member: Namesake) {
        let number = match self.index.get(key) {
            Some(&number) => number,
            None => {
                self.groups.push(Group::default());
                self.index.insert(key.clone(), self.groups.len() - 1);
                self.groups.len() - 1
            }
        };
        if let Some(group) = self.groups.get_mut(number) {
            self.of_kind
                .insert(member.kind, (number, group.members.len()));
            group.members.push(member);
        }
    }

    /// Settle what needs no look at stacks.
    pub(super) fn settle(&mut self) {
        let parents = self.parents();
        for (key, &number) in &self.index {
            let Some(group) = self.groups.get_mut(number) else {
                continue;
            };
            group.settle(parent_of(&key.name).and_then(|parent| parents.get(parent)));
            for (place, sequence) in group.sequences.iter().enumerate() {
                for (closure, held) in sequence.iter().enumerate() {
                    let members = held.members.iter();
                    let members = members.filter_map(|&member| group.members.get(member));
                    self.wanted
                        .extend(members.map(|member| (member.kind, (number, place, closure))));
                }
            }
        }
    }

    /// Where the parents of closures are declared, by name and build. Of a parent that only one file can see a lambda's name
    /// may have the bare name.
    fn parents(&self) -> HashMap<String, Lines> {
        let names = self.index.keys().filter_map(|key| parent_of(&key.name));
        let mut parents: HashMap<String, Lines> = names
            .map(|name| (name.to_owned(), Lines::default()))
            .collect();
        for (key, &number) in &self.index {
            let name = match parents.contains_key(&key.name) {
                true => &key.name,
                false => without_signature(&key.name),
            };
            let (Some(lines), Some(group)) = (parents.get_mut(name), self.groups.get(number))
            else {
                continue;
            };
            for member in &group.members {
                if let Some((line, _)) = member.declared() {
                    let first = lines.entry(member.build).or_insert(line);
                    *first = (*first).min(line);
                }
            }
        }
        parents
    }

    /// Whether [`meet`](Self::meet) and [`align`](Self::align) have anything to do.
    pub(super) fn needs_stacks(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// A frame was met at `place`, with what it called.
    pub(super) fn meet(&mut self, kind: &Kind, place: Place, callee: Option<&str>, weight: f64) {
        let Some(&(group, sequence, closure)) = self.wanted.get(kind) else {
            return;
        };
        let group = self.groups.get_mut(group);
        let sequence = group.and_then(|group| group.sequences.get_mut(sequence));
        let Some(closure) = sequence.and_then(|sequence| sequence.get_mut(closure)) else {
            return;
        };
        let line = i64::from(place.line) - i64::from(kind.2.line);
        *closure
            .seen
            .entry(Seen::Line(line, place.column))
            .or_default() += weight;
        if let Some(callee) = callee {
            *closure
                .seen
                .entry(Seen::Callee(callee.to_owned()))
                .or_default() += weight;
        }
    }

    /// Align the closures of both sides.
    pub(super) fn align(&mut self) {
        for group in &mut self.groups {
            group.align();
        }
    }

    /// Which function of its name a frame is of, and where that is declared; nothing where there is one only.
    pub(super) fn which(
        &self,
        profile: &SymbolizedProfile,
        kind: &Kind,
    ) -> Option<(u32, Option<String>)> {
        let &(group, member) = self.of_kind.get(kind)?;
        let group = self.groups.get(group)?;
        if group.places.len() < 2 {
            return None;
        }
        let slot = group.slots.get(member).copied()?;
        let place = group.places.get(slot)?.map(|place| match place {
            Whereabouts::Declared((line, file)) => {
                let file = profile.text(file);
                let file = file.rsplit('/').next().unwrap_or(file);
                format!("{file}:{line}")
            }
            Whereabouts::Entered(address) => format!("{address:#x}"),
        });
        Some((u32::try_from(slot).ok()?, place))
    }
}

impl Group {
    fn settle(&mut self, parent: Option<&Lines>) {
        self.slots = vec![0; self.members.len()];
        self.places = vec![None];
        if self.members.len() < 2 {
            return;
        }
        if self.members.iter().any(|member| member.is_same) {
            self.tell_apart();
        } else if let Some(lines) = parent {
            self.sequences = self.sequences_of(lines);
            let longest = self.sequences.iter().map(Vec::len).max();
            if !(2..=MOST).contains(&longest.unwrap_or(0)) {
                self.sequences.clear();
            }
        }
    }

    /// Tell the functions of one build apart. What says nothing of itself belongs to the only one that does, or is one
    /// more.
    fn tell_apart(&mut self) {
        let identity = |member: &Namesake| match (member.declared(), member.entry) {
            _ if !member.is_same => Identity::Any,
            (Some(declared), _) => Identity::Declared(declared),
            (None, Some(entry)) => Identity::Entered(member.build, entry),
            (None, None) => Identity::Any,
        };
        let mut slots: BTreeMap<Identity, usize> = BTreeMap::new();
        for member in &self.members {
            slots.insert(identity(member), 0);
        }
        let known = slots.keys().filter(|key| **key != Identity::Any).count();
        if known < 2 {
            return;
        }
        self.places.clear();
        for (slot, (identity, place)) in slots.iter_mut().enumerate() {
            *place = slot;
            self.places.push(match identity {
                Identity::Declared(declared) => Some(Whereabouts::Declared(*declared)),
                Identity::Entered(_, entry) => Some(Whereabouts::Entered(*entry)),
                _ => None,
            });
        }
        let members = self.members.iter();
        let of_member = members.map(|member| slots.get(&identity(member)).copied());
        self.slots = of_member.map(Option::unwrap_or_default).collect();
    }

    /// The closures of each build, those of the new side first.
    fn sequences_of(&self, lines: &Lines) -> Vec<Sequence> {
        let identity = |member: &Namesake| match member.declared() {
            Some(declared) => Identity::Declared(declared),
            None => Identity::Numbered(member.numbers.clone()),
        };
        type Closures = BTreeMap<Identity, Vec<usize>>;
        let mut builds: BTreeMap<(bool, Option<u32>), Closures> = BTreeMap::new();
        for (number, member) in self.members.iter().enumerate() {
            let build = builds.entry((!member.is_new, member.build)).or_default();
            build.entry(identity(member)).or_default().push(number);
        }
        let sequence = |((_, build), closures): (_, Closures)| {
            let closure = |members: Vec<usize>| {
                let first = members.first().and_then(|&member| self.members.get(member));
                let declared = first.and_then(Namesake::declared);
                let line = declared.zip(lines.get(&build));
                Closure {
                    members,
                    declared,
                    line: line.map(|((line, _), parent)| i64::from(line) - i64::from(*parent)),
                    seen: BTreeMap::new(),
                }
            };
            closures.into_values().map(closure).collect()
        };
        builds.into_iter().map(sequence).collect()
    }

    /// Align each build with those before it; what has no partner there is one more function.
    fn align(&mut self) {
        let mut sequences = mem::take(&mut self.sequences).into_iter();
        let Some(mut held) = sequences.next() else {
            return;
        };
        for sequence in sequences {
            let partners = pairs(&held, &sequence);
            for (closure, partner) in sequence.into_iter().zip(partners) {
                match partner.and_then(|partner| held.get_mut(partner)) {
                    Some(partner) => partner.members.extend(closure.members),
                    None => held.push(closure),
                }
            }
        }
        let places = held
            .iter()
            .map(|closure| closure.declared.map(Whereabouts::Declared));
        self.places = places.collect();
        for (slot, closure) in held.iter().enumerate() {
            for &member in &closure.members {
                if let Some(place) = self.slots.get_mut(member) {
                    *place = slot;
                }
            }
        }
    }
}

/// For each of `others` its partner among `held`: in order, so that the pairs together are the most alike.
fn pairs(held: &[Closure], others: &[Closure]) -> Vec<Option<usize>> {
    let width = others.len() + 1;
    // What the best pairs among the first ones of either side are worth.
    let mut best = vec![0.0f64; (held.len() + 1) * width];
    let at = |best: &[f64], row: usize, column: usize| {
        best.get(row * width + column).copied().unwrap_or(0.0)
    };
    for (row, one) in held.iter().enumerate() {
        for (column, other) in others.iter().enumerate() {
            let with = at(&best, row, column) + one.likeness(other);
            let without = at(&best, row, column + 1).max(at(&best, row + 1, column));
            if let Some(place) = best.get_mut((row + 1) * width + column + 1) {
                *place = with.max(without);
            }
        }
    }
    let mut partners = vec![None; others.len()];
    let (mut row, mut column) = (held.len(), others.len());
    while row > 0 && column > 0 {
        let value = at(&best, row, column);
        if value <= at(&best, row - 1, column) {
            row -= 1;
        } else if value <= at(&best, row, column - 1) {
            column -= 1;
        } else {
            (row, column) = (row - 1, column - 1);
            if let Some(partner) = partners.get_mut(column) {
                *partner = Some(row);
            }
        }
    }
    partners
}

impl Closure {
    /// How alike two closures are, more than 0: what they do, and where they stand in their parent.
    fn likeness(&self, other: &Self) -> f64 {
        let sums = [self, other].map(|one| one.seen.values().sum::<f64>());
        let share = |one: &Self, seen: &Seen, sum: f64| {
            one.seen.get(seen).map_or(0.0, |weight| weight / sum)
        };
        let (mut least, mut most) = (0.0, 0.0);
        let only_other = other
            .seen
            .keys()
            .filter(|seen| !self.seen.contains_key(*seen));
        for seen in self.seen.keys().chain(only_other) {
            let (a, b) = (share(self, seen, sums[0]), share(other, seen, sums[1]));
            least += a.min(b);
            most += a.max(b);
        }
        let alike = if most > 0.0 { least / most } else { 0.5 };
        let apart = self.line.zip(other.line).map(|(a, b)| a.abs_diff(b));
        let in_place = apart.map_or(0.0, |apart| IN_PLACE / (1.0 + apart as f64));
        IN_ORDER + alike + in_place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A closure so many lines below its parent, whose samples were on these lines of its own.
    fn closure(line: i64, seen: &[(i64, f64)]) -> Closure {
        let seen = seen
            .iter()
            .map(|&(line, weight)| (Seen::Line(line, 1), weight));
        Closure {
            members: Vec::new(),
            declared: None,
            line: Some(line),
            seen: seen.collect(),
        }
    }

    /// Check that a closure before, between or behind others makes none of them another one, and that one which is gone has
    /// no partner; counts that differ by chance do no harm.
    #[test]
    fn one_more_or_less() {
        let [a, b, c] = [
            [(1, 60.0), (2, 40.0)],
            [(1, 10.0), (4, 90.0)],
            [(2, 70.0), (3, 30.0)],
        ];
        let base = [closure(3, &a), closure(8, &b), closure(14, &c)];
        let more = [(1, 30.0), (5, 70.0)];
        let other = [
            [(1, 55.0), (2, 45.0)],
            [(1, 14.0), (4, 86.0)],
            [(2, 66.0), (3, 34.0)],
        ];
        for (place, wanted) in [
            (0, [None, Some(0), Some(1), Some(2)]),
            (1, [Some(0), None, Some(1), Some(2)]),
            (3, [Some(0), Some(1), Some(2), None]),
        ] {
            let mut seen: Vec<&[(i64, f64)]> = other.iter().map(|seen| &seen[..]).collect();
            seen.insert(place, &more);
            let new: Vec<Closure> = (1..)
                .zip(seen)
                .map(|(number, seen)| closure(number * 6, seen))
                .collect();
            assert_eq!(pairs(&base, &new), wanted, "one more at {place}");
        }
        let fewer = [closure(3, &other[0]), closure(9, &other[2])];
        assert_eq!(pairs(&base, &fewer), [Some(0), Some(2)]);
    }

    /// Check that closures of which nothing was seen are paired by their place in the function.
    #[test]
    fn by_place() {
        let [base, new] = [[2, 9], [9, 30]].map(|lines| lines.map(|line| closure(line, &[])));
        assert_eq!(pairs(&base, &new), [Some(0), Some(1)]);
        assert_eq!(pairs(&base[1..], &new), [Some(0), None]);
        assert_eq!(pairs(&[], &new), [None, None]);
    }
}
