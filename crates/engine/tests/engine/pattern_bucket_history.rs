//! Random histories of measurements that are packed into buckets, compared with a plain collection that had the same
//! commands.
//!
//! Spans and buckets are small, so that measurements are sealed, leave their buckets and are packed again all the time. The
//! pattern is declared, modified and dropped meanwhile, and the server is restarted or loses its power, also while it seals.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, Value, doc};
use kilim_engine::operator::ExecContext;
use kilim_engine::patterns::PatternState;
use kilim_engine::plan::ReadRequest;
use kilim_engine::read;
use kilim_engine::unit::Unit;
use kilim_engine::upkeep::Part;
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::sort::Sort;
use kilim_storage::{MemoryDisk, Survivors};
use kilim_testkit::histories;

use crate::pattern::declare;
use crate::pattern_history::world::Dice;
use crate::pipeline::run as piped;
use crate::support::{
    Db, Updating, delete, eventually, filter, find_and_modify, insert, ns, spec, update_with,
};

fn bucket(dice: &mut Dice) -> Document {
    let by_time = dice.roll(5) > 0;
    let mut bucket = match by_time {
        true => doc! {"timeField": "ts", "bucketMaxSpanSeconds": dice.one_of(&[1, 5, 60])},
        false => doc! {"order": dice.one(&["_id", "t"])},
    };
    if dice.roll(5) > 0 {
        bucket.push("metaField", "s");
    }
    bucket.push("maxCount", 2 + dice.roll(6));
    bucket.push("maxBytes", if dice.roll(4) == 0 { 256 } else { 5000 });
    bucket.push("stats", doc! {"t": ["min", "max", "sum"]});
    bucket.push("layout", dice.one(&["columns", "columns", "rows"]));
    bucket
}

impl Dice {
    fn one_of(&mut self, of: &[i32]) -> i32 {
        of[self.roll(of.len() as i32) as usize]
    }
}

fn declaration(dice: &mut Dice) -> Document {
    doc! {"name": "b", "createIndexes": dice.roll(2) == 0, "backfill": {"batch": 1 + dice.roll(4)}, "bucket": bucket(dice)}
}

fn value(dice: &mut Dice) -> Option<Value> {
    Some(match dice.roll(12) {
        0..=4 => Value::Int32(dice.roll(20)),
        5 => Value::Double(f64::from(dice.roll(20)) / 2.0),
        6 => Value::Int64(i64::from(dice.roll(20))),
        7 => Value::Null,
        8 | 9 => Value::from(dice.one(&["red", "a longer text", ""])),
        10 => Value::Document(doc! {"x": dice.roll(3)}),
        _ => return None,
    })
}

fn time(dice: &mut Dice) -> Option<Value> {
    Some(match dice.roll(16) {
        0 => Value::Null,
        1 => Value::from("now"),
        2 => return None,
        3 => Value::DateTime(i64::MIN + i64::from(dice.roll(3))),
        4 => Value::DateTime(i64::MAX - i64::from(dice.roll(3))),
        _ => Value::DateTime(i64::from(dice.roll(40)) * 500 - 3000),
    })
}

fn meta(dice: &mut Dice) -> Option<Value> {
    Some(match dice.roll(8) {
        0 => return None,
        1 => Value::Double(1.0),
        2 => Value::Document(doc! {"room": dice.roll(2)}),
        _ => Value::Int32(dice.roll(3)),
    })
}

fn measurement(dice: &mut Dice, id: Option<i32>) -> Document {
    let mut made = Document::new();
    if let Some(id) = id {
        made.push("_id", id);
    }
    let mut fields = vec![("s", meta(dice)), ("ts", time(dice)), ("t", value(dice)), ("u", value(dice))];
    if dice.roll(4) == 0 {
        fields.reverse();
    }
    for (name, value) in fields {
        value.into_iter().for_each(|value| made.push(name, value));
    }
    made
}

const IDS: i32 = 40;

#[derive(Debug, Clone)]
enum Statement {
    Insert(Vec<Document>),
    Update(Document, Document, bool),
    Upsert(Document, Document),
    Modify(Document, Document),
    Delete(Document),
}

fn condition(dice: &mut Dice) -> Document {
    match dice.roll(12) {
        0..=2 => doc! {"_id": dice.roll(IDS)},
        3 => doc! {"_id": {"$lt": dice.roll(IDS)}},
        4 | 5 => doc! {"s": meta(dice)},
        6 | 7 => {
            let from = i64::from(dice.roll(40)) * 500 - 3000;
            let (from, to) = (Value::DateTime(from), Value::DateTime(from + i64::from(dice.roll(9000))));
            doc! {"s": dice.roll(3), "ts": {"$gte": from, "$lt": to}}
        }
        8 => doc! {"ts": {"$gt": Value::DateTime(i64::from(dice.roll(40)) * 500)}},
        9 => doc! {"t": value(dice)},
        10 => doc! {"t": {"$type": dice.one(&["int", "double", "string", "null"])}},
        _ => doc! {"u": {"$exists": dice.roll(2) == 0}, "t": {"$gt": dice.roll(20)}},
    }
}

fn change(dice: &mut Dice) -> Document {
    match dice.roll(8) {
        0 | 1 => doc! {"$set": {"t": value(dice)}},
        2 => doc! {"$set": {"ts": time(dice)}},
        3 => doc! {"$set": {"s": meta(dice)}},
        4 => doc! {"$unset": {"u": 1}},
        5 => doc! {"$set": {"u": "x".repeat(dice.roll(300) as usize)}},
        6 => doc! {"$unset": {"ts": 1}},
        _ => doc! {"$set": {"n": dice.roll(9)}},
    }
}

fn statement(dice: &mut Dice) -> Statement {
    let one = |dice: &mut Dice| doc! {"_id": dice.roll(IDS)};
    match dice.roll(20) {
        0..=7 => {
            let first = dice.roll(IDS);
            Statement::Insert((0..1 + dice.roll(4)).map(|at| measurement(dice, Some(first + at))).collect())
        }
        8 => Statement::Delete(condition(dice)),
        9 | 10 => Statement::Delete(one(dice)),
        11 => Statement::Modify(one(dice), change(dice)),
        12 => Statement::Upsert(one(dice), change(dice)),
        13 => Statement::Update(one(dice), measurement(dice, None), false),
        14 | 15 => Statement::Update(condition(dice), change(dice), true),
        _ => Statement::Update(one(dice), change(dice), false),
    }
}

fn run_in(unit: &mut Unit<'_>, collection: &str, statement: &Statement) -> Result<String> {
    Ok(match statement.clone() {
        Statement::Insert(documents) => {
            let outcome = insert(unit, collection, &documents, false)?;
            let errors: Vec<_> = outcome.errors.iter().map(|(at, error)| (*at, error.code())).collect();
            format!("{} {errors:?}", outcome.inserted)
        }
        Statement::Update(filter, update, many) => {
            let how = if many { Updating::Many } else { Updating::One };
            let outcome = update_with(unit, collection, filter, update, how)?;
            format!("{} {}", outcome.matched, outcome.modified)
        }
        Statement::Upsert(filter, update) => {
            let outcome = update_with(unit, collection, filter, update, Updating::Upsert)?;
            format!("{} {} {:?}", outcome.matched, outcome.modified, outcome.upserted)
        }
        Statement::Modify(filter, change) => {
            let modified = find_and_modify(unit, collection, filter, change, None)?;
            format!("{} {:?}", modified.matched, modified.value)
        }
        Statement::Delete(filter) => delete(unit, collection, filter, false)?.to_string(),
    })
}

/// Runs a statement; what it answers, or the code with which it is refused.
fn run(db: &Db, collection: &str, statement: &Statement) -> Result<Result<String, ErrorCode>> {
    match db.run(|unit| run_in(unit, collection, statement)) {
        Ok(answer) => Ok(Ok(answer)),
        Err(error @ Error::Storage(_)) => Err(error),
        Err(error @ Error::Bug(_)) => panic!("{error} in {statement:?}"),
        Err(error) => Ok(Err(error.code())),
    }
}

fn find(db: &Db, collection: &str, matching: &Document, sort: Option<&Document>) -> Vec<Document> {
    let found = db.run(|unit| {
        let mut request = ReadRequest::new(filter(matching.clone()));
        request.sort = sort.map(|sort| Sort::parse(sort.as_raw())).transpose()?;
        let mut executor = read::plan(unit, &ns(collection), request)?.execute();
        let mut context = ExecContext::new(&|| Ok(()));
        let mut found = Vec::new();
        while let Some(row) = executor.next_document(&mut context)? {
            found.push(row.document().to_document());
        }
        Ok(found)
    });
    found.unwrap()
}

fn all(db: &Db, collection: &str) -> Vec<Document> {
    find(db, collection, &doc! {}, Some(&doc! {"_id": 1}))
}

#[track_caller]
fn compare(db: &Db, dice: &mut Dice, seed: u64) {
    assert_eq!(all(db, "m"), all(db, "model"), "seed {seed}");
    for _ in 0..4 {
        let matching = condition(dice);
        let sort = match dice.roll(3) {
            0 => doc! {"ts": if dice.roll(2) == 0 { 1 } else { -1 }, "_id": 1},
            1 => doc! {"s": 1, "ts": 1, "_id": 1},
            _ => doc! {"_id": 1},
        };
        let seen = find(db, "m", &matching, Some(&sort));
        assert_eq!(seen, find(db, "model", &matching, Some(&sort)), "seed {seed}: {matching:?} {sort:?}");
        assert_eq!(db.count("m", matching.clone()), seen.len() as u64, "seed {seed}: {matching:?}");
    }
    if db.engine.view(&ns("m.buckets")).is_some() {
        let shown = piped(
            db,
            "m.buckets",
            vec![doc! {"$group": {"_id": Value::Null, "n": {"$sum": "$count"},
            "sum": {"$sum": "$stats.t.sum"}, "least": {"$min": "$stats.t.min"}, "most": {"$max": "$stats.t.max"}}}],
        );
        let expected = piped(
            db,
            "model",
            vec![doc! {"$group": {"_id": Value::Null, "n": {"$sum": 1},
            "sum": {"$sum": "$t"}, "least": {"$min": "$t"}, "most": {"$max": "$t"}}}],
        );
        let plain = |documents: &[Document]| -> Vec<String> {
            let number = |of: &Document, name: &str| match of.get(name) {
                Some(RawValue::Int32(value)) => f64::from(value),
                Some(RawValue::Int64(value)) => value as f64,
                Some(RawValue::Double(value)) => value,
                other => panic!("{other:?}"),
            };
            let shown = |of: &Document, name: &str| match of.get(name) {
                Some(value) if value.is_number() => number(of, name).to_string(),
                other => format!("{other:?}"),
            };
            let all = |of: &Document| {
                format!(
                    "{} {} {} {}",
                    number(of, "n"),
                    number(of, "sum"),
                    shown(of, "least"),
                    shown(of, "most")
                )
            };
            documents.iter().map(all).collect()
        };
        assert_eq!(plain(&shown), plain(&expected), "seed {seed}");
    }
}

#[track_caller]
fn validate(db: &Db, seed: u64) {
    let faults = db.faults();
    assert!(faults.is_empty(), "seed {seed}: {faults:#?}");
    if let Some(pattern) = db.engine.patterns().find(&ns("m"), "b").cloned()
        && pattern.state == PatternState::Active
    {
        let operation = Arc::clone(&db.engine.operations.start(1));
        let found = db.engine.verify_pattern(&operation, &pattern, Part::default(), 10).unwrap();
        assert_eq!(found.wrong, 0, "seed {seed}: {:?}", found.examples);
    }
}

/// Each document is written whole, but not all of a statement together: the model takes over what there is.
fn take_over(db: &Db) {
    let there = find(db, "m", &doc! {}, None);
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

fn seal(db: &Db) -> Result<u64> {
    let operation = Arc::clone(&db.engine.operations.start(1));
    db.engine.seal_all(&operation, &ns("m"))
}

fn modify(db: &Db, changes: Document) -> Result<()> {
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns("m"), "b")?;
    let modified = db.engine.modify_pattern(&operation, &pattern, changes.as_raw())?;
    if modified.state == PatternState::Building {
        db.engine.begin_filling(&modified);
    }
    Ok(())
}

fn drop_pattern(db: &Db) -> Result<()> {
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns("m"), "b")?;
    db.engine.drop_pattern(&operation, &pattern)?;
    db.engine.drop_supporting_index(&operation, &pattern)
}

/// Plays a history; how many measurements were sealed.
fn history(seed: u64) -> u64 {
    let mut dice = Dice::new(seed + 1);
    let disk = MemoryDisk::default();
    let mut db = Db::on(&disk);
    for name in ["m", "model"] {
        db.engine.create_collection(&ns(name), Document::new()).unwrap();
        let indexes = match seed % 3 {
            0 => vec![spec(doc! {"t": 1})],
            1 => vec![spec(doc! {"ts": 1}), spec(doc! {"s": 1, "t": -1})],
            _ => Vec::new(),
        };
        if !indexes.is_empty() {
            db.build(name, indexes).unwrap();
        }
    }
    let (mut transactions, mut sealed) = (0, 0);
    for round in 0..80 {
        let is_declared = db.engine.patterns().find(&ns("m"), "b").is_some();
        match (dice.roll(32), is_declared) {
            (0..=7, false) => declare(&db, "m", declaration(&mut dice)).map(drop).unwrap(),
            (0, true) => drop_pattern(&db).unwrap(),
            (1, true) => {
                // The same fields, so that none of an earlier declaration is left.
                let (count, bytes) = (2 + dice.roll(6), 256 + dice.roll(2) * 5000);
                let mut changes = doc! {"maxCount": count, "maxBytes": bytes};
                let spec = db.engine.pattern(&ns("m"), "b").unwrap().declaration.spec.clone();
                if spec.get("timeField").is_some() {
                    changes.push("bucketMaxSpanSeconds", dice.one_of(&[1, 5, 60]));
                }
                modify(&db, doc! {"bucket": changes}).unwrap();
            }
            (2, _) => db = restart(db, &disk),
            (3 | 4, true) => {
                // The power goes within a statement: all of it is there, or nothing.
                let asked = statement(&mut dice);
                disk.stop_after(dice.roll(4) as u64);
                let lost = run(&db, "m", &asked);
                assert!(lost.is_ok() || disk.is_off(), "seed {seed}");
                db = restart(db, &disk);
                take_over_after(&db, &asked, seed);
            }
            (5..=7, true) => {
                // The power goes while measurements are sealed, unpacked or packed otherwise: none is lost, none twice.
                disk.stop_after(dice.roll(5) as u64);
                let lost = match dice.roll(4) {
                    0 => drop_pattern(&db),
                    1 => modify(&db, doc! {"bucket": {"maxCount": 2 + dice.roll(6)}}),
                    _ => seal(&db).map(drop),
                };
                assert!(lost.is_ok() || disk.is_off(), "seed {seed}: {lost:?}");
                db = restart(db, &disk);
            }
            (8..=13, true) => sealed += seal(&db).unwrap(),
            (14, _) => {
                let asked: Vec<Statement> = (0..3).map(|_| statement(&mut dice)).collect();
                let commits = dice.roll(3) > 0;
                // The job that repacks would end the transaction by a conflict.
                eventually("the jobs end", || db.engine.jobs.lock().is_empty());
                let mut answers = Vec::new();
                for name in ["m", "model"] {
                    transactions += 1;
                    let mut transaction = db.transaction(1, transactions);
                    let mut answer = Vec::new();
                    for asked in &asked {
                        match transaction.run(|unit| run_in(unit, name, asked)) {
                            Ok(done) => answer.push(Ok(done)),
                            Err(error) => {
                                answer.push(Err(error.code()));
                                break;
                            }
                        }
                        // What a transaction holds is left where it is.
                        if name == "m" && is_declared {
                            sealed += seal(&db).unwrap();
                        }
                    }
                    match answer.iter().all(Result::is_ok) && commits {
                        true => transaction.commit().unwrap(),
                        false => drop(transaction.abort()),
                    }
                    answers.push(answer);
                }
                let is_conflict =
                    |answer: &Result<String, ErrorCode>| matches!(answer, Err(ErrorCode::WriteConflict));
                // One of its measurements was sealed after it began.
                match answers[0].iter().any(is_conflict) {
                    true => take_over(&db),
                    false => assert_eq!(answers[0], answers[1], "seed {seed}: {asked:?}"),
                }
            }
            _ => {
                let asked = statement(&mut dice);
                let answer = run(&db, "m", &asked).unwrap();
                assert_eq!(answer, run(&db, "model", &asked).unwrap(), "seed {seed}: {asked:?}");
            }
        }
        compare(&db, &mut dice, seed);
        if round % 8 == 0 {
            validate(&db, seed);
        }
    }
    eventually("the jobs end", || db.engine.jobs.lock().is_empty());
    compare(&db, &mut dice, seed);
    validate(&db, seed);
    sealed += seal(&db).unwrap();
    compare(&db, &mut dice, seed);
    validate(&db, seed);
    db.engine.close().unwrap();
    sealed
}

/// After a cut, a statement of one document was done or not; of one that writes several, some may be.
fn take_over_after(db: &Db, asked: &Statement, seed: u64) {
    let is_one = match asked {
        Statement::Insert(documents) => documents.len() == 1,
        Statement::Update(_, _, many) => !many,
        Statement::Modify(..) => true,
        Statement::Upsert(..) | Statement::Delete(_) => false,
    };
    match is_one {
        true if all(db, "m") == all(db, "model") => {}
        true => drop(run(db, "model", asked).unwrap()),
        false => {
            // No document but those of before, and those that the statement makes.
            let before = all(db, "model");
            drop(run(db, "model", asked).unwrap());
            let made = all(db, "model");
            for document in all(db, "m") {
                assert!(
                    before.contains(&document) || made.contains(&document),
                    "seed {seed}: {document:?} {asked:?}"
                );
            }
            take_over(db);
        }
    }
}

/// A few histories, or as many as are asked for.
#[test]
fn measurements_in_buckets_are_what_plain_collections_with_the_same_commands_have() {
    let sealed: u64 = histories(12).map(history).sum();
    assert!(sealed >= 100, "{sealed}");
}
