//! Capped collections: the oldest documents go for new ones, however often it has gone round.

use std::thread;

use kilim_bson::{Document, doc};
use kilim_error::ErrorCode;

use crate::support::{Db, everywhere, ids, insert, ns, numbered};

fn capped(db: &Db, max: i64) {
    let options = doc! {"capped": true, "size": 1i64 << 30, "max": max};
    db.engine.create_collection(&ns("c"), options).unwrap();
}

fn left(db: &Db) -> Vec<i64> {
    ids(&db.find("c", doc! {}))
}

#[test]
fn the_oldest_go_first_however_often_it_has_gone_round() {
    everywhere(|mut db| {
        capped(&db, 10);
        db.insert("c", &numbered(0..700, |_| doc! {}));
        assert_eq!(left(&db), (690..700).collect::<Vec<i64>>());
        // Nothing goes for one that is refused, also in the middle of a batch.
        let mut batch = numbered(700..705, |_| doc! {});
        batch.push(doc! {"_id": 704});
        batch.extend(numbered(705..708, |_| doc! {}));
        let outcome = db.run(|unit| insert(unit, "c", &batch, false)).unwrap();
        assert_eq!(outcome.errors.len(), 1);
        assert_eq!(outcome.errors[0].1.code(), ErrorCode::DuplicateKey);
        assert_eq!(left(&db), (698..708).collect::<Vec<i64>>());
        // What users delete makes room, and the rest stays in order.
        assert_eq!(db.delete("c", doc! {"_id": {"$in": [698, 699, 703]}}).unwrap(), 3);
        db.insert("c", &numbered(708..713, |_| doc! {}));
        assert_eq!(left(&db), [702, 704, 705, 706, 707, 708, 709, 710, 711, 712]);
        if db.is_durable() {
            db.reopen();
        }
        db.insert("c", &numbered(713..716, |_| doc! {}));
        assert_eq!(left(&db), (706..716).collect::<Vec<i64>>());
        db.check();
    });
}

#[test]
fn many_writers_share_the_bounds() {
    everywhere(|db| {
        capped(&db, 20);
        thread::scope(|scope| {
            for writer in 0..4 {
                let db = &db;
                scope.spawn(move || {
                    for round in 0..10 {
                        let first = writer * 1000 + round * 10;
                        let documents: Vec<Document> = numbered(first..first + 10, |_| doc! {});
                        db.insert("c", &documents);
                    }
                });
            }
        });
        assert_eq!(left(&db).len(), 20);
        db.insert("c", &numbered(9000..9020, |_| doc! {}));
        assert_eq!(left(&db), (9000..9020).collect::<Vec<i64>>());
        db.check();
    });
}

#[test]
fn a_state_from_before_still_shows_what_has_gone_since() {
    everywhere(|db| {
        capped(&db, 10);
        db.insert("c", &numbered(0..300, |_| doc! {}));
        let mut transaction = db.transaction(1, 1);
        assert_eq!(ids(&transaction.find("c", doc! {}).unwrap()), (290..300).collect::<Vec<i64>>());
        db.insert("c", &numbered(300..600, |_| doc! {}));
        assert_eq!(left(&db), (590..600).collect::<Vec<i64>>());
        assert_eq!(ids(&transaction.find("c", doc! {}).unwrap()), (290..300).collect::<Vec<i64>>());
        transaction.commit().unwrap();
        db.check();
    });
}
