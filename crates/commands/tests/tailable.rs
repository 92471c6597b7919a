//! Tailable cursors that await data sleep until something happens.

use std::sync::Arc;
use std::thread;

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_commands::{Client, Request, run};
use kilim_engine::{Durability, Engine, EngineOptions, StorageOptions};

fn engine() -> Arc<Engine> {
    let options = EngineOptions {
        data: None,
        durability: Durability::Relaxed,
        storage: StorageOptions { cache_bytes: 16 << 20, ..Default::default() },
        test_commands: false,
    };
    Engine::open(options).unwrap()
}

fn ask(engine: &Arc<Engine>, command: &Document) -> Document {
    let mut client = Client::in_process(engine.clone());
    let sequences = Vec::new();
    let request = Request { body: command.as_raw(), sequences, exhaust_allowed: false, legacy_hello: false };
    run(&mut client, request).document
}

fn cursor_of(reply: &Document) -> RawDocument<'_> {
    match reply.get("cursor") {
        Some(RawValue::Document(cursor)) => cursor,
        _ => panic!("{reply:?}"),
    }
}

/// Opens a cursor that has seen the one document there is; its id.
fn open(engine: &Arc<Engine>) -> i64 {
    ask(engine, &doc! {"create": "c", "capped": true, "size": 100_000, "$db": "test"});
    ask(engine, &doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "test"});
    let find = doc! {"find": "c", "tailable": true, "awaitData": true, "$db": "test"};
    match cursor_of(&ask(engine, &find)).get("id") {
        Some(RawValue::Int64(id)) if id != 0 => id,
        other => panic!("{other:?}"),
    }
}

/// Reads on, for longer than any test waits, and does something while the read waits.
fn read_on(engine: &Arc<Engine>, id: i64, meanwhile: impl FnOnce()) -> Document {
    let more = doc! {"getMore": id, "collection": "c", "maxTimeMS": 3_600_000, "$db": "test"};
    thread::scope(|scope| {
        let reader = scope.spawn(|| ask(engine, &more));
        let waits = |command: &Document| command.get("getMore").is_some();
        while !engine.operations.list().iter().any(|operation| operation.command().is_some_and(waits)) {
            thread::yield_now();
        }
        meanwhile();
        reader.join().unwrap()
    })
}

#[test]
fn an_insert_wakes_a_cursor_that_awaits_it() {
    let engine = engine();
    let id = open(&engine);
    for number in 2..20 {
        let insert = doc! {"insert": "c", "documents": [{"_id": number}], "$db": "test"};
        let reply = read_on(&engine, id, || {
            ask(&engine, &insert);
        });
        let batch = cursor_of(&reply).get("nextBatch").and_then(RawValue::as_array).unwrap();
        assert_eq!(batch.iter().count(), 1, "{reply:?}");
    }
    engine.close().unwrap();
}

#[test]
fn a_waiting_cursor_ends_when_it_is_killed() {
    let engine = engine();
    let id = open(&engine);
    let kill = doc! {"killCursors": "c", "cursors": [id], "$db": "test"};
    let reply = read_on(&engine, id, || {
        ask(&engine, &kill);
    });
    assert!(reply.get("code").is_some(), "{reply:?}");
    engine.close().unwrap();
}

#[test]
fn a_waiting_cursor_ends_with_its_operation_and_with_the_server() {
    let engine = engine();
    let id = open(&engine);
    let reply = read_on(&engine, id, || {
        engine.operations.list().iter().for_each(|operation| operation.kill());
    });
    assert!(matches!(reply.get("code"), Some(RawValue::Int32(11601))), "{reply:?}");
    let id = {
        let find = doc! {"find": "c", "tailable": true, "awaitData": true, "$db": "test"};
        match cursor_of(&ask(&engine, &find)).get("id") {
            Some(RawValue::Int64(id)) => id,
            other => panic!("{other:?}"),
        }
    };
    let reply = read_on(&engine, id, || engine.operations.end_waiting());
    assert!(reply.get("cursor").is_some(), "{reply:?}");
    engine.close().unwrap();
}
