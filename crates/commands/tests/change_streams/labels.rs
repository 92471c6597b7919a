//! Labels of errors, by which drivers decide whether they open a stream again. As recorded from mongod 6.0.5, with its fail
//! points.

use std::sync::Arc;

use kilim_bson::{Array, Document, RawValue, Value, array, doc};
use kilim_engine::{Durability, Engine, EngineOptions, LogOptions, StorageOptions};

use crate::{ask, code, done};

/// With fail points.
fn engine() -> Arc<Engine> {
    let storage = StorageOptions { log: Some(LogOptions::default()), ..Default::default() };
    let options = EngineOptions { data: None, durability: Durability::Durable, storage, test_commands: true };
    Engine::open(options).unwrap()
}

fn label(reply: &Document) -> Option<String> {
    let labels = reply.get("errorLabels").and_then(RawValue::as_array)?;
    let labels: Vec<&str> = labels.iter().filter_map(|label| label.as_str()).collect();
    assert_eq!(labels.len(), 1, "{reply:?}");
    Some(labels[0].to_owned())
}

fn fail(engine: &Arc<Engine>, point: &str, data: Document) {
    let mode = doc! {"times": 1};
    done(engine, &doc! {"configureFailPoint": point, "mode": mode, "data": data, "$db": "admin"});
}

#[test]
fn errors_after_which_a_stream_can_be_resumed_say_so() {
    let engine = engine();
    let documents: Array = (0..3).map(|id| Value::Document(doc! {"_id": id})).collect();
    done(&engine, &doc! {"insert": "c", "documents": documents, "$db": "test"});
    let open = |stages: Array| {
        doc! {"aggregate": "c", "pipeline": stages, "cursor": {"batchSize": 1}, "$db": "test"}
    };
    let (stream, plain) = (|| open(array![{"$changeStream": {}}]), || open(array![]));
    let fails_to_open = |command: Document, number: i32| {
        fail(&engine, "failCommand", doc! {"failCommands": ["aggregate"], "errorCode": number});
        ask(&engine, &command)
    };
    let fails_to_go_on = |command: Document, number: i32| {
        let reply = done(&engine, &command);
        let id = reply.get("cursor").and_then(RawValue::as_document).and_then(|cursor| cursor.get("id"));
        fail(&engine, "failGetMoreAfterCursorCheckout", doc! {"errorCode": number});
        ask(&engine, &doc! {"getMore": id.unwrap().to_value(), "collection": "c", "$db": "test"})
    };
    let resumable = Some("ResumableChangeStreamError".to_owned());
    for number in
        [6, 7, 63, 89, 91, 133, 150, 189, 234, 262, 317, 358, 9001, 10107, 11600, 11602, 13435, 13436]
    {
        for reply in [fails_to_open(stream(), number), fails_to_go_on(stream(), number)] {
            assert_eq!((code(&reply), label(&reply)), (number, resumable.clone()));
        }
        for reply in [fails_to_open(plain(), number), fails_to_go_on(plain(), number)] {
            assert_eq!((code(&reply), label(&reply)), (number, None));
        }
    }
    let fatal = Some("NonResumableChangeStreamError".to_owned());
    for (number, expected) in
        [(1, None), (43, None), (50, None), (237, None), (11601, None), (280, fatal.clone()), (286, fatal)]
    {
        for reply in [fails_to_open(stream(), number), fails_to_go_on(stream(), number)] {
            assert_eq!((code(&reply), label(&reply)), (number, expected.clone()));
        }
    }
    engine.close().unwrap();
}
