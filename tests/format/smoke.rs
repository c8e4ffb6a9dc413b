//! Smoke.
use rawstack_format::id::*;
use rawstack_format::record::*;
use rawstack_format::*;
/// Check.
#[test]
fn smoke() {
    let mut w = Writer::new(Vec::new(), WriterOptions::default()).unwrap();
    let mut b = Batch {
        epoch: 1,
        ..Batch::default()
    };
    for i in 0..5000u64 {
        b.samples.push(Sample {
            id: StackId(i + 1),
            owner: StackId(i + 1),
            time_ns: 10_000 + i * 200_000 + i * i % 700,
            pid: 5,
            tid: 6,
            ..Sample::default()
        });
    }
    let want = Record::Batch(b);
    w.write(
        &Record::Recording(Recording::default()),
        Counters::default(),
    )
    .unwrap();
    let info = w
        .write(
            &want,
            Counters {
                ids: 5000,
                ..Counters::default()
            },
        )
        .unwrap();
    println!("{info:?}");
    w.write(
        &Record::End(End::default()),
        Counters {
            ids: 5000,
            ..Counters::default()
        },
    )
    .unwrap();
    let bytes = w.finish().unwrap();
    let mut r = Reader::new(&bytes[..]).unwrap();
    assert!(r.next().unwrap().unwrap().record.is_some());
    let c = r.next().unwrap().unwrap();
    assert_eq!(c.info, info);
    assert_eq!(c.record, Some(want));
    assert!(r.next().unwrap().unwrap().record.is_some());
    assert!(r.next().unwrap().unwrap().record.is_none());
    assert!(r.next().unwrap().is_none());
    assert!(r.damage().is_none() && r.damage().ended, "{:?}", r.damage());
    let i = Index::find(&mut std::io::Cursor::new(&bytes))
        .unwrap()
        .unwrap();
    println!("{i:?}");
}
