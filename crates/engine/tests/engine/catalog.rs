//! What the catalog is after the engine was opened again.

use kilim_bson::doc;
use kilim_engine::index::IndexSpec;
use kilim_engine::layout;
use kilim_query::filter::Filter;
use std::collections::BTreeSet;

use crate::support::{Db, ids, ns, numbered, spec, unique};

#[test]
fn everything_is_there_again() {
    let mut db = Db::disk();
    db.engine.create_collection(&ns("made"), doc! {"comment": "kept"}).unwrap();
    db.insert("c", &numbered(0..100, |id| doc! {"a": id, "b": {"c": id}}));
    let over = doc! {"a": {"$gt": 50}};
    let partial = Some((over.clone(), Filter::parse(over.as_raw()).unwrap()));
    db.build("c", vec![unique(doc! {"a": -1}), IndexSpec { sparse: true, ..spec(doc! {"b.c": 1, "z": -1}) }])
        .unwrap();
    db.build("c", vec![IndexSpec { partial, hidden: true, ..spec(doc! {"a": 1}) }]).unwrap();
    db.insert("c", &[doc! {"_id": 500, "a": 500, "b": [{"c": [1, 2]}, {"c": 3}]}]);
    db.delete("c", doc! {"_id": {"$lt": 10}}).unwrap();
    db.update_many("c", doc! {"_id": 20}, doc! {"$set": {"text": "longer than before"}}).unwrap();
    let before = db.engine.catalog();
    let counter = |db: &Db| {
        let collection = db.engine.collection(&ns("c")).unwrap();
        db.engine.store.snapshot().counter(&layout::counter_key(collection.id)).unwrap()
    };
    let counted = counter(&db);
    db.reopen();
    let after = db.engine.catalog();
    assert_eq!(before.iter().count(), after.iter().count());
    for (old, new) in before.iter().zip(after.iter()) {
        assert_eq!(
            (old.id, old.uuid, &old.namespace, &old.options),
            (new.id, new.uuid, &new.namespace, &new.options)
        );
        assert_eq!(old.indexes.len(), new.indexes.len());
        for (old, new) in old.indexes.iter().zip(new.indexes.iter()) {
            assert_eq!((old.id, &old.multikey, old.ready_since), (new.id, &new.multikey, new.ready_since));
            assert_eq!(old.spec.to_document(), new.spec.to_document());
            assert_eq!(old.spec.key, new.spec.key);
            assert_eq!(old.spec.unique, new.spec.unique);
        }
    }
    assert_eq!(counter(&db), counted);
    assert_eq!(db.find_by("c", doc! {"b.c": 3}, "b.c_1_z_-1").len(), 1);
    db.check();
}

#[test]
fn natural_order_goes_on_behind_what_was_there() {
    let mut db = Db::disk();
    db.insert("c", &[doc! {"_id": 3}, doc! {"_id": 1}]);
    db.reopen();
    db.insert("c", &[doc! {"_id": 2}]);
    db.reopen();
    db.insert("c", &[doc! {"_id": 0}]);
    assert_eq!(ids(&db.find("c", doc! {})), [3, 1, 2, 0]);
    db.check();
}

#[test]
fn ids_are_never_given_out_twice() {
    let mut db = Db::disk();
    let (mut collections, mut indexes) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..4 {
        for name in ["c", "d"] {
            db.insert(name, &numbered(0..20, |id| doc! {"a": id, "b": 1}));
            let _ = db.build(name, vec![unique(doc! {"b": 1})]).unwrap_err();
            db.build(name, vec![spec(doc! {"a": 1})]).unwrap();
            let collection = db.engine.collection(&ns(name)).unwrap();
            assert!(collections.insert(collection.id), "round {round}");
            for index in collection.indexes.iter() {
                assert!(indexes.insert(index.id), "round {round}");
            }
            db.drop_collection(name).unwrap();
            let mut transaction = db.transaction(1, i64::from(round) * 2 + i64::from(name == "d"));
            transaction.insert("e", doc! {"_id": 1}).unwrap();
            transaction.abort().unwrap();
        }
        db.reopen();
        db.check();
    }
}
