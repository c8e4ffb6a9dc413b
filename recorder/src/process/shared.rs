//! What many processes have in common: paths and build IDs of files, each in memory once.

use std::rc::Rc;

use hashbrown::HashMap;
use rawstack_format::id::BuildId;

use crate::program::Mapping;

/// Files that are known at most. What is forgotten is only in memory twice.
const MOST: usize = 8192;

/// Paths of files, with the build ID that a file of that path had last.
#[derive(Debug, Default)]
pub(super) struct Shared(HashMap<Rc<[u8]>, Option<Rc<BuildId>>>);

impl Shared {
    /// The same mapping, its path and build ID shared with all others that have them.
    pub(super) fn share(&mut self, mut mapping: Mapping) -> Mapping {
        let own = &mapping.build_id;
        if let Some((path, build_id)) = self.0.get_key_value(&mapping.path) {
            let path = Rc::clone(path);
            if build_id == own {
                mapping.build_id.clone_from(build_id);
            } else {
                self.0.insert(Rc::clone(&path), own.clone());
            }
            mapping.path = path;
            return mapping;
        }
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(Rc::clone(&mapping.path), own.clone());
        mapping
    }

    /// Forget what nobody has.
    pub(super) fn shrink(&mut self) {
        self.0.retain(|path, _| Rc::strong_count(path) > 1);
        self.0.shrink_to(2 * self.0.len());
    }
}

#[cfg(test)]
mod tests {
    use rawstack_bpf::NewMapping;

    use super::*;

    fn mapping(path: &str, build_id: u8) -> Mapping {
        let new = NewMapping {
            path: path.into(),
            build_id: Some(vec![build_id; 20]),
            ..NewMapping::default()
        };
        Mapping::from_side_band(new, 1)
    }

    /// Check that equal files are in memory once, that a file of the same path and another build ID keeps its own, and that
    /// what nobody has any more is forgotten.
    #[test]
    fn once() {
        let mut shared = Shared::default();
        let (first, second) = (
            shared.share(mapping("/a", 1)),
            shared.share(mapping("/a", 1)),
        );
        assert_eq!(first, second);
        assert!(Rc::ptr_eq(&first.path, &second.path));
        let replaced = shared.share(mapping("/a", 2));
        assert_eq!(replaced, mapping("/a", 2));
        assert!(Rc::ptr_eq(&first.path, &replaced.path));
        shared.share(mapping("/b", 3));
        shared.shrink();
        assert_eq!(shared.0.len(), 1);
    }

    /// Check that any number of paths leaves a bounded number known.
    #[test]
    fn bounded() {
        let mut shared = Shared::default();
        (0..50_000).for_each(|number| drop(shared.share(mapping(&format!("/{number}"), 1))));
        assert!(shared.0.len() <= MOST);
    }
}
