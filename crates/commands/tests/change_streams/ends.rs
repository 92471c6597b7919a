//! What ends streams: renames and drops. As recorded from mongod 6.0.5.

use kilim_bson::{Document, RawDocument, RawValue, Value, array, doc};

use crate::{Watch, done, engine, types};

fn fields(event: &Document) -> Vec<&str> {
    event.iter().map(|(name, _)| name).collect()
}

fn part(event: &Document, name: &str) -> Option<Document> {
    event.get(name).and_then(RawValue::as_document).map(RawDocument::to_document)
}

#[test]
fn a_rename_ends_the_streams_of_both_names_and_of_no_database() {
    for drops in [false, true] {
        let engine = engine();
        done(&engine, &doc! {"insert": "a", "documents": [{"_id": 1}], "$db": "test"});
        if drops {
            done(&engine, &doc! {"create": "b", "$db": "test"});
        }
        let expanded = || doc! {"showExpandedEvents": true};
        let mut of_names = ["a", "b"].map(|name| Watch::open(&engine, name, expanded()));
        let mut of_database = Watch::open(&engine, 1, expanded());
        let rename = doc! {"renameCollection": "test.a", "to": "test.b", "dropTarget": drops, "$db": "admin"};
        done(&engine, &rename);
        for watch in &mut of_names {
            let events = watch.events();
            assert_eq!(types(&events), ["rename", "invalidate"]);
            assert_eq!(watch.id, 0);
            let to = doc! {"db": "test", "coll": "b"};
            assert_eq!(part(&events[0], "to"), Some(to.clone()));
            assert_eq!(part(&events[0], "ns"), Some(doc! {"db": "test", "coll": "a"}));
            let description = part(&events[0], "operationDescription").unwrap();
            assert_eq!(part(&description, "to"), Some(to));
            let gone = matches!(description.get("dropTarget"), Some(RawValue::Binary { subtype: 4, .. }));
            assert_eq!(gone, drops, "{description:?}");
            assert_eq!(
                fields(&events[0]),
                [
                    "to",
                    "_id",
                    "operationType",
                    "clusterTime",
                    "collectionUUID",
                    "wallTime",
                    "ns",
                    "operationDescription"
                ]
            );
            assert_eq!(fields(&events[1]), ["_id", "operationType", "clusterTime", "wallTime"]);
        }
        assert_eq!(types(&of_database.events()), ["rename"]);
        assert_ne!(of_database.id, 0);
        engine.close().unwrap();
    }
}

#[test]
fn the_drop_of_a_database_ends_its_streams_and_not_that_of_the_deployment() {
    let engine = engine();
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "test"});
    let mut of_name = Watch::open(&engine, "c", doc! {});
    let mut of_database = Watch::open(&engine, 1, doc! {});
    let stages = array![{"$changeStream": {"allChangesForCluster": true}}];
    let open = doc! {"aggregate": 1, "pipeline": stages, "cursor": {}, "$db": "admin"};
    let of_all = done(&engine, &open);
    done(&engine, &doc! {"dropDatabase": 1, "$db": "test"});
    assert_eq!(types(&of_name.events()), ["drop", "invalidate"]);
    let events = of_database.events();
    assert_eq!(types(&events), ["drop", "dropDatabase", "invalidate"]);
    assert_eq!(of_database.id, 0);
    assert_eq!(part(&events[1], "ns"), Some(doc! {"db": "test"}));
    assert_eq!(fields(&events[1]), ["_id", "operationType", "clusterTime", "wallTime", "ns"]);
    let cursor = part(&of_all, "cursor").unwrap();
    let more = doc! {
        "getMore": cursor.get("id").unwrap().to_value(), "collection": "$cmd.aggregate", "maxTimeMS": 1,
        "$db": "admin",
    };
    let reply = done(&engine, &more);
    assert_eq!(types(&crate::batch_of(&reply)), ["drop", "dropDatabase"]);
    assert!(!matches!(part(&reply, "cursor").unwrap().get("id"), Some(RawValue::Int64(0))));
    // Behind the end comes nothing, and a stream that starts there follows what has the name next.
    let ended = crate::token_of(&events[2]);
    let mut next = Watch::open(&engine, 1, doc! {"startAfter": ended});
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 2}], "$db": "test"});
    assert_eq!(types(&next.events()), ["insert"]);
    engine.close().unwrap();
}

#[test]
fn the_batch_that_a_stream_ends_with_says_so() {
    let engine = engine();
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "test"});
    let watch = Watch::open(&engine, "c", doc! {});
    let more = doc! {"getMore": watch.id, "collection": "c", "maxTimeMS": 1, "$db": "test"};
    let cursor = part(&done(&engine, &more), "cursor").unwrap();
    assert!(cursor.get("invalidated").is_none(), "{cursor:?}");
    done(&engine, &doc! {"drop": "c", "$db": "test"});
    let cursor = part(&done(&engine, &more), "cursor").unwrap();
    assert!(matches!(cursor.get("invalidated"), Some(RawValue::Bool(true))), "{cursor:?}");
    assert!(matches!(cursor.get("id"), Some(RawValue::Int64(0))), "{cursor:?}");
    engine.close().unwrap();
}

/// The target of `$out` is renamed to, which ends its stream.
#[test]
fn out_ends_the_stream_of_its_target() {
    let engine = engine();
    for name in ["from", "target"] {
        done(&engine, &doc! {"insert": name, "documents": [{"_id": 1}], "$db": "test"});
    }
    let mut watch = Watch::open(&engine, "target", doc! {});
    let out = array![{"$out": "target"}];
    done(&engine, &doc! {"aggregate": "from", "pipeline": out, "cursor": {}, "$db": "test"});
    let events = watch.events();
    assert_eq!(types(&events), ["rename", "invalidate"]);
    assert_eq!(part(&events[0], "to"), Some(doc! {"db": "test", "coll": "target"}));
    engine.close().unwrap();
}

/// Buckets in the making have a name that nobody has been told of. MongoDB 7.0, which has the stage, makes the view when
/// the buckets have their name.
#[test]
fn out_of_measurements_is_told_by_the_view_that_it_makes() {
    let engine = engine();
    let measurement = |time: Value| doc! {"t": time, "m": 1};
    done(&engine, &doc! {"insert": "from", "documents": [measurement(Value::DateTime(0))], "$db": "test"});
    done(&engine, &doc! {"insert": "bad", "documents": [measurement(Value::Int32(1))], "$db": "test"});
    let mut watch = Watch::open(&engine, 1, doc! {"showExpandedEvents": true});
    let out = |from: &str| {
        let series = doc! {"timeField": "t", "metaField": "m"};
        let out = doc! {"$out": {"db": "test", "coll": "series", "timeseries": series}};
        doc! {"aggregate": from, "pipeline": [out], "cursor": {}, "$db": "test"}
    };
    crate::code(&crate::ask(&engine, &out("bad")));
    assert_eq!(types(&watch.events()), Vec::<&str>::new());
    done(&engine, &out("from"));
    let events = watch.events();
    assert_eq!(types(&events), ["create"]);
    assert_eq!(part(&events[0], "ns"), Some(doc! {"db": "test", "coll": "series"}));
    // The view stays, with other buckets.
    done(&engine, &out("from"));
    assert_eq!(types(&watch.events()), Vec::<&str>::new());
    engine.close().unwrap();
}
