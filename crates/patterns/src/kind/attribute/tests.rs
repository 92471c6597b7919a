//! Attributes in both forms: what is stored, and what filters mean there.

use kilim_bson::{Document, Value, array, doc};
use kilim_error::ErrorCode;
use kilim_query::filter::Filter;
use kilim_query::sort::Sort;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{Attribute, Fields, Store, names};
use crate::declaration::Declaration;
use crate::kind::{Kind, Served};

fn attribute(store: Store) -> Attribute {
    Attribute {
        fields: Fields::parse(&["specs.*"]).unwrap(),
        array: "kv".into(),
        array_names: names("kv"),
        store,
        units: [("kg".into(), "kg".into())].into(),
    }
}

fn filter(filter: &Document) -> Filter {
    Filter::parse(filter.as_raw()).unwrap()
}

#[track_caller]
fn stored(store: Store, before: Option<Document>, after: Document) -> Document {
    let made = attribute(store).stored(before.as_ref().map(Document::as_raw), after.as_raw()).unwrap();
    made.unwrap_or(after)
}

#[track_caller]
fn refused(store: Store, before: Option<Document>, after: Document) -> String {
    let error = attribute(store).stored(before.as_ref().map(Document::as_raw), after.as_raw()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::PatternFieldConflict);
    error.to_string()
}

fn flat() -> Document {
    doc! {"_id": 1, "specs": {"color": "black", "kg": 15}}
}

fn listed() -> Document {
    doc! {"_id": 1, "kv": array![doc! {"k": "color", "v": "black"}, doc! {"k": "kg", "v": 15, "u": "kg"}]}
}

fn both() -> Document {
    doc! {
        "_id": 1,
        "specs": {"color": "black", "kg": 15},
        "kv": array![doc! {"k": "color", "v": "black"}, doc! {"k": "kg", "v": 15, "u": "kg"}],
    }
}

#[test]
fn a_document_is_stored_in_the_declared_form_whichever_it_was_written_in() {
    for written in [flat(), listed(), both()] {
        assert_eq!(stored(Store::Flat, None, written.clone()), flat());
        assert_eq!(stored(Store::Kv, None, written.clone()), listed());
        let made = stored(Store::Both, None, written);
        let form = |document: &Document, name| doc! {"it": document.get(name).unwrap()};
        assert_eq!(form(&made, "specs"), form(&both(), "specs"));
        assert_eq!(form(&made, "kv"), form(&both(), "kv"));
    }
    let nothing = doc! {"_id": 1, "x": 2};
    for store in [Store::Flat, Store::Kv, Store::Both] {
        assert_eq!(stored(store, None, nothing.clone()), nothing);
    }
}

#[test]
fn the_form_that_was_changed_counts() {
    let repainted = doc! {"_id": 1, "specs": {"color": "red"}, "kv": both().get("kv").unwrap().to_value()};
    let red = doc! {"_id": 1, "specs": {"color": "red"}, "kv": array![doc! {"k": "color", "v": "red"}]};
    assert_eq!(stored(Store::Both, Some(both()), repainted), red);
    let pulled = doc! {
        "_id": 1,
        "specs": both().get("specs").unwrap().to_value(),
        "kv": array![doc! {"k": "color", "v": "red"}],
    };
    assert_eq!(stored(Store::Both, Some(both()), pulled), red);
    // Whoever replaces the whole document may know of one form only, and changed neither.
    let replaced = doc! {"_id": 1, "kv": both().get("kv").unwrap().to_value(), "x": 1};
    assert!(stored(Store::Both, Some(both()), replaced).get("specs").is_some());
    let replaced = doc! {"_id": 1, "specs": both().get("specs").unwrap().to_value(), "x": 1};
    assert!(stored(Store::Both, Some(both()), replaced).get("kv").is_some());
    assert_eq!(stored(Store::Both, Some(both()), doc! {"_id": 1}), doc! {"_id": 1});
    // A pipeline set a field of a document that is stored as an array.
    let mut set = listed();
    set.push("specs", doc! {"color": "red", "size": 4});
    let kv = array![
        doc! {"k": "color", "v": "red"},
        doc! {"k": "size", "v": 4},
        doc! {"k": "kg", "v": 15, "u": "kg"},
    ];
    assert_eq!(stored(Store::Kv, Some(listed()), set), doc! {"_id": 1, "kv": kv});
}

#[test]
fn contradictions_are_refused() {
    let torn = || doc! {"_id": 1, "specs": {"color": "red"}, "kv": array![doc! {"k": "color", "v": "blue"}]};
    for store in [Store::Flat, Store::Kv, Store::Both] {
        let message = refused(store, None, torn());
        assert!(message.contains("'kv'") && message.contains("'specs.color'"), "{message}");
        assert_eq!(stored(store, Some(torn()), torn()), torn(), "nobody touched it");
    }
    refused(Store::Both, Some(both()), torn());
    for array in [
        Value::Int32(1),
        Value::Array(array![1]),
        Value::Array(array![doc! {"k": 1, "v": 1}]),
        Value::Array(array![doc! {"k": "a"}]),
        Value::Array(array![doc! {"k": "a", "v": 1, "w": 1}]),
        Value::Array(array![doc! {"k": "a", "v": 1, "u": "m"}]),
        Value::Array(array![doc! {"k": "a", "v": 1}, doc! {"k": "a", "v": 2}]),
    ] {
        refused(Store::Kv, None, doc! {"kv": array});
    }
    refused(Store::Kv, None, doc! {"specs": array![doc! {"a": 1}]});
}

#[test]
fn without_the_pattern_attributes_are_fields() {
    let of = |store, document: Document| attribute(store).flattened(document.as_raw()).unwrap();
    assert_eq!(of(Store::Kv, listed()), Some(flat()));
    assert_eq!(of(Store::Both, both()), Some(flat()));
    assert_eq!(of(Store::Flat, flat()), None);
}

#[test]
fn declarations_that_cannot_be_kept_are_refused() {
    let code = |spec: Document| {
        let fields = doc! {"name": "p", "attribute": spec};
        Declaration::parse("t", fields.as_raw()).err().map(|error| error.code())
    };
    assert_eq!(code(doc! {"paths": array!["specs.*"], "as": "kv"}), None);
    assert_eq!(code(doc! {"paths": array!["color", "dim.w"], "as": "kv", "store": "kv"}), None);
    assert_eq!(
        code(doc! {"paths": array!["specs.*"], "as": "specs.kv"}),
        Some(ErrorCode::PatternFieldConflict)
    );
    assert_eq!(code(doc! {"paths": array!["a", "a.b"], "as": "kv"}), Some(ErrorCode::PatternFieldConflict));
    assert_eq!(code(doc! {"paths": array!["a.*", "b"], "as": "kv"}), Some(ErrorCode::BadValue));
    assert_eq!(code(doc! {"paths": array![], "as": "kv"}), Some(ErrorCode::BadValue));
    assert_eq!(code(doc! {"paths": array!["_id"], "as": "kv"}), Some(ErrorCode::BadValue));
    assert_eq!(code(doc! {"paths": array!["a"], "as": "kv", "units": {"b": "m"}}), Some(ErrorCode::BadValue));
    assert_eq!(code(doc! {"paths": array!["a"], "as": "kv", "store": "x"}), Some(ErrorCode::BadValue));
    assert_eq!(code(doc! {"paths": "a", "as": "kv"}), Some(ErrorCode::TypeMismatch));
}

/// A filter matches a document as it was written exactly if its meaning matches what is stored of it.
#[test]
fn filters_mean_the_same_in_every_form() {
    let mut random = StdRng::seed_from_u64(11);
    for round in 0..4_000 {
        let written = random_document(&mut random);
        let asked = random_filter(&mut random, 2);
        let expected = filter(&asked).matches(written.as_raw()).unwrap();
        for store in [Store::Flat, Store::Kv, Store::Both] {
            let attribute = attribute(store);
            let made = attribute.stored(None, written.as_raw()).unwrap().unwrap_or_else(|| written.clone());
            for is_filled in [true, false] {
                let parsed = filter(&asked);
                let meant = attribute.meaning_of(&parsed, is_filled).unwrap().unwrap_or(parsed);
                let context =
                    || format!("round {round}: {store:?} {is_filled} {asked:?} {written:?} {meant:?}");
                assert_eq!(meant.matches(made.as_raw()).unwrap(), expected, "stored: {}", context());
                if !is_filled {
                    assert_eq!(
                        meant.matches(written.as_raw()).unwrap(),
                        expected,
                        "as before: {}",
                        context()
                    );
                }
                let served = match attribute.served(&meant) {
                    Some(Served::Instead(served)) => served,
                    _ => meant,
                };
                assert_eq!(served.matches(made.as_raw()).unwrap(), expected, "served: {served:?} {asked:?}");
            }
        }
    }
}

#[test]
fn filters_on_the_array_are_answered_from_fields() {
    let flat_store = attribute(Store::Flat);
    let meant = |asked: Document| {
        flat_store.meaning_of(&filter(&asked), true).map(|made| made.unwrap().to_document())
    };
    let element = |element: Document| doc! {"kv": {"$elemMatch": element}};
    let matches = |asked: Document| {
        let made = flat_store.meaning_of(&filter(&asked), true).unwrap().unwrap();
        let as_stored = made.matches(flat().as_raw()).unwrap();
        assert_eq!(as_stored, filter(&asked).matches(both().as_raw()).unwrap(), "{asked:?}");
        as_stored
    };
    assert!(matches(element(doc! {"k": "color", "v": "black"})));
    assert!(!matches(element(doc! {"k": "color", "v": {"$ne": "black"}})));
    assert!(!matches(element(doc! {"k": "size", "v": {"$ne": "black"}})), "no element has that name");
    assert!(matches(element(doc! {"k": "kg", "v": {"$gt": 14, "$lt": 16}, "u": "kg"})));
    assert!(!matches(element(doc! {"k": "kg", "u": "lb"})));
    assert!(matches(doc! {"kv.k": {"$in": array!["size", "kg"]}}));
    assert!(matches(doc! {"kv": {"$exists": true}}));
    assert!(matches(doc! {"kv": {"$not": {"$elemMatch": {"k": "size"}}}}));
    for asked in [doc! {"kv.v": 15}, doc! {"kv": array![]}, element(doc! {"v": 15}), doc! {"kv.0.k": "color"}]
    {
        assert_eq!(meant(asked).unwrap_err().code(), ErrorCode::BadValue);
    }
}

fn random_value(random: &mut StdRng, depth: u32) -> Value {
    match random.random_range(0..if depth == 0 { 6 } else { 8 }) {
        0 => Value::Null,
        1 => Value::Int32(random.random_range(0..3)),
        2 => Value::Double(f64::from(random.random_range(0..3)) / 2.0),
        3 => Value::String(["x", "y", "xy"][random.random_range(0..3)].into()),
        4 => Value::Bool(random.random()),
        5 => Value::Int64(1),
        6 => Value::Array((0..random.random_range(0..3)).map(|_| random_value(random, depth - 1)).collect()),
        _ => {
            let mut document = Document::new();
            for name in ["a", "b"] {
                if random.random() {
                    document.push(name, random_value(random, depth - 1));
                }
            }
            Value::Document(document)
        }
    }
}

fn random_document(random: &mut StdRng) -> Document {
    let mut document = doc! {"_id": 1, "other": random_value(random, 1)};
    match random.random_range(0..8) {
        0 => {}
        1 => document.push("specs", Value::Null),
        _ => {
            let mut specs = Document::new();
            for name in ["a", "b", "kg", "0"] {
                if random.random_range(0..3) > 0 {
                    specs.push(name, random_value(random, 2));
                }
            }
            document.push("specs", specs);
        }
    }
    document
}

fn random_filter(random: &mut StdRng, depth: u32) -> Document {
    if depth > 0 && random.random_range(0..4) == 0 {
        let operator = ["$and", "$or", "$nor"][random.random_range(0..3)];
        let children: Vec<Value> = (0..random.random_range(1..4))
            .map(|_| Value::Document(random_filter(random, depth - 1)))
            .collect();
        return doc! {operator: children.into_iter().collect::<kilim_bson::Array>()};
    }
    let path = ["specs.a", "specs.b", "specs.kg", "specs.0", "specs.a.a", "specs.a.b", "specs.a.0", "other"]
        [random.random_range(0..8)];
    let value = random_value(random, 1);
    let value = || value.clone();
    let predicate = match random.random_range(0..14) {
        0 => doc! {"$eq": value()},
        1 => doc! {"$ne": value()},
        2 => doc! {"$gt": value()},
        3 => doc! {"$lte": value()},
        4 => doc! {"$in": array![value(), random_value(random, 1)]},
        5 => doc! {"$nin": array![value(), random_value(random, 1)]},
        6 => doc! {"$exists": random.random::<bool>()},
        7 => doc! {"$type": ["string", "array", "null", "number", "object"][random.random_range(0..5)]},
        8 => doc! {"$size": random.random_range(0..3)},
        9 => doc! {"$not": {"$gte": value()}},
        10 => doc! {"$elemMatch": {"$gte": 0, "$lt": 2}},
        11 => doc! {"$all": array![value(), random_value(random, 1)]},
        12 => doc! {"$regex": "^x"},
        _ => doc! {"$gte": value(), "$lt": random_value(random, 1)},
    };
    if random.random_range(0..20) == 0 {
        return doc! {"specs": {"$exists": random.random::<bool>()}};
    }
    doc! {path: predicate}
}

#[test]
fn an_attribute_without_a_name_is_one_and_one_that_is_there_twice_is_refused() {
    let unnamed = doc! {"_id": 1, "specs": {"": 1, "b": 2}};
    let listed = stored(Store::Kv, None, unnamed.clone());
    assert_eq!(listed, doc! {"_id": 1, "kv": [{"k": "", "v": 1}, {"k": "b", "v": 2}]});
    // Written again, and made fields again.
    assert_eq!(stored(Store::Kv, Some(listed.clone()), listed.clone()), listed);
    assert_eq!(attribute(Store::Kv).flattened(listed.as_raw()).unwrap(), Some(unnamed));
    let twice = doc! {"_id": 1, "specs": {"a": 1, "a": 2}};
    for store in [Store::Kv, Store::Both] {
        assert!(refused(store, None, twice.clone()).contains("'a' twice"));
    }
    assert_eq!(stored(Store::Flat, None, twice.clone()), twice);
}

/// Neither form is compared with the other name by name.
#[test]
fn very_many_attributes_are_no_more_than_many() {
    let mut specs = Document::new();
    (0..100_000).for_each(|at| specs.push(&format!("attribute {at}"), at));
    let flat = doc! {"_id": 1, "specs": specs};
    let begun = std::time::Instant::now();
    let both = stored(Store::Both, None, flat.clone());
    let mut changed = both.clone();
    changed.push("note", 1);
    assert_eq!(stored(Store::Both, Some(both), changed.clone()), changed);
    assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
}

#[test]
fn what_holds_listed_attributes_is_not_asked_for_as_a_whole() {
    let spec = doc! {"paths": ["a.b", "c"], "as": "kv", "store": "kv"};
    let kind = super::parse(spec.as_raw()).unwrap();
    let asked = |filter: Document| kind.meaning(&self::filter(&filter), true);
    assert!(asked(doc! {"a.b": 1}).unwrap().is_some());
    assert!(asked(doc! {"a.d": 1}).unwrap().is_none());
    let error = asked(doc! {"a": {"b": 1}}).unwrap_err();
    assert_eq!(error.code(), ErrorCode::BadValue);
}

#[test]
fn a_sort_by_attributes_is_the_same_in_every_form() {
    let mut random = StdRng::seed_from_u64(5);
    let attribute = attribute(Store::Kv);
    let sorts = [
        doc! {"specs.a": 1},
        doc! {"specs.a": -1},
        doc! {"specs.a": 1, "specs.b": -1},
        doc! {"specs.a.a": 1, "_id": 1},
        doc! {"specs.b.0": -1, "specs.a": 1},
    ];
    for sort in sorts {
        let sort = Sort::parse(sort.as_raw()).unwrap();
        let meant = sort.with_pairs(|path| attribute.sorts_by(path)).unwrap();
        for _ in 0..400 {
            let document = random_document(&mut random);
            let Ok(made) = attribute.stored(None, document.as_raw()) else { continue };
            let made = made.unwrap_or_else(|| document.clone());
            let key = |sort: &Sort, document: &Document| {
                let mut key = Vec::new();
                sort.key_of(document.as_raw(), &mut key).map(|()| key).map_err(|error| error.code())
            };
            assert_eq!(key(&sort, &document), key(&meant, &made), "{document:?} stored as {made:?}");
            // While it is being filled, documents of both forms are met.
            assert_eq!(key(&sort, &document), key(&meant, &document), "{document:?}");
        }
    }
}
