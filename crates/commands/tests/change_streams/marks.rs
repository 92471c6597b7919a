//! The mark of events that patterns caused.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_engine::Engine;

use crate::{Watch, done, engine, text};

/// Type, `_id` and mark of each event.
fn marked(watch: &mut Watch<'_>) -> Vec<(String, i32, Option<Document>)> {
    let events = watch.events();
    let part = |event: &Document, name: &str| {
        event.get(name).and_then(RawValue::as_document).map(RawDocument::to_document)
    };
    let shown = events.iter().map(|event| {
        let Some(RawValue::Int32(id)) = part(event, "documentKey").unwrap().get("_id") else {
            panic!("{event:?}")
        };
        if let Some(last) = event.iter().last().filter(|_| event.get("kilim").is_some()) {
            assert_eq!(last.0, "kilim", "behind MongoDB's fields: {event:?}");
        }
        (text(event, "operationType").to_owned(), id, part(event, "kilim"))
    });
    shown.collect()
}

fn mark(patterns: &[&str]) -> Option<Document> {
    let all: kilim_bson::Array = patterns.iter().map(|name| kilim_bson::Value::from(*name)).collect();
    Some(doc! {"pattern": patterns[0], "patterns": all})
}

fn update(engine: &Arc<Engine>, collection: &str, set: Document) {
    let updates = kilim_bson::array![{"q": {"_id": 1}, "u": {"$set": set}}];
    done(engine, &doc! {"update": collection, "updates": updates, "$db": "test"});
}

/// Orders have the name and the discount of their customer, and a price that is computed of the discount.
fn shop() -> Arc<Engine> {
    let engine = engine();
    let customers = kilim_bson::array![{"_id": 1, "name": "Ann", "discount": 1}];
    done(&engine, &doc! {"insert": "customers", "documents": customers, "$db": "test"});
    let orders =
        kilim_bson::array![{"_id": 1, "customerId": 1, "list": 10}, {"_id": 2, "customerId": 1, "list": 5}];
    done(&engine, &doc! {"insert": "orders", "documents": orders, "$db": "test"});
    // Declared first, and second in the graph: it is computed of what the other copies.
    let price = doc! {"set": {"price": {"$subtract": ["$list", "$customer.discount"]}}};
    let copy = doc! {
        "from": "customers", "localField": "customerId", "foreignField": "_id", "as": "customer",
        "fields": {"name": "$name", "discount": "$discount"},
    };
    for (name, kind, declared) in [("price", "computed", price), ("card", "extendedReference", copy)] {
        let mut command = doc! {"createPattern": "orders", "name": name};
        command.push(kind, declared);
        command.push("$db", "test");
        done(&engine, &command);
        done(&engine, &doc! {"waitPattern": "orders", "name": name, "$db": "test"});
    }
    engine
}

#[test]
fn an_event_of_maintenance_names_all_patterns_that_wrote_the_document_first_those_before_in_the_graph() {
    let engine = shop();
    let mut watch = Watch::open(&engine, 1, doc! {});
    update(&engine, "customers", doc! {"discount": 2});
    let both = || mark(&["card", "price"]);
    let expected = [("update", 1, None), ("update", 1, both()), ("update", 2, both())];
    let events = marked(&mut watch);
    assert_eq!(events, expected.map(|(kind, id, mark)| (kind.to_owned(), id, mark)));
    // The price is touched, and stays.
    update(&engine, "customers", doc! {"name": "Eve"});
    let card = || mark(&["card"]);
    let expected = [("update", 1, None), ("update", 1, card()), ("update", 2, card())];
    let events = marked(&mut watch);
    assert_eq!(events, expected.map(|(kind, id, mark)| (kind.to_owned(), id, mark)));
    engine.close().unwrap();
}

#[test]
fn a_document_that_a_user_wrote_himself_is_unmarked_also_where_patterns_add_to_it() {
    let engine = shop();
    let mut watch = Watch::open(&engine, "orders", doc! {});
    done(
        &engine,
        &doc! {"insert": "orders", "documents": [{"_id": 3, "customerId": 1, "list": 7}], "$db": "test"},
    );
    update(&engine, "orders", doc! {"list": 20});
    let events = watch.events();
    assert!(events.iter().all(|event| event.get("kilim").is_none()), "{events:?}");
    let inserted = events[0].get("fullDocument").and_then(RawValue::as_document).unwrap();
    assert!(inserted.get("price").is_some(), "the pattern has added to it: {inserted:?}");
    engine.close().unwrap();
}

#[test]
fn filling_a_pattern_and_removing_its_fields_is_marked() {
    let engine = shop();
    let mut watch = Watch::open(&engine, "orders", doc! {});
    let double = doc! {"set": {"double": {"$multiply": ["$list", 2]}}};
    done(&engine, &doc! {"createPattern": "orders", "name": "double", "computed": double, "$db": "test"});
    done(&engine, &doc! {"waitPattern": "orders", "name": "double", "$db": "test"});
    let own = || mark(&["double"]);
    let expected = [("update", 1, own()), ("update", 2, own())];
    let expected = expected.map(|(kind, id, mark)| (kind.to_owned(), id, mark));
    assert_eq!(marked(&mut watch), expected);
    done(&engine, &doc! {"dropPattern": "orders", "name": "double", "keepFields": false, "$db": "test"});
    assert_eq!(marked(&mut watch), expected);
    engine.close().unwrap();
}

#[test]
fn dividing_an_array_into_pages_and_folding_it_is_marked() {
    let engine = engine();
    let documents = kilim_bson::array![{"_id": 1, "a": [1, 2, 3, 4, 5, 6]}];
    done(&engine, &doc! {"insert": "c", "documents": documents, "$db": "test"});
    let mut watch = Watch::open(&engine, "c", doc! {});
    let outlier = doc! {"field": "a", "limit": 2, "pageSize": 10};
    done(&engine, &doc! {"createPattern": "c", "name": "pages", "outlier": outlier, "$db": "test"});
    done(&engine, &doc! {"waitPattern": "c", "name": "pages", "$db": "test"});
    let expected = [("update".to_owned(), 1, mark(&["pages"]))];
    assert_eq!(marked(&mut watch), expected);
    done(&engine, &doc! {"dropPattern": "c", "name": "pages", "$db": "test"});
    assert_eq!(marked(&mut watch), expected);
    engine.close().unwrap();
}

#[test]
fn a_parent_that_a_pattern_makes_and_removes_is_marked() {
    let engine = engine();
    done(&engine, &doc! {"create": "sales", "$db": "test"});
    let sums = doc! {
        "from": "sales", "whenNotMatched": "insert",
        "pipeline": [{"$group": {"_id": "$day", "units": {"$sum": "$units"}}}],
    };
    done(&engine, &doc! {"createPattern": "days", "name": "sums", "computed": sums, "$db": "test"});
    let mut watch = Watch::open(&engine, "days", doc! {});
    done(&engine, &doc! {"insert": "sales", "documents": [{"_id": 1, "day": 4, "units": 2}], "$db": "test"});
    done(&engine, &doc! {"delete": "sales", "deletes": [{"q": {"_id": 1}, "limit": 1}], "$db": "test"});
    let own = || mark(&["sums"]);
    let expected = [("insert", 4, own()), ("delete", 4, own())];
    assert_eq!(marked(&mut watch), expected.map(|(kind, id, mark)| (kind.to_owned(), id, mark)));
    engine.close().unwrap();
}
