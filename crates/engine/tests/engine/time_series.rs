//! Measurements move from bucket to bucket while they come in one by one. Each is in one bucket at any time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use kilim_bson::{Document, ObjectId, Value, doc};
use kilim_engine::catalog::bucket_options;
use kilim_engine::index::{IndexSpec, OverMeasurements};
use kilim_engine::write::{self, DeleteRequest};
use kilim_error::{ErrorCode, Result};
use kilim_query::time_series::{Bucketing, Granularity, Rows, TimeSeries};

use crate::pattern_crash::at_every_commit;
use crate::pipeline;
use crate::support::{Db, everywhere, filter, ns, number, spec, unique};

const BEGIN: i64 = 1_700_000_040_000;

fn create(db: &Db, options: Document) {
    let series = TimeSeries {
        time_field: "t".into(),
        meta_field: Some("k".into()),
        bucketing: Bucketing::By(Granularity::Seconds),
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
fn a_bucket_that_an_index_refuses_takes_no_other_with_it() {
    let of = |id: i64, meta: i64| doc! {"t": Value::DateTime(BEGIN + id * 7_200_000), "k": meta, "_id": id};
    for (ordered, kept, errors) in [(true, vec![0], vec![1]), (false, vec![0, 3], vec![1, 2])] {
        let db = Db::memory();
        create(&db, doc! {});
        db.build("system.buckets.m", vec![unique(doc! {"meta": 1})]).unwrap();
        let view = db.engine.view(&ns("m")).unwrap();
        let documents = [of(0, 1), of(1, 1), of(2, 1), of(3, 2)];
        let raw: Vec<_> = documents.iter().map(Document::as_raw).collect();
        let outcome = db.run(|unit| write::insert_measurements(unit, &view, &raw, ordered, |at| at as i32));
        let outcome = outcome.unwrap();
        assert_eq!(outcome.inserted, kept.len());
        assert!(outcome.errors.iter().all(|(_, error)| error.code() == ErrorCode::DuplicateKey));
        assert_eq!(outcome.errors.iter().map(|(at, _)| *at).collect::<Vec<_>>(), errors);
        assert_eq!(stored(&db).0, kept);
        db.check();
    }
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

/// An index over a measured field, as commands make it.
fn over(path: &str) -> IndexSpec {
    let (min, max) = (format!("control.min.{path}"), format!("control.max.{path}"));
    let key: Document =
        [(min.as_str(), Value::Int32(1)), (max.as_str(), Value::Int32(1))].into_iter().collect();
    let mut spec = spec(key);
    let given: Document = [(path, Value::Int32(1))].into_iter().collect();
    spec.measurements = Some(OverMeasurements::new(doc! {"key": given}, &spec.key, None));
    spec
}

#[test]
fn buckets_under_an_index_expire_and_lose_measurements_with_their_keys() {
    everywhere(|db| {
        let db = &db;
        create(db, doc! {"expireAfterSeconds": 60i64});
        db.build("system.buckets.m", vec![over("v")]).unwrap();
        for id in 0..150 {
            insert(db, &[reading(id)]).unwrap();
        }
        let late = 4_000_000_000_000;
        let in_future = |id: i64| doc! {"t": Value::DateTime(late + id), "k": 1, "_id": id, "v": id % 7};
        insert(db, &(200..230).map(in_future).collect::<Vec<_>>()).unwrap();
        db.check();
        assert_eq!(delete(db, doc! {"v": 6}), 25);
        assert_eq!(delete(db, doc! {"v": {"$gt": 6}}), 0);
        db.check();
        let operation = db.engine.operations.start(1);
        db.engine.expire(&operation).unwrap();
        let (ids, _) = stored(db);
        assert_eq!(ids, (200..230).filter(|id| id % 7 != 6).collect::<Vec<i64>>());
        db.check();
    });
}

/// Places in buckets of all sizes, some of them without one, by an index and without.
#[test]
fn an_index_finds_the_places_that_a_scan_finds() {
    everywhere(|db| {
        let db = &db;
        create(db, doc! {});
        let mut places = spec(doc! {"meta": 1, "data.at.p": "2dsphere_bucket"});
        places.measurements =
            Some(OverMeasurements::new(doc! {"key": {"k": 1, "at.p": "2dsphere"}}, &places.key, None));
        let reading = |id: i64| {
            let turn = (id * 7919) % 36_000;
            let (x, y) = (turn as f64 / 100.0 - 180.0, (turn % 1700) as f64 / 10.0 - 85.0);
            let place = doc! {"type": "Point", "coordinates": [x, y]};
            let mut reading = doc! {"t": Value::DateTime(BEGIN + id * 1000), "k": (id % 40 / 13), "_id": id};
            match id % 9 {
                0 => {}
                1 => reading.push("at", Value::Null),
                2 => reading.push("at", vec![Value::Document(doc! {"p": place}), Value::Int32(1)]),
                _ => reading.push("at", doc! {"p": place}),
            }
            reading
        };
        for at in (0..900).step_by(30) {
            insert(db, &(at..at + 30).map(reading).collect::<Vec<_>>()).unwrap();
        }
        for id in 900..1000 {
            insert(db, &[reading(id)]).unwrap();
        }
        let asked: Vec<Vec<Document>> = (0..40)
            .map(|at| {
                let centre = vec![Value::Double(f64::from(at) * 9.0 - 178.0), Value::Double(f64::from(at) * 4.0 - 80.0)];
                let circle = vec![Value::from(centre.clone()), Value::Double([0.02, 0.3, 1.5][at as usize % 3])];
                let near = doc! {"type": "Point", "coordinates": centre};
                let by_id = doc! {"$sort": {"_id": 1}};
                match at % 4 {
                    0 => vec![doc! {"$match": {"k": 1, "at.p": {"$geoWithin": {"$centerSphere": circle}}}}, by_id],
                    1 => {
                        let near = doc! {"near": near, "distanceField": "d", "key": "at.p", "maxDistance": 2_000_000};
                        vec![doc! {"$geoNear": near}]
                    }
                    _ => vec![doc! {"$match": {"at.p": {"$geoWithin": {"$centerSphere": circle}}}}, by_id],
                }
            })
            .collect();
        let answers =
            || asked.iter().map(|stages| pipeline::run(db, "m", stages.clone())).collect::<Vec<_>>();
        let by_scan = answers();
        assert!(by_scan.iter().filter(|found| !found.is_empty()).count() > 20);
        db.build("system.buckets.m", vec![places]).unwrap();
        assert_eq!(answers(), by_scan);
        let index = db.engine.collection(&ns("system.buckets.m")).unwrap().indexes.last().unwrap().clone();
        assert!(index.usage.uses() > 0);
        db.check();
        let circle = vec![Value::from(vec![Value::Int32(0), Value::Int32(0)]), Value::Double(0.7)];
        let within = doc! {"at.p": {"$geoWithin": {"$centerSphere": circle}}};
        let gone = pipeline::run(db, "m", vec![doc! {"$match": within.clone()}]).len() as u64;
        assert_eq!(delete(db, within.clone()), gone);
        assert!(gone > 0 && pipeline::run(db, "m", vec![doc! {"$match": within}]).is_empty());
        db.check();
    });
}

#[test]
fn a_bucket_of_which_bounds_do_not_tell_goes_under_no_index() {
    everywhere(|db| {
        let db = &db;
        create(db, doc! {});
        let bucket = |values: [Value; 2], min: Value, max: Value, number: u8| {
            let mut id = [number; 12];
            id[..4].copy_from_slice(&((BEGIN / 1000) as u32).to_be_bytes());
            let bound = |value: Value| {
                doc! {"t": Value::DateTime(BEGIN), "v": value}
            };
            let [first, second] = values;
            let mut column = Document::new();
            column.push("0", first);
            column.push("1", second);
            let mut times = Document::new();
            times.push("0", Value::DateTime(BEGIN));
            times.push("1", Value::DateTime(BEGIN));
            let mut bucket = doc! {"_id": Value::ObjectId(ObjectId::from_bytes(id))};
            bucket.push("control", doc! {"version": 1, "min": bound(min), "max": bound(max)});
            bucket.push("meta", 1);
            bucket.push("data", doc! {"t": times, "v": column});
            bucket
        };
        // As Kilim bounds them.
        let mixed =
            |number| bucket([Value::Int32(1), Value::from("a")], Value::MinKey, Value::MaxKey, number);
        db.insert("system.buckets.m", &[mixed(1)]);
        let refused = db.build("system.buckets.m", vec![over("v")]).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::CannotBuildIndexKeys);
        let refused = db.build("system.buckets.m", vec![over("v.x")]).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::CannotBuildIndexKeys);
        assert_eq!(delete(db, doc! {"v": "a"}), 1);
        db.build("system.buckets.m", vec![over("v"), over("v.x")]).unwrap();
        let refused = db.try_insert("system.buckets.m", mixed(2)).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::CannotBuildIndexKeys);
        db.check();
    });
}

/// A `$group` reads measurements where they lie in columns. A `$limit` before it has them made as documents.
#[test]
fn groups_of_columns_are_groups_of_documents() {
    let db = Db::memory();
    create(&db, doc! {});
    for id in 0..700i64 {
        let chance = |count: i64| (id * 7919 + id / 13) % count;
        let mut reading = doc! {"t": Value::DateTime(BEGIN + id * 37_000), "_id": id};
        match chance(7) {
            0 => {}
            1 => reading.push("k", Value::Null),
            2 => reading.push("k", [Value::Int32(1), Value::Document(doc! {"id": 5})].to_vec()),
            kind => reading.push("k", doc! {"id": (kind % 3), "site": (if kind < 5 { "a" } else { "b" })}),
        }
        match chance(11) {
            0 => {}
            1 => reading.push("v", Value::Null),
            2 => reading.push("v", "text"),
            3 => reading.push("v", vec![Value::Int32(3), Value::Int32(1)]),
            4 => reading.push("v", doc! {"w": id}),
            5 => reading.push("v", Value::Int64(id)),
            _ => reading.push("v", (id % 40) as f64 / 10.0),
        }
        if chance(3) > 0 {
            reading.push("n", (chance(50)) as i32);
        }
        insert(&db, &[reading]).unwrap();
    }
    let hour = doc! {"$dateTrunc": {"date": "$t", "unit": "hour"}};
    let sums =
        doc! {"mean": {"$avg": "$v"}, "most": {"$max": "$v"}, "all": {"$push": "$n"}, "c": {"$sum": 1}};
    let group = |id: Value| {
        let mut group = doc! {"_id": id};
        sums.iter().for_each(|(name, accumulator)| group.push(name, accumulator));
        doc! {"$group": group}
    };
    let local =
        doc! {"$dateTrunc": {"date": "$t", "unit": "day", "timezone": "Europe/Berlin", "binSize": "$n"}};
    let pipelines = [
        vec![group(Value::Document(hour.clone()))],
        vec![group(Value::from("$k"))],
        vec![group(Value::from("$k.id"))],
        vec![group(Value::Null)],
        vec![doc! {"$group": {"_id": {"h": hour, "site": "$k.site"}, "last": {"$last": "$$ROOT.v.w"}}}],
        vec![
            doc! {"$group": {"_id": {"$type": "$v"}, "x": {"$addToSet": "$k.id"}, "whole": {"$last": "$$ROOT"}}},
        ],
        vec![doc! {"$group": {"_id": "$n", "x": {"$top": {"output": "$v", "sortBy": {"_id": -1}}}}}],
        vec![
            doc! {"$group": {"_id": {"$cond": ["$n", local, "$nothing"]}, "x": {"$firstN": {"n": 2, "input": "$_id"}}}},
        ],
        vec![doc! {"$match": {"n": {"$gt": 20}}}, group(Value::from("$k.site"))],
        vec![doc! {"$match": {"k.id": 1, "v": {"$exists": true}}}, group(Value::from("$v"))],
        vec![doc! {"$set": {"v": {"$ifNull": ["$v", "$n"]}}}, group(Value::from("$k.site"))],
        vec![doc! {"$group": {"_id": null, "n": {"$sum": 2}}}],
        vec![doc! {"$count": "n"}],
    ];
    for pipeline in pipelines {
        let mut made = vec![doc! {"$limit": 1_000_000}];
        made.extend(pipeline.iter().cloned());
        let expected = pipeline::run(&db, "m", made);
        assert!(!expected.is_empty());
        assert_eq!(pipeline::run(&db, "m", pipeline.clone()), expected, "{pipeline:?}");
    }
    // Whatever fails, fails with the same words.
    for id in [doc! {"$dateTrunc": {"date": "$v", "unit": "hour"}}, doc! {"$add": ["$v", 1]}] {
        let group = vec![doc! {"$group": {"_id": id}}];
        let limited = vec![doc! {"$limit": 1_000_000}, group[0].clone()];
        let failed =
            |list| pipeline::open(&db, "m", list, true).and_then(pipeline::drain).expect_err("fails");
        assert_eq!(failed(group).to_string(), failed(limited).to_string());
    }
}
