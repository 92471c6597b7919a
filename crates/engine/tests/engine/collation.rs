//! Collations in the catalog: kept over a restart, tied to the data that made the keys.

use std::ops::Bound;

use kilim_bson::{Array, Document, RawDocument, RawValue, Value, doc};
use kilim_collation::Collation;
use kilim_engine::catalog::View;
use kilim_engine::index::IndexSpec;
use kilim_engine::layout;
use kilim_engine::{Durability, Engine};
use kilim_error::{Error, ErrorCode};
use kilim_storage::{Direction, MemoryDisk, Space};

use crate::support::{Db, ns, numbered, spec, unique};

fn collation(strength: i32) -> Collation {
    let spec = doc! {"locale": "en", "strength": strength};
    Collation::parse(spec.as_raw()).unwrap().unwrap()
}

fn collated(spec: IndexSpec, strength: i32) -> IndexSpec {
    IndexSpec { name: format!("{}_{strength}", spec.name), collation: Some(collation(strength)), ..spec }
}

fn options() -> Document {
    doc! {"collation": collation(2).to_document()}
}

#[test]
fn everything_has_its_collation_again() {
    let mut db = Db::disk();
    db.engine.create_collection(&ns("c"), options()).unwrap();
    db.insert("c", &[doc! {"_id": "a", "t": "x", "u": "Ä"}, doc! {"_id": "b", "t": ["y", {"k": "Z"}]}]);
    db.build("c", vec![collated(unique(doc! {"t": 1}), 1), spec(doc! {"t": -1, "u": 1})]).unwrap();
    db.engine.create_view(View::new(ns("v"), "c", Array::new(), Some(collation(3))).unwrap()).unwrap();
    db.reopen();
    let collection = db.engine.collection(&ns("c")).unwrap();
    assert_eq!(collection.collation, Some(collation(2)));
    let of_indexes: Vec<_> = collection.indexes.iter().map(|index| index.spec.collation.clone()).collect();
    assert_eq!(of_indexes, [Some(collation(2)), Some(collation(1)), None]);
    assert_eq!(db.engine.view(&ns("v")).unwrap().collation, Some(collation(3)));
    for refused in [doc! {"_id": "A"}, doc! {"_id": "d", "t": "X"}, doc! {"_id": "d", "t": {"k": "z"}}] {
        let code = db.try_insert("c", refused.clone()).unwrap_err().code();
        assert_eq!(code, ErrorCode::DuplicateKey, "{refused:?}");
    }
    db.insert("c", &[doc! {"_id": "ä", "t": "w"}]);
    db.check();
}

#[test]
fn an_index_is_built_under_its_collation_while_others_write() {
    let db = Db::memory();
    db.insert("c", &numbered(0..3000, |id| doc! {"t": format!("Text {}", id % 700), "u": format!("é{id}")}));
    db.build("c", vec![collated(spec(doc! {"t": 1}), 1), collated(unique(doc! {"u": -1}), 1)]).unwrap();
    assert!(db.build("c", vec![collated(unique(doc! {"t": 1}), 2)]).is_err());
    db.update_many("c", doc! {"_id": {"$lt": 50}}, doc! {"$set": {"t": "other"}}).unwrap();
    db.delete("c", doc! {"_id": {"$gte": 2900}}).unwrap();
    db.check();
}

/// As a program with other data would have written it, or one from before data were written down.
fn forge(engine: &Engine, made_with: Option<&str>) {
    let (lower, upper) = ([layout::COLLECTION_TAG], [layout::COLLECTION_TAG + 1]);
    let snapshot = engine.store.snapshot();
    let entries: Vec<_> = snapshot
        .scan(Space::Meta, Bound::Included(&lower[..]), Bound::Excluded(&upper[..]), Direction::Forward)
        .map(|entry| entry.unwrap())
        .collect();
    let mut transaction = engine.store.begin();
    for (key, value) in entries {
        let document = RawDocument::parse(&value).unwrap();
        let forged = |index: RawDocument<'_>| -> Value {
            let others = index.iter().filter(|(name, _)| *name != "collationData");
            let mut forged: Document = others.map(|(name, value)| (name, value.to_value())).collect();
            made_with.inspect(|made_with| forged.push("collationData", *made_with));
            forged.into()
        };
        let mut changed = Document::new();
        for (name, value) in document {
            match value {
                RawValue::Array(indexes) if name == "indexes" => {
                    let indexes: Vec<Value> =
                        indexes.iter().map(|index| forged(index.as_document().unwrap())).collect();
                    changed.push(name, indexes);
                }
                value => changed.push(name, value.to_value()),
            }
        }
        transaction.put(Space::Meta, &key[..], changed.into_bytes());
    }
    transaction.commit(Durability::Durable).unwrap();
}

#[test]
fn keys_that_other_data_made_are_not_read() {
    for (collection, made_with, refused) in [
        (options(), Some("icu4x-1.0.0/cldr-40"), true),
        (options(), None, true),
        (options(), Some(kilim_collation::DATA_VERSION), false),
        (Document::new(), None, false),
    ] {
        let disk = MemoryDisk::default();
        let db = Db::on(&disk);
        db.engine.create_collection(&ns("c"), collection).unwrap();
        db.insert("c", &[doc! {"_id": "a"}]);
        forge(&db.engine, made_with);
        let options = db.engine.options.clone();
        db.engine.close().unwrap();
        drop(db);
        match Engine::over(disk.open().unwrap(), options) {
            Ok(_) => assert!(!refused, "{made_with:?}"),
            Err(Error::User(error)) => {
                assert!(refused);
                assert_eq!(error.code, ErrorCode::IncompatibleCollationVersion);
                assert!(error.message.contains("index '_id_' of test.c"), "{}", error.message);
            }
            Err(error) => panic!("{error}"),
        }
    }
}
