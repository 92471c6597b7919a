//! A directory that a server of the newest format left is opened with all that it holds.
//!
//! `tests/fixtures/format-4.gz` is one document: the files of a directory, some of it in trees and some only in the journal, for
//! its server was killed, and what a client saw of it before. [`fill`] says what is in it. A new format gets a fixture of its own,
//! which this writes: `cargo nextest run -p kilim-cli make_fixture --run-ignored only`.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use kilim_bson::{Document, RawDocument, RawValue, Value, array, doc};
use kilim_client::{Client, whole};
use kilim_testkit::eventually;

use crate::running::{Running, output};

const DATABASE: &str = "shop";

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-4.gz")
}

/// The log of a fixture is older than a log may be otherwise.
fn serve(dir: &Path) -> (Running, Client) {
    let data = dir.to_str().unwrap();
    let log = ["--change-log-hours", "1000000"];
    let server = Running::start(&[&["serve", "--port", "0", "--data", data][..], &log].concat());
    let client = Client::connect(&*server.address).unwrap();
    (server, client)
}

fn minute(number: i32) -> Value {
    Value::DateTime(1_700_000_000_000 + i64::from(number) * 60_000)
}

fn insert(client: &mut Client, name: &str, documents: impl Iterator<Item = Document>) {
    let documents = Value::Array(documents.map(Value::Document).collect());
    client.run(DATABASE, doc! {"insert": name, "documents": documents}).unwrap();
}

/// Everything that has rows of its own kind on disk.
fn fill(client: &mut Client) {
    let mut run = |command: Document| client.run(DATABASE, command).unwrap();
    run(doc! {"create": "orders", "changeStreamPreAndPostImages": {"enabled": true}});
    let after = doc! {"key": {"at": 1}, "name": "at_1", "expireAfterSeconds": 2_000_000_000};
    let partial = doc! {"key": {"n": -1}, "name": "partial", "partialFilterExpression": {"n": {"$gt": 5}}};
    let folded = doc! {"key": {"name": 1}, "name": "folded", "collation": {"locale": "en", "strength": 2}};
    run(doc! {"createIndexes": "orders", "indexes": [
        {"key": {"number": 1, "name": -1}, "name": "unique", "unique": true},
        {"key": {"lines": 1}, "name": "many", "sparse": true},
        {"key": {"text": "text"}, "name": "words"},
        {"key": {"place": "2dsphere"}, "name": "sphere"},
        {"key": {"flat": "2d"}, "name": "plane"},
        {"key": {"name": "hashed"}, "name": "hash"},
        {"key": {"more.$**": 1}, "name": "wild"},
        {"key": {"hidden": 1}, "name": "hidden", "hidden": true},
        after, partial, folded,
    ]});
    run(doc! {"create": "large", "viewOn": "orders", "pipeline": [{"$match": {"n": {"$gte": 10}}}]});
    run(doc! {"create": "latest", "capped": true, "size": 10_000, "max": 5});
    run(doc! {"create": "clustered", "clusteredIndex": {"key": {"_id": 1}, "unique": true}});
    run(doc! {"create": "checked", "validator": {"n": {"$gte": 0}}, "collation": {"locale": "de"}});
    run(
        doc! {"create": "weather", "timeseries": {"timeField": "at", "metaField": "station", "granularity": "minutes"}},
    );
    for name in ["readings", "users", "people", "customers", "products", "reviews", "items"] {
        run(doc! {"create": name});
    }
    run(doc! {"createUser": "ann", "pwd": "a password", "roles": ["readWrite"]});
    run(doc! {"createRole": "reader", "roles": ["read"], "privileges": []});
    let card = doc! {"from": "customers", "localField": "customer", "as": "card", "fields": {"name": 1}};
    run(doc! {"createPattern": "orders", "name": "card", "extendedReference": card});
    let group = doc! {"_id": "$product", "count": {"$count": {}}, "sum": {"$sum": "$rating"}, "best": {"$max": "$rating"}};
    let stats = doc! {"from": "reviews", "pipeline": [{"$group": group}]};
    run(doc! {"createPattern": "products", "name": "stats", "computed": stats});
    let recent = doc! {
        "from": "reviews", "foreignField": "product", "as": "recent", "sort": {"at": -1}, "limit": 2, "fields": {"at": 1},
    };
    run(doc! {"createPattern": "products", "name": "recent", "subset": recent});
    let bucket =
        doc! {"timeField": "at", "metaField": "sensor", "maxCount": 10, "stats": {"t": ["min", "avg"]}};
    run(doc! {"createPattern": "readings", "name": "buckets", "bucket": bucket});
    let outlier = doc! {"field": "followers", "limit": 3, "pageSize": 4, "count": "followerCount"};
    run(doc! {"createPattern": "users", "name": "fans", "outlier": outlier});

    let order = |id: i32| {
        doc! {
            "_id": id, "number": id, "name": format!("Order {}", id % 5), "n": id % 20, "customer": id % 3,
            "lines": [id, id + 1, id % 3], "text": format!("the words of order {id}"), "at": minute(id),
            "place": {"type": "Point", "coordinates": [f64::from(id % 90), f64::from(id % 45)]},
            "flat": [id % 90, id % 45], "more": {"depth": {"n": id}}, "hidden": id, "long": "x".repeat(id as usize * 40),
        }
    };
    insert(client, "customers", (0..3).map(|id| doc! {"_id": id, "name": format!("Customer {id}")}));
    insert(client, "orders", (0..60).map(order));
    insert(client, "latest", (0..9).map(|id| doc! {"_id": id}));
    insert(client, "clustered", (0..9).map(|id| doc! {"_id": format!("key {id}")}));
    insert(client, "checked", (0..9).map(|n| doc! {"_id": n, "n": n}));
    insert(client, "products", (0..4).map(|id| doc! {"_id": id}));
    insert(
        client,
        "reviews",
        (0..30).map(|id| doc! {"_id": id, "product": id % 4, "rating": id % 6, "at": minute(id)}),
    );
    let weather =
        |id: i32| doc! {"_id": id, "at": minute(id), "station": {"s": id % 3}, "t": f64::from(id) / 7.0};
    insert(client, "weather", (0..100).map(weather));
    let reading = |id: i32| doc! {"_id": id, "at": minute(id / 10), "sensor": id % 2, "t": id};
    insert(client, "readings", (0..64).map(reading));
    let user = |id: i32| doc! {"_id": id, "followers": Value::Array((0..id * 5).map(Value::Int32).collect())};
    insert(client, "users", (0..4).map(user));
    insert(client, "people", (0..9).map(|id| doc! {"_id": id, "phone": format!("555-{id}")}));
    let phones = doc! {
        "field": "version", "from": 1, "to": 2,
        "up": [{"$set": {"phone": {"code": "+1", "number": "$phone"}}}], "down": [{"$set": {"phone": "$phone.number"}}],
    };
    client
        .run(DATABASE, doc! {"createPattern": "people", "name": "phones", "schemaVersion": phones})
        .unwrap();
    client.run(DATABASE, doc! {"waitPattern": "people", "name": "phones"}).unwrap();
    eventually("measurements are packed", || {
        let buckets =
            client.all(DATABASE, doc! {"find": "readings.buckets", "filter": {"sealed": true}}).unwrap();
        buckets.len() == 6
    });
}

/// What is in the journal only, when the server is killed.
fn change(client: &mut Client) {
    let mut change = |name: &str, filter: Document, change: Document| {
        client.run(DATABASE, doc! {"update": name, "updates": [{"q": filter, "u": change}]}).unwrap();
    };
    change("orders", doc! {"_id": 3}, doc! {"$set": {"n": 19}, "$push": {"lines": 77}});
    change("orders", doc! {"_id": 4}, doc! {"_id": 4, "number": 1000, "name": "replaced"});
    change("customers", doc! {"_id": 1}, doc! {"$set": {"name": "another"}});
    change("readings", doc! {"_id": 2}, doc! {"$set": {"t": -5}});
    change("users", doc! {"_id": 2}, doc! {"$push": {"followers": "last"}});
    change("people@1", doc! {"_id": 2}, doc! {"$set": {"phone": "555-9"}});
    for (name, id) in [("orders", 5), ("readings", 3), ("reviews", 7)] {
        client.run(DATABASE, doc! {"delete": name, "deletes": [{"q": {"_id": id}, "limit": 1}]}).unwrap();
    }
    let concern = doc! {"w": "majority", "j": true};
    client
        .run(
            DATABASE,
            doc! {"insert": "orders", "documents": [{"_id": 100, "number": 100}], "writeConcern": concern},
        )
        .unwrap();
}

fn collections(client: &mut Client, kind: &str) -> Vec<String> {
    let found = client.all(DATABASE, doc! {"listCollections": 1, "filter": {"type": kind}}).unwrap();
    found.iter().filter_map(|each| each.get("name")?.as_str()).map(str::to_owned).collect()
}

/// All that a client sees of a database.
fn seen(client: &mut Client) -> Document {
    let values =
        |documents: Vec<Document>| Value::Array(documents.into_iter().map(Value::Document).collect());
    let mut seen = Document::new();
    let mut collections = client.all(DATABASE, doc! {"listCollections": 1}).unwrap();
    let name_of = |document: &Document| document.get("name").and_then(RawValue::as_str).unwrap().to_owned();
    collections.sort_by_key(name_of);
    let mut names: Vec<String> = collections.iter().map(name_of).collect();
    names.extend(["readings.buckets", "people@1"].map(str::to_owned));
    for name in &names {
        let found = client.all(DATABASE, doc! {"find": name.as_str(), "sort": {"_id": 1}}).unwrap();
        seen.push(&format!("documents of {name}"), values(found));
        if let Ok(mut indexes) = client.all(DATABASE, doc! {"listIndexes": name.as_str()}) {
            indexes.sort_by_key(name_of);
            seen.push(&format!("indexes of {name}"), values(indexes));
        }
    }
    seen.push("collections", values(collections));
    let questions = [
        doc! {"$text": {"$search": "words 42"}},
        doc! {"place": {"$near": {"$geometry": {"type": "Point", "coordinates": [10, 10]}}}},
        doc! {"flat": {"$near": [10, 10]}},
        doc! {"number": {"$gte": 30}, "name": "Order 1"},
        doc! {"more.depth.n": {"$lt": 9}},
        doc! {"lines": 7},
    ];
    for (at, filter) in questions.into_iter().enumerate() {
        let ids = client
            .all(DATABASE, doc! {"find": "orders", "filter": filter, "projection": {"_id": 1}})
            .unwrap();
        seen.push(&format!("answer {at}"), values(ids));
    }
    let mut patterns = client.all(DATABASE, doc! {"listPatterns": 1}).unwrap();
    patterns.sort_by_key(name_of);
    let told = |pattern: &Document| {
        let fields = ["name", "kind", "ns", "spec", "state"];
        let told = fields.into_iter().map(|field| pattern.get(field).unwrap().to_value());
        Value::Array(told.collect())
    };
    seen.push("patterns", Value::Array(patterns.iter().map(told).collect()));
    for (command, shown) in [
        (doc! {"usersInfo": {"forAllDBs": true}, "showCredentials": true}, "users"),
        (doc! {"rolesInfo": 1}, "roles"),
    ] {
        let reply = client.run(DATABASE, command).unwrap();
        seen.push(shown, reply.get(shown).unwrap().to_value());
    }
    seen
}

/// All events since the log began, with the images of the collection that keeps them.
fn events(client: &mut Client) -> Vec<Document> {
    let status = client.run("admin", doc! {"serverStatus": 1}).unwrap();
    let log = status.get("changeLog").and_then(RawValue::as_document).unwrap();
    let Some(RawValue::Timestamp(begins)) = log.get("beginsAfter") else { panic!("{log:?}") };
    let begins = kilim_bson::Timestamp::from_bits(begins.to_bits() + 1);
    let options = doc! {
        "startAtOperationTime": Value::Timestamp(begins), "showExpandedEvents": true,
        "fullDocument": "whenAvailable", "fullDocumentBeforeChange": "whenAvailable",
    };
    let stages = array![{"$changeStream": options}];
    let begin = doc! {"aggregate": 1, "pipeline": stages, "cursor": {"batchSize": 10_000}};
    let reply = client.run(DATABASE, begin).unwrap();
    let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap();
    let events_of = |cursor: RawDocument<'_>, batch: &str| -> Vec<Document> {
        let batch = cursor.get(batch).and_then(RawValue::as_array).unwrap();
        batch.iter().filter_map(RawValue::as_document).map(|event| event.to_document()).collect()
    };
    let mut events = events_of(cursor, "firstBatch");
    let id = whole(cursor.get("id")).unwrap();
    loop {
        let more = doc! {"getMore": id, "collection": "$cmd.aggregate", "maxTimeMS": 100i64};
        let reply = client.run(DATABASE, more).unwrap();
        let batch = events_of(reply.get("cursor").and_then(RawValue::as_document).unwrap(), "nextBatch");
        if batch.is_empty() {
            return events;
        }
        events.extend(batch);
    }
}

#[test]
#[ignore = "writes the fixture anew, for a new format"]
fn make_fixture() {
    let place = tempfile::tempdir().unwrap();
    let (server, mut client) = serve(place.path());
    fill(&mut client);
    server.end(libc::SIGTERM);
    let (server, mut client) = serve(place.path());
    change(&mut client);
    let (seen, events) = (seen(&mut client), events(&mut client));
    server.end(libc::SIGKILL);
    let mut files = Document::new();
    for entry in std::fs::read_dir(place.path()).unwrap() {
        let entry = entry.unwrap();
        let bytes = std::fs::read(entry.path()).unwrap();
        files.push(entry.file_name().to_str().unwrap(), Value::Binary { subtype: 0, bytes });
    }
    let whole = doc! {"files": files, "seen": seen, "events": Value::Array(events.into_iter().map(Value::Document).collect())};
    std::fs::create_dir_all(fixture().parent().unwrap()).unwrap();
    let mut packed = GzEncoder::new(std::fs::File::create(fixture()).unwrap(), Compression::best());
    packed.write_all(whole.as_raw().as_bytes()).unwrap();
    packed.finish().unwrap();
}

#[test]
fn a_directory_of_format_4_opens_with_all_that_it_holds() {
    let mut bytes = Vec::new();
    GzDecoder::new(std::fs::File::open(fixture()).unwrap()).read_to_end(&mut bytes).unwrap();
    let whole_fixture = RawDocument::parse(&bytes).unwrap();
    let place = tempfile::tempdir().unwrap();
    for (name, bytes) in whole_fixture.get("files").and_then(RawValue::as_document).unwrap().iter() {
        let Value::Binary { bytes, .. } = bytes.to_value() else { panic!("{name} is no file") };
        std::fs::write(place.path().join(name), bytes).unwrap();
    }
    let expected = whole_fixture.get("seen").and_then(RawValue::as_document).unwrap();
    for round in ["as it was left", "after a clean stop"] {
        let (code, told, _) = output(&["check", place.path().to_str().unwrap()]);
        assert_eq!(code, Some(0), "{round}: {told}");
        let (server, mut client) = serve(place.path());
        let found = seen(&mut client);
        for (name, value) in expected.iter() {
            let alone = |value: RawValue<'_>| doc! {"found": value.to_value()};
            assert_eq!(found.get(name).map(alone), Some(alone(value)), "{round}: {name}");
        }
        assert_eq!(found.iter().count(), expected.iter().count(), "{round}");
        let told = events(&mut client);
        let expected = whole_fixture.get("events").and_then(RawValue::as_array).unwrap();
        let expected: Vec<Document> =
            expected.iter().map(|event| event.as_document().unwrap().to_document()).collect();
        assert!(expected.len() > 200 && told.starts_with(&expected), "{round}: {told:?}");
        let is_own = |name: &&String| !name.starts_with("system.") || name.starts_with("system.buckets.");
        for name in collections(&mut client, "collection").iter().filter(is_own) {
            let report = client.run(DATABASE, doc! {"validate": name.as_str(), "full": true}).unwrap();
            assert_eq!(report.get("valid").and_then(RawValue::as_bool), Some(true), "{round}: {report:?}");
        }
        for pattern in client.all(DATABASE, doc! {"listPatterns": 1}).unwrap() {
            let text = |name: &str| pattern.get(name).and_then(RawValue::as_str).unwrap();
            let target = text("ns").split_once('.').unwrap().1;
            let verified =
                client.run(DATABASE, doc! {"verifyPattern": target, "name": text("name")}).unwrap();
            assert_eq!(whole(verified.get("wrong")), Some(0), "{round}: {verified:?}");
        }
        // It takes writes.
        client.run(DATABASE, doc! {"insert": "passing", "documents": [{"_id": 1}]}).unwrap();
        client.run(DATABASE, doc! {"drop": "passing"}).unwrap();
        assert_eq!(server.end(libc::SIGTERM).0, Some(0));
    }
}
