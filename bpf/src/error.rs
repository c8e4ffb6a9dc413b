//! What can go wrong between this crate and the kernel.

use std::{io, result};

/// `Result` with [`Error`].
pub type Result<T> = result::Result<T, Error>;

/// A failure at the kernel's edge.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel is older than the oldest that will do.
    #[error("failed to load the BPF programs: kernel {0} is too old; 5.8 or newer is needed")]
    TooOld(String),
    /// The kernel has no type information of its own.
    #[error(
        "failed to read /sys/kernel/btf/vmlinux: {0}; the kernel must be built with CONFIG_DEBUG_INFO_BTF=y, so that \
         the programs can find its structures"
    )]
    NoBtf(#[source] io::Error),
    /// The kernel's type information is none.
    #[error(
        "failed to read /sys/kernel/btf/vmlinux: {0}; a kernel whose type information is whole is needed"
    )]
    UnreadableBtf(#[source] io::Error),
    /// A BPF program or map was refused for want of permission.
    #[error(
        "failed to load the BPF programs: {error}; run as root, or with CAP_BPF and CAP_PERFMON (CAP_SYS_ADMIN where \
         kernel.perf_event_paranoid is above 2){limit}"
    )]
    LoadNotPermitted {
        /// What libbpf said.
        #[source]
        error: libbpf_rs::Error,
        /// What an old kernel wants besides, or nothing.
        limit: &'static str,
    },
    /// The kernel lets no BPF program read its memory.
    #[error(
        "failed to load the BPF programs: the kernel is locked down and lets none of them read its memory; boot with \
         lockdown=integrity or without lockdown"
    )]
    LockedDown,
    /// A BPF program was refused.
    #[error(
        "failed to load the BPF programs: {error}{verdict}; try another kernel, and report it with the version of this \
         one"
    )]
    Load {
        /// What libbpf said.
        #[source]
        error: libbpf_rs::Error,
        /// The kernel's last words, or nothing.
        verdict: String,
    },
    /// A BPF program could not be hooked in.
    #[error("failed to attach BPF program {program} to {place}: {error}")]
    Attach {
        /// Its name.
        program: &'static str,
        /// The tracepoint.
        place: String,
        /// What libbpf said.
        #[source]
        error: libbpf_rs::Error,
    },
    /// A program is missing: it was not asked for when the programs were loaded.
    #[error("failed to find the BPF program of {0}: it was not loaded")]
    NoProgram(&'static str),
    /// A descriptor could not be copied.
    #[error("failed to copy a descriptor: {0}")]
    Descriptor(#[source] io::Error),
    /// A map could not be read or written.
    #[error("failed to access BPF map {map}: {error}")]
    Map {
        /// Its name.
        map: &'static str,
        /// What libbpf said.
        #[source]
        error: libbpf_rs::Error,
    },
    /// A map could not be mapped into memory.
    #[error("failed to map BPF map {map}: {error}")]
    MapMemory {
        /// Its name.
        map: &'static str,
        /// The kernel's answer.
        #[source]
        error: io::Error,
    },
    /// A perf event was refused for want of permission.
    #[error(
        "failed to open perf event {event} on CPU {cpu}: {error}; run as root, or with CAP_PERFMON (CAP_SYS_ADMIN \
         where kernel.perf_event_paranoid is above 2)"
    )]
    PerfNotPermitted {
        /// Its name.
        event: String,
        /// CPU.
        cpu: u32,
        /// The kernel's answer.
        #[source]
        error: io::Error,
    },
    /// A perf event could not be used.
    #[error("failed to {action} perf event {event} on CPU {cpu}: {error}")]
    Perf {
        /// What was tried.
        action: &'static str,
        /// Its name.
        event: String,
        /// CPU.
        cpu: u32,
        /// The kernel's answer.
        #[source]
        error: io::Error,
    },
    /// The cgroups lie too far apart.
    #[error(
        "failed to filter by cgroup: the cgroups lie on more than {0} levels of their hierarchies; give fewer of them"
    )]
    TooManyLevels(usize),
    /// The kernel cannot tell two events apart.
    #[error(
        "failed to record event {event}: this kernel cannot tell several {kind} apart (5.15 and newer can, raw \
         tracepoints 6.10); record them one after the other"
    )]
    LoneEvent {
        /// The second.
        event: String,
        /// Of which there can be one only.
        kind: &'static str,
    },
    /// More events than there are numbers for.
    #[error("failed to record {0} events: there is room for {max}; take fewer", max = crate::source::MAX_EVENTS)]
    TooManyEvents(usize),
    /// A file of the kernel's could not be read.
    #[error("failed to read {path}: {error}")]
    Read {
        /// The file.
        path: &'static str,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// Waiting failed.
    #[error("failed to wait for events: {0}")]
    Wait(#[source] io::Error),
}

impl Error {
    /// Whether the CPU was offline by the time something was to be done on it.
    pub(crate) fn is_gone_cpu(&self) -> bool {
        matches!(self, Self::Perf { error, .. } if error.raw_os_error() == Some(libc::ENODEV))
    }

    /// `error` of the last attempt to do something with a perf event.
    pub(crate) fn perf(action: &'static str, event: &str, cpu: u32, error: io::Error) -> Self {
        let event = event.to_owned();
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => Self::PerfNotPermitted { event, cpu, error },
            _ => Self::Perf {
                action,
                event,
                cpu,
                error,
            },
        }
    }
}
