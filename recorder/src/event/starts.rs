//! Where functions begin in a file without symbols: the table by which exceptions find their way (`.eh_frame_hdr`).
//! Only its sorted first column is read, never the instructions that it leads to.

use object::Endianness;
use object::endian::Endian;

/// `DW_EH_PE_*`: a signed word of 4 bytes, from the table's own address.
const FROM_TABLE: u8 = 0x3b;
/// An unsigned number of 4 bytes.
const COUNT: u8 = 0x03;
/// The pointer to `.eh_frame` is 4 bytes long in every form that is in use.
const FIRST_ENTRY: usize = 12;

/// Addresses of the functions in the table `bytes`, which the file states at `address`; none of a form unknown.
pub(crate) fn of(bytes: &[u8], endian: Endianness, address: u64) -> Vec<u64> {
    read(bytes, endian, address).unwrap_or_default()
}

fn read(bytes: &[u8], endian: Endianness, address: u64) -> Option<Vec<u64>> {
    let [1, pointer, COUNT, FROM_TABLE] = *bytes.first_chunk::<4>()? else {
        return None;
    };
    // sdata4 or udata4.
    if !matches!(pointer & 0xf, 0x03 | 0x0b) {
        return None;
    }
    let count = endian.read_u32(*bytes.get(8..)?.first_chunk()?);
    let entries = bytes.get(FIRST_ENTRY..)?.as_chunks::<8>().0.iter();
    let starts = entries
        .take(usize::try_from(count).ok()?)
        .filter_map(|entry| {
            let distance = endian.read_i32(*entry.first_chunk()?);
            address.checked_add_signed(distance.into())
        });
    Some(starts.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check addresses before and behind the table, and that cuts and other forms give no wrong ones.
    #[test]
    fn table() {
        let mut bytes = vec![1, 0x1b, COUNT, FROM_TABLE];
        for word in [0x40, 2, -0x1000, 0x60, 0x20, 0x80] {
            bytes.extend(i32::to_le_bytes(word));
        }
        let starts = |bytes: &[u8]| of(bytes, Endianness::Little, 0x2000);
        assert_eq!(starts(&bytes), [0x1000, 0x2020]);
        for end in 0..bytes.len() {
            assert!(starts(&bytes[..end]).len() < 2);
        }
        bytes[3] = 0x1b;
        assert!(starts(&bytes).is_empty());
    }
}
