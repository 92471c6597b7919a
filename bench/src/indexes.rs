//! Kinds of index beyond one field: a wildcard index, a hashed one, one with a collation, two for one query, and inserts
//! that keep several.

use kilim_bson::{Document, doc};
use kilim_testkit::link::{Fault, Link, Template};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::data::{DATABASE, create_index, document, fill, scattered};
use crate::workload::{
    DOCS_COUNT, Leaves, MARK, Operation, Place, Target, Workload, counted, document_with_marked_id, durable,
    found, fresh_ids, random,
};

const ATTRIBUTES: &str = "attributes";
const HASHED: &str = "hashed";
const COLLATED: &str = "collated";
const INDEXED: &str = "indexed";
const INTERSECTED: &str = "intersected";

pub fn all() -> Vec<Workload> {
    let row = |name, connections, operations, cpu, make| Workload {
        name,
        connections,
        operations,
        target: Target::CpuAtMost(cpu),
        leaves: Leaves::Nothing,
        prepare: prepare_wildcard,
        before: |_, _| Ok(()),
        make,
    };
    vec![
        row("find_wildcard", 1, 10_000, 0.5, find_wildcard),
        row("find_wildcard", 16, 30_000, 0.5, find_wildcard),
        Workload { prepare: prepare_collated, ..row("find_collated", 1, 10_000, 0.5, find_collated) },
        Workload { prepare: prepare_collated, ..row("find_collated", 16, 30_000, 0.5, find_collated) },
        Workload { prepare: prepare_hashed, ..row("find_hashed", 1, 10_000, 0.5, find_hashed) },
        Workload { prepare: prepare_intersected, ..row("find_intersected", 1, 200, 1.0, find_intersected) },
        Workload {
            prepare: prepare_intersected,
            ..row("find_intersected_hint", 1, 200, 1.0, find_by_one_of_two)
        },
        Workload { prepare: prepare_intersected, ..row("count_intersected", 1, 200, 1.0, count_intersected) },
        Workload {
            leaves: Leaves::Some,
            prepare: prepare_indexed,
            ..row("insert_three_indexes", 1, 1_000, 0.7, insert_indexed)
        },
        Workload {
            leaves: Leaves::Some,
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

/// Neither case nor accents count.
fn collation() -> Document {
    doc! {"locale": "en", "strength": 1}
}

/// Four letters for a number, all of one case.
fn letters(number: u32, first: u8) -> [u8; 4] {
    [0, 1, 2, 3].map(|place| first + (number / 26u32.pow(place) % 26) as u8)
}

fn prepare_collated(link: &mut Link) -> Result<(), Fault> {
    if is_empty(link, COLLATED)? {
        for start in (0..DOCS_COUNT).step_by(1000) {
            let documents: Vec<Document> = (start..start + 1000)
                .map(|id| {
                    let mut document = document(id, DOCS_COUNT);
                    let code = letters(scattered(id, DOCS_COUNT), b'a');
                    let label: String = code.map(char::from).iter().collect();
                    document.push("label", format!("Résumé of {label}"));
                    document
                })
                .collect();
            link.run(DATABASE, doc! {"insert": COLLATED, "documents": documents, "ordered": false})?;
        }
    }
    let index = doc! {"key": {"label": 1}, "name": "label", "collation": collation()};
    link.run(DATABASE, doc! {"createIndexes": COLLATED, "indexes": [index]}).map(drop)
}

/// Two fields of ten values each: a tenth has one of them, a hundredth both.
fn prepare_intersected(link: &mut Link) -> Result<(), Fault> {
    if is_empty(link, INTERSECTED)? {
        for start in (0..DOCS_COUNT).step_by(1000) {
            let documents: Vec<Document> = (start..start + 1000)
                .map(|id| {
                    let mut document = document(id, DOCS_COUNT);
                    let place = scattered(id, DOCS_COUNT);
                    document.push("region", (place % 10) as i32);
                    document.push("kind", (place / 10 % 10) as i32);
                    document
                })
                .collect();
            link.run(DATABASE, doc! {"insert": INTERSECTED, "documents": documents, "ordered": false})?;
        }
    }
    ["region", "kind"].into_iter().try_for_each(|field| create_index(link, INTERSECTED, field))
}

fn prepare_indexed(link: &mut Link) -> Result<(), Fault> {
    ["k", "name", "price"].into_iter().try_for_each(|field| create_index(link, INDEXED, field))
}

fn find_wildcard(place: Place) -> Operation {
    let find = doc! {"find": ATTRIBUTES, "filter": {"k": MARK}, "limit": 1, "singleBatch": true};
    random(place, DOCS_COUNT, find, |reply| found(reply, 1))
}

/// The mark's bytes are letters, so it has its place in a text too.
fn find_collated(place: Place) -> Operation {
    let mark: String = MARK.to_le_bytes().map(char::from).iter().collect();
    let find = doc! {
        "find": COLLATED,
        "filter": {"label": format!("RESUME OF {mark}")},
        "collation": collation(),
        "limit": 1,
        "singleBatch": true,
    };
    let mut template = Template::new(DATABASE, find);
    let mut rng = StdRng::seed_from_u64((place.turn as u64) << 16 | place.connection as u64);
    Box::new(move |link| {
        let code = letters(rng.random_range(0..DOCS_COUNT), b'A');
        found(link.exchange(template.with(i32::from_le_bytes(code)))?, 1)
    })
}

fn find_hashed(place: Place) -> Operation {
    let find = doc! {"find": HASHED, "filter": {"k": MARK}, "limit": 1, "singleBatch": true};
    random(place, DOCS_COUNT, find, |reply| found(reply, 1))
}

fn by_two_fields() -> Document {
    doc! {
        "find": INTERSECTED,
        "filter": {"region": MARK, "kind": 3},
        "projection": {"_id": 1},
        "batchSize": 1001,
        "singleBatch": true,
    }
}

fn find_intersected(place: Place) -> Operation {
    random(place, 10, by_two_fields(), |reply| found(reply, 1000))
}

fn find_by_one_of_two(place: Place) -> Operation {
    let mut find = by_two_fields();
    find.push("hint", "region_1");
    random(place, 10, find, |reply| found(reply, 1000))
}

fn count_intersected(place: Place) -> Operation {
    let count = doc! {"count": INTERSECTED, "query": {"region": MARK, "kind": 3}};
    random(place, 10, count, |reply| counted(reply, 1000))
}

fn insert_indexed(place: Place) -> Operation {
    let insert =
        doc! {"insert": INDEXED, "documents": [document_with_marked_id()], "writeConcern": durable()};
    let mut template = Template::new(DATABASE, insert);
    let mut ids = fresh_ids(place);
    Box::new(move |link| counted(link.exchange(template.with(ids.next().expect("ids do not end")))?, 1))
}
