//! Which stacks count by the names in them, and which frames of them are shown.

use regex_lite::Regex;

use crate::profile::Row;
use crate::symbolized::{Located, Stack, SymbolizedProfile};

/// A selection by names; an empty part selects everything.
#[derive(Clone, Debug, Default)]
pub struct NameFilter {
    /// Only stacks with a frame that matches.
    pub focus: Option<Regex>,
    /// Only stacks without a frame that matches.
    pub ignore: Option<Regex>,
    /// Leave out frames that match.
    pub hide: Option<Regex>,
}

/// A filter with its answers for every frame of one profile.
#[derive(Debug)]
pub struct Selected<'p> {
    profile: &'p SymbolizedProfile,
    focus: Option<Vec<bool>>,
    ignore: Option<Vec<bool>>,
    hide: Option<Vec<bool>>,
}

impl NameFilter {
    /// Ask each distinct frame once.
    pub fn of<'p>(&self, profile: &'p SymbolizedProfile) -> Selected<'p> {
        let ask = |regex: &Option<Regex>| {
            let regex = regex.as_ref()?;
            Some(
                profile
                    .frames()
                    .iter()
                    .map(|frame| regex.is_match(profile.text(frame.name)))
                    .collect(),
            )
        };
        Selected {
            profile,
            focus: ask(&self.focus),
            ignore: ask(&self.ignore),
            hide: ask(&self.hide),
        }
    }
}

impl Selected<'_> {
    /// Take the frames that are not shown out of `stack`; `false` where the whole stack does not count.
    pub fn choose(&self, stack: &mut Vec<Located>) -> bool {
        let matches = |answers: &[bool], frame: &Located| {
            answers
                .get(frame.named as usize)
                .is_some_and(|&answer| answer)
        };
        let any = |answers: &Vec<bool>| stack.iter().any(|frame| matches(answers, frame));
        if self.focus.as_ref().is_some_and(|focus| !any(focus))
            || self.ignore.as_ref().is_some_and(any)
        {
            return false;
        }
        if let Some(hide) = &self.hide {
            stack.retain(|frame| !matches(hide, frame));
        }
        true
    }

    /// Put the stack of `row` into `stack`, leaf first; `false` where the row does not count.
    pub fn stack(&self, row: &Row, stack: &mut Stack) -> bool {
        self.profile.stack(row, stack);
        let matches = |answers: &[bool], frame: u32| {
            answers.get(frame as usize).is_some_and(|&answer| answer)
        };
        let any = |answers: &Vec<bool>| stack.iter().any(|&frame| matches(answers, frame));
        if self.focus.as_ref().is_some_and(|focus| !any(focus))
            || self.ignore.as_ref().is_some_and(any)
        {
            return false;
        }
        if let Some(hide) = &self.hide {
            stack.retain(|&frame| !matches(hide, frame));
        }
        true
    }
}
