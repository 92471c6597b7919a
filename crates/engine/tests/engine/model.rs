//! Random sequences of everything, against a list of documents.

use std::collections::BTreeMap;

use kilim_bson::{Document, Value, doc};
use kilim_error::{Error, ErrorCode};
use proptest::prelude::*;

use crate::support::{Db, Updating, count, delete, find, insert, ns, number, spec, unique, update_with};

#[derive(Debug, Clone)]
enum Step {
    Insert { collection: usize, id: i32, a: i32, array: bool },
    UpdateMany { collection: usize, a: i32, by: i32 },
    UpdateOne { collection: usize, id: i32, a: i32, array: bool },
    Upsert { collection: usize, id: i32, a: i32 },
    Delete { collection: usize, a: i32 },
    CreateIndex { collection: usize, which: usize },
    DropIndex { collection: usize, which: usize },
    Rename { from: usize, to: usize },
    Drop { collection: usize },
    Begin,
    Commit,
    Abort,
    Reopen,
}

const NAMES: [&str; 2] = ["one", "two"];

fn step() -> impl Strategy<Value = Step> {
    let (collection, id, a) = (|| 0..NAMES.len(), || 0..12i32, || 0..6i32);
    prop_oneof![
        8 => (collection(), id(), a(), any::<bool>())
            .prop_map(|(collection, id, a, array)| Step::Insert { collection, id, a, array }),
        3 => (collection(), a(), 1..3i32).prop_map(|(collection, a, by)| Step::UpdateMany { collection, a, by }),
        4 => (collection(), id(), a(), any::<bool>())
            .prop_map(|(collection, id, a, array)| Step::UpdateOne { collection, id, a, array }),
        2 => (collection(), id(), a()).prop_map(|(collection, id, a)| Step::Upsert { collection, id, a }),
        2 => (collection(), a()).prop_map(|(collection, a)| Step::Delete { collection, a }),
        3 => (collection(), 0..4usize).prop_map(|(collection, which)| Step::CreateIndex { collection, which }),
        1 => (collection(), 0..4usize).prop_map(|(collection, which)| Step::DropIndex { collection, which }),
        1 => (collection(), collection()).prop_map(|(from, to)| Step::Rename { from, to }),
        1 => collection().prop_map(|collection| Step::Drop { collection }),
        3 => Just(Step::Begin),
        2 => Just(Step::Commit),
        1 => Just(Step::Abort),
        1 => Just(Step::Reopen),
    ]
}

fn index(which: usize) -> kilim_engine::index::IndexSpec {
    match which {
        0 => spec(doc! {"a": 1}),
        1 => spec(doc! {"n": -1, "a": 1}),
        2 => unique(doc! {"u": 1}),
        _ => kilim_engine::index::IndexSpec { sparse: true, ..spec(doc! {"list": 1}) },
    }
}

/// Documents by `_id`, a collection that is not there being empty. `u` equals `_id` and is unique.
type State = BTreeMap<usize, BTreeMap<i32, Document>>;

fn document(id: i32, a: i32, array: bool) -> Document {
    let mut document = doc! {"_id": id, "n": 0, "u": id, "a": a};
    if array {
        document.push("list", Value::from(kilim_bson::array![a, (a + 1), a]));
    }
    document
}

fn with(document: &Document, name: &str, value: Value) -> Document {
    let mut changed = Document::new();
    for (each, old) in document.iter() {
        if each == name { changed.push(each, value.clone()) } else { changed.push(each, old.to_value()) }
    }
    changed
}

fn add(document: &Document, name: &str, by: i32) -> Document {
    with(document, name, Value::Int32(number(document, name) as i32 + by))
}

#[derive(PartialEq, Eq)]
enum Expected {
    Done,
    Refused(ErrorCode),
}

/// What a write must do to the model.
fn apply(state: &mut State, step: &Step) -> Expected {
    match *step {
        Step::Insert { collection, id, a, array } => {
            let documents = state.entry(collection).or_default();
            if documents.contains_key(&id) {
                return Expected::Refused(ErrorCode::DuplicateKey);
            }
            documents.insert(id, document(id, a, array));
        }
        Step::UpdateMany { collection, a, by } => {
            for document in state.entry(collection).or_default().values_mut() {
                if number(document, "a") >= a.into() {
                    *document = add(document, "n", by);
                }
            }
        }
        Step::UpdateOne { collection, id, a, array } => {
            if let Some(found) = state.entry(collection).or_default().get_mut(&id) {
                *found = document(id, a, array);
            }
        }
        Step::Upsert { collection, id, a } => {
            let documents = state.entry(collection).or_default();
            match documents.get_mut(&id) {
                Some(found) => *found = with(found, "a", Value::Int32(a)),
                None => {
                    documents.insert(id, doc! {"_id": id, "a": a, "n": 0, "u": id});
                }
            }
        }
        Step::Delete { collection, a } => {
            state.entry(collection).or_default().retain(|_, document| number(document, "a") != i64::from(a));
        }
        _ => {}
    }
    Expected::Done
}

/// Runs a write where it belongs.
fn write(unit: &mut kilim_engine::unit::Unit<'_>, step: &Step) -> kilim_error::Result<()> {
    match *step {
        Step::Insert { collection, id, a, array } => {
            let mut outcome = insert(unit, NAMES[collection], &[document(id, a, array)], true)?;
            outcome.errors.pop().map_or(Ok(()), |(_, error)| Err(error))
        }
        Step::UpdateMany { collection, a, by } => {
            let (matching, inc) = (doc! {"a": {"$gte": a}}, doc! {"$inc": {"n": by}});
            update_with(unit, NAMES[collection], matching, inc, Updating::Many).map(drop)
        }
        Step::UpdateOne { collection, id, a, array } => {
            let replacement = document(id, a, array);
            update_with(unit, NAMES[collection], doc! {"_id": id}, replacement, Updating::One).map(drop)
        }
        Step::Upsert { collection, id, a } => {
            let update = doc! {"$set": {"a": a}, "$setOnInsert": {"n": 0, "u": id}};
            update_with(unit, NAMES[collection], doc! {"_id": id}, update, Updating::Upsert).map(drop)
        }
        Step::Delete { collection, a } => delete(unit, NAMES[collection], doc! {"a": a}, false).map(drop),
        _ => Ok(()),
    }
}

fn same(left: &[Document], right: &BTreeMap<i32, Document>) -> bool {
    let fields = |document: &Document| -> BTreeMap<String, String> {
        document.iter().map(|(name, value)| (name.to_owned(), format!("{value:?}"))).collect()
    };
    let mut left: Vec<_> = left.iter().map(fields).collect();
    let mut right: Vec<_> = right.values().map(fields).collect();
    left.sort();
    right.sort();
    left == right
}

fn check(db: &Db, state: &State) {
    db.check();
    for (collection, name) in NAMES.iter().enumerate() {
        let empty = BTreeMap::new();
        let expected = state.get(&collection).unwrap_or(&empty);
        assert!(
            same(&db.find(name, doc! {}), expected),
            "{name}: {:?} is not {expected:?}",
            db.find(name, doc! {})
        );
        for a in 0..6 {
            let matching = expected.values().filter(|document| number(document, "a") >= a).count() as u64;
            assert_eq!(db.count(name, doc! {"a": {"$gte": a}}), matching);
        }
        let listed = expected.values().filter(|document| document.get("list").is_some()).count() as u64;
        assert_eq!(db.count(name, doc! {"list": {"$gte": 0}}), listed);
    }
}

fn run(mut db: Db, steps: &[Step]) {
    let mut state = State::new();
    let mut number = 0;
    let mut at = 0;
    while at < steps.len() {
        let step = &steps[at];
        at += 1;
        match *step {
            Step::CreateIndex { collection, which } => {
                if db.engine.collection(&ns(NAMES[collection])).is_some() {
                    db.build(NAMES[collection], vec![index(which)]).unwrap();
                }
            }
            Step::DropIndex { collection, which } => {
                if db.engine.collection(&ns(NAMES[collection])).is_some() {
                    db.drop_index(NAMES[collection], &index(which).name).unwrap();
                }
            }
            Step::Rename { from, to } => {
                if from != to && db.rename(NAMES[from], NAMES[to], true).is_ok() {
                    let moved = state.remove(&from).unwrap_or_default();
                    state.insert(to, moved);
                }
            }
            Step::Drop { collection } => {
                if db.drop_collection(NAMES[collection]).is_ok() {
                    state.remove(&collection);
                }
            }
            Step::Reopen => db.reopen(),
            Step::Commit | Step::Abort => {}
            Step::Begin => {
                number += 1;
                let mut inside = state.clone();
                let mut transaction = db.transaction(1, number);
                let mut alive = true;
                let mut commits = true;
                // What follows belongs to it, up to its end; schema changes would wait for it.
                while at < steps.len() && alive {
                    let step = &steps[at];
                    at += 1;
                    match step {
                        Step::Commit => break,
                        Step::Abort => {
                            commits = false;
                            break;
                        }
                        Step::Begin | Step::Reopen | Step::Drop { .. } | Step::Rename { .. } => continue,
                        Step::CreateIndex { .. } | Step::DropIndex { .. } => continue,
                        _ => {}
                    }
                    let expected = apply(&mut inside, step);
                    match transaction.run(|unit| write(unit, step)) {
                        Ok(()) => assert!(expected == Expected::Done, "{step:?}"),
                        Err(error) => {
                            assert!(expected == Expected::Refused(error.code()), "{step:?}: {error:?}");
                            alive = false;
                            break;
                        }
                    }
                    for (collection, name) in NAMES.iter().enumerate() {
                        let found = transaction.run(|unit| find(unit, name, doc! {}, None)).unwrap();
                        let documents = inside.entry(collection).or_default();
                        assert!(same(&found, documents), "inside, {name}: {found:?}");
                        let counted =
                            transaction.run(|unit| count(unit, name, doc! {"a": {"$gte": 2}})).unwrap();
                        let matching = documents
                            .values()
                            .filter(|document| crate::support::number(document, "a") >= 2)
                            .count();
                        assert_eq!(counted, matching as u64);
                    }
                    check(&db, &state);
                }
                match (alive, commits) {
                    (true, true) => match transaction.commit() {
                        Ok(()) => state = inside,
                        // Without a statement there was nothing to commit.
                        Err(error) => assert_eq!(error.code(), ErrorCode::NoSuchTransaction),
                    },
                    (true, false) => drop(transaction.abort()),
                    (false, _) => {}
                }
            }
            _ => {
                let expected = apply(&mut state, step);
                match db.run(|unit| write(unit, step)) {
                    Ok(()) => assert!(expected == Expected::Done, "{step:?}"),
                    Err(Error::User(error)) => {
                        assert!(expected == Expected::Refused(error.code), "{step:?}: {error:?}")
                    }
                    Err(error) => panic!("{step:?}: {error:?}"),
                }
            }
        }
        check(&db, &state);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, max_shrink_iters: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sequences_in_memory_equal_the_model(steps in prop::collection::vec(step(), 1..60)) {
        let steps: Vec<Step> = steps.into_iter().filter(|step| !matches!(step, Step::Reopen)).collect();
        run(Db::memory(), &steps);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, max_shrink_iters: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sequences_on_disk_equal_the_model(steps in prop::collection::vec(step(), 20..60)) {
        run(Db::disk(), &steps);
    }
}
