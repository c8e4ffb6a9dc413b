//! Any bytes as an archive, as they are and with checksums that hold: no panic, no overflow, no memory beyond a few
//! chunks; and an account that adds up.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rawstack_format::Reader;

/// Salt that the frames are given.
const SALT: [u8; 4] = [1, 0, 0, 0];

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    let mut mended = bytes.to_vec();
    mend(&mut mended);
    read(&mended);
});

fn read(bytes: &[u8]) {
    let Ok(mut reader) = Reader::new(bytes) else { return };
    let mut whole = 0;
    while let Some(chunk) = reader.next().expect("memory does not fail") {
        whole += chunk.info.len_in_file();
    }
    let header_len = u64::from(reader.header().header_len).min(bytes.len() as u64);
    assert_eq!(header_len + whole + reader.damage().gap_bytes, bytes.len() as u64);
}

/// Make the checksums of the header and of all that begins like a frame hold, the last one first: a frame may stand in
/// another one's payload.
fn mend(bytes: &mut [u8]) {
    for start in (0..bytes.len() / 64).rev().map(|frame| frame * 64) {
        let (frame, behind) = bytes[start..].split_at_mut(64);
        let is_frame = frame.starts_with(&[0xf5, b'R', b'S', 0x1a]);
        if is_frame {
            frame[4..8].copy_from_slice(&SALT);
            let stored = u32::from_le_bytes([frame[16], frame[17], frame[18], frame[19]]);
            let padded = (stored as usize).next_multiple_of(64).min(behind.len());
            frame[56..60].copy_from_slice(&crc32c::crc32c(&behind[..padded]).to_le_bytes());
        } else if frame.starts_with(b"RAWSTACK") {
            frame[32..36].copy_from_slice(&SALT);
        } else {
            continue;
        }
        let crc = crc32c::crc32c(&frame[..60]);
        frame[60..64].copy_from_slice(&crc.to_le_bytes());
    }
}
