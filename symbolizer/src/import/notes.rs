//! What of a recording is not in the archive, and what should be known of what is.

use super::perf_data::Account;

/// Counts of what was left out.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeftOut {
    /// Copies of user stacks (`--call-graph dwarf`).
    pub(super) stack_copies: u64,
    /// Branches beside samples.
    pub(super) branches: u64,
    /// Samples of virtual machines that this host ran.
    pub(super) guests: u64,
    /// User halves that came later than their samples.
    pub(super) deferred: u64,
    /// Samples of events without addresses.
    pub(super) placeless: u64,
    /// Times that the kernel sampled less, since there was too much.
    pub(super) throttled: u64,
    /// Kernel frames.
    pub(super) kernel_frames: u64,
    /// Frames in memory that no file is behind.
    pub(super) made_code: u64,
    /// User frames in files without a build ID.
    pub(super) no_build_id: u64,
}

/// What is known of the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelKnown {
    pub(super) start: bool,
    pub(super) symbols: bool,
    pub(super) build_id: bool,
}

/// A line for each.
pub(super) fn lines(
    left: &LeftOut,
    account: Account,
    late: u64,
    kernel: KernelKnown,
) -> Vec<String> {
    let mut lines = Vec::new();
    let mut tell = |count: u64, text: &str| {
        if count > 0 {
            lines.push(text.replace("{}", &count.to_string()));
        }
    };
    tell(
        left.stack_copies,
        "{} copies of user stacks (--call-graph dwarf) are left out: their samples have the frames of frame pointers alone",
    );
    tell(
        left.branches,
        "branches beside {} samples are left out: their samples keep their own stacks",
    );
    tell(
        left.guests,
        "{} samples of virtual machines are left out: record inside of them",
    );
    tell(
        left.deferred,
        "user halves of {} samples came later than their samples and are left out",
    );
    tell(
        left.placeless,
        "{} samples of events without addresses are left out",
    );
    tell(
        left.throttled,
        "the kernel throttled sampling {} times: there are gaps",
    );
    tell(
        account.aux_bytes,
        "{} bytes of hardware traces are left out: `perf inject --itrace` makes samples of them",
    );
    tell(
        account.damaged,
        "{} records could not be read and are left out",
    );
    tell(late, "{} records came too late and are out of order");
    tell(
        account.is_cut.into(),
        "the recording ends before its end: what is whole is taken",
    );
    tell(
        left.made_code,
        "{} user frames are in code without a file: names of JIT-compiled code are not in perf.data; use `perf inject --jit` before, or rawstack record",
    );
    tell(
        left.no_build_id,
        "{} distinct frames are in files without a build ID in perf.data: they can only be named on this machine; record with `perf record --buildid-mmap`, or without -B",
    );
    if left.kernel_frames > 0 && !kernel.symbols {
        let how = match (kernel.start, kernel.build_id) {
            (false, _) => {
                "and of this architecture not where its text starts: they have no names; give --kallsyms"
            }
            (true, true) => {
                "so a vmlinux with its build ID names them; or give --kallsyms FILE with /proc/kallsyms of that boot"
            }
            (true, false) => {
                "and no build ID of it: give --kallsyms FILE with /proc/kallsyms of that boot"
            }
        };
        lines.push(format!("perf.data has no symbols of the kernel, {how}"));
    }
    lines
}
