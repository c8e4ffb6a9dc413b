//! Facts that change: the present ones, and those before them as long as samples may ask for them.

use std::mem;

/// States that are kept of one thing: the latest. A program may rename itself without end.
const MAX_STATES: usize = 16;

/// Facts, and when they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State<T> {
    /// Since when they hold, monotonic clock; 0: before anything was known.
    pub(crate) since_ns: u64,
    /// Number of this state, higher than that of any before it.
    pub(crate) version: u32,
    /// The facts.
    pub(crate) facts: T,
}

/// All states that are kept, in the order of time. There is always one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct History<T> {
    past: Vec<State<T>>,
    now: State<T>,
}

impl<T: Default> Default for History<T> {
    fn default() -> Self {
        Self::new(0, T::default())
    }
}

impl<T> History<T> {
    /// Facts that hold from `since_ns` on.
    pub(crate) fn new(since_ns: u64, facts: T) -> Self {
        Self {
            past: Vec::new(),
            now: State {
                since_ns,
                version: 0,
                facts,
            },
        }
    }

    /// The present facts.
    pub(crate) fn now(&self) -> &T {
        &self.now.facts
    }

    /// Number of the present state.
    pub(crate) fn version(&self) -> u32 {
        self.now.version
    }

    /// Other facts hold from `since_ns` on.
    pub(crate) fn change(&mut self, since_ns: u64, facts: T)
    where
        T: Default + PartialEq,
    {
        let is_nothing = self.past.is_empty() && self.now.facts == T::default();
        let next = State {
            since_ns,
            version: self.now.version.wrapping_add(1),
            facts,
        };
        if self.past.len() + 1 >= MAX_STATES {
            self.past.remove(0);
        }
        let before = mem::replace(&mut self.now, next);
        if !is_nothing {
            // There are some for each process, and most never have a second: no room for four.
            self.past.reserve_exact(1);
            self.past.push(before);
        }
    }

    /// Put right what was said from `since_ns` on.
    pub(crate) fn amend(&mut self, since_ns: u64, put_right: impl Fn(&mut T)) {
        let states = self.past.iter_mut().chain([&mut self.now]);
        let later = states.filter(|state| state.since_ns >= since_ns);
        later.for_each(|state| put_right(&mut state.facts));
    }

    /// The states behind `version`; where none of them is known, those that hold at `time_ns` or later.
    pub(crate) fn behind(
        &self,
        version: Option<u32>,
        time_ns: u64,
    ) -> impl Iterator<Item = &State<T>> {
        let then = self
            .past
            .iter()
            .rposition(|state| state.since_ns <= time_ns);
        let first = match version {
            _ if self.now.since_ns <= time_ns && version.is_none() => self.past.len(),
            Some(version) => self.past.partition_point(|state| state.version <= version),
            None => then.unwrap_or(0),
        };
        let past = self.past.get(first..).unwrap_or_default();
        past.iter()
            .chain((version != Some(self.now.version)).then_some(&self.now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> History<&'static str> {
        let mut history = History::new(10, "a");
        history.change(20, "b");
        history.change(30, "c");
        history
    }

    fn behind(version: Option<u32>, time_ns: u64) -> Vec<&'static str> {
        let history = history();
        history
            .behind(version, time_ns)
            .map(|state| state.facts)
            .collect()
    }

    /// Check that what was not told yet is told once, in the order of time.
    #[test]
    fn told_once() {
        assert_eq!(behind(Some(0), 0), ["b", "c"]);
        assert_eq!(behind(Some(1), 0), ["c"]);
        assert_eq!(behind(Some(2), 0), [""; 0]);
    }

    /// Check that who knows nothing is told what holds at a time and after it.
    #[test]
    fn told_from_a_time_on() {
        assert_eq!(behind(None, 5), ["a", "b", "c"]);
        assert_eq!(behind(None, 25), ["b", "c"]);
        assert_eq!(behind(None, 30), ["c"]);
    }

    /// Check that the latest are kept, whatever their number.
    #[test]
    fn bounded() {
        let mut history = history();
        (0..1000).for_each(|time| history.change(time, "x"));
        assert_eq!(history.behind(None, 0).count(), MAX_STATES);
        assert_eq!(history.version(), 1002);
    }
}
