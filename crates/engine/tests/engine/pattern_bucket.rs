//! Measurements that are packed into buckets: what users see of them, and what is refused.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, Value, doc};
use kilim_engine::patterns::PatternState;
use kilim_engine::upkeep::Part;
use kilim_error::{ErrorCode, Result};

use crate::pattern::{declare, make, one, wait_until_active};
use crate::pipeline::run;
use crate::support::{Db, everywhere, filter, find_and_modify, ids, ns, number, numbered, spec};

const MINUTE: i64 = 60_000;

fn by_minutes() -> Document {
    doc! {"name": "b", "bucket": {
        "timeField": "ts", "metaField": "s", "bucketMaxSpanSeconds": 60, "maxCount": 10,
        "stats": {"t": ["min", "max", "sum", "avg"]},
    }}
}

fn at(millis: i64) -> Value {
    Value::DateTime(millis)
}

/// One measurement each two seconds, of two sensors in turn.
fn measurements(ids: std::ops::Range<i32>) -> Vec<Document> {
    numbered(ids, |id| doc! {"s": id % 2, "ts": at(i64::from(id) * 2000), "t": id, "unit": "C"})
}

fn seal(db: &Db) -> u64 {
    let operation = Arc::clone(&db.engine.operations.start(1));
    db.engine.seal_all(&operation, &ns("m")).unwrap()
}

/// Sixty measurements, all of them sealed.
fn sealed(db: &Db) {
    make(db, &["m"]);
    declare(db, "m", by_minutes()).unwrap();
    db.insert("m", &measurements(0..60));
    assert_eq!(seal(db), 60);
}

fn buckets(db: &Db) -> Vec<Document> {
    run(db, "m.buckets", Vec::new())
}

fn bucket(db: &Db, meta: i32, span: i64) -> Document {
    let found = run(db, "m.buckets", vec![doc! {"$match": {"meta": meta, "_id.span": at(span)}}]);
    assert_eq!(found.len(), 1, "{found:?}");
    found.into_iter().next().unwrap()
}

fn verify(db: &Db) -> (u64, u64) {
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns("m"), "b").unwrap();
    let found = db.engine.verify_pattern(&operation, &pattern, Part::default(), 10).unwrap();
    assert_eq!(found.wrong, 0, "{:?}", found.examples);
    (found.checked, found.wrong)
}

#[track_caller]
fn check(db: &Db) {
    db.check();
    assert_eq!(verify(db).0, db.count("m", doc! {}));
    let counts: i64 = buckets(db).iter().map(|bucket| number(bucket, "count")).sum();
    assert_eq!(counts as u64, db.count("m", doc! {}));
}

fn drop_pattern(db: &Db) -> Result<()> {
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns("m"), "b")?;
    db.engine.drop_pattern(&operation, &pattern)
}

fn modify(db: &Db, changes: Document) -> Result<()> {
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns("m"), "b")?;
    let modified = db.engine.modify_pattern(&operation, &pattern, changes.as_raw())?;
    if modified.state == PatternState::Building {
        db.engine.begin_filling(&modified);
    }
    wait_until_active(db, "m", "b");
    Ok(())
}

#[test]
fn sealed_measurements_are_read_as_single_documents() {
    everywhere(|db| {
        sealed(&db);
        assert_eq!(db.find("m", doc! {}), measurements(0..60));
        assert_eq!(one(&db, "m", doc! {"_id": 17}), measurements(17..18)[0]);
        assert_eq!(ids(&db.find("m", doc! {"t": {"$gte": 57}})), [57, 58, 59]);
        let range = doc! {"s": 1, "ts": {"$gte": at(20_000), "$lt": at(30_000)}};
        assert_eq!(ids(&db.find("m", range.clone())), [11, 13]);
        assert_eq!(ids(&db.find_by("m", range, "kilim_b_1")), [11, 13]);
        assert_eq!(db.count("m", doc! {"unit": "C"}), 60);
        check(&db);
    });
}

/// Rows of an index range lie side by side in their buckets, but for those that were taken out of them.
#[test]
fn a_range_passes_over_what_left_its_bucket() {
    everywhere(|db| {
        sealed(&db);
        let mut rows = measurements(0..60);
        db.delete("m", doc! {"_id": 4}).unwrap();
        db.delete("m", doc! {"_id": {"$in": [20, 22, 24]}}).unwrap();
        db.update("m", doc! {"_id": 10}, doc! {"$set": {"t": 1000}}).unwrap();
        db.update("m", doc! {"_id": 48}, doc! {"$set": {"ts": at(25_000)}}).unwrap();
        let late = doc! {"_id": 99, "s": 0, "ts": at(13_000), "t": 99, "unit": "C"};
        db.insert("m", std::slice::from_ref(&late));
        let changed = |row: &Document, name: &str, value: Value| -> Document {
            let fields =
                row.iter().map(|(it, old)| (it, if it == name { value.clone() } else { old.to_value() }));
            fields.collect()
        };
        rows[10] = changed(&rows[10], "t", Value::from(1000));
        rows[48] = changed(&rows[48], "ts", at(25_000));
        rows.push(late);
        rows.retain(|row| ![4, 20, 22, 24].contains(&number(row, "_id")) && number(row, "s") == 0);
        rows.sort_by_key(|row| match row.get("ts").unwrap() {
            RawValue::DateTime(time) => time,
            other => panic!("{other:?}"),
        });

        let sorted = |db: &Db, direction: i32| {
            run(db, "m", vec![doc! {"$match": {"s": 0}}, doc! {"$sort": {"ts": direction}}])
        };
        let mut backward = rows.clone();
        backward.reverse();
        for _ in 0..2 {
            assert_eq!(db.find_by("m", doc! {"s": 0, "ts": {"$gte": at(0)}}, "kilim_b_1"), rows);
            assert_eq!(sorted(&db, 1), rows);
            assert_eq!(sorted(&db, -1), backward);
            check(&db);
            // Once more with all that lies open in buckets of their own.
            seal(&db);
        }
    });
}

#[test]
fn a_bucket_tells_of_its_measurements() {
    everywhere(|db| {
        sealed(&db);
        let asked = vec![doc! {"$match": {"meta": 0, "_id.span": at(MINUTE)}}, doc! {"$sort": {"from": 1}}];
        let shown = run(&db, "m.buckets", asked);
        // Fifteen measurements of a sensor lie in a minute, ten of them fill a bucket.
        assert_eq!(shown.iter().map(|it| number(it, "count")).collect::<Vec<_>>(), [10, 5]);
        let told: Document = shown[0]
            .iter()
            .filter(|(name, _)| *name != "_id")
            .map(|(name, value)| (name, value.to_value()))
            .collect();
        let expected = doc! {
            "meta": 0, "from": at(MINUTE), "to": at(MINUTE + 36_000), "count": 10,
            "stats": {"t": {"min": 30, "max": 48, "sum": 390, "avg": 39.0}}, "sealed": true,
        };
        assert_eq!(told, expected);
        check(&db);
    });
}

#[test]
fn stats_stay_exact_when_the_minimum_is_deleted_and_a_value_changes() {
    everywhere(|db| {
        make(&db, &["m"]);
        declare(&db, "m", doc! {"name": "b", "bucket": {
            "timeField": "ts", "metaField": "s", "bucketMaxSpanSeconds": 60, "stats": {"t": ["min", "max", "sum", "avg"]},
        }})
        .unwrap();
        db.insert("m", &measurements(0..30));
        assert_eq!(seal(&db), 30);
        let stats = |db: &Db| {
            let shown = bucket(db, 0, 0);
            let stats = shown.get("stats").unwrap().as_document().unwrap().get("t").unwrap();
            (number(&shown, "count"), stats.as_document().unwrap().to_document())
        };
        assert_eq!(stats(&db), (15, doc! {"min": 0, "max": 28, "sum": 210, "avg": 14.0}));
        db.delete("m", doc! {"_id": 0}).unwrap();
        assert_eq!(stats(&db), (14, doc! {"min": 2, "max": 28, "sum": 210, "avg": 15.0}));
        db.update("m", doc! {"_id": 2}, doc! {"$set": {"t": Value::Null}}).unwrap();
        // Changed measurements are open until they are packed again: they are told of apart.
        let all = run(&db, "m.buckets", vec![doc! {"$match": {"meta": 0}}]);
        assert_eq!(all.iter().map(|bucket| number(bucket, "count")).sum::<i64>(), 14);
        let least = all.iter().map(|bucket| {
            let stats = bucket.get("stats").unwrap().as_document().unwrap().get("t").unwrap();
            stats.as_document().unwrap().get("min").unwrap().to_value()
        });
        let least: Vec<String> = least.map(|value| format!("{value:?}")).collect();
        assert_eq!(least, ["Int32(4)", "Null"]);
        check(&db);
    });
}

#[test]
fn sealed_measurements_are_changed_and_deleted_one_by_one() {
    everywhere(|mut db| {
        sealed(&db);
        assert_eq!(db.update("m", doc! {"_id": 5}, doc! {"$set": {"t": 500}}).unwrap().modified, 1);
        assert_eq!(
            db.update_many("m", doc! {"s": 0, "t": {"$lt": 10}}, doc! {"$inc": {"t": 1000}})
                .unwrap()
                .modified,
            5
        );
        assert_eq!(db.delete("m", doc! {"_id": 7}).unwrap(), 1);
        assert_eq!(db.upsert("m", doc! {"_id": 9}, doc! {"$set": {"t": 900}}).unwrap().modified, 1);
        let modified = db
            .run(|unit| find_and_modify(unit, "m", doc! {"_id": 11}, doc! {"$set": {"t": 1100}}, None))
            .unwrap();
        assert_eq!(number(&modified.value.unwrap(), "t"), 1100);
        let replaced = doc! {"s": 1, "ts": at(5), "other": true};
        db.update("m", doc! {"_id": 13}, replaced).unwrap();
        assert_eq!(one(&db, "m", doc! {"other": true}), doc! {"_id": 13, "s": 1, "ts": at(5), "other": true});
        assert_eq!(db.count("m", doc! {}), 59);
        assert_eq!(ids(&db.find("m", doc! {"t": {"$gte": 500}})), [0, 2, 4, 5, 6, 8, 9, 11]);
        check(&db);
        let before = db.find("m", doc! {});
        seal(&db);
        assert_eq!(db.find("m", doc! {}), before);
        check(&db);
        if db.is_durable() {
            db.reopen();
            assert_eq!(db.find("m", doc! {}), before);
            check(&db);
            seal(&db);
            assert_eq!(db.find("m", doc! {}), before);
            check(&db);
        }
    });
}

#[test]
fn worn_buckets_are_packed_again_and_empty_ones_go() {
    everywhere(|db| {
        sealed(&db);
        let before = buckets(&db).len();
        db.delete("m", doc! {"_id": {"$lt": 30}}).unwrap();
        seal(&db);
        assert!(buckets(&db).len() < before);
        let shown = buckets(&db);
        assert!(
            shown.iter().all(|bucket| bucket.get("sealed").and_then(RawValue::as_bool) == Some(true)),
            "{shown:?}"
        );
        assert_eq!(db.find("m", doc! {}), measurements(30..60));
        check(&db);
        db.delete("m", doc! {}).unwrap();
        seal(&db);
        assert!(buckets(&db).is_empty());
        check(&db);
    });
}

#[test]
fn a_late_point_goes_to_its_own_span() {
    everywhere(|db| {
        sealed(&db);
        db.insert("m", &[doc! {"_id": 100, "s": 0, "ts": at(1), "t": -5}]);
        let shown =
            run(&db, "m.buckets", vec![doc! {"$match": {"meta": 0, "_id.span": at(0), "sealed": false}}]);
        assert_eq!(shown.len(), 1, "{shown:?}");
        assert_eq!(number(&shown[0], "count"), 1);
        let range = doc! {"s": 0, "ts": {"$lt": at(4000)}};
        assert_eq!(ids(&db.find("m", range)), [0, 100]);
        check(&db);
    });
}

#[test]
fn a_duplicate_of_meta_and_time_is_refused_where_that_was_asked_for() {
    everywhere(|db| {
        make(&db, &["m"]);
        let unique = doc! {"name": "b", "bucket": {"timeField": "ts", "metaField": "s", "unique": true}};
        declare(&db, "m", unique).unwrap();
        db.insert("m", &measurements(0..20));
        assert_eq!(seal(&db), 20);
        let error = db.try_insert("m", doc! {"_id": 100, "s": 1, "ts": at(2000)}).unwrap_err();
        assert_eq!(error.code(), ErrorCode::DuplicateKey);
        assert!(error.to_string().contains("E11000"), "{error}");
        let error = db.update("m", doc! {"_id": 4}, doc! {"$set": {"ts": at(0)}}).unwrap_err();
        assert_eq!(error.code(), ErrorCode::DuplicateKey);
        db.delete("m", doc! {"_id": 1}).unwrap();
        db.insert("m", &[doc! {"_id": 100, "s": 1, "ts": at(2000)}]);
        let other = doc! {"bucket": {"unique": false}};
        assert_eq!(modify(&db, other).unwrap_err().code(), ErrorCode::PatternNotReady);
        check(&db);
        // Without it, the same time comes any number of times.
        make(&db, &["n"]);
        declare(&db, "n", by_minutes()).unwrap();
        db.insert("n", &[doc! {"s": 1, "ts": at(0)}, doc! {"s": 1, "ts": at(0)}]);
    });
}

#[test]
fn a_field_that_is_null_a_text_or_missing_comes_back_as_it_was() {
    everywhere(|mut db| {
        make(&db, &["m"]);
        declare(&db, "m", by_minutes()).unwrap();
        let values = [Value::Null, Value::from("warm"), Value::Int32(3), Value::Int64(3), Value::Double(3.0)];
        let all: Vec<Document> = (0..40)
            .map(|id| {
                let mut row = doc! {"_id": id, "s": 1, "ts": at(i64::from(id) * 100)};
                if id % 6 < 5 {
                    row.push("t", values[id as usize % 6].as_raw());
                }
                row
            })
            .collect();
        db.insert("m", &all);
        assert_eq!(seal(&db), 40);
        assert_eq!(buckets(&db).len(), 4);
        assert_eq!(db.find("m", doc! {}), all);
        check(&db);
        if db.is_durable() {
            db.reopen();
            assert_eq!(db.find("m", doc! {}), all);
            check(&db);
        }
    });
}

#[test]
fn a_measurement_without_a_time_stays_open_and_is_told_of() {
    everywhere(|db| {
        make(&db, &["m"]);
        declare(&db, "m", by_minutes()).unwrap();
        let odd = [
            doc! {"_id": 1, "s": 1},
            doc! {"_id": 2, "s": 1, "ts": Value::Null, "t": 4},
            doc! {"_id": 3, "s": 1, "ts": "now"},
            doc! {"_id": 4, "ts": at(i64::MIN)},
            doc! {"_id": 5, "ts": at(i64::MAX)},
            doc! {"_id": 6, "ts": at(i64::MIN + 1)},
        ];
        db.insert("m", &odd);
        assert_eq!(seal(&db), 2);
        assert_eq!(db.find("m", doc! {}), odd);
        let without = run(&db, "m.buckets", vec![doc! {"$match": {"_id.span": Value::Null}}]);
        assert_eq!(without.len(), 1);
        assert_eq!(number(&without[0], "count"), 3);
        check(&db);
        // It gets a time, and is packed with others.
        db.update("m", doc! {"_id": 1}, doc! {"$set": {"ts": at(1)}}).unwrap();
        db.update("m", doc! {"_id": 2}, doc! {"$set": {"ts": at(2)}}).unwrap();
        assert_eq!(seal(&db), 2);
        check(&db);
    });
}

#[test]
fn large_measurements_are_packed_by_their_bytes_or_left_open() {
    everywhere(|db| {
        make(&db, &["m"]);
        let narrow = doc! {"name": "b", "bucket": {"timeField": "ts", "maxBytes": 2000}};
        declare(&db, "m", narrow).unwrap();
        let rows = numbered(0..30, |id| doc! {"ts": at(i64::from(id)), "x": "y".repeat(500)});
        db.insert("m", &rows);
        db.insert("m", &[doc! {"_id": 100, "ts": at(100), "x": "z".repeat(15 << 20)}]);
        seal(&db);
        assert!(buckets(&db).len() >= 10);
        assert_eq!(db.count("m", doc! {}), 31);
        assert_eq!(db.count("m", doc! {"x": {"$regex": "^zz"}}), 1);
        check(&db);
    });
}

#[test]
fn places_that_become_due_together_are_packed_in_as_many_commits_as_they_need() {
    everywhere(|db| {
        make(&db, &["m"]);
        declare(&db, "m", by_minutes()).unwrap();
        // Twelve megabytes of thirty sensors, which come in turn.
        let text = "x".repeat(40_000);
        let rows = numbered(
            0..300,
            |id| doc! {"s": id % 30, "ts": at(i64::from(id)), "t": id, "text": text.as_str()},
        );
        rows.chunks(50).for_each(|rows| db.insert("m", rows));
        // Three of a sensor fill a bucket, and its last one is left alone.
        assert_eq!(seal(&db), 270);
        assert_eq!(db.find("m", doc! {}), rows);
        assert_eq!(run(&db, "m.buckets", vec![doc! {"$match": {"sealed": true}}]).len(), 90);
        check(&db);
    });
}

#[test]
fn the_span_changes_both_ways() {
    everywhere(|mut db| {
        sealed(&db);
        let all = db.find("m", doc! {});
        for (span, count) in [(3600, 50), (10, 7), (60, 10)] {
            modify(&db, doc! {"bucket": {"bucketMaxSpanSeconds": span, "maxCount": count}}).unwrap();
            assert_eq!(db.find("m", doc! {}), all);
            check(&db);
            seal(&db);
            assert_eq!(db.find("m", doc! {}), all);
            let millis = i64::from(span) * 1000;
            for shown in buckets(&db) {
                let RawValue::DateTime(from) = shown.get("from").unwrap() else { panic!("{shown:?}") };
                let RawValue::DateTime(to) = shown.get("to").unwrap() else { panic!("{shown:?}") };
                assert_eq!(from.div_euclid(millis), to.div_euclid(millis));
                assert!(number(&shown, "count") <= i64::from(count));
            }
            check(&db);
        }
        let hours = doc! {"bucket": {"bucketMaxSpanSeconds": Value::Null, "granularity": "hours"}};
        modify(&db, hours).unwrap();
        seal(&db);
        assert_eq!(db.find("m", doc! {}), all);
        check(&db);
        if db.is_durable() {
            db.reopen();
            assert_eq!(db.find("m", doc! {}), all);
            check(&db);
        }
    });
}

#[test]
fn buckets_without_a_time_are_full_and_in_order() {
    everywhere(|db| {
        make(&db, &["m"]);
        let posts = doc! {"name": "b", "bucket": {"metaField": "post", "maxCount": 5, "order": "_id", "stats": {"likes": ["sum"]}}};
        declare(&db, "m", posts).unwrap();
        db.insert("m", &numbered(0..24, |id| doc! {"post": id % 2, "likes": id}));
        assert_eq!(seal(&db), 24);
        let shown = run(&db, "m.buckets", vec![doc! {"$match": {"meta": 0}}, doc! {"$sort": {"from": 1}}]);
        let bounds: Vec<(i64, i64, i64)> =
            shown.iter().map(|it| (number(it, "from"), number(it, "to"), number(it, "count"))).collect();
        assert_eq!(bounds, [(0, 8, 5), (10, 18, 5), (20, 22, 2)]);
        check(&db);
    });
}

#[test]
fn layout_rows_shows_the_readings() {
    everywhere(|db| {
        make(&db, &["m"]);
        let rows = doc! {"name": "b", "bucket": {"timeField": "ts", "metaField": "s", "layout": "rows"}};
        declare(&db, "m", rows).unwrap();
        db.insert("m", &measurements(0..6));
        for is_sealed in [false, true] {
            let shown = run(&db, "m.buckets", vec![doc! {"$match": {"meta": 1, "sealed": is_sealed}}]);
            assert_eq!(shown.len(), 1, "{is_sealed}");
            let readings = shown[0].get("readings").unwrap().as_array().unwrap();
            let readings: Vec<i64> =
                readings.iter().map(|it| number(&it.as_document().unwrap().to_document(), "_id")).collect();
            assert_eq!(readings, [1, 3, 5]);
            seal(&db);
        }
        assert_eq!(db.find("m", doc! {}), measurements(0..6));
        check(&db);
    });
}

#[test]
fn measurements_expire_by_their_time() {
    everywhere(|db| {
        make(&db, &["m", "totals"]);
        let now = db.engine.now_millis();
        let expiring =
            doc! {"name": "b", "bucket": {"timeField": "ts", "metaField": "s", "expireAfterSeconds": 100}};
        declare(&db, "m", expiring).unwrap();
        let rollup = doc! {"name": "n", "computed": {
            "from": "m", "pipeline": [{"$group": {"_id": "$s", "n": {"$count": {}}}}], "whenNotMatched": "insert",
        }};
        declare(&db, "totals", rollup).unwrap();
        db.insert("m", &numbered(0..20, |id| doc! {"s": 1, "ts": at(now - 10_000 * i64::from(id))}));
        seal(&db);
        let operation = db.engine.operations.start(0);
        assert_eq!(db.engine.expire(&operation).unwrap(), 10);
        assert_eq!(db.count("m", doc! {}), 10);
        assert_eq!(number(&one(&db, "totals", doc! {}), "n"), 10);
        check(&db);
    });
}

#[test]
fn patterns_on_top_of_measurements_stay_true() {
    everywhere(|db| {
        sealed(&db);
        make(&db, &["sensors"]);
        db.insert("sensors", &[doc! {"_id": 0}, doc! {"_id": 1}]);
        let total = doc! {"name": "total", "computed": {"from": "m", "pipeline": [
            {"$group": {"_id": "$s", "n": {"$count": {}}, "most": {"$max": "$t"}, "sum": {"$sum": "$t"}}},
        ]}};
        declare(&db, "sensors", total).unwrap();
        let latest = doc! {"name": "latest", "subset": {
            "from": "m", "foreignField": "s", "as": "latest", "sort": {"ts": -1}, "limit": 2, "fields": {"t": 1},
        }};
        declare(&db, "sensors", latest).unwrap();
        wait_until_active(&db, "sensors", "total");
        wait_until_active(&db, "sensors", "latest");
        let seen = |id: i32| one(&db, "sensors", doc! {"_id": id});
        assert_eq!((number(&seen(1), "n"), number(&seen(1), "most")), (30, 59));
        db.delete("m", doc! {"_id": 59}).unwrap();
        db.update("m", doc! {"_id": 1}, doc! {"$inc": {"t": 10}}).unwrap();
        seal(&db);
        assert_eq!(
            (number(&seen(1), "n"), number(&seen(1), "most"), number(&seen(1), "sum")),
            (29, 57, 900 - 59 + 10)
        );
        for name in ["total", "latest"] {
            let operation = Arc::clone(&db.engine.operations.start(1));
            let pattern = db.engine.pattern(&ns("sensors"), name).unwrap();
            let found = db.engine.verify_pattern(&operation, &pattern, Part::default(), 10).unwrap();
            assert_eq!(found.wrong, 0);
        }
        check(&db);
    });
}

#[test]
fn a_dropped_pattern_leaves_single_documents() {
    everywhere(|mut db| {
        sealed(&db);
        db.update("m", doc! {"_id": 3}, doc! {"$set": {"t": 0}}).unwrap();
        let all = db.find("m", doc! {});
        let mut old = db.transaction(1, 1);
        // It has a snapshot from before the drop, and has not read the measurements yet.
        old.count("other", doc! {}).unwrap();
        drop_pattern(&db).unwrap();
        assert_eq!(db.find("m", doc! {}), all);
        assert_eq!(old.find("m", doc! {}).unwrap(), all);
        old.commit().unwrap();
        assert!(db.engine.view(&ns("m.buckets")).is_none());
        db.check();
        db.insert("m", &[doc! {"_id": 1000}]);
        if db.is_durable() {
            db.reopen();
            assert_eq!(db.count("m", doc! {}), 61);
            db.delete("m", doc! {"_id": 1000}).unwrap();
            assert_eq!(db.find("m", doc! {}), all);
            db.check();
        }
        declare(&db, "m", by_minutes()).unwrap();
        seal(&db);
        check(&db);
    });
}

#[test]
fn buckets_follow_their_collection() {
    everywhere(|db| {
        sealed(&db);
        let all = db.find("m", doc! {});
        db.rename("m", "n", false).unwrap();
        assert_eq!(db.find("n", doc! {}), all);
        assert!(!run(&db, "n.buckets", Vec::new()).is_empty());
        assert!(db.engine.view(&ns("m.buckets")).is_none());
        db.rename("n", "m", false).unwrap();
        db.update("m", doc! {"_id": 1}, doc! {"$set": {"t": 7}}).unwrap();
        seal(&db);
        check(&db);
        make(&db, &["k.buckets"]);
        assert_eq!(db.rename("m", "k", false).unwrap_err().code(), ErrorCode::NamespaceExists);
        db.drop_collection("m").unwrap();
        assert!(db.engine.view(&ns("m.buckets")).is_none());
        db.check();
    });
}

#[test]
fn buckets_are_read_and_not_written() {
    everywhere(|db| {
        sealed(&db);
        let code = |result: Result<()>| result.unwrap_err().code();
        let owned = ErrorCode::CollectionOwnedByPattern;
        assert_eq!(code(db.try_insert("m.buckets", doc! {"_id": 1})), owned);
        assert_eq!(code(db.update("m.buckets", doc! {}, doc! {"$set": {"count": 1}}).map(drop)), owned);
        assert_eq!(code(db.delete("m.buckets", doc! {}).map(drop)), owned);
        assert_eq!(code(db.engine.drop_view(&ns("m.buckets")).map(drop)), owned);
        assert!(db.engine.create_collection(&ns("m.buckets"), Document::new()).is_err());
        assert!(declare(&db, "m.buckets", by_minutes()).is_err());
        let drop_all = db.drop_collection("kilim.patterns");
        assert_eq!(drop_all.unwrap_err().code(), ErrorCode::PatternNotReady);
        check(&db);
    });
}

#[test]
fn what_cannot_be_packed_is_refused() {
    everywhere(|db| {
        let create = |name: &str, options: Document| db.engine.create_collection(&ns(name), options).unwrap();
        create("capped", doc! {"capped": true, "size": 100_000i64});
        create("clustered", doc! {"clusteredIndex": {"key": {"_id": 1}, "unique": true}});
        let code = |name: &str, what: Document| declare(&db, name, what).unwrap_err().code();
        assert_eq!(code("capped", by_minutes()), ErrorCode::BadValue);
        assert_eq!(code("clustered", by_minutes()), ErrorCode::BadValue);
        make(&db, &["taken", "taken.buckets"]);
        assert_eq!(code("taken", by_minutes()), ErrorCode::NamespaceExists);
        sealed(&db);
        let conflict = ErrorCode::PatternFieldConflict;
        assert_eq!(code("m", doc! {"name": "c", "bucket": {"timeField": "ts"}}), conflict);
        assert_eq!(code("m", doc! {"name": "o", "outlier": {"field": "list"}}), conflict);
        let version = doc! {"name": "v", "schemaVersion": {"field": "v", "from": 1, "to": 2, "up": [{"$set": {"x": 1}}]}};
        assert_eq!(code("m", version), conflict);
        make(&db, &["users"]);
        declare(&db, "users", doc! {"name": "o", "outlier": {"field": "list"}}).unwrap();
        assert_eq!(code("users", by_minutes()), ErrorCode::BadValue);
        assert_eq!(code("users.overflow", by_minutes()), ErrorCode::BadValue);
        check(&db);
    });
}

#[test]
fn a_transaction_sees_its_own_changes_and_others_do_not() {
    everywhere(|db| {
        sealed(&db);
        let mut transaction = db.transaction(1, 1);
        transaction.update("m", doc! {"_id": 5}, doc! {"$set": {"t": 500}}).unwrap();
        transaction.run(|unit| crate::support::delete(unit, "m", doc! {"_id": 6}, true)).unwrap();
        transaction.insert("m", doc! {"_id": 100, "s": 0, "ts": at(3), "t": 1}).unwrap();
        assert_eq!(transaction.count("m", doc! {}).unwrap(), 60);
        assert_eq!(number(&transaction.find("m", doc! {"_id": 5}).unwrap()[0], "t"), 500);
        assert_eq!(number(&one(&db, "m", doc! {"_id": 5}), "t"), 5);
        assert_eq!(db.count("m", doc! {"_id": 6}), 1);
        // What it holds stays where it is while others are packed anew.
        db.delete("m", doc! {"_id": {"$in": [0, 2, 4, 8]}}).unwrap();
        seal(&db);
        assert_eq!(number(&one(&db, "m", doc! {"_id": 5}), "t"), 5);
        transaction.commit().unwrap();
        assert_eq!(number(&one(&db, "m", doc! {"_id": 5}), "t"), 500);
        assert_eq!(db.count("m", doc! {"_id": 6}), 0);
        check(&db);
        seal(&db);
        check(&db);
        let mut aborted = db.transaction(1, 2);
        aborted.update("m", doc! {"s": 1}, doc! {"$set": {"t": -1}}).unwrap();
        aborted.abort().unwrap();
        assert_eq!(db.count("m", doc! {"t": -1}), 0);
        check(&db);
    });
}

#[test]
fn a_measurement_that_a_transaction_inserts_is_packed_after_its_commit() {
    everywhere(|db| {
        make(&db, &["m"]);
        declare(&db, "m", by_minutes()).unwrap();
        let mut transaction = db.transaction(1, 1);
        for row in measurements(0..4) {
            transaction.insert("m", row).unwrap();
        }
        assert_eq!(seal(&db), 0);
        transaction.commit().unwrap();
        assert_eq!(seal(&db), 4);
        check(&db);
    });
}

#[test]
fn documents_from_before_the_declaration_are_packed_and_the_pattern_is_active_at_once() {
    everywhere(|db| {
        make(&db, &["m"]);
        db.insert("m", &measurements(0..60));
        let pattern = declare(&db, "m", by_minutes()).unwrap();
        assert_eq!(pattern.state, PatternState::Active);
        assert_eq!(seal(&db), 60);
        assert_eq!(db.find("m", doc! {}), measurements(0..60));
        check(&db);
    });
}

#[test]
fn an_index_over_sealed_measurements_is_built_of_what_they_hold() {
    everywhere(|db| {
        sealed(&db);
        db.build("m", vec![spec(doc! {"t": -1})]).unwrap();
        assert_eq!(ids(&db.find_by("m", doc! {"t": {"$gt": 55}}, "t_-1")), [59, 58, 57, 56]);
        check(&db);
    });
}

#[test]
fn a_paused_pattern_packs_nothing_and_is_read_as_before() {
    everywhere(|db| {
        sealed(&db);
        let operation = Arc::clone(&db.engine.operations.start(1));
        let pattern = db.engine.pattern(&ns("m"), "b").unwrap();
        db.engine.pause_pattern(&operation, &pattern).unwrap();
        db.insert("m", &measurements(60..80));
        assert_eq!(seal(&db), 0);
        assert_eq!(db.find("m", doc! {}), measurements(0..80));
        let pattern = db.engine.pattern(&ns("m"), "b").unwrap();
        let resumed = db.engine.restart_pattern(&operation, &pattern).unwrap();
        db.engine.begin_filling(&resumed);
        wait_until_active(&db, "m", "b");
        assert_eq!(seal(&db), 20);
        check(&db);
    });
}

#[test]
fn validate_tells_of_buckets_that_are_not_true() {
    let db = Db::memory();
    sealed(&db);
    // A slip whose measurement is said to have left the bucket, and one whose bucket is gone.
    let collection = db.engine.collection(&ns("m")).unwrap();
    let key = |record: u64| {
        let mut key = collection.id.0.to_be_bytes().to_vec();
        key.extend_from_slice(&record.to_be_bytes());
        key
    };
    let space = kilim_storage::Space::Records;
    let mut transaction = db.engine.store.begin();
    let mut hole = vec![0; 8];
    hole.extend_from_slice(doc! {}.as_bytes());
    transaction.put(space, key((1 << 63) + (1 << 24) + 1), hole);
    transaction.commit(kilim_engine::Durability::Relaxed).unwrap();
    let faults = db.faults();
    assert!(faults.iter().any(|fault| fault.contains("is in use and has a hole")), "{faults:?}");
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns("m"), "b").unwrap();
    let found = db.engine.verify_pattern(&operation, &pattern, Part::default(), 10).unwrap();
    assert!(found.wrong > 0);
    let pattern = db.engine.pattern(&ns("m"), "b").unwrap();
    db.engine.repair_pattern(&operation, &pattern, Part::default(), 10).unwrap();
    assert_eq!(db.find("m", doc! {}), measurements(0..60));
    check(&db);
    // A bucket that is gone.
    let last = db.engine.seal_all(&operation, &ns("m")).map(|_| buckets(&db).len()).unwrap();
    assert!(last > 0);
    db.insert("m", &measurements(60..70));
    seal(&db);
    let numbers: Vec<i64> = buckets(&db)
        .iter()
        .map(|bucket| number(&bucket.get("_id").unwrap().as_document().unwrap().to_document(), "part"))
        .collect();
    let gone = numbers.iter().max().unwrap();
    let mut transaction = db.engine.store.begin();
    transaction.delete(space, &key((1 << 63) + ((*gone as u64) << 24)));
    transaction.commit(kilim_engine::Durability::Relaxed).unwrap();
    let faults = db.faults();
    assert!(faults.iter().any(|fault| fault.contains("is missing")), "{faults:?}");
}

#[test]
fn writers_and_whoever_seals_do_not_lose_each_others_work() {
    let db = Db::disk();
    make(&db, &["m"]);
    declare(&db, "m", by_minutes()).unwrap();
    db.insert("m", &measurements(0..200));
    let done = std::sync::atomic::AtomicBool::new(false);
    let (mut added, mut deleted) = (0, 0);
    std::thread::scope(|scope| {
        let sealing = scope.spawn(|| {
            let mut sealed = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                sealed += seal(&db);
            }
            sealed
        });
        let adding: Vec<_> = (0..3)
            .map(|writer| {
                let db = &db;
                scope.spawn(move || {
                    let mut dice = crate::pattern_history::world::Dice::new(writer + 1);
                    let mut added = 0;
                    for _ in 0..300 {
                        let id = dice.roll(150);
                        added += db.update("m", doc! {"_id": id}, doc! {"$inc": {"t": 1}}).unwrap().modified;
                    }
                    added
                })
            })
            .collect();
        let deleting =
            scope.spawn(|| (150..200).map(|id| db.delete("m", doc! {"_id": id}).unwrap()).sum::<u64>());
        let inserting = scope.spawn(|| {
            for id in 200..300 {
                db.insert("m", &measurements(id..id + 1));
            }
        });
        added = adding.into_iter().map(|adding| adding.join().unwrap()).sum::<u64>();
        deleted = deleting.join().unwrap();
        inserting.join().unwrap();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(sealing.join().unwrap() > 200);
    });
    assert_eq!((added, deleted), (900, 50));
    let all = db.find("m", doc! {});
    assert_eq!(all.len(), 250);
    let expected: i64 = (0..150).chain(200..300).sum::<i64>() + 900;
    assert_eq!(all.iter().map(|row| number(row, "t")).sum::<i64>(), expected);
    check(&db);
}

#[test]
fn the_pass_in_the_background_packs_what_fills_a_bucket() {
    everywhere(|db| {
        make(&db, &["m"]);
        declare(&db, "m", by_minutes()).unwrap();
        let future = db.engine.now_millis() + 1_000_000;
        db.insert("m", &numbered(0..25, |id| doc! {"s": 1, "ts": at(future - future % MINUTE), "t": id}));
        db.engine.tick();
        let is_sealed = || run(&db, "m.buckets", vec![doc! {"$match": {"sealed": true}}]).len() == 2;
        crate::support::eventually("full buckets are sealed", is_sealed);
        // Five are left, whose span is not over.
        let open = run(&db, "m.buckets", vec![doc! {"$match": {"sealed": false}}]);
        assert_eq!(open.iter().map(|it| number(it, "count")).collect::<Vec<_>>(), [5]);
        check(&db);
    });
}

/// The power goes at every commit of what is done to sealed measurements; none is lost, none is there twice.
fn cut_at_every_commit(act: impl Fn(&Db) -> Result<()>, expected: impl Fn(&[Document]) -> bool) {
    let prepare = |db: &Db| {
        sealed(db);
        db.insert("m", &measurements(60..90));
        db.delete("m", doc! {"_id": {"$in": [0, 2, 4, 7]}}).unwrap();
    };
    let cuts = crate::pattern_crash::at_every_commit(prepare, act, |db| {
        let all = db.find("m", doc! {});
        assert!(expected(&all), "{all:?}");
        if db.engine.pattern(&ns("m"), "b").is_ok() {
            seal(db);
            assert_eq!(db.find("m", doc! {}), all);
            check(db);
        }
    });
    assert!(cuts > 0);
}

fn left() -> Vec<Document> {
    let mut left = measurements(0..90);
    left.retain(|row| ![0, 2, 4, 7].contains(&number(row, "_id")));
    left
}

#[test]
fn the_power_goes_at_every_commit_of_sealing_and_repacking() {
    let act = |db: &Db| {
        let operation = Arc::clone(&db.engine.operations.start(1));
        db.engine.seal_all(&operation, &ns("m")).map(drop)
    };
    cut_at_every_commit(act, |all| all == left());
}

#[test]
fn the_power_goes_at_every_commit_of_another_span() {
    let act = |db: &Db| {
        let operation = Arc::clone(&db.engine.operations.start(1));
        let pattern = db.engine.pattern(&ns("m"), "b")?;
        let changes = doc! {"bucket": {"bucketMaxSpanSeconds": 10}, "backfill": {"batch": 20}};
        let modified = db.engine.modify_pattern(&operation, &pattern, changes.as_raw())?;
        if modified.state == PatternState::Building {
            db.engine.begin_filling(&modified);
        }
        Ok(())
    };
    cut_at_every_commit(act, |all| all == left());
}

#[test]
fn the_power_goes_at_every_commit_of_a_drop() {
    cut_at_every_commit(drop_pattern, |all| all == left());
}

#[test]
fn the_power_goes_at_every_commit_of_changes_to_sealed_measurements() {
    let act = |db: &Db| {
        for id in [10, 11, 12, 70] {
            db.update("m", doc! {"_id": id}, doc! {"$inc": {"t": 1000}})?;
        }
        db.delete("m", doc! {"_id": 13}).map(drop)
    };
    cut_at_every_commit(act, |all| {
        let plain = |row: &Document| -> Document {
            let t = number(row, "t") % 1000;
            let row = row.iter().map(|(name, value)| (name, value.to_value()));
            row.map(|(name, value)| (name, if name == "t" { Value::Int32(t as i32) } else { value }))
                .collect()
        };
        let all: Vec<Document> = all.iter().map(plain).collect();
        let mut others = left();
        others.retain(|row| number(row, "_id") != 13);
        all == left() || all == others
    });
}

#[test]
fn a_salvaged_directory_has_all_measurements() {
    let directory = tempfile::tempdir().unwrap();
    let (data, out) = (directory.path().join("data"), directory.path().join("out"));
    let open = |path: &std::path::Path| {
        Db::over(kilim_storage::Store::open(path, kilim_engine::StorageOptions::default()).unwrap())
    };
    let db = open(&data);
    sealed(&db);
    db.update("m", doc! {"_id": 5}, doc! {"$set": {"t": 500}}).unwrap();
    db.delete("m", doc! {"_id": 7}).unwrap();
    let seen = db.find("m", doc! {});
    db.engine.close().unwrap();
    drop(db);
    let found = kilim_engine::jobs::check_directory(&data, None).unwrap();
    assert!(found.is_clean(), "{:?} {:?}", found.problems, found.collections);
    let told = kilim_engine::jobs::salvage_directory(&data, &out).unwrap();
    assert!(told.is_whole());
    assert!(told.collections.iter().any(|each| each.namespace == "test.m" && each.records == 59));
    let db = open(&out);
    assert_eq!(db.find("m", doc! {}), seen);
    check(&db);
    assert_eq!(seal(&db), 59);
    assert_eq!(db.find("m", doc! {}), seen);
    check(&db);
    db.engine.close().unwrap();
}

#[test]
fn a_large_collection_is_scanned_bucket_by_bucket() {
    everywhere(|db| {
        make(&db, &["m", "model"]);
        let small = doc! {"name": "b", "createIndexes": false, "bucket": {
            "timeField": "ts", "metaField": "s", "bucketMaxSpanSeconds": 10, "maxCount": 2,
        }};
        declare(&db, "m", small).unwrap();
        let mut all = measurements(0..900);
        // Documents of several forms lie in one bucket.
        for (at, document) in all.iter_mut().enumerate() {
            match at % 7 {
                0 => document.push("extra", doc! {"n": at as i32}),
                3 => document.push("extra", "text"),
                _ => {}
            }
        }
        db.insert("m", &all);
        db.insert("model", &all);
        assert!(seal(&db) > 600);
        db.insert("m", &[doc! {"_id": 1000, "s": 5}, doc! {"_id": 1001}]);
        db.insert("model", &[doc! {"_id": 1000, "s": 5}, doc! {"_id": 1001}]);
        for name in ["m", "model"] {
            db.update(name, doc! {"_id": 5}, doc! {"$set": {"ts": at(0)}}).unwrap();
            db.update(name, doc! {"_id": 9}, doc! {"$set": {"s": 5}}).unwrap();
            db.delete(name, doc! {"_id": {"$gt": 300, "$lt": 320}}).unwrap();
        }
        let found = |name: &str, matching: &Document| {
            let mut found = ids(&db.find(name, matching.clone()));
            found.sort_unstable();
            found
        };
        for matching in [
            doc! {},
            doc! {"s": 1},
            doc! {"s": 5},
            doc! {"s": {"$ne": 0}},
            doc! {"s": Value::Null},
            doc! {"ts": {"$lt": at(20_000)}},
            doc! {"ts": {"$gte": at(600_000), "$lt": at(660_000)}, "s": 0},
            doc! {"ts": at(1_000_000)},
            doc! {"ts": Value::Null},
            doc! {"t": {"$gte": 890}},
            doc! {"$or": [{"s": 5}, {"t": 3}]},
        ] {
            assert_eq!(found("m", &matching), found("model", &matching), "{matching:?}");
            assert_eq!(db.count("m", matching.clone()), db.count("model", matching));
        }
        // A group reads fields where they lie in buckets, unless it needs documents.
        let minute = doc! {"$dateTrunc": {"date": "$ts", "unit": "minute"}};
        for group in [
            doc! {"_id": minute.clone(), "n": {"$sum": 1}, "mean": {"$avg": "$t"}, "most": {"$max": "$extra"}},
            doc! {"_id": "$s", "n": {"$sum": "$t"}, "least": {"$min": "$extra.n"}},
            doc! {"_id": {"$type": "$extra"}, "n": {"$sum": 1}},
            doc! {"_id": {"s": "$s", "m": minute}, "n": {"$sum": "$extra.n"}},
            doc! {"_id": "$extra", "record": {"$max": {"$ne": [{"$meta": "recordId"}, "$nothing"]}}},
            doc! {"_id": "$unit", "whole": {"$max": "$$ROOT"}},
        ] {
            let grouped = |name: &str, limit: Option<Document>| {
                let mut stages: Vec<Document> = limit.into_iter().collect();
                stages.extend([doc! {"$group": group.clone()}, doc! {"$sort": {"_id": 1}}]);
                run(&db, name, stages)
            };
            let expected = grouped("model", None);
            assert_eq!(grouped("m", None), expected, "{group:?}");
            assert_eq!(grouped("m", Some(doc! {"$limit": 100_000})), expected, "{group:?}");
        }
        // The order of insertion is there for those who ask for it.
        let natural = db.run(|unit| {
            let hint = Some(kilim_engine::plan::Hint::Natural { backward: false });
            let request = kilim_engine::plan::ReadRequest {
                hint,
                ..kilim_engine::plan::ReadRequest::new(filter(doc! {}))
            };
            let mut executor = kilim_engine::read::plan(unit, &ns("m"), request)?.execute();
            let mut context = kilim_engine::operator::ExecContext::new(&|| Ok(()));
            let mut found = Vec::new();
            while let Some(row) = executor.next_document(&mut context)? {
                found.push(row.document().to_document());
            }
            Ok(found)
        });
        assert_eq!(natural.unwrap(), db.find("model", doc! {}));
        // Those that a span passes over are not looked at one by one.
        let examined = |matching: Document| {
            db.run(|unit| {
                let request = kilim_engine::plan::ReadRequest::new(filter(matching));
                let mut executor = kilim_engine::read::plan(unit, &ns("m"), request)?.execute();
                let mut context = kilim_engine::operator::ExecContext::new(&|| Ok(()));
                while executor.next_document(&mut context)?.is_some() {}
                Ok(context.figures.docs_examined)
            })
            .unwrap()
        };
        assert!(examined(doc! {"ts": {"$lt": at(20_000)}}) < examined(doc! {"t": 5}) / 2 + 100);
        check(&db);
    });
}

#[test]
fn odd_documents_come_back_byte_for_byte() {
    for layout in ["columns", "rows"] {
        let db = Db::memory();
        make(&db, &["m"]);
        declare(
            &db,
            "m",
            doc! {"name": "b", "bucket": {"timeField": "ts", "layout": layout, "stats": {"deep": ["max"]}}},
        )
        .unwrap();
        let mut deep = doc! {"end": 1};
        for _ in 0..176 {
            deep = doc! {"d": deep};
        }
        // Names twice, empty names, names like those of a bucket, all that is allowed in a document.
        let mut odd = doc! {"_id": 2, "ts": at(1), "": 1, "v": 7, "of": {"count": 3}, "columns": "none", "records": Value::Null};
        odd.push("v", 8);
        odd.push("v", "again");
        let rows = [
            doc! {"_id": 1, "ts": at(0), "deep": deep},
            odd,
            doc! {"_id": {"": Value::Int64(i64::MIN)}, "ts": at(2)},
            doc! {"_id": 4, "ts": at(3), "x": Value::Binary { subtype: 5, bytes: [1; 16].as_slice().into() }},
            doc! {"_id": 5, "ts": at(4), "x": Value::MinKey, "y": Value::MaxKey, "z": Value::Undefined},
        ];
        db.insert("m", &rows);
        assert_eq!(seal(&db), 5);
        let seen = db.find("m", doc! {});
        assert!(seen.iter().map(Document::as_bytes).eq(rows.iter().map(Document::as_bytes)), "{seen:?}");
        check(&db);
    }
}
