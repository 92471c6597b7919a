//! Job queues, through which many documents pass while few are there, and wide ranges of an index.
//!
//! A queue is what deletions cost over time: each operation takes the oldest document and puts a new one behind the
//! last. Before the measurements a hundred thousand documents have passed through.

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_testkit::link::{Fault, Link, Template, check_reply, message};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::data::{DATABASE, DOCS, create_index, fill};
use crate::workload::{
    DOCS_COUNT, Leaves, MARK, Operation, Place, Target, Workload, counted, document_with_marked_id, durable,
    found,
};

/// Documents in a queue at any time.
const LIVE: u32 = 1_000;
/// Documents that have passed before the first measurement.
const PASSED: u32 = 100_000;
/// More than ever pass through a long queue.
const LONG: u32 = 10_000_000;
/// Operations of one turn, warm-up included, at most.
const TURN: usize = 20_000;

pub fn all() -> Vec<Workload> {
    use Target::CpuAtMost;
    let range = |name, operations, make| Workload {
        name,
        connections: 1,
        operations,
        target: CpuAtMost(0.4),
        leaves: Leaves::Nothing,
        prepare: prepare_ranges,
        before: |_, _| Ok(()),
        make,
    };
    vec![
        queue(
            "queue_id",
            |link| prepare_queue(link, "queue_id"),
            |place| pass(place, "queue_id", "_id", PASSED),
        ),
        queue(
            "queue_index",
            |link| {
                create_index(link, "queue_index", "at")?;
                prepare_queue(link, "queue_index")
            },
            |place| pass(place, "queue_index", "at", PASSED),
        ),
        range("count_wide", 200, count_wide),
        range("esr_limit", 3_000, esr_limit),
        range("prefix", 300, prefix),
    ]
}

fn queue(
    name: &'static str,
    prepare: fn(&mut Link) -> Result<(), Fault>,
    make: fn(Place) -> Operation,
) -> Workload {
    let before = |_: &mut Link, _| Ok(());
    let target = Target::CpuAtMost(0.5);
    Workload { name, connections: 1, operations: 2_000, target, leaves: Leaves::Some, prepare, before, make }
}

/// A queue whose documents are let pass by the caller, and that is taken from by a field.
pub fn long(by: &str) -> Workload {
    match by {
        "_id" => queue("long_id", |_| Ok(()), |place| pass(place, "long_id", "_id", LONG)),
        _ => queue("long_index", |_| Ok(()), |place| pass(place, "long_index", "at", LONG)),
    }
}

/// Fills a queue and lets many documents pass.
fn prepare_queue(link: &mut Link, collection: &str) -> Result<(), Fault> {
    let_pass(link, collection, 0, PASSED)
}

/// Lets documents `from..to` pass through a queue, a thousand at a time; the last thousand stay.
pub fn let_pass(link: &mut Link, collection: &str, from: u32, to: u32) -> Result<(), Fault> {
    for first in (from..to).step_by(LIVE as usize) {
        fill(link, collection, first, first + LIVE, PASSED)?;
        if first > 0 {
            // What was measured in between has ids behind all of these.
            let old = doc! {"q": {"_id": {"$not": {"$gte": first as i32, "$lt": (first + LIVE) as i32}}}, "limit": 0};
            link.run(DATABASE, doc! {"delete": collection, "deletes": [old]})?;
        }
    }
    let all = doc! {"q": {}, "u": [{"$set": {"at": "$_id"}}], "multi": true};
    link.run(DATABASE, doc! {"update": collection, "updates": [all]}).map(drop)
}

/// Takes the first document by a field and inserts a new last one.
fn pass(place: Place, collection: &'static str, by: &'static str, first: u32) -> Operation {
    let mut take =
        doc! {"findAndModify": collection, "sort": {by: 1}, "remove": true, "writeConcern": durable()};
    take.push("$db", DATABASE);
    let take = message(&take);
    let mut document = document_with_marked_id();
    document.push("at", MARK);
    let insert = doc! {"insert": collection, "documents": [document], "writeConcern": durable()};
    let mut insert = Template::new(DATABASE, insert);
    let mut ids = first as i32 + (place.turn * TURN) as i32..;
    Box::new(move |link| {
        taken(link.exchange(&take)?)?;
        counted(link.exchange(insert.with(ids.next().expect("ids do not end")))?, 1)
    })
}

fn taken(reply: RawDocument<'_>) -> Result<(), Fault> {
    check_reply(reply)?;
    match reply.get("value").and_then(RawValue::as_document) {
        Some(_) => Ok(()),
        None => Err(Fault::unexpected("the queue is empty")),
    }
}

fn prepare_ranges(link: &mut Link) -> Result<(), Fault> {
    let there = link.run(DATABASE, doc! {"count": DOCS})?;
    if kilim_testkit::link::whole(there.get("n")) == Some(0) {
        fill(link, DOCS, 0, DOCS_COUNT, DOCS_COUNT)?;
    }
    create_index(link, DOCS, "k")?;
    create_index(link, DOCS, "name")?;
    let index = doc! {"key": {"s": 1, "k": 1}, "name": "s_1_k_1"};
    link.run(DATABASE, doc! {"createIndexes": DOCS, "indexes": [index]}).map(drop)
}

fn ask(
    place: Place,
    command: fn(&mut StdRng) -> Document,
    check: fn(RawDocument<'_>) -> Result<(), Fault>,
) -> Operation {
    let mut rng = StdRng::seed_from_u64(place.turn as u64);
    Box::new(move |link| {
        let mut command = command(&mut rng);
        command.push("$db", DATABASE);
        check(link.exchange(&message(&command))?)
    })
}

/// Half of an index.
fn count_wide(place: Place) -> Operation {
    const HALF: i32 = DOCS_COUNT as i32 / 2;
    ask(
        place,
        |rng| {
            let first = rng.random_range(0..HALF);
            doc! {"count": DOCS, "query": {"k": {"$gte": first, "$lt": first + HALF}}}
        },
        |reply| counted(reply, i64::from(HALF)),
    )
}

/// Equality, sort, range: twenty of one in a hundred, in the order of the index.
fn esr_limit(place: Place) -> Operation {
    ask(
        place,
        |rng| {
            let filter = doc! {"s": rng.random_range(0..100), "k": {"$gte": rng.random_range(0..50_000)}};
            doc! {"find": DOCS, "filter": filter, "sort": {"k": 1}, "limit": 20}
        },
        |reply| found(reply, 20),
    )
}

/// Names that begin alike: about one in ten, counted from the index alone.
fn prefix(place: Place) -> Operation {
    ask(
        place,
        |rng| {
            let filter = doc! {"name": {"$regex": format!("^item {}", rng.random_range(1..10))}};
            doc! {"count": DOCS, "query": filter}
        },
        check_reply,
    )
}
