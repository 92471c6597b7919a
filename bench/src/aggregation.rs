//! The aggregation language: a shop of orders, customers and a tree of categories.

use kilim_bson::{Document, RawDocument, Value, doc};
use kilim_testkit::link::{Fault, Link, message, whole};

use crate::data::{DATABASE, create_index, mix};
use crate::workload::{Leaves, Operation, Place, Target, Workload, counted, durable, found, random};

const ORDERS: &str = "orders";
const ORDERS_COUNT: u32 = 100_000;
const CUSTOMERS: &str = "customers";
const CUSTOMERS_COUNT: u32 = 1_000;
const CATEGORIES: &str = "categories";
const CATEGORIES_COUNT: u32 = 10_000;
const STATUSES: [&str; 4] = ["open", "paid", "shipped", "returned"];

pub fn all() -> Vec<Workload> {
    let row = |name, operations, cpu, make| Workload {
        name,
        connections: 1,
        operations,
        target: Target::CpuAtMost(cpu),
        leaves: Leaves::Nothing,
        prepare,
        before: |_, _| Ok(()),
        make,
    };
    vec![
        row("group_sort", 6, 0.7, group_sort),
        row("unwind_group", 4, 0.7, unwind_group),
        row("lookup", 30, 0.5, lookup),
        row("lookup_pipeline", 10, 0.15, lookup_pipeline),
        row("graph_lookup", 6, 0.7, graph_lookup),
        row("facet", 4, 0.7, facet),
        row("sort_all", 4, 0.7, sort_all),
        row("moving_average", 4, 0.4, moving_average),
        row("densify_fill", 4, 0.4, densify_fill),
        Workload { leaves: Leaves::Some, ..row("update_pipeline", 1_000, 0.35, update_pipeline) },
    ]
}

/// Five lines an order, of a thousand articles.
fn order(id: u32) -> Document {
    let random = |salt: u64| mix(u64::from(id) << 8 | salt);
    let lines: Vec<Value> = (0..5)
        .map(|line| {
            Value::Document(doc! {
                "sku": format!("sku-{:03}", random(line) % 1000),
                "quantity": (random(line + 10) % 9 + 1) as i32,
                "price": (random(line + 20) % 10_000) as f64 / 100.0,
            })
        })
        .collect();
    doc! {
        "_id": id as i32,
        "customer": (random(30) % u64::from(CUSTOMERS_COUNT)) as i32,
        "status": STATUSES[(random(31) % 4) as usize],
        "total": (random(32) % 100_000) as f64 / 100.0,
        "at": Value::DateTime(1_700_000_000_000 + (random(33) % 31_536_000_000) as i64),
        "lines": lines,
    }
}

fn customer(id: u32) -> Document {
    doc! {
        "_id": id as i32,
        "number": id as i32,
        "name": format!("customer {id}"),
        "city": format!("city {}", id % 50),
        "note": "x".repeat(200),
    }
}

/// A tree with ten children a node.
fn category(id: u32) -> Document {
    let parent = (id > 0).then(|| Value::Int32((id as i32 - 1) / 10));
    doc! {"_id": id as i32, "parent": parent, "name": format!("category {id}")}
}

fn fill(link: &mut Link, collection: &str, count: u32, make: fn(u32) -> Document) -> Result<(), Fault> {
    let there = link.run(DATABASE, doc! {"count": collection})?;
    if whole(there.get("n")) == Some(0) {
        for start in (0..count).step_by(1000) {
            let documents: Vec<Document> = (start..(start + 1000).min(count)).map(make).collect();
            link.run(DATABASE, doc! {"insert": collection, "documents": documents, "ordered": false})?;
        }
    }
    Ok(())
}

fn prepare(link: &mut Link) -> Result<(), Fault> {
    fill(link, ORDERS, ORDERS_COUNT, order)?;
    fill(link, CUSTOMERS, CUSTOMERS_COUNT, customer)?;
    fill(link, CATEGORIES, CATEGORIES_COUNT, category)?;
    create_index(link, CUSTOMERS, "number")?;
    create_index(link, CATEGORIES, "parent")
}

/// One pipeline again and again, whose first batch has to hold so many documents.
fn pipeline(collection: &str, stages: Vec<Document>, expected: usize) -> Operation {
    let mut command = doc! {"aggregate": collection, "pipeline": stages, "cursor": {"batchSize": 100_000}};
    command.push("$db", DATABASE);
    let message = message(&command);
    Box::new(move |link| found(link.exchange(&message)?, expected))
}

fn group_sort(_: Place) -> Operation {
    let group = doc! {
        "_id": "$customer",
        "orders": {"$sum": 1},
        "total": {"$sum": "$total"},
        "average": {"$avg": "$total"},
    };
    let wanted = doc! {"status": {"$in": ["paid", "shipped"]}};
    let stages = vec![doc! {"$match": wanted}, doc! {"$group": group}, doc! {"$sort": {"total": -1}}];
    pipeline(ORDERS, stages, CUSTOMERS_COUNT as usize)
}

/// The mean of each order's total and the nine before it, of all orders in the order of their numbers.
fn moving_average(_: Place) -> Operation {
    let output = doc! {"mean": {"$avg": "$total", "window": {"documents": [-9, 0]}}};
    let window = doc! {"sortBy": {"_id": 1}, "output": output};
    let stages = vec![
        doc! {"$setWindowFields": window},
        doc! {"$group": {"_id": Value::Null, "sum": {"$sum": "$mean"}}},
    ];
    pipeline(ORDERS, stages, 1)
}

/// Every tenth order, the gaps between them filled and their totals put on lines.
fn densify_fill(_: Place) -> Operation {
    let some = doc! {"_id": {"$mod": [10, 0]}};
    let stages = vec![
        doc! {"$match": some},
        doc! {"$project": {"total": 1}},
        doc! {"$densify": {"field": "_id", "range": {"step": 1, "bounds": "full"}}},
        doc! {"$fill": {"sortBy": {"_id": 1}, "output": {"total": {"method": "linear"}}}},
        doc! {"$group": {"_id": Value::Null, "sum": {"$sum": "$total"}}},
    ];
    pipeline(ORDERS, stages, 1)
}

fn unwind_group(_: Place) -> Operation {
    let value = doc! {"$multiply": ["$lines.quantity", "$lines.price"]};
    let group = doc! {"_id": "$lines.sku", "sold": {"$sum": "$lines.quantity"}, "value": {"$sum": value}};
    pipeline(ORDERS, vec![doc! {"$unwind": "$lines"}, doc! {"$group": group}], 1000)
}

/// A thousand orders.
fn some_orders() -> Document {
    doc! {"$match": {"_id": {"$gte": 5000, "$lt": 6000}}}
}

fn lookup(_: Place) -> Operation {
    let lookup =
        doc! {"from": CUSTOMERS, "localField": "customer", "foreignField": "number", "as": "customer"};
    pipeline(ORDERS, vec![some_orders(), doc! {"$lookup": lookup}], 1000)
}

fn lookup_pipeline(_: Place) -> Operation {
    let inner = vec![
        doc! {"$match": {"$expr": {"$eq": ["$number", "$$number"]}}},
        doc! {"$project": {"name": 1, "city": 1}},
    ];
    let lookup =
        doc! {"from": CUSTOMERS, "let": {"number": "$customer"}, "pipeline": inner, "as": "customer"};
    pipeline(ORDERS, vec![some_orders(), doc! {"$lookup": lookup}], 1000)
}

fn graph_lookup(_: Place) -> Operation {
    let graph = doc! {
        "from": CATEGORIES,
        "startWith": "$_id",
        "connectFromField": "_id",
        "connectToField": "parent",
        "as": "below",
        "depthField": "depth",
    };
    let size = doc! {"below": {"$size": "$below"}};
    let stages = vec![
        doc! {"$match": {"_id": 0}},
        doc! {"$graphLookup": graph},
        doc! {"$project": size},
        doc! {"$match": {"below": CATEGORIES_COUNT as i32 - 1}},
    ];
    pipeline(CATEGORIES, stages, 1)
}

fn facet(_: Place) -> Operation {
    let group = doc! {"_id": "$status", "orders": {"$sum": 1}, "total": {"$sum": "$total"}};
    let largest = vec![doc! {"$sort": {"total": -1, "_id": 1}}, doc! {"$limit": 10}];
    let bucket = doc! {"groupBy": "$total", "boundaries": [0, 250, 500, 750, 1001], "default": "other"};
    let facets = doc! {
        "by_status": [{"$group": group}],
        "largest": largest,
        "by_total": [{"$bucket": bucket}],
    };
    pipeline(ORDERS, vec![doc! {"$facet": facets}], 1)
}

/// All of it in order, of which the end is shown: so that the sort counts and not the reply.
fn sort_all(_: Place) -> Operation {
    let stages = vec![doc! {"$sort": {"total": 1, "_id": 1}}, doc! {"$skip": ORDERS_COUNT as i32 - 10}];
    pipeline(ORDERS, stages, 10)
}

fn update_pipeline(place: Place) -> Operation {
    let set = doc! {"$set": {
        "lines_total": {"$sum": "$lines.price"},
        "count": {"$add": [{"$ifNull": ["$count", 0]}, 1]},
    }};
    let update = doc! {"q": {"_id": kilim_testkit::link::Template::MARK}, "u": [set]};
    let command = doc! {"update": ORDERS, "updates": [update], "writeConcern": durable()};
    let check = |reply: RawDocument<'_>| counted(reply, 1);
    random(place, ORDERS_COUNT, command, check)
}
