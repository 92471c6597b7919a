//! Random histories of versions, compared with plain collections that had the same commands.
//!
//! The conversion of these histories loses nothing, so two plain collections are the model: one has documents of version 1,
//! one those of version 2. A command goes to a version and to its model, and the other model is made anew from that one.
//! Versions are declared, rolled back and completed meanwhile, and the server is restarted or loses its power.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, Value, array, doc};
use kilim_engine::patterns::PatternState;
use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::{MemoryDisk, Survivors};
use kilim_testkit::histories;

use crate::pattern::declare;
use crate::pattern_history::world::Dice;
use crate::support::{
    Db, Updating, delete, eventually, find_and_modify, insert, ns, spec, unique, update_with,
};

/// A name moves into a document, and a text gets another name.
fn steps() -> (Document, Document) {
    let up = doc! {"$set": {"who": {"first": "$name"}, "words": "$text"}};
    let down = doc! {"$set": {"name": "$who.first", "text": "$words"}};
    (up, down)
}

fn declaration(dice: &mut Dice) -> Document {
    let (up, down) = steps();
    let persist = if dice.roll(3) == 0 { array!["onWrite"] } else { array!["onWrite", "background"] };
    let mut spec = doc! {"field": "v", "from": 1, "to": 2};
    spec.push("up", vec![up, doc! {"$unset": ["name", "text"]}]);
    spec.push("down", vec![down, doc! {"$unset": ["who", "words"]}]);
    spec.push("persist", persist);
    spec.push("background", doc! {"batch": 1 + dice.roll(5), "throttleMs": 0});
    doc! {"name": "step", "schemaVersion": spec}
}

/// A document in the other version.
fn converted(document: &Document, to: i32) -> Document {
    let mut made = doc! {"_id": document.get("_id").unwrap().to_value()};
    for (name, value) in document.iter() {
        match (name, to) {
            ("_id" | "v", _) => {}
            ("name", 2) => made.push("who", doc! {"first": value.to_value()}),
            ("text", 2) => made.push("words", value),
            ("who", 1) => {
                if let Some(first) = value.as_document().and_then(|who| who.get("first")) {
                    made.push("name", first);
                }
            }
            ("words", 1) => made.push("text", value),
            _ => made.push(name, value),
        }
    }
    made
}

/// Fields by name, without the version: conversions may change their order.
fn sorted(documents: Vec<Document>) -> Vec<Document> {
    let order = |document: Document| {
        let mut fields: Vec<(String, Value)> = document
            .iter()
            .filter(|(name, _)| *name != "v")
            .map(|(name, value)| (name.to_owned(), value.to_value()))
            .collect();
        fields.sort_by(|left, right| left.0.cmp(&right.0));
        fields.iter().map(|(name, value)| (&**name, value.clone())).collect::<Document>()
    };
    let mut documents: Vec<Document> = documents.into_iter().map(order).collect();
    documents.sort_by_key(|document| format!("{:?}", document.get("_id")));
    documents
}

/// A statement in the words of a version.
#[derive(Debug, Clone)]
enum Statement {
    Insert(Document),
    Update(Document, Document, Updating),
    Modify(Document, Document),
    Delete(Document),
}

fn document(dice: &mut Dice, version: i32) -> Document {
    let mut made = doc! {"n": dice.roll(5)};
    // A name is always there, as `who` is, so that both versions can say the same.
    let name = format!("name{}", dice.roll(12));
    let text = dice.one(&["red", "green", "blue"]);
    match version {
        1 => made.push("name", name),
        _ => made.push("who", doc! {"first": name}),
    }
    if dice.roll(3) > 0 {
        made.push(if version == 1 { "text" } else { "words" }, text);
    }
    made
}

fn statement(dice: &mut Dice, version: i32) -> Statement {
    let (name, text) = if version == 1 { ("name", "text") } else { ("who.first", "words") };
    let filter = match dice.roll(5) {
        0 => doc! {(name): format!("name{}", dice.roll(12))},
        1 => doc! {(text): dice.one(&["red", "green", "blue"])},
        2 => doc! {"n": {"$gt": dice.roll(5)}, (text): {"$exists": true}},
        _ => doc! {"_id": dice.roll(20)},
    };
    let change = match dice.roll(6) {
        0 => doc! {"$set": {(name): format!("name{}", dice.roll(12))}},
        1 => doc! {"$set": {(text): dice.one(&["red", "green", "blue"])}, "$inc": {"n": 1}},
        2 => doc! {"$unset": {(text): 1}},
        3 => doc! {"$push": {"list": dice.roll(9)}},
        _ => doc! {"$inc": {"n": 1}},
    };
    match dice.roll(10) {
        0..=2 => {
            let mut made = doc! {"_id": dice.roll(20)};
            for (name, value) in document(dice, version).iter() {
                made.push(name, value);
            }
            Statement::Insert(made)
        }
        3 => Statement::Delete(filter),
        4 => Statement::Update(doc! {"_id": dice.roll(20)}, document(dice, version), Updating::Upsert),
        5 => Statement::Modify(doc! {"_id": dice.roll(20)}, change),
        6..=7 => Statement::Update(filter, change, Updating::Many),
        _ => Statement::Update(doc! {"_id": dice.roll(20)}, change, Updating::One),
    }
}

/// Runs a statement; what it answers, or the code with which it is refused.
fn run(db: &Db, collection: &str, statement: &Statement) -> Result<Result<String, ErrorCode>> {
    let answer = db.run(|unit| match statement.clone() {
        Statement::Insert(document) => {
            let mut outcome = insert(unit, collection, &[document], true)?;
            match outcome.errors.pop() {
                Some((_, error)) => Err(error),
                None => Ok("inserted".to_owned()),
            }
        }
        Statement::Update(filter, change, updating) => {
            let outcome = update_with(unit, collection, filter, change, updating)?;
            Ok(format!("{} {} {:?}", outcome.matched, outcome.modified, outcome.upserted))
        }
        Statement::Modify(filter, change) => {
            let modified = find_and_modify(unit, collection, filter, change, None)?;
            Ok(format!("{:?}", modified.value.map(|value| sorted(vec![value]))))
        }
        Statement::Delete(filter) => Ok(delete(unit, collection, filter, false)?.to_string()),
    });
    match answer {
        Ok(answer) => Ok(Ok(answer)),
        Err(error @ Error::Storage(_)) => Err(error),
        Err(error) => Ok(Err(error.code())),
    }
}

/// Makes one model of the other.
fn follow(db: &Db, from: i32) {
    let (source, target, version) = if from == 1 { ("model1", "model2", 2) } else { ("model2", "model1", 1) };
    let made: Vec<Document> = db.find(source, doc! {}).iter().map(|it| converted(it, version)).collect();
    replace(db, target, &made);
}

/// Makes these the documents of a model.
fn replace(db: &Db, model: &str, documents: &[Document]) {
    db.delete(model, doc! {}).unwrap();
    if !documents.is_empty() {
        db.insert(model, documents);
    }
}

/// The names under which versions are shown, the current one first; none where there are no versions.
fn shown(db: &Db) -> Vec<(String, i32)> {
    match db.engine.patterns().find(&ns("users"), "step") {
        None => Vec::new(),
        Some(pattern) => {
            let step = pattern.kind().version_step().unwrap();
            vec![("users".to_owned(), step.to), (format!("users@{}", step.from), step.from)]
        }
    }
}

#[track_caller]
fn compare(db: &Db, plain: i32, seed: u64) {
    let mut names = shown(db);
    if names.is_empty() {
        names.push(("users".to_owned(), plain));
    }
    for (name, version) in names {
        let model = format!("model{version}");
        let (of_name, of_text) = if version == 1 { ("name", "text") } else { ("who.first", "words") };
        let filters = [
            doc! {},
            doc! {(of_name): {"$gte": "name5"}},
            doc! {(of_text): "red"},
            doc! {(of_text): {"$exists": false}},
            doc! {"n": {"$lt": 4}},
        ];
        for filter in filters {
            let (seen, expected) = (db.find(&name, filter.clone()), db.find(&model, filter.clone()));
            assert_eq!(sorted(seen), sorted(expected), "seed {seed}: {name} {filter:?}");
            assert_eq!(
                db.count(&name, filter.clone()),
                db.count(&model, filter.clone()),
                "seed {seed}: {name} {filter:?}"
            );
        }
    }
}

#[track_caller]
fn validate(db: &Db, seed: u64) {
    let faults = db.faults();
    assert!(faults.is_empty(), "seed {seed}: {faults:#?}");
}

fn history(seed: u64) {
    let mut dice = Dice::new(seed + 1);
    let disk = MemoryDisk::default();
    let mut db = Db::on(&disk);
    let secondary = |version: i32| match version {
        1 => vec![unique(doc! {"name": 1}), spec(doc! {"text": 1, "n": 1})],
        _ => vec![unique(doc! {"who.first": 1}), spec(doc! {"words": 1, "n": 1})],
    };
    // The models are unique where both versions are.
    for name in ["users", "model1", "model2"] {
        db.engine.create_collection(&ns(name), Document::new()).unwrap();
    }
    db.build("model1", secondary(1)).unwrap();
    db.build("model2", secondary(2)).unwrap();
    let mut indexes = secondary(1);
    indexes.extend(secondary(2));
    // A unique index over what a version lacks would hold one document.
    indexes.iter_mut().for_each(|index| index.sparse = index.unique);
    db.build("users", indexes).unwrap();
    let mut plain = 1;
    for round in 0..60 {
        match dice.roll(20) {
            0 | 1 if shown(&db).is_empty() && plain == 1 => {
                declare(&db, "users", declaration(&mut dice)).map(drop).unwrap();
            }
            2 => {
                if let Some(pattern) = db.engine.patterns().find(&ns("users"), "step").cloned() {
                    let operation = Arc::clone(&db.engine.operations.start(1));
                    let back = db.engine.roll_version_back(&operation, &pattern, false).unwrap();
                    if back.state == PatternState::Building {
                        db.engine.begin_filling(&back);
                    }
                }
            }
            3 => {
                if let Some(pattern) = db.engine.patterns().find(&ns("users"), "step").cloned() {
                    let operation = Arc::clone(&db.engine.operations.start(1));
                    plain = pattern.kind().version_step().unwrap().to;
                    db.engine.complete_version(&operation, &pattern).unwrap();
                }
            }
            4 => {
                drop(db.engine.close());
                drop(db);
                disk.restart(Survivors::Written);
                db = Db::on(&disk);
            }
            5 => {
                // The power goes within a statement or the job; everybody has the statement or nobody.
                disk.stop_after(dice.roll(4) as u64);
                let names = shown(&db);
                if let Some((name, version)) = names.first() {
                    let lost = run(&db, name, &statement(&mut dice, *version));
                    assert!(lost.is_ok() || disk.is_off(), "seed {seed}");
                }
                drop(db.engine.close());
                drop(db);
                disk.restart(Survivors::Written);
                db = Db::on(&disk);
                // What survived is the truth for the models from here on.
                let version = shown(&db).first().map_or(plain, |(_, version)| *version);
                let there: Vec<Document> = db.find("users", doc! {});
                let there: Vec<Document> = there.iter().map(without_version).collect();
                replace(&db, &format!("model{version}"), &there);
                follow(&db, version);
            }
            _ => {
                let mut names = shown(&db);
                if names.is_empty() {
                    names.push(("users".to_owned(), plain));
                }
                let (name, version) = names[dice.roll(names.len() as i32) as usize].clone();
                let asked = statement(&mut dice, version);
                let model = format!("model{version}");
                let before = db.find(&model, doc! {});
                let answer = run(&db, &name, &asked).unwrap();
                let expected = run(&db, &model, &asked).unwrap();
                assert_eq!(answer, expected, "seed {seed}: {name} {asked:?}");
                if let (Err(_), Statement::Update(_, change, Updating::Many)) = (&answer, &asked) {
                    // Which documents were changed before one was refused follows from the order of a plan. Each is as it
                    // was, or as the statement makes it.
                    replace(&db, &model, &before);
                    let there = sorted(db.find(&name, doc! {}));
                    for document in there.iter().filter(|it| !sorted(before.clone()).contains(it)) {
                        let id = doc! {"_id": document.get("_id").unwrap()};
                        let one = Statement::Update(id, change.clone(), Updating::One);
                        run(&db, &model, &one).unwrap().unwrap();
                    }
                    assert_eq!(there, sorted(db.find(&model, doc! {})), "seed {seed}: {name} {asked:?}");
                }
                follow(&db, version);
            }
        }
        compare(&db, plain, seed);
        if round % 8 == 0 {
            validate(&db, seed);
        }
    }
    eventually("the jobs end", || db.engine.jobs.lock().is_empty());
    compare(&db, plain, seed);
    validate(&db, seed);
    db.engine.close().unwrap();
}

fn without_version(document: &Document) -> Document {
    document
        .iter()
        .filter(|(name, _)| *name != "v")
        .map(|(name, value): (&str, RawValue<'_>)| (name, value.to_value()))
        .collect()
}

/// A few histories, or as many as are asked for.
#[test]
fn versions_are_what_plain_collections_with_the_same_commands_are() {
    histories(12).for_each(history);
}
