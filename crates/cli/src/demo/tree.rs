//! A tree of categories: nested sets as textbooks renumber them, and a declared tree, under the same clients.
//!
//! By hand, a client reads where its new node goes, shifts all numbers behind that place and inserts the node. Clients that do
//! so at once shift each other's numbers. What is wrong is counted here, from parents and numbers.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, anyhow};
use kilim_bson::{Document, RawValue, doc};
use kilim_client::{Client, Uri, whole};

use super::{BY_HAND, DECLARED, shop};
use crate::connect::explained;
use crate::output::say;
use crate::text::grouped;

const NODES_EACH: u32 = 50;
const NAMES: [&str; 3] = ["rugs", "looms", "wool"];

/// Grows both trees; whether the declared one has nothing wrong.
pub(super) fn show(client: &mut Client, uri: &Uri, clients: u32) -> Result<bool> {
    client.run(DECLARED, declaration()).map_err(explained)?;
    for (at, name) in NAMES.into_iter().enumerate() {
        let left = 1 + 2 * at as i32;
        let by_hand = doc! {"_id": name, "lft": left, "rgt": left + 1};
        client.run(BY_HAND, doc! {"insert": "categories", "documents": [by_hand]})?;
        client.run(DECLARED, doc! {"insert": "categories", "documents": [{"_id": name}]})?;
    }
    for add in [add_by_hand as Add, add_declared as Add] {
        grow(uri, clients, add)?;
    }
    let [by_hand, declared] = [BY_HAND, DECLARED].map(|database| {
        let nodes = shop::all(client, database, "categories");
        nodes.map(|nodes| (nodes.len() as i64, wrong(&nodes)))
    });
    let ((nodes, by_hand), (_, declared)) = (by_hand?, declared?);
    let moved = doc! {"moveNode": "categories", "_id": "looms", "to": "rugs"};
    client.run(DECLARED, moved).map_err(explained)?;
    let after = wrong(&shop::all(client, DECLARED, "categories")?);
    let verify = client.run(DECLARED, doc! {"verifyPattern": "categories", "name": "tree"});
    let verified = whole(verify.map_err(explained)?.get("wrong"));
    let below = client.all(
        DECLARED,
        doc! {"aggregate": "categories", "cursor": {},
        "pipeline": [{"$tree": {"of": "rugs", "what": "descendants"}}, {"$count": "n"}]},
    )?;
    let below = below.first().and_then(|found| whole(found.get("n"))).unwrap_or(0);
    say!(
        "A tree of {} categories, grown by {clients} clients at once. Nested sets renumbered by hand: {} nodes are wrong.\n\
         Declared: {} are wrong, and {} after a move of a whole branch; \"rugs\" now has {} below it.\n",
        grouped(nodes),
        grouped(by_hand),
        grouped(declared),
        grouped(after),
        grouped(below),
    )?;
    Ok(declared == 0 && after == 0 && verified == Some(0))
}

/// Adds a node below a parent.
type Add = fn(&mut Client, &str, &str) -> Result<()>;

fn grow(uri: &Uri, clients: u32, add: Add) -> Result<()> {
    std::thread::scope(|scope| {
        let work = move |number: u32| -> Result<()> {
            let mut client = Client::connect(uri.address()).context("a client cannot connect")?;
            for at in 0..NODES_EACH {
                // Under a root, or under a node of its own that is there already.
                let parent = match at % 3 {
                    0 => NAMES[(number + at) as usize % NAMES.len()].to_owned(),
                    _ => format!("c{number}.{}", at / 2),
                };
                add(&mut client, &format!("c{number}.{at}"), &parent)?;
            }
            Ok(())
        };
        let workers: Vec<_> = (0..clients).map(|number| scope.spawn(move || work(number))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow!("a client panicked"))?)
    })
}

fn add_declared(client: &mut Client, id: &str, parent: &str) -> Result<()> {
    let node = doc! {"_id": id, "parent": parent};
    client.run(DECLARED, doc! {"insert": "categories", "documents": [node]}).map_err(explained)?;
    Ok(())
}

/// As textbooks have it: make room behind the parent's last child, then insert.
fn add_by_hand(client: &mut Client, id: &str, parent: &str) -> Result<()> {
    let found = client.all(BY_HAND, doc! {"find": "categories", "filter": {"_id": parent}})?;
    let place = found.first().and_then(|node| whole(node.get("rgt"))).context("a parent without a number")?;
    for (field, from) in [("rgt", place), ("lft", place + 1)] {
        let (mut filter, mut shift) = (Document::new(), Document::new());
        filter.push(field, doc! {"$gte": from});
        shift.push(field, 2);
        let update = doc! {"q": filter, "u": {"$inc": shift}, "multi": true};
        client.run(BY_HAND, doc! {"update": "categories", "updates": [update]})?;
    }
    let node = doc! {"_id": id, "parent": parent, "lft": place, "rgt": place + 1};
    client.run(BY_HAND, doc! {"insert": "categories", "documents": [node]})?;
    Ok(())
}

fn declaration() -> Document {
    doc! {"createPattern": "categories", "name": "tree", "tree": {
        "parent": "parent", "ancestors": "ancestors", "path": "path", "depth": "depth", "nestedSets": ["lft", "rgt"],
        "descendantCount": "below",
    }}
}

/// How many nodes have a number that another has too, or lie outside of their parents.
fn wrong(nodes: &[Document]) -> i64 {
    let bounds = |node: &Document| Some((whole(node.get("lft"))?, whole(node.get("rgt"))?));
    let name = |node: &Document, field: &str| node.get(field).and_then(RawValue::as_str).map(str::to_owned);
    let by_id: BTreeMap<String, &Document> =
        nodes.iter().filter_map(|node| Some((name(node, "_id")?, node))).collect();
    let mut taken = BTreeSet::new();
    let mut wrong = 0;
    for node in nodes {
        let fine = bounds(node).is_some_and(|(left, right)| {
            let parent = name(node, "parent").and_then(|parent| by_id.get(&parent));
            let is_inside = parent
                .is_none_or(|parent| bounds(parent).is_some_and(|(low, high)| low < left && right < high));
            let is_new = taken.insert(left);
            taken.insert(right) && is_new && is_inside && left < right
        });
        wrong += i64::from(!fine);
    }
    wrong
}
