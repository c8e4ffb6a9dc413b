//! Which offsets of which modules there are frames at.

use rawstack_format::id::FileOffset;

use crate::profile::Profile;
use crate::profile::tree::{Jit, TreeFrame};
use crate::resolve::file_offset::lookup_offset;

/// For each module the offsets of its frames in user space as they were recorded, sorted and without repetition.
pub(super) fn user_offsets(profile: &Profile) -> Vec<Vec<FileOffset>> {
    offsets_of(profile, &|frame| (!frame.kernel).then_some(frame.offset))
}

/// For each module its offsets to look up, sorted and without repetition.
pub(super) fn wanted_offsets(profile: &Profile) -> Vec<Vec<FileOffset>> {
    offsets_of(profile, &|frame| {
        let is_known = frame.jit == Jit::No;
        is_known.then(|| lookup_offset(frame.offset, frame.kind))
    })
}

fn offsets_of(
    profile: &Profile,
    offset: &dyn Fn(&TreeFrame) -> Option<FileOffset>,
) -> Vec<Vec<FileOffset>> {
    let mut offsets = vec![Vec::new(); profile.tree.modules().len()];
    for frame in profile.tree.frames() {
        if let Some(of_module) = offsets.get_mut(frame.module.index()) {
            of_module.extend(offset(frame));
        }
    }
    for of_module in &mut offsets {
        of_module.sort_unstable();
        of_module.dedup();
    }
    offsets
}
