//! How the memory that the recorder may take is divided.

/// What the recorder takes in any case, in bytes: the kernel's symbols, what it knows of processes, the program itself.
const FIXED: u64 = 24 << 20;
/// Most memory that is given to the ring buffer, in bytes: half a second of 20 kHz on sixteen CPUs.
const MAX_RING: u64 = 64 << 20;
/// Least memory for the ring buffer, in bytes.
const LEAST_RING: u32 = 256 << 10;
/// Room for one sample a second, in bytes: two seconds of samples with a hundred frames in both halves.
const RING_BYTES_PER_HZ: u64 = 2 * 2048;
/// Bytes that a node of the stacks' tree takes in memory, its part of the frames' and of the indices included.
const NODE_BYTES: u64 = 48;

/// When an epoch's tables are full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableLimits {
    /// Nodes of the stacks' tree, and stacks.
    pub(crate) nodes: usize,
    /// Frames.
    pub(crate) frames: usize,
}

/// What each part may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// The kernel's ring buffer, in bytes: a power of two. It is mapped twice, and each page counts twice when used.
    pub(crate) ring_bytes: u32,
    /// Chunks that wait for the disk, in bytes.
    pub(crate) queue_bytes: u64,
    /// Chunks that a flight recorder holds, in bytes, where it is bounded by time.
    pub(crate) flight_bytes: u64,
    /// Tables.
    pub(crate) tables: TableLimits,
}

impl Budget {
    /// Divide what `max_memory` bytes leave. Parts count twice where they may be there twice: the ring buffer as it is
    /// mapped, tables while they grow.
    pub(crate) fn of(max_memory: u64) -> Self {
        let part = max_memory.saturating_sub(FIXED) / 5;
        let ring = part.clamp(1 << 20, MAX_RING);
        let nodes = usize::try_from(part / NODE_BYTES).unwrap_or(usize::MAX);
        Self {
            ring_bytes: 1u32 << ring.ilog2(),
            queue_bytes: part / 2,
            flight_bytes: part,
            tables: TableLimits {
                nodes: nodes.min(1 << 22),
                frames: (nodes / 4).min(1 << 20),
            },
        }
    }

    /// Bytes of the ring buffer for so many samples a second from all CPUs; `None`: that cannot be told.
    pub(crate) fn ring_for(&self, samples: Option<u64>) -> u32 {
        let needed = samples.map_or(u64::MAX, |samples| {
            samples.saturating_mul(RING_BYTES_PER_HZ)
        });
        let needed = needed.min(u64::from(self.ring_bytes));
        let ring = u32::try_from(needed).unwrap_or(u32::MAX);
        ring.next_power_of_two().max(LEAST_RING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a ring buffer is as large as the rate wants it, but within its part.
    #[test]
    fn ring_by_rate() {
        let budget = Budget::of(64 << 20);
        assert_eq!(budget.ring_for(Some(2 * 99)), 1 << 20);
        assert_eq!(budget.ring_for(Some(1)), LEAST_RING);
        assert_eq!(budget.ring_for(Some(2 * 20_000)), 8 << 20);
        assert_eq!(budget.ring_for(None), 8 << 20);
    }

    /// Check that the parts stay within the whole for any size, and that the ring buffer is a power of two.
    #[test]
    fn parts() {
        for mebibytes in [32, 33, 64, 100, 1000, 1 << 20] {
            let max_memory = mebibytes << 20;
            let budget = Budget::of(max_memory);
            let tables = budget.tables.nodes as u64 * NODE_BYTES;
            let ring = u64::from(budget.ring_bytes);
            assert!(budget.ring_bytes.is_power_of_two());
            let kept = budget.queue_bytes.max(budget.flight_bytes);
            let sum = FIXED + 2 * ring + kept + 2 * tables;
            assert!(sum <= max_memory, "{mebibytes} MiB: {budget:?}");
        }
        assert_eq!(Budget::of(64 << 20).ring_bytes, 8 << 20);
    }
}
