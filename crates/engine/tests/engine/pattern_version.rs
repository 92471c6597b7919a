//! Versions of documents: seen by all in the newest one, written in both, converted in the background.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use kilim_bson::{Document, RawValue, doc};
use kilim_engine::StorageOptions;
use kilim_engine::jobs::salvage_directory;
use kilim_engine::patterns::{Pattern, PatternState};
use kilim_engine::write::{self, UpdateRequest};
use kilim_error::{ErrorCode, Result};
use kilim_query::update::Update;
use kilim_storage::{MemoryDisk, Store};

use crate::pattern::{declare, one, wait_until_active};
use crate::pattern_crash::{at_every_commit, wait_for_jobs};
use crate::support::{Db, everywhere, filter, find_and_modify, ids, ns, number, numbered, spec, unique};

/// A text becomes a document; the country is known in the newer version only.
pub fn phones() -> Document {
    doc! {"name": "phones", "schemaVersion": phones_spec()}
}

fn phones_spec() -> Document {
    let number = doc! {"countryCode": "+1", "number": "$phone"};
    let if_there =
        |value: Document| doc! {"$cond": [{"$eq": [{"$type": "$phone"}, "missing"]}, "$$REMOVE", value]};
    doc! {
        "field": "schemaVersion", "from": 1, "to": 2,
        "up": [{"$set": {"phone": if_there(number)}}],
        "down": [{"$set": {"phone": "$phone.number"}}],
        "background": {"batch": 2, "throttleMs": 0},
    }
}

fn with(extra: Document) -> Document {
    let mut declared = phones_spec();
    for (name, value) in extra.iter() {
        let others: Document = declared
            .iter()
            .filter(|(own, _)| *own != name)
            .map(|(own, value)| (own, value.to_value()))
            .collect();
        declared = others;
        declared.push(name, value);
    }
    doc! {"name": "phones", "schemaVersion": declared}
}

/// Not converted by a job, so that what is stored stays old.
fn lazy() -> Document {
    with(doc! {"persist": ["onWrite"]})
}

/// A field gets another name.
fn names() -> Document {
    doc! {"name": "names", "schemaVersion": {
        "field": "schemaVersion", "from": 2, "to": 3,
        "up": [{"$set": {"fullName": "$name"}}, {"$unset": "name"}],
        "down": [{"$set": {"name": "$fullName"}}, {"$unset": "fullName"}],
        "background": {"batch": 3, "throttleMs": 0},
    }}
}

fn phone_of(user: &Document) -> Option<Document> {
    Some(user.get("phone")?.as_document()?.to_document())
}

fn users(db: &Db) {
    db.insert(
        "users",
        &[
            doc! {"_id": 1, "name": "Ada", "phone": "555-1"},
            doc! {"_id": 2, "name": "Bob", "phone": "555-2", "schemaVersion": 1},
            doc! {"_id": 3, "name": "Cy"},
        ],
    );
}

fn pattern(db: &Db, name: &str) -> Arc<Pattern> {
    db.engine.pattern(&ns("users"), name).unwrap()
}

fn complete(db: &Db, name: &str) -> Result<u64> {
    let operation = Arc::clone(&db.engine.operations.start(1));
    db.engine.complete_version(&operation, &pattern(db, name))
}

fn roll_back(db: &Db, name: &str, lossy: bool) -> Result<()> {
    let operation = Arc::clone(&db.engine.operations.start(1));
    let back = db.engine.roll_version_back(&operation, &pattern(db, name), lossy)?;
    if back.state == PatternState::Building {
        db.engine.begin_filling(&back);
    }
    Ok(())
}

#[track_caller]
fn refused<T>(result: Result<T>) -> ErrorCode {
    result.err().expect("it is refused").code()
}

fn ada(version: i32) -> Document {
    match version {
        1 => doc! {"_id": 1, "schemaVersion": 1, "name": "Ada", "phone": "555-1"},
        _ => {
            doc! {"_id": 1, "schemaVersion": 2, "name": "Ada", "phone": {"countryCode": "+1", "number": "555-1"}}
        }
    }
}

#[test]
fn all_documents_are_seen_in_the_new_version_at_once_and_in_the_old_one_under_its_name() {
    everywhere(|mut db| {
        users(&db);
        declare(&db, "users", lazy()).unwrap();
        let look = |db: &Db| {
            assert_eq!(one(db, "users", doc! {"_id": 1}), ada(2));
            assert_eq!(one(db, "users@1", doc! {"_id": 1}), ada(1));
            assert_eq!(ids(&db.find("users", doc! {"phone.number": {"$exists": true}})), [1, 2]);
            assert_eq!(ids(&db.find("users", doc! {"phone.countryCode": "+1"})), [1, 2]);
            assert_eq!(ids(&db.find("users@1", doc! {"phone": "555-2"})), [2]);
            assert_eq!(db.count("users", doc! {"schemaVersion": 2}), 3);
            assert_eq!(db.count("users@1", doc! {"schemaVersion": 1}), 3);
            assert_eq!(db.count("users@1", doc! {}), 3);
            db.check();
        };
        look(&db);
        if db.is_durable() {
            db.reopen();
            look(&db);
        }
    });
}

#[test]
fn both_versions_are_written_and_each_sees_what_the_other_wrote() {
    everywhere(|db| {
        users(&db);
        declare(&db, "users", lazy()).unwrap();
        db.try_insert("users@1", doc! {"_id": 4, "name": "Dee", "phone": "555-4"}).unwrap();
        db.try_insert(
            "users",
            doc! {"_id": 5, "name": "Eve", "phone": {"countryCode": "+44", "number": "7"}},
        )
        .unwrap();
        // A whole document of an older version.
        db.try_insert("users", doc! {"_id": 6, "schemaVersion": 1, "name": "Flo", "phone": "555-6"}).unwrap();
        assert_eq!(
            one(&db, "users", doc! {"_id": 4}),
            doc! {"_id": 4, "schemaVersion": 2, "name": "Dee", "phone": {"countryCode": "+1", "number": "555-4"}}
        );
        assert_eq!(
            one(&db, "users@1", doc! {"_id": 5}),
            doc! {"_id": 5, "schemaVersion": 1, "name": "Eve", "phone": "7"}
        );
        assert_eq!(
            phone_of(&one(&db, "users", doc! {"_id": 6})),
            Some(doc! {"countryCode": "+1", "number": "555-6"})
        );
        // What the old version has no words for stays, whatever old clients change.
        db.update("users@1", doc! {"_id": 5}, doc! {"$set": {"name": "Eva"}}).unwrap();
        assert_eq!(
            one(&db, "users", doc! {"_id": 5}),
            doc! {"_id": 5, "schemaVersion": 2, "name": "Eva", "phone": {"countryCode": "+44", "number": "7"}}
        );
        db.update("users@1", doc! {"phone": "7"}, doc! {"$set": {"phone": "8"}}).unwrap();
        assert_eq!(
            one(&db, "users", doc! {"_id": 5}),
            doc! {"_id": 5, "schemaVersion": 2, "name": "Eva", "phone": {"countryCode": "+44", "number": "8"}}
        );
        // An old client that replaces the whole document.
        db.update("users@1", doc! {"_id": 5}, doc! {"name": "Evi", "phone": "9", "more": 1}).unwrap();
        let evi = one(&db, "users", doc! {"_id": 5});
        assert_eq!(phone_of(&evi), Some(doc! {"countryCode": "+44", "number": "9"}));
        assert_eq!(number(&evi, "more"), 1);
        let seen = db.run(|unit| {
            find_and_modify(unit, "users@1", doc! {"_id": 1}, doc! {"$set": {"phone": "1"}}, None)
        });
        assert_eq!(
            seen.unwrap().value,
            Some(doc! {"_id": 1, "schemaVersion": 1, "name": "Ada", "phone": "1"})
        );
        db.upsert("users@1", doc! {"_id": 9}, doc! {"$set": {"phone": "99"}}).unwrap();
        assert_eq!(
            one(&db, "users", doc! {"_id": 9}),
            doc! {"_id": 9, "schemaVersion": 2, "phone": {"countryCode": "+1", "number": "99"}}
        );
        assert_eq!(db.delete("users@1", doc! {"phone": "99"}).unwrap(), 1);
        assert_eq!(db.count("users", doc! {"_id": 9}), 0);
        // Naming the version is refused, by either name.
        for name in ["users", "users@1"] {
            let named = db.update(name, doc! {"_id": 1}, doc! {"$set": {"schemaVersion": 1}});
            assert_eq!(refused(named), ErrorCode::PatternFieldReadOnly);
        }
        db.check();
    });
}

#[test]
fn indexes_are_over_the_new_version_and_unique_ones_hold_between_versions() {
    everywhere(|mut db| {
        users(&db);
        let mut unique_phone = unique(doc! {"phone.number": 1});
        unique_phone.sparse = true;
        db.build("users", vec![unique_phone, spec(doc! {"phone": 1}), spec(doc! {"name": 1})]).unwrap();
        declare(&db, "users", lazy()).unwrap();
        let look = |db: &Db| {
            assert_eq!(ids(&db.find_by("users", doc! {"phone.number": "555-2"}, "phone.number_1")), [2]);
            assert_eq!(ids(&db.find_by("users@1", doc! {"name": "Bob"}, "name_1")), [2]);
            assert_eq!(ids(&db.find("users@1", doc! {"phone": "555-2"})), [2]);
            db.check();
        };
        look(&db);
        let twice = db.try_insert("users@1", doc! {"_id": 4, "phone": "555-1"});
        assert_eq!(refused(twice), ErrorCode::DuplicateKey);
        let twice = db.try_insert("users", doc! {"_id": 4, "phone": {"number": "555-2"}});
        assert_eq!(refused(twice), ErrorCode::DuplicateKey);
        if db.is_durable() {
            db.reopen();
            look(&db);
        }
        db.drop_index("users", "phone.number_1").unwrap();
        db.build("users", vec![spec(doc! {"phone.number": -1})]).unwrap();
        assert_eq!(ids(&db.find_by("users", doc! {"phone.number": "555-2"}, "phone.number_-1")), [2]);
        db.check();
    });
}

#[test]
fn a_unique_index_that_the_new_version_breaks_refuses_the_declaration() {
    everywhere(|db| {
        db.insert("users", &[doc! {"_id": 1, "phone": "A"}, doc! {"_id": 2, "phone": "a"}]);
        db.build("users", vec![unique(doc! {"phone": 1})]).unwrap();
        let lower = doc! {"name": "lower", "schemaVersion": {
            "field": "v", "from": 1, "to": 2, "up": [{"$set": {"phone": {"$toLower": "$phone"}}}],
        }};
        assert_eq!(refused(declare(&db, "users", lower)), ErrorCode::DuplicateKey);
        assert_eq!(one(&db, "users", doc! {"_id": 1}), doc! {"_id": 1, "phone": "A"});
        assert!(db.engine.patterns().of("test").is_empty());
        db.check();
    });
}

#[test]
fn the_job_converts_what_is_stored_and_nobody_sees_a_difference() {
    everywhere(|db| {
        users(&db);
        db.insert("users", &numbered(10..60, |id| doc! {"phone": format!("{id}")}));
        db.build("users", vec![spec(doc! {"phone.number": 1})]).unwrap();
        declare(&db, "users", phones()).unwrap();
        let before = db.find("users", doc! {});
        wait_until_active(&db, "users", "phones");
        assert_eq!(db.find("users", doc! {}), before);
        db.check();
        assert_eq!(complete(&db, "phones").unwrap(), 0);
        // Plain again: the documents are as they were seen, and the old name is free.
        assert_eq!(db.find("users", doc! {}), before);
        assert_eq!(db.find("users@1", doc! {}), []);
        db.try_insert("users", doc! {"_id": 100, "phone": "plain"}).unwrap();
        assert_eq!(one(&db, "users", doc! {"_id": 100}), doc! {"_id": 100, "phone": "plain"});
        db.check();
    });
}

#[test]
fn completing_converts_what_is_left() {
    everywhere(|mut db| {
        users(&db);
        declare(&db, "users", lazy()).unwrap();
        wait_until_active(&db, "users", "phones");
        assert_eq!(complete(&db, "phones").unwrap(), 3);
        assert_eq!(one(&db, "users", doc! {"_id": 1}), ada(2));
        if db.is_durable() {
            db.reopen();
        }
        assert_eq!(one(&db, "users", doc! {"_id": 1}), ada(2));
        db.check();
    });
}

#[test]
fn a_reader_from_before_the_completion_sees_what_it_saw() {
    let db = Db::memory();
    users(&db);
    declare(&db, "users", lazy()).unwrap();
    db.insert("others", &[doc! {"_id": 1}]);
    // Its state is from before, and it reads the collection only afterwards.
    let mut old = db.transaction(1, 1);
    old.find("others", doc! {}).unwrap();
    complete(&db, "phones").unwrap();
    db.try_insert("users", doc! {"_id": 7, "schemaVersion": 1, "phone": "plain"}).unwrap();
    assert_eq!(old.find("users", doc! {"_id": 1}).unwrap(), [ada(2)]);
    assert_eq!(one(&db, "users", doc! {"_id": 7}), doc! {"_id": 7, "schemaVersion": 1, "phone": "plain"});
    old.abort().unwrap();
    // Declared anew, the plain document is one of version 1.
    wait_until_gone(&db);
    declare(&db, "users", phones()).unwrap();
    let seen = one(&db, "users", doc! {"_id": 7});
    assert_eq!(phone_of(&seen), Some(doc! {"countryCode": "+1", "number": "plain"}));
    db.check();
}

fn wait_until_gone(db: &Db) {
    assert!(db.engine.patterns().of("test").is_empty());
}

#[test]
fn a_step_is_rolled_back_with_what_was_written_meanwhile() {
    everywhere(|mut db| {
        users(&db);
        db.build("users", vec![spec(doc! {"phone": 1}), spec(doc! {"phone.number": 1})]).unwrap();
        declare(&db, "users", phones()).unwrap();
        db.try_insert("users", doc! {"_id": 4, "phone": {"countryCode": "+44", "number": "4"}}).unwrap();
        wait_until_active(&db, "users", "phones");
        // The country would be lost.
        assert_eq!(refused(roll_back(&db, "phones", false)), ErrorCode::VersionLossy);
        db.update("users", doc! {"_id": 4}, doc! {"$set": {"phone.countryCode": "+1"}}).unwrap();
        roll_back(&db, "phones", false).unwrap();
        let look = |db: &Db| {
            assert_eq!(one(db, "users", doc! {"_id": 1}), ada(1));
            assert_eq!(one(db, "users@2", doc! {"_id": 1}), ada(2));
            assert_eq!(ids(&db.find_by("users", doc! {"phone": "4"}, "phone_1")), [4]);
            db.check();
        };
        look(&db);
        assert_eq!(db.find("users@1", doc! {}), []);
        wait_until_active(&db, "users", "phones");
        look(&db);
        if db.is_durable() {
            db.reopen();
            look(&db);
        }
        complete(&db, "phones").unwrap();
        assert_eq!(one(&db, "users", doc! {"_id": 1}), ada(1));
        db.check();
    });
}

#[test]
fn what_cannot_be_said_in_the_old_version_is_given_up_only_if_told() {
    let db = Db::memory();
    users(&db);
    declare(&db, "users", phones()).unwrap();
    db.try_insert("users", doc! {"_id": 4, "phone": {"countryCode": "+44", "number": "4"}}).unwrap();
    assert_eq!(refused(roll_back(&db, "phones", false)), ErrorCode::VersionLossy);
    roll_back(&db, "phones", true).unwrap();
    assert_eq!(one(&db, "users", doc! {"_id": 4}), doc! {"_id": 4, "schemaVersion": 1, "phone": "4"});
    wait_until_active(&db, "users", "phones");
    db.check();
}

#[test]
fn steps_make_a_chain() {
    everywhere(|mut db| {
        users(&db);
        db.build("users", vec![spec(doc! {"fullName": 1}), spec(doc! {"phone.number": 1})]).unwrap();
        assert_eq!(
            refused(declare(&db, "users", lazy()).and_then(|_| {
                declare(
                    &db,
                    "users",
                    doc! {"name": "gap", "schemaVersion": {
                        "field": "schemaVersion", "from": 4, "to": 5, "up": [{"$set": {"a": 1}}],
                    }},
                )
            })),
            ErrorCode::VersionChainGap
        );
        declare(&db, "users", names()).unwrap();
        let look = |db: &Db| {
            let newest = one(db, "users", doc! {"fullName": "Ada"});
            assert_eq!(number(&newest, "schemaVersion"), 3);
            assert_eq!(ids(&db.find_by("users", doc! {"fullName": "Bob"}, "fullName_1")), [2]);
            assert_eq!(ids(&db.find("users@2", doc! {"name": "Bob", "phone.number": "555-2"})), [2]);
            assert_eq!(ids(&db.find("users@1", doc! {"name": "Bob", "phone": "555-2"})), [2]);
            db.check();
        };
        look(&db);
        wait_until_active(&db, "users", "names");
        look(&db);
        if db.is_durable() {
            db.reopen();
            look(&db);
        }
        db.try_insert("users@1", doc! {"_id": 4, "name": "Dee", "phone": "4"}).unwrap();
        db.update("users@2", doc! {"_id": 4}, doc! {"$set": {"name": "Dea"}}).unwrap();
        assert_eq!(
            one(&db, "users", doc! {"_id": 4}),
            doc! {"_id": 4, "schemaVersion": 3, "phone": {"countryCode": "+1", "number": "4"}, "fullName": "Dea"}
        );
        // The later step is built on the earlier one.
        assert_eq!(refused(roll_back(&db, "phones", false)), ErrorCode::VersionInUse);
        assert_eq!(refused(complete(&db, "names")), ErrorCode::VersionInUse);
        complete(&db, "phones").unwrap();
        assert_eq!(db.find("users@1", doc! {}), []);
        assert_eq!(ids(&db.find("users@2", doc! {"name": "Bob", "phone.number": "555-2"})), [2]);
        roll_back(&db, "names", false).unwrap();
        assert_eq!(ids(&db.find("users", doc! {"name": "Bob", "phone.number": "555-2"})), [2]);
        wait_until_active(&db, "users", "names");
        complete(&db, "names").unwrap();
        assert_eq!(ids(&db.find("users", doc! {"name": "Bob", "schemaVersion": 2})), [2]);
        db.check();
    });
}

/// Fails for what is no number.
fn numbers(extra: Document) -> Document {
    let mut spec = doc! {
        "field": "v", "from": 1, "to": 2,
        "up": [{"$set": {"age": {"$toInt": "$age"}}}], "down": [{"$set": {"age": {"$toString": "$age"}}}],
        "background": {"batch": 2, "throttleMs": 0},
    };
    extra.iter().for_each(|(name, value)| spec.push(name, value));
    doc! {"name": "numbers", "schemaVersion": spec}
}

#[test]
fn a_document_that_cannot_be_converted_blocks_the_declaration_or_is_kept() {
    everywhere(|db| {
        db.insert("users", &numbered(0..20, |id| doc! {"age": format!("{id}")}));
        db.insert("users", &[doc! {"_id": 50, "age": "old"}]);
        let blocked = declare(&db, "users", numbers(doc! {})).err().unwrap();
        assert_eq!(blocked.code(), ErrorCode::VersionUpFailed);
        assert!(blocked.to_string().contains("_id 50"), "{blocked}");
        assert!(db.engine.patterns().of("test").is_empty());
        declare(&db, "users", numbers(doc! {"onError": "keepOld"})).unwrap();
        wait_for_jobs(&db, &MemoryDisk::default());
        assert_eq!(one(&db, "users", doc! {"_id": 3}), doc! {"_id": 3, "v": 2, "age": 3});
        assert_eq!(one(&db, "users", doc! {"_id": 50}), doc! {"_id": 50, "age": "old"});
        assert_eq!(one(&db, "users@1", doc! {"_id": 50}), doc! {"_id": 50, "age": "old"});
        let kept = pattern(&db, "numbers");
        assert_eq!(refused(complete(&db, "numbers")), ErrorCode::VersionUpFailed);
        db.update("users", doc! {"_id": 50}, doc! {"$set": {"age": "70"}}).unwrap();
        assert_eq!(one(&db, "users", doc! {"_id": 50}), doc! {"_id": 50, "v": 2, "age": 70});
        drop(kept);
        complete(&db, "numbers").unwrap();
        db.check();
    });
}

#[test]
fn a_conversion_that_loses_something_is_refused() {
    let db = Db::memory();
    db.insert("users", &[doc! {"_id": 1, "a": 1, "b": 2}]);
    let lossy = |down: Document| {
        doc! {"name": "sum", "schemaVersion": {
            "field": "v", "from": 1, "to": 2,
            "up": [{"$set": {"c": {"$add": ["$a", "$b"]}}}, {"$unset": ["a", "b"]}], "down": [down],
        }}
    };
    let refusal = refused(declare(&db, "users", lossy(doc! {"$set": {"a": "$c"}})));
    assert_eq!(refusal, ErrorCode::VersionLossy);
    // Unchecked, old clients are refused what they would lose.
    let mut unchecked = doc! {};
    for (name, value) in
        lossy(doc! {"$set": {"a": "$c", "b": 0}}).get("schemaVersion").unwrap().as_document().unwrap()
    {
        unchecked.push(name, value);
    }
    unchecked.push("check", "none");
    declare(&db, "users", doc! {"name": "sum", "schemaVersion": unchecked}).unwrap();
    let lost = db.try_insert("users@1", doc! {"_id": 2, "a": 1, "b": 1});
    assert_eq!(refused(lost), ErrorCode::VersionLossy);
    assert_eq!(db.count("users", doc! {}), 1);
}

#[test]
fn the_validator_is_asked_about_every_document_of_the_new_version() {
    let db = Db::memory();
    users(&db);
    let asked = with(doc! {"validator": {"$jsonSchema": {"required": ["phone"]}}});
    assert_eq!(refused(declare(&db, "users", asked.clone())), ErrorCode::VersionUpFailed);
    db.delete("users", doc! {"_id": 3}).unwrap();
    declare(&db, "users", asked).unwrap();
    assert_eq!(refused(db.try_insert("users", doc! {"_id": 4})), ErrorCode::DocumentValidationFailure);
    assert_eq!(refused(db.try_insert("users@1", doc! {"_id": 4})), ErrorCode::VersionUpFailed);
    db.try_insert("users@1", doc! {"_id": 4, "phone": "4"}).unwrap();
    let unset = db.update("users", doc! {"_id": 4}, doc! {"$unset": {"phone": 1}});
    assert_eq!(refused(unset), ErrorCode::DocumentValidationFailure);
}

#[test]
fn what_does_not_go_with_versions_is_refused() {
    let db = Db::memory();
    users(&db);
    let bad = |extra: Document| refused(declare(&db, "users", with(extra)));
    assert_eq!(bad(doc! {"to": 1}), ErrorCode::BadValue);
    assert_eq!(bad(doc! {"field": "a.b"}), ErrorCode::BadValue);
    assert_eq!(bad(doc! {"persist": ["onRead", "onWrite"]}), ErrorCode::NotImplemented);
    assert_eq!(bad(doc! {"persist": ["background"]}), ErrorCode::BadValue);
    assert_eq!(bad(doc! {"up": [{"$set": {"at": "$$NOW"}}]}), ErrorCode::PatternNotDeterministic);
    assert_eq!(bad(doc! {"up": [{"$set": {"at": {"$rand": {}}}}]}), ErrorCode::PatternNotDeterministic);
    assert_eq!(bad(doc! {"up": [{"$set": {"_id": 1}}]}), ErrorCode::PatternBadExpression);
    assert_eq!(bad(doc! {"up": [{"$set": {"schemaVersion": 1}}]}), ErrorCode::PatternBadExpression);
    assert_eq!(bad(doc! {"up": [{"$group": {"_id": 1}}]}), ErrorCode::PatternBadExpression);
    assert_eq!(bad(doc! {"up": []}), ErrorCode::BadValue);
    assert_eq!(bad(doc! {"aliases": {"7": "users@7"}}), ErrorCode::BadValue);
    db.insert("taken", &[doc! {"_id": 1}]);
    assert_eq!(bad(doc! {"aliases": {"1": "taken"}}), ErrorCode::VersionInUse);
    declare(&db, "users", lazy()).unwrap();
    let operation = Arc::clone(&db.engine.operations.start(1));
    let phones = pattern(&db, "phones");
    assert_eq!(refused(db.engine.drop_pattern(&operation, &phones)), ErrorCode::VersionInUse);
    assert_eq!(refused(db.engine.pause_pattern(&operation, &phones)), ErrorCode::VersionInUse);
    // Without its definition nobody would know how its records are to be read.
    assert_eq!(refused(db.drop_collection("kilim.patterns")), ErrorCode::VersionInUse);
    let modified = db.engine.modify_pattern(&operation, &phones, doc! {"schemaVersion": {"to": 3}}.as_raw());
    assert_eq!(refused(modified), ErrorCode::VersionInUse);
    db.engine
        .modify_pattern(&operation, &phones, doc! {"schemaVersion": {"background": {"batch": 9}}}.as_raw())
        .unwrap();
    assert_eq!(
        refused(db.try_insert("users", doc! {"_id": 9, "schemaVersion": 7})),
        ErrorCode::VersionChainGap
    );
    assert_eq!(
        refused(db.try_insert("users", doc! {"_id": 9, "schemaVersion": "x"})),
        ErrorCode::VersionChainGap
    );
    assert_eq!(refused(db.engine.create_collection(&ns("users@1"), doc! {})), ErrorCode::VersionInUse);
    assert_eq!(refused(db.rename("taken", "users@1", true)), ErrorCode::VersionInUse);
    let card = doc! {"name": "card", "computed": {"set": {"twice": {"$concat": ["$phone", "$phone"]}}}};
    declare(&db, "users", card).unwrap();
    // The field that it reads would mean something else.
    assert_eq!(refused(roll_back(&db, "phones", false)), ErrorCode::PatternFieldConflict);
    db.check();
}

#[test]
fn a_renamed_collection_takes_its_versions_along_and_a_dropped_one_ends_them() {
    everywhere(|mut db| {
        users(&db);
        declare(&db, "users", phones()).unwrap();
        wait_until_active(&db, "users", "phones");
        db.rename("users", "people", false).unwrap();
        assert_eq!(one(&db, "people@1", doc! {"_id": 1}), ada(1));
        assert_eq!(db.find("users@1", doc! {}), []);
        if db.is_durable() {
            db.reopen();
        }
        assert_eq!(one(&db, "people@1", doc! {"_id": 1}), ada(1));
        db.drop_collection("people").unwrap();
        assert_eq!(db.find("people@1", doc! {}), []);
        users(&db);
        db.insert("people@1", &[doc! {"_id": 1}]);
        db.check();
    });
}

#[test]
fn transactions_see_and_write_both_versions() {
    everywhere(|db| {
        users(&db);
        declare(&db, "users", lazy()).unwrap();
        let mut transaction = db.transaction(1, 1);
        transaction.update("users@1", doc! {"_id": 1}, doc! {"$set": {"phone": "1"}}).unwrap();
        transaction.update("users", doc! {"_id": 1}, doc! {"$set": {"phone.countryCode": "+2"}}).unwrap();
        transaction.update("users@1", doc! {"_id": 1}, doc! {"$set": {"name": "A"}}).unwrap();
        transaction.insert("users@1", doc! {"_id": 7, "phone": "7"}).unwrap();
        let seen = transaction.find("users@1", doc! {"_id": 1}).unwrap();
        assert_eq!(seen, [doc! {"_id": 1, "schemaVersion": 1, "name": "A", "phone": "1"}]);
        transaction.commit().unwrap();
        assert_eq!(
            one(&db, "users", doc! {"_id": 1}),
            doc! {"_id": 1, "schemaVersion": 2, "name": "A", "phone": {"countryCode": "+2", "number": "1"}}
        );
        db.check();
    });
}

/// What a lazy upgrade by hand loses: writers of both versions against the job, and nothing is lost.
#[test]
fn writers_of_both_versions_lose_nothing_to_the_job() {
    let db = Db::memory();
    db.insert("users", &numbered(0..200, |id| doc! {"phone": format!("{id}"), "n": 0, "m": 0}));
    db.build("users", vec![spec(doc! {"phone.number": 1})]).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let write = |name: &'static str, field: &'static str| {
            let db = &db;
            move || {
                for round in 0..1000 {
                    let change = doc! {"$inc": {(field): 1}};
                    let outcome = db.update(name, doc! {"_id": round % 200}, change).unwrap();
                    assert_eq!(outcome.modified, 1);
                }
            }
        };
        declare(&db, "users", phones()).unwrap();
        let writers = [scope.spawn(write("users", "n")), scope.spawn(write("users@1", "m"))];
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // A filter on the new shape finds all of them at any time.
                assert_eq!(db.count("users", doc! {"phone.number": {"$exists": true}}), 200);
                assert_eq!(db.find("users@1", doc! {"phone": "17"}).len(), 1);
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        wait_until_active(&db, "users", "phones");
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert_eq!(db.count("users", doc! {"n": 5, "m": 5}), 200);
    complete(&db, "phones").unwrap();
    assert_eq!(db.count("users", doc! {"n": 5, "m": 5, "phone.countryCode": "+1"}), 200);
    db.check();
}

/// Declared while writers of the old version write: every write is before or after.
#[test]
fn writers_go_on_while_versions_are_declared_and_rolled_back() {
    let db = Db::memory();
    db.insert("users", &numbered(0..50, |id| doc! {"phone": format!("{id}"), "n": 0}));
    db.build("users", vec![spec(doc! {"phone.number": 1}), spec(doc! {"phone": 1})]).unwrap();
    let done = AtomicBool::new(false);
    let written = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0;
            while !done.load(Ordering::Relaxed) {
                db.update("users", doc! {"_id": written % 50}, doc! {"$inc": {"n": 1}}).unwrap();
                written += 1;
            }
            written
        });
        for _ in 0..5 {
            declare(&db, "users", phones()).unwrap();
            assert_eq!(db.count("users", doc! {"phone.number": {"$exists": true}}), 50);
            roll_back(&db, "phones", false).unwrap();
            assert_eq!(db.count("users", doc! {"phone": "7"}), 1);
            complete(&db, "phones").unwrap();
        }
        done.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    let sum: i64 = db.find("users", doc! {}).iter().map(|user| number(user, "n")).sum();
    assert_eq!(sum, i64::from(written));
    db.check();
}

/// An update of many documents commits in batches, between which the collection is not held.
#[test]
fn an_update_of_many_documents_sees_one_version_from_its_beginning_to_its_end() {
    let db = Db::memory();
    db.insert("users", &numbered(0..3000, |id| doc! {"phone": format!("{id}"), "n": 0}));
    let done = AtomicBool::new(false);
    let written = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0;
            while !done.load(Ordering::Relaxed) {
                let is_old = doc! {"phone": {"$type": "string"}};
                let is_new = doc! {"phone.number": {"$exists": true}};
                let either = doc! {"$or": [is_old, is_new]};
                let outcome = db.update_many("users", either, doc! {"$inc": {"n": 1}}).unwrap();
                assert_eq!(outcome.modified, 3000);
                written += 1;
            }
            written
        });
        for _ in 0..3 {
            declare(&db, "users", lazy()).unwrap();
            roll_back(&db, "phones", false).unwrap();
            complete(&db, "phones").unwrap();
        }
        done.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    assert_eq!(db.count("users", doc! {"n": written}), 3000);
    db.check();
}

#[test]
fn a_pipeline_cannot_say_that_a_document_has_another_version() {
    let db = Db::memory();
    users(&db);
    declare(&db, "users", lazy()).unwrap();
    let pipeline = |name: &str, stage: Document| {
        let stages = kilim_bson::array![stage];
        let update = Update::parse(RawValue::Array(stages.as_raw()), None, false).unwrap();
        let request = UpdateRequest {
            filter: filter(doc! {"_id": 1}),
            update: &update,
            multi: false,
            upsert: false,
            hint: None,
            collation: None,
            now_ms: 0,
            statement: 0,
            projection: None,
        };
        db.run(|unit| write::update(unit, &ns(name), &request))
    };
    let set = |version: i32| doc! {"$set": {"schemaVersion": version, "n": 1}};
    for (name, version) in [("users", 1), ("users@1", 2)] {
        assert_eq!(refused(pipeline(name, set(version))), ErrorCode::PatternFieldReadOnly);
        assert_eq!(one(&db, "users", doc! {"_id": 1}), ada(2));
    }
    // It may say what is so, and leave it out.
    for (name, version) in [("users", 2), ("users@1", 1)] {
        pipeline(name, set(version)).unwrap();
        pipeline(name, doc! {"$unset": ["schemaVersion", "n"]}).unwrap();
        assert_eq!(one(&db, "users", doc! {"_id": 1}), ada(2));
    }
    // A whole document may be of either version.
    db.update("users", doc! {"_id": 1}, ada(1)).unwrap();
    assert_eq!(one(&db, "users", doc! {"_id": 1}), ada(2));
    db.check();
}

#[test]
fn a_step_without_a_way_back_takes_no_name_away() {
    let db = Db::memory();
    users(&db);
    declare(&db, "users", lazy()).unwrap();
    let one_way = doc! {"name": "names", "schemaVersion": {
        "field": "schemaVersion", "from": 2, "to": 3, "up": [{"$set": {"fullName": "$name"}}, {"$unset": "name"}],
    }};
    let hides = declare(&db, "users", one_way.clone()).err().unwrap();
    assert_eq!(hides.code(), ErrorCode::VersionInUse);
    assert!(hides.to_string().contains("users@1"), "{hides}");
    assert_eq!(db.count("users@1", doc! {"schemaVersion": 1}), 3);
    complete(&db, "phones").unwrap();
    declare(&db, "users", one_way).unwrap();
    assert_eq!(ids(&db.find("users", doc! {"fullName": "Bob"})), [2]);
    db.check();
}

#[test]
fn the_power_goes_at_every_commit_of_a_declaration_its_job_and_its_end() {
    let look = |db: &Db| {
        let bob = one(db, "users", doc! {"_id": 2});
        let is_new = phone_of(&bob) == Some(doc! {"countryCode": "+1", "number": "555-2"});
        assert!(is_new || bob.get("phone").and_then(RawValue::as_str) == Some("555-2"), "{bob:?}");
        assert_eq!(db.count("users", doc! {}), 7);
        match is_new {
            true => {
                assert_eq!(ids(&db.find_by("users", doc! {"phone.number": "555-2"}, "phone.number_1")), [2])
            }
            false => assert_eq!(ids(&db.find("users", doc! {"phone": "555-2"})), [2]),
        }
        db.check();
    };
    let prepare = |db: &Db| {
        users(db);
        db.insert("users", &numbered(10..14, |id| doc! {"phone": format!("{id}")}));
        db.build("users", vec![spec(doc! {"phone.number": 1})]).unwrap();
    };
    let commits = at_every_commit(prepare, |db| declare(db, "users", phones()).map(drop), look);
    assert!(commits > 3, "{commits}");
    let declared = |db: &Db| {
        prepare(db);
        declare(db, "users", lazy()).unwrap();
        wait_until_active(db, "users", "phones");
    };
    at_every_commit(declared, |db| complete(db, "phones").map(drop), look);
    at_every_commit(declared, |db| roll_back(db, "phones", false), look);
}

#[test]
fn a_restored_definition_is_inert_until_it_is_repaired() {
    everywhere(|db| {
        users(&db);
        let definition = doc! {
            "_id": "users.phones", "target": "users", "name": "phones", "kind": "schemaVersion",
            "definition": {"createPattern": "users", "name": "phones", "schemaVersion": phones_spec()},
            "state": "active",
        };
        db.insert("kilim.patterns", &[definition]);
        assert_eq!(one(&db, "users", doc! {"_id": 1}), doc! {"_id": 1, "name": "Ada", "phone": "555-1"});
        let operation = Arc::clone(&db.engine.operations.start(1));
        let restored = pattern(&db, "phones");
        assert_eq!(
            refused(db.engine.verify_pattern(&operation, &restored, None, 1)),
            ErrorCode::PatternNotReady
        );
        db.engine.repair_pattern(&operation, &restored, None, 1).unwrap();
        assert_eq!(one(&db, "users", doc! {"_id": 1}), ada(2));
        assert_eq!(one(&db, "users@1", doc! {"_id": 1}), ada(1));
        db.check();
    });
}

#[test]
fn lookups_and_pipelines_read_either_version() {
    let db = Db::memory();
    users(&db);
    declare(&db, "users", lazy()).unwrap();
    let stages = vec![
        doc! {"$lookup": {"from": "users@1", "localField": "phone.number", "foreignField": "phone", "as": "old"}},
        doc! {"$match": {"old": {"$size": 1}}},
        doc! {"$sort": {"_id": 1}},
    ];
    // The third has no phone in either version, and nothing equals nothing.
    assert_eq!(ids(&crate::pipeline::run(&db, "users", stages)), [1, 2, 3]);
}

#[test]
fn a_salvaged_directory_has_the_same_versions() {
    let directory = tempfile::tempdir().unwrap();
    let (data, out) = (directory.path().join("data"), directory.path().join("out"));
    let open = |path: &Path| Db::over(Store::open(path, StorageOptions::default()).unwrap());
    let db = open(&data);
    users(&db);
    db.build("users", vec![spec(doc! {"phone.number": 1})]).unwrap();
    declare(&db, "users", lazy()).unwrap();
    wait_until_active(&db, "users", "phones");
    let seen = db.find("users", doc! {});
    db.engine.close().unwrap();
    drop(db);
    assert!(salvage_directory(&data, &out).unwrap().is_whole());
    let db = open(&out);
    assert_eq!(db.find("users", doc! {}), seen);
    assert_eq!(ids(&db.find_by("users", doc! {"phone.number": "555-2"}, "phone.number_1")), [2]);
    assert_eq!(one(&db, "users@1", doc! {"_id": 1}), ada(1));
    db.check();
    db.engine.close().unwrap();
}

/// Patterns that are declared for the new version see nothing else, through whichever name documents are written.
#[test]
fn patterns_on_top_see_the_new_version_only() {
    everywhere(|db| {
        users(&db);
        declare(&db, "users", lazy()).unwrap();
        let label = doc! {"name": "label", "computed": {"set": {"label": {"$concat": ["$phone.countryCode", "$phone.number"]}}}};
        declare(&db, "users", label).unwrap();
        wait_until_active(&db, "users", "label");
        let codes = doc! {"name": "codes", "computed": {"from": "users", "whenNotMatched": "insert", "pipeline": [
            {"$group": {"_id": "$phone.countryCode", "count": {"$count": {}}}},
        ]}};
        declare(&db, "codes", codes).unwrap();
        wait_until_active(&db, "codes", "codes");
        db.try_insert("users@1", doc! {"_id": 4, "phone": "4"}).unwrap();
        assert_eq!(one(&db, "users", doc! {"_id": 4}).get("label").and_then(RawValue::as_str), Some("+14"));
        assert_eq!(one(&db, "users@1", doc! {"_id": 4}).get("label").and_then(RawValue::as_str), Some("+14"));
        db.update("users", doc! {"_id": 1}, doc! {"$set": {"phone.countryCode": "+44"}}).unwrap();
        db.delete("users@1", doc! {"phone": "555-2"}).unwrap();
        assert_eq!(number(&one(&db, "codes", doc! {"_id": "+1"}), "count"), 1);
        assert_eq!(number(&one(&db, "codes", doc! {"_id": "+44"}), "count"), 1);
        let operation = Arc::clone(&db.engine.operations.start(1));
        for (target, name) in [("users", "label"), ("codes", "codes"), ("users", "phones")] {
            let pattern = db.engine.pattern(&ns(target), name).unwrap();
            assert_eq!(db.engine.verify_pattern(&operation, &pattern, None, 1).unwrap().wrong, 0);
        }
        db.check();
    });
}

#[test]
fn a_database_with_versions_is_dropped_whole() {
    let db = Db::memory();
    users(&db);
    declare(&db, "users", lazy()).unwrap();
    let operation = Arc::clone(&db.engine.operations.start(1));
    db.engine.drop_database(&operation, "test").unwrap();
    assert_eq!(db.find("users", doc! {}), []);
    assert_eq!(db.find("users@1", doc! {}), []);
    assert!(db.engine.patterns().of("test").is_empty());
}

#[test]
fn a_version_goes_with_the_collection_that_another_is_renamed_over() {
    everywhere(|db| {
        users(&db);
        declare(&db, "users", lazy()).unwrap();
        db.insert("others", &[doc! {"_id": 7}]);
        db.rename("others", "users", true).unwrap();
        assert_eq!(db.find("users", doc! {}), [doc! {"_id": 7}]);
        assert_eq!(db.find("users@1", doc! {}), []);
        // The name is free.
        db.try_insert("users@1", doc! {"_id": 8}).unwrap();
        assert_eq!(db.find("users", doc! {}), [doc! {"_id": 7}]);
        db.check();
    });
}

#[test]
fn a_later_step_does_not_change_what_documents_without_a_version_are() {
    let db = Db::memory();
    users(&db);
    declare(&db, "users", lazy()).unwrap();
    let step = |from: i32, to: i32| {
        doc! {"name": "lower", "schemaVersion": {
            "field": "schemaVersion", "from": from, "to": to,
            "up": [{"$set": {"extra": 1}}], "down": [{"$unset": "extra"}],
        }}
    };
    for (from, to) in [(2, 0), (0, 2), (3, 2)] {
        assert_eq!(refused(declare(&db, "users", step(from, to))), ErrorCode::VersionChainGap, "{from} {to}");
    }
    assert_eq!(one(&db, "users", doc! {"_id": 1}), ada(2));
    declare(&db, "users", step(2, 3)).unwrap();
    roll_back(&db, "lower", false).unwrap();
    assert_eq!(one(&db, "users", doc! {"_id": 1}), ada(2));
    db.check();
}

#[test]
fn elements_of_arrays_keep_what_the_old_version_cannot_say() {
    everywhere(|db| {
        db.insert("users", &[doc! {"_id": 1, "items": [{"sku": "a", "qty": 1}, {"sku": "b", "qty": 2}]}]);
        let mapped = |made: Document| doc! {"$set": {"items": {"$map": {"input": "$items", "in": made}}}};
        let prices = doc! {"name": "prices", "schemaVersion": {
            "field": "v", "from": 1, "to": 2,
            "up": [mapped(doc! {"$mergeObjects": [{"price": null}, "$$this"]})],
            "down": [mapped(doc! {"sku": "$$this.sku", "qty": "$$this.qty"})],
        }};
        declare(&db, "users", prices).unwrap();
        db.update("users", doc! {"_id": 1}, doc! {"$set": {"items.0.price": 10, "items.1.price": 20}})
            .unwrap();
        db.update("users@1", doc! {"_id": 1}, doc! {"$inc": {"items.0.qty": 5}}).unwrap();
        db.update("users@1", doc! {"_id": 1}, doc! {"$push": {"items": {"sku": "c", "qty": 3}}}).unwrap();
        let pairs = |name: &str, db: &Db| {
            let user = one(db, "users", doc! {"_id": 1});
            let items = user.get("items").unwrap().as_array().unwrap();
            items
                .iter()
                .map(|item| match item.as_document().unwrap().get(name) {
                    Some(RawValue::Int32(value)) => value,
                    _ => 0,
                })
                .collect::<Vec<i32>>()
        };
        assert_eq!(pairs("price", &db), [10, 20, 0]);
        assert_eq!(pairs("qty", &db), [6, 2, 3]);
        // Which price belongs to which element cannot be told any more.
        for change in [
            doc! {"$pop": {"items": -1}},
            doc! {"$pull": {"items": {"sku": "b"}}},
            doc! {"$push": {"items": {"$each": [], "$sort": {"qty": 1}}}},
            doc! {"$push": {"items": {"$each": [{"sku": "d", "qty": 4}], "$position": 0}}},
        ] {
            assert_eq!(refused(db.update("users@1", doc! {"_id": 1}, change)), ErrorCode::VersionLossy);
        }
        assert_eq!(pairs("price", &db), [10, 20, 0]);
        // Where there is nothing to lose, elements go.
        db.update("users", doc! {"_id": 1}, doc! {"$set": {"items.$[].price": null}}).unwrap();
        db.update("users@1", doc! {"_id": 1}, doc! {"$pop": {"items": -1}}).unwrap();
        assert_eq!(pairs("qty", &db), [2, 3]);
        db.check();
    });
}

#[test]
fn a_document_that_is_kept_and_says_no_version_is_told_of() {
    let db = Db::memory();
    db.insert("users", &[doc! {"_id": 1, "age": "1"}, doc! {"_id": 2, "age": "old"}]);
    declare(&db, "users", numbers(doc! {"onError": "keepOld"})).unwrap();
    wait_for_jobs(&db, &MemoryDisk::default());
    let operation = Arc::clone(&db.engine.operations.start(1));
    assert_eq!(db.engine.verify_pattern(&operation, &pattern(&db, "numbers"), None, 1).unwrap().wrong, 1);
}

#[test]
fn what_was_never_converted_does_not_stand_in_the_way_back() {
    let db = Db::memory();
    db.insert("users", &[doc! {"_id": 1, "age": "1"}, doc! {"_id": 2, "age": "old"}]);
    declare(&db, "users", numbers(doc! {"check": "none", "persist": ["onWrite"]})).unwrap();
    roll_back(&db, "numbers", false).unwrap();
    assert_eq!(one(&db, "users", doc! {"_id": 2}), doc! {"_id": 2, "v": 1, "age": "old"});
    assert_eq!(db.delete("users", doc! {"_id": 2}).unwrap(), 1);
    db.check();
}
