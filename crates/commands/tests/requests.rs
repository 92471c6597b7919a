//! What a message may carry beside its command, and what a refused command leaves behind.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_commands::{Client, Request, run};
use kilim_engine::{Durability, Engine, EngineOptions};

fn engine() -> Arc<Engine> {
    let options = EngineOptions {
        data: None,
        durability: Durability::Relaxed,
        storage: kilim_engine::StorageOptions { cache_bytes: 16 << 20, ..Default::default() },
        test_commands: false,
    };
    Engine::open(options).unwrap()
}

/// The reply to a command with document sequences of these names, one empty document in each.
fn ask(engine: &Arc<Engine>, command: &Document, sequences: &[&'static str]) -> Document {
    let mut client = Client::in_process(engine.clone());
    let sequences = sequences.iter().map(|name| (*name, vec![RawDocument::empty()])).collect();
    let request = Request { body: command.as_raw(), sequences, exhaust_allowed: false, legacy_hello: false };
    run(&mut client, request).document
}

fn code(reply: &Document) -> i32 {
    match reply.get("code") {
        Some(RawValue::Int32(code)) => code,
        _ => 0,
    }
}

#[test]
fn unknown_document_sequences_are_refused_where_mongod_refuses_them() {
    let engine = engine();
    let insert = doc! {"insert": "c", "$db": "test"};
    let whole = doc! {"insert": "c", "documents": [{}], "$db": "test"};
    for (command, sequences, expected) in [
        (&insert, &["documents"][..], 0),
        (&insert, &["documents", "bogus"], 40415),
        (&whole, &["bogus"], 40415),
        (&whole, &["updates"], 40415),
        (&whole, &["lsid"], 40415),
        (&doc! {"find": "c", "$db": "test"}, &["bogus"], 0),
        (&doc! {"ping": 1, "$db": "test"}, &["bogus"], 0),
        (&doc! {"hello": 1, "$db": "admin"}, &["bogus"], 40472),
    ] {
        assert_eq!(code(&ask(&engine, command, sequences)), expected, "{command:?} with {sequences:?}");
    }
    engine.close().unwrap();
}

#[test]
fn a_refused_name_leaves_top_readable() {
    let engine = engine();
    for command in
        [doc! {"find": "a\0b", "$db": "test"}, doc! {"insert": "a\0b", "documents": [{}], "$db": "test"}]
    {
        assert_eq!(code(&ask(&engine, &command, &[])), 73);
    }
    let reply = ask(&engine, &doc! {"top": 1, "$db": "admin"}, &[]);
    assert_eq!(code(&reply), 0);
    assert!(RawDocument::parse(reply.as_bytes()).is_ok());
    engine.close().unwrap();
}
