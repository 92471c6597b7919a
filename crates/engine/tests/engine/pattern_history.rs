//! Random histories: whatever writers did, and however the server died, what is maintained equals what is computed.
//!
//! A history is made from its seed: some writers with statements, retries and transactions, patterns declared while
//! they write, paused and resumed, and lives that end in a cut of the power after some commit. After each life
//! everything is compared with a naive computation, and verification must find nothing.
//!
//! `cargo xtask histories --count 10000` runs many; a test run has a few.

mod catalogue;
mod forest;
mod naive;
pub mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use kilim_bson::{Document, RawValue, doc};
use kilim_engine::ids::SessionId;
use kilim_engine::patterns::PatternState;
use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::{MemoryDisk, Survivors};

use crate::pattern::declare;
use crate::support::{Db, eventually, ns};
use world::{COLLECTIONS, Dice, PATTERNS, Statement, declarations, is_late};

fn declare_all(db: &Db, seed: u64) {
    for (target, declaration) in declarations(seed) {
        declare_missing(db, target, declaration).unwrap();
    }
}

fn make_collections(db: &Db, seed: u64) {
    for name in COLLECTIONS.iter().filter(|name| db.engine.collection(&ns(name)).is_none()) {
        // Products are valid only without what is maintained.
        let options = match *name {
            "products" => doc! {"validator": {"label": {"$exists": false}}},
            _ => Document::new(),
        };
        db.engine.create_collection(&ns(name), options).unwrap();
    }
    for (target, declaration) in catalogue::declarations(seed) {
        declare_missing(db, target, declaration).unwrap();
    }
}

fn declare_missing(db: &Db, target: &str, declaration: Document) -> Result<()> {
    let name = declaration.get("name").and_then(RawValue::as_str).unwrap();
    match db.engine.patterns().find(&ns(target), name) {
        Some(_) => Ok(()),
        None => declare(db, target, declaration).map(drop),
    }
}

/// Declares what is missing, resumes what is paused, and waits until everything is filled.
fn settle(db: &Db, seed: u64) {
    for (target, declaration) in declarations(seed) {
        let name = declaration.get("name").and_then(RawValue::as_str).unwrap().to_owned();
        let mut is_cut = false;
        eventually(&format!("seed {seed}: {target}.{name} is active"), || {
            let state = db.engine.patterns().find(&ns(target), &name).map(|pattern| pattern.state.clone());
            match state {
                Some(PatternState::Active) => return true,
                None => drop(declare(db, target, declaration.clone()).unwrap()),
                Some(PatternState::Paused) => resume(db, target, &name).unwrap(),
                // A circle or a line that is too long, from before the declaration or from a pause.
                Some(PatternState::Failed(_)) if forest::TREES.contains(&target) && !is_cut => {
                    forest::cut_circles(db, target);
                    let operation = Arc::clone(&db.engine.operations.start(1));
                    let pattern = db.engine.pattern(&ns(target), &name).unwrap();
                    db.engine.repair_pattern(&operation, &pattern, None, 1).unwrap();
                    is_cut = true;
                }
                Some(PatternState::Failed(reason)) => panic!("seed {seed}, {target}.{name}: {reason}"),
                Some(_) => {}
            }
            false
        });
    }
    // What is served as it is stored is compared when nothing is pending; all else at any time.
    eventually(&format!("seed {seed}: nothing is behind"), || {
        !is_late(seed) || !is_behind(db, "tags", "byTag")
    });
}

fn is_behind(db: &Db, target: &str, name: &str) -> bool {
    let pattern = db.engine.pattern(&ns(target), name).unwrap();
    db.engine.pending_of(&pattern).unwrap().count > 0
}

fn pause(db: &Db, target: &str, name: &str) -> Result<()> {
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns(target), name)?;
    db.engine.pause_pattern(&operation, &pattern)
}

fn resume(db: &Db, target: &str, name: &str) -> Result<()> {
    let operation = Arc::clone(&db.engine.operations.start(1));
    let pattern = db.engine.pattern(&ns(target), name)?;
    if pattern.state == PatternState::Paused {
        let pattern = db.engine.restart_pattern(&operation, &pattern)?;
        db.engine.begin_filling(&pattern);
    }
    Ok(())
}

#[track_caller]
fn expect_all_true(db: &Db, seed: u64) {
    let mut faults = naive::faults(db);
    faults.extend(forest::faults(db, seed));
    faults.extend(catalogue::faults(db, seed));
    assert!(faults.is_empty(), "seed {seed}: {faults:#?}");
    let operation = Arc::clone(&db.engine.operations.start(1));
    for (target, name) in PATTERNS {
        let pattern = db.engine.pattern(&ns(target), name).unwrap();
        let found = db.engine.verify_pattern(&operation, &pattern, None, 3).unwrap();
        assert_eq!(found.wrong, 0, "seed {seed}, {target}.{name}: {:#?}", found.examples);
    }
    db.check();
}

/// What many histories did.
#[derive(Debug, Default)]
struct Tally {
    statements: AtomicU64,
    retries: AtomicU64,
    commits: AtomicU64,
    aborts: AtomicU64,
    conflicts: AtomicU64,
    pauses: AtomicU64,
    cuts: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Whether an error may end a statement of a history: another writer was first, or the power is off.
fn is_fair(error: &Error) -> bool {
    matches!(error, Error::Conflict(_) | Error::Storage(_))
        || matches!(error.code(), ErrorCode::WriteConflict | ErrorCode::LockTimeout)
        || is_refusal(error.code())
}

/// Whether a statement, or the commit of a transaction, may be refused with this.
fn is_refusal(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::TreeCycle
            | ErrorCode::TreeNotEmpty
            | ErrorCode::TreeDepthExceeded
            | ErrorCode::TreeParentMissing
            | ErrorCode::VariantValidationFailed
            | ErrorCode::PatternFieldConflict
            | ErrorCode::PatternFieldReadOnly
            // A sibling that is not there.
            | ErrorCode::BadValue
    )
}

#[track_caller]
fn expect_fair<T>(result: Result<T>, seed: u64) -> bool {
    match result {
        Ok(_) => true,
        Err(error) => {
            assert!(is_fair(&error), "seed {seed}: {error}");
            false
        }
    }
}

/// One client: statements, some of them sent twice, and transactions.
fn write_for_a_while(db: &Db, seed: u64, writer: u8, turns: i32, numbers: &AtomicI64, tally: &Tally) {
    let mut dice = Dice::new(seed * 100 + u64::from(writer) + numbers.load(Ordering::Relaxed) as u64 * 7);
    for _ in 0..turns {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        match dice.roll(6) {
            0 => {
                let statement = Statement::of(seed, &mut dice);
                let times = if statement.is_retryable() { 1 + dice.roll(3) } else { 1 };
                let session = SessionId([writer + 100; 16]);
                for _ in 0..times {
                    count(&tally.retries);
                    expect_fair(db.run_numbered(session, number, |unit| statement.run(unit)), seed);
                }
            }
            1 | 2 => {
                let mut transaction = db.transaction(writer, number);
                let (statements, in_chain) = (1 + dice.roll(4), seed % 3 != 1 && dice.roll(2) == 0);
                let mut run = || {
                    let statement = match in_chain {
                        true => Statement::in_chain(&mut dice),
                        false => Statement::of(seed, &mut dice),
                    };
                    transaction.run(|unit| statement.run(unit))
                };
                let done = (0..statements).try_for_each(|_| run());
                if !expect_fair(done, seed) {
                    count(&tally.conflicts);
                    continue;
                }
                match dice.roll(4) {
                    0 => {
                        count(&tally.aborts);
                        expect_fair(transaction.abort(), seed);
                    }
                    _ => match expect_fair(transaction.commit(), seed) {
                        true => count(&tally.commits),
                        false => count(&tally.conflicts),
                    },
                }
            }
            _ => {
                count(&tally.statements);
                let statement = Statement::of(seed, &mut dice);
                expect_fair(db.run(|unit| statement.run(unit)), seed);
            }
        }
    }
}

/// Somebody who declares, pauses and resumes while others write.
fn manage_for_a_while(db: &Db, seed: u64, declared: usize, tally: &Tally) {
    let mut dice = Dice::new(seed + 77);
    for (target, declaration) in declarations(seed).into_iter().skip(declared) {
        expect_fair(declare_missing(db, target, declaration), seed);
    }
    for _ in 0..dice.roll(4) {
        let (target, name) = PATTERNS[dice.roll(PATTERNS.len() as i32) as usize];
        let is_there = db.engine.patterns().find(&ns(target), name).is_some();
        if !is_there || catalogue::ALWAYS.contains(&target) {
            continue;
        }
        count(&tally.pauses);
        if expect_fair(pause(db, target, name), seed) && dice.roll(2) == 0 {
            expect_fair(resume(db, target, name), seed);
        }
    }
}

fn run_history(seed: u64, tally: &Tally) {
    let mut dice = Dice::new(seed);
    let disk = MemoryDisk::default();
    let numbers = AtomicI64::new(1);
    let lives = 1 + dice.roll(3);
    let mut declared = dice.roll(declarations(seed).len() as i32 + 1) as usize;
    let writers = 1 + dice.roll(4) as u8;
    for life in 0..lives {
        let db = Db::on(&disk);
        make_collections(&db, seed);
        for (target, declaration) in declarations(seed).into_iter().take(declared) {
            declare_missing(&db, target, declaration).unwrap();
        }
        let dies = life + 1 < lives || dice.roll(2) == 0;
        if dies {
            disk.stop_after(dice.roll(80) as u64);
        }
        let turns = 5 + dice.roll(20);
        thread::scope(|scope| {
            for writer in 0..writers {
                let (db, numbers) = (&db, &numbers);
                scope.spawn(move || write_for_a_while(db, seed, writer, turns, numbers, tally));
            }
            scope.spawn(|| manage_for_a_while(&db, seed, declared, tally));
        });
        declared = declarations(seed).len();
        let db = match dies {
            false => db,
            true => {
                count(&tally.cuts);
                let survivors = if dice.roll(2) == 0 { Survivors::Synced } else { Survivors::Written };
                disk.restart(survivors);
                // What the old one closes is of the past.
                drop(db.engine.close());
                drop(db);
                Db::on(&disk)
            }
        };
        make_collections(&db, seed);
        settle(&db, seed);
        expect_all_true(&db, seed);
        db.engine.close().unwrap();
    }
}

/// Runs some histories, from `KILIM_SEED` on: few unless `KILIM_HISTORIES` asks for more.
#[test]
fn what_is_maintained_equals_what_is_computed_after_any_history() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("KILIM_SEED").unwrap_or(1);
    let asked = number("KILIM_HISTORIES");
    let last = first + asked.unwrap_or(25);
    let tally = Tally::default();
    let next = AtomicU64::new(first);
    let begun = Instant::now();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= last {
                        return;
                    }
                    run_history(seed, &tally);
                    if asked.is_some() && (seed - first + 1).is_multiple_of(500) {
                        println!("{} histories in {:?}: {tally:?}", seed - first + 1, begun.elapsed());
                    }
                }
            });
        }
    });
    if asked.is_some() {
        println!(
            "seeds {first} to {}: nothing wrong, nothing lost. {tally:?}, {:?}",
            last - 1,
            begun.elapsed()
        );
    }
}

#[test]
fn one_writer_on_disk_and_restarts() {
    for seed in 1..4 {
        let mut db = Db::disk();
        let mut dice = Dice::new(seed);
        make_collections(&db, seed);
        for _ in 0..40 {
            expect_fair(db.run(|unit| Statement::of(seed, &mut dice).run(unit)), seed);
        }
        declare_all(&db, seed);
        for _ in 0..3 {
            for _ in 0..20 {
                expect_fair(db.run(|unit| Statement::of(seed, &mut dice).run(unit)), seed);
            }
            db.reopen();
            settle(&db, seed);
            expect_all_true(&db, seed);
        }
    }
}
