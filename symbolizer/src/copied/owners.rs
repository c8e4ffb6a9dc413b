//! What came of the copies of the batch at hand, and of the last one of each thread: samples can come behind the user half
//! that they share. Knows no stacks.

use foldhash::HashMap;
use rawstack_format::id::StackId;

/// Threads whose last user half is remembered.
const MAX_THREADS: usize = 1 << 16;

/// Outcomes by owner.
#[derive(Debug)]
pub(crate) struct Owners<H> {
    held: HashMap<StackId, H>,
    last: HashMap<(u32, u32), StackId>,
}

impl<H> Default for Owners<H> {
    fn default() -> Self {
        Self {
            held: HashMap::default(),
            last: HashMap::default(),
        }
    }
}

impl<H: Copy> Owners<H> {
    /// The copies of another batch come: of those before only each thread's last is kept.
    pub(crate) fn next_batch(&mut self) {
        let kept = self.last.values();
        let kept = kept.filter_map(|owner| Some((*owner, *self.held.get(owner)?)));
        self.held = kept.collect();
        if self.last.len() > MAX_THREADS {
            self.last.clear();
        }
    }

    /// Take what came of the copy of `owner`, a user half of thread `task`.
    pub(crate) fn add(&mut self, owner: StackId, task: (u32, u32), held: H) {
        self.held.insert(owner, held);
        self.last.insert(task, owner);
    }

    /// What came of the copy of `owner`.
    pub(crate) fn get(&self, owner: StackId) -> Option<H> {
        self.held.get(&owner).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that of earlier batches each thread's last outcome is known, and no other.
    #[test]
    fn last_of_each_thread() {
        let mut owners = Owners::default();
        for (owner, tid) in [(1, 7), (2, 8), (3, 7)] {
            owners.add(StackId(owner), (7, tid), owner);
        }
        owners.next_batch();
        let known = [1, 2, 3].map(|owner| owners.get(StackId(owner)));
        assert_eq!(known, [None, Some(2), Some(3)]);
    }
}
