//! What ordinary clients do all day. Each load keeps a bounded amount of data.

use std::time::Duration;

use anyhow::{Result, ensure};
use kilim_bson::{Document, RawValue, Value, array, doc};
use rand::Rng;
use rand::rngs::StdRng;

use super::{DATABASE, Step};
use crate::link::{Fault, Link, Transaction, whole};

pub(super) const DOCS: &str = "docs";
pub(super) const ACCOUNTS: &str = "accounts";
const JOBS: &str = "jobs";

const DOCS_MAX: i32 = 2_000;
const JOBS_MAX: u64 = 200;
const ACCOUNTS_MAX: i32 = 40;
const PRODUCTS: i32 = 20;
const CUSTOMERS: i32 = 20;
const REVIEWS: i32 = 400;
const ORDERS: i32 = 400;

pub(super) const ALL: &[(&str, Step)] = &[
    ("writes", write),
    ("reads", read),
    ("queue", queue),
    ("transfers", transfer),
    ("aggregates", aggregate),
    ("patterns", maintain),
    ("schema changes", change_schema),
    ("held snapshots", hold_snapshot),
    ("listeners", listen),
];

pub(super) fn prepare(link: &mut Link) -> Result<()> {
    for name in [DOCS, JOBS, ACCOUNTS, "customers", "orders", "products", "reviews"] {
        link.run(DATABASE, doc! {"create": name})?;
    }
    let index =
        |name: &str, key: Document| doc! {"createIndexes": name, "indexes": [{"key": key, "name": "k"}]};
    link.run(DATABASE, index(DOCS, doc! {"k": 1}))?;
    link.run(DATABASE, index(JOBS, doc! {"due": 1}))?;
    let all = |count: i32, make: fn(i32) -> Document| (0..count).map(make).collect::<Vec<_>>();
    let insert = |name: &str, documents: Vec<Document>| doc! {"insert": name, "documents": documents};
    link.run(DATABASE, insert(ACCOUNTS, all(ACCOUNTS_MAX, |id| doc! {"_id": id, "balance": 100})))?;
    link.run(DATABASE, insert("products", all(PRODUCTS, |id| doc! {"_id": id})))?;
    link.run(DATABASE, insert("customers", all(CUSTOMERS, |id| doc! {"_id": id, "name": "first"})))?;
    let card = doc! {"from": "customers", "localField": "customer", "as": "card", "fields": {"name": 1}};
    link.run(
        DATABASE,
        doc! {"createPattern": "orders", "name": "card", "extendedReference": card, "maxSync": 10},
    )?;
    let group = doc! {"_id": "$product", "count": {"$count": {}}, "sum": {"$sum": "$rating"}, "best": {"$max": "$rating"}};
    let stats = doc! {"from": "reviews", "pipeline": [{"$group": group}]};
    link.run(DATABASE, doc! {"createPattern": "products", "name": "stats", "computed": stats})?;
    let recent = doc! {
        "from": "reviews", "foreignField": "product", "as": "recent", "sort": {"at": -1}, "limit": 3, "fields": {"at": 1},
    };
    link.run(DATABASE, doc! {"createPattern": "products", "name": "recent", "subset": recent})?;
    Ok(())
}

/// Nobody makes money or loses any.
pub(super) fn check_accounts(accounts: &[Document]) -> Result<()> {
    let total: i64 = accounts.iter().filter_map(|account| whole(account.get("balance"))).sum();
    ensure!(total == i64::from(ACCOUNTS_MAX) * 100, "the accounts hold {total}");
    Ok(())
}

fn update(name: &str, filter: Document, change: Document, upsert: bool) -> Document {
    doc! {"update": name, "updates": [{"q": filter, "u": change, "upsert": upsert}]}
}

fn delete(name: &str, filter: Document) -> Document {
    doc! {"delete": name, "deletes": [{"q": filter, "limit": 1}]}
}

fn write(link: &mut Link, rng: &mut StdRng, _: u64) -> Result<(), Fault> {
    let id = rng.random_range(0..DOCS_MAX);
    let text = "x".repeat(if rng.random_bool(0.02) { 20_000 } else { rng.random_range(0..600) });
    let by_id = doc! {"_id": id};
    let mut command = match rng.random_range(0..10) {
        0..4 => {
            update(DOCS, by_id, doc! {"k": rng.random_range(0..500), "text": text, "list": [1, id]}, true)
        }
        4..7 => update(DOCS, by_id, doc! {"$inc": {"n": 1}, "$set": {"k": rng.random_range(0..500)}}, false),
        7..9 => delete(DOCS, by_id),
        _ => doc! {"update": DOCS, "updates": [
            {"q": {"k": rng.random_range(0..500)}, "u": {"$set": {"seen": true}}, "multi": true},
        ]},
    };
    if rng.random_bool(0.5) {
        command.push("writeConcern", doc! {"w": 1, "j": rng.random_bool(0.5)});
    }
    link.run(DATABASE, command).map(drop)
}

fn read(link: &mut Link, rng: &mut StdRng, _: u64) -> Result<(), Fault> {
    let (id, k) = (rng.random_range(0..DOCS_MAX), rng.random_range(0..500));
    let command = match rng.random_range(0..4) {
        0 => doc! {"find": DOCS, "filter": {"_id": id}},
        1 => {
            doc! {"find": DOCS, "filter": {"k": {"$gte": k, "$lt": k + 20}}, "sort": {"k": 1}, "batchSize": 10}
        }
        2 => doc! {"find": DOCS, "filter": {"_id": {"$gte": id}}, "sort": {"_id": 1}, "limit": 50},
        _ => doc! {"find": DOCS, "filter": {"text": {"$regex": "^xx"}}, "limit": 20},
    };
    link.all(DATABASE, command).map(drop)
}

/// Jobs come in at one end and are taken at the other.
fn queue(link: &mut Link, rng: &mut StdRng, step: u64) -> Result<(), Fault> {
    if step % JOBS_MAX < JOBS_MAX / 2 {
        let jobs: Vec<Document> =
            (0..2).map(|_| doc! {"due": rng.random_range(0..1000), "text": "y".repeat(300)}).collect();
        return link.run(DATABASE, doc! {"insert": JOBS, "documents": jobs}).map(drop);
    }
    let sort = if rng.random_bool(0.5) {
        doc! {"_id": 1}
    } else {
        doc! {"due": 1}
    };
    for _ in 0..3 {
        let taken = link
            .run(DATABASE, doc! {"findAndModify": JOBS, "query": {}, "sort": sort.clone(), "remove": true})?;
        if taken.get("value").is_none_or(|value| value.as_document().is_none()) {
            break;
        }
    }
    Ok(())
}

fn transfer(link: &mut Link, rng: &mut StdRng, step: u64) -> Result<(), Fault> {
    let mut transaction = Transaction::new(link, rng.random(), step as i64 + 1);
    let amount = rng.random_range(1..10);
    for change in [-amount, amount] {
        let account = doc! {"_id": rng.random_range(0..ACCOUNTS_MAX)};
        transaction.run(DATABASE, update(ACCOUNTS, account, doc! {"$inc": {"balance": change}}, false))?;
    }
    // A tenth is left to the server's timeout, as by a client that has died.
    match rng.random_range(0..10) {
        0 => transaction.abort(),
        1 if step.is_multiple_of(50) => Ok(()),
        _ => transaction.commit(),
    }
}

fn aggregate(link: &mut Link, rng: &mut StdRng, _: u64) -> Result<(), Fault> {
    let pipeline = match rng.random_range(0..4) {
        0 => vec![
            doc! {"$group": {"_id": "$k", "n": {"$sum": 1}, "most": {"$max": "$n"}}},
            doc! {"$sort": {"n": -1}},
        ],
        1 => vec![
            doc! {"$match": {"k": {"$lt": 50}}},
            doc! {"$lookup": {"from": JOBS, "localField": "k", "foreignField": "due", "as": "jobs"}},
        ],
        2 => vec![doc! {"$sort": {"text": 1}}, doc! {"$limit": 10}],
        _ => vec![
            doc! {"$unwind": "$list"},
            doc! {"$facet": {"a": [{"$count": "n"}], "b": [{"$sortByCount": "$list"}]}},
        ],
    };
    link.all(DATABASE, doc! {"aggregate": DOCS, "pipeline": pipeline, "cursor": {}}).map(drop)
}

/// Writes to what patterns were declared over.
fn maintain(link: &mut Link, rng: &mut StdRng, step: u64) -> Result<(), Fault> {
    let (product, customer) = (rng.random_range(0..PRODUCTS), rng.random_range(0..CUSTOMERS));
    let (review, order) = (rng.random_range(0..REVIEWS), rng.random_range(0..ORDERS));
    let command = match rng.random_range(0..8) {
        0..3 => {
            let change =
                doc! {"product": product, "rating": rng.random_range(0..6), "at": rng.random_range(0..100)};
            update("reviews", doc! {"_id": review}, change, true)
        }
        3 => delete("reviews", doc! {"_id": review}),
        4 => update("orders", doc! {"_id": order}, doc! {"$set": {"customer": customer}}, true),
        5 => delete("orders", doc! {"_id": order}),
        6 => update(
            "customers",
            doc! {"_id": customer},
            doc! {"$set": {"name": format!("name {step}")}},
            false,
        ),
        _ => doc! {"find": "products", "filter": {"_id": product}},
    };
    link.run(DATABASE, command).map(drop)
}

fn change_schema(link: &mut Link, rng: &mut StdRng, step: u64) -> Result<(), Fault> {
    let name = format!("passing{}", rng.random_range(0..4));
    let mut run = |command: Document| match link.run(DATABASE, command) {
        Err(fault) if super::is_passing(&fault) => Ok(()),
        other => other.map(drop),
    };
    let documents: Vec<Document> = (0..50).map(|n| doc! {"n": n, "text": "z".repeat(200)}).collect();
    run(doc! {"create": name.as_str()})?;
    run(doc! {"insert": name.as_str(), "documents": documents})?;
    run(doc! {"createIndexes": name.as_str(), "indexes": [{"key": {"n": 1, "text": 1}, "name": "n"}]})?;
    run(doc! {"createIndexes": DOCS, "indexes": [{"key": {"seen": 1}, "name": "seen"}]})?;
    run(doc! {"dropIndexes": DOCS, "index": "seen"})?;
    if step.is_multiple_of(2) {
        run(doc! {"collMod": name.as_str(), "validator": {"n": {"$gte": 0}}})?;
    }
    run(doc! {"drop": name.as_str()})?;
    std::thread::sleep(Duration::from_millis(20));
    Ok(())
}

/// Reads a part of a snapshot, and the rest of it a good while later.
fn hold_snapshot(link: &mut Link, rng: &mut StdRng, step: u64) -> Result<(), Fault> {
    let mut transaction = Transaction::new(link, rng.random(), step as i64 + 1);
    let total = |reply: &Document, batch: &str| -> i64 {
        let cursor = reply.get("cursor").and_then(RawValue::as_document);
        let rows = cursor.and_then(|cursor| cursor.get(batch)).and_then(RawValue::as_array);
        let rows = rows.into_iter().flat_map(|rows| rows.iter().filter_map(RawValue::as_document));
        rows.filter_map(|row| whole(row.get("balance"))).sum()
    };
    let first = transaction.run(DATABASE, doc! {"find": ACCOUNTS, "batchSize": 3})?;
    std::thread::sleep(Duration::from_millis(rng.random_range(100..3000)));
    let cursor =
        first.get("cursor").and_then(RawValue::as_document).and_then(|cursor| whole(cursor.get("id")));
    let rest = transaction.run(DATABASE, doc! {"getMore": cursor.unwrap_or(0), "collection": ACCOUNTS})?;
    let seen = total(&first, "firstBatch") + total(&rest, "nextBatch");
    assert_eq!(seen, i64::from(ACCOUNTS_MAX) * 100, "a snapshot shows half of a transfer");
    transaction.commit()
}

/// Listens to changes on a connection of its own, quickly or so slowly that it falls behind, and goes: in order, without a word,
/// or while it waits.
fn listen(link: &mut Link, rng: &mut StdRng, _: u64) -> Result<(), Fault> {
    let mut listener = Link::connect(link.peer()?)?;
    let images = if rng.random_bool(0.5) { "updateLookup" } else { "default" };
    let stages = array![{"$changeStream": {"fullDocument": images}}];
    let (target, name) = match rng.random_bool(0.5) {
        true => (Value::from(DOCS), DOCS),
        false => (Value::Int32(1), "$cmd.aggregate"),
    };
    let begin = doc! {"aggregate": target, "pipeline": stages, "cursor": {"batchSize": 0}};
    let opened = listener.run(DATABASE, begin)?;
    let cursor =
        opened.get("cursor").and_then(RawValue::as_document).and_then(|opened| whole(opened.get("id")));
    let more = |wait_ms: i64| doc! {"getMore": cursor.unwrap_or(0), "collection": name, "maxTimeMS": wait_ms};
    let is_slow = rng.random_bool(0.3);
    for _ in 0..rng.random_range(1..20) {
        if is_slow {
            std::thread::sleep(Duration::from_millis(rng.random_range(50..500)));
        }
        listener.run(DATABASE, more(100))?;
    }
    match rng.random_range(0..3) {
        0 => listener.run(DATABASE, doc! {"killCursors": name, "cursors": [cursor.unwrap_or(0)]}).map(drop),
        1 => Ok(()),
        _ => {
            listener.wait_at_most(Some(Duration::from_millis(20)))?;
            // It may have been quick enough to get an answer.
            let _ = listener.run(DATABASE, more(5_000));
            Ok(())
        }
    }
}
