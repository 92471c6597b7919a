//! What operations and cursors hold in memory is bounded together, not only each stage by itself.
//!
//! The bounds are the process's, so the tests take turns.

use std::alloc::System;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard};
use std::thread;

use kilim_bson::{Document, RawValue, doc, parse_extended_json};
use kilim_commands::{Client, Request, run};
use kilim_engine::{Durability, Engine, EngineOptions};
use kilim_memory::{Counting, Limits, process_bytes};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

static TURN: Mutex<()> = Mutex::new(());

const MEGABYTE: usize = 1 << 20;
const UNBOUNDED: Limits = Limits { process_bytes: usize::MAX, operation_bytes: usize::MAX };
const EXCEEDED: i32 = 146;

fn turn() -> MutexGuard<'static, ()> {
    let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    UNBOUNDED.set();
    turn
}

fn engine(data: Option<&std::path::Path>) -> Arc<Engine> {
    let options = EngineOptions {
        data: data.map(Into::into),
        durability: Durability::Relaxed,
        storage: kilim_engine::StorageOptions { cache_bytes: 64 << 20, ..Default::default() },
        test_commands: false,
    };
    Engine::open(options).unwrap()
}

fn ask(engine: &Arc<Engine>, command: &Document) -> Document {
    let mut client = Client::in_process(engine.clone());
    let request = Request {
        body: command.as_raw(),
        sequences: Vec::new(),
        exhaust_allowed: false,
        legacy_hello: false,
    };
    run(&mut client, request).document
}

fn parse(command: &str) -> Document {
    let mut command = parse_extended_json(command).unwrap_or_else(|error| panic!("{command}: {error}"));
    command.push("$db", "test");
    command
}

fn code(reply: &Document) -> i32 {
    match reply.get("code") {
        Some(RawValue::Int32(code)) => code,
        _ => 0,
    }
}

/// A hundred documents of so many kilobytes.
fn fill(engine: &Arc<Engine>, kilobytes: usize) {
    for batch in 0..10 {
        let documents: Vec<Document> = (0..10)
            .map(|at| doc! {"_id": (batch * 10 + at), "n": 0, "text": ("x".repeat(kilobytes << 10))})
            .collect();
        let reply = ask(engine, &doc! {"insert": "c", "documents": documents, "$db": "test"});
        assert_eq!(code(&reply), 0, "{reply:?}");
    }
}

#[test]
fn the_stages_of_one_operation_share_a_bound() {
    let _turn = turn();
    let engine = engine(None);
    fill(&engine, 100);
    let facet = |count: usize| {
        let facets: Vec<String> = (0..count)
            .map(|at| format!(r#""f{at}": [{{"$group": {{"_id": null, "all": {{"$push": {{"$concat": ["$text", "-{at}"]}}}}}}}}, {{"$project": {{"n": {{"$size": "$all"}}}}}}]"#))
            .collect();
        let facets = facets.join(",");
        parse(&format!(r#"{{"aggregate": "c", "pipeline": [{{"$facet": {{{facets}}}}}], "cursor": {{}}}}"#))
    };
    Limits { operation_bytes: 64 * MEGABYTE, ..UNBOUNDED }.set();
    assert_eq!(code(&ask(&engine, &facet(2))), 0, "two of ten megabytes each");
    assert_eq!(code(&ask(&engine, &facet(20))), EXCEEDED);
    engine.close().unwrap();
}

#[test]
fn a_few_large_documents_are_counted_as_they_come() {
    let _turn = turn();
    let engine = engine(None);
    let documents: Vec<Document> =
        (0..12).map(|at| doc! {"_id": at, "text": ("x".repeat(MEGABYTE))}).collect();
    assert_eq!(code(&ask(&engine, &doc! {"insert": "large", "documents": documents, "$db": "test"})), 0);
    Limits { process_bytes: 0, ..UNBOUNDED }.set();
    assert_eq!(code(&ask(&engine, &parse(r#"{"find": "large"}"#))), EXCEEDED);
    let push = r#"{"aggregate": "large", "pipeline": [{"$group": {"_id": null, "all": {"$push": "$text"}}},
        {"$project": {"n": {"$size": "$all"}}}], "cursor": {}}"#;
    assert_eq!(code(&ask(&engine, &parse(push))), EXCEEDED);
    UNBOUNDED.set();
    assert_eq!(code(&ask(&engine, &parse(push))), 0);
    engine.close().unwrap();
}

#[test]
fn cursors_that_hold_too_much_together_are_closed_and_small_reads_go_on() {
    let _turn = turn();
    let engine = engine(None);
    fill(&engine, 100);
    let open = || {
        let text = r#"{"aggregate": "c", "pipeline": [{"$project": {"text": {"$concat": ["$text", "-"]}}},
            {"$sort": {"text": 1, "_id": 1}}], "cursor": {"batchSize": 1}}"#;
        let reply = ask(&engine, &parse(text));
        let cursor = reply.get("cursor").and_then(RawValue::as_document);
        let id = cursor.and_then(|cursor| match cursor.get("id") {
            Some(RawValue::Int64(id)) => Some(id),
            _ => None,
        });
        (code(&reply), id)
    };
    let before = process_bytes();
    Limits { process_bytes: before + 80 * MEGABYTE, ..UNBOUNDED }.set();
    let opened: Vec<(i32, Option<i64>)> = (0..30).map(|_| open()).collect();
    let refused = opened.iter().filter(|(code, _)| *code == EXCEEDED).count();
    assert!(refused > 15, "{opened:?}");
    assert!(process_bytes() < before + 110 * MEGABYTE, "{}", process_bytes() - before);
    assert_eq!(code(&ask(&engine, &parse(r#"{"find": "c", "limit": 1, "singleBatch": true}"#))), 0);

    Limits { process_bytes: before + 40 * MEGABYTE, ..UNBOUNDED }.set();
    engine.tick();
    assert!(process_bytes() <= Limits::get().process_bytes);
    let codes: Vec<i32> = opened
        .iter()
        .filter_map(|(_, id)| *id)
        .map(|id| {
            code(&ask(&engine, &doc! {"getMore": id, "collection": "c", "batchSize": 1, "$db": "test"}))
        })
        .collect();
    assert!(codes.contains(&43), "the owners of closed cursors are told: {codes:?}");
    assert!(codes.contains(&0), "no more are closed than needed: {codes:?}");
    engine.close().unwrap();
}

/// Runs a command for many clients at once; the most that the process held meanwhile, and the codes of the replies.
fn at_once(engine: &Arc<Engine>, clients: usize, command: &Document) -> (usize, Vec<i32>) {
    let (begin, done) = (Barrier::new(clients), AtomicBool::new(false));
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::Relaxed) {
                most = process_bytes().max(most);
                thread::yield_now();
            }
            most
        });
        let running: Vec<_> = (0..clients)
            .map(|_| {
                scope.spawn(|| {
                    begin.wait();
                    code(&ask(engine, command))
                })
            })
            .collect();
        let codes = running.into_iter().map(|running| running.join().unwrap()).collect();
        done.store(true, Ordering::Relaxed);
        (watching.join().unwrap(), codes)
    })
}

#[test]
fn operations_that_grow_at_the_same_moment_stay_within_the_bound() {
    let _turn = turn();
    let engine = engine(None);
    fill(&engine, 500);
    let commands = [
        // A copy of 48 MB in one piece, after as much was gathered.
        r#"{"aggregate": "c", "pipeline": [{"$group": {"_id": null, "all": {"$push": "$text"}}}, {"$unwind": "$all"},
            {"$group": {"_id": null, "all": {"$push": "$all"}}}, {"$project": {"n": {"$size": "$all"}}}], "cursor": {}}"#,
        r#"{"aggregate": "c", "pipeline": [{"$project": {"text": {"$concat": ["$text", "-"]}}}, {"$sort": {"text": 1}}],
            "cursor": {"batchSize": 1}}"#,
        r#"{"find": "c", "limit": 30, "singleBatch": true}"#,
    ];
    for command in commands {
        let before = process_bytes();
        Limits { process_bytes: before + 200 * MEGABYTE, ..UNBOUNDED }.set();
        let (most, codes) = at_once(&engine, 20, &parse(command));
        let most = most.saturating_sub(before) / MEGABYTE;
        // An allocation is counted before it is made, also while its operation waits for room. So the count passes the bound by
        // what some of them ask for. Together they would take 1,900 MB.
        assert!(most < 640, "{most} MB: {command}");
        assert!(codes.iter().all(|code| [0, EXCEEDED].contains(code)), "{codes:?}");
        assert!(codes.contains(&0), "there is room for some: {codes:?}");
        engine.cursors.clear();
        UNBOUNDED.set();
    }
    engine.close().unwrap();
}

#[test]
fn what_a_long_read_or_write_moves_through_the_store_is_not_its_own() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let first = engine(Some(&path));
    fill(&first, 400);
    first.close().unwrap();
    drop(first);
    let engine = engine(Some(&path));
    Limits { operation_bytes: 8 * MEGABYTE, ..UNBOUNDED }.set();
    let count = r#"{"aggregate": "c", "pipeline": [{"$match": {"text": {"$ne": 1}}}, {"$count": "n"}], "cursor": {}}"#;
    let reply = ask(&engine, &parse(count));
    assert_eq!(code(&reply), 0, "{reply:?}");
    let update = r#"{"update": "c", "updates": [{"q": {}, "u": {"$inc": {"n": 1}}, "multi": true}]}"#;
    let reply = ask(&engine, &parse(update));
    assert_eq!(code(&reply), 0, "{reply:?}");
    assert!(matches!(reply.get("nModified"), Some(RawValue::Int32(100))), "{reply:?}");
    engine.close().unwrap();
}

#[test]
fn a_check_of_a_huge_group_holds_what_its_accumulators_keep() {
    let _turn = turn();
    let engine = engine(None);
    fill(&engine, 1024);
    ask(&engine, &doc! {"create": "totals", "$db": "test"});
    let group =
        doc! {"_id": "$n", "count": {"$count": {}}, "last": {"$max": "$_id"}, "first": {"$first": "$_id"}};
    let computed = doc! {"from": "c", "whenNotMatched": "insert", "pipeline": [{"$group": group}]};
    let declared = doc! {"createPattern": "totals", "name": "t", "computed": computed, "$db": "test"};
    let reply = ask(&engine, &declared);
    assert_eq!(code(&reply), 0, "{reply:?}");
    ask(&engine, &doc! {"waitPattern": "totals", "name": "t", "timeoutMS": 600_000, "$db": "test"});
    // The children are a hundred megabytes.
    Limits { operation_bytes: 24 * MEGABYTE, ..UNBOUNDED }.set();
    let reply = ask(&engine, &doc! {"verifyPattern": "totals", "name": "t", "$db": "test"});
    UNBOUNDED.set();
    assert_eq!(code(&reply), 0, "{reply:?}");
    assert!(matches!(reply.get("wrong"), Some(RawValue::Int64(0))), "{reply:?}");
    assert!(matches!(reply.get("checked"), Some(RawValue::Int64(1))), "{reply:?}");
}
