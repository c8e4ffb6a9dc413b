//! What the recorder may still ask the kernel for once all is attached: to read what is open, to write, to wait.
//!
//! No file is opened any more, nothing executed, no socket made, no thread started, no memory made executable. What
//! is not listed fails with EPERM.

use std::collections::BTreeMap;
use std::io;

use libc as c;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads,
};

/// Allowed whatever their arguments are.
const PLAIN: &[c::c_long] = &[
    // What is open.
    c::SYS_read,
    c::SYS_readv,
    c::SYS_pread64,
    c::SYS_write,
    c::SYS_writev,
    c::SYS_pwrite64,
    c::SYS_lseek,
    c::SYS_close,
    c::SYS_fcntl,
    c::SYS_fstat,
    c::SYS_fstatfs,
    c::SYS_fsync,
    c::SYS_fdatasync,
    c::SYS_ftruncate,
    // The helper.
    c::SYS_sendto,
    c::SYS_sendmsg,
    c::SYS_recvfrom,
    c::SYS_recvmsg,
    // Waiting, also for COMMAND.
    c::SYS_epoll_ctl,
    c::SYS_epoll_pwait,
    #[cfg(target_arch = "x86_64")]
    c::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")]
    c::SYS_poll,
    c::SYS_ppoll,
    c::SYS_futex,
    c::SYS_nanosleep,
    c::SYS_clock_nanosleep,
    c::SYS_restart_syscall,
    c::SYS_sched_yield,
    c::SYS_wait4,
    c::SYS_waitid,
    // Time, who we are, memory.
    c::SYS_clock_gettime,
    c::SYS_gettimeofday,
    c::SYS_getpid,
    c::SYS_gettid,
    c::SYS_getrusage,
    c::SYS_getrandom,
    c::SYS_sched_getaffinity,
    c::SYS_brk,
    c::SYS_munmap,
    c::SYS_mremap,
    c::SYS_madvise,
    // Signals, and the end.
    c::SYS_rt_sigaction,
    c::SYS_rt_sigprocmask,
    c::SYS_rt_sigreturn,
    c::SYS_sigaltstack,
    c::SYS_exit,
    c::SYS_exit_group,
];

/// `enum bpf_cmd` of `include/uapi/linux/bpf.h`.
const BPF_MAP_LOOKUP_ELEM: u64 = 1;
/// `PERF_EVENT_IOC_ENABLE`, `_DISABLE`, `_SET_BPF` of `include/uapi/linux/perf_event.h`.
const PERF_IOCTLS: [u64; 3] = [0x2400, 0x2401, 0x4004_2408];
/// `TCGETS`, `TCGETS2`, `TIOCGWINSZ`: whether it is a terminal, and how wide.
const TERMINAL_IOCTLS: [u64; 3] = [0x5401, 0x802c_542a, 0x5413];
/// `PR_SET_VMA`: the C library names its memory.
const PR_SET_VMA: u64 = 0x5356_4d41;
/// Signals that COMMAND may get, and the one of a program that gives up.
const SIGNALS: [c::c_int; 4] = [c::SIGTERM, c::SIGCONT, c::SIGKILL, c::SIGABRT];

/// Allow all threads of this process nothing beyond the list, for good. They must have `no_new_privs`.
pub(crate) fn restrict() -> io::Result<()> {
    let filter = filter().map_err(io::Error::other)?;
    apply_filter_all_threads(&filter).map_err(io::Error::other)
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        PLAIN.iter().map(|&call| (call, Vec::new())).collect();
    let masked = |mask: c::c_int| SeccompCmpOp::MaskedEq(number(mask));
    // No code is made.
    rules.insert(c::SYS_mmap, one(2, masked(c::PROT_EXEC), 0)?);
    rules.insert(c::SYS_mprotect, one(2, masked(c::PROT_EXEC), 0)?);
    // Of what is open, not of a path.
    let empty = number(c::AT_EMPTY_PATH);
    rules.insert(c::SYS_newfstatat, one(3, masked(c::AT_EMPTY_PATH), empty)?);
    rules.insert(c::SYS_statx, one(2, masked(c::AT_EMPTY_PATH), empty)?);
    // How long to wait for the helper.
    rules.insert(c::SYS_setsockopt, one_of(2, &[number(c::SO_RCVTIMEO)])?);
    rules.insert(
        c::SYS_ioctl,
        one_of(1, &[PERF_IOCTLS, TERMINAL_IOCTLS].concat())?,
    );
    rules.insert(
        c::SYS_prctl,
        one_of(0, &[number(c::PR_SET_NAME), PR_SET_VMA])?,
    );
    // What a thread owes, in deferred mode.
    rules.insert(c::SYS_bpf, one_of(0, &[BPF_MAP_LOOKUP_ELEM])?);
    rules.insert(c::SYS_kill, one_of(1, &SIGNALS.map(number))?);
    rules.insert(c::SYS_tgkill, one_of(2, &SIGNALS.map(number))?);
    let refuse = SeccompAction::Errno(u32::try_from(c::EPERM).unwrap_or(1));
    SeccompFilter::new(rules, refuse, SeccompAction::Allow, ARCH)?.try_into()
}

#[cfg(target_arch = "x86_64")]
const ARCH: TargetArch = TargetArch::x86_64;
#[cfg(target_arch = "aarch64")]
const ARCH: TargetArch = TargetArch::aarch64;

fn number(value: c::c_int) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// The call is allowed when the low 32 bits of an argument compare so with a value.
fn one(
    argument: u8,
    compare: SeccompCmpOp,
    value: u64,
) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compare, value)?;
    Ok(vec![SeccompRule::new(vec![condition])?])
}

/// The call is allowed when the low 32 bits of an argument are one of these values.
fn one_of(argument: u8, values: &[u64]) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let mut rules = Vec::new();
    for &value in values {
        rules.extend(one(argument, SeccompCmpOp::Eq, value)?);
    }
    Ok(rules)
}
