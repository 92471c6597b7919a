//! Change streams: every event once, in one order, whatever happens between two batches.

mod ends;
mod images;
mod labels;
mod marks;
mod starts;
mod told;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kilim_bson::{Array, Document, RawDocument, RawValue, Value, array, doc};
use kilim_commands::{Client, Request, run};
use kilim_engine::{Durability, Engine, EngineOptions, LogOptions, StorageOptions};

fn open(data: Option<&Path>, log: Option<LogOptions>) -> Arc<Engine> {
    let options = EngineOptions {
        data: data.map(Path::to_path_buf),
        durability: Durability::Durable,
        storage: StorageOptions { cache_bytes: 16 << 20, log, ..Default::default() },
        test_commands: false,
    };
    Engine::open(options).unwrap()
}

fn engine() -> Arc<Engine> {
    open(None, Some(LogOptions::default()))
}

fn ask(engine: &Arc<Engine>, command: &Document) -> Document {
    let mut client = Client::in_process(engine.clone());
    let sequences = Vec::new();
    let request = Request { body: command.as_raw(), sequences, exhaust_allowed: false, legacy_hello: false };
    run(&mut client, request).document
}

fn done(engine: &Arc<Engine>, command: &Document) -> Document {
    let reply = ask(engine, command);
    assert!(matches!(reply.get("ok"), Some(RawValue::Double(1.0))), "{command:?}: {reply:?}");
    assert!(reply.get("writeErrors").is_none(), "{command:?}: {reply:?}");
    reply
}

fn code(reply: &Document) -> i32 {
    match reply.get("code") {
        Some(RawValue::Int32(code)) => code,
        _ => panic!("no error: {reply:?}"),
    }
}

/// A stream of a collection.
struct Watch<'e> {
    engine: &'e Arc<Engine>,
    collection: Value,
    id: i64,
    token: Document,
    first: Vec<Document>,
}

impl<'e> Watch<'e> {
    fn open(engine: &'e Arc<Engine>, collection: impl Into<Value>, options: Document) -> Watch<'e> {
        let collection = collection.into();
        let stages = array![{"$changeStream": options}];
        let command = doc! {"aggregate": collection.clone(), "pipeline": stages, "cursor": {}, "$db": "test"};
        let reply = done(engine, &command);
        let mut watch = Watch { engine, collection, id: 0, token: Document::new(), first: Vec::new() };
        watch.first = watch.take(&reply, "firstBatch");
        watch
    }

    fn take(&mut self, reply: &Document, batch: &str) -> Vec<Document> {
        let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap();
        let Some(RawValue::Int64(id)) = cursor.get("id") else { panic!("{reply:?}") };
        self.id = id;
        self.token =
            cursor.get("postBatchResumeToken").and_then(RawValue::as_document).unwrap().to_document();
        let events = cursor.get(batch).and_then(RawValue::as_array).unwrap();
        events.iter().map(|event| event.as_document().unwrap().to_document()).collect()
    }

    /// What there is by now.
    fn events(&mut self) -> Vec<Document> {
        let mut events = std::mem::take(&mut self.first);
        while self.id != 0 {
            let name = match &self.collection {
                Value::String(name) => name.clone(),
                _ => "$cmd.aggregate".to_owned(),
            };
            let more = doc! {"getMore": self.id, "collection": name, "maxTimeMS": 1, "$db": "test"};
            let reply = done(self.engine, &more);
            let batch = self.take(&reply, "nextBatch");
            if batch.is_empty() {
                break;
            }
            events.extend(batch);
        }
        events
    }
}

fn text<'d>(event: &'d Document, name: &str) -> &'d str {
    event.get(name).and_then(RawValue::as_str).unwrap_or_default()
}

fn types(events: &[Document]) -> Vec<&str> {
    events.iter().map(|event| text(event, "operationType")).collect()
}

fn token_of(event: &Document) -> Document {
    event.get("_id").and_then(RawValue::as_document).unwrap().to_document()
}

/// What updates are described by, recorded from mongod 6.0.5.
#[test]
fn updates_are_described_as_mongod_describes_them() {
    let engine = engine();
    let long = "x".repeat(200);
    let updated =
        |fields: Document| doc! {"updatedFields": fields, "removedFields": [], "truncatedArrays": []};
    let operators: Vec<(Document, Document, Document)> = vec![
        (doc! {"a": [1, 2, 3]}, doc! {"$push": {"a": 4}}, updated(doc! {"a.3": 4})),
        (
            doc! {"a": [1, 2]},
            doc! {"$push": {"a": {"$each": [3], "$position": 2}}},
            updated(doc! {"a": [1, 2, 3]}),
        ),
        (
            doc! {"a": [1, 2]},
            doc! {"$push": {"a": {"$each": [3], "$position": 10}}},
            updated(doc! {"a.2": 3}),
        ),
        (doc! {"a": [1, 2]}, doc! {"$push": {"a": {"$each": [3], "$slice": 10}}}, updated(doc! {"a.2": 3})),
        (
            doc! {"a": [1, 2]},
            doc! {"$push": {"a": {"$each": [3], "$slice": -2}}},
            updated(doc! {"a": [2, 3]}),
        ),
        (doc! {"a": []}, doc! {"$push": {"a": 4}}, updated(doc! {"a": [4]})),
        (doc! {"a": [1]}, doc! {"$addToSet": {"a": 4}}, updated(doc! {"a": [1, 4]})),
        (doc! {"a": [1, 2]}, doc! {"$pop": {"a": 1}}, updated(doc! {"a": [1]})),
        (doc! {"a": [1, 2, 3]}, doc! {"$unset": {"a.1": 1}}, updated(doc! {"a.1": Value::Null})),
        (doc! {"a": [1, 2, 3]}, doc! {"$set": {"a.5": 1}}, updated(doc! {"a.5": 1})),
        (doc! {"a": [1, 2]}, doc! {"$inc": {"a.$[]": 1}}, updated(doc! {"a": [2, 3]})),
        // A new element is named whole: nothing was there that a path could lead into.
        (doc! {"a": []}, doc! {"$set": {"a.0.q": 7}}, updated(doc! {"a.0": {"q": 7}})),
        (doc! {"a": [1]}, doc! {"$set": {"a.4.b.c": 2}}, updated(doc! {"a.4": {"b": {"c": 2}}})),
        (doc! {"a": [1]}, doc! {"$inc": {"a.1.k": 1}}, updated(doc! {"a.1": {"k": 1}})),
        (doc! {"a": [1]}, doc! {"$push": {"a.1.l": 1}}, updated(doc! {"a.1": {"l": [1]}})),
        (
            doc! {"a": []},
            doc! {"$addToSet": {"a.2.s": 1}, "$min": {"a.2.m": 3}, "$mul": {"a.0.z": 2}},
            updated(doc! {"a.0": {"z": 0}, "a.2": {"m": 3, "s": [1]}}),
        ),
        (
            doc! {"a": [{"b": []}]},
            doc! {"$set": {"a.0.b.1.c": 1, "a.0.d.e": 2, "a.1.f": 3}},
            updated(doc! {"a.0.d": {"e": 2}, "a.0.b.1": {"c": 1}, "a.1": {"f": 3}}),
        ),
        (
            doc! {"a": [{"b": [{"c": 1}]}]},
            doc! {"$set": {"a.0.b.0.c": 2, "a.0.b.0.d": 3}},
            updated(doc! {"a.0.b.0.c": 2, "a.0.b.0.d": 3}),
        ),
        (doc! {"a": [5]}, doc! {"$inc": {"a.$[]": 9}}, updated(doc! {"a.0": 14})),
        (doc! {"z": 1}, doc! {"$set": {"b.c": 1, "b.d": 2}}, updated(doc! {"b": {"c": 1, "d": 2}})),
        (doc! {"y": {"a": 1}}, doc! {"$set": {"y": {"a": 1, "b": 2}}}, updated(doc! {"y": {"a": 1, "b": 2}})),
        (
            doc! {"z": 1, "b": 1, "s": {"q": 1, "r": 2}},
            doc! {"$set": {"z": 2, "a": 1, "s.n": 3, "s.q": 5, "b2": 7}, "$unset": {"b": 1, "s.r": 1}},
            doc! {
                "updatedFields": {"z": 2, "a": 1, "b2": 7, "s.q": 5, "s.n": 3},
                "removedFields": ["b", "s.r"],
                "truncatedArrays": [],
            },
        ),
        (
            doc! {"z": 1, "y": 2},
            doc! {"$rename": {"z": "y2"}},
            doc! {"updatedFields": {"y2": 1}, "removedFields": ["z"], "truncatedArrays": []},
        ),
    ];
    let pipelines: Vec<(Document, Array, Document)> = vec![
        (
            doc! {"p": &*long, "a": [1, 2, 3, 4]},
            array![{"$set": {"a": {"$slice": ["$a", 2]}}}],
            doc! {"updatedFields": {}, "removedFields": [], "truncatedArrays": [{"field": "a", "newSize": 2}]},
        ),
        (
            doc! {"p": &*long, "a": {"b": 1, "c": 2}, "z": 3},
            array![{"$set": {"a.b": 2, "n": 1}}, {"$unset": ["z"]}],
            doc! {"updatedFields": {"a": {"b": 2, "c": 2}, "n": 1}, "removedFields": ["z"], "truncatedArrays": []},
        ),
        (
            doc! {"p": &*long, "a": {"l": &*long, "x": 1}},
            array![{"$set": {"a.x": 2}}],
            updated(doc! {"a.x": 2}),
        ),
        (doc! {"a": 1, "b": "xxxxxxx"}, array![{"$set": {"a": 2}}], updated(doc! {"a": 2})),
        // One byte less, and the difference is not worth it.
        (doc! {"a": 1, "b": "xxxxxx"}, array![{"$set": {"a": 2}}], doc! {}),
    ];
    let operators = operators.into_iter().map(|(before, u, told)| (before, Value::Document(u), told));
    let pipelines = pipelines.into_iter().map(|(before, u, told)| (before, Value::Array(u), told));
    for (before, u, told) in operators.chain(pipelines) {
        done(&engine, &doc! {"delete": "c", "deletes": [{"q": {}, "limit": 0}], "$db": "test"});
        let mut document = doc! {"_id": 1};
        before.iter().for_each(|(name, value)| document.push(name, value));
        done(&engine, &doc! {"insert": "c", "documents": [document.clone()], "$db": "test"});
        let mut watch = Watch::open(&engine, "c", doc! {});
        done(&engine, &doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": u.clone()}], "$db": "test"});
        let events = watch.events();
        assert_eq!(events.len(), 1, "{document:?} {u:?}: {events:?}");
        match told.is_empty() {
            true => assert_eq!(types(&events), ["replace"], "{document:?} {u:?}"),
            false => {
                let description = events[0].get("updateDescription").and_then(RawValue::as_document);
                assert_eq!(description.unwrap().to_document(), told, "{document:?} {u:?}");
            }
        }
    }
    engine.close().unwrap();
}

#[test]
fn a_stream_is_resumed_at_every_token() {
    let engine = engine();
    let mut all = Watch::open(&engine, "c", doc! {});
    done(
        &engine,
        &doc! {"insert": "c", "documents": [{"_id": 1}, {"_id": "two"}, {"_id": 3.5}], "$db": "test"},
    );
    done(&engine, &doc! {"insert": "d", "documents": [{"_id": 1}], "$db": "test"});
    done(
        &engine,
        &doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": 1}}}], "$db": "test"},
    );
    done(&engine, &doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"b": 1}}], "$db": "test"});
    done(&engine, &doc! {"delete": "c", "deletes": [{"q": {"_id": "two"}, "limit": 1}], "$db": "test"});
    done(&engine, &doc! {"drop": "c", "$db": "test"});
    let events = all.events();
    assert_eq!(
        types(&events),
        ["insert", "insert", "insert", "update", "replace", "delete", "drop", "invalidate"]
    );
    assert_eq!(all.id, 0, "an invalidated stream is closed");
    let texts: Vec<String> = events.iter().map(|event| text(&token_of(event), "_data").to_owned()).collect();
    assert!(texts.is_sorted(), "tokens follow the order of events: {texts:?}");
    for (at, event) in events.iter().enumerate().take(events.len() - 1) {
        let mut resumed = Watch::open(&engine, "c", doc! {"resumeAfter": token_of(event)});
        assert_eq!(resumed.events(), events[at + 1..], "behind {}", texts[at]);
    }
    let last = token_of(&events[events.len() - 1]);
    let resume = |option: &str, token: &Document, collection: &str| {
        let mut options = Document::new();
        options.push(option, token.clone());
        let stages = array![{"$changeStream": options}];
        ask(&engine, &doc! {"aggregate": collection, "pipeline": stages, "cursor": {}, "$db": "test"})
    };
    assert_eq!(code(&resume("resumeAfter", &last, "c")), 260);
    let mut on = Watch::open(&engine, "c", doc! {"startAfter": last});
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 9}], "$db": "test"});
    assert_eq!(types(&on.events()), ["insert"]);
    assert_eq!(code(&resume("resumeAfter", &token_of(&events[0]), "d")), 280);
    assert!(resume("resumeAfter", &token_of(&events[0]), "d").get("errorLabels").is_some());
    engine.close().unwrap();
}

#[test]
fn the_events_of_a_transaction_share_a_time_and_come_at_its_commit() {
    let engine = engine();
    done(&engine, &doc! {"create": "c", "$db": "test"});
    let mut watch = Watch::open(&engine, 1, doc! {});
    let id = Value::Binary { subtype: 4, bytes: vec![7; 16] };
    let in_transaction = |number: i64, start: bool, mut command: Document| {
        command.push("lsid", doc! {"id": id.clone()});
        command.push("txnNumber", number);
        command.push("autocommit", false);
        if start {
            command.push("startTransaction", true);
        }
        command
    };
    let insert = |id: i32| doc! {"insert": "c", "documents": [{"_id": id}], "$db": "test"};
    done(&engine, &in_transaction(1, true, insert(1)));
    done(&engine, &in_transaction(1, false, insert(2)));
    done(&engine, &insert(3));
    assert_eq!(watch.events().len(), 1, "nothing of an open transaction");
    done(&engine, &in_transaction(1, false, doc! {"commitTransaction": 1, "$db": "admin"}));
    done(&engine, &in_transaction(2, true, insert(4)));
    done(&engine, &in_transaction(2, false, doc! {"abortTransaction": 1, "$db": "admin"}));
    let events = watch.events();
    assert_eq!(types(&events), ["insert", "insert"], "{events:?}");
    let time = |event: &Document| match event.get("clusterTime") {
        Some(RawValue::Timestamp(time)) => time.to_bits(),
        _ => panic!("{event:?}"),
    };
    assert_eq!(time(&events[0]), time(&events[1]));
    assert!(events.iter().all(|event| event.get("lsid").is_some() && event.get("txnNumber").is_some()));
    let mut resumed = Watch::open(&engine, 1, doc! {"resumeAfter": token_of(&events[0])});
    assert_eq!(resumed.events(), events[1..]);
    engine.close().unwrap();
}

/// What an expanded event says of its own, with UUIDs left out: its type, its collection, the description, the state before.
fn said(event: &Document) -> Document {
    let of = event.get("ns").and_then(RawValue::as_document).and_then(|of| of.get("coll")).unwrap();
    let mut said = Document::new();
    said.push(text(event, "operationType"), of);
    let description = event.get("operationDescription").and_then(RawValue::as_document);
    description.into_iter().flat_map(|it| it.iter()).for_each(|(name, value)| said.push(name, value));
    if let Some(before) = event.get("stateBeforeChange").and_then(RawValue::as_document) {
        let options = before.get("collectionOptions").and_then(RawValue::as_document).unwrap();
        assert!(options.get("uuid").is_some(), "{event:?}");
        let options: Document =
            options.iter().skip(1).map(|(name, value)| (name, value.to_value())).collect();
        said.push("was", options);
        before.get("indexOptions").into_iter().for_each(|options| said.push("indexWas", options));
    }
    said
}

/// Events of schema changes, recorded from mongod 6.0.5.
#[test]
fn schema_changes_are_told_as_mongod_tells_them() {
    let id_index = doc! {"v": 2, "key": {"_id": 1}, "name": "_id_"};
    let index = |field: &str| {
        let key: Document = [(field, Value::Int32(1))].into_iter().collect();
        doc! {"v": 2, "key": key, "name": format!("{field}_1")}
    };
    let asked = |field: &str| {
        let key: Document = [(field, Value::Int32(1))].into_iter().collect();
        doc! {"key": key, "name": format!("{field}_1")}
    };
    let engine = engine();
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1, "a": 1}], "$db": "test"});
    let mut ttl = asked("a");
    ttl.push("expireAfterSeconds", 100);
    done(&engine, &doc! {"createIndexes": "c", "indexes": [ttl, asked("b")], "$db": "test"});
    let mut watch = Watch::open(&engine, 1, doc! {"showExpandedEvents": true});
    let mut plain = Watch::open(&engine, 1, doc! {});
    let mut of_name = Watch::open(&engine, "v", doc! {"showExpandedEvents": true});
    let mod_index = |change: Document| doc! {"collMod": "c", "index": change};
    let cases = [
        (doc! {"create": "v", "viewOn": "c"}, vec![doc! {"create": "v", "viewOn": "c", "pipeline": []}]),
        (
            doc! {"collMod": "v", "pipeline": [{"$match": {"b": 1}}]},
            vec![doc! {"modify": "v", "viewOn": "c", "pipeline": [{"$match": {"b": 1}}]}],
        ),
        (
            doc! {"collMod": "v", "viewOn": "d"},
            vec![doc! {"modify": "v", "viewOn": "d", "pipeline": [{"$match": {"b": 1}}]}],
        ),
        (
            doc! {"collMod": "v"},
            vec![doc! {"modify": "v", "viewOn": "d", "pipeline": [{"$match": {"b": 1}}]}],
        ),
        (doc! {"drop": "v"}, vec![doc! {"drop": "v"}]),
        (doc! {"collMod": "c"}, vec![doc! {"modify": "c", "was": {}}]),
        (
            mod_index(doc! {"name": "b_1", "hidden": true}),
            vec![
                doc! {"modify": "c", "index": {"name": "b_1", "hidden": true}, "was": {}, "indexWas": {"hidden": false}},
            ],
        ),
        (mod_index(doc! {"name": "b_1", "hidden": true}), vec![doc! {"modify": "c", "was": {}}]),
        (
            doc! {"collMod": "c", "index": {"hidden": true, "keyPattern": {"a": 1}, "expireAfterSeconds": 5},
            "validationAction": "warn", "validationLevel": "moderate", "validator": {"x": 1}},
            vec![doc! {"modify": "c", "index": {"name": "a_1", "expireAfterSeconds": 5i64, "hidden": true},
            "validator": {"x": 1}, "validationLevel": "moderate", "validationAction": "warn",
            "was": {}, "indexWas": {"expireAfterSeconds": 100i64, "hidden": false}}],
        ),
        (
            mod_index(doc! {"name": "b_1", "prepareUnique": true}),
            vec![doc! {"modify": "c", "index": {"name": "b_1", "prepareUnique": true},
            "was": {"validator": {"x": 1}, "validationLevel": "moderate", "validationAction": "warn"},
            "indexWas": {"prepareUnique": false}}],
        ),
        (doc! {"collMod": "c", "dryRun": true, "index": {"name": "b_1", "unique": true}}, vec![]),
        (
            mod_index(doc! {"name": "b_1", "unique": true, "hidden": false}),
            vec![doc! {"modify": "c", "index": {"name": "b_1", "hidden": false, "unique": true},
            "was": {"validator": {"x": 1}, "validationLevel": "moderate", "validationAction": "warn"},
            "indexWas": {"hidden": true}}],
        ),
        (
            doc! {"create": "k", "clusteredIndex": {"key": {"_id": 1}, "unique": true}},
            vec![
                doc! {"create": "k", "clusteredIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_", "unique": true}},
            ],
        ),
        (
            doc! {"createIndexes": "e", "indexes": [asked("a"), asked("b")]},
            vec![
                doc! {"create": "e", "idIndex": id_index.clone()},
                doc! {"createIndexes": "e", "indexes": [index("a")]},
                doc! {"createIndexes": "e", "indexes": [index("b")]},
            ],
        ),
        (doc! {"insert": "e", "documents": [{"_id": 1}]}, vec![doc! {"insert": "e"}]),
        (
            doc! {"createIndexes": "e", "indexes": [asked("x"), asked("y")]},
            vec![doc! {"createIndexes": "e", "indexes": [index("x"), index("y")]}],
        ),
        (
            doc! {"dropIndexes": "e", "index": ["a_1", "x_1"]},
            vec![
                doc! {"dropIndexes": "e", "indexes": [index("a")]},
                doc! {"dropIndexes": "e", "indexes": [index("x")]},
            ],
        ),
    ];
    for (mut command, expected) in cases {
        command.push("$db", "test");
        done(&engine, &command);
        let events = watch.events();
        assert_eq!(events.iter().map(said).collect::<Vec<_>>(), expected, "{command:?}");
        let tokens = events.iter().map(token_of).collect::<Vec<_>>();
        for (at, token) in tokens.iter().enumerate() {
            let options = doc! {"resumeAfter": token.clone(), "showExpandedEvents": true};
            assert_eq!(Watch::open(&engine, 1, options).events(), events[at + 1..], "{command:?}");
        }
    }
    assert_eq!(types(&plain.events()), ["insert"], "views and indexes are shown to those who ask for them");
    assert!(of_name.events().is_empty(), "a view is no collection");
    engine.close().unwrap();
}

/// As recorded from mongod 6.0.5: what is told of a time-series collection is what becomes of the view that it is.
#[test]
fn a_time_series_collection_is_told_as_a_view() {
    let engine = engine();
    let mut watch = Watch::open(&engine, 1, doc! {"showExpandedEvents": true});
    let mut plain = Watch::open(&engine, 1, doc! {});
    let unpacks = |meta: bool, seconds: i32| {
        let mut about = doc! {"timeField": "t"};
        if meta {
            about.push("metaField", "m");
        }
        about.push("bucketMaxSpanSeconds", seconds);
        doc! {"$_internalUnpackBucket": about}
    };
    let told = |what: &str, name: &str, meta: bool, seconds: i32| {
        let mut told = doc! {};
        told.push(what, name);
        told.push("viewOn", format!("system.buckets.{name}").as_str());
        told.push("pipeline", array![unpacks(meta, seconds)]);
        vec![told]
    };
    let series = doc! {"timeField": "t", "metaField": "m", "granularity": "minutes"};
    let cases = [
        (doc! {"create": "ts", "timeseries": series}, told("create", "ts", true, 86_400)),
        (doc! {"create": "two", "timeseries": {"timeField": "t"}}, told("create", "two", false, 3600)),
        (doc! {"insert": "ts", "documents": [{"t": Value::DateTime(0), "m": 1}]}, vec![]),
        (doc! {"createIndexes": "ts", "indexes": [{"key": {"m": 1, "t": 1}, "name": "x"}]}, vec![]),
        (doc! {"dropIndexes": "ts", "index": "x"}, vec![]),
        (doc! {"collMod": "ts", "expireAfterSeconds": 100}, vec![]),
        (doc! {"collMod": "ts", "timeseries": {"granularity": "minutes"}}, vec![]),
        (
            doc! {"collMod": "ts", "timeseries": {"granularity": "hours"}},
            told("modify", "ts", true, 2_592_000),
        ),
        (doc! {"drop": "ts"}, vec![doc! {"drop": "ts"}]),
        (doc! {"drop": "system.buckets.two"}, vec![doc! {"drop": "two"}]),
    ];
    for (mut command, expected) in cases {
        command.push("$db", "test");
        done(&engine, &command);
        let events = watch.events();
        assert_eq!(events.iter().map(said).collect::<Vec<_>>(), expected, "{command:?}");
        assert!(events.iter().all(|event| event.get("collectionUUID").is_none()), "{events:?}");
        for (at, event) in events.iter().enumerate() {
            let options = doc! {"resumeAfter": token_of(event), "showExpandedEvents": true};
            assert_eq!(Watch::open(&engine, 1, options).events(), events[at + 1..], "{command:?}");
        }
    }
    assert!(plain.events().is_empty());
    engine.close().unwrap();
}

/// As recorded from mongod 6.0.5: nothing tells of the documents that go along with a collection that becomes a capped one.
#[test]
fn copies_of_a_collection_are_told_as_mongod_tells_them() {
    let engine = engine();
    let documents = array![{"_id": 1}, {"_id": 2}];
    done(&engine, &doc! {"insert": "a", "documents": documents, "$db": "test"});
    let mut watch = Watch::open(&engine, 1, doc! {"showExpandedEvents": true});
    let id_index = || doc! {"v": 2, "key": {"_id": 1}, "name": "_id_"};
    let name_of = |event: &Document| {
        let of = event.get("ns").and_then(RawValue::as_document).unwrap();
        of.get("coll").and_then(RawValue::as_str).unwrap().to_owned()
    };
    let about = |event: &Document| {
        event.get("operationDescription").and_then(RawValue::as_document).unwrap().to_document()
    };

    done(&engine, &doc! {"cloneCollectionAsCapped": "a", "toCollection": "b", "size": 4096, "$db": "test"});
    let events = watch.events();
    assert_eq!((types(&events), name_of(&events[0])), (vec!["create"], "b".to_owned()));
    assert_eq!(about(&events[0]), doc! {"capped": true, "size": 4096, "idIndex": id_index()});

    done(&engine, &doc! {"convertToCapped": "a", "size": 4096, "$db": "test"});
    let events = watch.events();
    assert_eq!(types(&events), ["create", "rename"]);
    let temporary = name_of(&events[0]);
    let random = temporary.strip_prefix("tmp").and_then(|it| it.strip_suffix(".convertToCapped.a")).unwrap();
    assert!(random.len() == 5 && random.chars().all(|it| it.is_ascii_alphanumeric()), "{temporary}");
    assert_eq!(name_of(&events[1]), temporary);
    let expected = doc! {"capped": true, "size": 4096, "temp": true, "idIndex": id_index()};
    assert_eq!(about(&events[0]), expected);
    let found = done(&engine, &doc! {"count": "a", "$db": "test"});
    assert!(matches!(found.get("n"), Some(RawValue::Int32(2))), "{found:?}");

    done(&engine, &doc! {"collMod": "a", "cappedSize": 5000, "$db": "test"});
    assert_eq!(about(&watch.events()[0]), doc! {"cappedSize": 5000i64});

    done(&engine, &doc! {"aggregate": "a", "pipeline": [{"$out": "c"}], "cursor": {}, "$db": "test"});
    let events = watch.events();
    assert_eq!(types(&events), ["create", "insert", "insert", "rename"]);
    assert_eq!(about(&events[0]), doc! {"temp": true, "idIndex": id_index()});
    engine.close().unwrap();
}

/// As recorded from mongod 6.0.5, which copies the collection: the stream of the one database shows the documents and a rename
/// of a temporary collection, that of the other a drop.
#[test]
fn a_rename_across_databases_shows_each_database_what_it_got_and_lost() {
    let engine = engine();
    let rename = |from: &str, to: &str| {
        doc! {"renameCollection": from, "to": to, "dropTarget": true, "$db": "admin"}
    };
    done(&engine, &doc! {"insert": "y", "documents": [{"_id": 9}], "$db": "test"});
    let documents = array![{"_id": 1, "a": 1}, {"_id": 2}];
    done(&engine, &doc! {"insert": "x", "documents": documents, "$db": "other"});
    let mut watch = Watch::open(&engine, 1, doc! {});
    let mut expanded = Watch::open(&engine, 1, doc! {"showExpandedEvents": true});
    let mut of_name = Watch::open(&engine, "y", doc! {});
    done(&engine, &rename("other.x", "test.y"));
    done(
        &engine,
        &doc! {"update": "y", "updates": [{"q": {"_id": 1}, "u": {"$set": {"k": 1}}}], "$db": "test"},
    );
    let events = watch.events();
    assert_eq!(types(&events), ["insert", "insert", "rename", "update"]);
    let name_of = |event: &Document| {
        let of = event.get("ns").and_then(RawValue::as_document).unwrap();
        assert_eq!(of.get("db").and_then(RawValue::as_str), Some("test"), "{event:?}");
        of.get("coll").and_then(RawValue::as_str).unwrap().to_owned()
    };
    let copy = name_of(&events[0]);
    assert!(copy.starts_with("tmp") && copy.ends_with(".renameCollection"), "{copy}");
    assert_eq!((name_of(&events[1]), name_of(&events[2])), (copy.clone(), copy.clone()));
    let inserted = events[0].get("fullDocument").and_then(RawValue::as_document).unwrap();
    assert_eq!(inserted.to_document(), doc! {"_id": 1, "a": 1});
    let to = events[2].get("to").and_then(RawValue::as_document).unwrap();
    assert_eq!(to.to_document(), doc! {"db": "test", "coll": "y"});
    assert_eq!(types(&expanded.events()), ["create", "insert", "insert", "rename", "update"]);
    assert_eq!(types(&of_name.events()), ["rename", "invalidate"]);

    let mut of_name = Watch::open(&engine, "y", doc! {});
    done(&engine, &rename("test.y", "other.z"));
    let events = watch.events();
    assert_eq!((types(&events), name_of(&events[0])), (vec!["drop"], "y".to_owned()));
    assert_eq!(types(&of_name.events()), ["drop", "invalidate"]);

    // One that fails leaves nothing behind for listeners.
    done(&engine, &doc! {"insert": "y", "documents": [{"_id": 9}], "$db": "test"});
    watch.events();
    let refused = doc! {"renameCollection": "other.z", "to": "test.y", "$db": "admin"};
    assert_eq!(code(&ask(&engine, &refused)), 48);
    assert!(watch.events().is_empty());
    engine.close().unwrap();
}

/// As recorded from mongod 6.0.5: events have some options of an index before its key.
#[test]
fn options_of_an_index_come_in_the_order_of_mongod() {
    let engine = engine();
    done(&engine, &doc! {"create": "c", "$db": "test"});
    let mut watch = Watch::open(&engine, 1, doc! {"showExpandedEvents": true});
    for (index, told) in [
        (
            doc! {"key": {"a": 1}, "name": "a", "hidden": true, "unique": true, "sparse": true},
            doc! {"v": 2, "unique": true, "hidden": true, "key": {"a": 1}, "name": "a", "sparse": true},
        ),
        (
            doc! {"key": {"b": 1}, "name": "b", "prepareUnique": true},
            doc! {"v": 2, "prepareUnique": true, "key": {"b": 1}, "name": "b"},
        ),
    ] {
        done(&engine, &doc! {"createIndexes": "c", "indexes": [index], "$db": "test"});
        assert_eq!(said(&watch.events()[0]), doc! {"createIndexes": "c", "indexes": [told]});
    }
    done(&engine, &doc! {"dropIndexes": "c", "index": "b", "$db": "test"});
    let told = doc! {"v": 2, "prepareUnique": true, "key": {"b": 1}, "name": "b"};
    assert_eq!(said(&watch.events()[0]), doc! {"dropIndexes": "c", "indexes": [told]});
    engine.close().unwrap();
}

/// As on mongod, where views are documents of a collection.
#[test]
fn events_of_views_have_the_uuid_of_the_collection_that_lists_them() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(Some(directory.path()), Some(LogOptions::default()));
    let uuid_of = |engine: &Arc<Engine>| {
        let reply =
            done(engine, &doc! {"listCollections": 1, "filter": {"name": "system.views"}, "$db": "test"});
        let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap();
        let listed = cursor.get("firstBatch").and_then(RawValue::as_array).unwrap().iter().next()?;
        let info = listed.as_document().unwrap().get("info").and_then(RawValue::as_document).unwrap();
        match info.get("uuid") {
            Some(RawValue::Binary { subtype: 4, bytes }) => Some(bytes.to_vec()),
            other => panic!("{other:?}"),
        }
    };
    let names_it = |event: &Document, uuid: &[u8]| {
        let digits: String = uuid.iter().map(|byte| format!("{byte:02X}")).collect();
        text(&token_of(event), "_data").contains(&format!("5A1004{digits}"))
    };
    let token = Watch::open(&engine, 1, doc! {}).token;
    done(&engine, &doc! {"create": "v", "viewOn": "c", "pipeline": [], "$db": "test"});
    let uuid = uuid_of(&engine).unwrap();
    done(&engine, &doc! {"create": "w", "viewOn": "c", "pipeline": [], "$db": "test"});
    done(&engine, &doc! {"collMod": "v", "viewOn": "d", "pipeline": [], "$db": "test"});
    engine.close().unwrap();
    drop(engine);
    let engine = open(Some(directory.path()), Some(LogOptions::default()));
    assert_eq!(uuid_of(&engine), Some(uuid.clone()), "after a restart");
    let options = doc! {"resumeAfter": token, "showExpandedEvents": true};
    let mut watch = Watch::open(&engine, 1, options.clone());
    done(&engine, &doc! {"drop": "v", "$db": "test"});
    let events = watch.events();
    assert_eq!(types(&events), ["create", "create", "modify", "drop"]);
    assert!(events.iter().all(|event| names_it(event, &uuid) && event.get("collectionUUID").is_none()));
    assert!(Watch::open(&engine, "v", options).events().is_empty(), "a view is no collection");
    for (at, event) in events.iter().enumerate() {
        let options = doc! {"resumeAfter": token_of(event), "showExpandedEvents": true};
        assert_eq!(Watch::open(&engine, 1, options).events(), events[at + 1..]);
    }
    // All views go with it, and no event tells of that.
    done(&engine, &doc! {"drop": "system.views", "$db": "test"});
    assert_eq!(uuid_of(&engine), None);
    assert!(watch.events().is_empty());
    engine.close().unwrap();
}

/// As recorded from mongod 6.0.5: schema changes of a transaction come with its other events, and name it.
#[test]
fn schema_changes_in_a_transaction_are_among_its_events() {
    let engine = engine();
    let mut watch = Watch::open(&engine, 1, doc! {"showExpandedEvents": true});
    let id = Value::Binary { subtype: 4, bytes: vec![7; 16] };
    let ask_in_it = |mut command: Document, start: bool| {
        command.push("lsid", doc! {"id": id.clone()});
        command.push("txnNumber", 1i64);
        command.push("autocommit", false);
        if start {
            command.push("startTransaction", true);
        }
        done(&engine, &command);
    };
    ask_in_it(doc! {"create": "n", "$db": "test"}, true);
    let indexes = array![{"key": {"a": 1}, "name": "a_1"}, {"key": {"b": 1}, "name": "b_1", "unique": true}];
    ask_in_it(doc! {"createIndexes": "n", "indexes": indexes, "$db": "test"}, false);
    ask_in_it(doc! {"insert": "n", "documents": [{"_id": 1}], "$db": "test"}, false);
    assert!(watch.events().is_empty());
    ask_in_it(doc! {"commitTransaction": 1, "$db": "admin"}, false);
    let events = watch.events();
    assert_eq!(types(&events), ["create", "createIndexes", "createIndexes", "insert"]);
    assert_eq!(
        said(&events[2]),
        doc! {"createIndexes": "n", "indexes": [{"v": 2, "unique": true, "key": {"b": 1}, "name": "b_1"}]}
    );
    for event in &events {
        assert!(matches!(event.get("txnNumber"), Some(RawValue::Int64(1))), "{event:?}");
        assert!(event.get("lsid").is_some() && event.get("collectionUUID").is_some(), "{event:?}");
    }
    let options = doc! {"resumeAfter": token_of(&events[1]), "showExpandedEvents": true};
    assert_eq!(Watch::open(&engine, 1, options).events(), events[2..]);
    engine.close().unwrap();
}

#[test]
fn images_are_kept_where_they_are_asked_for() {
    let engine = engine();
    let both = doc! {"fullDocument": "required", "fullDocumentBeforeChange": "required"};
    done(&engine, &doc! {"create": "c", "changeStreamPreAndPostImages": {"enabled": true}, "$db": "test"});
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1, "a": 1}], "$db": "test"});
    let mut watch = Watch::open(&engine, "c", both.clone());
    done(
        &engine,
        &doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$inc": {"a": 1}}}], "$db": "test"},
    );
    done(&engine, &doc! {"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}], "$db": "test"});
    let events = watch.events();
    let image = |event: &Document, name: &str| {
        event.get(name).and_then(RawValue::as_document).map(RawDocument::to_document)
    };
    assert_eq!(image(&events[0], "fullDocument"), Some(doc! {"_id": 1, "a": 2}));
    assert_eq!(image(&events[0], "fullDocumentBeforeChange"), Some(doc! {"_id": 1, "a": 1}));
    assert_eq!(image(&events[1], "fullDocumentBeforeChange"), Some(doc! {"_id": 1, "a": 2}));
    done(&engine, &doc! {"insert": "d", "documents": [{"_id": 1, "a": 1}], "$db": "test"});
    let watch = Watch::open(&engine, "d", both);
    let mut looked_up = Watch::open(&engine, "d", doc! {"fullDocument": "updateLookup"});
    for _ in 0..2 {
        let update = doc! {"q": {"_id": 1}, "u": {"$inc": {"a": 1}}};
        done(&engine, &doc! {"update": "d", "updates": [update], "$db": "test"});
    }
    let more = doc! {"getMore": watch.id, "collection": "d", "maxTimeMS": 1, "$db": "test"};
    assert_eq!(code(&ask(&engine, &more)), 47);
    let events = looked_up.events();
    assert_eq!(image(&events[0], "fullDocument"), Some(doc! {"_id": 1, "a": 3}), "as it is now");
    engine.close().unwrap();
}

/// A small document that one stream has looked up is shown to the next as it was then; a large one is not kept, and is looked up
/// again.
#[test]
fn a_document_that_was_looked_up_is_kept_for_other_streams_if_it_is_small() {
    let engine = engine();
    for (collection, bytes, later) in [("small", 10, 1), ("large", 100_000, 2)] {
        let text = "x".repeat(bytes);
        let document = doc! {"_id": 1, "n": 0, "text": text};
        done(&engine, &doc! {"insert": collection, "documents": [document], "$db": "test"});
        let open = || Watch::open(&engine, collection, doc! {"fullDocument": "updateLookup"});
        let (mut first, mut second) = (open(), open());
        let increment = || {
            let update = doc! {"q": {"_id": 1}, "u": {"$inc": {"n": 1}}};
            done(&engine, &doc! {"update": collection, "updates": [update], "$db": "test"});
        };
        let shown = |events: Vec<Document>| {
            let image = events[0].get("fullDocument").and_then(RawValue::as_document);
            match image.and_then(|image| image.get("n")) {
                Some(RawValue::Int32(n)) => n,
                other => panic!("{other:?}"),
            }
        };
        increment();
        assert_eq!(shown(first.events()), 1);
        increment();
        assert_eq!(shown(second.events()), later, "{collection}");
    }
    engine.close().unwrap();
}

/// Streams that ask for nothing special share what is made of an event; others show the same of it and more.
#[test]
fn streams_of_every_kind_show_one_event() {
    let engine = engine();
    let mut plain: Vec<Watch<'_>> = (0..3).map(|_| Watch::open(&engine, "c", doc! {})).collect();
    let mut expanded = Watch::open(&engine, "c", doc! {"showExpandedEvents": true});
    let mut of_database = Watch::open(&engine, 1, doc! {});
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1, "a": 1}, {"_id": 2}], "$db": "test"});
    done(
        &engine,
        &doc! {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"a": 2}}}], "$db": "test"},
    );
    let events = of_database.events();
    assert_eq!(types(&events), ["insert", "insert", "update"]);
    for stream in &mut plain {
        assert_eq!(stream.events(), events);
    }
    let more = expanded.events();
    let more: Vec<&Document> = more.iter().filter(|event| text(event, "operationType") != "create").collect();
    assert_eq!(more.len(), events.len());
    for (event, expanded) in events.iter().zip(more) {
        assert!(event.get("collectionUUID").is_none() && expanded.get("collectionUUID").is_some());
        for name in ["_id", "operationType", "clusterTime", "fullDocument", "documentKey"] {
            let field = |event: &Document| event.get(name).map(|value| format!("{value:?}"));
            assert_eq!(field(event), field(expanded), "{name}");
        }
    }
    engine.close().unwrap();
}

#[test]
fn without_the_log_a_stream_is_refused_and_an_old_token_is_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(Some(directory.path()), Some(LogOptions::default()));
    let mut watch = Watch::open(&engine, "c", doc! {});
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "test"});
    let token = token_of(&watch.events()[0]);
    engine.close().unwrap();
    drop(watch);
    drop(engine);
    let watch = doc! {"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}, "$db": "test"};
    let engine = open(Some(directory.path()), None);
    assert_eq!(code(&ask(&engine, &watch)), 20);
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 2}], "$db": "test"});
    engine.close().unwrap();
    drop(engine);
    let engine = open(Some(directory.path()), Some(LogOptions::default()));
    let stages = array![{"$changeStream": {"resumeAfter": token}}];
    let resume = doc! {"aggregate": "c", "pipeline": stages, "cursor": {}, "$db": "test"};
    assert_eq!(code(&ask(&engine, &resume)), 286);
    done(&engine, &watch);
    engine.close().unwrap();
}

/// A generator of numbers that a seed repeats.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Puts an event onto a state, as a follower does.
fn replay(state: &mut BTreeMap<String, Document>, event: &Document) {
    let key = event
        .get("documentKey")
        .and_then(RawValue::as_document)
        .map(|key| format!("{:?}", key.to_document()));
    match (text(event, "operationType"), key) {
        ("insert", Some(key)) => {
            let document = event.get("fullDocument").and_then(RawValue::as_document).unwrap().to_document();
            assert!(state.insert(key, document).is_none(), "inserted twice: {event:?}");
        }
        ("replace", Some(key)) => {
            let document = event.get("fullDocument").and_then(RawValue::as_document).unwrap().to_document();
            assert!(state.insert(key, document).is_some(), "replaced before it was there: {event:?}");
        }
        ("delete", Some(key)) => assert!(state.remove(&key).is_some(), "deleted twice: {event:?}"),
        ("update", Some(key)) => {
            let old = state.get(&key).expect("updated before it was there");
            let told = event.get("updateDescription").and_then(RawValue::as_document).unwrap();
            let updated = told.get("updatedFields").and_then(RawValue::as_document).unwrap();
            let removed: Vec<String> = told
                .get("removedFields")
                .and_then(RawValue::as_array)
                .unwrap()
                .iter()
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect();
            let mut new = Document::new();
            for (name, value) in old.iter().filter(|(name, _)| !removed.iter().any(|gone| gone == name)) {
                new.push(name, updated.get(name).unwrap_or(value));
            }
            for (name, value) in updated.iter().filter(|(name, _)| old.get(name).is_none()) {
                new.push(name, value);
            }
            state.insert(key, new);
        }
        ("drop", _) => state.clear(),
        (other, _) => panic!("{other}"),
    }
}

fn stored(engine: &Arc<Engine>) -> BTreeMap<String, Document> {
    let reply = done(engine, &doc! {"find": "c", "batchSize": 100_000, "$db": "test"});
    let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap();
    let batch = cursor.get("firstBatch").and_then(RawValue::as_array).unwrap();
    batch
        .iter()
        .map(|document| {
            let document = document.as_document().unwrap().to_document();
            let mut key = Document::new();
            key.push("_id", document.get("_id").unwrap());
            (format!("{key:?}"), document)
        })
        .collect()
}

/// The seeds of random histories: from `KILIM_SEED` on, so many unless `KILIM_HISTORIES` says otherwise.
fn histories(usual: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("KILIM_SEED").unwrap_or(0);
    first..first + number("KILIM_HISTORIES").unwrap_or(usual)
}

/// Random writes, drops and restarts, with a follower that loses its stream at random and resumes where it was.
#[test]
fn replaying_the_events_gives_the_final_state() {
    for seed in histories(12) {
        let mut dice = Dice(seed);
        let directory = tempfile::tempdir().unwrap();
        let mut engine = open(Some(directory.path()), Some(LogOptions::default()));
        let mut state = BTreeMap::new();
        let mut token = Watch::open(&engine, 1, doc! {}).token;
        for _ in 0..60 {
            let id = dice.roll(6) as i32;
            let value = dice.roll(1000) as i32;
            let command = match dice.roll(12) {
                0..4 => {
                    doc! {"insert": "c", "documents": [{"_id": id, "a": value}, {"_id": id + 1, "b": value}], "ordered": false}
                }
                4..6 => doc! {"update": "c", "updates": [{"q": {}, "u": {"$inc": {"a": 1}}, "multi": true}]},
                6 => doc! {"update": "c", "updates": [{"q": {"_id": id}, "u": {"x": value}, "upsert": true}]},
                7 => {
                    doc! {"update": "c", "updates": [{"q": {"_id": id}, "u": {"$set": {"y": value}, "$unset": {"a": 1}}}]}
                }
                8 => {
                    doc! {"update": "c", "updates": [{"q": {"_id": id}, "u": [{"$set": {"z": {"$add": ["$a", 1]}}}]}]}
                }
                9 => doc! {"delete": "c", "deletes": [{"q": {"_id": id}, "limit": 1}]},
                10 => doc! {"delete": "c", "deletes": [{"q": {"a": {"$gt": value}}, "limit": 0}]},
                _ => doc! {"drop": "c"},
            };
            let mut command = command;
            command.push("$db", "test");
            ask(&engine, &command);
            if dice.roll(3) == 0 {
                let mut watch = Watch::open(&engine, 1, doc! {"resumeAfter": token.clone()});
                let events = watch.events();
                // It may be lost in the middle of a batch.
                let seen = match dice.roll(2) {
                    0 => events.len(),
                    _ => dice.roll(events.len() as u64 + 1) as usize,
                };
                events[..seen].iter().for_each(|event| replay(&mut state, event));
                token = match seen == events.len() {
                    true => watch.token.clone(),
                    false if seen > 0 => token_of(&events[seen - 1]),
                    false => token,
                };
            }
            if dice.roll(15) == 0 {
                if dice.roll(2) == 0 {
                    engine.close().unwrap();
                }
                drop(engine);
                engine = open(Some(directory.path()), Some(LogOptions::default()));
            }
        }
        let mut watch = Watch::open(&engine, 1, doc! {"resumeAfter": token});
        watch.events().iter().for_each(|event| replay(&mut state, event));
        assert_eq!(state, stored(&engine), "seed {seed}");
        engine.close().unwrap();
    }
}

/// One writer of the history of several: statements and transactions over documents that all of them share.
fn write_at_random(engine: &Arc<Engine>, seed: u64, statements: usize) {
    let mut dice = Dice(seed);
    let session = Value::Binary { subtype: 4, bytes: vec![seed as u8; 16] };
    for number in 0..statements {
        let (id, value) = (dice.roll(8) as i32, dice.roll(1000) as i32);
        let command = match dice.roll(8) {
            0..3 => {
                doc! {"insert": "c", "documents": [{"_id": id, "a": value}, {"_id": id + 8}], "ordered": false}
            }
            3..5 => {
                doc! {"update": "c", "updates": [{"q": {"_id": id}, "u": {"$set": {"a": value}}, "upsert": true}]}
            }
            5 => doc! {"update": "c", "updates": [{"q": {"_id": id}, "u": {"b": value}, "upsert": true}]},
            6 => doc! {"delete": "c", "deletes": [{"q": {"_id": id}, "limit": 1}]},
            _ => {
                let in_transaction = |mut command: Document, start: bool| {
                    command.push("lsid", doc! {"id": session.clone()});
                    command.push("txnNumber", number as i64);
                    command.push("autocommit", false);
                    if start {
                        command.push("startTransaction", true);
                    }
                    command
                };
                let update = |id: i32| {
                    let update = doc! {"q": {"_id": id}, "u": {"$set": {"t": value}}, "upsert": true};
                    doc! {"update": "c", "updates": [update], "$db": "test"}
                };
                // Whether it conflicts or not: what was aborted must not be seen.
                ask(engine, &in_transaction(update(id), true));
                ask(engine, &in_transaction(update((id + 1) % 8), false));
                let end = if dice.roll(4) == 0 { "abortTransaction" } else { "commitTransaction" };
                let mut command = Document::new();
                command.push(end, 1);
                command.push("$db", "admin");
                ask(engine, &in_transaction(command, false));
                continue;
            }
        };
        let mut command = command;
        command.push("$db", "test");
        let relaxed = dice.roll(3) == 0;
        if relaxed {
            command.push("writeConcern", doc! {"w": 1, "j": false});
        }
        ask(engine, &command);
    }
}

/// Writers at once, and listeners of the collection and of the database that are dropped at random and resume: all of them
/// see the same events, each once, in the order that gives the final state.
#[test]
fn all_listeners_see_one_order_that_gives_the_final_state() {
    const WRITERS: u64 = 3;
    for seed in histories(4) {
        let directory = tempfile::tempdir().unwrap();
        let engine = open(Some(directory.path()), Some(LogOptions::default()));
        done(&engine, &doc! {"create": "c", "$db": "test"});
        let begin = Watch::open(&engine, 1, doc! {}).token;
        let is_over = AtomicBool::new(false);
        let seen: Vec<Vec<Document>> = std::thread::scope(|scope| {
            let listeners: Vec<_> = (0..4u64)
                .map(|number| {
                    let (engine, mut token, is_over) = (&engine, begin.clone(), &is_over);
                    scope.spawn(move || {
                        let mut dice = Dice(seed * 100 + number);
                        let mut events = Vec::new();
                        loop {
                            let was_over = is_over.load(Ordering::SeqCst);
                            let watched = if number % 2 == 0 { Value::Int32(1) } else { Value::from("c") };
                            let mut watch = Watch::open(engine, watched, doc! {"resumeAfter": token.clone()});
                            let mut rounds = 1 + dice.roll(5);
                            while rounds > 0 {
                                let batch = watch.events();
                                // Some of what it was given may be lost with it.
                                let kept = match rounds == 1 && !was_over {
                                    true => dice.roll(batch.len() as u64 + 1) as usize,
                                    false => batch.len(),
                                };
                                match kept == batch.len() {
                                    true => token = watch.token.clone(),
                                    false if kept > 0 => token = token_of(&batch[kept - 1]),
                                    false => {}
                                }
                                events.extend(batch.into_iter().take(kept));
                                rounds -= 1;
                            }
                            if was_over {
                                return events;
                            }
                        }
                    })
                })
                .collect();
            let writers: Vec<_> = (0..WRITERS)
                .map(|number| {
                    let engine = &engine;
                    scope.spawn(move || write_at_random(engine, 1 + seed * WRITERS + number, 60))
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            engine.store.sync().unwrap();
            is_over.store(true, Ordering::SeqCst);
            listeners.into_iter().map(|listener| listener.join().unwrap()).collect()
        });
        for other in &seen[1..] {
            assert_eq!(tokens(other), tokens(&seen[0]), "seed {seed}: one order for all");
        }
        let mut state = BTreeMap::new();
        seen[0].iter().for_each(|event| replay(&mut state, event));
        assert_eq!(state, stored(&engine), "seed {seed}");
        assert_eq!(engine.feed.streams(), engine.cursors.count(), "streams end with their cursors");
        engine.close().unwrap();
    }
}

fn tokens(events: &[Document]) -> Vec<Document> {
    events.iter().map(token_of).collect()
}

/// A stream with stages behind `$changeStream`.
fn watch_through(engine: &Arc<Engine>, options: Document, stages: Array) -> Document {
    let first = Value::Document(doc! {"$changeStream": options});
    let stages: Array = [first].into_iter().chain(stages.as_raw().iter().map(RawValue::to_value)).collect();
    ask(engine, &doc! {"aggregate": "c", "pipeline": stages, "cursor": {"batchSize": 0}, "$db": "test"})
}

fn next_batch(engine: &Arc<Engine>, opened: &Document) -> Document {
    let id = opened.get("cursor").and_then(RawValue::as_document).and_then(|cursor| cursor.get("id"));
    let id = id.unwrap_or_else(|| panic!("{opened:?}")).to_value();
    ask(engine, &doc! {"getMore": id, "collection": "c", "maxTimeMS": 1, "$db": "test"})
}

fn batch_of(reply: &Document) -> Vec<Document> {
    let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap_or_else(|| panic!("{reply:?}"));
    let batch = cursor.get("nextBatch").and_then(RawValue::as_array).unwrap();
    batch.iter().map(|event| event.as_document().unwrap().to_document()).collect()
}

#[test]
fn an_event_that_is_too_large_is_split_and_resumed_between_its_fragments() {
    let engine = engine();
    done(&engine, &doc! {"create": "c", "changeStreamPreAndPostImages": {"enabled": true}, "$db": "test"});
    let long = |letter: &str| letter.repeat(9 << 20);
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1, "a": long("x")}], "$db": "test"});
    let images = doc! {"fullDocument": "required", "fullDocumentBeforeChange": "required"};
    let whole = watch_through(&engine, images.clone(), array![]);
    let split = array![{"$changeStreamSplitLargeEvent": {}}];
    let stream = watch_through(&engine, images.clone(), split.clone());
    let update = doc! {"q": {"_id": 1}, "u": {"$set": {"a": long("y")}}};
    done(&engine, &doc! {"update": "c", "updates": [update], "$db": "test"});
    assert_eq!(code(&next_batch(&engine, &whole)), 10334, "without the stage");
    let mut fragments = Vec::new();
    loop {
        let batch = batch_of(&next_batch(&engine, &stream));
        if batch.is_empty() {
            break;
        }
        fragments.extend(batch);
    }
    let places: Vec<Document> = fragments
        .iter()
        .map(|fragment| fragment.get("splitEvent").and_then(RawValue::as_document).unwrap().to_document())
        .collect();
    let expected: Vec<Document> = (1..=3).map(|at| doc! {"fragment": at, "of": 3}).collect();
    assert_eq!(places, expected);
    let mut names: Vec<String> = fragments
        .iter()
        .flat_map(|fragment| fragment.iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>())
        .filter(|name| name != "_id" && name != "splitEvent")
        .collect();
    names.sort();
    let all = [
        "clusterTime",
        "documentKey",
        "fullDocument",
        "fullDocumentBeforeChange",
        "ns",
        "operationType",
        "updateDescription",
        "wallTime",
    ];
    assert_eq!(names, all, "each field once");
    let mut resumed = images.clone();
    resumed.push("resumeAfter", token_of(&fragments[1]));
    let behind = watch_through(&engine, resumed.clone(), split.clone());
    assert_eq!(batch_of(&next_batch(&engine, &behind)), fragments[2..]);
    assert!(batch_of(&next_batch(&engine, &behind)).is_empty());
    assert_eq!(code(&watch_through(&engine, resumed, array![])), 280, "without the stage");
    let small = watch_through(&engine, doc! {"resumeAfter": token_of(&fragments[1])}, split.clone());
    assert_eq!(code(&next_batch(&engine, &small)), 280, "an event that is not split any more");
    let mut last = images;
    last.push("resumeAfter", token_of(&fragments[2]));
    let behind = watch_through(&engine, last, split);
    done(&engine, &doc! {"delete": "c", "deletes": [{"q": {}, "limit": 0}], "$db": "test"});
    assert_eq!(types(&batch_of(&next_batch(&engine, &behind))), ["delete"]);
    engine.close().unwrap();
}

#[test]
fn images_are_hidden_after_their_time() {
    let engine = engine();
    let set = |expiry: Value| {
        let images = doc! {"expireAfterSeconds": expiry};
        doc! {"setClusterParameter": {"changeStreamOptions": {"preAndPostImages": images}}, "$db": "admin"}
    };
    done(&engine, &doc! {"create": "c", "changeStreamPreAndPostImages": {"enabled": true}, "$db": "test"});
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "test"});
    let mut watch = Watch::open(&engine, "c", doc! {"fullDocumentBeforeChange": "whenAvailable"});
    let token = watch.token.clone();
    done(&engine, &doc! {"delete": "c", "deletes": [{"q": {}, "limit": 0}], "$db": "test"});
    let image = |events: &[Document]| {
        let image = events[0].get("fullDocumentBeforeChange").unwrap();
        image.as_document().map(RawDocument::to_document)
    };
    assert_eq!(image(&watch.events()), Some(doc! {"_id": 1}));
    done(&engine, &set(Value::Int32(1)));
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let resume = |image: &str| {
        let options = doc! {"fullDocumentBeforeChange": image, "resumeAfter": token.clone()};
        let stages = array![{"$changeStream": options}];
        ask(&engine, &doc! {"aggregate": "c", "pipeline": stages, "cursor": {}, "$db": "test"})
    };
    let first = |reply: &Document| {
        let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap().to_document();
        let batch = cursor.get("firstBatch").and_then(RawValue::as_array).unwrap();
        batch.iter().map(|event| event.as_document().unwrap().to_document()).collect::<Vec<_>>()
    };
    assert_eq!(image(&first(&resume("whenAvailable"))), None);
    assert_eq!(code(&resume("required")), 47);
    done(&engine, &set(Value::from("off")));
    assert_eq!(image(&first(&resume("required"))), Some(doc! {"_id": 1}));
    let reply = done(&engine, &doc! {"getClusterParameter": "*", "$db": "admin"});
    let all = reply.get("clusterParameters").and_then(RawValue::as_array).unwrap();
    assert_eq!(all.iter().count(), 1);
    engine.close().unwrap();
}

#[test]
fn a_stream_is_explained_by_what_it_reads_and_its_stages() {
    let engine = engine();
    let stages = array![
        {"$changeStream": {"fullDocument": "updateLookup"}}, {"$match": {"operationType": "update"}},
        {"$match": {"fullDocument.a": 1}}
    ];
    let command = doc! {"aggregate": "c", "pipeline": stages, "cursor": {}};
    let reply = done(&engine, &doc! {"explain": command, "verbosity": "queryPlanner", "$db": "test"});
    let stages = reply.get("stages").and_then(RawValue::as_array).unwrap();
    let stages: Vec<Document> =
        stages.iter().map(|stage| stage.as_document().unwrap().to_document()).collect();
    let read = stages[0].get("$changeStream").and_then(RawValue::as_document).unwrap().to_document();
    assert_eq!(text(&read, "scope"), "test.c");
    assert_eq!(text(&read, "fullDocument"), "updateLookup");
    assert!(matches!(read.get("stagesBeforeLookup"), Some(RawValue::Int32(1))), "{read:?}");
    assert_eq!(stages.len(), 3);
    assert_eq!(engine.feed.streams(), 0, "nothing stays open");
    engine.close().unwrap();
}

/// A thousand streams of other collections sleep through the writes to one; what each costs is told.
#[test]
fn idle_streams_are_left_alone() {
    let engine = engine();
    let streams: Vec<Watch<'_>> =
        (0..1000).map(|number| Watch::open(&engine, format!("idle{number}"), doc! {})).collect();
    let mut busy = Watch::open(&engine, "c", doc! {});
    for id in 0..100 {
        done(&engine, &doc! {"insert": "c", "documents": [{"_id": id}], "$db": "test"});
    }
    assert_eq!(busy.events().len(), 100);
    assert_eq!(engine.feed.streams(), 1001);
    let command = doc! {"serverStatus": 1, "$db": "admin"};
    let status = done(&engine, &command);
    let log = status.get("changeLog").and_then(RawValue::as_document).unwrap();
    assert!(matches!(log.get("streams"), Some(RawValue::Int64(1001))));
    let ids: Array = streams.iter().map(|stream| Value::Int64(stream.id)).collect();
    done(&engine, &doc! {"killCursors": "idle0", "cursors": ids, "$db": "test"});
    assert_eq!(engine.feed.streams(), 1, "streams end with their cursors");
    engine.close().unwrap();
}

/// A stream that is open and not read holds no snapshot and keeps no part of the log: both on disk stay as small as if it were
/// not there, and it is told that the log has gone past it.
#[test]
fn a_slow_listener_neither_holds_the_log_back_nor_pins_a_snapshot() {
    const MB: u64 = 1 << 20;
    let directory = tempfile::tempdir().unwrap();
    let log = LogOptions { bytes_max: Some(MB), ..LogOptions::default() };
    let engine = open(Some(directory.path()), Some(log));
    let mut dice = Dice(1);
    let mut replace = |id: i32| {
        // No two are alike, so that compression does not hide what is kept.
        let noise = (0..8192).flat_map(|_| (dice.roll(1 << 31) as u32).to_le_bytes()).collect();
        let noise = Value::Binary { subtype: 0, bytes: noise };
        let update = doc! {"q": {"_id": id}, "u": {"noise": noise}, "upsert": true};
        done(
            &engine,
            &doc! {"update": "c", "updates": [update], "writeConcern": {"w": 1, "j": false}, "$db": "test"},
        );
    };
    replace(0);
    let mut slow = Watch::open(&engine, "c", doc! {});
    replace(0);
    engine.store.sync().unwrap();
    assert_eq!(slow.events().len(), 1);
    let file = directory.path().join("kilim.db");
    for round in 0..600 {
        replace(round % 8);
        engine.store.trim_log().unwrap();
        if round % 100 == 0 {
            engine.store.checkpoint().unwrap();
        }
    }
    let stats = engine.store.log_stats().unwrap();
    assert!(stats.bytes < 2 * MB, "{stats:?}");
    engine.store.checkpoint().unwrap();
    let bytes = std::fs::metadata(&file).unwrap().len();
    assert!(bytes < 12 * MB, "{bytes} bytes, where 19 MB were written and one is to be kept");
    let more = doc! {"getMore": slow.id, "collection": "c", "maxTimeMS": 1, "$db": "test"};
    assert_eq!(code(&ask(&engine, &more)), 286);
    engine.close().unwrap();
}

/// While a stream waits, others may write more than the log keeps. It has missed none of its events, so it goes on, also if
/// these come faster than they are held in memory.
#[test]
fn a_stream_that_has_missed_nothing_goes_on_although_the_log_has_gone_past_it() {
    const MB: u64 = 1 << 20;
    let log = LogOptions { bytes_max: Some(MB), ..LogOptions::default() };
    let engine = open(None, Some(log));
    let insert = |collection: &str, id: i32, bytes: usize| {
        let documents = array![{"_id": id, "x": "x".repeat(bytes)}];
        done(&engine, &doc! {"insert": collection, "documents": documents, "$db": "test"});
    };
    insert("c", 0, 1);
    let mut watch = Watch::open(&engine, "c", doc! {});
    insert("c", 1, 1);
    assert_eq!(watch.events().len(), 1);
    let seen = engine.store.last_commit_time();
    // Times without an event are remembered by the second.
    std::thread::sleep(std::time::Duration::from_millis(2100));
    for id in 0..60 {
        insert("others", id, 100_000);
        engine.store.trim_log().unwrap();
    }
    assert!(engine.store.log_begins() > seen);
    (2..11).for_each(|id| insert("c", id, 1 << 20));
    assert_eq!(watch.events().len(), 9);
    engine.close().unwrap();
}

#[test]
fn a_database_in_memory_keeps_a_week_and_64_mb_of_changes() {
    let options = EngineOptions {
        data: None,
        durability: Durability::Durable,
        storage: StorageOptions::default(),
        test_commands: false,
    };
    let engine = Engine::open(options).unwrap();
    let stats = engine.store.log_stats().unwrap();
    assert_eq!((stats.age_max.as_secs(), stats.bytes_max), (7 * 24 * 3600, 64 << 20));
    engine.close().unwrap();
}

/// As recorded from mongod 6.0.5: a collection is known by its UUID. Another one may have its name by now, and it another name.
#[test]
fn documents_are_looked_up_where_they_were_changed() {
    for (moves, expected) in [
        (doc! {"drop": "c", "$db": "test"}, None),
        (doc! {"renameCollection": "test.c", "to": "test.d", "$db": "admin"}, Some(doc! {"_id": 1, "a": 1})),
    ] {
        let engine = engine();
        done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "test"});
        let mut watch = Watch::open(&engine, 1, doc! {"fullDocument": "updateLookup"});
        let set = doc! {"q": {"_id": 1}, "u": {"$set": {"a": 1}}};
        done(&engine, &doc! {"update": "c", "updates": [set], "$db": "test"});
        done(&engine, &moves);
        done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1, "other": 1}], "$db": "test"});
        let events = watch.events();
        let shown = match events[0].get("fullDocument") {
            Some(RawValue::Null) => None,
            Some(RawValue::Document(document)) => Some(document.to_document()),
            other => panic!("{other:?}"),
        };
        assert_eq!((text(&events[0], "operationType"), shown), ("update", expected));
        engine.close().unwrap();
    }
}

/// As recorded from mongod 6.0.5.
#[test]
fn stages_of_a_stream_compare_by_the_collation_of_the_command_alone() {
    let engine = engine();
    let collation = doc! {"locale": "en", "strength": 2};
    done(&engine, &doc! {"create": "c", "collation": collation.clone(), "$db": "test"});
    let open = |collation: Option<&Document>| {
        let matches = doc! {"$match": {"fullDocument.a": "X"}};
        let mut command = doc! {
            "aggregate": "c", "pipeline": [{"$changeStream": {}}, matches], "cursor": {}, "$db": "test",
        };
        collation.into_iter().for_each(|collation| command.push("collation", collation.clone()));
        done(&engine, &command)
    };
    let (plain, collated) = (open(None), open(Some(&collation)));
    done(&engine, &doc! {"insert": "c", "documents": [{"a": "x"}], "$db": "test"});
    assert_eq!(batch_of(&next_batch(&engine, &plain)).len(), 0);
    assert_eq!(batch_of(&next_batch(&engine, &collated)).len(), 1);
    engine.close().unwrap();
}

/// As recorded from mongod 6.0.5, where NaN is never equal to what was there.
#[test]
fn a_sum_that_stays_nan_is_told() {
    let engine = engine();
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1, "a": f64::NAN, "b": 1}], "$db": "test"});
    let mut watch = Watch::open(&engine, "c", doc! {});
    for (update, modified) in
        [(doc! {"$mul": {"a": 1}}, 1), (doc! {"$inc": {"a": 1}}, 1), (doc! {"$set": {"b": 1}}, 0)]
    {
        let updates = array![{"q": {"_id": 1}, "u": update.clone()}];
        let reply = done(&engine, &doc! {"update": "c", "updates": updates, "$db": "test"});
        assert!(matches!(reply.get("nModified"), Some(RawValue::Int32(n)) if n == modified), "{reply:?}");
        let events = watch.events();
        assert_eq!(events.len(), modified as usize, "{update:?}");
        for event in &events {
            let told = event.get("updateDescription").and_then(RawValue::as_document).unwrap();
            let fields = told.get("updatedFields").and_then(RawValue::as_document).unwrap();
            assert!(matches!(fields.get("a"), Some(RawValue::Double(sum)) if sum.is_nan()), "{event:?}");
        }
    }
    engine.close().unwrap();
}

/// Codes as recorded from mongod 6.0.5.
#[test]
fn what_mongod_refuses_of_streams_is_refused() {
    let engine = engine();
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "test"});
    let opens = |target: Value, stages: Array| {
        doc! {"aggregate": target, "pipeline": stages, "cursor": {}, "$db": "test"}
    };
    let on = |stages: Array| opens(Value::from("c"), stages);
    let stream = || doc! {"$changeStream": {}};
    for (command, expected) in [
        (on(array![stream(), {"$match": {"$text": {"$search": "a"}}}]), 17313),
        (on(array![{"$changeStream": {}, "x": 1}]), 40323),
        (opens(Value::from("$cmd.aggregate"), array![stream()]), 73),
        (on(array![{"$match": {}}, stream()]), 40602),
        (on(array![{"$match": {}}, {"$changeStream": 5}]), 6188500),
        (on(array![{"$facet": {"a": [stream()]}}]), 40600),
        (on(array![{"$lookup": {"from": "b", "as": "x", "pipeline": [stream()]}}]), 51047),
        (on(array![{"$unionWith": {"coll": "b", "pipeline": [stream()]}}]), 31441),
        (on(array![{"$changeStream": {"allChangesForCluster": Value::Null}}]), 14),
    ] {
        assert_eq!(code(&ask(&engine, &command)), expected, "{command:?}");
    }
    for option in
        ["resumeAfter", "startAfter", "startAtOperationTime", "fullDocument", "fullDocumentBeforeChange"]
    {
        let options: Document = [(option, Value::Null)].into_iter().collect();
        let mut stage = Document::new();
        stage.push("$changeStream", options);
        done(&engine, &on(array![stage]));
    }

    let images = || doc! {"enabled": true};
    for database in ["admin", "config", "local"] {
        let create = |name: &str| doc! {"create": name, "$db": database};
        let mut with_images = create("a");
        with_images.push("changeStreamPreAndPostImages", images());
        assert_eq!(code(&ask(&engine, &with_images)), 72, "{database}");
        done(&engine, &create("b"));
        let modify = doc! {"collMod": "b", "changeStreamPreAndPostImages": images(), "$db": database};
        assert_eq!(code(&ask(&engine, &modify)), 72, "{database}");
    }
    let view = doc! {"create": "v", "viewOn": "c", "changeStreamPreAndPostImages": images(), "$db": "test"};
    assert_eq!(code(&ask(&engine, &view)), 72);

    for options in [
        doc! {"preAndPostImages": {"expireAfterSeconds": 10, "x": 1}},
        doc! {"preAndPostImages": {"expireAfterSeconds": 10}, "x": 1},
    ] {
        let set = doc! {"setClusterParameter": {"changeStreamOptions": options}, "$db": "admin"};
        assert_eq!(code(&ask(&engine, &set)), 2, "{set:?}");
    }

    // A database is not ended by the drop of a collection, so none of its streams has such a token.
    let mut of_name = Watch::open(&engine, "c", doc! {});
    done(&engine, &doc! {"drop": "c", "$db": "test"});
    let ended = token_of(of_name.events().last().unwrap());
    let behind = |target: Value| opens(target, array![{"$changeStream": {"startAfter": ended.clone()}}]);
    assert_eq!(code(&ask(&engine, &behind(Value::Int32(1)))), 280);
    done(&engine, &behind(Value::from("c")));
    engine.close().unwrap();
}

/// What a path begins with is a name, and a place in an array has no leading zeros, so these need no word about it.
#[test]
fn paths_are_told_apart_only_where_they_could_be_mistaken() {
    let engine = engine();
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1, "o": {}}], "$db": "test"});
    let mut watch = Watch::open(&engine, "c", doc! {"showExpandedEvents": true});
    for (path, told) in
        [("1", doc! {}), ("0.a", doc! {}), ("o.01", doc! {}), ("o.1", doc! {"o.1": ["o", "1"]})]
    {
        let set: Document = [(path, Value::Int32(2))].into_iter().collect();
        let updates = array![{"q": {"_id": 1}, "u": {"$set": set}}];
        done(&engine, &doc! {"update": "c", "updates": updates, "$db": "test"});
        let events = watch.events();
        let description = events[0].get("updateDescription").and_then(RawValue::as_document).unwrap();
        let found = description.get("disambiguatedPaths").and_then(RawValue::as_document).unwrap();
        assert_eq!(found.to_document(), told, "{path}");
    }
    engine.close().unwrap();
}
