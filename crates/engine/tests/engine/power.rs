//! The power goes, or the process dies, after every change to the files of a whole database.
//!
//! One client writes to collections with indexes and declared patterns, in transactions and in single statements, builds
//! and drops indexes and collections; the store makes a checkpoint every few kilobytes beside it. After each write, sync
//! or change of a name that reaches the disk, the disk that a crash would leave is opened as a database. It must hold
//! exactly what it held after some operation: after every one that was acknowledged as durable, and, if only the process
//! has died, after every one that was acknowledged. Indexes, counts and patterns must agree with the documents.
//!
//! With a change log, its events must be those that were shown before the crash, and after them perhaps more; replayed from
//! the beginning, they must give exactly the documents that are there.
//!
//! `cargo xtask trust --cuts 5000` looks at many; a test run at a few.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use kilim_bson::{Document, RawDocument, RawValue, doc};
use kilim_engine::change_log::{IMAGES_OPTION, Token, parse_token};
use kilim_engine::listen::{self, Start};
use kilim_engine::patterns::PatternState;
use kilim_engine::stream::{Image, Scope, Stream, StreamOptions};
use kilim_engine::unit::Unit;
use kilim_engine::{Durability, LogOptions, StorageOptions};
use kilim_storage::simulated::SimulatedDisk;
use parking_lot::Mutex;

use crate::pattern::declare;
use crate::pattern_history::world::{COLLECTIONS, Dice, Statement, declarations};
use crate::support::{Db, Updating, delete, eventually, insert, ns, spec, unique, update_with};

/// Operations of one life.
const OPERATIONS: usize = 40;
/// Crashes that are looked at for one operation: a long checkpoint makes many changes.
const CRASHES_MAX: usize = 40;
/// A collection without patterns, with indexes.
const PLAIN: &str = "plain";
/// A collection that comes and goes.
const PASSING: &str = "passing";

/// A database as it was after an operation: all documents of all collections, maintained fields among them.
type Contents = Vec<(String, Document)>;

/// What the client has done, for whoever looks at the disk while it does more.
#[derive(Default)]
struct Progress {
    sent: AtomicUsize,
    acknowledged: AtomicUsize,
    durable: AtomicUsize,
    /// Events that a change stream has shown.
    shown: AtomicUsize,
}

/// What a crash left, and after how many operations it may be.
struct Crash {
    disk: SimulatedDisk,
    is_kill: bool,
    least: usize,
    most: usize,
    shown: usize,
}

/// A change stream from the beginning, and what it has shown.
struct Follower {
    begins: Token,
    stream: Stream,
    shown: Vec<Document>,
}

impl Follower {
    fn begin(db: &Db, start: Start) -> Follower {
        let options = StreamOptions { full_document: Image::WhenAvailable, ..StreamOptions::default() };
        let stream = listen::open(&db.engine, Scope::Deployment, start, options, Vec::new()).unwrap();
        let begins = parse_token(stream.token().as_raw()).unwrap();
        Follower { begins, stream, shown: Vec::new() }
    }

    /// Takes all events that are on disk.
    fn go_on(&mut self, db: &Db) {
        let operation = Arc::clone(&db.engine.operations.start(1));
        loop {
            listen::go_on(&db.engine, &operation, &mut self.stream, 100, false).unwrap();
            let before = self.shown.len();
            self.shown.extend(std::iter::from_fn(|| Some(self.stream.pop()?.document().to_document())));
            if self.shown.len() == before {
                return;
            }
        }
    }
}

/// Documents by their collection and `_id`.
fn keyed(contents: &Contents) -> BTreeMap<(String, String), Document> {
    let key = |document: &Document| format!("{:?}", document.get("_id"));
    contents.iter().map(|(name, document)| ((name.clone(), key(document)), document.clone())).collect()
}

/// The documents that are there after events, and no others.
fn replayed(events: &[Document]) -> BTreeMap<(String, String), Document> {
    let mut state = BTreeMap::new();
    for event in events {
        let part = |name: &str| event.get(name).and_then(RawValue::as_document);
        let collection =
            part("ns").and_then(|ns| ns.get("coll")).and_then(RawValue::as_str).unwrap().to_owned();
        let id = |key: RawDocument<'_>| format!("{:?}", key.get("_id"));
        let kind = event.get("operationType").and_then(RawValue::as_str).unwrap();
        if kind == "drop" {
            state.retain(|(name, _), _| *name != collection);
            continue;
        }
        let key = (collection, part("documentKey").map(id).unwrap());
        let before = match kind {
            "delete" => state.remove(&key),
            _ => {
                let after = part("fullDocument").unwrap_or_else(|| panic!("without an image: {event:?}"));
                state.insert(key, after.to_document())
            }
        };
        assert_eq!(before.is_some(), kind != "insert", "{event:?}");
    }
    state
}

#[derive(Debug, Default)]
struct Tally {
    lives: usize,
    operations: usize,
    cuts: usize,
    kills: usize,
    /// Crashes after which something was there that nobody had been promised.
    lucky: usize,
}

fn open(disk: &SimulatedDisk, log: Option<LogOptions>) -> Db {
    let checkpoint_bytes = Some(4 << 10);
    let options = StorageOptions { cache_bytes: 4 << 20, checkpoint_bytes, log, ..StorageOptions::default() };
    Db::over(disk.open(options).unwrap())
}

fn contents(db: &Db) -> Contents {
    let (_, catalog) = db.engine.reading();
    let mut names: Vec<String> =
        catalog.iter().map(|collection| collection.namespace.collection.clone()).collect();
    names.sort();
    let of = |name: String| {
        let documents = db.find(&name, doc! {});
        documents.into_iter().map(move |document| (name.clone(), document))
    };
    names.into_iter().flat_map(of).collect()
}

fn wait_until_active(db: &Db) {
    eventually("all patterns are active", || {
        db.engine.patterns().iter().all(|pattern| pattern.state == PatternState::Active)
    });
}

/// Runs one command outside of a transaction.
fn run(db: &Db, durability: Durability, command: impl FnOnce(&mut Unit<'_>) -> kilim_error::Result<()>) {
    let operation = Arc::clone(&db.engine.operations.start(1));
    let mut unit = Unit::new(&db.engine, operation, durability);
    let done = command(&mut unit);
    unit.settle().and(done).unwrap();
}

fn plain(dice: &mut Dice, id: i32) -> Document {
    // Some fill pages of their own.
    let length = if dice.roll(8) == 0 { 9_000 } else { dice.roll(400) };
    let letter = char::from(b'a' + dice.roll(26) as u8);
    doc! {"_id": id, "a": dice.roll(10), "u": format!("{id}"), "text": letter.to_string().repeat(length as usize)}
}

/// Does something that is one commit, or that changes no document. Says whether it is durable once it has returned.
fn operate(db: &Db, dice: &mut Dice, number: i64) -> bool {
    let durability = if dice.roll(3) == 0 { Durability::Relaxed } else { Durability::Durable };
    let id = dice.roll(30);
    match dice.roll(20) {
        0..=7 => {
            let mut transaction = db.transaction(1, number);
            for _ in 0..1 + dice.roll(3) {
                transaction.run(|unit| Statement::any(dice).run(unit)).unwrap();
            }
            transaction.commit_as(durability).unwrap();
        }
        8..=11 => {
            let document = plain(dice, id);
            run(db, durability, |unit| insert(unit, PLAIN, &[document], true).map(drop));
        }
        12..=14 => {
            let update = doc! {
                "$set": {"a": dice.roll(10)}, "$inc": {"n": 1}, "$setOnInsert": {"u": format!("{id}")},
            };
            run(db, durability, |unit| {
                update_with(unit, PLAIN, doc! {"_id": id}, update, Updating::Upsert).map(drop)
            });
        }
        15 | 16 => run(db, durability, |unit| delete(unit, PLAIN, doc! {"_id": id}, true).map(drop)),
        17 => {
            match db.engine.collection(&ns(PASSING)) {
                Some(_) => db.drop_collection(PASSING).unwrap(),
                None => {
                    let document = plain(dice, id);
                    run(db, durability, |unit| insert(unit, PASSING, &[document], true).map(drop));
                    return durability == Durability::Durable;
                }
            }
            return true;
        }
        18 => {
            let document = plain(dice, id);
            run(db, durability, |unit| insert(unit, PASSING, &[document], true).map(drop));
        }
        _ => {
            let key = doc! {"n": 1, "a": 1};
            let is_there =
                db.engine.collection(&ns(PLAIN)).is_some_and(|collection| collection.indexes.len() > 3);
            match is_there {
                true => db.drop_index(PLAIN, "n_1_a_1").unwrap(),
                false => db.build(PLAIN, vec![spec(key)]).unwrap(),
            }
            // It says nothing of earlier operations.
            return false;
        }
    }
    durability == Durability::Durable
}

/// Opens what a crash left, and says what is there, after everything was found to agree with itself.
fn look(crash: &Crash, seed: u64, log: Option<LogOptions>, follower: Option<&Follower>) -> Contents {
    let db = open(&crash.disk, log.clone());
    wait_until_active(&db);
    let found = contents(&db);
    if let Some(Follower { begins, shown, .. }) = follower {
        db.engine.store.sync().unwrap();
        let mut again = Follower::begin(&db, Start::After(begins.clone()));
        again.go_on(&db);
        assert!(
            again.shown.get(..crash.shown) == shown.get(..crash.shown),
            "seed {seed}: other events than the {} that were shown before",
            crash.shown
        );
        assert!(replayed(&again.shown) == keyed(&found), "seed {seed}: events tell of other documents");
    }
    let operation = Arc::clone(&db.engine.operations.start(1));
    for pattern in db.engine.patterns().iter() {
        let verified = db.engine.verify_pattern(&operation, pattern, None, 3).unwrap();
        let name = &pattern.declaration.name;
        assert_eq!(verified.wrong, 0, "seed {seed}: {name} is not true: {:#?}", verified.examples);
    }
    db.check();
    // The database goes on, and so does what it has been given.
    run(&db, Durability::Durable, |unit| insert(unit, "after", &[doc! {"_id": 1}], true).map(drop));
    drop(db);
    let db = open(&crash.disk, log);
    assert_eq!(db.count("after", doc! {}), 1);
    found
}

fn live(seed: u64, tally: &mut Tally, wanted: usize, log: Option<LogOptions>) {
    let mut dice = Dice::new(seed);
    let disk = SimulatedDisk::default();
    let db = open(&disk, log.clone());
    let mut follower = log.is_some().then(|| Follower::begin(&db, Start::Now));
    let images = doc! {IMAGES_OPTION: {"enabled": true}};
    for name in COLLECTIONS.into_iter().chain([PLAIN]) {
        let options = if log.is_some() { images.clone() } else { Document::new() };
        db.engine.create_collection(&ns(name), options).unwrap();
    }
    db.build(PLAIN, vec![spec(doc! {"a": 1}), unique(doc! {"u": 1})]).unwrap();
    // Those of an odd seed are all maintained by the writes themselves, so a state is told by its operation.
    let first = dice.roll(9) as usize;
    for (target, declaration) in declarations(1).into_iter().skip(first).take(4) {
        declare(&db, target, declaration).unwrap();
    }
    wait_until_active(&db);
    let progress = Arc::new(Progress::default());
    let crashes: Arc<Mutex<Vec<Crash>>> = Arc::default();
    disk.watch({
        let (progress, crashes) = (progress.clone(), crashes.clone());
        let mut number = seed << 24;
        move |moment| {
            number += 1;
            let at = |count: &AtomicUsize| count.load(Ordering::SeqCst);
            let mut crashes = crashes.lock();
            if crashes.len() >= CRASHES_MAX {
                return;
            }
            let is_kill = number.is_multiple_of(4);
            crashes.push(match is_kill {
                true => Crash {
                    disk: moment.kill(),
                    is_kill,
                    least: at(&progress.acknowledged),
                    most: at(&progress.sent),
                    shown: at(&progress.shown),
                },
                false => Crash {
                    disk: moment.power_cut(number),
                    is_kill,
                    least: at(&progress.durable),
                    most: at(&progress.sent),
                    shown: at(&progress.shown),
                },
            });
        }
    });
    let mut states = vec![contents(&db)];
    for number in 1..=OPERATIONS {
        progress.sent.store(number, Ordering::SeqCst);
        let is_durable = operate(&db, &mut dice, number as i64);
        progress.acknowledged.store(number, Ordering::SeqCst);
        if is_durable {
            progress.durable.store(number, Ordering::SeqCst);
        }
        states.push(contents(&db));
        if let Some(follower) = &mut follower {
            follower.go_on(&db);
            progress.shown.store(follower.shown.len(), Ordering::SeqCst);
        }
        tally.operations += 1;
        let left = std::mem::take(&mut *crashes.lock());
        for crash in left {
            let found = look(&crash, seed, log.clone(), follower.as_ref());
            let Crash { is_kill, least, most, .. } = crash;
            let fits = states[least..=most].iter().position(|state| *state == found);
            let Some(at) = fits else {
                let exact = states.iter().position(|state| *state == found);
                panic!(
                    "seed {seed}, operation {number}, kill {is_kill}: {least} to {most} operations may be there, and what \
                     is there is after {exact:?}: {found:#?}"
                );
            };
            tally.lucky += usize::from(at > 0);
            if is_kill {
                tally.kills += 1;
            } else {
                tally.cuts += 1;
            }
        }
        if tally.cuts + tally.kills >= wanted {
            break;
        }
    }
    tally.lives += 1;
    db.engine.close().unwrap();
}

/// From `KILIM_SEED` on, until there were `KILIM_CUTS` crashes.
fn crash_often(log: Option<LogOptions>) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("KILIM_SEED").unwrap_or(1);
    let asked = number("KILIM_CUTS");
    let wanted = asked.unwrap_or(40) as usize;
    let (mut tally, begun) = (Tally::default(), Instant::now());
    for seed in first.. {
        live(seed, &mut tally, wanted, log.clone());
        if tally.cuts + tally.kills >= wanted {
            break;
        }
    }
    if asked.is_some() {
        println!("from seed {first}: nothing lost, nothing wrong. {tally:?}, {:?}", begun.elapsed());
    }
}

#[test]
fn a_database_holds_what_was_promised_after_a_crash_at_any_change_to_its_disk() {
    crash_often(None);
}

#[test]
fn after_a_crash_the_change_log_tells_of_exactly_the_documents_that_are_there() {
    crash_often(Some(LogOptions::default()));
}

#[test]
fn a_durable_answer_to_a_command_that_changed_nothing_covers_what_it_rests_on() {
    type Command = fn(&Db);
    let commands: [(&str, Command); 3] = [
        ("an update that finds its value", |db| {
            run(db, Durability::Durable, |unit| {
                let update = doc! {"$set": {"a": 1}};
                update_with(unit, PLAIN, doc! {"_id": 1}, update, Updating::One).map(drop)
            });
        }),
        ("a delete that finds nothing", |db| {
            run(db, Durability::Durable, |unit| delete(unit, PLAIN, doc! {"_id": 2}, true).map(drop));
        }),
        ("a transaction that only reads", |db| {
            let mut transaction = db.transaction(1, 1);
            transaction.run(|unit| delete(unit, PLAIN, doc! {"_id": 2}, true).map(drop)).unwrap();
            transaction.commit_as(Durability::Durable).unwrap();
        }),
    ];
    for (name, command) in commands {
        let disk = SimulatedDisk::default();
        let db = open(&disk, None);
        db.engine.create_collection(&ns(PLAIN), Document::new()).unwrap();
        let after_loss: Arc<Mutex<Vec<SimulatedDisk>>> = Arc::default();
        disk.watch({
            let after_loss = after_loss.clone();
            move |moment| *after_loss.lock() = (0..8).map(|seed| moment.power_cut(seed)).collect()
        });
        run(&db, Durability::Relaxed, |unit| insert(unit, PLAIN, &[doc! {"_id": 1, "a": 1}], true).map(drop));
        command(&db);
        for disk in std::mem::take(&mut *after_loss.lock()) {
            assert_eq!(open(&disk, None).count(PLAIN, doc! {"_id": 1}), 1, "{name}");
        }
    }
}
