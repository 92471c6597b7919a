//! Every plan returns what a collection scan returns.

use std::collections::BTreeSet;
use std::sync::Arc;

use kilim_bson::{Document, RawDocument, Value, array, doc, encode_value_with};
use kilim_collation::Collation;
use kilim_error::ErrorCode;
use kilim_query::expression::{Scope, Variables};
use kilim_query::filter::Filter;
use kilim_query::projection::Projection;
use kilim_query::sort::Sort;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::fixture::{Fixture, index_spec};
use crate::index::{Index, IndexSpec};
use crate::plan::{Distinct, Hint, Keys, Purpose, ReadRequest};

/// Few different values, so that equality, order and arrays meet often.
pub(super) fn scalar(random: &mut SmallRng) -> Value {
    match random.random_range(0..16) {
        0 => Value::Null,
        1 => Value::Bool(random.random()),
        2 => Value::Double(f64::from(random.random_range(0..8)) / 2.0),
        3 => Value::Int64(random.random_range(0..4)),
        4..=5 => ["", "a", "A", "á", "ab", "AB", "abc", "b", "a2", "a10"]
            .choose(random)
            .copied()
            .expect("a text")
            .into(),
        6 => Value::Double(f64::NAN),
        7 => [Value::MinKey, Value::MaxKey].choose(random).cloned().expect("a key"),
        8 => Value::DateTime(random.random_range(0..3)),
        _ => Value::Int32(random.random_range(-1..5)),
    }
}

fn value(random: &mut SmallRng, depth: u32) -> Value {
    match random.random_range(0..12) {
        0..=1 if depth > 0 => {
            let length = random.random_range(0..4);
            Value::Array((0..length).map(|_| value(random, depth - 1)).collect())
        }
        2..=3 if depth > 0 => Value::Document(fields(random, depth - 1)),
        _ => scalar(random),
    }
}

fn fields(random: &mut SmallRng, depth: u32) -> Document {
    let mut document = Document::new();
    for (name, one_in) in [("a", 0), ("b", 0), ("c", 0), ("0", 12), ("b.c", 12)] {
        let there =
            if one_in == 0 { random.random_range(0..4) > 0 } else { random.random_range(0..one_in) == 0 };
        if there {
            let value = value(random, depth);
            document.push(name, value);
        }
    }
    document
}

const PATHS: [&str; 9] = ["a", "b", "c", "a.b", "a.c", "b.a", "a.0", "a.0.b", "b.a.0"];

fn path(random: &mut SmallRng) -> &'static str {
    PATHS.choose(random).copied().expect("a path")
}

/// None, or one of two that see texts differently.
pub(super) fn collation(random: &mut SmallRng) -> Option<Document> {
    match random.random_range(0..4) {
        0 => Some(doc! {"locale": "en", "strength": 2}),
        1 => Some(doc! {"locale": "fr_CA", "strength": 2, "numericOrdering": true, "backwards": true}),
        _ => None,
    }
}

pub(super) fn with_collation(mut options: Document, random: &mut SmallRng) -> Document {
    if let Some(collation) = collation(random) {
        options.push("collation", collation);
    }
    options
}

fn indexes(random: &mut SmallRng) -> Vec<IndexSpec> {
    let hashed = random.random_range(0..6) == 0;
    let count = random.random_range(0..4);
    let mut specs: Vec<IndexSpec> = Vec::new();
    for _ in 0..count {
        if random.random_range(0..4) == 0 {
            let spec = wildcard(random);
            if specs.iter().all(|known| known.name != spec.name) {
                specs.push(spec);
            }
            continue;
        }
        let mut key = Document::new();
        for _ in 0..random.random_range(1..4) {
            let path = path(random);
            if key.get(path).is_none() {
                key.push(path, if random.random() { 1 } else { -1 });
            }
        }
        // A document with arrays is left out of a collection that has such an index.
        if hashed {
            let number = random.random_range(0..key.iter().count());
            let mut with_hash = Document::new();
            for (at, (path, direction)) in key.iter().enumerate() {
                let kind = if at == number { Value::from("hashed") } else { direction.to_value() };
                with_hash.push(path, kind);
            }
            key = with_hash;
        }
        let options = match random.random_range(0..6) {
            0 => doc! {"sparse": true},
            1 => doc! {"partialFilterExpression": predicate_document(random, 0)},
            _ => Document::new(),
        };
        let options = with_collation(options, random);
        let spec = index_spec(&key, options.as_raw());
        if specs.iter().all(|known| known.name != spec.name) {
            specs.push(spec);
        }
    }
    specs
}

/// All paths, those below one, or what a projection takes or leaves out.
pub(super) fn wildcard(random: &mut SmallRng) -> IndexSpec {
    let all = doc! {"$**": 1};
    let none = Document::new();
    if random.random_range(0..3) > 0 {
        let (key, options) = compound_wildcard(random);
        return index_spec(&key, with_collation(options, random).as_raw());
    }
    let (key, options) = match random.random_range(0..9) {
        0 => (doc! {"a.$**": 1}, none),
        1 => (doc! {"a.b.$**": 1}, none),
        5 => (doc! {"$**": -1}, none),
        2 => (all, doc! {"wildcardProjection": {"a": 1, "b.a": 1}}),
        3 => (all, doc! {"wildcardProjection": {"a.b": 0, "c": 0}}),
        4 => (all, doc! {"partialFilterExpression": predicate_document(random, 0)}),
        _ => (all, none),
    };
    index_spec(&key, with_collation(options, random).as_raw())
}

/// A wildcard among other fields, which it leaves out itself.
fn compound_wildcard(random: &mut SmallRng) -> (Document, Document) {
    let none = Document::new();
    let (key, mut options) = match random.random_range(0..10) {
        0 => (doc! {"b": 1, "a.$**": 1}, none),
        1 => (doc! {"a.$**": -1, "b": 1}, none),
        2 => (doc! {"c": -1, "b": 1, "a.$**": 1}, none),
        3 => (doc! {"b.a": 1, "a.b.$**": 1, "c": -1}, none),
        4 => (doc! {"a": 1, "$**": 1}, doc! {"wildcardProjection": {"a": 0}}),
        5 => (doc! {"$**": 1, "b.a": -1, "c": 1}, doc! {"wildcardProjection": {"b": 0, "c": 0}}),
        6 => (doc! {"c": 1, "$**": -1, "b": 1}, doc! {"wildcardProjection": {"b": 0, "c": 0}}),
        7 => (doc! {"b": -1, "$**": 1}, doc! {"wildcardProjection": {"a": 1, "c": 1}}),
        8 => (doc! {"a.b": 1, "$**": 1, "c": 1}, doc! {"wildcardProjection": {"b.a": 1, "_id": 1}}),
        _ => (doc! {"_id": -1, "$**": 1}, doc! {"wildcardProjection": {"_id": 0, "a.b": 0}}),
    };
    if random.random_range(0..6) == 0 {
        options.push("partialFilterExpression", predicate_document(random, 0));
    }
    (key, options)
}

fn operand(random: &mut SmallRng) -> Value {
    if random.random_range(0..8) == 0 { value(random, 1) } else { scalar(random) }
}

fn operator(random: &mut SmallRng, depth: u32) -> Document {
    match random.random_range(0..17) {
        0 => doc! {"$exists": random.random::<bool>()},
        1 => {
            doc! {"$type": *["int", "string", "array", "number", "null", "object"].choose(random).expect("a type")}
        }
        2 => doc! {"$in": array_of(random)},
        3 => doc! {"$nin": array_of(random)},
        4 => doc! {"$ne": operand(random)},
        5 => doc! {"$mod": [2, random.random_range(0..2)]},
        6 => doc! {"$size": random.random_range(0..3)},
        7 => doc! {"$regex": *["^a", "^ab", "b", "^a.c"].choose(random).expect("a pattern")},
        8 if depth > 0 => doc! {"$not": operator(random, depth - 1)},
        9 if depth > 0 => doc! {"$elemMatch": operator(random, depth - 1)},
        10 if depth > 0 => {
            let mut inner = Document::new();
            for name in ["b", "c"] {
                if random.random() {
                    let operator = operator(random, depth - 1);
                    inner.push(name, operator);
                }
            }
            doc! {"$elemMatch": inner}
        }
        11 => doc! {"$gte": operand(random), "$lt": operand(random)},
        12 => doc! {"$all": array_of(random)},
        at => {
            let name = ["$eq", "$lt", "$lte", "$gt", "$gte"][at as usize % 5];
            let mut document = Document::new();
            document.push(name, operand(random));
            document
        }
    }
}

fn array_of(random: &mut SmallRng) -> kilim_bson::Array {
    let length = random.random_range(0..4);
    (0..length).map(|_| operand(random)).collect()
}

fn predicate_document(random: &mut SmallRng, depth: u32) -> Document {
    let mut document = Document::new();
    for _ in 0..random.random_range(1..4) {
        let path = path(random);
        if document.get(path).is_none() {
            let operator = operator(random, 1);
            document.push(path, operator);
        }
    }
    if depth > 0 && random.random_range(0..3) == 0 {
        document.push("$expr", expression(random, 1));
    }
    if depth > 0 && random.random_range(0..4) == 0 {
        let branches: Vec<Document> =
            (0..random.random_range(1..4)).map(|_| predicate_document(random, depth - 1)).collect();
        document.push(["$or", "$and", "$nor"].choose(random).expect("a list"), branches);
    }
    document
}

/// What `$expr` says of paths, and what the planner makes of it.
fn expression(random: &mut SmallRng, depth: u32) -> Document {
    let mut document = Document::new();
    if depth > 0 && random.random_range(0..3) == 0 {
        let parts: Vec<Document> =
            (0..random.random_range(1..3)).map(|_| expression(random, depth - 1)).collect();
        document.push(if random.random() { "$and" } else { "$or" }, parts);
        return document;
    }
    let field = Value::from(format!("${}", path(random)));
    let constant = Value::from(doc! {"$literal": operand(random)});
    let operands = if random.random() { vec![field, constant] } else { vec![constant, field] };
    document.push(["$eq", "$lt", "$lte", "$gt", "$gte"].choose(random).expect("an operator"), operands);
    document
}

pub(super) fn sort(random: &mut SmallRng) -> Option<Document> {
    if random.random() {
        return None;
    }
    let mut sort = Document::new();
    for _ in 0..random.random_range(1..3) {
        let path = path(random);
        // A number in a sort is refused where it is ambiguous, whichever plan runs.
        if sort.get(path).is_none() && !path.contains('0') {
            sort.push(path, if random.random() { 1 } else { -1 });
        }
    }
    Some(sort)
}

#[test]
fn every_plan_returns_what_a_collection_scan_returns() {
    let rounds =
        std::env::var("KILIM_PLANNER_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(300);
    let first = std::env::var("KILIM_PLANNER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    for seed in first..first + rounds {
        check_collection(seed);
    }
}

fn check_collection(seed: u64) {
    let random = &mut SmallRng::seed_from_u64(seed);
    let mut documents = Vec::new();
    for id in 0..random.random_range(0..40) {
        let mut document = doc! {"_id": id};
        for (name, value) in fields(random, 2).iter() {
            document.push(name, value.to_value());
        }
        documents.push(document);
    }
    let specs: Vec<IndexSpec> = indexes(random);
    let fixture = Fixture::new(&documents, specs);
    for _ in 0..30 {
        let document =
            if random.random_range(0..12) == 0 { Document::new() } else { predicate_document(random, 1) };
        let collation_document = collation(random);
        let collation =
            collation_document.as_ref().map(|it| Collation::parse(it.as_raw()).expect("a collation"));
        let variables = Variables::default().under(collation.clone().flatten());
        let scope = Scope::new(&variables);
        let Ok(filter) = Filter::parse_in(document.as_raw(), &scope) else { continue };
        let mut request = ReadRequest::new(Arc::new(filter));
        request.collation = collation.flatten();
        let sort_document = sort(random);
        request.sort =
            sort_document.as_ref().map(|sort| Sort::parse_in(sort.as_raw(), &scope).expect("a sort"));
        let mut natural = request.clone();
        natural.hint = Some(Hint::Natural { backward: false });
        let what = || {
            let names: Vec<&str> = fixture.indexes.iter().map(|index| &*index.spec.name).collect();
            format!(
                "seed {seed}: {document:?} sorted by {sort_document:?} under {collation_document:?} over {names:?}"
            )
        };
        let expected = match fixture.read(natural) {
            Ok(rows) => rows,
            // Sorting by parallel arrays fails in every plan that has to sort.
            Err(_) => continue,
        };
        let found = fixture.read(request.clone()).unwrap_or_else(|error| panic!("{error}: {}", what()));
        check_same(&expected, &found, request.sort.as_ref(), &what);
        check_candidates(&fixture, &request, &expected, &what);
        let whole = |index: &&Arc<Index>| !index.spec.sparse && index.spec.partial.is_none();
        for index in fixture.indexes.iter().filter(whole) {
            let mut hinted = request.clone();
            hinted.hint = Some(Hint::Name(index.spec.name.clone()));
            let found = match fixture.read(hinted) {
                Ok(found) => found,
                // A wildcard index is never read as a whole.
                Err(error)
                    if !index.spec.kind.has_every_document()
                        && error.code() == ErrorCode::NoQueryExecutionPlans =>
                {
                    continue;
                }
                Err(error) => panic!("{error}: {}", what()),
            };
            check_same(&expected, &found, request.sort.as_ref(), &|| {
                format!("{} with hint {}", what(), index.spec.name)
            });
        }
        let mut count = request.clone();
        count.purpose = Purpose::Count;
        assert_eq!(fixture.count(count).expect("a count"), expected.len() as u64, "count of {}", what());
        check_window(&fixture, &request, &expected, random, &what);
        check_projection(&fixture, &request, &expected, random, &what);
        check_distinct(&fixture, &request, &expected, random, &what);
    }
}

/// The plans that lose, and those that would win over more documents.
pub(super) fn check_candidates(
    fixture: &Fixture,
    request: &ReadRequest,
    expected: &[(crate::ids::RecordId, Document)],
    what: &dyn Fn() -> String,
) {
    let mut counted = request.clone();
    counted.purpose = Purpose::Count;
    for plan in fixture.candidates(request).unwrap_or_else(|error| panic!("{error}: {}", what())) {
        let node = plan.root.clone();
        let what = || format!("{} by {node:?}", what());
        let found = fixture.run(plan).unwrap_or_else(|error| panic!("{error}: {}", what()));
        check_same(expected, &found, request.sort.as_ref(), &what);
    }
    for plan in fixture.candidates(&counted).unwrap_or_else(|error| panic!("{error}: {}", what())) {
        let node = plan.root.clone();
        let found = fixture.run_count(plan).unwrap_or_else(|error| panic!("{error}: {}", what()));
        assert_eq!(found, expected.len() as u64, "count of {} by {node:?}", what());
    }
}

fn check_same(
    expected: &[(crate::ids::RecordId, Document)],
    found: &[(crate::ids::RecordId, Document)],
    sort: Option<&Sort>,
    what: &dyn Fn() -> String,
) {
    let ids = |rows: &[(crate::ids::RecordId, Document)]| {
        let mut ids: Vec<u64> = rows.iter().map(|(record, _)| record.0).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(ids(found), ids(expected), "{}", what());
    if let Some(sort) = sort {
        assert_eq!(keys(found, sort), keys(expected, sort), "order of {}", what());
    }
}

/// Documents with equal keys may come in any order, so orders compare by their keys.
fn keys(rows: &[(crate::ids::RecordId, Document)], sort: &Sort) -> Vec<Vec<u8>> {
    rows.iter()
        .map(|(_, document)| {
            let mut key = Vec::new();
            sort.key_of(document.as_raw(), &mut key).expect("a key");
            key
        })
        .collect()
}

fn check_window(
    fixture: &Fixture,
    request: &ReadRequest,
    expected: &[(crate::ids::RecordId, Document)],
    random: &mut SmallRng,
    what: &dyn Fn() -> String,
) {
    let mut windowed = request.clone();
    windowed.skip = random.random_range(0..3);
    windowed.limit = Some(random.random_range(1..6));
    let found = fixture.read(windowed.clone()).unwrap_or_else(|error| panic!("{error}: {}", what()));
    let end = (windowed.skip + windowed.limit.unwrap_or(0)).min(expected.len() as u64) as usize;
    let start = (windowed.skip as usize).min(end);
    assert_eq!(found.len(), end - start, "window of {}", what());
    if let Some(sort) = &windowed.sort {
        assert_eq!(keys(&found, sort), keys(&expected[start..end], sort), "window of {}", what());
    }
}

fn check_projection(
    fixture: &Fixture,
    request: &ReadRequest,
    expected: &[(crate::ids::RecordId, Document)],
    random: &mut SmallRng,
    what: &dyn Fn() -> String,
) {
    let mut spec = doc! {"_id": 0};
    spec.push(["a", "b", "c", "a.b", "b.a"].choose(random).expect("a name"), 1);
    let mut projected = request.clone();
    projected.projection = Some(Projection::parse(spec.as_raw()).expect("a projection"));
    let mut found = fixture.read(projected.clone()).unwrap_or_else(|error| panic!("{error}: {}", what()));
    assert_eq!(found.len(), expected.len(), "projection of {}", what());
    let mut plain: Vec<(u64, Document)> = expected
        .iter()
        .map(|(record, document)| {
            (record.0, apply(projected.projection.as_ref().expect("just set"), document.as_raw()))
        })
        .collect();
    plain.sort_by_key(|(record, _)| *record);
    found.sort_by_key(|(record, _)| *record);
    for ((record, expected), (_, found)) in plain.iter().zip(&found) {
        // An index has null for a missing field, and a covered projection shows it, as on MongoDB.
        let shown_null =
            expected.is_empty() && found.iter().all(|(_, value)| matches!(value, kilim_bson::RawValue::Null));
        assert!(
            expected == found || shown_null,
            "record {record}: {expected:?}, not {found:?}: {spec:?} of {}",
            what()
        );
    }
}

/// The different values of a field, null and nothing apart, from the rows that are left.
fn check_distinct(
    fixture: &Fixture,
    request: &ReadRequest,
    expected: &[(crate::ids::RecordId, Document)],
    random: &mut SmallRng,
    what: &dyn Fn() -> String,
) {
    let name = *["a", "b", "c"].choose(random).expect("a name");
    let mut distinct = request.clone();
    distinct.sort = None;
    distinct.distinct = Some(Distinct { path: name.into(), nulls_apart: true });
    distinct.projection = Some(Projection::parse(doc! {"_id": 0, name: 1}.as_raw()).expect("a projection"));
    let values = |rows: &[(crate::ids::RecordId, Document)]| {
        let key = |document: &Document| {
            let mut key = Vec::new();
            let collator = kilim_collation::collator(&request.collation);
            document.get(name).inspect(|value| encode_value_with(&mut key, *value, false, collator));
            key
        };
        rows.iter().map(|(_, document)| key(document)).collect::<BTreeSet<_>>()
    };
    let found = fixture.read(distinct).unwrap_or_else(|error| panic!("{error}: {}", what()));
    assert_eq!(values(&found), values(expected), "different {name} of {}", what());
}

fn apply(projection: &Projection, document: RawDocument<'_>) -> Document {
    let mut out = kilim_bson::Writer::new();
    projection.apply(document, None, &mut out).expect("a projection");
    out.finish()
}

#[test]
fn keys_too_long_to_store_whole_are_found_by_their_records() {
    let long = |tail: &str| format!("{}{tail}", "x".repeat(layout_bytes()));
    let documents: Vec<Document> = vec![
        doc! {"_id": 1, "a": long("a"), "b": 1},
        doc! {"_id": 2, "a": long("b"), "b": 2},
        doc! {"_id": 3, "a": "x", "b": 3},
        doc! {"_id": 4, "a": array![long("a"), "y"], "b": 4},
        doc! {"_id": long("id"), "a": "y", "b": 5},
    ];
    let specs = vec![
        index_spec(&doc! {"a": 1}, RawDocument::empty()),
        index_spec(&doc! {"a": -1, "b": 1}, RawDocument::empty()),
    ];
    let fixture = Fixture::new(&documents, specs);
    for filter in [
        doc! {"a": long("a")},
        doc! {"a": long("b")},
        doc! {"a": long("c")},
        doc! {"a": {"$gt": long("a")}},
        doc! {"a": {"$lt": long("b")}},
        doc! {"a": {"$gte": long("a"), "$lte": long("b")}},
        doc! {"a": {"$in": [long("a"), "x"]}},
        doc! {"a": {"$gt": "x"}, "b": {"$in": [1, 4]}},
        doc! {"_id": long("id")},
        doc! {"_id": long("other")},
        doc! {"_id": {"$gt": long("i")}},
    ] {
        let request = ReadRequest::new(Arc::new(Filter::parse(filter.as_raw()).expect("a filter")));
        let mut natural = request.clone();
        natural.hint = Some(Hint::Natural { backward: false });
        let expected = fixture.read(natural).expect("rows");
        for name in ["_id_", "a_1", "a_-1_b_1"] {
            let mut hinted = request.clone();
            hinted.hint = Some(Hint::Name(name.to_owned()));
            let found = fixture.read(hinted).expect("rows");
            check_same(&expected, &found, None, &|| format!("{name}, {} rows", expected.len()));
        }
        let found = fixture.read(request.clone()).expect("rows");
        check_same(&expected, &found, None, &|| format!("{} rows", expected.len()));
        let mut count = request;
        count.purpose = Purpose::Count;
        assert_eq!(fixture.count(count).expect("a count"), expected.len() as u64);
    }
}

#[test]
fn a_compound_wildcard_index_finds_long_keys_by_their_records() {
    let long = |tail: &str| format!("{}{tail}", "x".repeat(layout_bytes()));
    let documents: Vec<Document> = vec![
        doc! {"_id": 1, "t": long("a"), "w": {"x": 1}, "z": 1},
        doc! {"_id": 2, "t": long("b"), "w": {"x": 1, "y": long("y")}, "z": 2},
        doc! {"_id": 3, "t": "x", "w": {"x": long("a")}, "z": 3},
        doc! {"_id": 4, "t": "x", "w": {"x": array![long("b"), 1]}, "z": long("z")},
        doc! {"_id": 5, "t": "x", "z": 5},
        doc! {"_id": 6, "t": long("a")},
    ];
    let name = "t_1_w.$**_1_z_-1";
    let key = doc! {"t": 1, "w.$**": 1, "z": -1};
    let fixture = Fixture::new(&documents, vec![index_spec(&key, RawDocument::empty())]);
    assert_eq!(fixture.indexes[1].spec.name, name);
    for filter in [
        doc! {"t": long("a")},
        doc! {"t": long("b"), "w.x": 1},
        doc! {"t": long("c")},
        doc! {"t": "x", "w.x": long("a")},
        doc! {"t": "x", "w.x": {"$gt": long("a")}},
        doc! {"t": "x", "w.x": {"$gte": "x"}, "z": {"$gt": 3}},
        doc! {"t": "x", "w.x": {"$exists": true}},
        doc! {"t": {"$in": ["x", long("a")]}},
        doc! {"t": {"$gt": "x"}, "w.y": {"$gt": ""}},
        doc! {"t": "x", "z": long("z")},
    ] {
        let request = ReadRequest::new(Arc::new(Filter::parse(filter.as_raw()).expect("a filter")));
        let mut natural = request.clone();
        natural.hint = Some(Hint::Natural { backward: false });
        let expected = fixture.read(natural).expect("rows");
        let mut hinted = request.clone();
        hinted.hint = Some(Hint::Name(name.to_owned()));
        hinted.keys = Keys::Kept;
        let found = fixture.read(hinted).expect("rows");
        check_same(&expected, &found, None, &|| format!("{} rows", expected.len()));
        let mut count = request;
        count.purpose = Purpose::Count;
        assert_eq!(fixture.count(count).expect("a count"), expected.len() as u64);
    }
}

fn layout_bytes() -> usize {
    crate::layout::KEY_BYTES_MAX
}
