//! Histories of a tree, and what comes of them compared with what the parents say.

use std::collections::{BTreeMap, HashMap};

use kilim_bson::{Document, RawValue, Value, doc};
use kilim_error::{Error, ErrorCode, Result};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::{Forest, LabelSide, Nodes, Position, Step, Tree};
use crate::effect::key_bytes;
use crate::path::with_value;

/// A collection in memory.
#[derive(Debug, Clone, Default)]
struct Garden {
    tree: Option<Tree>,
    documents: BTreeMap<Vec<u8>, Document>,
    notes: HashMap<Vec<u8>, Vec<u8>>,
    is_filling: bool,
    writes: usize,
}

impl Garden {
    fn new(spec: Document) -> Garden {
        Garden { tree: Some(Tree::parse(spec.as_raw()).unwrap()), ..Garden::default() }
    }

    fn tree(&self) -> &Tree {
        self.tree.as_ref().unwrap()
    }

    /// Takes a step, or leaves everything as it was.
    fn take(&mut self, step: &Step) -> Result<()> {
        let tree = self.tree().clone();
        let mut next = self.clone();
        tree.take(step, &mut next)?;
        *self = next;
        Ok(())
    }

    fn insert(&mut self, document: Document) -> Result<()> {
        let id = document.get("_id").unwrap().to_value();
        self.take(&step(id, None, Some(document)))
    }

    fn get(&self, id: i32) -> Document {
        self.documents[&key_bytes(RawValue::Int32(id))].clone()
    }

    fn set(&mut self, id: i32, field: &str, value: Value, position: Option<Position>) -> Result<()> {
        let before = self.get(id);
        let after = with_value(before.as_raw(), field, Some(value.as_raw()));
        self.take(&Step { position, ..step(Value::Int32(id), Some(before), Some(after)) })
    }

    fn delete(&mut self, id: i32) -> Result<()> {
        let before = self.get(id);
        self.take(&step(Value::Int32(id), Some(before), None))
    }

    fn ids(&self) -> Vec<i32> {
        self.documents.values().map(|document| whole(document, "_id") as i32).collect()
    }

    /// Everything that is not as it must be: by what a check says, and by a computation that shares nothing with it.
    fn wrong(&self) -> Vec<Document> {
        let tree = self.tree().clone();
        let mut nodes = self.clone();
        let mut wrong = Vec::new();
        for document in self.documents.values() {
            if let Some(expected) = tree.made_right(document.as_raw(), &mut nodes).unwrap() {
                wrong.push(doc! {"stored": document.clone(), "expected": expected});
            }
        }
        if wrong.is_empty() {
            self.compare_naively();
        }
        wrong
    }

    /// Compares every node with what follows from its parent's fields alone.
    fn compare_naively(&self) {
        let has_scope = self.tree().scope_path().is_some();
        let scope = |document: &Document| document.get("scope").filter(|_| has_scope).map(key_bytes);
        let parent_of = |document: &Document| -> Option<&Document> {
            let parent = document.get("parent").filter(|parent| !matches!(parent, RawValue::Null))?;
            let parent = self.documents.get(&key_bytes(parent))?;
            (scope(parent) == scope(document)).then_some(parent)
        };
        for document in self.documents.values() {
            let mut line: Vec<&Document> = Vec::new();
            let mut at = document;
            while let Some(parent) = parent_of(at) {
                line.insert(0, parent);
                at = parent;
                assert!(line.len() <= self.documents.len(), "a circle");
            }
            let is_below = |other: &&Document| {
                let mut at = *other;
                std::iter::from_fn(|| {
                    at = parent_of(at)?;
                    Some(at)
                })
                .any(|upper| upper == document)
            };
            let below: Vec<&Document> = self.documents.values().filter(is_below).collect();
            let children = below.iter().filter(|other| parent_of(other) == Some(document)).count();
            let tree = self.tree();
            if tree.ancestors.is_some() {
                let ids: Vec<i64> = line.iter().map(|upper| whole(upper, "_id")).collect();
                let ancestors = document.get("ancestors").and_then(RawValue::as_array).unwrap();
                let stored: Vec<i64> = ancestors.iter().filter_map(number).collect();
                assert_eq!(stored, ids, "{document:?}");
            }
            if tree.path.is_some() {
                let names = line.iter().copied().chain([document]);
                let path: String = names.map(|one| format!("{}/", whole(one, "_id"))).collect();
                assert_eq!(document.get("path").and_then(RawValue::as_str), Some(&*format!("/{path}")));
            }
            if tree.depth.is_some() {
                assert_eq!(whole(document, "depth"), line.len() as i64);
            }
            if tree.descendant_count.is_some() {
                assert_eq!(whole(document, "descendants"), below.len() as i64, "{document:?}");
            }
            if tree.child_count.is_some() {
                assert_eq!(whole(document, "children"), children as i64, "{document:?}");
            }
            if tree.nested_sets.is_some() {
                let is_inside = |other: &&Document| {
                    scope(other) == scope(document)
                        && whole(other, "lft") > whole(document, "lft")
                        && whole(other, "rgt") < whole(document, "rgt")
                };
                assert_eq!(self.documents.values().filter(is_inside).count(), below.len(), "{document:?}");
                assert!(below.iter().all(is_inside));
            }
        }
        if self.tree().dense {
            let mut labels: HashMap<Option<Vec<u8>>, Vec<i64>> = HashMap::new();
            for document in self.documents.values() {
                labels
                    .entry(scope(document))
                    .or_default()
                    .extend(["lft", "rgt"].map(|end| whole(document, end)));
            }
            for mut labels in labels.into_values() {
                labels.sort_unstable();
                assert_eq!(labels, (1..=labels.len() as i64).collect::<Vec<_>>());
            }
        }
    }

    /// The children of a node in the order of a field.
    fn in_order(&self, parent: i32, field: &str) -> Vec<i32> {
        let own = |document: &&Document| document.get("parent").and_then(number) == Some(i64::from(parent));
        let mut children: Vec<&Document> = self.documents.values().filter(own).collect();
        children.sort_by_key(|document| whole(document, field));
        children.iter().map(|document| whole(document, "_id") as i32).collect()
    }
}

fn number(value: RawValue<'_>) -> Option<i64> {
    match value {
        RawValue::Int32(number) => Some(i64::from(number)),
        RawValue::Int64(number) => Some(number),
        _ => None,
    }
}

fn whole(document: &Document, field: &str) -> i64 {
    document.get(field).and_then(number).unwrap_or_else(|| panic!("no {field} in {document:?}"))
}

impl Nodes for Garden {
    fn node(&mut self, id: RawValue<'_>) -> Result<Option<Document>> {
        Ok(self.documents.get(&key_bytes(id)).cloned())
    }

    fn children(&mut self, id: RawValue<'_>) -> Result<Vec<Document>> {
        let named = |document: &&Document| {
            let parent = self.tree().parent_of(document.as_raw()).unwrap_or(RawValue::Null);
            kilim_bson::compare(parent, id).is_eq()
        };
        Ok(self.documents.values().filter(named).cloned().collect())
    }

    fn next_label(&mut self, scope: RawValue<'_>, from: i64, side: LabelSide) -> Result<Option<i64>> {
        let documents = self.labelled(scope, 0, i64::MAX)?;
        let labels = documents.iter().filter_map(|one| self.tree().labels(one.as_raw())).flatten();
        Ok(match side {
            LabelSide::Below => labels.filter(|label| *label < from).max(),
            LabelSide::Above => labels.filter(|label| *label > from).min(),
        })
    }

    fn labelled(&mut self, scope: RawValue<'_>, from: i64, to: i64) -> Result<Vec<Document>> {
        let inside = |document: &&Document| {
            let labels = self.tree().labels(document.as_raw());
            kilim_bson::compare(self.tree().scope_of(document.as_raw()).as_raw(), scope).is_eq()
                && labels.is_some_and(|labels| labels.iter().any(|label| (from..=to).contains(label)))
        };
        Ok(self.documents.values().filter(inside).cloned().collect())
    }

    fn all(&mut self, scope: RawValue<'_>) -> Result<Vec<Document>> {
        let scope_of = |document: &Document| self.tree().scope_of(document.as_raw());
        let own = |document: &&Document| kilim_bson::compare(scope_of(document).as_raw(), scope).is_eq();
        Ok(self.documents.values().filter(own).cloned().collect())
    }
}

impl Forest for Garden {
    fn write(&mut self, id: RawValue<'_>, document: Document) -> Result<()> {
        self.writes += 1;
        self.documents.insert(key_bytes(id), document);
        Ok(())
    }

    fn remove(&mut self, id: RawValue<'_>) -> Result<()> {
        self.documents.remove(&key_bytes(id));
        Ok(())
    }

    fn note(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.notes.get(key).cloned())
    }

    fn set_note(&mut self, key: &[u8], note: Option<Vec<u8>>) -> Result<()> {
        match note {
            Some(note) => drop(self.notes.insert(key.to_vec(), note)),
            None => drop(self.notes.remove(key)),
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        !self.is_filling
    }
}

fn step(id: Value, before: Option<Document>, after: Option<Document>) -> Step {
    Step { id, before, after, position: None, refresh: false, is_thorough: false }
}

fn everything() -> Document {
    doc! {
        "parent": "parent", "ancestors": "ancestors", "path": "path", "nestedSets": ["lft", "rgt"], "depth": "depth",
        "childCount": "children", "descendantCount": "descendants", "order": "order", "pathSeparator": "/",
        "maxDepth": 6,
    }
}

fn only(fields: &[&str], on_delete: &str) -> Document {
    let all = everything();
    let always = ["parent", "pathSeparator", "maxDepth"];
    let kept = all.iter().filter(|(name, _)| always.contains(name) || fields.contains(name));
    let mut spec: Document = kept.map(|(name, value)| (name, value.to_value())).collect();
    spec.push("onDelete", on_delete);
    spec
}

fn node(id: i32, parent: Option<i32>) -> Document {
    doc! {"_id": id, "parent": parent}
}

#[track_caller]
fn refused(result: Result<()>, code: ErrorCode) {
    match result {
        Err(error @ Error::User(_)) => assert_eq!(error.code(), code, "{error}"),
        other => panic!("{other:?}"),
    }
}

/// The combinations of fields that go different ways.
fn declarations() -> Vec<Document> {
    let above = ["ancestors", "path", "depth"];
    let counts = ["childCount", "descendantCount"];
    let all: Vec<&str> = [&above[..], &counts, &["nestedSets", "order"]].concat();
    let mut specs = Vec::new();
    for on_delete in ["restrict", "cascade", "reparent"] {
        specs.push(only(&all, on_delete));
        specs.push(only(&above, on_delete));
        specs.push(only(&counts, on_delete));
        specs.push(only(&["nestedSets"], on_delete));
        let mut dense = only(&all, on_delete);
        dense.push("dense", true);
        specs.push(dense);
        specs.push(only(&["order", "depth"], on_delete));
        specs.push(only(&["path"], on_delete));
        specs.push(only(&["childCount"], on_delete));
    }
    for spec in specs.clone() {
        let mut scoped = spec;
        scoped.push("scope", "scope");
        specs.push(scoped);
    }
    specs
}

#[test]
fn after_any_history_what_is_kept_is_what_the_parents_say() {
    for (number, spec) in declarations().into_iter().enumerate() {
        let mut random = StdRng::seed_from_u64(number as u64);
        let mut garden = Garden::new(spec.clone());
        let mut taken = 0;
        for turn in 0..250 {
            let result = random_step(&mut garden, &mut random);
            match result {
                Ok(()) => taken += 1,
                Err(Error::User(_)) => {}
                Err(error) => panic!("{error}"),
            }
            if turn % 5 == 0 {
                assert_eq!(garden.wrong(), Vec::<Document>::new(), "{spec:?}");
            }
        }
        assert!(taken > 100, "{taken}");
    }
}

fn random_step(garden: &mut Garden, random: &mut StdRng) -> Result<()> {
    let ids = garden.ids();
    let existing = ids.choose(random).copied();
    let any_parent = |random: &mut StdRng| match random.random_range(0..8) {
        0 => Value::Null,
        1 => Value::Int32(random.random_range(0..60)),
        _ => existing.map_or(Value::Null, Value::Int32),
    };
    let other = ids.choose(random).copied();
    match (random.random_range(0..10), other) {
        (0..4, _) | (_, None) => {
            let id = random.random_range(0..60);
            if ids.contains(&id) {
                return Ok(());
            }
            let mut document = doc! {"_id": id, "parent": any_parent(random), "lft": 7};
            document.push("scope", random.random_range(0..2));
            garden.insert(document)
        }
        (4..6, Some(id)) => garden.set(id, "parent", any_parent(random), None),
        (6..8, Some(id)) => {
            let sibling = existing.map_or(Value::Null, Value::Int32);
            let position = match random.random_range(0..4) {
                0 => Position::First,
                1 => Position::Last,
                2 => Position::Before(sibling.clone()),
                _ => Position::After(sibling.clone()),
            };
            let parent = match (&position, existing) {
                (Position::Before(_) | Position::After(_), Some(sibling)) => {
                    garden.get(sibling).get("parent").map_or(Value::Null, RawValue::to_value)
                }
                _ => any_parent(random),
            };
            garden.set(id, "parent", parent, Some(position))
        }
        (8, Some(id)) => garden.set(id, "scope", Value::Int32(random.random_range(0..2)), None),
        (_, Some(id)) => garden.delete(id),
    }
}

#[test]
fn nodes_may_come_in_any_order() {
    for seed in 0..20 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut nodes: Vec<Document> = (0..60).map(|id| node(id, (id > 0).then(|| (id - 1) / 3))).collect();
        let mut garden = Garden::new(everything());
        while !nodes.is_empty() {
            let at = random.random_range(0..nodes.len());
            garden.insert(nodes.swap_remove(at)).unwrap();
        }
        assert_eq!(garden.wrong(), Vec::<Document>::new());
        let root = garden.get(0);
        assert_eq!((whole(&root, "descendants"), whole(&root, "children")), (59, 3));
    }
}

#[test]
fn filling_makes_true_what_was_there_before_in_any_order() {
    for (number, spec) in declarations().into_iter().enumerate() {
        let mut random = StdRng::seed_from_u64(number as u64);
        let mut garden = Garden::new(spec);
        for id in 0..50 {
            let mut document = node(id, (id > 0).then(|| random.random_range(id / 3 - 1..id)));
            if id % 3 == 0 {
                // Somebody kept these by hand.
                ["lft", "rgt", "order", "depth", "descendants"].iter().for_each(|field| {
                    document.push(field, i64::from(random.random_range(0..9)));
                });
            }
            garden.documents.insert(key_bytes(RawValue::Int32(id)), document);
        }
        garden.is_filling = true;
        let mut ids = garden.ids();
        let refresh = |garden: &mut Garden, id: i32, is_thorough: bool| {
            let document = garden.get(id);
            let step = step(Value::Int32(id), Some(document.clone()), Some(document));
            garden.take(&Step { refresh: true, is_thorough, ..step })
        };
        while !ids.is_empty() {
            let id = ids.swap_remove(random.random_range(0..ids.len()));
            match refresh(&mut garden, id, false) {
                Ok(()) => {}
                Err(Error::User(error)) => assert_eq!(error.code, ErrorCode::TreeDepthExceeded),
                Err(error) => panic!("{error}"),
            }
            // Writers go on meanwhile.
            if random.random_range(0..4) == 0 {
                drop(random_step(&mut garden, &mut random));
                ids.retain(|id| garden.documents.contains_key(&key_bytes(RawValue::Int32(*id))));
            }
        }
        let too_deep = |garden: &Garden| {
            let mut nodes = garden.clone();
            let tree = garden.tree().clone();
            garden.documents.values().any(|one| tree.made_right(one.as_raw(), &mut nodes).is_err())
        };
        if too_deep(&garden) {
            continue;
        }
        // Labels that were there may have been in each other's way. One that seemed right beside a wrong one is found
        // wrong when that is gone, so there may be several rounds.
        for _ in 0..16 {
            for wrong in garden.wrong() {
                let id = whole(&wrong.get("stored").unwrap().as_document().unwrap().to_document(), "_id");
                refresh(&mut garden, id as i32, true).unwrap();
            }
        }
        assert_eq!(garden.wrong(), Vec::<Document>::new());
        garden.is_filling = false;
        for id in 100..140 {
            let parent = garden.ids().choose(&mut random).copied();
            drop(garden.insert(node(id, parent)));
        }
        assert_eq!(garden.wrong(), Vec::<Document>::new());
    }
}

#[test]
fn circles_and_depths_are_refused_and_nothing_is_half_done() {
    let mut garden = Garden::new(everything());
    for id in 0..7 {
        garden.insert(node(id, (id > 0).then(|| id - 1))).unwrap();
    }
    let before = garden.documents.clone();
    refused(garden.insert(node(7, Some(6))), ErrorCode::TreeDepthExceeded);
    refused(garden.set(0, "parent", Value::Int32(6), None), ErrorCode::TreeCycle);
    refused(garden.set(3, "parent", Value::Int32(3), None), ErrorCode::TreeCycle);
    refused(garden.insert(node(9, Some(9))), ErrorCode::TreeCycle);
    refused(garden.delete(3), ErrorCode::TreeNotEmpty);
    refused(garden.set(3, "parent", Value::Int32(77), Some(Position::Last)), ErrorCode::TreeParentMissing);
    refused(
        garden.set(3, "parent", Value::Int32(2), Some(Position::Before(Value::Int32(1)))),
        ErrorCode::BadValue,
    );
    assert_eq!(garden.documents, before);
    // One that waits for its parent is above it.
    garden.insert(node(20, Some(21))).unwrap();
    garden.insert(node(22, Some(20))).unwrap();
    refused(garden.insert(node(21, Some(22))), ErrorCode::TreeCycle);
    // A subtree that would hang too deep.
    refused(garden.set(0, "parent", Value::Int32(22), None), ErrorCode::TreeDepthExceeded);
    assert_eq!(garden.wrong(), Vec::<Document>::new());
}

#[test]
fn order_keys_never_run_out() {
    for fields in [&["order"][..], &["nestedSets"], &["nestedSets", "order"]] {
        let mut garden = Garden::new(only(fields, "restrict"));
        let field = if fields.contains(&"order") { "order" } else { "lft" };
        garden.insert(node(0, None)).unwrap();
        (1..=3).for_each(|id| garden.insert(node(id, Some(0))).unwrap());
        let mut expected = vec![1, 2, 3];
        let mut random = StdRng::seed_from_u64(26);
        for turn in 0..300 {
            let id = expected.remove(if turn < 150 { 0 } else { random.random_range(0..3) });
            let position = match turn % 3 {
                0 => {
                    expected.insert(1, id);
                    Position::After(Value::Int32(expected[0]))
                }
                1 => {
                    expected.insert(1, id);
                    Position::Before(Value::Int32(expected[2]))
                }
                _ => {
                    expected.insert(0, id);
                    Position::First
                }
            };
            garden.set(id, "parent", Value::Int32(0), Some(position)).unwrap();
            assert_eq!(garden.in_order(0, field), expected);
        }
        assert_eq!(garden.wrong(), Vec::<Document>::new());
    }
}

#[test]
fn a_leaf_writes_itself_and_those_who_count_it() {
    let mut garden = Garden::new(everything());
    for id in 0..6 {
        garden.insert(node(id, (id > 0).then(|| id - 1))).unwrap();
    }
    garden.writes = 0;
    (100..1100).for_each(|id| garden.insert(node(id, Some(5))).unwrap());
    // Seven, for its six ancestors and its parent's other count, and now and then labels that make room.
    assert!(garden.writes < 9 * 1000, "{}", garden.writes);
    let mut garden = Garden::new(only(&["ancestors", "path", "depth", "nestedSets"], "restrict"));
    (0..6).for_each(|id| garden.insert(node(id, (id > 0).then(|| id - 1))).unwrap());
    garden.writes = 0;
    (100..1100).for_each(|id| garden.insert(node(id, Some(5))).unwrap());
    assert!(garden.writes < 2 * 1000, "{}", garden.writes);
}

#[test]
fn labels_without_gaps_are_those_of_textbooks() {
    let mut spec = only(&["nestedSets"], "reparent");
    spec.push("dense", true);
    let mut garden = Garden::new(spec);
    let labels = |garden: &Garden| -> Vec<(i32, i64, i64)> {
        let of = |id| (id, whole(&garden.get(id), "lft"), whole(&garden.get(id), "rgt"));
        garden.ids().into_iter().map(of).collect()
    };
    (0..5).for_each(|id| garden.insert(node(id, (id > 0).then(|| (id - 1) / 2))).unwrap());
    assert_eq!(labels(&garden), [(0, 1, 10), (1, 2, 7), (2, 8, 9), (3, 3, 4), (4, 5, 6)]);
    garden.set(2, "parent", Value::Int32(0), Some(Position::First)).unwrap();
    assert_eq!(labels(&garden), [(0, 1, 10), (1, 4, 9), (2, 2, 3), (3, 5, 6), (4, 7, 8)]);
    // Children of a deleted node stand where it stood.
    garden.delete(1).unwrap();
    assert_eq!(labels(&garden), [(0, 1, 8), (2, 2, 3), (3, 4, 5), (4, 6, 7)]);
    // A leaf at the end writes itself and those above it.
    garden.writes = 0;
    garden.insert(node(9, Some(0))).unwrap();
    assert_eq!(garden.writes, 2);
}

#[test]
fn paths_name_what_they_are_told_to() {
    let mut spec = only(&["path"], "restrict");
    spec.push("pathOf", "slug");
    let mut garden = Garden::new(spec);
    let named = |id: i32, parent: Option<i32>, slug: &str| doc! {"_id": id, "parent": parent, "slug": slug};
    garden.insert(named(1, None, "a/b")).unwrap();
    garden.insert(named(2, Some(1), "50%")).unwrap();
    garden.insert(node(3, Some(2))).unwrap();
    let path = |garden: &Garden, id: i32| garden.get(id).get("path").unwrap().as_str().unwrap().to_owned();
    assert_eq!(path(&garden, 3), "/a%2Fb/50%25/3/");
    garden.set(1, "slug", Value::from("top"), None).unwrap();
    assert_eq!((path(&garden, 1), path(&garden, 3)), ("/top/".to_owned(), "/top/50%25/3/".to_owned()));
}

#[test]
fn what_cannot_be_kept_is_refused_when_it_is_declared() {
    let code = |spec: Document| Tree::parse(spec.as_raw()).unwrap_err().code();
    assert_eq!(code(doc! {"parent": "parent"}), ErrorCode::BadValue);
    assert_eq!(code(doc! {"parent": "parent", "depth": "parent"}), ErrorCode::PatternFieldConflict);
    assert_eq!(code(doc! {"parent": "p", "depth": "x", "path": "x.y"}), ErrorCode::PatternFieldConflict);
    assert_eq!(code(doc! {"parent": "p", "depth": "d", "dense": true}), ErrorCode::BadValue);
    assert_eq!(code(doc! {"parent": "p", "depth": "d", "pathSeparator": "%"}), ErrorCode::BadValue);
    assert_eq!(code(doc! {"parent": "p", "nestedSets": ["l"]}), ErrorCode::TypeMismatch);
    assert_eq!(code(doc! {"parent": "_id", "depth": "d"}), ErrorCode::PatternFieldConflict);
}
