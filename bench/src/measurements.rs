//! Time series: measurements that come one by one and in batches, from few series and from many; what is asked of a day of
//! them; and the disk they take. The same with a declared `bucket`, against MongoDB's form on the same server.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use kilim_bson::{Document, RawValue, Value, doc};
use kilim_testkit::link::{Fault, Link, check_reply, message};
use kilim_testkit::subject::disk_bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::data::{DATABASE, mix};
use crate::patterns::{Contest, Entrant, KILIM, declare, is_new};
use crate::report::{Row, bytes, figure};
use crate::workload::{Leaves, Operation, Place, Target, Workload, counted, durable, found, fresh_ids};
use crate::{Options, Sides};

const BATCH: usize = 1000;
const DAY: &str = "measured_day";
const BUCKETED_DAY: &str = "bucketed_day";
/// The day that is read: so many series, one measurement every so many seconds.
const SERIES: i64 = 100;
const EVERY_SECONDS: i64 = 30;
const DAY_SECONDS: i64 = 24 * 60 * 60;
const BEGIN: i64 = 1_700_006_400_000;

pub fn all() -> Vec<Workload> {
    use Target::CpuAtMost;
    let row = |name, operations, target, make| Workload {
        name,
        connections: 1,
        operations,
        target,
        leaves: Leaves::Nothing,
        prepare: prepare_day,
        before: |_, _| Ok(()),
        make,
    };
    let write_row = |name, operations, prepare, make| Workload {
        leaves: Leaves::Some,
        prepare,
        ..row(name, operations, CpuAtMost(0.33), make)
    };
    vec![
        write_row("series_insert_100", 2_000, |link| create(link, "few"), |place| single(place, "few", 100)),
        write_row(
            "series_insert_10000",
            2_000,
            |link| create(link, "many"),
            |place| single(place, "many", 10_000),
        ),
        write_row(
            "series_batch_100",
            20,
            |link| create(link, "few_batched"),
            |place| batch(place, "few_batched", 100),
        ),
        write_row(
            "series_batch_10000",
            20,
            |link| create(link, "many_batched"),
            |place| batch(place, "many_batched", 10_000),
        ),
        row("series_hourly", 4, CpuAtMost(0.4), hourly),
        row("series_range", 300, CpuAtMost(0.4), range),
        row("series_last", 4, CpuAtMost(0.4), last),
    ]
}

/// Batches of a round, so many that checkpoints fall into each.
const BATCHES: usize = 200;

/// A declared `bucket` against a time-series collection, both on Kilim.
pub fn contests() -> Vec<Contest> {
    use Target::{CpuAtMost, Told};
    let side = |name, operations, writes, prepare, make| {
        let before = |_: &mut Link, _| Ok(());
        let workload = Workload {
            name,
            connections: 1,
            operations,
            target: Told,
            leaves: Leaves::of(writes),
            prepare,
            before,
            make,
        };
        Entrant { name, server: KILIM, workload }
    };
    type Prepare = fn(&mut Link) -> Result<(), Fault>;
    type Make = fn(Place) -> Operation;
    let contest = |name, operations, writes, bucket: (Prepare, Make), series: (Prepare, Make)| Contest {
        name,
        entrants: vec![
            side("bucket", operations, writes, bucket.0, bucket.1),
            side("series", operations, writes, series.0, series.1),
        ],
        claims: vec![(1, CpuAtMost(1.3))],
    };
    vec![
        contest(
            "bucket_insert",
            2_000,
            true,
            (|link| bucketed(link, "few_bucketed"), |place| single(place, "few_bucketed", 100)),
            (|link| create(link, "few_native"), |place| single(place, "few_native", 100)),
        ),
        contest(
            "bucket_batch",
            BATCHES,
            true,
            (|link| bucketed(link, "batched_bucketed"), |place| batch(place, "batched_bucketed", 100)),
            (|link| create(link, "batched_native"), |place| batch(place, "batched_native", 100)),
        ),
        contest(
            "bucket_range",
            300,
            false,
            (prepare_bucketed_day, |place| range_of(place, BUCKETED_DAY)),
            (prepare_day, range),
        ),
        contest(
            "bucket_hourly",
            4,
            false,
            (prepare_bucketed_day, |_| hourly_of(BUCKETED_DAY)),
            (prepare_day, hourly),
        ),
    ]
}

fn bucketed(link: &mut Link, collection: &str) -> Result<(), Fault> {
    match is_new(link, DATABASE, collection)? {
        true => {
            let bucket = doc! {"timeField": "t", "metaField": "sensor"};
            declare(link, DATABASE, doc! {"createPattern": collection, "name": "b", "bucket": bucket})
        }
        false => Ok(()),
    }
}

/// Loads the day into buckets and waits until they are packed.
fn prepare_bucketed_day(link: &mut Link) -> Result<(), Fault> {
    if !is_new(link, DATABASE, BUCKETED_DAY)? {
        return Ok(());
    }
    bucketed(link, BUCKETED_DAY)?;
    load_day(link, BUCKETED_DAY)?;
    let index = doc! {"key": {"sensor.id": 1, "t": 1}, "name": "sensor_t"};
    link.run(DATABASE, doc! {"createIndexes": BUCKETED_DAY, "indexes": [index]})?;
    thread::sleep(Duration::from_secs(20));
    Ok(())
}

fn create(link: &mut Link, collection: &str) -> Result<(), Fault> {
    if is_new(link, DATABASE, collection)? {
        let series = doc! {"timeField": "t", "metaField": "sensor"};
        let _ = link.run(DATABASE, doc! {"create": collection, "timeseries": series});
    }
    Ok(())
}

/// What sensors measure: values with a decimal or two that move slowly.
fn measurement(number: u64, sensor: i64, millis: i64) -> Document {
    let random = mix(number);
    doc! {
        "t": Value::DateTime(millis),
        "sensor": {"id": sensor, "site": format!("site {}", sensor % 10)},
        "_id": number as i64,
        "temperature": 20.0 + (random % 100) as f64 / 10.0,
        "humidity": 40 + (random >> 8 & 15) as i32,
        "state": if random >> 16 & 63 == 0 { "idle" } else { "running" },
    }
}

/// Measurements of all series in turn, a hundred a second. Turns are hours apart.
fn arriving(place: Place, series: i64) -> impl Iterator<Item = Document> + Send {
    let begin = BEGIN + place.turn as i64 * 7_200_000;
    fresh_ids(place).zip(0i64..).map(move |(id, at)| {
        let number = mix(id as u64) >> 1;
        measurement(number, (number % series as u64) as i64, begin + at * 10)
    })
}

fn insert(collection: &str, documents: Vec<Document>) -> Vec<u8> {
    let mut insert = doc! {"insert": collection, "documents": documents, "ordered": false};
    insert.push("writeConcern", durable());
    insert.push("$db", DATABASE);
    message(&insert)
}

fn single(place: Place, collection: &'static str, series: i64) -> Operation {
    let mut arriving = arriving(place, series);
    Box::new(move |link| {
        let next = arriving.by_ref().take(1).collect();
        counted(link.exchange(&insert(collection, next))?, 1)
    })
}

fn batch(place: Place, collection: &'static str, series: i64) -> Operation {
    let mut arriving = arriving(place, series);
    Box::new(move |link| {
        let next = arriving.by_ref().take(BATCH).collect();
        counted(link.exchange(&insert(collection, next))?, BATCH as i64)
    })
}

/// Loads the day, hour by hour, and indexes it by sensor and time.
fn prepare_day(link: &mut Link) -> Result<(), Fault> {
    if !is_new(link, DATABASE, DAY)? {
        return Ok(());
    }
    create(link, DAY)?;
    load_day(link, DAY)?;
    let index = doc! {"key": {"sensor.id": 1, "t": 1}, "name": "sensor_t"};
    link.run(DATABASE, doc! {"createIndexes": DAY, "indexes": [index]}).map(drop)
}

fn load_day(link: &mut Link, collection: &str) -> Result<(), Fault> {
    let mut documents = Vec::with_capacity(BATCH);
    for at in 0..DAY_SECONDS / EVERY_SECONDS {
        for sensor in 0..SERIES {
            let number = (at * SERIES + sensor) as u64;
            documents.push(measurement(number, sensor, BEGIN + at * EVERY_SECONDS * 1000));
            if documents.len() == BATCH {
                let documents = std::mem::take(&mut documents);
                let insert = doc! {"insert": collection, "documents": documents, "ordered": false};
                link.run(DATABASE, insert)?;
            }
        }
    }
    match documents.is_empty() {
        true => Ok(()),
        false => link.run(DATABASE, doc! {"insert": collection, "documents": documents}).map(drop),
    }
}

fn pipeline(collection: &str, stages: Vec<Document>, expected: usize) -> Operation {
    let mut command = doc! {"aggregate": collection, "pipeline": stages, "cursor": {"batchSize": 100_000}};
    command.push("$db", DATABASE);
    let message = message(&command);
    Box::new(move |link| found(link.exchange(&message)?, expected))
}

/// The mean temperature of every hour of the day.
fn hourly(_: Place) -> Operation {
    hourly_of(DAY)
}

fn hourly_of(collection: &str) -> Operation {
    let hour = doc! {"$dateTrunc": {"date": "$t", "unit": "hour"}};
    let group = doc! {"_id": hour, "mean": {"$avg": "$temperature"}, "most": {"$max": "$humidity"}};
    pipeline(collection, vec![doc! {"$group": group}], 24)
}

/// Half an hour of one sensor.
fn range(place: Place) -> Operation {
    range_of(place, DAY)
}

fn range_of(place: Place, collection: &'static str) -> Operation {
    let mut dice = StdRng::seed_from_u64(place.turn as u64);
    Box::new(move |link| {
        let sensor = dice.random_range(0..SERIES);
        let from = BEGIN + dice.random_range(0..DAY_SECONDS / EVERY_SECONDS - 60) * EVERY_SECONDS * 1000;
        let times = doc! {"$gte": Value::DateTime(from), "$lt": Value::DateTime(from + 1_800_000)};
        let mut find = doc! {"find": collection, "batchSize": 1000};
        find.push("filter", doc! {"sensor.id": sensor, "t": times});
        find.push("$db", DATABASE);
        found(link.exchange(&message(&find))?, 60)
    })
}

/// The last measurement of each sensor.
fn last(_: Place) -> Operation {
    let first = doc! {"_id": "$sensor.id", "t": {"$first": "$t"}, "temperature": {"$first": "$temperature"}};
    pipeline(DAY, vec![doc! {"$sort": {"sensor.id": 1, "t": -1}}, doc! {"$group": first}], SERIES as usize)
}

/// The disk that a day takes. mongod compresses what it closes and writes a checkpoint once a minute, so both get a quiet
/// minute.
pub fn run(sides: &Sides, options: &Options) -> Result<Vec<Row>> {
    if !options.wants("series_disk") {
        return Ok(Vec::new());
    }
    let mut disk = [0; 2];
    let mut data_only = [0; 2];
    for side in 0..2 {
        eprintln!("series_disk, {}", sides.names()[side]);
        let place = tempfile::tempdir_in(&options.data)?;
        let subject = sides.subject(side, place.path())?;
        let running = subject.start()?;
        let mut link = running.connect()?;
        create(&mut link, DAY)?;
        load_day(&mut link, DAY)?;
        thread::sleep(Duration::from_secs(if options.quick { 5 } else { 70 }));
        disk[side] = disk_bytes(&subject.data)?;
        let mut stats = doc! {"collStats": format!("system.buckets.{DAY}")};
        stats.push("$db", DATABASE);
        let reply = link.exchange(&message(&stats))?;
        check_reply(reply)?;
        data_only[side] = match reply.get("storageSize") {
            Some(RawValue::Int32(size)) => size as u64,
            Some(RawValue::Int64(size)) => size as u64,
            Some(RawValue::Double(size)) => size as u64,
            _ => 0,
        };
        running.kill();
    }
    let ratio = |sizes: [u64; 2]| sizes[0] as f64 / sizes[1].max(1) as f64;
    let target = format!("≤ 1.0, is {:.2}", ratio(data_only));
    Ok(vec![
        figure("series_disk, buckets alone", data_only.map(bytes), &target, Some(ratio(data_only) <= 1.0)),
        figure("  everything in the directory", disk.map(bytes), &format!("{:.2}", ratio(disk)), None),
    ])
}
