//! Maintained: clients write to a shop with declared patterns while its server is killed.
//!
//! Customers are renamed and deleted under orders that copy from them, reviews come, move, change and go under products
//! that count them, alone and in transactions, and a pattern is declared over and over, so that some kills meet its
//! backfill. In every snapshot that a client reads meanwhile, and at the end, what is maintained equals what
//! is computed here from the other collections; and at the end verification finds nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use kilim_bson::{Document, RawValue, doc};
use rand::Rng;

use super::pressure::{Client, Outcome, Plan, Report, press};
use crate::link::{Fault, Link, whole};
use crate::subject::Subject;

const DATABASE: &str = "maintained";
const PRODUCTS: i32 = 6;
const CUSTOMERS: i32 = 4;
/// The time that jobs may take to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// The collections as of one moment.
#[derive(Debug, Clone, Default)]
pub struct Shop {
    pub customers: Vec<Document>,
    pub orders: Vec<Document>,
    pub products: Vec<Document>,
    pub reviews: Vec<Document>,
}

pub fn run(subject: &Subject, plan: &Plan) -> Result<Report> {
    let (parts, kills, running) = press(subject, plan, prepare, |client| {
        let (mut tally, mut next) = (Report::default(), 0);
        while client.take().is_some() {
            match client.rng.random_range(0..20) {
                0 => tally.reads += usize::from(look(client)?),
                1 if client.id == 0 => declare_again(client)?,
                _ => {
                    next += 1;
                    let new = (client.id * 1_000_000 + next) as i32;
                    let outcome = match client.rng.random_bool(0.3) {
                        true => transact(client, new)?,
                        false => {
                            let command = any_write(client, new);
                            outcome_of(client.run(DATABASE, command)?)?
                        }
                    };
                    match outcome {
                        Outcome::Committed => tally.committed += 1,
                        Outcome::Aborted => tally.aborted += 1,
                        Outcome::Unknown => tally.unknown += 1,
                    }
                }
            }
        }
        Ok(tally)
    })?;
    let mut link = running.connect()?;
    check(&shop_of(|name| Ok::<_, anyhow::Error>(link.all(DATABASE, doc! {"find": name})?))?)?;
    // A kill between its drop and its declaration leaves it undeclared.
    let is_recent = |pattern: &Document| pattern.get("name").and_then(RawValue::as_str) == Some("recent");
    if !link.all(DATABASE, doc! {"listPatterns": 1})?.iter().any(is_recent) {
        link.run(DATABASE, recent())?;
    }
    let began = Instant::now();
    while !link.all(DATABASE, doc! {"patternJobs": 1})?.is_empty() {
        ensure!(began.elapsed() < PATIENCE, "a job does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    for pattern in link.all(DATABASE, doc! {"listPatterns": 1})? {
        let text = |name: &str| pattern.get(name).and_then(RawValue::as_str).unwrap_or_default();
        let target = text("ns").strip_prefix("maintained.").unwrap_or_default();
        let wait =
            doc! {"waitPattern": target, "name": text("name"), "timeoutMS": PATIENCE.as_millis() as i64};
        link.run(DATABASE, wait)?;
        let found = link.run(DATABASE, doc! {"verifyPattern": target, "name": text("name")})?;
        ensure!(whole(found.get("wrong")) == Some(0), "{found:?}");
    }
    for name in ["customers", "orders", "products", "reviews"] {
        let report = link.run(DATABASE, doc! {"validate": name, "full": true})?;
        ensure!(report.get("valid").and_then(RawValue::as_bool) == Some(true), "{report:?}");
    }
    let shop = shop_of(|name| Ok::<_, anyhow::Error>(link.all(DATABASE, doc! {"find": name})?))?;
    check(&shop)?;
    check_lists(&shop)?;
    Ok(Report {
        committed: parts.iter().map(|part| part.committed).sum(),
        aborted: parts.iter().map(|part| part.aborted).sum(),
        unknown: parts.iter().map(|part| part.unknown).sum(),
        reads: parts.iter().map(|part| part.reads).sum(),
        kills,
    })
}

fn prepare(link: &mut Link) -> Result<()> {
    for name in ["customers", "orders", "products", "reviews"] {
        link.run(DATABASE, doc! {"create": name})?;
    }
    // A few holders are written with their source, many by a job.
    let card = doc! {"from": "customers", "localField": "customer", "as": "card", "fields": {"name": 1}, "onSourceDelete": "null"};
    link.run(
        DATABASE,
        doc! {"createPattern": "orders", "name": "card", "extendedReference": card, "maxSync": 30},
    )?;
    let group = doc! {"_id": "$product", "count": {"$count": {}}, "sum": {"$sum": "$rating"}, "best": {"$max": "$rating"}};
    let stats =
        doc! {"from": "reviews", "pipeline": [{"$match": {"hidden": {"$ne": true}}}, {"$group": group}]};
    link.run(DATABASE, doc! {"createPattern": "products", "name": "stats", "computed": stats})?;
    link.run(DATABASE, recent())?;
    let documents: Vec<Document> = (0..PRODUCTS).map(|id| doc! {"_id": id}).collect();
    let concern = || doc! {"w": "majority", "j": true};
    link.run(DATABASE, doc! {"insert": "products", "documents": documents, "writeConcern": concern()})?;
    let documents: Vec<Document> = (0..CUSTOMERS).map(|id| doc! {"_id": id, "name": "first"}).collect();
    link.run(DATABASE, doc! {"insert": "customers", "documents": documents, "writeConcern": concern()})?;
    Ok(())
}

fn recent() -> Document {
    let subset = doc! {
        "from": "reviews", "foreignField": "product", "as": "recent", "sort": {"at": -1}, "limit": 3, "fields": {"at": 1},
    };
    doc! {"createPattern": "products", "name": "recent", "subset": subset, "backfill": {"batch": 1}}
}

/// Drops a pattern and declares it again.
fn declare_again(client: &mut Client<'_>) -> Result<()> {
    const NOT_FOUND: i32 = 90000009;
    const THERE_ALREADY: i32 = 90000010;
    for command in [doc! {"dropPattern": "products", "name": "recent"}, recent()] {
        match client.run(DATABASE, command)? {
            Err(fault)
                if !fault.is_unknown() && ![Some(NOT_FOUND), Some(THERE_ALREADY)].contains(&fault.code()) =>
            {
                bail!("a declaration was refused: {fault}")
            }
            _ => {}
        }
    }
    Ok(())
}

fn any_write(client: &mut Client<'_>, new: i32) -> Document {
    let mut write = any_statement(client, new);
    write.push("writeConcern", doc! {"w": "majority", "j": true});
    write
}

fn any_statement(client: &mut Client<'_>, new: i32) -> Document {
    let rng = &mut client.rng;
    let product = rng.random_range(0..PRODUCTS);
    let customer = rng.random_range(0..CUSTOMERS);
    // One that this client or another has written, perhaps.
    let any = rng.random_range(0..4) * 1_000_000 + rng.random_range(0..new % 1_000_000 + 1);
    let update = |at: &str, filter: Document, update: Document, upsert: bool| {
        doc! {"update": at, "updates": [{"q": filter, "u": update, "upsert": upsert}]}
    };
    match rng.random_range(0..12) {
        0..4 => {
            let review = doc! {"_id": new, "product": product, "rating": rng.random_range(0..6), "at": rng.random_range(0..100)};
            doc! {"insert": "reviews", "documents": [review]}
        }
        4 => update("reviews", doc! {"_id": any}, doc! {"$set": {"product": product}}, false),
        5 => {
            let change = doc! {"$set": {"rating": rng.random_range(0..6), "hidden": rng.random_bool(0.3)}};
            update("reviews", doc! {"_id": any}, change, false)
        }
        6 => doc! {"delete": "reviews", "deletes": [{"q": {"_id": any}, "limit": 1}]},
        7 | 8 => doc! {"insert": "orders", "documents": [{"_id": new, "customer": customer}]},
        9 => update("orders", doc! {"_id": any}, doc! {"$set": {"customer": customer}}, false),
        10 => doc! {"delete": "customers", "deletes": [{"q": {"_id": customer}, "limit": 1}]},
        _ => {
            let name = doc! {"$set": {"name": format!("name {new}")}};
            update("customers", doc! {"_id": customer}, name, true)
        }
    }
}

fn transact(client: &mut Client<'_>, new: i32) -> Result<Outcome> {
    let statements: Vec<Document> =
        (0..3).map(|step| any_statement(client, new * 4 % 1_000_000_000 + step)).collect();
    let mut refused = None;
    let outcome = client.transact(|transaction| {
        for statement in &statements {
            if let Err(fault) = transaction.run(DATABASE, statement.clone()) {
                // Two documents of one number: this one is not to be.
                if fault.code() == Some(11000) {
                    return Ok(false);
                }
                refused = Some(fault.to_string());
                return Err(fault);
            }
        }
        Ok(true)
    });
    outcome.map_err(|error| error.context(refused.unwrap_or_default()))
}

fn outcome_of(reply: Result<Document, Fault>) -> Result<Outcome> {
    match reply {
        Ok(_) => Ok(Outcome::Committed),
        Err(fault) if fault.is_unknown() => Ok(Outcome::Unknown),
        Err(fault) if [Some(11000), Some(112)].contains(&fault.code()) => Ok(Outcome::Aborted),
        Err(fault) => bail!("a write was refused: {fault}"),
    }
}

/// Reads everything in one snapshot and checks it; false where that was interrupted.
fn look(client: &mut Client<'_>) -> Result<bool> {
    let mut seen = Shop::default();
    let outcome = client.transact(|transaction| {
        let mut read = |name: &str| {
            let reply = transaction.run(DATABASE, doc! {"find": name, "batchSize": 100_000})?;
            let cursor = reply.get("cursor").and_then(RawValue::as_document);
            let batch = cursor.and_then(|cursor| cursor.get("firstBatch")).and_then(RawValue::as_array);
            let documents =
                batch.into_iter().flat_map(|batch| batch.iter().filter_map(RawValue::as_document));
            Ok::<_, Fault>(documents.map(|document| document.to_document()).collect())
        };
        seen = shop_of(&mut read)?;
        Ok(true)
    })?;
    if outcome != Outcome::Committed {
        return Ok(false);
    }
    check(&seen)?;
    Ok(true)
}

fn shop_of<E>(mut read: impl FnMut(&str) -> Result<Vec<Document>, E>) -> Result<Shop, E> {
    Ok(Shop {
        customers: read("customers")?,
        orders: read("orders")?,
        products: read("products")?,
        reviews: read("reviews")?,
    })
}

/// Whether what is always maintained is as the rest says.
pub fn check(shop: &Shop) -> Result<()> {
    let number = |document: &Document, name: &str| whole(document.get(name));
    let mut names: BTreeMap<i64, String> = BTreeMap::new();
    for customer in &shop.customers {
        let name = customer.get("name").and_then(RawValue::as_str).unwrap_or_default();
        names.insert(number(customer, "_id").unwrap_or(-1), name.to_owned());
    }
    for order in &shop.orders {
        let card = order.get("card").and_then(RawValue::as_document);
        let copied = card.and_then(|card| card.get("name")).and_then(RawValue::as_str);
        let current = number(order, "customer").and_then(|id| names.get(&id)).map(String::as_str);
        ensure!(copied == current, "{order:?} should have {current:?}");
    }
    for product in &shop.products {
        let id = number(product, "_id");
        let own = shop.reviews.iter().filter(|review| number(review, "product") == id);
        let visible: Vec<i64> = own
            .filter(|review| review.get("hidden").and_then(RawValue::as_bool) != Some(true))
            .filter_map(|review| number(review, "rating"))
            .collect();
        let expected = (visible.len() as i64, visible.iter().sum(), visible.iter().max().copied());
        let stored = (number(product, "count"), number(product, "sum"), number(product, "best"));
        ensure!(
            stored == (Some(expected.0), Some(expected.1), expected.2),
            "{product:?} should have {expected:?}"
        );
    }
    Ok(())
}

/// Whether the lists of the newest are as the reviews say. While they are declared again, they are plain fields.
fn check_lists(shop: &Shop) -> Result<()> {
    let number = |document: &Document, name: &str| whole(document.get(name));
    for product in &shop.products {
        let own = |review: &&Document| number(review, "product") == number(product, "_id");
        let mut newest: Vec<&Document> = shop.reviews.iter().filter(own).collect();
        newest.sort_by_key(|review| (-number(review, "at").unwrap_or(0), number(review, "_id")));
        let newest: Vec<Option<i64>> = newest.iter().take(3).map(|review| number(review, "_id")).collect();
        let list = product.get("recent").and_then(RawValue::as_array);
        let shown = list.into_iter().flat_map(|list| list.iter().filter_map(RawValue::as_document));
        let shown: Vec<Option<i64>> = shown.map(|one| whole(one.get("_id"))).collect();
        ensure!(shown == newest, "{product:?} should list {newest:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> Shop {
        Shop {
            customers: vec![doc! {"_id": 1, "name": "a"}],
            orders: vec![
                doc! {"_id": 1, "customer": 1, "card": {"name": "a"}},
                doc! {"_id": 2, "customer": 2, "card": kilim_bson::Value::Null},
            ],
            products: vec![doc! {"_id": 1, "count": 1, "sum": 5, "best": 5}],
            reviews: vec![
                doc! {"_id": 1, "product": 1, "rating": 5, "at": 1},
                doc! {"_id": 2, "product": 1, "rating": 4, "at": 1, "hidden": true},
            ],
        }
    }

    #[test]
    fn a_sound_shop_passes_and_each_fault_is_found() {
        check(&sound()).unwrap();
        let faults: [fn(&mut Shop); 5] = [
            |shop| shop.customers[0] = doc! {"_id": 1, "name": "b"},
            |shop| shop.customers.clear(),
            |shop| shop.reviews.clear(),
            |shop| shop.products[0] = doc! {"_id": 1, "count": 1, "sum": 4, "best": 5},
            |shop| shop.orders.push(doc! {"_id": 3, "customer": 1}),
        ];
        for put_in in faults {
            let mut shop = sound();
            put_in(&mut shop);
            assert!(check(&shop).is_err());
        }
    }
}
