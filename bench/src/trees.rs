//! Trees: declared, and with the same fields kept by hand.

use kilim_bson::{Array, Document, Value, doc};
use kilim_testkit::link::{Fault, Link, check_reply, message};

use crate::patterns::{Contest, Entrant, KILIM, MONGOD, declare, index, is_new, load};
use crate::workload::{Leaves, Operation, Place, Target, counted, durable, found, fresh_ids};

/// Below the node that moves and whose descendants are read.
const BELOW: i32 = 10_000;
const CHILDREN_EACH: i32 = 10;
/// Two roots, between which a subtree goes to and fro, and the top of the subtree.
const HERE: i32 = 0;
const THERE: i32 = 1;
const TOP: i32 = 2;
/// A line of nodes for leaves at depth six.
const LINE: [i32; 6] = [-1, -2, -3, -4, -5, -6];
/// Contests that insert into the same collections have numbers of their own.
const FIRST_LEAF: i32 = 1_000_000;
const FIRST_UNCOUNTED_LEAF: i32 = 500_000_000;

const ALL: &str = "tree_all";
const UNCOUNTED: &str = "tree_uncounted";
const BARE: &str = "tree_bare";
const INDEXED: &str = "tree_indexed";
const HAND: &str = "tree_hand";
const LINES: &str = "tree_lines";

pub fn all() -> Vec<Contest> {
    use Target::{CpuAtMost, RateAtLeast, Told};
    let entrant = |name, server, connections, operations, prepare, make| {
        let mut entrant = Entrant::new(name, server, operations, Leaves::Some, prepare, make);
        entrant.workload.connections = connections;
        entrant
    };
    let read = |mut entrant: Entrant| {
        entrant.workload.leaves = Leaves::Nothing;
        entrant
    };
    vec![
        Contest {
            name: "tree_leaf",
            entrants: vec![
                entrant("declared", KILIM, 1, 1_000, declared_all, leaf_of_all),
                entrant("plain", KILIM, 1, 1_000, bare, leaf_of_bare),
                entrant("plain, same fields and indexes", KILIM, 1, 1_000, indexed, leaf_of_indexed),
                entrant("mongod by hand", MONGOD, 1, 1_000, by_hand, leaf_by_hand),
            ],
            claims: vec![(1, CpuAtMost(2.5)), (2, Told), (3, Told)],
        },
        Contest {
            name: "tree_leaf_uncounted",
            entrants: vec![
                entrant("declared, no counts", KILIM, 1, 1_000, declared_uncounted, leaf_of_uncounted),
                entrant("plain", KILIM, 1, 1_000, bare, other_leaf_of_bare),
                entrant("plain, same fields and indexes", KILIM, 1, 1_000, indexed, other_leaf_of_indexed),
            ],
            claims: vec![(1, CpuAtMost(1.7)), (2, Told)],
        },
        Contest {
            name: "tree_one_root",
            entrants: vec![
                entrant("declared", KILIM, 16, 6_000, declared_all, child_of_all),
                entrant("plain", KILIM, 16, 6_000, bare, child_of_bare),
                entrant("mongod by hand", MONGOD, 16, 6_000, by_hand, child_by_hand),
            ],
            claims: vec![(1, RateAtLeast(0.5)), (2, Told)],
        },
        Contest {
            name: "tree_move",
            entrants: vec![
                entrant("declared", KILIM, 1, 4, declared_uncounted, move_uncounted),
                entrant("mongod updateMany", MONGOD, 1, 4, by_hand, move_by_hand),
                entrant("updateMany", KILIM, 1, 4, by_hand, move_by_hand),
                entrant("declared, ancestors and depth", KILIM, 1, 4, declared_lines, move_lines),
            ],
            claims: vec![(1, CpuAtMost(1.0)), (2, Told), (3, Told)],
        },
        Contest {
            name: "tree_below",
            entrants: vec![
                read(entrant("$tree", KILIM, 1, 40, declared_uncounted, read_tree)),
                read(entrant("mongod $graphLookup", MONGOD, 1, 10, by_hand, read_by_hand)),
                read(entrant("find ancestors", KILIM, 1, 40, declared_uncounted, read_ancestors)),
                read(entrant("$graphLookup", KILIM, 1, 40, declared_uncounted, read_graph)),
            ],
            claims: vec![(1, CpuAtMost(0.2)), (2, Told), (3, Told)],
        },
        Contest {
            name: "tree_below_graph_lookup",
            entrants: vec![
                read(entrant("$graphLookup, declared", KILIM, 1, 40, declared_uncounted, read_graph)),
                read(entrant("mongod $graphLookup", MONGOD, 1, 10, by_hand, read_by_hand)),
                read(entrant("$graphLookup, plain", KILIM, 1, 40, by_hand, read_by_hand)),
            ],
            claims: vec![(1, CpuAtMost(0.2)), (2, Told)],
        },
    ]
}

fn node(id: i32, parent: Option<i32>) -> Document {
    let mut node = doc! {"_id": id, "title": format!("node {id}"), "text": "y".repeat(100)};
    node.push("parent", parent.map_or(Value::Null, Value::Int32));
    node
}

fn parent_of(id: i32) -> Option<i32> {
    match id {
        HERE | THERE | -1 => None,
        TOP => Some(HERE),
        id if id < 0 => Some(id + 1),
        id => Some(TOP + (id - TOP - 1) / CHILDREN_EACH),
    }
}

fn ids() -> impl Iterator<Item = i32> {
    LINE.into_iter().chain(HERE..=TOP + BELOW)
}

fn line_above(id: i32) -> Vec<i32> {
    let mut line: Vec<i32> = std::iter::successors(parent_of(id), |upper| parent_of(*upper)).collect();
    line.reverse();
    line
}

fn path(line: &[i32], id: i32) -> String {
    line.iter().chain([&id]).fold(",".to_owned(), |path, id| format!("{path}{id},"))
}

/// A node with what a declaration would keep. The labels are only as many as those: a leaf by hand would renumber.
fn kept(id: i32, parent: Option<i32>, line: &[i32]) -> Document {
    let mut node = node(id, parent);
    node.push("ancestors", line.iter().copied().map(Value::Int32).collect::<Array>());
    node.push("path", path(line, id));
    node.push("depth", line.len() as i32);
    let left = (i64::from(id) + 10) << 20;
    node.push("lft", left);
    node.push("rgt", left + (1 << 19));
    node.push("order", left);
    node.push("children", 0i64);
    node.push("descendants", 0i64);
    node
}

fn tree(link: &mut Link, database: &str, tree: Document) -> Result<(), Fault> {
    if !is_new(link, database, "nodes")? {
        return Ok(());
    }
    declare(link, database, doc! {"createPattern": "nodes", "name": "tree", "tree": tree})?;
    load(link, database, "nodes", ids().map(|id| node(id, parent_of(id))))
}

fn uncounted() -> Document {
    doc! {
        "parent": "parent", "ancestors": "ancestors", "path": "path", "nestedSets": ["lft", "rgt"], "depth": "depth",
        "order": "order",
    }
}

fn declared_all(link: &mut Link) -> Result<(), Fault> {
    let mut all = uncounted();
    all.push("childCount", "children");
    all.push("descendantCount", "descendants");
    tree(link, ALL, all)
}

fn declared_uncounted(link: &mut Link) -> Result<(), Fault> {
    tree(link, UNCOUNTED, uncounted())
}

fn declared_lines(link: &mut Link) -> Result<(), Fault> {
    tree(link, LINES, doc! {"parent": "parent", "ancestors": "ancestors", "depth": "depth"})
}

fn bare(link: &mut Link) -> Result<(), Fault> {
    match is_new(link, BARE, "nodes")? {
        true => load(link, BARE, "nodes", ids().map(|id| node(id, parent_of(id)))),
        false => Ok(()),
    }
}

fn kept_in(link: &mut Link, database: &str) -> Result<(), Fault> {
    if !is_new(link, database, "nodes")? {
        return Ok(());
    }
    for field in ["parent", "ancestors", "path", "lft", "rgt"] {
        let mut key = Document::new();
        key.push(field, 1);
        index(link, database, "nodes", key, field)?;
    }
    load(link, database, "nodes", ids().map(|id| kept(id, parent_of(id), &line_above(id))))
}

fn indexed(link: &mut Link) -> Result<(), Fault> {
    kept_in(link, INDEXED)
}

fn by_hand(link: &mut Link) -> Result<(), Fault> {
    kept_in(link, HAND)
}

fn insert(link: &mut Link, database: &str, node: Document) -> Result<(), Fault> {
    let insert = doc! {"insert": "nodes", "documents": [node], "writeConcern": durable(), "$db": database};
    counted(link.exchange(&message(&insert))?, 1)
}

/// Inserts leaves below a node. `keeps`: the client makes their fields.
fn leaves(place: Place, database: &'static str, parent: i32, keeps: bool) -> Operation {
    leaves_from(FIRST_LEAF, place, database, parent, keeps)
}

fn leaves_from(first: i32, place: Place, database: &'static str, parent: i32, keeps: bool) -> Operation {
    let mut ids = fresh_ids(place);
    let mut line = line_above(parent);
    line.push(parent);
    Box::new(move |link| {
        let id = first + ids.next().expect("ids do not end");
        let leaf = if keeps { kept(id, Some(parent), &line) } else { node(id, Some(parent)) };
        insert(link, database, leaf)
    })
}

/// As an application does it: the leaf, then the counts.
fn counted_leaves(place: Place, parent: i32) -> Operation {
    let mut leaf = leaves(place, HAND, parent, true);
    let mut line = line_above(parent);
    line.push(parent);
    Box::new(move |link| {
        leaf(link)?;
        let above: Array = line.iter().copied().map(Value::Int32).collect();
        let up = doc! {"q": {"_id": {"$in": above}}, "u": {"$inc": {"descendants": 1}}, "multi": true};
        let own = doc! {"q": {"_id": parent}, "u": {"$inc": {"children": 1}}};
        let update = doc! {"update": "nodes", "updates": [up, own], "writeConcern": durable(), "$db": HAND};
        check_reply(link.exchange(&message(&update))?)
    })
}

fn leaf_of_all(place: Place) -> Operation {
    leaves(place, ALL, LINE[5], false)
}

fn leaf_of_uncounted(place: Place) -> Operation {
    leaves(place, UNCOUNTED, LINE[5], false)
}

fn leaf_of_bare(place: Place) -> Operation {
    leaves(place, BARE, LINE[5], false)
}

fn leaf_of_indexed(place: Place) -> Operation {
    leaves(place, INDEXED, LINE[5], true)
}

fn other_leaf_of_bare(place: Place) -> Operation {
    leaves_from(FIRST_UNCOUNTED_LEAF, place, BARE, LINE[5], false)
}

fn other_leaf_of_indexed(place: Place) -> Operation {
    leaves_from(FIRST_UNCOUNTED_LEAF, place, INDEXED, LINE[5], true)
}

fn leaf_by_hand(place: Place) -> Operation {
    counted_leaves(place, LINE[5])
}

fn child_of_all(place: Place) -> Operation {
    leaves(place, ALL, THERE, false)
}

fn child_of_bare(place: Place) -> Operation {
    leaves(place, BARE, THERE, false)
}

fn child_by_hand(place: Place) -> Operation {
    counted_leaves(place, THERE)
}

/// Moves a subtree to the other root and back, each time until the last node below it is written.
fn moves(database: &'static str) -> Operation {
    let mut to = THERE;
    Box::new(move |link| {
        // It is where the round before has left it. A move to its own parent would be none.
        for is_last in [false, true] {
            let own = doc! {"q": {"_id": TOP, "parent": {"$ne": to}}, "u": {"$set": {"parent": to}}};
            let update =
                doc! {"update": "nodes", "updates": [own], "writeConcern": durable(), "$db": database};
            to = HERE + THERE - to;
            match counted(link.exchange(&message(&update))?, 1) {
                Err(fault) if is_last => return Err(fault),
                Err(_) => {}
                Ok(()) => break,
            }
        }
        let wait = doc! {"waitPattern": "nodes", "name": "tree", "timeoutMS": 600_000, "$db": database};
        check_reply(link.exchange(&message(&wait))?)
    })
}

fn move_uncounted(_: Place) -> Operation {
    moves(UNCOUNTED)
}

fn move_lines(_: Place) -> Operation {
    moves(LINES)
}

/// What an application sends for the same: the node, and all below it by a pipeline.
fn move_by_hand(_: Place) -> Operation {
    let mut to = THERE;
    Box::new(move |link| {
        let from = HERE + THERE - to;
        let (old, new) = (path(&[], from), path(&[], to));
        let shift = doc! {"$set": {
            "ancestors": {"$concatArrays": [[to], {"$slice": ["$ancestors", 1, 1000]}]},
            "path": {"$concat": [new, {"$substrBytes": ["$path", old.len() as i32, -1]}]},
            "depth": {"$size": "$ancestors"},
            "lft": {"$add": ["$lft", 1]}, "rgt": {"$add": ["$rgt", 1]}, "order": {"$add": ["$order", 1]},
        }};
        let own = doc! {"$set": {"parent": to}};
        let top = doc! {"q": {"_id": TOP}, "u": [own, shift.clone()]};
        let below = doc! {"q": {"ancestors": TOP}, "u": [shift], "multi": true};
        let update =
            doc! {"update": "nodes", "updates": [top, below], "writeConcern": durable(), "$db": HAND};
        to = from;
        counted(link.exchange(&message(&update))?, 1 + i64::from(BELOW))
    })
}

fn aggregate(database: &'static str, stages: Vec<Document>, expected: usize) -> Operation {
    let stages: Array = stages.into_iter().map(Value::Document).collect();
    let command =
        doc! {"aggregate": "nodes", "pipeline": stages, "cursor": {"batchSize": 100_000}, "$db": database};
    let bytes = message(&command);
    Box::new(move |link| found(link.exchange(&bytes)?, expected))
}

fn read_tree(_: Place) -> Operation {
    aggregate(UNCOUNTED, vec![doc! {"$tree": {"of": TOP, "what": "descendants"}}], BELOW as usize)
}

fn read_ancestors(_: Place) -> Operation {
    let find = doc! {"find": "nodes", "filter": {"ancestors": TOP}, "batchSize": 100_000, "$db": UNCOUNTED};
    let bytes = message(&find);
    Box::new(move |link| found(link.exchange(&bytes)?, BELOW as usize))
}

fn graph_lookup(database: &'static str) -> Operation {
    let graph = doc! {
        "from": "nodes", "startWith": "$_id", "connectFromField": "_id", "connectToField": "parent", "as": "below",
    };
    let count = doc! {"$expr": {"$eq": [{"$size": "$below"}, BELOW]}};
    let stages = vec![doc! {"$match": {"_id": TOP}}, doc! {"$graphLookup": graph}, doc! {"$match": count}];
    aggregate(database, stages, 1)
}

fn read_graph(_: Place) -> Operation {
    graph_lookup(UNCOUNTED)
}

fn read_by_hand(_: Place) -> Operation {
    graph_lookup(HAND)
}
