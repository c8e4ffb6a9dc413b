//! The two halves of a sample's stack, out of perf's one list with markers in it.

use linux_perf_event_reader::{CpuMode, SampleRecord};

/// Entries from here on say whose the next ones are.
const CONTEXT_MAX: u64 = 0u64.wrapping_sub(4095);
const CONTEXT_KERNEL: u64 = 0u64.wrapping_sub(128);
const CONTEXT_USER: u64 = 0u64.wrapping_sub(512);
const CONTEXT_USER_DEFERRED: u64 = 0u64.wrapping_sub(640);
/// Frames of one half that are kept.
const MAX_FRAMES: usize = 4096;
/// Number of the instruction pointer among perf's registers.
const X86_IP: u64 = 8;
const ARM64_PC: u64 = 32;

/// The two halves, leaf first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Halves {
    pub(super) kernel: Vec<u64>,
    pub(super) user: Vec<u64>,
    /// Entries of the list, markers left out.
    pub(super) entries: usize,
    /// One half has more frames than are kept.
    pub(super) is_cut: bool,
    /// The user half comes later.
    pub(super) is_deferred: bool,
    /// It is of a virtual machine.
    pub(super) is_guest: bool,
}

/// Whose the next entries are.
#[derive(Clone, Copy)]
enum Side {
    Kernel,
    User,
    Other,
}

impl Halves {
    /// The halves of `sample`, of a machine of architecture `arch`.
    pub(super) fn of(sample: &SampleRecord<'_>, arch: Option<&str>) -> Self {
        let chain = sample.callchain;
        let entries = (0..chain.map_or(0, |chain| chain.len()))
            .filter_map(|index| chain.and_then(|chain| chain.get(index)));
        let mut halves = Self::split(entries, sample.cpu_mode);
        if let Some(ip) = sample
            .ip
            .filter(|_| halves.kernel.is_empty() && halves.user.is_empty())
        {
            match sample.cpu_mode {
                CpuMode::Kernel => halves.kernel.push(ip),
                CpuMode::User | CpuMode::Unknown => halves.user.push(ip),
                _ => {}
            }
        }
        if let Some(registers) = sample.user_regs.as_ref().filter(|_| halves.user.is_empty()) {
            let ip = match arch {
                Some("aarch64") => registers.get(ARM64_PC),
                Some(arch) if arch.contains("86") => registers.get(X86_IP),
                _ => None,
            };
            halves.user.extend(ip.filter(|&ip| ip != 0));
        }
        halves
    }

    fn split(entries: impl Iterator<Item = u64>, mode: CpuMode) -> Self {
        let mut halves = Self {
            is_guest: matches!(mode, CpuMode::GuestKernel | CpuMode::GuestUser),
            ..Self::default()
        };
        let mut side = match mode {
            CpuMode::Kernel => Side::Kernel,
            CpuMode::User | CpuMode::Unknown => Side::User,
            _ => Side::Other,
        };
        for entry in entries {
            if entry >= CONTEXT_MAX {
                halves.is_deferred |= entry == CONTEXT_USER_DEFERRED;
                side = match entry {
                    CONTEXT_KERNEL => Side::Kernel,
                    CONTEXT_USER => Side::User,
                    // Behind the mark of a deferred half stands its number.
                    _ => Side::Other,
                };
                continue;
            }
            halves.entries += 1;
            let half = match side {
                Side::Kernel => &mut halves.kernel,
                Side::User => &mut halves.user,
                Side::Other => continue,
            };
            if half.len() < MAX_FRAMES {
                half.push(entry);
            } else {
                halves.is_cut = true;
            }
        }
        halves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that markers divide the list, that what stands before the first goes by the mode, and that what is neither
    /// the kernel's nor the program's is left out.
    #[test]
    fn markers() {
        let list = [
            1,
            CONTEXT_USER,
            2,
            3,
            CONTEXT_KERNEL,
            4,
            0u64.wrapping_sub(2048),
            5,
        ];
        let halves = Halves::split(list.into_iter(), CpuMode::Kernel);
        assert_eq!((halves.kernel, halves.user), (vec![1, 4], vec![2, 3]));
        assert_eq!(halves.entries, 5);
        let deferred = Halves::split([CONTEXT_USER_DEFERRED, 9].into_iter(), CpuMode::User);
        assert!(deferred.is_deferred && deferred.user.is_empty());
        let many = Halves::split((0..5000).map(|n| n + 1), CpuMode::User);
        assert_eq!((many.user.len(), many.is_cut), (MAX_FRAMES, true));
    }
}
