//! Versions under attack: documents that cannot be converted, steps the wrong way round, restored definitions, events.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, doc};
use kilim_engine::listen::{self, Start};
use kilim_engine::patterns::{Pattern, PatternState};
use kilim_engine::stream::{Scope, StreamOptions};
use kilim_engine::{LogOptions, StorageOptions};
use kilim_error::{ErrorCode, Result};
use kilim_storage::MemoryDisk;
use kilim_storage::simulated::SimulatedDisk;

use crate::pattern::{declare, one, wait_until_active};
use crate::pattern_crash::wait_for_jobs;
use crate::support::{Db, everywhere, ns};

/// A text becomes a document with a number, which fails for some texts. The newer version also knows a unit.
fn numbers() -> Document {
    doc! {"name": "numbers", "schemaVersion": {
        "field": "v", "from": 1, "to": 2,
        "up": [{"$set": {"x": {"n": {"$toInt": "$x"}}}}], "down": [{"$set": {"x": {"$toString": "$x.n"}}}],
        "onError": "keepOld", "background": {"batch": 2, "throttleMs": 0},
    }}
}

fn streets_spec() -> Document {
    doc! {
        "field": "v", "from": 1, "to": 2,
        "up": [{"$set": {"address": {"street": "$addr"}}}, {"$unset": "addr"}],
        "down": [{"$set": {"addr": "$address.street"}}, {"$unset": "address"}],
        "background": {"batch": 2, "throttleMs": 0},
    }
}

/// A chain behind [`streets_spec`].
fn towns_spec() -> Document {
    doc! {
        "field": "v", "from": 2, "to": 3,
        "up": [{"$set": {"town": "here"}}], "down": [{"$unset": "town"}],
        "background": {"batch": 2, "throttleMs": 0},
    }
}

fn kept(db: &Db) {
    db.insert(
        "users",
        &[
            doc! {"_id": 1, "x": "12"},
            doc! {"_id": 2, "x": "abc"},
            doc! {"_id": 3, "v": 1, "x": "def"},
            doc! {"_id": 4, "x": "7"},
        ],
    );
    declare(db, "users", numbers()).unwrap();
    wait_for_jobs(db, &MemoryDisk::default());
}

fn wrong(db: &Db) -> u64 {
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns("users"), "numbers").unwrap();
    db.engine.verify_pattern(&operation, &pattern, None, 1).unwrap().wrong
}

fn restore(db: &Db, target: &str, name: &str, kind: &str, spec: Document) {
    let definition = doc! {"createPattern": target, "name": name, (kind): spec};
    let id = format!("{target}.{name}");
    db.insert(
        "kilim.patterns",
        &[doc! {
            "_id": id, "target": target, "name": name, "kind": kind, "definition": definition, "state": "active",
        }],
    );
}

fn repair(db: &Db, target: &str, name: &str) -> Result<Arc<Pattern>> {
    let operation = Arc::clone(&db.engine.operations.start(1));
    db.engine.repair_pattern(&operation, &db.engine.pattern(&ns(target), name)?, None, 1)?;
    db.engine.pattern(&ns(target), name)
}

#[track_caller]
fn refused<T>(result: Result<T>) -> ErrorCode {
    result.err().expect("it is refused").code()
}

#[test]
fn an_update_leaves_a_document_that_cannot_be_converted_in_its_version() {
    everywhere(|db| {
        kept(&db);
        assert_eq!(wrong(&db), 2);
        for id in [1, 2, 3] {
            db.update("users", doc! {"_id": id}, doc! {"$inc": {"hits": 1}}).unwrap();
        }
        for name in ["users", "users@1"] {
            assert_eq!(one(&db, name, doc! {"_id": 2}), doc! {"_id": 2, "x": "abc", "hits": 1});
            assert_eq!(one(&db, name, doc! {"_id": 3}), doc! {"_id": 3, "v": 1, "x": "def", "hits": 1});
        }
        assert_eq!(one(&db, "users", doc! {"_id": 1}), doc! {"_id": 1, "v": 2, "x": {"n": 12}, "hits": 1});
        assert_eq!(wrong(&db), 2);
        let operation = Arc::clone(&db.engine.operations.start(1));
        let pattern = db.engine.pattern(&ns("users"), "numbers").unwrap();
        assert_eq!(refused(db.engine.complete_version(&operation, &pattern)), ErrorCode::VersionUpFailed);
        // A value that can be converted is; a whole document is of the current version.
        db.update("users", doc! {"_id": 2}, doc! {"$set": {"x": "70"}}).unwrap();
        assert_eq!(one(&db, "users", doc! {"_id": 2}), doc! {"_id": 2, "v": 2, "x": {"n": 70}, "hits": 1});
        db.update("users", doc! {"_id": 3}, doc! {"x": {"n": 71}}).unwrap();
        assert_eq!(one(&db, "users@1", doc! {"_id": 3}), doc! {"_id": 3, "v": 1, "x": "71"});
        assert_eq!(wrong(&db), 0);
        db.engine.complete_version(&operation, &pattern).unwrap();
        db.check();
    });
}

#[test]
fn a_step_is_rolled_back_past_documents_that_were_kept_and_updated() {
    everywhere(|db| {
        kept(&db);
        db.update("users", doc! {"_id": 2}, doc! {"$inc": {"hits": 1}}).unwrap();
        let operation = Arc::clone(&db.engine.operations.start(1));
        let pattern = db.engine.pattern(&ns("users"), "numbers").unwrap();
        db.engine.roll_version_back(&operation, &pattern, false).unwrap();
        assert_eq!(one(&db, "users", doc! {"_id": 2}), doc! {"_id": 2, "v": 1, "x": "abc", "hits": 1});
        db.check();
    });
}

#[test]
fn old_clients_update_what_cannot_be_converted() {
    everywhere(|db| {
        kept(&db);
        db.update("users@1", doc! {"_id": 2}, doc! {"$inc": {"hits": 1}}).unwrap();
        db.update("users@1", doc! {"_id": 2}, doc! {"$set": {"x": "xyz"}}).unwrap();
        for name in ["users", "users@1"] {
            assert_eq!(one(&db, name, doc! {"_id": 2}), doc! {"_id": 2, "x": "xyz", "hits": 1});
        }
        // One that becomes so is kept, as one that is inserted or replaced.
        db.update("users@1", doc! {"_id": 1}, doc! {"$set": {"x": "bad"}}).unwrap();
        db.update("users@1", doc! {"_id": 4}, doc! {"x": "worse"}).unwrap();
        db.insert("users@1", &[doc! {"_id": 5, "x": "worst"}]);
        for name in ["users", "users@1"] {
            for (id, x) in [(1, "bad"), (4, "worse"), (5, "worst")] {
                assert_eq!(one(&db, name, doc! {"_id": id}), doc! {"_id": id, "v": 1, "x": x});
            }
        }
        assert_eq!(wrong(&db), 5);
        // And the other way.
        db.update("users@1", doc! {"_id": 2}, doc! {"$set": {"x": "3"}}).unwrap();
        assert_eq!(one(&db, "users", doc! {"_id": 2}), doc! {"_id": 2, "v": 2, "x": {"n": 3}, "hits": 1});
        db.check();
    });
}

#[test]
fn an_old_client_does_not_take_away_what_its_version_cannot_say() {
    let db = Db::memory();
    kept(&db);
    db.update("users", doc! {"_id": 1}, doc! {"$set": {"x.unit": "kg"}}).unwrap();
    for update in [doc! {"$set": {"x": "bad"}}, doc! {"x": "bad"}] {
        assert_eq!(refused(db.update("users@1", doc! {"_id": 1}, update)), ErrorCode::VersionLossy);
    }
    db.update("users@1", doc! {"_id": 1}, doc! {"$set": {"x": "13"}}).unwrap();
    assert_eq!(one(&db, "users", doc! {"_id": 1}), doc! {"_id": 1, "v": 2, "x": {"n": 13, "unit": "kg"}});
}

#[test]
fn a_step_to_a_lower_version_is_refused() {
    let db = Db::memory();
    db.insert("users", &[doc! {"_id": 1, "addr": "a"}, doc! {"_id": 2, "v": 1, "addr": "b"}]);
    let step = |from: i32, to: i32| {
        let spec = streets_spec();
        let others = spec.iter().filter(|(name, _)| !["from", "to"].contains(name));
        let mut spec: Document = others.map(|(name, value)| (name, value.to_value())).collect();
        spec.push("from", from);
        spec.push("to", to);
        doc! {"name": "streets", "schemaVersion": spec}
    };
    for (from, to) in [(1, 0), (2, 1), (1, 1)] {
        assert_eq!(refused(declare(&db, "users", step(from, to))), ErrorCode::BadValue);
    }
    declare(&db, "users", step(0, 1)).unwrap();
}

#[test]
fn restored_versions_are_put_in_force_before_what_reads_them() {
    everywhere(|db| {
        db.insert("sites", &[doc! {"_id": 1, "v": 3, "address": {"street": "a"}, "town": "here"}]);
        db.insert("sensors", &[doc! {"_id": 7, "site_id": 1, "site": {"street": "a"}}]);
        restore(&db, "sites", "towns", "schemaVersion", towns_spec());
        restore(&db, "sites", "streets", "schemaVersion", streets_spec());
        let reference = doc! {
            "from": "sites", "localField": "site_id", "as": "site", "fields": {"street": "$address.street"},
        };
        restore(&db, "sensors", "ref", "extendedReference", reference);
        // Whoever reads what a version changes waits for it, and a version for the one before.
        assert_eq!(refused(repair(&db, "sensors", "ref")), ErrorCode::PatternNotReady);
        assert_eq!(refused(repair(&db, "sites", "towns")), ErrorCode::PatternNotReady);
        let operation = Arc::clone(&db.engine.operations.start(1));
        let reference = db.engine.pattern(&ns("sensors"), "ref").unwrap();
        let verified = db.engine.verify_pattern(&operation, &reference, None, 1);
        assert_eq!(refused(verified), ErrorCode::PatternNotReady);
        for (target, name) in [("sites", "streets"), ("sites", "towns"), ("sensors", "ref")] {
            assert_eq!(repair(&db, target, name).unwrap().state, PatternState::Active, "{name}");
        }
        assert_eq!(one(&db, "sites@1", doc! {}), doc! {"_id": 1, "v": 1, "addr": "a"});
        db.update("sites@1", doc! {}, doc! {"$set": {"addr": "b"}}).unwrap();
        assert_eq!(one(&db, "sensors", doc! {}), doc! {"_id": 7, "site_id": 1, "site": {"street": "b"}});
        db.check();
    });
}

#[test]
fn nobody_takes_the_name_of_a_version_that_is_not_in_force_yet() {
    everywhere(|db| {
        db.insert("sites", &[doc! {"_id": 1, "v": 3, "address": {"street": "a"}, "town": "here"}]);
        db.insert("others", &[doc! {"_id": 1}]);
        restore(&db, "sites", "streets", "schemaVersion", streets_spec());
        restore(&db, "sites", "towns", "schemaVersion", towns_spec());
        for name in ["sites@1", "sites@2"] {
            assert_eq!(refused(db.try_insert(name, doc! {"_id": 2})), ErrorCode::VersionInUse);
            assert_eq!(refused(db.engine.create_collection(&ns(name), doc! {})), ErrorCode::VersionInUse);
            assert_eq!(refused(db.rename("others", name, false)), ErrorCode::VersionInUse);
        }
        db.insert("sites@3", &[doc! {"_id": 1}]);
        repair(&db, "sites", "streets").unwrap();
        assert_eq!(refused(db.try_insert("sites@2", doc! {"_id": 2})), ErrorCode::VersionInUse);
        repair(&db, "sites", "towns").unwrap();
        db.insert("sites@1", &[doc! {"_id": 2, "addr": "b"}]);
        assert_eq!(
            one(&db, "sites", doc! {"_id": 2}),
            doc! {"_id": 2, "v": 3, "address": {"street": "b"}, "town": "here"}
        );
        db.check();
    });
}

#[test]
fn a_name_is_free_again_when_a_restored_version_is_given_up() {
    let db = Db::memory();
    db.insert("sites", &[doc! {"_id": 1, "addr": "a"}]);
    restore(&db, "sites", "streets", "schemaVersion", streets_spec());
    assert_eq!(refused(db.try_insert("sites@1", doc! {"_id": 2})), ErrorCode::VersionInUse);
    let operation = Arc::clone(&db.engine.operations.start(1));
    db.engine.drop_pattern(&operation, &db.engine.pattern(&ns("sites"), "streets").unwrap()).unwrap();
    db.insert("sites@1", &[doc! {"_id": 2}]);
}

#[test]
fn operators_under_an_older_name_are_told_of_as_an_update() {
    let storage = StorageOptions { log: Some(LogOptions::default()), ..StorageOptions::default() };
    let db = Db::over(SimulatedDisk::default().open(storage).unwrap());
    db.insert("sites", &[doc! {"_id": 1, "name": "n", "addr": "a"}]);
    declare(&db, "sites", doc! {"name": "streets", "schemaVersion": streets_spec()}).unwrap();
    wait_until_active(&db, "sites", "streets");
    let options = StreamOptions::default();
    let mut stream = listen::open(&db.engine, Scope::Deployment, Start::Now, options, Vec::new()).unwrap();
    // All there is to say of so small a document is longer than the document.
    db.update("sites@1", doc! {"_id": 1}, doc! {"$set": {"name": "new", "addr": "street2"}}).unwrap();
    db.update("sites@1", doc! {"_id": 1}, doc! {"name": "whole", "addr": "c"}).unwrap();
    db.engine.store.sync().unwrap();
    let operation = Arc::clone(&db.engine.operations.start(1));
    listen::go_on(&db.engine, &operation, &mut stream, 100, false).unwrap();
    let events: Vec<Document> = std::iter::from_fn(|| Some(stream.pop()?.document().to_document())).collect();
    let kinds: Vec<&str> = events.iter().filter_map(|event| event.get("operationType")?.as_str()).collect();
    assert_eq!(kinds, ["update", "replace"]);
    let described = events[0].get("updateDescription").and_then(RawValue::as_document).unwrap();
    assert_eq!(
        described.get("updatedFields").and_then(RawValue::as_document).unwrap().to_document(),
        doc! {"name": "new", "address": {"street": "street2"}}
    );
}

#[test]
fn a_pattern_that_reads_an_older_version_is_told_the_name_of_the_newest() {
    let db = Db::memory();
    db.insert("sites", &[doc! {"_id": 1, "addr": "a"}]);
    declare(&db, "sites", doc! {"name": "streets", "schemaVersion": streets_spec()}).unwrap();
    let reference = doc! {"name": "ref", "extendedReference": {
        "from": "sites@1", "localField": "site_id", "as": "site", "fields": {"addr": 1},
    }};
    let error = declare(&db, "sensors", reference).err().unwrap();
    assert_eq!(error.code(), ErrorCode::PatternSourceMissing);
    assert!(error.to_string().contains("from: 'sites'"), "{error}");
}
