//! `watch` of the library.

use std::time::{Duration, Instant};

use kilim::bson::{Bson, Document, Timestamp, doc};
use kilim::options::{FullDocument, FullDocumentBeforeChange};
use kilim::{ChangeStream, Database};
use serde::Deserialize;

/// Type, database, collection and `_id` of what there is.
fn told(changes: &mut ChangeStream<Document>) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(event) = changes.next_if_any().unwrap() {
        let ns = event.get_document("ns").unwrap();
        let key = event.get_document("documentKey").ok().and_then(|key| key.get("_id")).cloned();
        let name = |field: &str| ns.get_str(field).unwrap_or_default().to_owned();
        let key = key.map_or(String::new(), |key| format!(" {key}"));
        told.push(format!(
            "{} {}.{}{key}",
            event.get_str("operationType").unwrap(),
            name("db"),
            name("coll")
        ));
    }
    told
}

/// It asks for what is there, and hardly waits.
fn at_once() -> Duration {
    Duration::from_millis(1)
}

fn insert(database: &Database, collection: &str, id: i32) {
    database.collection::<Document>(collection).insert_one(doc! {"_id": id}).run().unwrap();
}

#[test]
fn a_collection_a_database_and_all_of_a_directory_are_watched() {
    let shop = Database::in_memory().unwrap();
    let name = shop.name().to_owned();
    let other = shop.named("other");
    let mut of_collection =
        shop.collection::<Document>("a").watch().max_await_time(at_once()).run::<Document>().unwrap();
    let mut of_database = shop.watch().max_await_time(at_once()).run::<Document>().unwrap();
    let mut of_all = shop.watch_all().max_await_time(at_once()).run::<Document>().unwrap();
    insert(&shop, "a", 1);
    insert(&shop, "b", 2);
    insert(&other, "a", 3);
    let [a, b, c] =
        [format!("insert {name}.a 1"), format!("insert {name}.b 2"), "insert other.a 3".to_owned()];
    assert_eq!(told(&mut of_collection), [&a].map(String::as_str));
    assert_eq!(told(&mut of_database), [&a, &b].map(String::as_str));
    assert_eq!(told(&mut of_all), [a, b, c]);
}

#[test]
fn a_stream_says_when_there_is_nothing_and_waits_as_long_as_it_is_told() {
    let database = Database::in_memory().unwrap();
    let wait = Duration::from_millis(200);
    let mut changes = database.watch().max_await_time(wait).run::<Document>().unwrap();
    let asked = Instant::now();
    assert!(changes.next_if_any().unwrap().is_none());
    assert!(asked.elapsed() >= wait, "{:?}", asked.elapsed());
    assert!(changes.is_alive());
    // A second unless said.
    let mut changes = database.watch().run::<Document>().unwrap();
    let asked = Instant::now();
    assert!(changes.next_if_any().unwrap().is_none());
    assert!(asked.elapsed() >= Duration::from_millis(900), "{:?}", asked.elapsed());
}

#[test]
fn a_stream_goes_on_behind_its_token_also_behind_its_end() {
    let database = Database::in_memory().unwrap();
    let orders = database.collection::<Document>("orders");
    let watch = || orders.watch().max_await_time(at_once());
    let mut changes = watch().batch_size(1).run::<Document>().unwrap();
    let begin = changes.resume_token().expect("also before the first event");
    (1..4).for_each(|id| insert(&database, "orders", id));
    let first = changes.next_if_any().unwrap().unwrap();
    let seen = changes.resume_token().unwrap();
    assert_eq!(first.get_document("_id").unwrap(), &seen);
    let name = database.name();
    let inserts: Vec<String> = (1..4).map(|id| format!("insert {name}.orders {id}")).collect();
    assert_eq!(told(&mut watch().resume_after(begin.clone()).run().unwrap()), inserts);
    assert_eq!(told(&mut watch().resume_after(seen).run().unwrap()), inserts[1..]);
    let time: Timestamp = first.get_timestamp("clusterTime").unwrap();
    assert_eq!(told(&mut watch().start_at_operation_time(time).run().unwrap()), inserts);
    // Its end is an event too, and the iterator stops behind it.
    orders.drop().unwrap();
    let types: Vec<String> =
        changes.map(|event| event.unwrap().get_str("operationType").unwrap().to_owned()).collect();
    assert_eq!(types, ["insert", "insert", "drop", "invalidate"]);
    let mut all = watch().resume_after(begin).run::<Document>().unwrap();
    while all.next().is_some() {}
    assert!(!all.is_alive());
    let end = all.resume_token().unwrap();
    assert!(watch().resume_after(end.clone()).run::<Document>().is_err());
    let mut next = watch().start_after(end).run::<Document>().unwrap();
    insert(&database, "orders", 4);
    assert_eq!(told(&mut next), [format!("insert {name}.orders 4")]);
}

#[test]
fn every_option_of_a_stream_reaches_it() {
    #[derive(Debug, Deserialize, PartialEq)]
    struct Order {
        #[serde(rename = "_id")]
        id: i32,
        total: i32,
    }
    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Change {
        operation_type: String,
        full_document: Option<Order>,
        full_document_before_change: Option<Order>,
    }
    let database = Database::in_memory().unwrap();
    let images = doc! {"create": "orders", "changeStreamPreAndPostImages": {"enabled": true}};
    database.run_command(images).unwrap();
    let orders = database.collection::<Document>("orders");
    orders.insert_one(doc! {"_id": 1, "total": 1}).run().unwrap();
    let mut changes = orders
        .watch()
        .pipeline([doc! {"$match": {"operationType": {"$ne": "insert"}}}])
        .full_document(FullDocument::Required)
        .full_document_before_change(FullDocumentBeforeChange::Required)
        .show_expanded_events(true)
        .comment(Bson::from("for a test"))
        .max_await_time(at_once())
        .run::<Change>()
        .unwrap();
    orders.insert_one(doc! {"_id": 2, "total": 1}).run().unwrap();
    orders.update_one(doc! {"_id": 1}, doc! {"$set": {"total": 2}}).run().unwrap();
    orders.create_index(doc! {"total": 1}).run().unwrap();
    let change = changes.next_if_any().unwrap().unwrap();
    assert_eq!(change.operation_type, "update");
    assert_eq!(change.full_document, Some(Order { id: 1, total: 2 }));
    assert_eq!(change.full_document_before_change, Some(Order { id: 1, total: 1 }));
    assert_eq!(changes.next_if_any().unwrap().unwrap().operation_type, "createIndexes");
    assert!(changes.next_if_any().unwrap().is_none());

    let caseless = || doc! {"locale": "en", "strength": 2};
    let of_name = |collation: Option<Document>| {
        let watch = orders.watch().pipeline([doc! {"$match": {"fullDocument.name": "ANN"}}]);
        let watch = watch.max_await_time(at_once());
        match collation {
            Some(collation) => watch.collation(collation).run::<Document>().unwrap(),
            None => watch.run::<Document>().unwrap(),
        }
    };
    let (mut plain, mut collated) = (of_name(None), of_name(Some(caseless())));
    orders.insert_one(doc! {"_id": 3, "name": "ann"}).run().unwrap();
    assert!(told(&mut plain).is_empty());
    assert_eq!(told(&mut collated).len(), 1);
}
