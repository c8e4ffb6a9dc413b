//! Frames → the functions that they are of: what two frames must have in common to count as one function.

use std::collections::BTreeMap;

use foldhash::HashMap;

use super::functions::{Apart, FunctionFacts, FunctionKey};
use super::key::{KeyOptions, canonical, has_suffixes, numbers_in, parent_of};
use super::modules::{ComparedModules, Resolution, weights_by_side};
use super::namesakes::{Namesake, Namesakes};
use super::sides::Columns;
use crate::origins::Origin;
use crate::profile::runs::RunCounts;
use crate::symbolized::{Located, SymbolizedFrame, SymbolizedProfile};

/// What frames have in common that are told apart here: names and line, module, and which function of that name.
type Kind = (u32, Option<u32>, Origin);

/// The functions of all frames.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// Keys, sorted.
    pub(super) keys: Vec<FunctionKey>,
    /// Facts of each.
    pub(super) facts: Vec<FunctionFacts>,
    /// For each place of the profile where its frames begin in `functions`.
    starts: Vec<usize>,
    functions: Vec<Option<u32>>,
    /// Functions of what is at no place.
    marks: HashMap<u32, Option<u32>>,
}

/// A kind of frames with its key.
struct Keyed {
    kind: Kind,
    key: FunctionKey,
    /// Where the function is declared, if others have its name.
    declared: Option<String>,
}

impl Members {
    /// The functions of all frames of `profile`; stacks of event `event` say which namesakes are the same on both sides.
    pub(super) fn of(
        profile: &SymbolizedProfile,
        (counts, columns, event): (&RunCounts, &Columns, u32),
        apart: Apart,
        modules: &ComparedModules,
    ) -> Self {
        let mut of_kind = HashMap::default();
        let keyed = keyed(profile, apart, modules, &mut of_kind);
        let mut namesakes = Namesakes::default();
        for keyed in &keyed {
            namesakes.add(&keyed.key, namesake(profile, keyed, modules));
        }
        namesakes.settle();
        if namesakes.needs_stacks() {
            for (stack, weights) in weights_by_side(counts, columns, event) {
                let mut callee = None;
                let end = (stack.state, stack.kernel_cut);
                profile.each_located(stack.kernel, stack.user, end, &mut |frame| {
                    let kind = kind_of(profile, &frame);
                    let place = profile.frame(frame.named).place;
                    let name = profile.frame(frame.named).name;
                    namesakes.meet(&kind, place, callee, weights[0] + weights[1]);
                    callee = Some(profile.text(name));
                });
            }
            namesakes.align();
        }
        let keyed = keyed.into_iter().map(|keyed| {
            let found = namesakes.which(profile, &keyed.kind);
            let (which, declared) = found.unwrap_or_default();
            Keyed {
                key: FunctionKey { which, ..keyed.key },
                declared,
                ..keyed
            }
        });
        let keyed: Vec<Keyed> = keyed.collect();
        let mut members = Self::default();
        members.number(profile, (&keyed, &mut of_kind), apart, modules);
        for (number, place) in (0u32..).zip(profile.places()) {
            members.starts.push(members.functions.len());
            for (position, &named) in (0u32..).zip(profile.chain_at(number)) {
                let kind = (named, place.module, profile.origins().get(number, position));
                members
                    .functions
                    .push(of_kind.get(&kind).copied().flatten());
            }
        }
        for mark in profile.marks() {
            let kind = (mark, None, Origin::default());
            members
                .marks
                .insert(mark, of_kind.get(&kind).copied().flatten());
        }
        members
    }

    /// Give each key its number, in their order, and collect facts.
    fn number(
        &mut self,
        profile: &SymbolizedProfile,
        (keyed, of_kind): (&[Keyed], &mut HashMap<Kind, Option<u32>>),
        apart: Apart,
        modules: &ComparedModules,
    ) {
        let with_line = |keyed: &Keyed| {
            let line = line_of(profile, &keyed.kind).filter(|_| apart.by_line);
            FunctionKey {
                line,
                ..keyed.key.clone()
            }
        };
        let keys: Vec<FunctionKey> = keyed.iter().map(with_line).collect();
        let mut index: BTreeMap<&FunctionKey, (u32, FunctionFacts)> = BTreeMap::new();
        for (keyed, key) in keyed.iter().zip(&keys) {
            let frame = profile.frame(keyed.kind.0);
            let facts = FunctionFacts {
                module: modules.name(profile.text(frame.module)),
                file: frame
                    .place
                    .file
                    .get()
                    .map(|file| profile.text(file).to_owned()),
                is_unnamed: frame.reason.is_some(),
                declared: keyed.declared.clone(),
            };
            match index.get_mut(key) {
                Some((_, held)) => held.join(facts),
                None => {
                    index.insert(key, (0, facts));
                }
            }
        }
        for (number, (slot, _)) in (0u32..).zip(index.values_mut()) {
            *slot = number;
        }
        for (keyed, key) in keyed.iter().zip(&keys) {
            let number = index.get(key).map(|(number, _)| *number);
            of_kind.insert(keyed.kind, number);
        }
        self.keys = index.keys().map(|key| (*key).clone()).collect();
        self.facts = index.into_values().map(|(_, facts)| facts).collect();
    }

    /// The function that a frame is of; none of one that is left to its caller.
    pub(super) fn function(&self, frame: &Located) -> Option<u32> {
        let Some(place) = frame.place else {
            return self.marks.get(&frame.named).copied().flatten();
        };
        let start = self.starts.get(place as usize)?;
        let number = start.saturating_add(frame.position as usize);
        self.functions.get(number).copied().flatten()
    }
}

/// All kinds of frames that count, each once, in the order of the profile; the others are put into `left_out`.
fn keyed(
    profile: &SymbolizedProfile,
    apart: Apart,
    modules: &ComparedModules,
    left_out: &mut HashMap<Kind, Option<u32>>,
) -> Vec<Keyed> {
    let mut keyed = Vec::new();
    let mut add = |kind: Kind| {
        if left_out.insert(kind, None).is_none() {
            let key = key_of(profile, &profile.frame(kind.0), apart, modules);
            keyed.extend(key.map(|key| Keyed {
                kind,
                key,
                declared: None,
            }));
        }
    };
    for (number, place) in (0u32..).zip(profile.places()) {
        for (position, &named) in (0u32..).zip(profile.chain_at(number)) {
            let origin = profile.origins().get(number, position);
            add((named, place.module, origin));
        }
    }
    for marker in profile.marks() {
        add((marker, None, Origin::default()));
    }
    keyed
}

fn kind_of(profile: &SymbolizedProfile, frame: &Located) -> Kind {
    let module = frame
        .place
        .and_then(|place| profile.places().get(place as usize)?.module);
    let origin = frame
        .place
        .map(|place| profile.origins().get(place, frame.position));
    (frame.named, module, origin.unwrap_or_default())
}

/// Line of a frame, counted from the declaration of its function; none where either is not told.
fn line_of(profile: &SymbolizedProfile, (named, _, origin): &Kind) -> Option<i64> {
    let place = profile.frame(*named).place;
    let is_known = place.line > 0 && origin.line > 0 && place.file == origin.file;
    is_known.then(|| i64::from(place.line) - i64::from(origin.line))
}

fn key_of(
    profile: &SymbolizedProfile,
    frame: &SymbolizedFrame,
    apart: Apart,
    modules: &ComparedModules,
) -> Option<FunctionKey> {
    let (path, name) = (profile.text(frame.module), profile.text(frame.name));
    let module = modules.get(path);
    let resolution = module.map_or(Resolution::Inlined, |module| module.resolution);
    if resolution == Resolution::Symbols && frame.inlined {
        return None;
    }
    let short = modules.name(path);
    let name = if frame.reason.is_some() || resolution == Resolution::Whole {
        format!("[{}]+?", short.trim_matches(['[', ']']))
    } else {
        let keep_numbers = module.is_some_and(|module| module.is_same);
        canonical(
            name,
            KeyOptions {
                keep_numbers,
                ..apart.key
            },
        )
    };
    Some(FunctionKey {
        name,
        module: apart.by_module.then_some(short),
        kernel: frame.kernel,
        ..FunctionKey::default()
    })
}

/// What tells a function from others of its name.
fn namesake(profile: &SymbolizedProfile, keyed: &Keyed, modules: &ComparedModules) -> Namesake {
    let (named, build, origin) = keyed.kind;
    let frame = profile.frame(named);
    let module = modules.get(profile.text(frame.module));
    let is_same = module.is_some_and(|module| module.is_same)
        && !keyed.key.name.starts_with('[')
        && frame.reason.is_none();
    let name = profile.text(frame.name);
    let numbers = parent_of(&keyed.key.name).map(|_| numbers_in(name));
    // A part or a copy of a function has an address of its own.
    Namesake {
        kind: keyed.kind,
        build,
        is_new: build.is_some_and(|build| modules.is_new(build)),
        is_same,
        numbers: numbers.unwrap_or_default(),
        entry: (is_same && origin.entry > 0 && !has_suffixes(name)).then_some(origin.entry),
    }
}
