//! Trees in random histories: what is declared, what writers do to nodes, and what must hold, computed from the parents
//! alone.

use std::collections::HashSet;

use kilim_bson::{Document, RawValue, Value, compare, doc};
use kilim_patterns::Position;

use super::world::{Dice, Statement};
use crate::pattern_lifecycle::with;
use crate::support::{Db, Updating, number};

/// One with all fields and one of few, a collection each. The third has several trees, and order keys without labels. In every
/// third history the labels of the first have no gaps. In every second one jobs write what is below nodes of the second, and of the
/// first if its labels have gaps.
pub const TREES: [&str; 3] = ["folders", "lines", "places"];

fn is_dense(seed: u64) -> bool {
    seed % 3 == 1
}

pub fn declarations(seed: u64) -> Vec<(&'static str, Document)> {
    let on_delete = |turn: u64| ["restrict", "cascade", "reparent"][((seed / 2 + turn) % 3) as usize];
    let max_depth = if seed.is_multiple_of(5) { 4 } else { 100 };
    let late = |declaration: Document| match seed % 4 {
        1 => with(declaration, "mode", "async"),
        3 => with(with(declaration, "maxSync", 1), "backfill", doc! {"batch": 1, "throttleMs": 1}),
        _ => declaration,
    };
    let folders = doc! {"name": "tree", "tree": {
        "parent": "parent", "ancestors": "ancestors", "path": "path", "depth": "depth",
        "nestedSets": ["lft", "rgt"], "order": "order", "childCount": "children",
        "descendantCount": "descendants", "onDelete": on_delete(0), "maxDepth": max_depth,
        "dense": is_dense(seed),
    }};
    vec![
        (
            "folders",
            match is_dense(seed) {
                true => folders,
                false => late(folders),
            },
        ),
        (
            "lines",
            late(doc! {"name": "tree", "tree": {
                "parent": "parent", "ancestors": "ancestors", "depth": "depth", "onDelete": on_delete(1),
            }}),
        ),
        (
            "places",
            doc! {"name": "tree", "tree": {
                "parent": "parent", "scope": "shop", "path": "path", "pathSeparator": "/", "pathOf": "title",
                "order": "order", "childCount": "children", "onDelete": on_delete(2),
            }},
        ),
    ]
}

/// Ids of nodes, and one that nobody has.
fn node(dice: &mut Dice) -> i32 {
    dice.roll(14)
}

fn parent(dice: &mut Dice) -> Value {
    match dice.roll(12) {
        0 => Value::Null,
        1 => Value::Int32(99),
        2 => Value::Double(f64::from(node(dice))),
        _ => Value::Int32(node(dice)),
    }
}

fn title(dice: &mut Dice) -> Value {
    Value::from(dice.one(&["a", "b/c", "%", "d"]))
}

fn whole(dice: &mut Dice, id: i32) -> Document {
    let mut made = doc! {"_id": id, "shop": dice.roll(2)};
    match dice.roll(8) {
        0 => {}
        // What is maintained, as an application would send it back.
        1 => {
            made.push("depth", 7);
            made.push("lft", 3i64);
            made.push("parent", parent(dice));
        }
        _ => made.push("parent", parent(dice)),
    }
    if dice.roll(2) == 0 {
        made.push("title", title(dice));
    }
    made
}

/// What a writer does to a node.
pub fn statement(dice: &mut Dice) -> Statement {
    let at = dice.one(&TREES);
    let id = node(dice);
    let one = |update| Statement::Update(at, doc! {"_id": id}, update, Updating::One);
    match dice.roll(16) {
        0..=4 => Statement::Insert(at, whole(dice, id)),
        5..=7 => one(doc! {"$set": {"parent": parent(dice)}}),
        8 | 9 => {
            let position = match dice.roll(4) {
                0 => Position::First,
                1 => Position::Last,
                2 => Position::Before(Value::Int32(node(dice))),
                _ => Position::After(Value::Int32(node(dice))),
            };
            let to = if dice.roll(2) == 0 { Some(parent(dice)) } else { None };
            Statement::Move(at, id, to, position)
        }
        10 => Statement::Delete(at, doc! {"_id": id}),
        11 => one(doc! {"$set": {"title": title(dice), "note": dice.roll(9)}}),
        12 => one(whole(dice, id)),
        13 => one(doc! {"$set": {"shop": dice.roll(2)}}),
        14 => {
            let to = doc! {"$set": {"parent": parent(dice)}};
            Statement::Update(at, doc! {"parent": id}, to, Updating::Many)
        }
        _ => Statement::Modify(at, doc! {"_id": {"$gte": id}}, doc! {"$set": {"parent": parent(dice)}}),
    }
}

/// Makes roots of nodes until no line is a circle or too long. Writers make such while a tree is not declared or paused.
pub fn cut_circles(db: &Db, at: &str) {
    for document in db.find(at, doc! {}) {
        let nodes = db.find(at, doc! {});
        if line_above(&nodes, &document).is_none_or(|line| line.len() > 3) {
            let id = number(&document, "_id");
            db.update(at, doc! {"_id": id}, doc! {"$set": {"parent": null}}).unwrap();
        }
    }
}

fn named_parent(node: &Document) -> Option<Value> {
    let parent = node.get("parent").filter(|parent| !matches!(parent, RawValue::Null));
    parent.map(RawValue::to_value)
}

fn scope(at: &str, node: &Document) -> i64 {
    if at == "places" && node.get("shop").is_some() { number(node, "shop") } else { -1 }
}

fn parent_of<'n>(nodes: &'n [Document], at: &str, node: &Document) -> Option<&'n Document> {
    let parent = named_parent(node)?;
    let same = |other: &&Document| {
        compare(other.get("_id").unwrap(), parent.as_raw()).is_eq() && scope(at, other) == scope(at, node)
    };
    nodes.iter().find(same)
}

/// Those above a node from the root on, whatever their scopes; none where they go round in a circle.
fn line_above<'n>(nodes: &'n [Document], node: &Document) -> Option<Vec<&'n Document>> {
    line_within(nodes, "", node)
}

fn line_within<'n>(nodes: &'n [Document], at: &str, node: &Document) -> Option<Vec<&'n Document>> {
    let mut line: Vec<&Document> = Vec::new();
    let mut lower = parent_of(nodes, at, node);
    while let Some(upper) = lower {
        if line.len() > nodes.len() {
            return None;
        }
        line.insert(0, upper);
        lower = parent_of(nodes, at, upper);
    }
    Some(line)
}

fn name(at: &str, node: &Document) -> String {
    let title = node.get("title").filter(|_| at == "places").and_then(RawValue::as_str);
    let name = title.map_or_else(|| number(node, "_id").to_string(), str::to_owned);
    name.replace('%', "%25").replace('/', if at == "places" { "%2F" } else { "/" })
}

/// What is not as it should be in the trees, in words.
pub fn faults(db: &Db, seed: u64) -> Vec<String> {
    let mut faults = Vec::new();
    if is_dense(seed) {
        let mut labels: Vec<i64> = db.find("folders", doc! {}).iter().flat_map(labels).collect();
        labels.sort_unstable();
        if !labels.iter().copied().eq(1..=labels.len() as i64) {
            faults.push(format!("labels with gaps: {labels:?}"));
        }
    }
    for at in TREES {
        let nodes = db.find(at, doc! {});
        for node in &nodes {
            let who = format!("{at} {}", number(node, "_id"));
            let mut expect = |field: &str, expected: Value| {
                let stored = node.get(field).map_or(Value::Undefined, RawValue::to_value);
                if !compare(stored.as_raw(), expected.as_raw()).is_eq() {
                    faults.push(format!("{who}: {field} is {stored:?}, not {expected:?}, in {node:?}"));
                }
            };
            let Some(line) = line_within(&nodes, at, node) else {
                faults.push(format!("{who} is in a circle"));
                continue;
            };
            let is_below = |other: &&Document| {
                let line = line_within(&nodes, at, other);
                line.is_some_and(|line| line.iter().any(|upper| number(upper, "_id") == number(node, "_id")))
            };
            let own = |other: &&Document| {
                parent_of(&nodes, at, other)
                    .is_some_and(|parent| number(parent, "_id") == number(node, "_id"))
            };
            if at != "places" {
                let ids = line.iter().map(|upper| upper.get("_id").unwrap().to_value());
                expect("ancestors", ids.collect::<Vec<_>>().into());
                expect("depth", Value::Int32(line.len() as i32));
            }
            if at != "lines" {
                let separator = if at == "places" { "/" } else { "," };
                let names = line.iter().map(|upper| name(at, upper)).chain([name(at, node)]);
                let path = names.fold(separator.to_owned(), |path, name| path + &name + separator);
                expect("path", Value::from(path));
                expect("children", Value::Int64(nodes.iter().filter(own).count() as i64));
            }
            if at == "folders" {
                expect("descendants", Value::Int64(nodes.iter().filter(is_below).count() as i64));
                expect("order", node.get("lft").map_or(Value::Null, RawValue::to_value));
            }
        }
        faults.extend(faults_of_places(at, &nodes));
    }
    faults
}

/// Labels that are there twice or do not enclose what is below, and order keys that siblings share.
fn faults_of_places(at: &str, nodes: &[Document]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut taken = HashSet::new();
    for node in nodes {
        match at {
            "folders" => {
                let [left, right] = labels(node);
                if left <= 0 || left >= right || right >= 1 << 53 {
                    faults.push(format!("labels of {node:?}"));
                }
                if !taken.insert((0, left)) || !taken.insert((0, right)) {
                    faults.push(format!("labels of {node:?} are there twice"));
                }
                for other in nodes {
                    let [low, high] = labels(other);
                    let line = line_within(nodes, at, node).unwrap_or_default();
                    let is_above = line.iter().any(|upper| number(upper, "_id") == number(other, "_id"));
                    if is_above != (low < left && right < high) {
                        faults.push(format!("labels of {node:?} against {other:?}"));
                    }
                }
            }
            "places" => {
                let named = named_parent(node).map_or(-1, |parent| match parent {
                    Value::Double(id) => id as i64,
                    _ => number(&doc! {"p": parent}, "p"),
                });
                if !taken.insert((scope(at, node) * 1000 + named, number(node, "order"))) {
                    faults.push(format!("order of {node:?} is a sibling's"));
                }
            }
            _ => {}
        }
    }
    faults
}

fn labels(node: &Document) -> [i64; 2] {
    [number(node, "lft"), number(node, "rgt")]
}
