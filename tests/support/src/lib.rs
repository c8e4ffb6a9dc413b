//! Workloads, oracles and comparisons that the tests of all crates share.
