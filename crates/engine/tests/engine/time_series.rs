//! Measurements move from bucket to bucket while they come in one by one. Each is in one bucket at any time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use kilim_bson::{Document, Value, doc};
use kilim_engine::catalog::bucket_options;
use kilim_engine::write::{self, DeleteRequest};
use kilim_error::Result;
use kilim_query::time_series::{Granularity, Rows, TimeSeries};

use crate::pattern_crash::at_every_commit;
use crate::support::{Db, filter, ns, number};

const BEGIN: i64 = 1_700_000_040_000;

fn create(db: &Db, options: Document) {
    let series = TimeSeries {
        time_field: "t".into(),
        meta_field: Some("k".into()),
        granularity: Granularity::Seconds,
    };
    db.engine.create_time_series(&ns("m"), bucket_options(&series, options.as_raw())).unwrap();
}

fn insert(db: &Db, documents: &[Document]) -> Result<()> {
    let view = db.engine.view(&ns("m")).unwrap();
    let raw: Vec<_> = documents.iter().map(Document::as_raw).collect();
    let outcome =
        db.run(|unit| write::insert_measurements(unit, &view, &raw, true, |position| position as i32))?;
    assert!(outcome.errors.is_empty());
    Ok(())
}

fn delete(db: &Db, condition: Document) -> u64 {
    let view = db.engine.view(&ns("m")).unwrap();
    let request =
        DeleteRequest { filter: filter(condition), one: false, hint: None, collation: None, statement: 0 };
    db.run(|unit| write::delete_measurements(unit, &view, &request)).unwrap()
}

fn reading(id: i64) -> Document {
    doc! {"t": Value::DateTime(BEGIN + id * 100), "k": 1, "_id": id, "v": id % 7}
}

/// The numbers of measurements in the order in which buckets have them, and how many each bucket has.
fn stored(db: &Db) -> (Vec<i64>, Vec<usize>) {
    let mut buckets = db.find("system.buckets.m", doc! {});
    buckets.sort_by_key(|bucket| format!("{:?}", bucket.get("_id")));
    let mut ids = Vec::new();
    let mut sizes = Vec::new();
    for bucket in &buckets {
        let rows = Rows::of(bucket.as_raw(), "t", Some("k"), None).unwrap();
        let before = ids.len();
        ids.extend(rows.map(|row| number(&row, "_id")));
        sizes.push(ids.len() - before);
    }
    (ids, sizes)
}

#[test]
fn single_measurements_fill_buckets_completely_and_stay_in_order() {
    let db = Db::memory();
    create(&db, doc! {});
    for id in 0..2345 {
        insert(&db, &[reading(id)]).unwrap();
    }
    let (ids, sizes) = stored(&db);
    assert_eq!(ids, (0..2345).collect::<Vec<i64>>());
    assert_eq!(sizes, [1000, 1000, 300, 40, 5]);
    db.check();
}

#[test]
fn the_open_buckets_of_a_span_become_one_when_the_next_begins() {
    let db = Db::memory();
    create(&db, doc! {});
    for id in 0..55 {
        insert(&db, &[reading(id)]).unwrap();
    }
    assert_eq!(stored(&db).1, [40, 15]);
    insert(&db, &[doc! {"t": Value::DateTime(BEGIN + 7_200_000), "k": 1, "_id": 55}]).unwrap();
    assert_eq!(stored(&db).1, [55, 1]);
    // A point that comes late ends the bucket that is open, as on MongoDB.
    insert(&db, &[reading(56)]).unwrap();
    assert_eq!(stored(&db).1, [55, 1, 1]);
    db.check();
}

#[test]
fn batches_of_any_size_are_kept_in_order() {
    for size in [1, 3, 19, 20, 21, 50, 79, 81, 150, 333, 999, 1000, 1700] {
        let db = Db::memory();
        create(&db, doc! {});
        let ids: Vec<i64> = (0..5000 / size * size).collect();
        for batch in ids.chunks(size as usize) {
            insert(&db, &batch.iter().copied().map(reading).collect::<Vec<_>>()).unwrap();
        }
        let (found, sizes) = stored(&db);
        assert_eq!(found, ids, "{size}");
        assert!(sizes.len() <= 12, "{size}: {sizes:?}");
        db.check();
    }
}

#[test]
fn fields_of_another_type_do_not_join() {
    let db = Db::memory();
    create(&db, doc! {});
    for id in 0..100 {
        let mut document = reading(id);
        if id >= 30 {
            document.push("w", if id % 40 < 20 { Value::Int32(1) } else { Value::from("a") });
        }
        insert(&db, &[document]).unwrap();
    }
    let (mut ids, _) = stored(&db);
    ids.sort_unstable();
    assert_eq!(ids, (0..100).collect::<Vec<i64>>());
    db.check();
}

#[test]
fn no_measurement_is_lost_or_doubled_when_the_power_goes_at_any_commit() {
    let commits = at_every_commit(
        |db| create(db, doc! {}),
        |db| (0..130).try_for_each(|id| insert(db, &[reading(id)])),
        |db| {
            let (ids, _) = stored(db);
            assert_eq!(ids, (0..ids.len() as i64).collect::<Vec<i64>>());
            db.check();
        },
    );
    assert!(commits >= 130, "{commits}");
}

#[test]
fn a_delete_misses_no_measurement_that_moves_meanwhile() {
    let db = Db::memory();
    create(&db, doc! {});
    let inserted = AtomicI64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for id in 0..3000 {
                insert(&db, &[reading(id)]).unwrap();
                inserted.store(id + 1, Ordering::SeqCst);
            }
        });
        scope.spawn(|| {
            while inserted.load(Ordering::SeqCst) < 3000 {
                let until = inserted.load(Ordering::SeqCst);
                delete(&db, doc! {"_id": {"$lt": until}});
                let left = stored(&db).0;
                assert!(left.iter().all(|id| *id >= until), "{until}: {left:?}");
            }
        });
    });
    let (left, _) = stored(&db);
    assert!(left.is_sorted());
    db.check();
}

#[test]
fn a_retried_statement_inserts_nothing_twice() {
    let db = Db::memory();
    create(&db, doc! {});
    let view = db.engine.view(&ns("m")).unwrap();
    let session = kilim_engine::ids::SessionId([7; 16]);
    for id in 0..60 {
        for _ in 0..2 {
            let document = reading(id);
            let outcome = db.run_numbered(session, id + 1, |unit| {
                write::insert_measurements(unit, &view, &[document.as_raw()], true, |at| at as i32)
            });
            assert_eq!(outcome.unwrap().inserted, 1);
        }
    }
    assert_eq!(stored(&db).0, (0..60).collect::<Vec<i64>>());
}
