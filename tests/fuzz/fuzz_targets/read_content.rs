//! Any bytes as the content of a chunk whose checksums hold: what an attacker can say who knows the format. What is
//! accepted can be written again and read as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rawstack_format::copies::{CopiesBuilder, NewCopy, StackCopies};
use rawstack_format::record::Record;
use rawstack_format::{Counters, Reader, Writer, WriterOptions};
use zstd::bulk::compress;

fuzz_target!(|input: &[u8]| {
    let Some((&kind, content)) = input.split_first() else { return };
    let mut archive = header();
    archive.extend(chunk(kind % 12, kind / 12 + 1, content));
    let Some(record) = read(&archive) else { return };
    if let Record::StackCopies(copies) = &record {
        build_again(copies);
    }
    let mut writer = writer();
    writer.write(&record, Counters::default()).expect("what was read can be written");
    let again = writer.finish().expect("memory does not fail");
    // Not compared by ==: a run's work may be no number.
    assert_eq!(format!("{:?}", read(&again)), format!("{:?}", Some(record)));
});

/// Copies built again from what is read of them are read as the same, though they may be coded otherwise.
fn build_again(copies: &StackCopies) {
    let (mut builder, mut bytes) = (CopiesBuilder::default(), Vec::new());
    let mut reader = copies.reader();
    let mut total = 0;
    while let Some(copy) = reader.next() {
        total += copy.spans().map(|span| span.asked).sum::<u64>();
        if total > 16 << 20 {
            return; // It would take too long.
        }
        copy.unpack(&mut bytes);
        let new = NewCopy {
            owner: copy.owner,
            pid: copy.pid,
            tid: copy.tid,
            machine: copy.machine,
            registers: copy.registers(),
            loss: copy.loss,
            start: copy.start,
            end: copy.end,
            asked: copy.asked,
            further: copy.further,
            bytes: &bytes,
            missing: copy.missing,
            program_since_ns: copy.program_since_ns,
            trampoline: copy.trampoline().unwrap_or_default(),
            returns: copy.return_addresses(),
        };
        if !builder.push(&new).expect("what was read can be written") {
            return;
        }
    }
    let again = builder.take();
    assert_eq!(again.len(), copies.len());
    let (mut first, mut second) = (copies.reader(), again.reader());
    let mut other = Vec::new();
    while let (Some(old), Some(new)) = (first.next(), second.next()) {
        old.unpack(&mut bytes);
        new.unpack(&mut other);
        assert_eq!(bytes, other);
        assert_eq!((old.registers(), old.ranges().collect::<Vec<_>>()), (new.registers(), new.ranges().collect()));
    }
}

/// The record of the first chunk.
fn read(archive: &[u8]) -> Option<Record> {
    let mut reader = Reader::new(archive).expect("the header is sound");
    reader.next().expect("memory does not fail").and_then(|chunk| chunk.record)
}

fn writer() -> Writer<Vec<u8>> {
    let mut options = WriterOptions::default();
    options.salt = Some(1);
    Writer::new(Vec::new(), options).expect("memory does not fail")
}

fn header() -> Vec<u8> {
    let mut header = writer().finish().expect("memory does not fail");
    header.truncate(128);
    header
}

/// A chunk around `content`, made by hand.
fn chunk(kind: u8, version: u8, content: &[u8]) -> Vec<u8> {
    let stored = compress(content, -5).expect("memory does not fail");
    let mut payload = stored.clone();
    payload.resize(payload.len().next_multiple_of(64), 0);
    let mut out = vec![0xf5, b'R', b'S', 0x1a, 1, 0, 0, 0, kind, version, 0, 0, 0, 0, 0, 0];
    out.extend((stored.len() as u32).to_le_bytes());
    out.extend((content.len() as u32).to_le_bytes());
    out.resize(56, 0);
    out.extend(crc32c::crc32c(&payload).to_le_bytes());
    out.extend(crc32c::crc32c(&out).to_le_bytes());
    out.extend(payload);
    out
}
