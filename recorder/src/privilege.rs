//! What this process may do, and giving it up. Capabilities belong to threads: each calls for itself.

use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::{fs, io};

use rawstack_bpf::hooking_needs_bpf;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use crate::seccomp;

/// What reading `/proc` and the mapped files of others takes.
pub(crate) const READING: CapabilitySet = CapabilitySet::SYS_PTRACE
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::CHECKPOINT_RESTORE);

/// What creating archives in a folder of another user takes, and removing old ones.
pub(crate) const CREATING: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::FOWNER);

/// What counting on a CPU takes, by this host's settings.
pub(crate) fn counting() -> CapabilitySet {
    let mut list = perf_capability();
    if hooking_needs_bpf() {
        list |= CapabilitySet::BPF;
    }
    list
}

/// What opening a perf event takes: distributions have settings above 2, which want more.
pub(crate) fn perf_capability() -> CapabilitySet {
    if perf_event_paranoid() > 2 {
        CapabilitySet::SYS_ADMIN
    } else {
        CapabilitySet::PERFMON
    }
}

/// `kernel.perf_event_paranoid`: what may be done without being privileged, -1 (all) to 4.
pub(crate) fn perf_event_paranoid() -> i32 {
    let text = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    text.trim().parse().unwrap_or(2)
}

/// Give up every capability and all that is not needed to read what is open and to write the archive, for good. Other
/// threads must have been started by [`spawn_without`]. What is to be said where a kernel or a container has no filters.
pub(crate) fn give_up() -> io::Result<Option<String>> {
    keep_only(CapabilitySet::empty())?;
    let refused = seccomp::restrict().err();
    Ok(refused.map(|error| {
        format!(
            "no filter of system calls can be set here ({error}): all other rights are given up"
        )
    }))
}

/// Start a thread that has given up every capability before this returns; it must not need any.
pub(crate) fn spawn_without(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (ready, is_ready) = sync_channel(1);
    let run = move || {
        _ = ready.send(keep_only(CapabilitySet::empty()));
        run();
    };
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run)?;
    let gone = || Err(io::ErrorKind::BrokenPipe.into());
    is_ready.recv().unwrap_or_else(|_| gone())?;
    Ok(thread)
}

/// What this thread could use now.
pub(crate) fn held() -> CapabilitySet {
    capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted)
}

/// Give up all capabilities but these, and the way to gain any by executing a program. What this thread starts from
/// now on has the same.
pub(crate) fn keep_only(list: CapabilitySet) -> io::Result<()> {
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match capability_is_in_bounding_set(capability) {
            // Only who has CAP_SETPCAP can: without it, no_new_privs has to do.
            Ok(true) if !list.contains(capability) => {
                _ = remove_capability_from_bounding_set(capability);
            }
            Ok(_) => {}
            Err(_) => break, // beyond the last that the kernel knows
        }
    }
    clear_ambient_capability_set()?;
    let kept = held().intersection(list);
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: kept,
        },
    )?;
    // A user other than root keeps them over exec only as ambient ones.
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if kept.contains(capability) {
            configure_capability_in_ambient_set(capability, true)?;
        }
    }
    set_no_new_privs(true)?;
    Ok(())
}

/// Their names, as in capabilities(7).
pub(crate) fn names(set: CapabilitySet) -> Vec<String> {
    set.iter_names()
        .map(|(name, _)| format!("CAP_{name}"))
        .collect()
}
