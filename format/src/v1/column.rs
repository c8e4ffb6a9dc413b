//! Columns: numbers as byte planes, and the transforms that make them small. Knows nothing of rows.
//!
//! A column of `n` numbers is `width × n` bytes: first the lowest byte of every number, then the next one, and so on up
//! to the highest that is not zero everywhere. A column of zeros takes no byte. So each plane holds bytes of one nature,
//! and zstd finds runs and skewed bytes where rows would hide them.

use crate::error::Invalid;

/// Pack numbers as byte planes.
pub(crate) fn pack<T: Into<u64>>(values: impl IntoIterator<Item = T>) -> Vec<u8> {
    let values: Vec<u64> = values.into_iter().map(T::into).collect();
    let all = values.iter().fold(0, |all, value| all | value);
    let width = (u64::BITS - all.leading_zeros()).div_ceil(8) as usize;
    let mut bytes = Vec::with_capacity(width * values.len());
    for plane in 0..width {
        let byte = |value: &u64| (value >> (plane * 8) & 0xff) as u8;
        bytes.extend(values.iter().map(byte));
    }
    bytes
}

/// Unpack `rows` numbers. The caller has bounded `rows`.
pub(crate) fn unpack(bytes: &[u8], rows: usize) -> Result<Vec<u64>, Invalid> {
    let mut values = vec![0_u64; rows];
    if bytes.is_empty() {
        return Ok(values);
    }
    if rows == 0 || !bytes.len().is_multiple_of(rows) || bytes.len() / rows > 8 {
        return Err(Invalid::Column);
    }
    for (plane, bytes) in bytes.chunks_exact(rows).enumerate() {
        for (value, &byte) in values.iter_mut().zip(bytes) {
            *value |= u64::from(byte) << (plane * 8);
        }
    }
    Ok(values)
}

/// Unpack `rows` numbers that fit a `T`.
pub(crate) fn unpack_as<T: TryFrom<u64>>(bytes: &[u8], rows: usize) -> Result<Vec<T>, Invalid> {
    unpack(bytes, rows)?.into_iter().map(narrow).collect()
}

/// A number as a smaller type.
pub(crate) fn narrow<T: TryFrom<u64>>(value: u64) -> Result<T, Invalid> {
    T::try_from(value).map_err(|_| Invalid::Column)
}

/// The wrapping difference `to - from` with its sign in the lowest bit, so that small differences are small numbers.
pub(crate) fn difference(from: u64, to: u64) -> u64 {
    let difference = to.wrapping_sub(from).cast_signed();
    (difference << 1 ^ difference >> 63).cast_unsigned()
}

/// Undo [`difference`].
pub(crate) fn apply(from: u64, difference: u64) -> u64 {
    from.wrapping_add(difference >> 1 ^ (difference & 1).wrapping_neg())
}

/// [`difference`] of 32-bit numbers, which wraps at 32 bits.
pub(crate) fn difference32(from: u32, to: u32) -> u32 {
    let difference = to.wrapping_sub(from).cast_signed();
    (difference << 1 ^ difference >> 31).cast_unsigned()
}

/// Undo [`difference32`].
pub(crate) fn apply32(from: u32, difference: u32) -> u32 {
    from.wrapping_add(difference >> 1 ^ (difference & 1).wrapping_neg())
}

/// Pack each number as its difference to the one before, the first to 0.
pub(crate) fn pack_deltas(values: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut last = 0;
    pack(values.into_iter().map(|value| {
        let delta = difference(last, value);
        last = value;
        delta
    }))
}

/// Undo [`pack_deltas`].
pub(crate) fn unpack_deltas(bytes: &[u8], rows: usize) -> Result<Vec<u64>, Invalid> {
    let mut values = unpack(bytes, rows)?;
    let mut last = 0;
    for value in &mut values {
        *value = apply(last, *value);
        last = *value;
    }
    Ok(values)
}

/// [`pack_deltas`] for 32-bit numbers.
pub(crate) fn pack_deltas32(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let mut last = 0;
    pack(values.into_iter().map(|value| {
        let delta = difference32(last, value);
        last = value;
        delta
    }))
}

/// Undo [`pack_deltas32`].
pub(crate) fn unpack_deltas32(bytes: &[u8], rows: usize) -> Result<Vec<u32>, Invalid> {
    let mut values = unpack_as(bytes, rows)?;
    let mut last = 0;
    for value in &mut values {
        *value = apply32(last, *value);
        last = *value;
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EDGES: [u64; 9] = [
        0,
        1,
        255,
        256,
        1 << 31,
        u32::MAX as u64,
        1 << 32,
        u64::MAX - 1,
        u64::MAX,
    ];

    /// Check that planes hold the lowest bytes first and leave out what is zero everywhere.
    #[test]
    fn planes() {
        assert_eq!(pack([0x0102_u64, 0x03, 0]), [2, 3, 0, 1, 0, 0]);
        assert_eq!(pack([0_u64; 5]), []);
        assert_eq!(unpack(&[2, 3, 0, 1, 0, 0], 3), Ok(vec![0x0102, 3, 0]));
        assert_eq!(unpack(&[], 2), Ok(vec![0, 0]));
        assert_eq!(unpack(&pack(EDGES), 9), Ok(EDGES.to_vec()));
    }

    /// Check that a column whose length does not fit its rows, or whose numbers do not fit their type, is refused.
    #[test]
    fn refused_columns() {
        assert_eq!(unpack(&[1], 0), Err(Invalid::Column));
        assert_eq!(unpack(&[1, 2, 3], 2), Err(Invalid::Column));
        assert_eq!(unpack(&[0; 18], 2), Err(Invalid::Column));
        assert_eq!(unpack_as::<u8>(&pack([256_u64]), 1), Err(Invalid::Column));
        assert_eq!(
            unpack_deltas32(&pack([1_u64 << 32]), 1),
            Err(Invalid::Column)
        );
    }

    /// Check that differences of far and of near numbers come back and that near ones are small.
    #[test]
    fn differences() {
        for from in EDGES {
            for to in EDGES {
                assert_eq!(apply(from, difference(from, to)), to);
                let [from, to] = [from, to].map(|n| u32::try_from(n & 0xffff_ffff).unwrap());
                assert_eq!(apply32(from, difference32(from, to)), to);
            }
        }
        assert_eq!(
            (
                difference(5, 4),
                difference(5, 6),
                difference32(5, 4),
                difference32(0, u32::MAX)
            ),
            (1, 2, 1, 1)
        );
        assert_eq!(unpack_deltas(&pack_deltas(EDGES), 9), Ok(EDGES.to_vec()));
    }
}
