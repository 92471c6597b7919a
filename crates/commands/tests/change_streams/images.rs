//! Images: before which of them stages decide, and how they are switched on and off. As recorded from mongod 6.0.5.

use kilim_bson::{Array, Document, RawDocument, RawValue, Value, array, doc};

use crate::{Watch, batch_of, code, done, engine, text};

/// A required image is missed only in events that the stages before it let pass: as on mongod, where the `$match` of a stream goes
/// before images are taken, or as much of it as asks nothing of them.
#[test]
fn a_match_decides_before_required_images_are_taken() {
    let post = || doc! {"fullDocument": "required"};
    let pre = || doc! {"fullDocumentBeforeChange": "required"};
    let with_pre = || doc! {"fullDocument": "required", "fullDocumentBeforeChange": "whenAvailable"};
    let with_post = || doc! {"fullDocument": "whenAvailable", "fullDocumentBeforeChange": "required"};
    let of_images = || doc! {"$match": {"ns.coll": "images"}};
    let cases: Vec<(Document, Array, Result<usize, i32>)> = vec![
        (post(), array![], Err(47)),
        (pre(), array![], Err(47)),
        (post(), array![of_images()], Ok(1)),
        (pre(), array![of_images()], Ok(1)),
        (post(), array![{"$match": {"operationType": "delete"}}], Ok(0)),
        (pre(), array![{"$match": {"operationType": "delete"}}], Ok(0)),
        (post(), array![{"$match": {"operationType": "delete", "fullDocument.a": 1}}], Ok(0)),
        (post(), array![{"$match": {"updateDescription.updatedFields.a": {"$lt": 0}}}], Ok(0)),
        (post(), array![of_images(), {"$match": {"fullDocument.a": {"$gt": 0}}}], Ok(1)),
        (post(), array![{"$match": {"$expr": {"$eq": ["$ns.coll", "images"]}}}], Ok(1)),
        (post(), array![{"$project": {"ns": 1}}, of_images()], Ok(1)),
        (pre(), array![{"$addFields": {"z": 1}}, of_images()], Ok(1)),
        (post(), array![{"$match": {"$or": [{"ns.coll": "images"}, {"fullDocument.z": 5}]}}], Err(47)),
        // What is not asked for is no image.
        (pre(), array![{"$match": {"$or": [{"ns.coll": "images"}, {"fullDocument.z": 5}]}}], Ok(1)),
        // The image of before the change is taken first.
        (with_pre(), array![{"$match": {"fullDocumentBeforeChange.a": {"$gte": 0}}}], Ok(1)),
        (with_post(), array![{"$match": {"fullDocument.a": {"$gte": 0}}}], Err(47)),
    ];
    let engine = engine();
    let images = doc! {"enabled": true};
    done(&engine, &doc! {"create": "images", "changeStreamPreAndPostImages": images, "$db": "test"});
    for name in ["images", "plain"] {
        done(&engine, &doc! {"insert": name, "documents": [{"_id": 1, "a": 1}], "$db": "test"});
    }
    for (options, stages, expected) in cases {
        let first = Value::Document(doc! {"$changeStream": options.clone()});
        let pipeline: Array =
            [first].into_iter().chain(stages.as_raw().iter().map(RawValue::to_value)).collect();
        let reply = done(&engine, &doc! {"aggregate": 1, "pipeline": pipeline, "cursor": {}, "$db": "test"});
        for name in ["plain", "images"] {
            let updates = array![{"q": {"_id": 1}, "u": {"$inc": {"a": 1}}}];
            done(&engine, &doc! {"update": name, "updates": updates, "$db": "test"});
        }
        let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap();
        let id = cursor.get("id").unwrap().to_value();
        let more = doc! {"getMore": id, "collection": "$cmd.aggregate", "maxTimeMS": 1, "$db": "test"};
        let reply = crate::ask(&engine, &more);
        let found = match reply.get("code") {
            Some(_) => Err(code(&reply)),
            None => Ok(batch_of(&reply).len()),
        };
        assert_eq!(found, expected, "{options:?} {stages:?}");
    }
    engine.close().unwrap();
}

#[test]
fn what_is_not_kept_is_null_where_it_is_shown_when_available() {
    let engine = engine();
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "test"});
    let both = doc! {"fullDocument": "whenAvailable", "fullDocumentBeforeChange": "whenAvailable"};
    let mut watch = Watch::open(&engine, "c", both);
    let updates = array![{"q": {"_id": 1}, "u": {"$set": {"a": 1}}}];
    done(&engine, &doc! {"update": "c", "updates": updates, "$db": "test"});
    done(&engine, &doc! {"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}], "$db": "test"});
    let events = watch.events();
    assert!(matches!(events[0].get("fullDocument"), Some(RawValue::Null)), "{events:?}");
    assert!(events[1].get("fullDocument").is_none(), "{events:?}");
    for event in &events {
        assert!(matches!(event.get("fullDocumentBeforeChange"), Some(RawValue::Null)), "{event:?}");
    }
    engine.close().unwrap();
}

#[test]
fn images_are_switched_on_and_off_and_listed() {
    let engine = engine();
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1, "a": 0}], "$db": "test"});
    let options = doc! {"showExpandedEvents": true, "fullDocumentBeforeChange": "whenAvailable"};
    let mut watch = Watch::open(&engine, "c", options);
    let switch = |on: bool| {
        let images = doc! {"enabled": on};
        done(&engine, &doc! {"collMod": "c", "changeStreamPreAndPostImages": images, "$db": "test"});
        let updates = array![{"q": {"_id": 1}, "u": {"$inc": {"a": 1}}}];
        done(&engine, &doc! {"update": "c", "updates": updates, "$db": "test"});
        let reply = done(&engine, &doc! {"listCollections": 1, "$db": "test"});
        let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap();
        let listed = cursor.get("firstBatch").and_then(RawValue::as_array).unwrap().iter().next().unwrap();
        let options = listed.as_document().unwrap().get("options").and_then(RawValue::as_document).unwrap();
        options.to_document()
    };
    assert_eq!(switch(true), doc! {"changeStreamPreAndPostImages": {"enabled": true}});
    assert_eq!(switch(false), doc! {});
    let part = |event: &Document, name: &str| {
        event.get(name).and_then(RawValue::as_document).map(RawDocument::to_document)
    };
    let events = watch.events();
    assert_eq!(crate::types(&events), ["modify", "update", "modify", "update"]);
    let told = |on: bool| Some(doc! {"changeStreamPreAndPostImages": {"enabled": on}});
    assert_eq!(part(&events[0], "operationDescription"), told(true));
    assert_eq!(part(&events[1], "fullDocumentBeforeChange"), Some(doc! {"_id": 1, "a": 0}));
    assert_eq!(part(&events[2], "operationDescription"), told(false));
    assert_eq!(text(&events[2], "operationType"), "modify");
    assert!(matches!(events[3].get("fullDocumentBeforeChange"), Some(RawValue::Null)), "{events:?}");
    engine.close().unwrap();
}
