//! What the running kernel can. Knows no programs.

use std::result;
use std::{fs, io};

use libbpf_rs::ProgramType;

use crate::btf::{Btf, Kind as Type};
use crate::error::{Error, Result};
use crate::source::Kind;

const BTF: &str = "/sys/kernel/btf/vmlinux";
const RELEASE: &str = "/proc/sys/kernel/osrelease";
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

/// Whether this kernel can defer, as its type information says; `Err` with the reason if not. Fails where it cannot
/// record at all.
pub fn can_defer() -> Result<result::Result<(), &'static str>> {
    // The ring buffer came with 5.8.
    if is_before((5, 8)) {
        return Err(Error::TooOld(release()));
    }
    if lockdown().is_some_and(|level| level == "confidentiality") {
        return Err(Error::LockedDown);
    }
    let names: [&[u8]; 2] = [
        b"bpf_task_work_schedule_resume",
        b"bpf_task_work_schedule_resume_impl",
    ];
    Ok(
        match types(Type::Func, |name| names.contains(&name))?.is_empty() {
            true => Err("the kernel has no bpf_task_work (6.18 and newer)"),
            false => Ok(()),
        },
    )
}

/// How far the kernel is locked down: `none`, `integrity` or `confidentiality`; `None` where it does not say.
pub fn lockdown() -> Option<String> {
    locked_level(&fs::read_to_string(LOCKDOWN).ok()?).map(str::to_owned)
}

/// The one in brackets of `none [integrity] confidentiality`.
fn locked_level(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(level, _)| level)
}

/// Names of the tracepoints that this kernel has, without those of its modules, sorted.
pub fn tracepoints() -> Result<Vec<String>> {
    const PREFIX: &[u8] = b"btf_trace_";
    let found = types(Type::Typedef, |name| name.starts_with(PREFIX))?;
    let names = found.iter().filter_map(|name| name.strip_prefix(PREFIX));
    let names = names.filter_map(|name| String::from_utf8(name.to_vec()).ok());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    Ok(names)
}

/// Whether stacks can be copied: their mapping can be found, and be read page by page (5.17 and newer).
pub fn can_copy() -> bool {
    has_loops()
}

/// Names of the types of `kind` that this kernel has and `is_wanted` holds for.
fn types(kind: Type, is_wanted: impl FnMut(&[u8]) -> bool) -> Result<Vec<Vec<u8>>> {
    let mut btf = Btf::open(BTF).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Error::NoBtf(error),
        _ => Error::UnreadableBtf(error),
    })?;
    btf.names(kind, is_wanted).map_err(Error::UnreadableBtf)
}

/// Whether programs may loop with `bpf_loop` (5.17 and newer).
pub(crate) fn has_loops() -> bool {
    /// `BPF_FUNC_loop` of `include/uapi/linux/bpf.h`.
    const LOOP: u32 = 181;
    ProgramType::PerfEvent
        .is_helper_supported(LOOP)
        .unwrap_or(false)
}

/// Whether a program of this kind can ask what it was attached with (5.15 and newer; raw tracepoints: 6.10).
pub(crate) fn has_cookies(kind: Kind) -> bool {
    /// `BPF_FUNC_get_attach_cookie` of `include/uapi/linux/bpf.h`.
    const COOKIE: u32 = 174;
    let program = match kind {
        Kind::Tick => ProgramType::PerfEvent,
        Kind::Tracepoint => ProgramType::Tracepoint,
        Kind::Raw => ProgramType::RawTracepoint,
        Kind::Probe => ProgramType::Kprobe,
    };
    program.is_helper_supported(COOKIE).unwrap_or(false)
}

/// Frames at which the kernel cuts its own walks (`kernel.perf_event_max_stack`).
pub(crate) fn frame_limit() -> u32 {
    let text = fs::read_to_string("/proc/sys/kernel/perf_event_max_stack").unwrap_or_default();
    text.trim().parse().unwrap_or(127).min(128)
}

/// Whether hash maps may allocate within the scheduler (6.1 and newer, which have an allocator for that).
pub(crate) fn allocates_anywhere() -> bool {
    !is_before((6, 1))
}

/// Bytes of a kernel stack, `THREAD_SIZE`: arm64 has one page where pages are larger.
pub(crate) fn thread_size() -> u32 {
    crate::perf_event::page_size()
        .try_into()
        .unwrap_or(0)
        .max(16 << 10)
}

/// Whether maps and programs count against RLIMIT_MEMLOCK.
pub fn counts_locked_memory() -> bool {
    is_before((5, 11))
}

/// Whether hooking a program in takes CAP_BPF, as all of bpf() does before 5.19 where it is closed to ordinary users.
pub fn hooking_needs_bpf() -> bool {
    is_before((5, 19))
}

fn release() -> String {
    fs::read_to_string(RELEASE)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Whether the kernel is older; not where it does not say its version.
fn is_before(version: (u32, u32)) -> bool {
    parse_release(&release()).is_some_and(|running| running < version)
}

/// `5.10.0-46-amd64` as 5 and 10.
fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that versions compare as numbers, and that what is no version is not taken for an old one.
    #[test]
    fn releases() {
        assert_eq!(parse_release("5.10.0-46-cloud-amd64"), Some((5, 10)));
        assert_eq!(parse_release("7.3-rc1"), Some((7, 3)));
        assert!(parse_release("5.10.0") > Some((5, 8)));
        assert_eq!(parse_release("mine"), None);
        assert!(!is_before((2, 6)));
    }

    /// Check that the level is the one in brackets.
    #[test]
    fn locked_levels() {
        let level = locked_level("none [integrity] confidentiality\n");
        assert_eq!(level, Some("integrity"));
        assert_eq!(locked_level(""), None);
    }
}
