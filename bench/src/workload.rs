//! What is measured: one row a workload, with what its operation sends and what figure it is to reach.

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_testkit::link::{Fault, Link, Template, Transaction, check_reply, message, whole};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::data::{DATABASE, DOCS, create_index, document, fill};
use crate::{aggregation, indexes, measurements, queues};

/// Documents in the collection that most workloads read.
pub const DOCS_COUNT: u32 = 100_000;
const BUILD: &str = "build";
const BUILD_COUNT: u32 = 200_000;
const BULK_BATCH: usize = 1000;

/// What the ratio of Kilim to mongod must be.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    CpuAtMost(f64),
    RateAtLeast(f64),
    P99AtMost(f64),
    /// For comparison only.
    Told,
}

/// The work that operations leave behind, which is counted too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Leaves {
    Nothing,
    /// The server is given time to do it.
    Some,
    /// It is the most part of the work, so the server is told to do it, by `fsync`.
    Most,
}

impl Leaves {
    /// Writes leave something.
    pub fn of(writes: bool) -> Leaves {
        if writes { Leaves::Some } else { Leaves::Nothing }
    }
}

/// One operation of one connection, done again and again.
pub type Operation = Box<dyn FnMut(&mut Link) -> Result<(), Fault> + Send>;

/// What an operation is made for.
#[derive(Clone, Copy)]
pub struct Place {
    pub connection: usize,
    /// Grows with every measurement of the workload, warm-up included.
    pub turn: usize,
}

pub struct Workload {
    pub name: &'static str,
    pub connections: usize,
    /// Operations of one round, over all connections.
    pub operations: usize,
    pub target: Target,
    pub leaves: Leaves,
    /// Once, before everything.
    pub prepare: fn(&mut Link) -> Result<(), Fault>,
    /// Before each measurement, not measured.
    pub before: fn(&mut Link, usize) -> Result<(), Fault>,
    pub make: fn(Place) -> Operation,
}

pub fn all() -> Vec<Workload> {
    use Target::{CpuAtMost, RateAtLeast};
    let row = |name, connections, operations, target, make| Workload {
        name,
        connections,
        operations,
        target,
        leaves: Leaves::Nothing,
        prepare: prepare_docs,
        before: |_, _| Ok(()),
        make,
    };
    let write_row = |name, connections, operations, target, make| Workload {
        leaves: Leaves::Some,
        ..row(name, connections, operations, target, make)
    };
    let mut workloads = vec![
        row("find_id", 1, 10_000, CpuAtMost(0.25), find_id),
        row("find_id", 16, 30_000, CpuAtMost(0.25), find_id),
        row("find_id", 64, 30_000, CpuAtMost(0.25), find_id),
        row("find_index", 1, 10_000, CpuAtMost(0.25), find_index),
        row("find_index", 16, 30_000, CpuAtMost(0.25), find_index),
        row("find_index", 64, 30_000, CpuAtMost(0.25), find_index),
        write_row("insert_one", 1, 1_000, CpuAtMost(0.35), insert_one),
        write_row("insert_one", 16, 6_000, CpuAtMost(0.35), insert_one),
        write_row("insert_one", 64, 10_000, CpuAtMost(0.35), insert_one),
        write_row("inc_id", 1, 1_000, CpuAtMost(0.35), inc_id),
        write_row("inc_id", 16, 6_000, CpuAtMost(0.35), inc_id),
        row("scan_1pct", 1, 10, CpuAtMost(0.4), scan),
        Workload { leaves: Leaves::Most, ..write_row("bulk_insert", 1, 20, CpuAtMost(0.6), bulk_insert) },
        row("range_sort", 1, 3_000, CpuAtMost(1.0), range_sort),
        row("range_sort_memory", 1, 300, CpuAtMost(1.0), range_sort_memory),
        row("count_index", 1, 2_000, CpuAtMost(1.0), count_index),
        row("count_documents", 1, 1_000, CpuAtMost(1.0), count_documents),
        row("count_all", 1, 10_000, CpuAtMost(1.0), count_all),
        write_row("update_many", 1, 15, CpuAtMost(1.0), update_many),
        Workload {
            prepare: |link| create_index(link, "deletes", "batch"),
            before: refill_deletes,
            ..write_row("delete_many", 1, DELETE_BATCHES, CpuAtMost(1.0), delete_many)
        },
        Workload {
            prepare: |link| fill_once(link, BUILD, BUILD_COUNT),
            before: drop_index,
            ..write_row("index_build", 1, 1, CpuAtMost(1.0), index_build)
        },
        write_row("hot_document", 16, 4_000, RateAtLeast(1.0), hot_document),
        write_row("transaction", 1, 500, CpuAtMost(0.5), transaction),
        write_row("transaction", 16, 3_000, CpuAtMost(0.5), transaction),
    ];
    workloads.extend(queues::all());
    workloads.extend(indexes::all());
    workloads.extend(aggregation::all());
    workloads.extend(measurements::all());
    workloads
}

fn fill_once(link: &mut Link, collection: &str, count: u32) -> Result<(), Fault> {
    let there = link.run(DATABASE, doc! {"count": collection})?;
    if whole(there.get("n")) == Some(0) {
        fill(link, collection, 0, count, count)?;
    }
    Ok(())
}

pub fn prepare_docs(link: &mut Link) -> Result<(), Fault> {
    fill_once(link, DOCS, DOCS_COUNT)?;
    create_index(link, DOCS, "k")
}

pub fn durable() -> Document {
    doc! {"w": "majority", "j": true}
}

fn wrong(what: &str, reply: RawDocument<'_>) -> Fault {
    let shown: String = format!("{reply:?}").chars().take(300).collect();
    Fault::unexpected(format!("{what}: {shown}"))
}

/// A wrong answer is no fast answer, so each one is looked at.
pub fn found(reply: RawDocument<'_>, expected: usize) -> Result<(), Fault> {
    check_reply(reply)?;
    let cursor = reply.get("cursor").and_then(RawValue::as_document);
    let batch = cursor.and_then(|c| c.get("firstBatch")).and_then(RawValue::as_array);
    match batch.map(|batch| batch.len()) {
        Some(length) if length == expected => Ok(()),
        _ => Err(wrong("not the documents expected", reply)),
    }
}

pub fn counted(reply: RawDocument<'_>, expected: i64) -> Result<(), Fault> {
    check_reply(reply)?;
    match whole(reply.get("n")) {
        Some(n) if n == expected => Ok(()),
        _ => Err(wrong("not the count expected", reply)),
    }
}

/// The same command with a random number in it.
pub fn random(
    place: Place,
    below: u32,
    command: Document,
    check: fn(RawDocument<'_>) -> Result<(), Fault>,
) -> Operation {
    let mut template = Template::new(DATABASE, command);
    let mut rng = StdRng::seed_from_u64((place.turn as u64) << 16 | place.connection as u64);
    Box::new(move |link| check(link.exchange(template.with(rng.random_range(0..below) as i32))?))
}

pub const MARK: i32 = Template::MARK;

pub fn find_id(place: Place) -> Operation {
    let find = doc! {"find": DOCS, "filter": {"_id": MARK}, "limit": 1, "singleBatch": true};
    random(place, DOCS_COUNT, find, |reply| found(reply, 1))
}

fn find_index(place: Place) -> Operation {
    let find = doc! {"find": DOCS, "filter": {"k": MARK}, "limit": 1, "singleBatch": true};
    random(place, DOCS_COUNT, find, |reply| found(reply, 1))
}

/// Ids that no other connection and no other turn uses.
pub fn fresh_ids(place: Place) -> impl Iterator<Item = i32> + Send {
    let first = (place.turn * 64 + place.connection) * 50_000;
    first as i32..
}

pub fn document_with_marked_id() -> Document {
    document_like(1)
}

/// What the document with this number is but for its `_id`, whose place is marked.
fn document_like(number: u32) -> Document {
    let source = document(number, DOCS_COUNT);
    let mut marked = doc! {"_id": MARK};
    for (name, value) in source.iter().filter(|(name, _)| *name != "_id") {
        marked.push(name, value.to_value());
    }
    marked
}

fn insert_one(place: Place) -> Operation {
    let insert =
        doc! {"insert": "inserts", "documents": [document_with_marked_id()], "writeConcern": durable()};
    let mut template = Template::new(DATABASE, insert);
    let mut ids = fresh_ids(place);
    Box::new(move |link| counted(link.exchange(template.with(ids.next().expect("ids do not end")))?, 1))
}

fn inc_id(place: Place) -> Operation {
    let update = doc! {"q": {"_id": MARK}, "u": {"$inc": {"n": 1}}};
    let update = doc! {"update": DOCS, "updates": [update], "writeConcern": durable()};
    random(place, DOCS_COUNT, update, |reply| counted(reply, 1))
}

fn hot_document(_: Place) -> Operation {
    let update = doc! {"q": {"_id": 0}, "u": {"$inc": {"n": 1}}};
    let mut update = doc! {"update": DOCS, "updates": [update], "writeConcern": durable()};
    update.push("$db", DATABASE);
    let message = message(&update);
    Box::new(move |link| counted(link.exchange(&message)?, 1))
}

fn scan(place: Place) -> Operation {
    let mut turn = place.turn as i32;
    Box::new(move |link| {
        turn += 1;
        let find = doc! {"find": DOCS, "filter": {"s": turn % 100}, "batchSize": 100_000};
        let documents = link.all(DATABASE, find)?.len() as u32;
        match documents == DOCS_COUNT / 100 {
            true => Ok(()),
            false => Err(wrong("not one of a hundred", doc! {"found": documents as i32}.as_raw())),
        }
    })
}

fn bulk_insert(place: Place) -> Operation {
    // Each with a text of its own: a block of equal ones would be compressed to nothing.
    let documents: Vec<Document> = (0..BULK_BATCH as u32).map(document_like).collect();
    let insert = doc! {"insert": "bulk", "documents": documents, "writeConcern": durable()};
    let mut template = Template::new(DATABASE, insert);
    let mut ids = fresh_ids(place).step_by(BULK_BATCH);
    Box::new(move |link| {
        let first = ids.next().expect("ids do not end");
        counted(link.exchange(template.counting_from(first))?, BULK_BATCH as i64)
    })
}

/// A thousand neighbours by `k`; the mark stands for the first of them.
fn neighbours(rng: &mut StdRng) -> Document {
    let first = rng.random_range(0..DOCS_COUNT as i32 - 1000);
    doc! {"k": {"$gte": first, "$lt": first + 1000}}
}

fn over_neighbours(
    place: Place,
    command: fn(Document) -> Document,
    check: fn(RawDocument<'_>) -> Result<(), Fault>,
) -> Operation {
    let mut rng = StdRng::seed_from_u64(place.turn as u64);
    Box::new(move |link| {
        let mut command = command(neighbours(&mut rng));
        command.push("$db", DATABASE);
        check(link.exchange(&message(&command))?)
    })
}

fn range_sort(place: Place) -> Operation {
    let command = |filter| doc! {"find": DOCS, "filter": filter, "sort": {"k": -1}, "limit": 50};
    over_neighbours(place, command, |reply| found(reply, 50))
}

fn range_sort_memory(place: Place) -> Operation {
    let command = |filter| doc! {"find": DOCS, "filter": filter, "sort": {"price": 1}, "limit": 50};
    over_neighbours(place, command, |reply| found(reply, 50))
}

fn count_index(place: Place) -> Operation {
    over_neighbours(place, |filter| doc! {"count": DOCS, "query": filter}, |reply| counted(reply, 1000))
}

fn count_documents(place: Place) -> Operation {
    let command = |filter| {
        let group = doc! {"_id": 1, "n": {"$sum": 1}};
        doc! {"aggregate": DOCS, "pipeline": [{"$match": filter}, {"$group": group}], "cursor": {}}
    };
    over_neighbours(place, command, |reply| found(reply, 1))
}

fn count_all(_: Place) -> Operation {
    let message = message(&doc! {"count": DOCS, "$db": DATABASE});
    Box::new(move |link| counted(link.exchange(&message)?, i64::from(DOCS_COUNT)))
}

fn update_many(place: Place) -> Operation {
    let command = |filter| {
        let update = doc! {"q": filter, "u": {"$inc": {"n": 1}}, "multi": true};
        doc! {"update": DOCS, "updates": [update], "writeConcern": durable()}
    };
    over_neighbours(place, command, |reply| counted(reply, 1000))
}

/// Batches of a thousand that one turn deletes.
const DELETE_BATCHES: usize = 15;

fn refill_deletes(link: &mut Link, turn: usize) -> Result<(), Fault> {
    let first = (turn * DELETE_BATCHES * 1000) as u32;
    fill(link, "deletes", first, first + DELETE_BATCHES as u32 * 1000, 1_000_000)
}

fn delete_many(place: Place) -> Operation {
    let mut batches = (place.turn * DELETE_BATCHES) as i32..;
    Box::new(move |link| {
        let batch = batches.next().expect("batches do not end");
        let delete = doc! {"q": {"batch": batch}, "limit": 0};
        let mut command = doc! {"delete": "deletes", "deletes": [delete], "writeConcern": durable()};
        command.push("$db", DATABASE);
        counted(link.exchange(&message(&command))?, 1000)
    })
}

fn drop_index(link: &mut Link, _: usize) -> Result<(), Fault> {
    match link.run(DATABASE, doc! {"dropIndexes": BUILD, "index": "k_1"}) {
        // Not there yet.
        Err(fault) if fault.code() != Some(27) => Err(fault),
        _ => Ok(()),
    }
}

fn index_build(_: Place) -> Operation {
    Box::new(|link| create_index(link, BUILD, "k"))
}

fn transaction(place: Place) -> Operation {
    let mut rng = StdRng::seed_from_u64((place.turn as u64) << 16 | place.connection as u64);
    let session: [u8; 16] = rng.random();
    let mut number = 0;
    Box::new(move |link| {
        loop {
            number += 1;
            let mut transaction = Transaction::new(link, session, number);
            let mut conflict = None;
            for _ in 0..2 {
                let id = rng.random_range(0..DOCS_COUNT as i32);
                let update = doc! {"q": {"_id": id}, "u": {"$inc": {"n": 1}}};
                conflict = transaction.run(DATABASE, doc! {"update": DOCS, "updates": [update]}).err();
                if conflict.is_some() {
                    break;
                }
            }
            let outcome = match conflict {
                None => transaction.commit(),
                Some(fault) => Err(fault),
            };
            match outcome {
                // Two that meet by chance; the retry is part of the cost.
                Err(fault) if fault.has_label("TransientTransactionError") => {}
                outcome => return outcome,
            }
        }
    })
}
