//! Any bytes as an archive: no panic, no overflow, no memory beyond a few chunks; and an account that adds up.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rawstack_format::Reader;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut reader) = Reader::new(bytes) else { return };
    let mut whole = 0;
    while let Some(chunk) = reader.next().expect("memory does not fail") {
        whole += chunk.info.len_in_file();
    }
    let header_len = u64::from(reader.header().header_len).min(bytes.len() as u64);
    assert_eq!(header_len + whole + reader.damage().gap_bytes, bytes.len() as u64);
});
