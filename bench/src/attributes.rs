//! A catalogue with many sparse attributes: declared, and as names and values by hand.

use kilim_bson::{Array, Document, Value, doc};
use kilim_testkit::link::{Fault, Link, check_reply, message};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::data::mix;
use crate::patterns::{Contest, Entrant, KILIM, MONGOD, declare, index, is_new, load};
use crate::workload::{Leaves, Operation, Place, Target, counted, durable, fresh_ids};

const PRODUCTS: i32 = 1_000_000;
/// Products are made and sent in so many at once.
const BATCH: i32 = 10_000;
const ATTRIBUTES: u64 = 50;
/// So many of them a product has.
const EACH: u64 = 6;
const VALUES: u64 = 20;

pub fn all() -> Vec<Contest> {
    use Target::{CpuAtMost, Told};
    let entrant = |name, server, writes, operations, prepare, make| {
        Entrant::new(name, server, operations, Leaves::of(writes), prepare, make)
    };
    vec![
        Contest {
            name: "two_attributes",
            entrants: vec![
                entrant("declared, kv", KILIM, false, 200, declared_kv, find_kv),
                entrant("mongod by hand", MONGOD, false, 200, by_hand, find_by_hand),
                entrant("by hand", KILIM, false, 200, by_hand, find_by_hand),
                entrant("declared, flat", KILIM, false, 200, declared_flat, find_flat),
            ],
            claims: vec![(1, CpuAtMost(0.3)), (2, Told), (3, Told)],
        },
        Contest {
            name: "attribute_insert",
            entrants: vec![
                entrant("declared, kv", KILIM, true, 1_000, declared_kv, insert_kv),
                entrant("by hand", KILIM, true, 1_000, by_hand, insert_by_hand),
                entrant("mongod by hand", MONGOD, true, 1_000, by_hand, insert_by_hand),
                entrant("declared, flat", KILIM, true, 1_000, declared_flat, insert_flat),
            ],
            claims: vec![(1, CpuAtMost(1.1)), (2, Told), (3, Told)],
        },
    ]
}

/// A product's attributes, in no order: neighbours have others.
fn attributes(id: i32) -> impl Iterator<Item = (String, String)> {
    let first = mix(id as u64) % ATTRIBUTES;
    (0..EACH).map(move |n| {
        let name = (first + n * 7) % ATTRIBUTES;
        (format!("a{name}"), format!("v{}", mix(id as u64 ^ name << 32) % VALUES))
    })
}

fn product(id: i32) -> Document {
    let mut specs = Document::new();
    attributes(id).for_each(|(name, value)| specs.push(&name, value));
    doc! {"_id": id, "title": format!("product {id}"), "specs": specs}
}

fn product_by_hand(id: i32) -> Document {
    let pair = |(name, value): (String, String)| Value::Document(doc! {"k": name, "v": value});
    let specs: Array = attributes(id).map(pair).collect();
    doc! {"_id": id, "title": format!("product {id}"), "specs": specs}
}

fn fill(link: &mut Link, database: &str, make: fn(i32) -> Document) -> Result<(), Fault> {
    for first in (0..PRODUCTS).step_by(BATCH as usize) {
        load(link, database, "products", (first..first + BATCH).map(make))?;
    }
    Ok(())
}

fn declared_as(link: &mut Link, database: &str, store: &str) -> Result<(), Fault> {
    if !is_new(link, database, "products")? {
        return Ok(());
    }
    let attribute = doc! {"paths": ["specs.*"], "as": "specsKv", "store": store};
    declare(link, database, doc! {"createPattern": "products", "name": "specs", "attribute": attribute})?;
    fill(link, database, product)
}

fn declared_kv(link: &mut Link) -> Result<(), Fault> {
    declared_as(link, "attributes_kv", "kv")
}

fn declared_flat(link: &mut Link) -> Result<(), Fault> {
    declared_as(link, "attributes_flat", "flat")
}

fn by_hand(link: &mut Link) -> Result<(), Fault> {
    if !is_new(link, "attributes_hand", "products")? {
        return Ok(());
    }
    index(link, "attributes_hand", "products", doc! {"specs.k": 1, "specs.v": 1}, "kv")?;
    fill(link, "attributes_hand", product_by_hand)
}

/// Two attributes that some product has, so that there is something to find.
fn asked(rng: &mut StdRng) -> [(String, String); 2] {
    let mut found = attributes(rng.random_range(0..PRODUCTS));
    [found.next().expect("six attributes"), found.next().expect("six attributes")]
}

fn find(place: Place, database: &'static str, filter: fn([(String, String); 2]) -> Document) -> Operation {
    let mut rng = StdRng::seed_from_u64(place.turn as u64);
    Box::new(move |link| {
        let filter = filter(asked(&mut rng));
        let find =
            doc! {"find": "products", "filter": filter, "limit": 1000, "singleBatch": true, "$db": database};
        check_reply(link.exchange(&message(&find))?)
    })
}

fn by_fields([first, second]: [(String, String); 2]) -> Document {
    let mut filter = Document::new();
    for (name, value) in [first, second] {
        filter.push(&format!("specs.{name}"), value);
    }
    filter
}

fn by_pairs([first, second]: [(String, String); 2]) -> Document {
    let element = |(name, value): (String, String)| doc! {"$elemMatch": {"k": name, "v": value}};
    doc! {"specs": {"$all": [element(first), element(second)]}}
}

fn find_kv(place: Place) -> Operation {
    find(place, "attributes_kv", by_fields)
}

fn find_flat(place: Place) -> Operation {
    find(place, "attributes_flat", by_fields)
}

fn find_by_hand(place: Place) -> Operation {
    find(place, "attributes_hand", by_pairs)
}

fn insert(place: Place, database: &'static str, make: fn(i32) -> Document) -> Operation {
    let mut ids = fresh_ids(place);
    Box::new(move |link| {
        let document = make(PRODUCTS + ids.next().expect("ids do not end"));
        let insert =
            doc! {"insert": "products", "documents": [document], "writeConcern": durable(), "$db": database};
        counted(link.exchange(&message(&insert))?, 1)
    })
}

fn insert_kv(place: Place) -> Operation {
    insert(place, "attributes_kv", product)
}

fn insert_flat(place: Place) -> Operation {
    insert(place, "attributes_flat", product)
}

fn insert_by_hand(place: Place) -> Operation {
    insert(place, "attributes_hand", product_by_hand)
}
