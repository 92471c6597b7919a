//! Random histories of arrays that continue in pages, compared with a plain collection that had the same commands.
//!
//! Limits and pages are small, so that arrays are divided and fold back all the time. The pattern is declared and dropped
//! meanwhile, and the server is restarted or loses its power.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, Value, array, doc};
use kilim_engine::operator::ExecContext;
use kilim_engine::plan::ReadRequest;
use kilim_engine::read;
use kilim_engine::unit::Unit;
use kilim_engine::write::{self, UpdateRequest};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::projection::Projection;
use kilim_query::sort::Sort;
use kilim_query::update::Update;
use kilim_storage::{MemoryDisk, Survivors};
use kilim_testkit::histories;

use crate::pattern::declare;
use crate::pattern_history::world::Dice;
use crate::support::{Db, delete, eventually, filter, find_and_modify, insert, ns, spec};

const FLAG: &str = "more";
const COUNT: &str = "elements";

fn declaration(dice: &mut Dice, whole: bool) -> Document {
    doc! {"name": "long", "createIndexes": dice.roll(2) == 0, "backfill": {"batch": 1 + dice.roll(4)}, "outlier": {
        "field": "f", "limit": 1 + dice.roll(6), "maxBytes": if dice.roll(3) == 0 { 100 } else { 5000 },
        "pageSize": 1 + dice.roll(4), "flag": FLAG, "count": COUNT, "read": if whole { "whole" } else { "preview" },
    }}
}

fn element(dice: &mut Dice) -> Value {
    match dice.roll(12) {
        0..=4 => Value::Int32(dice.roll(9)),
        5 => Value::Double(f64::from(dice.roll(9))),
        6 | 7 => Value::from(dice.one(&["red", "green", "blue"])),
        8 | 9 => Value::Document(doc! {"k": dice.roll(4), "v": dice.roll(4)}),
        10 => Value::Null,
        _ => Value::Array(array![dice.roll(3)]),
    }
}

fn elements(dice: &mut Dice, most: i32) -> Vec<Value> {
    (0..dice.roll(most + 1)).map(|_| element(dice)).collect()
}

fn document(dice: &mut Dice, id: Option<i32>) -> Document {
    let mut made = Document::new();
    if let Some(id) = id {
        made.push("_id", id);
    }
    made.push("g", dice.roll(5));
    match dice.roll(10) {
        0 => {}
        1 => made.push("f", dice.roll(5)),
        _ => made.push("f", elements(dice, 14)),
    }
    made.push("tags", vec![Value::Int32(dice.roll(3)), Value::Int32(dice.roll(3))]);
    made
}

#[derive(Debug, Clone)]
enum Statement {
    Insert(Document),
    Update { filter: Document, update: Value, filters: Vec<Document>, multi: bool, upsert: bool },
    Modify(Document, Document),
    Delete(Document),
}

fn condition(dice: &mut Dice) -> Document {
    let value = element(dice);
    match dice.roll(20) {
        0..=3 => doc! {"f": value},
        4 => doc! {"f": {"$in": [element(dice), element(dice)]}},
        5 => doc! {"f": {"$all": [element(dice), element(dice)]}},
        6 => doc! {"f": {"$elemMatch": {"k": dice.roll(4), "v": {"$gte": dice.roll(4)}}}},
        7 => doc! {"f": {"$elemMatch": {"$gt": dice.roll(5), "$lt": 6}}},
        8 => doc! {"f": {"$size": dice.roll(16)}},
        9 => doc! {"f": {"$gt": dice.roll(9)}},
        10 => doc! {"f": {"$ne": value}},
        11 => doc! {"f": {"$nin": [value, "red"]}},
        12 => doc! {(&*format!("f.{}", dice.roll(14))): value},
        13 => doc! {"f.k": dice.roll(4)},
        14 => doc! {"f.k": Value::Null},
        15 => doc! {"f": elements(dice, 3)},
        16 => doc! {"$or": [{"f": value, "g": {"$lt": 3}}, {"f": {"$size": dice.roll(14)}}]},
        17 => doc! {"$nor": [{"f": value}, {"f.v": 2}]},
        18 => doc! {"f": {"$not": {"$elemMatch": {"k": dice.roll(4)}}}, "g": {"$gt": 0}},
        _ => match dice.roll(6) {
            // Plans in which rows are fetched below others that fetch.
            4 => doc! {"$or": [{"f": {"$in": [value, [1, 2]]}}, {"f": 99}]},
            5 => {
                doc! {"$and": [{"$or": [{"f": {"$lte": Value::Null}}, {"f": []}]}, {"f": {"$ne": value}}]}
            }
            0 => doc! {"f": {"$type": dice.one(&["string", "array", "object", "null"])}},
            1 => doc! {"f": {"$exists": dice.roll(2) == 0}},
            2 => doc! {"f": {"$regex": "^r"}},
            _ => {
                doc! {"$expr": {"$gt": [{"$cond": [{"$isArray": "$f"}, {"$size": "$f"}, 0]}, dice.roll(12)]}}
            }
        },
    }
}

fn one(dice: &mut Dice) -> Document {
    doc! {"_id": dice.roll(8)}
}

fn change(dice: &mut Dice) -> (Document, Vec<Document>) {
    let each = |dice: &mut Dice| elements(dice, 5);
    let value = element(dice);
    let made = match dice.roll(24) {
        0..=3 => doc! {"$push": {"f": value}},
        4 | 5 => doc! {"$push": {"f": {"$each": each(dice)}}},
        6 => doc! {"$push": {"f": {"$each": each(dice), "$position": dice.roll(12) - 4}}},
        7 => doc! {"$push": {"f": {"$each": each(dice), "$slice": dice.roll(20) - 10}}},
        8 => doc! {"$push": {"f": {"$each": each(dice), "$sort": if dice.roll(2) == 0 { 1 } else { -1 }}}},
        9 | 10 => doc! {"$addToSet": {"f": value}},
        11 => doc! {"$addToSet": {"f": {"$each": each(dice)}}, "$inc": {"g": 1}},
        12 => doc! {"$pull": {"f": value}},
        13 => doc! {"$pull": {"f": {"k": {"$gte": dice.roll(3)}}}},
        14 => doc! {"$pullAll": {"f": each(dice)}},
        15 => doc! {"$pop": {"f": if dice.roll(2) == 0 { 1 } else { -1 }}},
        16 => doc! {"$set": {(&*format!("f.{}", dice.roll(16))): value}},
        17 => {
            // Not what a preview shows, which would be taken for one that is sent back.
            let mut all = vec![Value::Int32(1000 + dice.roll(1_000_000))];
            all.extend(elements(dice, 12));
            doc! {"$set": {"f": all}}
        }
        18 => match dice.roll(3) {
            0 => doc! {"$unset": {"f": 1}},
            1 => doc! {"$set": {"f": "none"}},
            _ => doc! {"$rename": {"f": "was"}},
        },
        19 => return (doc! {"$set": {"f.$[e]": value}}, vec![doc! {"e": {"$gte": dice.roll(9)}}]),
        20 => doc! {"$set": {"f.$[]": value}},
        21 => doc! {"$set": {"tags.0": dice.roll(5)}},
        _ => doc! {"$inc": {"g": 1}},
    };
    (made, Vec::new())
}

fn statement(dice: &mut Dice) -> Statement {
    let plain = |filter, update, multi| Statement::Update {
        filter,
        update,
        filters: Vec::new(),
        multi,
        upsert: false,
    };
    match dice.roll(20) {
        0..=3 => {
            let id = dice.roll(8);
            Statement::Insert(document(dice, Some(id)))
        }
        4 => Statement::Delete(if dice.roll(3) == 0 { condition(dice) } else { one(dice) }),
        5 => Statement::Modify(one(dice), change(dice).0),
        6 => {
            let value = element(dice);
            let mut filter = one(dice);
            filter.push("f", value);
            plain(filter, Value::Document(doc! {"$set": {"f.$": element(dice)}}), false)
        }
        7 => {
            let mut filter = one(dice);
            filter.push("tags", dice.roll(3));
            plain(filter, Value::Document(doc! {"$set": {"tags.$": 7}}), false)
        }
        8 => {
            let (filter, update) = (one(dice), Value::Document(document(dice, None)));
            Statement::Update { filter, update, filters: Vec::new(), multi: false, upsert: dice.roll(2) == 0 }
        }
        9 if dice.roll(2) == 0 => {
            let size = doc! {"$cond": [{"$isArray": "$f"}, {"$size": "$f"}, 0]};
            let set = match dice.roll(3) {
                0 => doc! {"$set": {"g": size}},
                1 => doc! {"$set": {"g": size, "was": "$f"}},
                _ => doc! {"$set": {"was": {"$getField": {"field": "f", "input": "$$ROOT"}}}},
            };
            plain(one(dice), Value::Array(array![set]), false)
        }
        9 => {
            let joined = doc! {"$cond": [{"$isArray": "$f"}, {"$concatArrays": ["$f", [1, "x"]]}, [2]]};
            plain(one(dice), Value::Array(array![doc! {"$set": {"f": joined}}]), false)
        }
        10 => {
            let (update, filters) = change(dice);
            let filter = condition(dice);
            Statement::Update { filter, update: Value::Document(update), filters, multi: true, upsert: false }
        }
        _ => {
            let (update, filters) = change(dice);
            let update = Value::Document(update);
            Statement::Update { filter: one(dice), update, filters, multi: false, upsert: dice.roll(6) == 0 }
        }
    }
}

/// Without what the pattern maintains.
fn bare(document: &Document) -> Document {
    let own = |name: &str| name == FLAG || name == COUNT;
    document.iter().filter(|(name, _)| !own(name)).map(|(name, value)| (name, value.to_value())).collect()
}

fn run_in(unit: &mut Unit<'_>, collection: &str, statement: &Statement, whole: bool) -> Result<String> {
    match statement.clone() {
        Statement::Insert(document) => {
            let mut outcome = insert(unit, collection, &[document], true)?;
            match outcome.errors.pop() {
                Some((_, error)) => Err(error),
                None => Ok("inserted".to_owned()),
            }
        }
        Statement::Update { filter: matching, update, filters, multi, upsert } => {
            let filters = doc! {"": filters.into_iter().map(Value::Document).collect::<Vec<_>>()};
            let filters = filters.get("").and_then(RawValue::as_array).filter(|filters| !filters.is_empty());
            let update = Update::parse(update.as_raw(), filters, multi)?;
            let request = UpdateRequest {
                filter: filter(matching),
                update: &update,
                multi,
                upsert,
                hint: None,
                collation: None,
                now_ms: 0,
                statement: 0,
                projection: None,
            };
            let outcome = write::update(unit, &ns(collection), &request)?;
            let upserted = outcome.upserted.is_some();
            Ok(format!("{} {} {upserted}", outcome.matched, outcome.modified))
        }
        Statement::Modify(filter, change) => {
            let modified = find_and_modify(unit, collection, filter, change, None)?;
            let seen = modified.value.filter(|_| whole).map(|value| bare(&value));
            Ok(format!("{} {seen:?}", modified.matched))
        }
        Statement::Delete(filter) => Ok(delete(unit, collection, filter, false)?.to_string()),
    }
}

/// Runs a statement; what it answers, or the code with which it is refused.
fn run(db: &Db, collection: &str, statement: &Statement, whole: bool) -> Result<Result<String, ErrorCode>> {
    match db.run(|unit| run_in(unit, collection, statement, whole)) {
        Ok(answer) => Ok(Ok(answer)),
        Err(error @ Error::Storage(_)) => Err(error),
        Err(error @ Error::Bug(_)) => panic!("{error} in {statement:?}"),
        Err(error) => Ok(Err(error.code())),
    }
}

/// What a find gives, in the order of its sort; without the pattern's fields.
fn read(
    db: &Db,
    collection: &str,
    matching: Document,
    projection: Option<Document>,
    sort: Document,
) -> Result<Vec<Document>, ErrorCode> {
    let found = db.run(|unit| {
        let mut request = ReadRequest::new(filter(matching.clone()));
        request.sort = Some(Sort::parse(sort.as_raw())?);
        request.projection = match &projection {
            Some(projection) => Some(Projection::parse(projection.as_raw())?),
            None => None,
        };
        let mut executor = read::plan(unit, &ns(collection), request)?.execute();
        let mut context = ExecContext::new(&|| Ok(()));
        let mut found = Vec::new();
        while let Some(row) = executor.next_document(&mut context)? {
            found.push(bare(&row.document().to_document()));
        }
        Ok(found)
    });
    found.map_err(|error| error.code())
}

fn by_id() -> Document {
    doc! {"_id": 1}
}

/// All of a collection's documents with their whole arrays, whatever readers are shown.
fn all(db: &Db, collection: &str) -> Vec<Document> {
    read(db, collection, doc! {}, Some(doc! {"f": {"$slice": 10_000}}), by_id()).unwrap()
}

#[track_caller]
fn compare(db: &Db, dice: &mut Dice, whole: bool, seed: u64) {
    let by_id_bytes = |documents: Vec<Document>| {
        let mut documents = documents;
        documents.sort_by_key(|document| format!("{:?}", document.get("_id")));
        documents
    };
    assert_eq!(by_id_bytes(all(db, "users")), by_id_bytes(all(db, "model")), "seed {seed}");
    for _ in 0..6 {
        let matching = condition(dice);
        let sort = match dice.roll(3) {
            0 => doc! {"f": if dice.roll(2) == 0 { 1 } else { -1 }, "_id": 1},
            _ => by_id(),
        };
        let (skip, limit) = (dice.roll(20) - 8, 1 + dice.roll(6));
        let size = doc! {"$cond": [{"$isArray": "$f"}, {"$size": "$f"}, 0]};
        let projection = match dice.roll(7) {
            0 if whole => None,
            0 | 1 => Some(doc! {"f": {"$slice": [skip, limit]}}),
            2 => Some(doc! {"f": {"$slice": skip}}),
            3 => Some(doc! {"g": 1, "f": {"$elemMatch": {"$gt": dice.roll(6)}}}),
            4 => Some(doc! {"g": 1, "f": {"$slice": [skip, limit]}}),
            5 => Some(doc! {"f": {"$slice": [skip, limit]}, "size": size, "all": "$f"}),
            _ => Some(doc! {"g": 1}),
        };
        let seen = read(db, "users", matching.clone(), projection.clone(), sort.clone());
        let expected = read(db, "model", matching.clone(), projection.clone(), sort.clone());
        assert_eq!(seen, expected, "seed {seed}: {matching:?} {projection:?} {sort:?}");
        let count = |name: &str| db.count(name, matching.clone());
        assert_eq!(count("users"), count("model"), "seed {seed}: {matching:?}");
    }
}

#[track_caller]
fn validate(db: &Db, seed: u64) {
    let faults = db.faults();
    assert!(faults.is_empty(), "seed {seed}: {faults:#?}");
    if let Some(pattern) = db.engine.patterns().find(&ns("users"), "long").cloned()
        && matches!(pattern.state, kilim_engine::patterns::PatternState::Active)
    {
        let operation = Arc::clone(&db.engine.operations.start(1));
        let part = kilim_engine::upkeep::Part::default();
        let found = db.engine.verify_pattern(&operation, &pattern, part, 10).unwrap();
        assert_eq!(found.wrong, 0, "seed {seed}: {:?}", found.examples);
    }
}

/// Each document is written whole, but not all of a statement together: the model takes over what there is.
fn take_over(db: &Db) {
    let there = all(db, "users");
    db.delete("model", doc! {}).unwrap();
    if !there.is_empty() {
        db.insert("model", &there);
    }
}

fn restart(db: Db, disk: &MemoryDisk) -> Db {
    drop(db.engine.close());
    drop(db);
    disk.restart(Survivors::Written);
    Db::on(disk)
}

/// Plays a history; the most pages that there were.
fn history(seed: u64) -> u64 {
    let mut dice = Dice::new(seed + 1);
    let disk = MemoryDisk::default();
    let mut db = Db::on(&disk);
    let whole = seed.is_multiple_of(2);
    for name in ["users", "model"] {
        db.engine.create_collection(&ns(name), Document::new()).unwrap();
        let indexes = match seed % 3 {
            0 => vec![spec(doc! {"g": 1})],
            1 => vec![spec(doc! {"f": 1}), spec(doc! {"g": 1})],
            _ => vec![spec(doc! {"f.k": -1}), spec(doc! {"g": 1})],
        };
        db.build(name, indexes).unwrap();
    }
    let (mut transactions, mut pages) = (0, 0);
    let mut stopped: Vec<ErrorCode> = Vec::new();
    for round in 0..70 {
        let declared = db.engine.patterns().find(&ns("users"), "long").cloned();
        match (dice.roll(24), declared) {
            (0..=4, None) => declare(&db, "users", declaration(&mut dice, whole)).map(drop).unwrap(),
            (0, Some(pattern)) => {
                let operation = Arc::clone(&db.engine.operations.start(1));
                db.engine.drop_pattern(&operation, &pattern).unwrap();
                db.engine.drop_supporting_index(&operation, &pattern).unwrap();
                if dice.roll(2) == 0 {
                    db.engine.remove_fields(&operation, &pattern).unwrap();
                }
            }
            (1, _) => db = restart(db, &disk),
            (2, Some(_)) => {
                // The power goes within a statement: all of it is there, or nothing.
                let asked = statement(&mut dice);
                disk.stop_after(dice.roll(4) as u64);
                let lost = run(&db, "users", &asked, whole);
                assert!(lost.is_ok() || disk.is_off(), "seed {seed}");
                db = restart(db, &disk);
                let is_multi = matches!(&asked, Statement::Update { multi: true, .. } | Statement::Delete(_));
                let upserts = matches!(&asked, Statement::Update { upsert: true, .. });
                if all(&db, "users") != all(&db, "model") && !is_multi && !upserts {
                    run(&db, "model", &asked, whole).unwrap().unwrap();
                } else if is_multi || upserts {
                    take_over(&db);
                }
            }
            (3, _) => {
                let asked: Vec<Statement> = (0..3).map(|_| statement(&mut dice)).collect();
                let commits = dice.roll(3) > 0;
                // The job that divides arrays would end the transaction by a conflict.
                eventually("the jobs end", || db.engine.jobs.lock().is_empty());
                let mut answers = Vec::new();
                for name in ["users", "model"] {
                    transactions += 1;
                    let mut transaction = db.transaction(1, transactions);
                    let answer: Result<Vec<String>> = asked
                        .iter()
                        .map(|asked| transaction.run(|unit| run_in(unit, name, asked, whole)))
                        .collect();
                    match (answer, commits) {
                        (Ok(answer), true) => {
                            transaction.commit().unwrap();
                            answers.push(Ok(answer));
                        }
                        (Ok(answer), false) => {
                            transaction.abort().unwrap();
                            answers.push(Ok(answer));
                        }
                        (Err(error), _) => {
                            drop(transaction.abort());
                            answers.push(Err(error.code()));
                        }
                    }
                }
                // An upsert makes an `_id` that is another in each collection.
                assert_eq!(answers[0], answers[1], "seed {seed}: {asked:?}");
            }
            _ => {
                let asked = statement(&mut dice);
                let before = all(&db, "model");
                let answer = run(&db, "users", &asked, whole).unwrap();
                let expected = run(&db, "model", &asked, whole).unwrap();
                assert_eq!(answer, expected, "seed {seed}: {asked:?}");
                // Which documents were changed before one was refused follows from the order of a plan.
                if let (Err(code), Statement::Update { multi: true, .. }) = (&answer, &asked) {
                    stopped.push(*code);
                    // Each of them is as it was, or as the statement makes it.
                    let made = all(&db, "model");
                    for document in
                        all(&db, "users").iter().filter(|it| !before.contains(it) && !made.contains(it))
                    {
                        let id = doc! {"_id": document.get("_id").unwrap()};
                        let Statement::Update { update, filters, .. } = asked.clone() else { unreachable!() };
                        let one = Statement::Update {
                            filter: id.clone(),
                            update,
                            filters,
                            multi: false,
                            upsert: false,
                        };
                        run(&db, "model", &one, whole).unwrap().unwrap();
                        assert!(all(&db, "model").contains(document), "seed {seed}: {document:?} {asked:?}");
                    }
                    take_over(&db);
                }
            }
        }
        compare(&db, &mut dice, whole, seed);
        if db.engine.collection(&ns("users.overflow")).is_some() {
            pages = pages.max(db.count("users.overflow", doc! {}));
        }
        if round % 8 == 0 {
            validate(&db, seed);
        }
    }
    eventually("the jobs end", || db.engine.jobs.lock().is_empty());
    compare(&db, &mut dice, whole, seed);
    validate(&db, seed);
    db.engine.close().unwrap();
    // Only arrays that are none stop an update of many.
    let known = [ErrorCode::BadValue, ErrorCode::TypeMismatch, ErrorCode::PathNotViable];
    let is_known = |code: &ErrorCode| known.contains(code);
    assert!(stopped.iter().all(is_known), "seed {seed}: {stopped:?}");
    pages
}

/// A few histories, or as many as are asked for.
#[test]
fn arrays_in_pages_are_what_plain_collections_with_the_same_commands_have() {
    let pages = histories(8).map(history).max();
    assert!(pages.is_some_and(|pages| pages >= 5), "{pages:?}");
}
