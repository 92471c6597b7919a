//! `$graphLookup` over the parents of a declared tree gives what it gives over plain documents.

use kilim_bson::{Document, RawValue, Value, array, doc};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::pattern::{declare, make, wait_until_active};
use crate::pattern_tree::everything;
use crate::pipeline::run as aggregate;
use crate::support::{Db, everywhere};

/// What was found, without the order, which nobody promises.
fn sorted(found: &Document) -> Vec<Vec<u8>> {
    let found = found.get("found").and_then(RawValue::as_array).unwrap();
    let mut found: Vec<Vec<u8>> =
        found.iter().map(|one| one.as_document().unwrap().to_document().as_bytes().to_vec()).collect();
    found.sort();
    found
}

fn value(random: &mut StdRng) -> Value {
    match random.random_range(0..20) {
        0 => Value::Null,
        1 => Value::Int32(99),
        2 => Value::Double(f64::from(random.random_range(0..12))),
        3 => Value::from("text"),
        _ => Value::Int32(random.random_range(0..12)),
    }
}

/// The same lookup in both collections, from every document.
fn compare(db: &Db, lookup: &Document, round: u64) {
    let found = |collection: &str| {
        let mut lookup = lookup.clone();
        lookup.push("from", collection);
        let stages = vec![doc! {"$sort": {"_id": 1}}, doc! {"$graphLookup": lookup}];
        aggregate(db, collection, stages)
    };
    let (declared, plain) = (found("nodes"), found("plain"));
    assert_eq!(declared.len(), plain.len());
    for (declared, plain) in declared.iter().zip(&plain) {
        assert_eq!(sorted(declared), sorted(plain), "round {round}, {lookup:?} from {declared:?}");
    }
}

fn lookups(random: &mut StdRng) -> Vec<Document> {
    let starts = [
        Value::from("$_id"),
        Value::from("$parent"),
        Value::from("$start"),
        Value::Array(array!["$_id"]),
        Value::Array(array!["$_id", "$parent"]),
        Value::Document(doc! {"$literal": value(random)}),
    ];
    let mut lookups = Vec::new();
    for start in starts {
        for (from, to) in [("_id", "parent"), ("parent", "_id"), ("parent", "parent"), ("_id", "start")] {
            let mut lookup = doc! {"startWith": start.clone(), "connectFromField": from, "connectToField": to, "as": "found"};
            if random.random_range(0..3) == 0 {
                lookup.push("depthField", if random.random_range(0..4) == 0 { "parent" } else { "at" });
            }
            if random.random_range(0..3) == 0 {
                lookup.push("maxDepth", random.random_range(0..4));
            }
            if random.random_range(0..4) == 0 {
                lookup.push("restrictSearchWithMatch", doc! {"_id": {"$ne": random.random_range(0..12)}});
            }
            lookups.push(lookup);
        }
    }
    lookups
}

#[test]
fn a_graph_lookup_over_parents_gives_what_a_search_gives() {
    everywhere(|db| {
        for round in 0..12u64 {
            let mut random = StdRng::seed_from_u64(round);
            for name in ["nodes", "plain"] {
                drop(db.drop_collection(name));
            }
            make(&db, &["nodes", "plain"]);
            let scope = if round % 4 == 3 {
                doc! {"scope": "shop"}
            } else {
                doc! {}
            };
            declare(&db, "nodes", everything(scope)).unwrap();
            for _ in 0..60 {
                let mut node = doc! {"_id": random.random_range(0..12), "shop": random.random_range(0..2)};
                match random.random_range(0..10) {
                    0 => {}
                    // An array is nobody's parent in a tree, and several in a search.
                    1 if round % 3 == 1 => {
                        node.push("parent", array![value(&mut random), value(&mut random)])
                    }
                    _ => node.push("parent", value(&mut random)),
                }
                node.push("start", array![value(&mut random)]);
                drop(db.try_insert("nodes", node));
                let (one, parent) = (random.random_range(0..12), value(&mut random));
                drop(db.update("nodes", doc! {"_id": one}, doc! {"$set": {"parent": parent}}));
            }
            if round % 3 == 2 {
                // Null is an id, and a parent that is none.
                drop(db.try_insert("nodes", doc! {"_id": null, "parent": value(&mut random)}));
            }
            wait_until_active(&db, "nodes", "tree");
            db.insert("plain", &db.find("nodes", doc! {}));
            for lookup in lookups(&mut random) {
                compare(&db, &lookup, round);
            }
        }
    });
}

#[test]
fn a_transaction_looks_along_the_parents_that_it_wrote() {
    let db = Db::memory();
    make(&db, &["nodes"]);
    declare(&db, "nodes", everything(doc! {})).unwrap();
    db.insert("nodes", &[doc! {"_id": 1}, doc! {"_id": 2, "parent": 1}, doc! {"_id": 3}]);
    let below = |transaction: &mut crate::support::Transaction<'_>| {
        transaction
            .run(|unit| {
                crate::pipeline::read_in(
                    unit,
                    "nodes",
                    vec![
                        doc! {"$match": {"_id": 3}},
                        doc! {"$graphLookup": {
                            "from": "nodes", "startWith": "$_id", "connectFromField": "_id",
                            "connectToField": "parent", "as": "found",
                        }},
                        doc! {"$project": {"n": {"$size": "$found"}}},
                    ],
                )
            })
            .unwrap()
    };
    let mut transaction = db.transaction(1, 1);
    assert_eq!(below(&mut transaction), [doc! {"_id": 3, "n": 0}]);
    transaction.update("nodes", doc! {"_id": 1}, doc! {"$set": {"parent": 3}}).unwrap();
    assert_eq!(below(&mut transaction), [doc! {"_id": 3, "n": 2}]);
    transaction.commit().unwrap();
}
