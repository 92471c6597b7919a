//! Variants: their rules, their indexes, and what writers may do to them.

use std::sync::Arc;
use std::thread;

use kilim_bson::{Document, RawDocument, RawValue, Value, array, doc};
use kilim_engine::patterns::PatternState;
use kilim_engine::upkeep::Verification;
use kilim_error::{Error, ErrorCode, Result};

use crate::pattern::{card, declare, make, one, wait_until_active};
use crate::pattern_history::world::Dice;
use crate::pattern_lifecycle::{pattern, state};
use crate::pattern_regression::verify;
use crate::support::{
    Db, Updating, eventually, everywhere, find_and_modify, ids, insert, ns, numbered, update_with,
};

fn items(more: Document) -> Document {
    let mut spec = doc! {
        "discriminator": "type",
        "base": {"required": ["title"], "properties": {"title": {"bsonType": "string"}}},
        "variants": {
            "book": {
                "required": ["isbn"], "properties": {"isbn": {"bsonType": "string"}},
                "indexes": [{"key": {"isbn": 1}, "unique": true}],
            },
            "ebook": {"extends": "book", "properties": {"format": {"enum": ["epub", "pdf"]}}},
            "dvd": {"required": ["minutes"], "properties": {"minutes": {"bsonType": "int"}}, "indexes": [{"key": {"minutes": 1}}]},
        },
    };
    more.iter().for_each(|(name, value)| spec.push(name, value));
    doc! {"name": "variants", "polymorphic": spec}
}

fn book(id: i32, isbn: &str) -> Document {
    doc! {"_id": id, "type": "book", "title": "t", "isbn": isbn}
}

fn dvd(id: i32) -> Document {
    doc! {"_id": id, "type": "dvd", "title": "t", "minutes": 90}
}

fn shelf(more: Document) -> Db {
    let db = Db::memory();
    make(&db, &["items"]);
    declare(&db, "items", items(more)).unwrap();
    db.insert("items", &[book(1, "a"), dvd(2)]);
    db
}

#[track_caller]
fn refused<T: std::fmt::Debug>(done: Result<T>) -> Document {
    let Err(Error::User(user)) = done else { panic!("{done:?}") };
    assert_eq!(user.code, ErrorCode::VariantValidationFailed, "{}", user.message);
    let details = RawDocument::parse(user.details.as_ref().unwrap()).unwrap();
    details.get("errInfo").and_then(RawValue::as_document).unwrap().to_document()
}

#[test]
fn every_way_to_write_keeps_the_rules() {
    everywhere(|db| {
        make(&db, &["items"]);
        declare(&db, "items", items(doc! {})).unwrap();
        db.insert("items", &[book(1, "a"), dvd(2)]);
        let no_isbn = || doc! {"_id": 9, "type": "book", "title": "t"};
        refused(db.try_insert("items", no_isbn()));
        refused(db.update("items", doc! {"_id": 1}, doc! {"$unset": {"isbn": 1}}));
        refused(db.update("items", doc! {"_id": 1}, doc! {"_id": 1, "type": "book", "title": "t"}));
        refused(db.update_many("items", doc! {}, doc! {"$set": {"title": 5}}));
        refused(db.upsert("items", doc! {"_id": 9}, doc! {"$set": {"type": "dvd", "title": "t"}}));
        let modified = |update: Document| {
            db.run(|unit| find_and_modify(unit, "items", doc! {"_id": 1}, update, Some(doc! {"_id": 1})))
        };
        refused(modified(doc! {"$set": {"isbn": 7}}));
        // Bypassing a collection's validator bypasses no pattern.
        refused(db.run(|unit| {
            unit.bypass_validation = true;
            let mut outcome = insert(unit, "items", &[no_isbn()], true)?;
            outcome.errors.pop().map_or(Ok(()), |(_, error)| Err(error))
        }));
        let mut transaction = db.transaction(1, 1);
        transaction.insert("items", book(3, "c")).unwrap();
        refused(transaction.insert("items", no_isbn()));
        let mut transaction = db.transaction(2, 1);
        transaction.insert("items", book(3, "c")).unwrap();
        transaction.update("items", doc! {"_id": 3}, doc! {"$set": {"type": "ebook"}}).unwrap();
        transaction.commit().unwrap();
        assert_eq!(ids(&db.find("items", doc! {})), [1, 2, 3]);
        assert_eq!(verify(&db, "items", "variants").wrong, 0);
        db.check();
    });
}

#[test]
fn an_error_names_variant_path_and_rule_and_tells_what_mongod_tells() {
    let db = shelf(doc! {});
    let info = refused(db.try_insert("items", doc! {"_id": 9, "type": "ebook", "title": "t", "isbn": 5}));
    let text = |name: &str| info.get(name).and_then(RawValue::as_str).unwrap_or_default().to_owned();
    assert_eq!(
        [text("pattern"), text("variant"), text("path"), text("rule"), text("ns")],
        ["variants", "ebook", "isbn", "bsonType", "test.items"]
    );
    assert!(matches!(info.get("failingDocumentId"), Some(RawValue::Int32(9))));
    assert!(info.get("details").is_some());
}

#[test]
fn a_key_is_unique_within_a_variant_and_what_extends_it() {
    everywhere(|db| {
        make(&db, &["items"]);
        declare(&db, "items", items(doc! {})).unwrap();
        db.insert("items", &[book(1, "a")]);
        let duplicate = |document: Document| db.try_insert("items", document).unwrap_err().code();
        assert_eq!(duplicate(book(2, "a")), ErrorCode::DuplicateKey);
        assert_eq!(
            duplicate(doc! {"_id": 2, "type": "ebook", "title": "t", "isbn": "a"}),
            ErrorCode::DuplicateKey
        );
        db.insert("items", &[doc! {"_id": 2, "type": "dvd", "title": "t", "isbn": "a", "minutes": 1}]);
        // A change of type enters the other variant's index.
        let changed = db.update("items", doc! {"_id": 2}, doc! {"$set": {"type": "ebook"}});
        assert_eq!(changed.unwrap_err().code(), ErrorCode::DuplicateKey);
        db.update("items", doc! {"_id": 1}, doc! {"$set": {"type": "dvd", "minutes": 1}}).unwrap();
        db.update("items", doc! {"_id": 2}, doc! {"$set": {"type": "ebook"}}).unwrap();
        for asked in
            [doc! {"type": "ebook", "isbn": "a"}, doc! {"type": {"$in": ["book", "ebook"]}, "isbn": "a"}]
        {
            assert_eq!(ids(&db.find_by("items", asked, "kilim_variants_1")), [2]);
        }
        db.check();
    });
}

#[test]
fn the_discriminator_cannot_be_taken_away() {
    for unknown in ["reject", "allow"] {
        let db = shelf(doc! {"unknown": unknown});
        let info = refused(db.update("items", doc! {"_id": 1}, doc! {"$unset": {"type": 1}}));
        assert_eq!(info.get("path").and_then(RawValue::as_str), Some("type"));
        refused(db.update("items", doc! {"_id": 1}, doc! {"$rename": {"type": "kind"}}));
        refused(db.update("items", doc! {"_id": 1}, doc! {"_id": 1, "title": "t", "isbn": "a"}));
        let unknown_type = db.update("items", doc! {"_id": 1}, doc! {"$set": {"type": "vinyl"}});
        match unknown {
            "reject" => drop(refused(unknown_type)),
            _ => drop(unknown_type.unwrap()),
        }
        assert_eq!(verify(&db, "items", "variants").wrong, 0);
    }
}

#[test]
fn a_change_of_type_is_validated_or_cleans_up_or_is_refused() {
    let change = || doc! {"$set": {"type": "dvd", "minutes": 5}};
    let db = shelf(doc! {});
    refused(db.update("items", doc! {"_id": 1}, doc! {"$set": {"type": "dvd"}}));
    db.update("items", doc! {"_id": 1}, change()).unwrap();
    assert_eq!(one(&db, "items", doc! {"_id": 1}).get("isbn").and_then(RawValue::as_str), Some("a"));
    let db = shelf(doc! {"onTypeChange": "unset", "extra": "reject"});
    db.update("items", doc! {"_id": 1}, change()).unwrap();
    assert_eq!(
        one(&db, "items", doc! {"_id": 1}),
        doc! {"_id": 1, "type": "dvd", "title": "t", "minutes": 5}
    );
    let db = shelf(doc! {"onTypeChange": "reject"});
    refused(db.update("items", doc! {"_id": 1}, change()));
    db.update("items", doc! {"_id": 1}, doc! {"$set": {"type": "book", "isbn": "b"}}).unwrap();
}

#[test]
fn levels_and_actions_are_those_of_validators() {
    let old = || doc! {"_id": 9, "type": "book", "isbn": "x"};
    for (options, insert, update) in [
        (doc! {}, false, false),
        (doc! {"validationLevel": "moderate"}, false, true),
        (doc! {"validationLevel": "off"}, true, true),
        (doc! {"validationAction": "warn"}, true, true),
    ] {
        let db = Db::memory();
        make(&db, &["items"]);
        db.insert("items", &[old(), book(1, "a")]);
        declare(&db, "items", items(options.clone())).unwrap();
        eventually("it is checked", || state(&db, "items", "variants") == PatternState::Suspect);
        assert_eq!(
            db.try_insert("items", doc! {"_id": 5, "type": "book", "isbn": "y"}).is_ok(),
            insert,
            "{options:?}"
        );
        let updated = db.update("items", doc! {"_id": 9}, doc! {"$set": {"x": 1}});
        assert_eq!(updated.is_ok(), update, "{options:?}");
    }
}

fn preview(db: &Db, fields: Document) -> Verification {
    let operation = Arc::clone(&db.engine.operations.start(1));
    let declaration = kilim_patterns::Declaration::parse("items", fields.as_raw()).unwrap();
    let pattern = Arc::new(db.engine.check_pattern("test", declaration).unwrap());
    db.engine.try_rules(&operation, &pattern, 10).unwrap().unwrap()
}

#[test]
fn what_breaks_the_rules_is_listed_before_and_after_they_are_declared() {
    let db = Db::memory();
    make(&db, &["items"]);
    db.insert(
        "items",
        &[book(1, "a"), doc! {"_id": 2, "type": "book", "title": 5, "isbn": "b"}, doc! {"_id": 3}],
    );
    let before = preview(&db, items(doc! {}));
    assert_eq!((before.checked, before.wrong), (3, 2));
    assert_eq!(
        before.examples[0],
        doc! {"_id": 2, "path": "title", "stored": 5, "expected": {"bsonType": "string"}, "variant": "book", "rule": "bsonType"}
    );
    declare(&db, "items", items(doc! {})).unwrap();
    eventually("it is checked", || state(&db, "items", "variants") == PatternState::Suspect);
    assert_eq!(verify(&db, "items", "variants").examples, before.examples);
    db.update("items", doc! {"_id": 2}, doc! {"$set": {"title": "t"}}).unwrap();
    db.delete("items", doc! {"_id": 3}).unwrap();
    assert_eq!(verify(&db, "items", "variants").wrong, 0);
    wait_until_active(&db, "items", "variants");
}

#[test]
fn rules_go_with_a_validator_and_with_what_other_patterns_maintain() {
    let db = Db::memory();
    make(&db, &["customers"]);
    db.insert("customers", &[doc! {"_id": 1, "name": "Ann"}]);
    db.engine.create_collection(&ns("items"), doc! {"validator": {"price": {"$gt": 0}}}).unwrap();
    declare(&db, "items", card()).unwrap();
    // The copy is no field of any variant.
    let mut spec = doc! {"discriminator": "type", "extra": "reject"};
    spec.push("base", doc! {"required": ["title"], "properties": {"price": {}, "customerId": {}}});
    spec.push("variants", doc! {"book": {"required": ["isbn"]}});
    declare(&db, "items", doc! {"name": "variants", "polymorphic": spec}).unwrap();
    let item = doc! {"_id": 1, "type": "book", "title": "t", "isbn": "a", "price": 1, "customerId": 1};
    db.insert("items", &[item]);
    assert_eq!(db.count("items", doc! {"customer.name": "Ann"}), 1);
    db.update("customers", doc! {"_id": 1}, doc! {"$set": {"name": "Bea"}}).unwrap();
    db.update("items", doc! {"_id": 1}, doc! {"$set": {"price": 2}}).unwrap();
    let by_validator = db.update("items", doc! {"_id": 1}, doc! {"$set": {"price": 0}}).unwrap_err();
    assert_eq!(by_validator.code(), ErrorCode::DocumentValidationFailure);
    refused(db.update("items", doc! {"_id": 1}, doc! {"$set": {"other": 0}}));
    assert_eq!(verify(&db, "items", "variants").wrong, 0);
    assert_eq!(verify(&db, "items", "card").wrong, 0);
}

#[test]
fn indexes_follow_the_declaration() {
    let db = shelf(doc! {});
    let names = || -> Vec<String> {
        let collection = db.engine.collection(&ns("items")).unwrap();
        let own = collection.indexes.iter().map(|index| index.spec.name.clone());
        own.filter(|name| name.starts_with("kilim_")).collect()
    };
    assert_eq!(names().len(), 2);
    let operation = Arc::clone(&db.engine.operations.start(1));
    let found = pattern(&db, "items", "variants");
    let collection = db.engine.collection(&ns("items")).unwrap();
    let id = collection.index_named("kilim_variants_1").unwrap().id;
    assert_eq!(
        db.engine.check_indexes_free(&collection, &[id]).unwrap_err().code(),
        ErrorCode::IndexOwnedByPattern
    );
    db.engine.drop_pattern(&operation, &found).unwrap();
    db.engine.drop_supporting_index(&operation, &found).unwrap();
    assert!(names().is_empty());
    // Documents that break a unique rule refuse the declaration, and nothing of it stays.
    db.insert("items", &[book(3, "a")]);
    let refused = declare(&db, "items", items(doc! {})).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::DuplicateKey);
    assert!(names().is_empty() && db.engine.pattern(&ns("items"), "variants").is_err());
}

#[test]
fn a_declaration_that_cannot_be_kept_is_refused() {
    let db = Db::memory();
    make(&db, &["items", "customers"]);
    declare(&db, "items", card()).unwrap();
    let code = |spec: Document| {
        let mut full = doc! {"discriminator": "type"};
        spec.iter().for_each(|(name, value)| full.push(name, value));
        declare(&db, "items", doc! {"name": "v", "polymorphic": full}).unwrap_err().code()
    };
    let unique = doc! {"indexes": [{"key": {"customer.name": 1}, "unique": true}]};
    assert_eq!(code(doc! {"variants": {"a": unique}}), ErrorCode::PatternFieldConflict);
    let removed = doc! {"a": {"properties": {"customer": {}}}, "b": {}};
    assert_eq!(code(doc! {"variants": removed, "onTypeChange": "unset"}), ErrorCode::PatternFieldConflict);
    let mut without = items(doc! {});
    without.push("createIndexes", false);
    assert_eq!(declare(&db, "items", without).unwrap_err().code(), ErrorCode::BadValue);
}

/// Writers at random: whatever they tried, every document keeps the rules, told as simply as they can be.
#[test]
fn random_histories_leave_nothing_but_valid_documents() {
    for seed in 1..9 {
        let mut db = Db::disk();
        make(&db, &["items"]);
        let options = doc! {"onTypeChange": if seed % 2 == 0 { "unset" } else { "validate" }};
        declare(&db, "items", items(options)).unwrap();
        for life in 0..2 {
            thread::scope(|scope| {
                for writer in 0..4 {
                    let db = &db;
                    scope.spawn(move || write_at_random(db, seed * 100 + life * 10 + writer));
                }
            });
            check_naively(&db, seed);
            assert_eq!(verify(&db, "items", "variants").wrong, 0);
            db.check();
            db.reopen();
        }
    }
}

fn write_at_random(db: &Db, seed: u64) {
    let mut dice = Dice::new(seed);
    for round in 0..60 {
        let id = dice.roll(8);
        let mut any = || {
            let mut document = doc! {"_id": id};
            match dice.roll(6) {
                0 => {}
                1 => document.push("type", array!["book"]),
                _ => document.push("type", dice.one(&["book", "ebook", "dvd", "dvd", "vinyl"])),
            }
            match dice.roll(8) {
                0 => document.push("title", 5),
                _ => document.push("title", "t"),
            }
            if dice.roll(3) > 0 {
                document.push("isbn", dice.one(&["a", "b", "c", "d"]));
            }
            if dice.roll(3) > 0 {
                document.push("minutes", dice.roll(3));
            }
            document
        };
        let by_id = doc! {"_id": id};
        let document = any();
        let set = |name: &str, value: &str| doc! {"$set": {name: value}};
        let done = match dice.roll(8) {
            0..=2 => db.try_insert("items", document),
            3 => db.update("items", by_id, document).map(drop),
            4 => db.update("items", by_id, set("type", dice.one(&["book", "ebook", "dvd", "x"]))).map(drop),
            5 => {
                let gone = dice.one(&["type", "isbn", "title"]);
                db.update("items", by_id, doc! {"$unset": {gone: 1}}).map(drop)
            }
            6 => db.delete("items", by_id).map(drop),
            _ => {
                let mut transaction = db.transaction(seed as u8, round);
                let first = transaction.insert("items", document);
                let second = match first {
                    Ok(()) => {
                        transaction.update("items", by_id, set("isbn", dice.one(&["a", "b"]))).map(drop)
                    }
                    Err(error) => Err(error),
                };
                match second {
                    Ok(()) => transaction.commit(),
                    Err(error) => Err(error),
                }
            }
        };
        match done {
            Ok(()) | Err(Error::Conflict(_)) => {}
            Err(error) => {
                let code = error.code();
                let fair =
                    [ErrorCode::VariantValidationFailed, ErrorCode::DuplicateKey, ErrorCode::WriteConflict];
                assert!(fair.contains(&code), "seed {seed}: {error}");
            }
        }
    }
}

fn check_naively(db: &Db, seed: u64) {
    let mut taken: Vec<String> = Vec::new();
    for item in db.find("items", doc! {}) {
        let text = |name: &str| item.get(name).and_then(RawValue::as_str);
        assert!(text("title").is_some(), "seed {seed}: {item:?}");
        match text("type") {
            Some("book" | "ebook") => {
                let isbn = text("isbn").unwrap_or_else(|| panic!("seed {seed}: {item:?}"));
                assert!(!taken.iter().any(|other| other == isbn), "seed {seed}: two of {isbn}");
                taken.push(isbn.to_owned());
            }
            Some("dvd") => {
                assert!(matches!(item.get("minutes"), Some(RawValue::Int32(_))), "seed {seed}: {item:?}")
            }
            _ => panic!("seed {seed}: {item:?}"),
        }
    }
}

#[test]
fn many_documents_are_updated_as_far_as_they_keep_the_rules() {
    let db = shelf(doc! {});
    db.insert("items", &numbered(10..20, |_| doc! {"type": "dvd", "title": "t", "minutes": 1}));
    let done = db.run(|unit| {
        update_with(unit, "items", doc! {"type": "dvd"}, doc! {"$inc": {"minutes": 1}}, Updating::Many)
    });
    assert_eq!(done.unwrap().modified, 11);
}

/// An index over the discriminator would hold such a document for a variant that it is not of.
#[test]
fn a_discriminator_within_an_array_names_no_variant() {
    let db = Db::memory();
    make(&db, &["items"]);
    let variants = doc! {"book": {"indexes": [{"key": {"isbn": 1}, "unique": true}]}};
    let spec = doc! {"discriminator": "meta.type", "unknown": "allow", "variants": variants};
    declare(&db, "items", doc! {"name": "variants", "polymorphic": spec}).unwrap();
    let of = |id: i32, meta: Value| doc! {"_id": id, "isbn": "a", "meta": meta};
    db.insert("items", &[of(1, doc! {"type": "book"}.into()), of(2, doc! {"type": "toy"}.into())]);
    db.insert("items", &[of(3, array![1, "book"].into()), of(4, array![doc! {"kind": "book"}].into())]);
    let told = refused(db.try_insert("items", of(5, array![doc! {"type": "book"}].into())));
    assert_eq!(told.get("path").and_then(RawValue::as_str), Some("meta.type"));
    refused(db.update("items", doc! {"_id": 2}, doc! {"$set": {"meta": [{"type": "toy"}]}}));
    assert_eq!(verify(&db, "items", "variants").wrong, 0);
}
