//! What is told of changes that no plain statement makes, and in which form. As recorded from mongod 6.0.5.

use kilim_bson::{Array, Document, RawDocument, RawValue, Value, array, doc};
use kilim_engine::Namespace;

use crate::{Watch, batch_of, code, done, engine, next_batch, types, watch_through};

fn keys(events: &[Document]) -> Vec<(String, i32)> {
    let key = |event: &Document| {
        let key = event.get("documentKey").and_then(RawValue::as_document).unwrap();
        let Some(RawValue::Int32(id)) = key.get("_id") else { panic!("{event:?}") };
        (crate::text(event, "operationType").to_owned(), id)
    };
    events.iter().map(key).collect()
}

fn pairs(expected: &[(&str, i32)]) -> Vec<(String, i32)> {
    expected.iter().map(|(kind, id)| ((*kind).to_owned(), *id)).collect()
}

#[test]
fn a_replacement_by_the_same_content_is_told_unless_it_names_the_id() {
    let engine = engine();
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1, "a": 1}], "$db": "test"});
    let mut watch = Watch::open(&engine, "c", doc! {});
    for (document, told) in [(doc! {"a": 1}, vec!["replace"]), (doc! {"_id": 1, "a": 1}, vec![])] {
        let updates = array![{"q": {"_id": 1}, "u": document.clone()}];
        done(&engine, &doc! {"update": "c", "updates": updates, "$db": "test"});
        assert_eq!(types(&watch.events()), told, "{document:?}");
    }
    engine.close().unwrap();
}

#[test]
fn each_document_that_a_capped_collection_loses_is_told_behind_the_insert_that_needs_its_room() {
    let engine = engine();
    done(&engine, &doc! {"create": "c", "capped": true, "size": 4096, "max": 2, "$db": "test"});
    let mut watch = Watch::open(&engine, "c", doc! {});
    let documents: Array = (0..4).map(|id| Value::Document(doc! {"_id": id})).collect();
    done(&engine, &doc! {"insert": "c", "documents": documents, "$db": "test"});
    let expected = [("insert", 0), ("insert", 1), ("insert", 2), ("delete", 0), ("insert", 3), ("delete", 1)];
    assert_eq!(keys(&watch.events()), pairs(&expected));
    engine.close().unwrap();
}

/// MongoDB tells of the copies that do not fit, although it does not tell of the others. It leaves some of them out of the copy.
#[test]
fn of_documents_that_are_copied_into_a_capped_collection_those_are_told_that_find_no_room() {
    let engine = engine();
    let documents: Array =
        (0..6).map(|id| Value::Document(doc! {"_id": id, "p": "x".repeat(1000)})).collect();
    done(&engine, &doc! {"insert": "c", "documents": documents, "$db": "test"});
    let mut of_database = Watch::open(&engine, 1, doc! {});
    let mut of_collection = Watch::open(&engine, "c", doc! {});
    let clone = doc! {"cloneCollectionAsCapped": "c", "toCollection": "clone", "size": 4096, "$db": "test"};
    done(&engine, &clone);
    assert_eq!(keys(&of_database.events()), pairs(&[("delete", 0), ("delete", 1)]));
    done(&engine, &doc! {"convertToCapped": "c", "size": 4096, "$db": "test"});
    assert_eq!(types(&of_database.events()), ["delete", "delete", "rename"]);
    assert_eq!(types(&of_collection.events()), ["rename", "invalidate"]);
    engine.close().unwrap();
}

#[test]
fn merge_is_told_as_the_writes_that_it_makes() {
    let engine = engine();
    done(&engine, &doc! {"insert": "from", "documents": [{"_id": 1, "q": 1}, {"_id": 2}], "$db": "test"});
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "test"});
    let mut watch = Watch::open(&engine, "c", doc! {});
    let merge = array![{"$merge": {"into": "c"}}];
    done(&engine, &doc! {"aggregate": "from", "pipeline": merge, "cursor": {}, "$db": "test"});
    let events = watch.events();
    assert_eq!(keys(&events), pairs(&[("update", 1), ("insert", 2)]));
    engine.close().unwrap();
}

#[test]
fn elements_that_are_pulled_and_sets_that_are_new_are_told_whole() {
    let engine = engine();
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1, "a": [1, 2, 3]}], "$db": "test"});
    let mut watch = Watch::open(&engine, "c", doc! {});
    for (update, told) in
        [(doc! {"$pull": {"a": 2}}, doc! {"a": [1, 3]}), (doc! {"$addToSet": {"new": 2}}, doc! {"new": [2]})]
    {
        let updates = array![{"q": {"_id": 1}, "u": update}];
        done(&engine, &doc! {"update": "c", "updates": updates, "$db": "test"});
        let events = watch.events();
        let description = events[0].get("updateDescription").and_then(RawValue::as_document).unwrap();
        let updated = description.get("updatedFields").and_then(RawValue::as_document).unwrap();
        assert_eq!(updated.to_document(), told);
    }
    engine.close().unwrap();
}

/// A field whose name has a dot is told like a path; what it is says `disambiguatedPaths`, as on MongoDB 7.0.
#[test]
fn a_name_with_a_dot_is_told_apart_from_a_path() {
    let engine = engine();
    let padding = "x".repeat(100);
    let documents = array![{"_id": 1, "p": padding.as_str(), "s": {"p": padding.as_str()}}];
    done(&engine, &doc! {"insert": "c", "documents": documents, "$db": "test"});
    let mut watch = Watch::open(&engine, "c", doc! {"showExpandedEvents": true});
    let set = |input: &str| doc! {"$setField": {"field": "d.x", "input": input, "value": 7}};
    for (pipeline, name, parts) in [
        (array![{"$replaceWith": set("$$ROOT")}], "d.x", array!["d.x"]),
        (array![{"$set": {"s": set("$s")}}], "s.d.x", array!["s", "d.x"]),
    ] {
        let updates = array![{"q": {"_id": 1}, "u": pipeline}];
        done(&engine, &doc! {"update": "c", "updates": updates, "$db": "test"});
        let events = watch.events();
        let description = events[0].get("updateDescription").and_then(RawValue::as_document).unwrap();
        let part = |field: &str| {
            description.get(field).and_then(RawValue::as_document).map(RawDocument::to_document).unwrap()
        };
        let of_name = |value: Value| -> Document { [(name, value)].into_iter().collect() };
        assert_eq!(part("updatedFields"), of_name(Value::Int32(7)));
        assert_eq!(part("disambiguatedPaths"), of_name(Value::Array(parts)));
    }
    engine.close().unwrap();
}

#[test]
fn fields_of_an_event_come_in_the_order_of_mongod() {
    let engine = engine();
    let images = doc! {"enabled": true};
    done(&engine, &doc! {"create": "c", "changeStreamPreAndPostImages": images, "$db": "test"});
    let options = doc! {
        "fullDocument": "required", "fullDocumentBeforeChange": "required", "showExpandedEvents": true,
    };
    let mut watch = Watch::open(&engine, "c", options);
    done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1}], "$db": "test"});
    for u in [doc! {"$set": {"a": 1}}, doc! {"b": 1}] {
        let updates = array![{"q": {"_id": 1}, "u": u}];
        done(&engine, &doc! {"update": "c", "updates": updates, "$db": "test"});
    }
    done(&engine, &doc! {"delete": "c", "deletes": [{"q": {"_id": 1}, "limit": 1}], "$db": "test"});
    let head = ["_id", "operationType", "clusterTime", "collectionUUID", "wallTime"];
    for (event, rest) in watch.events().iter().zip([
        vec!["fullDocument", "ns", "documentKey"],
        vec!["fullDocument", "ns", "documentKey", "updateDescription", "fullDocumentBeforeChange"],
        vec!["fullDocument", "ns", "documentKey", "fullDocumentBeforeChange"],
        vec!["ns", "documentKey", "fullDocumentBeforeChange"],
    ]) {
        let fields: Vec<&str> = event.iter().map(|(name, _)| name).collect();
        assert_eq!(fields, [&head[..], &rest[..]].concat());
    }
    engine.close().unwrap();
}

#[test]
fn stages_that_may_follow_make_of_an_event_what_they_make_of_a_document() {
    let of_insert = |stages: Array| {
        let engine = engine();
        let opened = watch_through(&engine, doc! {}, stages);
        done(&engine, &doc! {"insert": "c", "documents": [{"_id": 1, "a": 5, "b": {"a": 6}}], "$db": "test"});
        let reply = next_batch(&engine, &opened);
        engine.close().unwrap();
        reply
    };
    let part = |event: &Document, name: &str| {
        event.get(name).and_then(RawValue::as_document).map(RawDocument::to_document)
    };
    let full = || doc! {"_id": 1, "a": 5, "b": {"a": 6}};
    for name in ["$addFields", "$set"] {
        let mut stage = Document::new();
        stage.push(name, doc! {"n": {"$add": ["$documentKey._id", 1]}});
        let event = &batch_of(&of_insert(array![stage]))[0];
        assert!(matches!(event.get("n"), Some(RawValue::Int32(2))), "{event:?}");
        assert_eq!(part(event, "fullDocument"), Some(full()), "{name}");
    }
    let event = &batch_of(&of_insert(array![{"$unset": ["ns", "fullDocument"]}]))[0];
    assert!(event.get("ns").is_none() && event.get("fullDocument").is_none(), "{event:?}");
    for stage in [
        doc! {"$replaceRoot": {"newRoot": {"_id": "$_id", "x": "$fullDocument"}}},
        doc! {"$replaceWith": {"_id": "$_id", "x": "$fullDocument"}},
    ] {
        let event = &batch_of(&of_insert(array![stage]))[0];
        assert_eq!(event.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["_id", "x"]);
        assert_eq!(part(event, "x"), Some(full()));
    }
    let prune = array![{"$redact": {"$cond": [{"$eq": ["$a", 5]}, "$$PRUNE", "$$DESCEND"]}}];
    let event = &batch_of(&of_insert(prune))[0];
    assert!(event.get("fullDocument").is_none() && event.get("ns").is_some(), "{event:?}");

    for stages in [
        array![{"$set": {"_id": 1}}],
        array![{"$project": {"_id": 0}}],
        array![{"$unset": "_id"}],
        array![{"$replaceWith": {"x": 1}}],
    ] {
        let reply = of_insert(stages.clone());
        assert_eq!(code(&reply), 280, "{stages:?}");
        let labels = reply.get("errorLabels").and_then(RawValue::as_array).unwrap();
        let labels: Vec<&str> = labels.iter().filter_map(|label| label.as_str()).collect();
        assert_eq!(labels, ["NonResumableChangeStreamError"], "{stages:?}");
    }
}

/// A measurement of a collection that the pattern `bucket` packs is told as a document, and packing is not told.
#[test]
fn measurements_are_told_one_by_one_and_packing_them_is_not() {
    let engine = engine();
    let bucket = doc! {"timeField": "t", "metaField": "m", "maxCount": 10};
    done(&engine, &doc! {"createPattern": "c", "name": "packed", "bucket": bucket, "$db": "test"});
    let mut watch = Watch::open(&engine, "c", doc! {});
    let measurement = |id: i32| Value::Document(doc! {"_id": id, "m": 1, "t": Value::DateTime(id.into())});
    let documents: Array = (0..30).map(measurement).collect();
    done(&engine, &doc! {"insert": "c", "documents": documents, "$db": "test"});
    let inserts: Vec<(String, i32)> = (0..30).map(|id| ("insert".to_owned(), id)).collect();
    assert_eq!(keys(&watch.events()), inserts);
    let name = Namespace::parse("test", "c").unwrap();
    assert_eq!(engine.seal_all(&engine.operations.start(0), &name).unwrap(), 30);
    assert!(watch.events().is_empty());
    let updates = array![{"q": {"_id": 3}, "u": {"$set": {"v": 1}}}];
    done(&engine, &doc! {"update": "c", "updates": updates, "$db": "test"});
    done(&engine, &doc! {"delete": "c", "deletes": [{"q": {"_id": 4}, "limit": 1}], "$db": "test"});
    assert_eq!(keys(&watch.events()), pairs(&[("update", 3), ("delete", 4)]));
    engine.close().unwrap();
}

#[test]
fn a_document_whose_time_has_passed_is_told_as_a_delete() {
    let engine = engine();
    let indexes = array![{"key": {"t": 1}, "name": "t_1", "expireAfterSeconds": 1}];
    done(&engine, &doc! {"createIndexes": "c", "indexes": indexes, "$db": "test"});
    let mut watch = Watch::open(&engine, "c", doc! {});
    let documents = array![{"_id": 1, "t": Value::DateTime(0)}];
    done(&engine, &doc! {"insert": "c", "documents": documents, "$db": "test"});
    assert_eq!(engine.expire(&engine.operations.start(0)).unwrap(), 1);
    let events = watch.events();
    assert_eq!(keys(&events), pairs(&[("insert", 1), ("delete", 1)]));
    assert!(events[1].get("kilim").is_none(), "no pattern has done this: {events:?}");
    engine.close().unwrap();
}
