//! Stack capture in the Linux kernel: BPF programs and their safe wrapper.
