//! Updates held against `recorded.jsonl`, where each line is an update and what mongod made of it.
//!
//! `after` and `modified`, or `code` and `message`. What depends on the clock is recorded as the times of
//! [`context`], a generated `_id` as `"<generated>"`.

use kilim_bson::{
    Document, ElementType, JsonFormat, Path, RawArray, RawDocument, RawValue, Timestamp, Value, Writer,
    array, doc, parse_extended_json, to_extended_json,
};
use kilim_error::{ErrorCode, Result};

use super::{Context, Update};
use crate::filter::Filter;

fn context() -> Context {
    Context {
        position: None,
        inserting: false,
        now_millis: 1000,
        timestamp: Timestamp { seconds: 5, increment: 1 },
    }
}

/// What a row's update does: whether something changed, and the document as it is then.
fn run(row: &Document) -> Result<(bool, Document)> {
    let flag = |name| row.get(name).and_then(RawValue::as_bool).unwrap_or(false);
    let array_filters = row.get("arrayFilters").and_then(RawValue::as_array);
    let update =
        Update::parse(row.get("update").expect("a row has an update"), array_filters, flag("multi"))?;
    let filter = row.get("filter").and_then(RawValue::as_document).expect("a row has a filter");
    let filter = Filter::parse(filter)?;
    let before = row.get("before").and_then(RawValue::as_document);
    let matched = before.map(|before| filter.matches_with_position(before)).transpose()?.flatten();
    match before.zip(matched) {
        Some((before, position)) => {
            let applied = update.apply(before, &Context { position, ..context() })?;
            Ok((applied.after.is_some(), applied.after.unwrap_or_else(|| before.to_document())))
        }
        None if flag("upsert") => Ok((true, update.document_for_upsert(&filter, &context())?)),
        None => Ok((false, before.map(RawDocument::to_document).unwrap_or_default())),
    }
}

fn with_id_hidden(document: RawDocument<'_>) -> Document {
    let mut writer = Writer::new();
    for (name, value) in document {
        let generated = name == "_id" && value.element_type() == ElementType::ObjectId;
        writer.append(name, if generated { RawValue::String("<generated>") } else { value });
    }
    writer.finish()
}

#[test]
fn updates_do_what_mongod_recorded() {
    let mut failures = Vec::new();
    for (line, text) in include_str!("recorded.jsonl").lines().enumerate() {
        let row = parse_extended_json(text).unwrap_or_else(|error| panic!("line {}: {error}", line + 1));
        let upsert = row.get("upsert").is_some();
        let outcome = match run(&row) {
            Ok((modified, after)) => {
                let after = if upsert { with_id_hidden(after.as_raw()) } else { after };
                doc! {"after": after, "modified": modified}
            }
            Err(error) => doc! {"code": error.code().0, "message": error.to_string()},
        };
        let expected: Document = row
            .iter()
            .filter(|(name, _)| ["after", "modified", "code", "message"].contains(name))
            .map(|(name, value)| (name, value.to_value()))
            .collect();
        if outcome != expected {
            let outcome = to_extended_json(outcome.as_raw(), JsonFormat::Relaxed);
            failures.push(format!("line {}: {text}\n  got {outcome}", line + 1));
        }
    }
    assert!(failures.is_empty(), "{} rows differ:\n{}", failures.len(), failures.join("\n"));
}

fn parse(update: &Document) -> Result<Update> {
    Update::parse(RawValue::Document(update.as_raw()), None, false)
}

/// The code and message with which an update fails.
fn failure(before: &Document, update: &Document) -> (i32, String) {
    let error = parse(update)
        .and_then(|update| update.apply(before.as_raw(), &context()))
        .expect_err("this update is to fail");
    (error.code().0, error.to_string())
}

#[test]
fn what_is_no_update_is_refused() {
    let filters = array![{"i": 1}];
    let cases: Vec<(Value, Option<RawArray<'_>>, i32)> = vec![
        (array![{"$match": {"a": 1}}].into(), None, ErrorCode::InvalidOptions.0),
        (array![{"$set": {"a": 1}}].into(), Some(filters.as_raw()), 9),
        (1.into(), None, 9),
        (Value::Null, None, 9),
    ];
    for (update, filters, code) in cases {
        let error = Update::parse(update.as_raw(), filters, false).expect_err("refused");
        assert_eq!(error.code().0, code, "{update:?}");
    }
}

#[test]
fn an_update_knows_its_kind_its_position_and_what_it_may_touch() {
    let update = parse(&doc! {"$set": {"a.$.b": 1, "c.0.d": 1}, "$rename": {"e": "f.g"}}).unwrap();
    assert!(update.is_operators() && update.requires_position());
    let touched: Vec<String> = update.touched_paths().unwrap().iter().map(Path::to_string).collect();
    assert_eq!(touched, ["a.b", "c.d", "e", "f.g"]);
    for (path, expected) in [
        ("a", true),
        ("a.b", true),
        ("a.b.c", true),
        ("a.3.b", true),
        ("a.c", false),
        ("ab", false),
        ("c.d", true),
        ("c.1", true),
        ("e.x", true),
        ("f", true),
        ("f.h", false),
        ("_id", false),
    ] {
        assert_eq!(update.may_touch(&Path::parse(path)), expected, "{path}");
    }
    let replacement = parse(&doc! {"a": 1}).unwrap();
    assert!(!replacement.is_operators() && !replacement.requires_position());
    assert!(replacement.touched_paths().is_none() && replacement.may_touch(&Path::parse("z")));
}

#[test]
fn arrays_are_filled_with_null_up_to_a_limit() {
    let set = |index: usize| {
        let path = format!("a.{index}");
        let fields: Document = [(path.as_str(), Value::Int32(7))].into_iter().collect();
        doc! {"$set": fields}
    };
    let before = doc! {"_id": 1, "a": [1]};
    let after = parse(&set(1_500_001)).unwrap().apply(before.as_raw(), &context()).unwrap().after.unwrap();
    let array = after.get("a").and_then(RawValue::as_array).unwrap();
    assert_eq!(array.len(), 1_500_002);
    assert!(matches!(array.get(1_500_000), Some(RawValue::Null)));
    assert!(matches!(array.get(1_500_001), Some(RawValue::Int32(7))));
    let expected = (34, "can't backfill more than 1500000 elements".to_owned());
    assert_eq!(failure(&before, &set(1_500_002)), expected);
}

#[test]
fn documents_that_grow_too_large_are_refused() {
    let megabytes = |count: usize| "x".repeat(count * 1024 * 1024);
    let before = doc! {"_id": 1, "a": megabytes(10)};
    let too_large = "Resulting document after update is larger than 16777216".to_owned();
    let mut near = "x".repeat(16 * 1024 * 1024 - 100);
    assert_eq!(
        failure(&doc! {"_id": 1, "a": &near}, &doc! {"$set": {"b": "y".repeat(200)}}),
        (17419, too_large.clone())
    );
    near.push_str(&"x".repeat(100));
    assert_eq!(failure(&doc! {"_id": 1}, &doc! {"a": &near}), (17419, too_large));
    let (code, message) = failure(&before, &doc! {"$set": {"b": megabytes(10)}});
    assert_eq!(
        (code, &*message),
        (
            10334,
            "BSONObj size: 20971550 (0x140001E) is invalid. Size must be between 0 and 16793600(16MB) First element: _id: 1"
        )
    );
    // One value for each of many elements: refused before it is all built.
    let many: Value = Value::from(vec![Value::Int32(0); 100_000]);
    let many = doc! {"_id": 1, "a": many};
    assert_eq!(failure(&many, &doc! {"$set": {"a.$[]": megabytes(1)}}).0, 10334);
    let lists: Value = Value::from(vec![Value::from(Vec::<Value>::new()); 100_000]);
    let lists = doc! {"_id": 1, "a": lists};
    assert_eq!(failure(&lists, &doc! {"$push": {"a.$[]": megabytes(1)}}).0, 10334);
}

#[test]
fn documents_that_grow_too_deep_are_refused() {
    let nested = |depth: usize| (0..depth).fold(Value::Int32(1), |inner, _| doc! {"a": inner}.into());
    let path = |steps: usize| vec!["a"; steps].join(".");
    let at_path = |operator: &str, steps: usize| {
        let fields: Document = [(path(steps).as_str(), Value::Int32(1))].into_iter().collect();
        let update: Document = [(operator, Value::Document(fields))].into_iter().collect();
        update
    };
    let before = doc! {"_id": 1};
    let applies = |update: &Document| parse(update).unwrap().apply(before.as_raw(), &context()).is_ok();
    assert!(applies(&doc! {"$set": {"a": nested(179)}}));
    assert!(applies(&doc! {"a": nested(179)}));
    assert!(applies(&doc! {"$push": {"a": nested(178)}}));
    assert!(applies(&at_path("$set", 180)));
    assert!(applies(&at_path("$unset", 255)));
    let expected = (15, "Document exceeds maximum nesting depth of 180".to_owned());
    for update in [
        doc! {"$set": {"a": nested(180)}},
        doc! {"a": nested(180)},
        doc! {"$push": {"a": nested(179)}},
        at_path("$set", 181),
        at_path("$unset", 100_000),
    ] {
        assert_eq!(failure(&before, &update), expected);
    }
}

#[test]
fn two_names_of_one_element_conflict() {
    let update = doc! {"$set": {"a.1": 8, "a.01": 9}};
    let expected = (40, "Update created a conflict at 'a.1'".to_owned());
    assert_eq!(failure(&doc! {"_id": 1, "a": [1, 2, 3]}, &update), expected);
}

#[test]
fn a_repeated_field_is_changed_where_it_first_stands() {
    let mut before = doc! {"_id": 1, "a": 1};
    before.push("a", 2);
    let after = parse(&doc! {"$inc": {"a": 5}}).unwrap().apply(before.as_raw(), &context()).unwrap().after;
    let mut expected = doc! {"_id": 1, "a": 6};
    expected.push("a", 2);
    assert_eq!(after, Some(expected));
}
