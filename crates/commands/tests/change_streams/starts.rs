//! Where streams begin.

use kilim_bson::{Document, RawDocument, RawValue, Timestamp, Value, array, doc};

use crate::{Watch, code, done, engine, open, token_of, types, watch_through};

fn at(seconds: u32, increment: u32) -> Document {
    doc! {"startAtOperationTime": Value::Timestamp(Timestamp { seconds, increment })}
}

fn digits(token: &Document) -> String {
    token.get("_data").and_then(RawValue::as_str).unwrap().to_owned()
}

/// The seconds that other programs read out of a token.
fn seconds_of(token: &Document) -> u64 {
    u64::from_str_radix(&digits(token)[2..10], 16).unwrap()
}

fn now_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

/// A commit that no event tells of.
fn unlogged(engine: &std::sync::Arc<kilim_engine::Engine>, id: i32) {
    done(engine, &doc! {"insert": "silent", "documents": [{"_id": id}], "$db": "config"});
}

#[test]
fn everything_there_is_begins_with_the_first_time_whatever_came_before_the_first_event() {
    let engine = engine();
    unlogged(&engine, 1);
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "test"});
    unlogged(&engine, 2);
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 2}], "$db": "test"});
    assert_eq!(types(&Watch::open(&engine, "c", at(1, 1)).events()), ["insert", "insert"]);
    engine.close().unwrap();
}

#[test]
fn a_stream_that_has_not_moved_is_resumed_behind_commits_without_events() {
    let before = now_seconds();
    let engine = engine();
    let fresh = Watch::open(&engine, "c", doc! {});
    let time = seconds_of(&fresh.token);
    assert!((before..=now_seconds()).contains(&time), "the token of a new store has a time of now: {time}");
    unlogged(&engine, 1);
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "test"});
    let mut resumed = Watch::open(&engine, "c", doc! {"resumeAfter": fresh.token.clone()});
    assert_eq!(types(&resumed.events()), ["insert"]);
    engine.close().unwrap();
}

#[test]
fn a_time_is_inclusive_and_may_be_in_the_future() {
    let engine = engine();
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "test"});
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 2}], "$db": "test"});
    let events = Watch::open(&engine, "c", at(1, 1)).events();
    for (place, event) in events.iter().enumerate() {
        let Some(RawValue::Timestamp(time)) = event.get("clusterTime") else { panic!("{event:?}") };
        let mut watch = Watch::open(&engine, "c", at(time.seconds, time.increment));
        assert_eq!(watch.events(), events[place..]);
        let mut behind = Watch::open(&engine, "c", at(time.seconds, time.increment + 1));
        assert_eq!(behind.events(), events[place + 1..]);
    }
    let mut future = Watch::open(&engine, "c", at(now_seconds() as u32 + 1000, 1));
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 3}], "$db": "test"});
    assert!(future.events().is_empty());
    assert_ne!(future.id, 0, "it waits");
    engine.close().unwrap();
}

/// As recorded from mongod 6.0.5.
#[test]
fn a_token_is_read_whatever_the_case_of_its_digits_and_whatever_stands_behind_them() {
    let engine = engine();
    let mut watch = Watch::open(&engine, "c", doc! {});
    for id in 1..3 {
        done(&engine, &doc! {"insert": "c", "documents": [{"_id": id}], "$db": "test"});
    }
    let events = watch.events();
    let token = digits(&token_of(&events[0]));
    for written in [token.clone(), token.to_lowercase(), format!("{token}00"), format!("{token}ABCD")] {
        for target in [Value::from("c"), Value::Int32(1)] {
            let options = doc! {"resumeAfter": {"_data": written.as_str()}};
            assert_eq!(Watch::open(&engine, target, options).events(), events[1..], "{written}");
        }
    }
    let typed = doc! {"_data": token.as_str(), "_typeBits": Value::Binary { subtype: 0, bytes: vec![0] }};
    let refused = watch_through(&engine, doc! {"resumeAfter": typed}, array![]);
    assert_eq!(code(&refused), 50854, "Kilim makes no token with them");
    engine.close().unwrap();
}

/// MongoDB's code and label, by which drivers know that there is no use in trying again; the message says what to do.
#[test]
fn where_the_log_has_gone_past_a_token_the_error_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(Some(directory.path()), None);
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "test"});
    engine.close().unwrap();
    drop(engine);
    let engine = open(Some(directory.path()), Some(Default::default()));
    for options in [at(1, 1), doc! {"resumeAfter": {"_data": "8200000001000000012B0229296E04"}}] {
        let reply = watch_through(&engine, options, array![]);
        assert_eq!(code(&reply), 286);
        let message = reply.get("errmsg").and_then(RawValue::as_str).unwrap();
        assert!(message.contains("the resume point may no longer be in the oplog"), "{message}");
        assert!(message.contains("open a new stream") && message.contains("--change-log-size"), "{message}");
        let labels = reply.get("errorLabels").and_then(RawValue::as_array).unwrap();
        let labels: Vec<&str> = labels.iter().filter_map(|label| label.as_str()).collect();
        assert_eq!(labels, ["NonResumableChangeStreamError"]);
    }
    engine.close().unwrap();
}

#[test]
fn how_long_images_are_shown_is_known_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let log = || Some(kilim_engine::LogOptions::default());
    let engine = open(Some(directory.path()), log());
    let expire = doc! {"preAndPostImages": {"expireAfterSeconds": 100i64}};
    done(&engine, &doc! {"setClusterParameter": {"changeStreamOptions": expire.clone()}, "$db": "admin"});
    engine.close().unwrap();
    drop(engine);
    let engine = open(Some(directory.path()), log());
    let reply = done(&engine, &doc! {"getClusterParameter": "changeStreamOptions", "$db": "admin"});
    let all = reply.get("clusterParameters").and_then(RawValue::as_array).unwrap();
    let found = all.iter().next().and_then(RawValue::as_document).unwrap();
    let images = found.get("preAndPostImages").and_then(RawValue::as_document).unwrap();
    assert_eq!(images.to_document(), doc! {"expireAfterSeconds": 100i64});
    engine.close().unwrap();
}

/// How far back the log reaches, and its newest commit.
#[test]
fn the_ends_of_the_log_are_in_the_status_of_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(Some(directory.path()), None);
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "test"});
    engine.close().unwrap();
    drop(engine);
    let engine = open(Some(directory.path()), Some(Default::default()));
    let ends = || {
        let reply = done(&engine, &doc! {"serverStatus": 1, "$db": "admin"});
        let log =
            reply.get("changeLog").and_then(RawValue::as_document).map(RawDocument::to_document).unwrap();
        ["beginsAfter", "last"].map(|name| match log.get(name) {
            Some(RawValue::Timestamp(time)) => time.to_bits(),
            other => panic!("{name}: {other:?} of {log:?}"),
        })
    };
    let [begins, newest] = ends();
    assert_eq!(begins, newest, "nothing of what came before is in it");
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 2}], "$db": "test"});
    let [still, newer] = ends();
    assert_eq!(still, begins);
    assert!(newer > newest);
    engine.close().unwrap();
}
