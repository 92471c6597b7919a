//! How often a write asks for memory. A change borrows on its way through the door, so a write that no pattern concerns
//! allocates no more than it did before there were changes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use kilim_bson::{Document, RawValue, doc};
use kilim_engine::unit::Unit;
use kilim_engine::write::{self, DeleteRequest, UpdateRequest};
use kilim_engine::{Durability, Engine, EngineOptions, LogOptions, Namespace, StorageOptions};
use kilim_query::filter::Filter;
use kilim_query::update::Update;

/// Counts what this thread asks for; the store's own threads are not measured.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that ends has no counter any more.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: everything is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn namespace() -> Namespace {
    Namespace::parse("test", "c").unwrap()
}

fn filter(id: i32) -> Arc<Filter> {
    Arc::new(Filter::parse(doc! {"_id": id}.as_raw()).unwrap())
}

/// The allocations of a write: the least of many, since tables grow now and then.
fn allocations(engine: &Engine, mut write: impl FnMut(&mut Unit<'_>, i32)) -> u64 {
    let mut least = u64::MAX;
    for id in 0..200 {
        let running = engine.operations.start(1);
        let mut unit = Unit::new(engine, Arc::clone(&running), Durability::Relaxed);
        let before = ALLOCATIONS.get();
        write(&mut unit, id);
        unit.settle().unwrap();
        least = least.min(ALLOCATIONS.get() - before);
    }
    least
}

/// What an insert, an update and a delete allocate.
fn of_writes(log: Option<LogOptions>) -> [u64; 3] {
    let engine = Engine::open(EngineOptions {
        data: None,
        durability: Durability::Relaxed,
        storage: StorageOptions { cache_bytes: 16 << 20, log, ..StorageOptions::default() },
        test_commands: false,
    })
    .unwrap();
    let documents: Vec<Document> = (0..200).map(|id| doc! {"_id": id, "n": 0, "name": "kilim"}).collect();
    let inserts = allocations(&engine, |unit, id| {
        let document = documents[id as usize].as_raw();
        write::insert(unit, &namespace(), &[document], true, |_| 0).unwrap();
    });
    let update = doc! {"$inc": {"n": 1}};
    let update = Update::parse(RawValue::Document(update.as_raw()), None, false).unwrap();
    let updates = allocations(&engine, |unit, id| {
        let request = UpdateRequest {
            filter: filter(id),
            update: &update,
            multi: false,
            upsert: false,
            hint: None,
            collation: None,
            now_ms: 0,
            statement: 0,
            projection: None,
        };
        assert_eq!(write::update(unit, &namespace(), &request).unwrap().modified, 1);
    });
    let deletes = allocations(&engine, |unit, id| {
        let request =
            DeleteRequest { filter: filter(id), one: true, hint: None, collation: None, statement: 0 };
        assert_eq!(write::delete(unit, &namespace(), &request).unwrap(), 1);
    });
    [inserts, updates, deletes]
}

fn check(found: [u64; 3], most: [u64; 3]) {
    for ((write, found), most) in ["an insert", "an update", "a delete"].into_iter().zip(found).zip(most) {
        assert!(found <= most, "{write} allocates {found} times");
    }
}

#[test]
fn a_document_of_many_allocates_little() {
    let place = tempfile::tempdir().unwrap();
    let storage = StorageOptions {
        cache_bytes: 64 << 20,
        log: Some(LogOptions::default()),
        ..StorageOptions::default()
    };
    let engine = Engine::open(EngineOptions {
        data: Some(place.path().join("data")),
        durability: Durability::Relaxed,
        storage,
        test_commands: false,
    })
    .unwrap();
    let batches: Vec<Vec<Document>> =
        (0..200).map(|batch| (0..100).map(|at| doc! {"_id": 100 * batch + at}).collect()).collect();
    let batches: Vec<Vec<_>> =
        batches.iter().map(|batch| batch.iter().map(Document::as_raw).collect()).collect();
    // The commit included: a node of each table, the record, its event, and an eighth of a transaction.
    let of_hundred = allocations(&engine, |unit, batch| {
        write::insert(unit, &namespace(), &batches[batch as usize], true, |_| 0).unwrap();
    });
    assert!(of_hundred <= 750, "a hundred documents allocate {of_hundred} times");
}

#[test]
fn a_write_without_patterns_allocates_no_more_than_before() {
    // Measured before changes were values.
    check(of_writes(None), [41, 50, 42]);
}

/// What the change log takes: the record, its row in the batch and in the map of the memory backend, whose path is copied,
/// and for an update the description of what it changed.
#[test]
fn a_logged_write_allocates_little_more() {
    let log = 24;
    check(of_writes(Some(LogOptions::default())), [41 + log, 50 + log + 16, 42 + log]);
}
