//! What administrators ask: locking against writes, which collection is meant, what is idle.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_commands::{Client, Request, run};
use kilim_engine::{Durability, Engine, EngineOptions, StorageOptions};

fn engine_in(data: Option<&std::path::Path>) -> Arc<Engine> {
    let options = EngineOptions {
        data: data.map(Into::into),
        durability: Durability::Durable,
        storage: StorageOptions { cache_bytes: 16 << 20, ..Default::default() },
        test_commands: false,
    };
    Engine::open(options).unwrap()
}

fn connect(engine: &Arc<Engine>, id: u64) -> Client {
    let address: SocketAddr = "127.0.0.1:4711".parse().unwrap();
    Client::new(engine.clone(), id, address, address)
}

fn ask(client: &mut Client, db: &str, mut command: Document) -> Document {
    command.push("$db", db);
    let sequences = Vec::new();
    let request = Request { body: command.as_raw(), sequences, exhaust_allowed: false, legacy_hello: false };
    run(client, request).document
}

fn done(client: &mut Client, db: &str, command: Document) -> Document {
    let reply = ask(client, db, command);
    assert_eq!(code(&reply), 0, "{reply:?}");
    reply
}

fn code(reply: &Document) -> i32 {
    match reply.get("code") {
        Some(RawValue::Int32(code)) => code,
        _ => 0,
    }
}

fn batch(reply: &Document) -> Vec<Document> {
    let cursor = reply.get("cursor").and_then(RawValue::as_document).expect("a cursor");
    let batch = cursor.get("firstBatch").and_then(RawValue::as_array).expect("a batch");
    batch.iter().filter_map(RawValue::as_document).map(RawDocument::to_document).collect()
}

fn count(client: &mut Client) -> Option<i32> {
    match done(client, "test", doc! {"count": "c"}).get("n") {
        Some(RawValue::Int32(n)) => Some(n),
        _ => None,
    }
}

#[test]
fn a_write_waits_for_the_unlock_and_reads_go_on() {
    let directory = tempfile::tempdir().unwrap();
    for data in [None, Some(directory.path())] {
        let engine = engine_in(data);
        let mut client = connect(&engine, 1);
        done(&mut client, "test", doc! {"insert": "c", "documents": [{"_id": 1}]});
        done(&mut client, "admin", doc! {"fsync": 1, "lock": true});
        done(&mut client, "admin", doc! {"fsync": 1, "lock": true});
        thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let mut client = connect(&engine, 2);
                ask(&mut client, "test", doc! {"insert": "c", "documents": [{"_id": 2}]})
            });
            let waits = || {
                let mut all = engine.operations.list().into_iter();
                all.any(|operation| operation.command().is_some_and(|it| it.get("insert").is_some()))
            };
            while !waits() {
                thread::yield_now();
            }
            let before = engine.store.last_commit_time();
            done(&mut client, "admin", doc! {"fsyncUnlock": 1});
            // One lock is left.
            for _ in 0..20 {
                assert_eq!(count(&mut client), Some(1));
                thread::sleep(Duration::from_millis(5));
            }
            assert!(!writing.is_finished());
            assert_eq!(engine.store.last_commit_time(), before);
            let shown = done(&mut client, "admin", doc! {"currentOp": 1});
            assert!(matches!(shown.get("fsyncLock"), Some(RawValue::Bool(true))), "{shown:?}");
            done(&mut client, "admin", doc! {"fsyncUnlock": 1});
            assert_eq!(code(&writing.join().unwrap()), 0);
        });
        assert_eq!(count(&mut client), Some(2));
        assert_eq!(code(&ask(&mut client, "admin", doc! {"fsyncUnlock": 1})), 20);
        engine.close().unwrap();
    }
}

#[test]
fn a_commit_of_a_transaction_and_out_wait_for_the_unlock() {
    let engine = engine_in(None);
    let mut client = connect(&engine, 1);
    done(&mut client, "test", doc! {"insert": "c", "documents": [{"_id": 1}]});
    let id = Value::Binary { subtype: 4, bytes: vec![7; 16] };
    let part = |mut command: Document| {
        command.push("lsid", doc! {"id": id.clone()});
        command.push("txnNumber", 1i64);
        command.push("autocommit", false);
        command
    };
    let mut insert = part(doc! {"insert": "c", "documents": [{"_id": 2}]});
    insert.push("startTransaction", true);
    done(&mut client, "test", insert);
    done(&mut client, "admin", doc! {"fsync": 1, "lock": true});
    let commit = part(doc! {"commitTransaction": 1, "maxTimeMS": 50});
    assert_eq!(code(&ask(&mut client, "admin", commit)), 50);
    let out = doc! {"aggregate": "c", "pipeline": [{"$out": "d"}], "cursor": {}, "maxTimeMS": 50};
    assert_eq!(code(&ask(&mut client, "test", out)), 50);
    assert_eq!(count(&mut client), Some(1));
    done(&mut client, "admin", doc! {"fsyncUnlock": 1});
    done(&mut client, "admin", part(doc! {"commitTransaction": 1}));
    assert_eq!(count(&mut client), Some(2));
    engine.close().unwrap();
}

#[test]
fn a_server_that_is_locked_ends_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine_in(Some(directory.path()));
    let mut client = connect(&engine, 1);
    done(&mut client, "test", doc! {"insert": "c", "documents": [{"_id": 1}]});
    done(&mut client, "admin", doc! {"fsync": 1, "lock": true});
    engine.close().unwrap();
    drop(client);
    drop(engine);
    let engine = engine_in(Some(directory.path()));
    assert_eq!(count(&mut connect(&engine, 1)), Some(1));
    engine.close().unwrap();
}

/// The id of a collection.
fn uuid(client: &mut Client, name: &str) -> Value {
    let reply = done(client, "test", doc! {"listCollections": 1, "filter": {"name": name}});
    let listed = batch(&reply).pop().expect("a collection");
    let info = listed.get("info").and_then(RawValue::as_document).expect("info");
    info.get("uuid").expect("an id").to_value()
}

#[test]
fn a_collection_may_be_named_by_its_id_as_well() {
    let engine = engine_in(None);
    let mut client = connect(&engine, 1);
    for name in ["a", "b"] {
        done(&mut client, "test", doc! {"insert": name, "documents": [{"_id": 1}]});
    }
    let (a, b) = (uuid(&mut client, "a"), uuid(&mut client, "b"));
    let commands = || {
        [
            doc! {"find": "a"},
            doc! {"aggregate": "a", "pipeline": [], "cursor": {}},
            doc! {"insert": "a", "documents": [{}]},
            doc! {"update": "a", "updates": [{"q": {}, "u": {"$set": {"x": 1}}}]},
            doc! {"delete": "a", "deletes": [{"q": {"_id": 1}, "limit": 1}]},
            doc! {"createIndexes": "a", "indexes": [{"key": {"x": 1}, "name": "x"}]},
            doc! {"dropIndexes": "a", "index": "x"},
            doc! {"collMod": "a"},
        ]
    };
    for mut command in commands() {
        command.push("collectionUUID", a.clone());
        let reply = done(&mut client, "test", command);
        assert!(reply.get("writeErrors").is_none(), "{reply:?}");
    }
    for mut command in commands() {
        command.push("collectionUUID", b.clone());
        let reply = ask(&mut client, "test", command);
        let errors = reply.get("writeErrors").and_then(RawValue::as_array);
        let error = match errors.and_then(|errors| errors.get(0)) {
            Some(first) => first.as_document().expect("an error").to_document(),
            None => reply,
        };
        assert_eq!(code(&error), 361, "{error:?}");
        assert_eq!(error.get("expectedCollection").and_then(RawValue::as_str), Some("a"));
        assert_eq!(error.get("actualCollection").and_then(RawValue::as_str), Some("b"));
    }
    let rename = |id: &Value, to: &str, target: Value| {
        doc! {"renameCollection": "test.a", "to": to, "collectionUUID": id.clone(), "dropTarget": target}
    };
    assert_eq!(code(&ask(&mut client, "admin", rename(&b, "test.c", Value::Bool(false)))), 361);
    assert_eq!(code(&ask(&mut client, "admin", rename(&a, "test.b", a.clone()))), 361);
    done(&mut client, "admin", rename(&a, "test.b", b.clone()));
    assert_eq!(code(&ask(&mut client, "test", doc! {"drop": "b", "collectionUUID": b})), 361);
    done(&mut client, "test", doc! {"drop": "b", "collectionUUID": a});
    engine.close().unwrap();
}

#[test]
fn what_is_idle_is_shown_where_it_is_asked_for() {
    let engine = engine_in(None);
    let mut client = connect(&engine, 1);
    let _other = connect(&engine, 2);
    done(&mut client, "test", doc! {"insert": "c", "documents": [{"_id": 1}, {"_id": 2}]});
    let id = Value::Binary { subtype: 4, bytes: vec![7; 16] };
    let started = doc! {
        "find": "c", "lsid": {"id": id}, "txnNumber": 3i64, "autocommit": false, "startTransaction": true,
    };
    done(&mut client, "test", started);
    done(&mut client, "test", doc! {"find": "c", "batchSize": 1, "comment": "half"});
    let mut shown = |options: Document, of: &str| {
        let pipeline =
            vec![doc! {"$currentOp": options}, doc! {"$match": {"type": of, "active": {"$ne": true}}}];
        batch(&done(&mut client, "admin", doc! {"aggregate": 1, "pipeline": pipeline, "cursor": {}}))
    };
    assert_eq!(shown(doc! {}, "idleCursor").len(), 0);
    assert_eq!(shown(doc! {}, "op").len(), 0);
    let cursors = shown(doc! {"idleCursors": true}, "idleCursor");
    let [cursor] = &cursors[..] else { panic!("{cursors:?}") };
    let cursor = cursor.get("cursor").and_then(RawValue::as_document).expect("a cursor");
    assert!(matches!(cursor.get("nDocsReturned"), Some(RawValue::Int64(1))), "{cursor:?}");
    let connections = shown(doc! {"idleConnections": true}, "op");
    let [connection] = &connections[..] else { panic!("{connections:?}") };
    assert!(matches!(connection.get("connectionId"), Some(RawValue::Int64(2))), "{connection:?}");
    let sessions = shown(doc! {}, "idleSession");
    let [session] = &sessions[..] else { panic!("{sessions:?}") };
    let transaction = session.get("transaction").and_then(RawValue::as_document).expect("a transaction");
    let parameters = transaction.get("parameters").and_then(RawValue::as_document).expect("parameters");
    assert!(matches!(parameters.get("txnNumber"), Some(RawValue::Int64(3))), "{parameters:?}");
    assert_eq!(shown(doc! {"idleSessions": false}, "idleSession").len(), 0);
    engine.close().unwrap();
}

/// As recorded from mongod 6.0.5.
#[test]
fn cursors_are_counted_when_they_are_opened_and_when_they_end() {
    let engine = engine_in(None);
    let client = std::cell::RefCell::new(connect(&engine, 1));
    let run = |db: &str, command: Document| done(&mut client.borrow_mut(), db, command);
    let documents: Vec<Value> = (0..10).map(|id| Value::Document(doc! {"_id": id})).collect();
    run("test", doc! {"insert": "a", "documents": documents});
    let counts = || {
        let status = run("admin", doc! {"serverStatus": 1});
        let of = |within: &Document, name: &str| {
            within.get(name).and_then(RawValue::as_document).unwrap().to_document()
        };
        let cursor = of(&of(&status, "metrics"), "cursor");
        let count = |within: &Document, name: &str| match within.get(name) {
            Some(RawValue::Int64(count)) => count,
            other => panic!("{name}: {other:?}"),
        };
        let lifespan = of(&cursor, "lifespan");
        assert_eq!(lifespan.iter().count(), 7);
        let ended = count(&lifespan, "lessThan1Second");
        [count(&cursor, "totalOpened"), count(&cursor, "moreThanOneBatch"), ended]
    };
    let find = |batch: i32| {
        let reply = run("test", doc! {"find": "a", "batchSize": batch});
        let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap();
        match cursor.get("id") {
            Some(RawValue::Int64(id)) => id,
            other => panic!("{other:?}"),
        }
    };
    let more = |id: i64, batch: i32| {
        run("test", doc! {"getMore": id, "collection": "a", "batchSize": batch});
    };
    let kill = |id: i64| {
        run("test", doc! {"killCursors": "a", "cursors": [id]});
    };
    assert_eq!(counts(), [0, 0, 0]);
    assert_eq!(find(100), 0);
    assert_eq!(counts(), [0, 0, 0], "one that is read at once is none");
    more(find(3), 100);
    assert_eq!(counts(), [1, 1, 1]);
    kill(find(2));
    assert_eq!(counts(), [2, 1, 2]);
    let id = find(0);
    more(id, 2);
    assert_eq!(counts(), [3, 1, 2]);
    kill(id);
    assert_eq!(counts(), [3, 2, 3]);
    engine.close().unwrap();
}
