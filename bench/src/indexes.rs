//! Kinds of index beyond one field: a wildcard index, a hashed one, and inserts that keep several.

use kilim_bson::doc;
use kilim_testkit::link::{Fault, Link, Template};

use crate::data::{DATABASE, create_index, fill};
use crate::workload::{
    DOCS_COUNT, MARK, Operation, Place, Target, Workload, counted, document_with_marked_id, durable, found,
    fresh_ids, random,
};

const ATTRIBUTES: &str = "attributes";
const HASHED: &str = "hashed";
const INDEXED: &str = "indexed";

pub fn all() -> Vec<Workload> {
    let row = |name, connections, operations, cpu, make| Workload {
        name,
        connections,
        operations,
        target: Target::CpuAtMost(cpu),
        writes: false,
        prepare: prepare_wildcard,
        before: |_, _| Ok(()),
        make,
    };
    vec![
        row("find_wildcard", 1, 10_000, 0.5, find_wildcard),
        row("find_wildcard", 16, 30_000, 0.5, find_wildcard),
        Workload { prepare: prepare_hashed, ..row("find_hashed", 1, 10_000, 0.5, find_hashed) },
        Workload {
            writes: true,
            prepare: prepare_indexed,
            ..row("insert_three_indexes", 1, 1_000, 0.7, insert_indexed)
        },
        Workload {
            writes: true,
            prepare: prepare_indexed,
            ..row("insert_three_indexes", 16, 6_000, 0.7, insert_indexed)
        },
    ]
}

fn is_empty(link: &mut Link, collection: &str) -> Result<bool, Fault> {
    let there = link.run(DATABASE, doc! {"count": collection})?;
    Ok(kilim_testkit::link::whole(there.get("n")) == Some(0))
}

fn prepare_wildcard(link: &mut Link) -> Result<(), Fault> {
    if is_empty(link, ATTRIBUTES)? {
        fill(link, ATTRIBUTES, 0, DOCS_COUNT, DOCS_COUNT)?;
    }
    // The long text is no attribute anybody asks for.
    let index = doc! {"key": {"$**": 1}, "name": "all", "wildcardProjection": {"text": 0}};
    link.run(DATABASE, doc! {"createIndexes": ATTRIBUTES, "indexes": [index]}).map(drop)
}

fn prepare_hashed(link: &mut Link) -> Result<(), Fault> {
    if is_empty(link, HASHED)? {
        fill(link, HASHED, 0, DOCS_COUNT, DOCS_COUNT)?;
    }
    let index = doc! {"key": {"k": "hashed"}, "name": "k_hashed"};
    link.run(DATABASE, doc! {"createIndexes": HASHED, "indexes": [index]}).map(drop)
}

fn prepare_indexed(link: &mut Link) -> Result<(), Fault> {
    ["k", "name", "price"].into_iter().try_for_each(|field| create_index(link, INDEXED, field))
}

fn find_wildcard(place: Place) -> Operation {
    let find = doc! {"find": ATTRIBUTES, "filter": {"k": MARK}, "limit": 1, "singleBatch": true};
    random(place, DOCS_COUNT, find, |reply| found(reply, 1))
}

fn find_hashed(place: Place) -> Operation {
    let find = doc! {"find": HASHED, "filter": {"k": MARK}, "limit": 1, "singleBatch": true};
    random(place, DOCS_COUNT, find, |reply| found(reply, 1))
}

fn insert_indexed(place: Place) -> Operation {
    let insert =
        doc! {"insert": INDEXED, "documents": [document_with_marked_id()], "writeConcern": durable()};
    let mut template = Template::new(DATABASE, insert);
    let mut ids = fresh_ids(place);
    Box::new(move |link| counted(link.exchange(template.with(ids.next().expect("ids do not end")))?, 1))
}
