//! Merged archives: parts that stay apart, whatever is lost.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::{env, fs};

use rawstack_format::record::{Part, Record};
use rawstack_format::{Counters, Damage, Error, Kind, Reader, Writer, WriterOptions};

use crate::common::{SALT, archive, chunk, count, header, options, ranges, read};
use crate::every_kind::every_kind;

/// Parts of the golden archive.
const PARTS: u16 = 3;

fn merged_options() -> WriterOptions {
    let mut merged = options();
    merged.merged = true;
    merged
}

/// What is said of part `number`, with every field set to something of its own.
fn part(number: u16) -> Part {
    let mut damage = Damage::default();
    damage.header_copy = true;
    damage.gap_count = 2000;
    damage.gap_bytes = 1 << 40;
    damage.tail_bytes = 77;
    damage.lost_chunks = 9;
    damage.lost_ids = 1 << 33;
    damage.lost_parts = 2;
    damage.unknown_chunks = 3;
    damage.whole_chunks = 12;
    damage.gaps = damaged().gaps;
    Part {
        name: format!("büro-{number}.rawstack"),
        bytes: 1_000_000 + u64::from(number),
        format: (1, number),
        is_last: number + 1 == PARTS,
        is_cut: number == 1,
        damage: if number == 0 {
            damage
        } else {
            Damage::default()
        },
    }
}

/// The account of an archive with a gap of each kind that a flipped bit, a cut and lost chunks make.
fn damaged() -> Damage {
    let mut bytes = archive(&every_kind());
    let ranges = ranges(&bytes);
    bytes[ranges[1].start + 70] ^= 1;
    bytes[ranges[3].start] ^= 1;
    bytes.truncate(ranges[9].start + 10);
    bytes.drain(ranges[5].clone());
    let damage = read(&bytes).1;
    assert_eq!(damage.gaps.len(), 4, "{damage:?}");
    damage
}

/// A merged archive of `PARTS` parts, each of all kinds of records, then what is said of it.
fn merged() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), merged_options()).unwrap();
    for number in 0..PARTS {
        let mut counters = Counters::default();
        for record in every_kind() {
            count(&record, &mut counters);
            writer.write(&record, counters).unwrap();
        }
        writer.write(&Record::Part(part(number)), counters).unwrap();
        if number + 1 < PARTS {
            writer.next_part().unwrap();
        }
    }
    writer.finish().unwrap()
}

/// Check that a merged archive as it was once written gives the same parts today, each by itself.
#[test]
fn golden() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/fixtures/archives/v1/merged.rawstack");
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, merged()).unwrap();
    }
    let bytes = fs::read(path).unwrap();
    let (chunks, damage) = read(&bytes);
    assert!(damage.is_none() && damage.ended, "{damage:?}");
    for number in 0..PARTS {
        let of_part = chunks.iter().filter(|chunk| chunk.info.part == number);
        let records: Vec<Record> = of_part.filter_map(|chunk| chunk.record.clone()).collect();
        let mut expected = every_kind();
        expected.push(Record::Part(part(number)));
        assert_eq!(records, expected);
    }
    let seqs = |chunks: &[rawstack_format::Chunk]| -> Vec<u32> {
        chunks.iter().map(|chunk| chunk.info.seq).collect()
    };
    assert_eq!(seqs(&chunks), (0..).take(chunks.len()).collect::<Vec<_>>());
    // The layout is held byte for byte but for what zstd makes.
    let now = merged();
    for (old, new) in ranges(&bytes).into_iter().zip(ranges(&now)) {
        assert_eq!(bytes[old.clone()][..16], now[new.clone()][..16]);
        assert_eq!(bytes[old][20..56], now[new][20..56]);
    }
}

/// Check that chunks of one part are never told as another's, whichever two chunks are lost, and that a lost part, a
/// lost chunk and lost IDs are told in numbers.
#[test]
fn lost_chunks() {
    let whole = merged();
    let ranges = ranges(&whole);
    let infos: Vec<_> = read(&whole).0.into_iter().map(|chunk| chunk.info).collect();
    for first in 0..ranges.len() {
        for last in first..ranges.len() - 1 {
            let mut bytes = whole.clone();
            bytes.drain(ranges[first].start..ranges[last].end);
            let mut reader = Reader::new(bytes.as_slice()).unwrap();
            let (mut chunks, mut lost, mut parts) = (0, 0, 0);
            let mut seen = BTreeSet::new();
            while let Some(chunk) = reader.next().unwrap() {
                let known = infos[chunk.info.seq as usize];
                assert_eq!((chunk.info.part, chunk.info.kind), (known.part, known.kind));
                if seen.insert(chunk.info.part)
                    && let Some(damage) = reader.last_part().filter(|_| seen.len() > 1)
                {
                    (lost, parts) = (lost + damage.lost_chunks, parts + damage.lost_parts);
                }
                chunks += 1;
            }
            let damage = reader.damage();
            (lost, parts) = (lost + damage.lost_chunks, parts + damage.lost_parts);
            assert_eq!(lost, (last - first + 1) as u64, "{first}..={last}");
            assert_eq!(chunks + lost, infos.len() as u64);
            assert_eq!(
                parts,
                u64::from(PARTS) - seen.len() as u64,
                "{first}..={last}"
            );
        }
    }
}

/// Check that IDs in a damaged chunk at the end of a part are missing in that part and not in the next one.
#[test]
fn lost_ids_stay_with_their_part() {
    let mut bytes = merged();
    let (chunks, _) = read(&bytes);
    let batch = chunks
        .iter()
        .position(|chunk| chunk.info.kind == Kind::BATCH)
        .unwrap();
    let ranges = ranges(&bytes);
    // All behind the first part's batch goes, and the batch's content is damaged.
    bytes[ranges[batch].start + 70] ^= 1;
    let second = chunks
        .iter()
        .position(|chunk| chunk.info.part == 1)
        .unwrap();
    bytes.drain(ranges[batch + 1].start..ranges[second].start);
    let mut reader = Reader::new(bytes.as_slice()).unwrap();
    let mut damages = Vec::new();
    while let Some(chunk) = reader.next().unwrap() {
        if chunk.info.part == 1 && damages.is_empty() {
            damages.push(reader.last_part().unwrap().clone());
            damages.push(reader.damage().clone());
        }
    }
    let ids = chunks[batch].info.counters.ids;
    assert!(ids > 0);
    assert_eq!((damages[0].lost_ids, damages[0].ended), (ids, false));
    assert_eq!(damages[1].lost_ids, 0);
    assert!(damages[1].gap_count > 0);
}

/// Check that an archive that is not merged has one part, whatever stands where frames name it, and that none can be
/// added to it.
#[test]
fn one_part() {
    let mut bytes = header();
    let mut frame = chunk(200, 1, 0, &[], (0, 0));
    frame[10] = 9;
    let crc = crc32c::crc32c(&frame[..60]).to_le_bytes();
    frame[60..64].copy_from_slice(&crc);
    bytes.extend(frame);
    let (chunks, damage) = read(&bytes);
    assert!(damage.is_none());
    assert_eq!(chunks[0].info.part, 0);
    let mut writer = Writer::new(Vec::new(), options()).unwrap();
    assert!(matches!(writer.next_part(), Err(Error::TooManyParts)));
}

/// Check that the 65,536th part is the last.
#[test]
fn most_parts() {
    let mut writer = Writer::new(Vec::new(), merged_options()).unwrap();
    for _ in 1..1 << 16 {
        writer.next_part().unwrap();
    }
    assert!(matches!(writer.next_part(), Err(Error::TooManyParts)));
}

/// Check that what is kept as it is stored can be put into another archive, and says the same there.
#[test]
fn stored_chunks() {
    let whole = archive(&every_kind());
    let mut reader = Reader::new(whole.as_slice()).unwrap().keeping_stored();
    let mut copy = Writer::new(Vec::new(), options()).unwrap();
    while let Some(chunk) = reader.next().unwrap() {
        if chunk.info.kind != Kind::INDEX {
            let stored = chunk.stored.unwrap();
            copy.append(&stored, chunk.info.counters).unwrap();
        }
    }
    assert_eq!(copy.finish().unwrap(), whole);
    assert_eq!(whole[32..36], SALT.to_le_bytes());
}
