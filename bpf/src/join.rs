//! Brings samples and their user halves together. Generic in what waits and in what it waits for.

use std::iter::Chain;
use std::{mem, option, vec};

use hashbrown::HashMap;

/// Threads whose last outcome is kept at least, for samples that come behind it.
const RECENT: usize = 32 << 10;

/// Samples that wait for the user half of their owner.
///
/// A sample can also come *behind* the user half it shares: a tick while the kernel is just leaving the callback. So
/// the last outcome of each thread is kept, for the threads seen last.
#[derive(Debug)]
pub struct Join<T, O> {
    waiting: HashMap<u64, Waiting<T>>,
    recent: HashMap<u32, (u64, O)>,
    older: HashMap<u32, (u64, O)>,
}

/// What waits for one owner.
#[derive(Debug)]
struct Waiting<T> {
    tid: u32,
    items: Items<T>,
}

/// What waited for one owner, in the order in which it came. Mostly it is one: that needs no memory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Items<T> {
    first: Option<T>,
    more: Vec<T>,
}

impl<T> Items<T> {
    fn none() -> Self {
        Self {
            first: None,
            more: Vec::new(),
        }
    }

    fn push(&mut self, item: T) {
        match &self.first {
            None => self.first = Some(item),
            Some(_) => self.more.push(item),
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.more)
    }

    fn retain(&mut self, mut keep: impl FnMut(&mut T) -> bool) {
        self.more.retain_mut(&mut keep);
        if !self.first.as_mut().is_some_and(keep) {
            self.first = (!self.more.is_empty()).then(|| self.more.remove(0));
        }
    }
}

impl<T> IntoIterator for Items<T> {
    type Item = T;
    type IntoIter = Chain<option::IntoIter<T>, vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.more)
    }
}

impl<T, O> Default for Join<T, O> {
    fn default() -> Self {
        Self {
            waiting: HashMap::new(),
            recent: HashMap::new(),
            older: HashMap::new(),
        }
    }
}

impl<T, O: Clone> Join<T, O> {
    /// Let `item` wait for `owner`, a user half of thread `tid`. `Some`: it is there already.
    pub fn wait(&mut self, owner: u64, tid: u32, item: T) -> Option<(T, O)> {
        let outcome = [&self.recent, &self.older]
            .into_iter()
            .find_map(|outcomes| outcomes.get(&tid));
        if let Some((id, outcome)) = outcome
            && *id == owner
        {
            return Some((item, outcome.clone()));
        }
        self.waiting
            .entry(owner)
            .or_insert_with(|| Waiting {
                tid,
                items: Items::none(),
            })
            .items
            .push(item);
        None
    }

    /// The user half of `owner` came: what waited for it, in the order in which it came.
    pub fn complete(&mut self, owner: u64, tid: u32, outcome: O) -> Items<T> {
        if self.recent.len() >= RECENT {
            self.older = mem::take(&mut self.recent);
        }
        self.recent.insert(tid, (owner, outcome));
        self.give_up(owner)
    }

    /// The user half of `owner` will never come: what waited for it.
    pub fn give_up(&mut self, owner: u64) -> Items<T> {
        let waiting = self.waiting.remove(&owner);
        waiting.map_or_else(Items::none, |waiting| waiting.items)
    }

    /// Whether anything waits for `owner`.
    pub fn waits_for(&self, owner: u64) -> bool {
        self.waiting.contains_key(&owner)
    }

    /// Owners that are waited for, with their threads, in no order.
    pub fn owners(&self) -> impl Iterator<Item = (u64, u32)> {
        self.waiting
            .iter()
            .map(|(&owner, waiting)| (owner, waiting.tid))
    }

    /// Put one item in the place of those that wait for each owner.
    pub fn replace_items(&mut self, mut join: impl FnMut(&Items<T>) -> T) {
        for waiting in self.waiting.values_mut() {
            let joined = join(&waiting.items);
            waiting.items = Items::none();
            waiting.items.push(joined);
        }
    }

    /// Change what waits, or forget it: then its owner is no longer waited for. In no order.
    pub fn retain(&mut self, mut keep: impl FnMut(&mut T) -> bool) {
        self.waiting.retain(|_, waiting| {
            waiting.items.retain(&mut keep);
            waiting.items.first.is_some()
        });
    }

    /// Give back the room of what was in it once.
    pub fn shrink(&mut self) {
        self.waiting.shrink_to(2 * self.waiting.len());
        self.recent.shrink_to(2 * self.recent.len());
        self.older.shrink_to(2 * self.older.len());
    }

    /// Change or forget the outcomes kept for samples that come behind them.
    pub fn retain_outcomes(&mut self, mut keep: impl FnMut(&mut O) -> bool) {
        self.recent.retain(|_, (_, outcome)| keep(outcome));
        self.older.retain(|_, (_, outcome)| keep(outcome));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that all samples of one kernel entry get the user half of the first.
    #[test]
    fn shared() {
        let mut join = Join::default();
        assert_eq!(join.wait(7, 1, "a"), None);
        assert_eq!(join.wait(7, 1, "b"), None);
        assert_eq!(join.wait(8, 2, "c"), None);
        assert!(join.complete(7, 1, "stack").into_iter().eq(["a", "b"]));
        assert_eq!(join.owners().collect::<Vec<_>>(), [(8, 2)]);
    }

    /// Check that a sample behind the user half it shares gets it, and one with a newer owner waits.
    #[test]
    fn behind() {
        let mut join = Join::default();
        join.wait(7, 1, "a");
        join.complete(7, 1, "stack");
        assert_eq!(join.wait(7, 1, "b"), Some(("b", "stack")));
        assert_eq!(join.wait(9, 1, "c"), None);
    }

    /// Check that what waits can be forgotten one by one, and that its owner goes with the last.
    #[test]
    fn forgotten() {
        let mut join = Join::default();
        for (owner, item) in [(7, 1), (7, 2), (7, 3), (8, 4)] {
            assert_eq!(join.wait(owner, 1, item), None);
        }
        join.retain(|item| {
            *item *= 10;
            *item % 20 == 0 && *item != 40
        });
        assert_eq!(join.owners().collect::<Vec<_>>(), [(7, 1)]);
        assert!(join.complete(7, 1, "stack").into_iter().eq([20]));
    }

    /// Check that the outcomes kept stay bounded, whatever number of threads comes by.
    #[test]
    fn bounded() {
        let mut join = Join::<(), u32>::default();
        for tid in 0..200_000 {
            join.complete(u64::from(tid), tid, tid);
        }
        assert!(join.recent.len() + join.older.len() <= 2 * RECENT);
        assert_eq!(join.wait(199_999, 199_999, ()), Some(((), 199_999)));
        join.retain_outcomes(|tid| *tid >= 199_990);
        join.shrink();
        assert!(join.recent.capacity() + join.older.capacity() < 100);
        assert_eq!(join.wait(199_999, 199_999, ()), Some(((), 199_999)));
    }
}
