//! For each code address the functions of its frames, told apart where they share a name. Knows no names and no stacks.

use foldhash::HashMap;

pub use crate::resolve::Origin;

/// Origins of the frames of all code addresses, each distinct one once.
#[derive(Debug, Default)]
pub struct Origins {
    distinct: Vec<Origin>,
    index: HashMap<Origin, u32>,
    /// For each code address where its frames begin in `frames`.
    starts: Vec<u32>,
    /// Numbers of distinct origins, innermost frame first.
    frames: Vec<u32>,
}

impl Origins {
    /// Add the next code address; `chain` is of its frames, innermost first.
    pub(crate) fn push(&mut self, chain: impl IntoIterator<Item = Origin>) {
        let start = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
        self.starts.push(start);
        for origin in chain {
            let next = u32::try_from(self.distinct.len()).unwrap_or(u32::MAX);
            let number = *self.index.entry(origin).or_insert(next);
            if number == next {
                self.distinct.push(origin);
            }
            self.frames.push(number);
        }
    }

    /// The origin of frame number `position` at code address number `place`, counted from the innermost.
    pub fn get(&self, place: u32, position: u32) -> Origin {
        let place = place as usize;
        let start = self.starts.get(place).copied().unwrap_or(u32::MAX) as usize;
        let end = self.starts.get(place.saturating_add(1));
        let end = end.map_or(self.frames.len(), |end| *end as usize);
        let chain = self.frames.get(start..end).unwrap_or_default();
        let number = chain.get(position as usize);
        let origin = number.and_then(|number| self.distinct.get(*number as usize));
        origin.copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that each frame of each address has its own origin, and what is in none has the one that says nothing.
    #[test]
    fn chains_of_addresses() {
        let origin = |entry| Origin {
            entry,
            ..Origin::default()
        };
        let mut origins = Origins::default();
        origins.push([origin(1), origin(2)]);
        origins.push([]);
        origins.push([origin(2)]);
        let entries = |place| [0, 1, 2].map(|position| origins.get(place, position).entry);
        assert_eq!(entries(0), [1, 2, 0]);
        assert_eq!(entries(1), [0, 0, 0]);
        assert_eq!((entries(2), entries(3)), ([2, 0, 0], [0, 0, 0]));
    }
}
