//! Version 4 of record kinds. Only stack copies have one.

pub(crate) mod copies;
#[cfg(test)]
mod hostile;

/// Version of every kind in this module.
pub(crate) const VERSION: u8 = 4;
