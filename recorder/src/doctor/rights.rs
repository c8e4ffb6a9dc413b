//! What this process may do.

use std::fs;

use rustix::process::{Resource, getrlimit};
use rustix::thread::CapabilitySet;

use super::{Check, Verdict};
use crate::helper::Helper;
use crate::kernel::KernelMap;
use crate::privilege::{READING, held, names, perf_capability, perf_event_paranoid};

const ACTIONS: &str = "/proc/sys/kernel/seccomp/actions_avail";
/// What `CAP_SYS_ADMIN` comprises.
const ADMIN: CapabilitySet = CapabilitySet::BPF
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::CHECKPOINT_RESTORE);

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check::needed("capabilities to record", to_record()),
        Check::wanted("capabilities to see all", to_see_all()),
        Check::wanted("kernel symbols", kernel_symbols()),
        Check::wanted("locked memory", locked_memory()),
        Check::needed("helper process", helper()),
        Check::wanted("system call filter", filter()),
    ]
}

/// Those of `wanted` that are not held.
fn lacking(wanted: CapabilitySet) -> CapabilitySet {
    let held = held();
    let implied = if held.contains(CapabilitySet::SYS_ADMIN) {
        ADMIN
    } else {
        CapabilitySet::empty()
    };
    wanted.difference(held.union(implied))
}

/// How to get capabilities.
fn cure(lacking: CapabilitySet) -> String {
    let list = names(lacking).join(",").to_lowercase();
    format!("run as root, or: setcap {list}+ep rawstack-record")
}

fn to_record() -> Verdict {
    let lacking = lacking(CapabilitySet::BPF | perf_capability());
    let setting = format!("kernel.perf_event_paranoid is {}", perf_event_paranoid());
    let why = format!(
        "no {}; {setting}; {}",
        names(lacking).join(", "),
        cure(lacking)
    );
    Verdict::when(lacking.is_empty(), setting.clone(), why)
}

fn to_see_all() -> Verdict {
    let wanted = READING | CapabilitySet::SYSLOG;
    let lacking = lacking(wanted);
    let why = format!(
        "no {}: files and mappings of other users, or kernel names, stay unknown; {}",
        names(lacking).join(", "),
        cure(lacking)
    );
    Verdict::when(lacking.is_empty(), names(wanted).join(", "), why)
}

fn kernel_symbols() -> Verdict {
    let is_hidden = KernelMap::read().is_hidden();
    let why = "their addresses are hidden; needs CAP_SYSLOG, or kernel.kptr_restrict 0";
    Verdict::when(!is_hidden, "/proc/kallsyms", why)
}

fn locked_memory() -> Verdict {
    if !rawstack_bpf::counts_locked_memory() {
        return Verdict::Works("programs and maps do not count against it".to_owned());
    }
    let limit = getrlimit(Resource::Memlock).current;
    let why = "this kernel counts programs and maps against the limit; ulimit -l unlimited";
    let is_enough = limit.is_none() || held().contains(CapabilitySet::SYS_RESOURCE);
    Verdict::when(is_enough, "unlimited", why)
}

fn helper() -> Verdict {
    let detail = "reads what belongs to others, with no more rights than that takes";
    Verdict::of(Helper::start().map(|_| ()), detail)
}

fn filter() -> Verdict {
    let actions = fs::read_to_string(ACTIONS).unwrap_or_default();
    let has = |action| actions.split_whitespace().any(|known| known == action);
    let why = "the kernel has none; CONFIG_SECCOMP_FILTER=y";
    let detail = "restricts the recorder once it records";
    Verdict::when(has("errno") && has("allow"), detail, why)
}
