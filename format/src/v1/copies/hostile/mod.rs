//! Tests: copies of stacks that are laid out well and say what no writer says.

use std::time::{Duration, Instant};

use rkyv::util::AlignedVec;

use super::StackCopiesRoot;
use crate::chunk::Kind;
use crate::error::Invalid;
use crate::v1::{decode, to_bytes};

mod memory;
mod returns;
mod spans;

/// Something that no writer says.
type Change = fn(&mut StackCopiesRoot);

/// Change a sound root, read it and give the reason why it is refused.
fn refusal(
    mut root: StackCopiesRoot,
    change: impl FnOnce(&mut StackCopiesRoot),
) -> Option<Invalid> {
    change(&mut root);
    let raw = to_bytes(&root, AlignedVec::new()).unwrap();
    let start = Instant::now();
    let refusal = decode(Kind::STACK_COPIES, &raw).err();
    assert!(start.elapsed() < Duration::from_millis(100));
    refusal
}
