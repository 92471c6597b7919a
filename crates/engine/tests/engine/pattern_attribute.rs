//! Attributes: a collection under the pattern answers as a plain one that had the same commands.

use kilim_bson::{Document, RawValue, Value, array, doc};
use kilim_engine::index::IndexSpec;
use kilim_engine::patterns::PatternState;
use kilim_error::ErrorCode;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::pattern::{declare, make, wait_until_active};
use crate::pattern_regression::expect_true;
use crate::support::{Db, eventually, everywhere, ids, ns, numbered, spec};

const STORES: [&str; 3] = ["flat", "kv", "both"];

fn specs(store: &str) -> Document {
    doc! {"name": "specs", "attribute": {"paths": array!["specs.*"], "as": "kv", "store": store}}
}

/// As a user would have written it.
fn flat(document: &Document) -> Document {
    let mut out = Document::new();
    for (name, value) in document.iter() {
        match (name, value) {
            ("specs", _) if document.get("kv").is_some() => {}
            ("kv", RawValue::Array(pairs)) => {
                let pairs = pairs.iter().filter_map(RawValue::as_document);
                let field = |pair: kilim_bson::RawDocument<'_>| {
                    (pair.get("k").unwrap().as_str().unwrap().to_owned(), pair.get("v").unwrap().to_value())
                };
                let mut fields: Vec<(String, Value)> = pairs.map(field).collect();
                fields.sort_by(|left, right| left.0.cmp(&right.0));
                let fields: Document = fields.iter().map(|(name, value)| (&**name, value.clone())).collect();
                out.push("specs", fields);
            }
            (name, value) => out.push(name, value),
        }
    }
    out
}

/// What was found, in one order of documents and fields.
fn sorted(documents: Vec<Document>) -> Vec<Document> {
    let in_order = |document: &Document| -> Document {
        let made = flat(document);
        let mut names: Vec<&str> = made.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.iter().map(|name| (*name, made.get(name).unwrap().to_value())).collect()
    };
    let mut documents: Vec<Document> = documents.iter().map(in_order).collect();
    documents.sort_by(|left, right| left.as_bytes().cmp(right.as_bytes()));
    documents
}

fn value(random: &mut StdRng) -> Value {
    match random.random_range(0..7) {
        0 => Value::Null,
        1 => Value::String("x".into()),
        2 => Value::Array(array![random.random_range(0..4), random.random_range(0..4)]),
        3 => Value::Document(doc! {"w": random.random_range(0..3)}),
        4 => Value::Double(1.5),
        _ => Value::Int32(random.random_range(0..4)),
    }
}

/// Names are in order, so that both forms have one.
fn attributes(random: &mut StdRng) -> Document {
    let mut specs = Document::new();
    for name in ["a", "b", "c", "d"] {
        if random.random() {
            specs.push(name, value(random));
        }
    }
    specs
}

fn asked(random: &mut StdRng) -> Document {
    let mut filter = Document::new();
    for name in ["a", "b", "c"] {
        let path = match random.random_range(0..6) {
            0 => format!("specs.{name}.w"),
            _ => format!("specs.{name}"),
        };
        let predicate = match random.random_range(0..14) {
            0 => doc! {"$gte": value(random)},
            1 => doc! {"$lt": 3, "$gt": 0},
            2 => doc! {"$ne": value(random)},
            3 => doc! {"$in": array![value(random), value(random)]},
            4 => doc! {"$exists": random.random::<bool>()},
            5..=7 => doc! {"$eq": value(random)},
            _ => continue,
        };
        filter.push(&path, predicate);
    }
    match random.random_range(0..4) {
        0 => doc! {"$or": array![filter, doc! {"specs.d": value(random)}]},
        _ => filter,
    }
}

#[test]
fn a_collection_answers_as_a_plain_one_in_every_form() {
    everywhere(|db| {
        for (round, store) in STORES.into_iter().enumerate() {
            let mut random = StdRng::seed_from_u64(round as u64);
            let (plain, stored) = (format!("plain_{store}"), format!("stored_{store}"));
            make(&db, &[&plain, &stored]);
            let with = |id: i32| doc! {"specs": attributes(&mut StdRng::seed_from_u64(id as u64))};
            let documents = numbered(0..60, with);
            db.insert(&plain, &documents);
            db.insert(&stored, &documents);
            // Reads between declaration and the end of filling find what they found before.
            declare(&db, &stored, specs(store)).unwrap();
            for step in 0..300 {
                let filter = asked(&mut random);
                match random.random_range(0..8) {
                    0 => {
                        let specs = attributes(&mut random);
                        let document = doc! {"_id": 1000 + step, "specs": specs};
                        db.insert(&plain, std::slice::from_ref(&document));
                        db.insert(&stored, &[document]);
                    }
                    1 => {
                        let update = doc! {"$inc": {"n": 1}};
                        let left = db.update_many(&plain, filter.clone(), update.clone()).unwrap();
                        let right = db.update_many(&stored, filter.clone(), update).unwrap();
                        assert_eq!(left.modified, right.modified, "{store} {step}: {filter:?}");
                    }
                    2 if step % 5 == 0 => {
                        let left = db.delete(&plain, filter.clone()).unwrap();
                        assert_eq!(
                            left,
                            db.delete(&stored, filter.clone()).unwrap(),
                            "{store} {step}: {filter:?}"
                        );
                    }
                    _ => {
                        let left = sorted(db.find(&plain, filter.clone()));
                        assert_eq!(
                            left,
                            sorted(db.find(&stored, filter.clone())),
                            "{store} {step}: {filter:?}"
                        );
                    }
                }
            }
            wait_until_active(&db, &stored, "specs");
            expect_true(&db, &stored, "specs");
        }
        db.check();
    });
}

#[test]
fn forms_that_contradict_each_other_end_the_filling_and_nothing_is_lost() {
    let db = Db::memory();
    make(&db, &["products"]);
    let torn = doc! {"_id": 7, "specs": {"color": "red"}, "kv": array![doc! {"k": "color", "v": "blue"}]};
    db.insert("products", &[doc! {"_id": 1, "specs": {"color": "red"}}, torn.clone()]);
    declare(&db, "products", specs("kv")).unwrap();
    let mut reason = String::new();
    eventually("the filling ends", || match &db.engine.pattern(&ns("products"), "specs").unwrap().state {
        PatternState::Failed(why) => {
            reason = why.clone();
            true
        }
        _ => false,
    });
    assert!(reason.contains('7') && reason.contains("'specs.color'"), "{reason}");
    assert_eq!(db.find("products", doc! {"_id": 7}), [torn]);
    assert_eq!(
        ids(&db.find("products", doc! {"specs.color": "red"})),
        [1, 7],
        "documents of both forms are found"
    );
    // A change of something else is not about it.
    db.update("products", doc! {"_id": 7}, doc! {"$set": {"n": 1}}).unwrap();
    db.update("products", doc! {"_id": 7}, doc! {"$unset": {"kv": 1}}).unwrap();
    assert_eq!(ids(&db.find("products", doc! {"specs.color": "red", "n": 1})), [7]);
}

#[test]
fn an_open_transaction_reads_documents_of_the_form_that_it_sees() {
    let db = Db::memory();
    make(&db, &["products", "others"]);
    db.insert("products", &[doc! {"_id": 1, "specs": {"color": "red"}}]);
    let mut transaction = db.transaction(1, 1);
    // Its snapshot is taken now; a collection that it has read already could not get a pattern.
    assert_eq!(transaction.count("others", doc! {}).unwrap(), 0);
    declare(&db, "products", specs("kv")).unwrap();
    wait_until_active(&db, "products", "specs");
    assert_eq!(transaction.count("products", doc! {"specs.color": "red"}).unwrap(), 1, "in its own snapshot");
    transaction.abort().unwrap();
    assert_eq!(db.count("products", doc! {"specs.color": "red"}), 1);
    assert_eq!(db.find_by("products", doc! {"specs.color": "red"}, "kilim_specs_1").len(), 1);
    db.check();
}

/// Documents have no such field, so nothing would expire.
#[test]
fn documents_do_not_expire_by_an_attribute_that_is_stored_as_a_pair() {
    let db = Db::memory();
    make(&db, &["products", "others"]);
    let expiring = || IndexSpec { expire_after_seconds: Some(60), ..spec(doc! {"specs.until": 1}) };
    declare(&db, "products", specs("kv")).unwrap();
    let refused = db.build("products", vec![expiring()]).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::PatternFieldConflict, "{refused}");
    db.build("others", vec![expiring()]).unwrap();
    assert_eq!(declare(&db, "others", specs("kv")).unwrap_err().code(), ErrorCode::PatternFieldConflict);
    declare(&db, "others", specs("flat")).unwrap();
}
