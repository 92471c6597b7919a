use kilim_bson::{Document, RawDocument, Value, doc};

use super::bucketing::{Bucketing, Packed};
use super::{columns, parse};
use std::sync::Arc;

fn bucketing(spec: Document) -> Arc<Bucketing> {
    parse(spec.as_raw()).unwrap().bucketing().unwrap().clone()
}

fn refusal(spec: Document) -> String {
    parse(spec.as_raw()).unwrap_err().to_string()
}

fn by_minutes() -> Arc<Bucketing> {
    bucketing(
        doc! {"timeField": "ts", "metaField": "s", "bucketMaxSpanSeconds": 60, "stats": {"t": ["min", "max", "sum", "avg"]}},
    )
}

fn unpacked(packed: &[u8], at: usize) -> Vec<u8> {
    let mut out = Vec::new();
    columns::unpack(packed, at, &mut out).unwrap();
    out
}

#[test]
fn documents_come_out_of_columns_as_they_went_in() {
    let documents = [
        doc! {"_id": 1, "s": "a", "t": 1.5, "n": "text"},
        doc! {"_id": 2, "s": "a", "t": 2.5, "n": "longer text"},
        doc! {"_id": 3, "s": "a", "t": Value::Null, "n": "text"},
        doc! {"_id": 4, "s": "a", "n": "text", "t": 4.5},
        doc! {"_id": 5},
        doc! {"_id": 6, "s": "a", "t": 1.5, "n": "text", "x": {"y": vec![Value::Int32(1)]}},
        doc! {"_id": Value::Int64(7), "s": "a", "t": 1.5, "n": "text"},
    ];
    let raw: Vec<RawDocument<'_>> = documents.iter().map(Document::as_raw).collect();
    let packed = columns::pack(&raw);
    assert_eq!(columns::packed_len(&packed), Some(documents.len()));
    for (at, document) in documents.iter().enumerate() {
        assert_eq!(unpacked(&packed, at), document.as_bytes());
    }
    assert!(columns::unpack(&packed, documents.len(), &mut Vec::new()).is_none());
    let names: Vec<Box<str>> = ["t", "nothing", "n", "_id", "x"].map(Into::into).into();
    let walk = columns::walk(&packed, &names).unwrap();
    for (at, document) in documents.iter().enumerate() {
        let mut told = Vec::new();
        walk.row(at, |place, value| told.push((place, value))).unwrap();
        for (place, name) in names.iter().enumerate() {
            let mut elements = document.iter();
            let element = std::iter::from_fn(|| elements.next_element()).find(|each| *each.name == **name);
            let expected = element.map(|each| (each.element_type() as u8, each.value_bytes()));
            assert_eq!(told[place], (place, expected), "{name} of {document:?}");
        }
    }
    assert!(walk.row(documents.len(), |_, _| {}).is_none());
}

#[test]
fn damaged_columns_are_refused_or_give_something_and_never_panic() {
    let documents = [doc! {"_id": 1, "a": "x"}, doc! {"_id": 2, "a": "yy"}, doc! {"_id": 3}];
    let raw: Vec<RawDocument<'_>> = documents.iter().map(Document::as_raw).collect();
    let packed = columns::pack(&raw);
    for at in 0..packed.len() {
        for byte in [0, 1, 0x7F, 0xFF] {
            let mut damaged = packed.clone();
            damaged[at] = byte;
            (0..3).for_each(|row| {
                let _ = columns::unpack(&damaged, row, &mut Vec::new());
            });
            let _ = columns::unpack(&packed[..at], 1, &mut Vec::new());
            for bytes in [&damaged, &packed[..at]] {
                if let Some(walk) = columns::walk(bytes, &["a".into(), "_id".into()]) {
                    (0..3).for_each(|row| {
                        let _ = walk.row(row, |_, _| {});
                    });
                }
            }
        }
    }
}

#[test]
fn a_bucket_tells_of_its_measurements_and_holds_them() {
    let bucketing = by_minutes();
    let rows = [
        doc! {"_id": 1, "s": 7, "ts": Value::DateTime(61_000), "t": 3},
        doc! {"_id": 2, "s": 7, "ts": Value::DateTime(119_999), "t": Value::Null},
        doc! {"_id": 3, "s": 7, "ts": Value::DateTime(90_000), "t": 5},
    ];
    let place = bucketing.place(rows[0].as_raw());
    assert!(rows.iter().all(|row| bucketing.place(row.as_raw()) == place));
    let given: Vec<(u64, RawDocument<'_>)> =
        rows.iter().zip([40, 7, 9000]).map(|(row, record)| (record, row.as_raw())).collect();
    let bucket = bucketing.bucket(&place, &given).unwrap();
    let packed = Packed::of(bucket.as_raw()).unwrap();
    assert!(packed.is_whole());
    assert_eq!(packed.records().unwrap(), [40, 7, 9000]);
    assert_eq!(packed.fingerprint(), Some(bucketing.fingerprint));
    let told = doc! {
        "meta": 7, "span": Value::DateTime(60_000), "from": Value::DateTime(61_000), "to": Value::DateTime(119_999), "count": 3,
        "stats": {"t": {"min": 3, "max": 5, "sum": 8, "avg": 4.0}},
    };
    assert_eq!(packed.told().unwrap().to_document(), told);
    let mut out = Vec::new();
    packed.row(2, &mut out).unwrap();
    assert_eq!(out, rows[2].as_bytes());
}

#[test]
fn a_span_holds_every_date_and_no_span_holds_what_is_no_date() {
    let bucketing = by_minutes();
    let span = |ts: Value| bucketing.place(doc! {"s": 1, "ts": ts}.as_raw()).span;
    assert_eq!(span(Value::DateTime(-1)), Some(-60_000));
    assert_eq!(span(Value::DateTime(i64::MIN)), Some(i64::MIN));
    assert_eq!(span(Value::DateTime(i64::MAX)), Some(i64::MAX - i64::MAX % 60_000));
    for none in [Value::Null, Value::from("2026"), Value::Int64(5)] {
        assert_eq!(span(none), None);
    }
    assert!(!bucketing.place(doc! {"s": 1}.as_raw()).is_packed());
}

#[test]
fn measurements_with_different_metas_lie_apart() {
    let bucketing = by_minutes();
    let place = |meta: Value| bucketing.place(doc! {"s": meta, "ts": Value::DateTime(0)}.as_raw());
    assert_ne!(place(Value::Int32(1)), place(Value::Double(1.0)));
    assert_ne!(place(Value::Null), bucketing.place(doc! {"ts": Value::DateTime(0)}.as_raw()));
}

#[test]
fn a_portion_is_bounded_by_count_and_bytes_and_has_one_measurement_at_least() {
    let small = bucketing(doc! {"timeField": "ts", "maxCount": 3, "maxBytes": 256});
    let row = doc! {"_id": 1, "x": "y".repeat(100)};
    let large = doc! {"_id": 1, "x": "y".repeat(1000)};
    let portion = |of: &Document, count: usize| small.portion(std::iter::repeat_n(of.as_raw(), count));
    assert_eq!(portion(&row, 10), 2);
    assert_eq!(portion(&large, 10), 1);
    assert_eq!(portion(&doc! {"_id": 1}, 10), 3);
    assert_eq!(portion(&doc! {"_id": 1}, 2), 2);
}

#[test]
fn what_contradicts_itself_is_refused() {
    for (spec, told) in [
        (doc! {"timeField": "ts", "granularity": "hours", "bucketMaxSpanSeconds": 60}, "say the same"),
        (doc! {"timeField": "ts", "order": "_id"}, "without a 'timeField'"),
        (doc! {"metaField": "m", "maxCount": 10, "expireAfterSeconds": 5}, "need a 'bucket.timeField'"),
        (doc! {"metaField": "m"}, "maxCount"),
        (doc! {"timeField": "a", "metaField": "a"}, "another field"),
        (doc! {"timeField": "a.b"}, "of the document itself"),
        (doc! {"timeField": "a", "stats": {"t": ["median"]}}, "can be"),
        (doc! {"timeField": "a", "maxCount": 1}, "from 2"),
        (doc! {"timeField": "a", "wide": 1}, "unknown field"),
    ] {
        let message = refusal(spec);
        assert!(message.contains(told), "{message}");
    }
}

#[test]
fn null_takes_a_granularity_back() {
    let spec = doc! {"timeField": "ts", "granularity": Value::Null, "bucketMaxSpanSeconds": 60};
    assert_eq!(bucketing(spec).span_millis, Some(60_000));
    assert_eq!(bucketing(doc! {"timeField": "ts"}).span_millis, Some(3_600_000));
    assert_eq!(bucketing(doc! {"timeField": "ts", "granularity": "hours"}).span_millis, Some(2_592_000_000));
}
