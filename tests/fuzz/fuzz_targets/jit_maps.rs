//! Any bytes as perf maps and jitdumps of a process, in pieces cut anywhere: what a hostile program can have recorded.
//! Each address has one answer at a time, whatever was asked before.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rawstack_format::record::JitMap;
use rawstack_symbolizer::jit::{JitTable, Placed};

fuzz_target!(|input: &[u8]| {
    let Some((&[kind, step], text)) = input.split_first_chunk() else { return };
    let mut table = JitTable::default();
    let mut position = 0;
    for (time_ns, bytes) in (1u64..).zip(text.chunks(usize::from(step).max(1))) {
        let piece = JitMap { pid: 1, kind: kind % 2, time_ns, position, bytes: bytes.to_vec() };
        table.take(0, &piece);
        // Now and then the file is written anew.
        position = if bytes.first() == Some(&0xfe) { 0 } else { position + bytes.len() as u64 };
    }
    for address in [0, 1, 0x10, 0x1000, 0x1008, 0x2000, u64::MAX] {
        for time_ns in [0, 1, 5, u64::MAX] {
            let first = table.place(0, 1, address, time_ns);
            assert_eq!(first, table.place(0, 1, address, time_ns));
            if let Placed::In(symbol) = first {
                let (_, _) = (table.name(symbol), table.line(symbol, address));
            }
        }
    }
    table.files();
});
