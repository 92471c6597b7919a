//! Whatever runs long ends soon after it is killed, or once its time is over: operators, stages, filters, updates.

mod tables;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use kilim_bson::{Document, RawValue, Value, doc, parse_extended_json};
use kilim_commands::{Client, Request, run};
use kilim_engine::{Durability, Engine, EngineOptions};

/// How long a command may go on after it was killed. Far more than it takes; slow and busy machines run tests too.
const PATIENCE: Duration = Duration::from_millis(if cfg!(debug_assertions) { 10_000 } else { 500 });
/// When it is killed. What ends before that proves nothing, and is counted.
const RUNS: Duration = Duration::from_millis(150);

fn engine() -> Arc<Engine> {
    let options = EngineOptions {
        data: None,
        durability: Durability::Relaxed,
        storage: kilim_engine::StorageOptions { cache_bytes: 16 << 20, ..Default::default() },
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

fn code(reply: &Document) -> i32 {
    match reply.get("code") {
        Some(RawValue::Int32(code)) => code,
        _ => 0,
    }
}

fn parse(command: &str) -> Document {
    let mut command = parse_extended_json(command).unwrap_or_else(|error| panic!("{command}: {error}"));
    command.push("$db", "test");
    command
}

/// Documents with long arrays, texts that regular expressions work hard on, and references to each other.
fn fill(engine: &Arc<Engine>) {
    let numbers: Vec<Value> =
        (0..20_000).map(|at: i32| Value::Int32(at.wrapping_mul(7919) % 100_003)).collect();
    let objects: Vec<Value> = (0..5_000).map(|at: i32| doc! {"b": at, "t": "x".repeat(20)}.into()).collect();
    for batch in 0..10 {
        let documents: Vec<Document> = (0..10)
            .map(|at| {
                let id: i32 = batch * 10 + at;
                doc! {"_id": id, "g": 1, "a": numbers.clone(), "o": objects.clone(), "s": "a".repeat(5_000)}
            })
            .collect();
        let reply = ask(engine, &doc! {"insert": "c", "documents": documents, "$db": "test"});
        assert_eq!(code(&reply), 0, "{reply:?}");
    }
}

/// Runs a command and kills it after a while; how long it went on then, and what it answered.
fn kill(engine: &Arc<Engine>, command: &Document, runs: Duration) -> (Duration, Document) {
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            let reply = ask(engine, command);
            (Instant::now(), reply)
        });
        thread::sleep(runs);
        // On a busy machine it may not have begun.
        while engine.operations.list().is_empty() && !running.is_finished() {
            thread::yield_now();
        }
        let killed = Instant::now();
        for operation in engine.operations.list() {
            operation.kill();
        }
        let (ended, reply) = running.join().unwrap();
        (ended.saturating_duration_since(killed), reply)
    })
}

const INTERRUPTED: i32 = 11601;

fn check(commands: &[&str], most_run_long: bool) {
    let engine = engine();
    fill(&engine);
    let mut cut = 0;
    for text in commands {
        let (time, reply) = kill(&engine, &parse(text), RUNS);
        let code = code(&reply);
        assert!(time < PATIENCE, "{time:?} after it was killed: {text}");
        assert!(matches!(code, 0 | INTERRUPTED | 146 | 13548), "{code}: {text}");
        cut += usize::from(code == INTERRUPTED);
    }
    assert!(!most_run_long || cut * 2 > commands.len(), "only {cut} of {} ran long enough", commands.len());
    engine.close().unwrap();
}

#[test]
fn operators_end_when_they_are_killed() {
    let project = |expression: &str| {
        format!(
            r#"{{"aggregate": "c", "pipeline": [{{"$project": {{"r": {expression}}}}}], "cursor": {{}}}}"#
        )
    };
    let range = r#"{"$range": [0, 1000000]}"#;
    let commands: Vec<String> = [
        format!(r#"{{"$size": {{"$map": {{"input": {range}, "in": {{"$add": ["$$this", 1]}}}}}}}}"#),
        format!(r#"{{"$size": {{"$filter": {{"input": {range}, "cond": {{"$gt": ["$$this", "$g"]}}}}}}}}"#),
        format!(r#"{{"$reduce": {{"input": {range}, "initialValue": 0, "in": {{"$add": ["$$value", "$$this"]}}}}}}"#),
        r#"{"$reduce": {"input": {"$range": [0, 100000]}, "initialValue": [], "in": {"$concatArrays": ["$$value", ["$$this"]]}}}"#.to_owned(),
        r#"{"$reduce": {"input": {"$range": [0, 100000]}, "initialValue": [], "in": {"$setUnion": ["$$value", ["$$this"]]}}}"#.to_owned(),
        r#"{"$map": {"input": "$a", "in": {"$in": ["$$this", "$a"]}}}"#.to_owned(),
        r#"{"$map": {"input": "$a", "in": {"$indexOfArray": ["$a", "$$this"]}}}"#.to_owned(),
        r#"{"$map": {"input": "$a", "in": {"$size": {"$setDifference": ["$a", ["$$this"]]}}}}"#.to_owned(),
        r#"{"$map": {"input": "$a", "in": {"$size": {"$setIntersection": ["$a", "$a"]}}}}"#.to_owned(),
        r#"{"$map": {"input": "$a", "in": {"$max": "$a"}}}"#.to_owned(),
        r#"{"$map": {"input": "$o", "in": {"$sum": "$o.b"}}}"#.to_owned(),
        r#"{"$map": {"input": "$a", "in": {"$size": {"$objectToArray": {"$arrayToObject": [[["k", "$a"]]]}}}}}"#.to_owned(),
        r#"{"$map": {"input": "$a", "in": {"$size": {"$reverseArray": "$a"}}}}"#.to_owned(),
        r#"{"$map": {"input": "$a", "in": {"$size": {"$sortArray": {"input": "$a", "sortBy": 1}}}}}"#.to_owned(),
        r#"{"$map": {"input": "$a", "in": {"$size": {"$zip": {"inputs": ["$a", "$a"]}}}}}"#.to_owned(),
        r#"{"$map": {"input": "$a", "in": {"$size": {"$split": ["$s", "a"]}}}}"#.to_owned(),
        r#"{"$map": {"input": "$a", "in": {"$size": {"$regexFindAll": {"input": "$s", "regex": "a"}}}}}"#.to_owned(),
        r#"{"$map": {"input": "$a", "in": {"$strLenCP": {"$replaceAll": {"input": "$s", "find": "a", "replacement": "bb"}}}}}"#.to_owned(),
        r#"{"$map": {"input": "$a", "in": {"$size": {"$slice": ["$a", 1, 19000]}}}}"#.to_owned(),
        format!(r#"{{"$size": {{"$sortArray": {{"input": {{"$map": {{"input": {range}, "in": {{"$mod": [{{"$multiply": ["$$this", 7919]}}, 100003]}}}}}}, "sortBy": 1}}}}}}"#),
    ]
    .iter()
    .map(|expression| project(expression))
    .collect();
    check(&commands.iter().map(String::as_str).collect::<Vec<_>>(), true);
}

#[test]
fn stages_end_when_they_are_killed() {
    let pipeline = |stages: &str| format!(r#"{{"aggregate": "c", "pipeline": [{stages}], "cursor": {{}}}}"#);
    let unwind = r#"{"$project": {"a": 1}}, {"$unwind": "$a"}"#;
    let commands: Vec<String> = [
        format!(r#"{unwind}, {{"$sort": {{"a": 1}}}}, {{"$group": {{"_id": "$a", "n": {{"$sum": 1}}}}}}"#),
        format!(r#"{unwind}, {{"$group": {{"_id": null, "n": {{"$push": "$a"}}}}}}"#),
        format!(r#"{unwind}, {{"$group": {{"_id": null, "n": {{"$addToSet": "$a"}}}}}}"#),
        format!(r#"{unwind}, {{"$group": {{"_id": "$a", "n": {{"$push": "$$ROOT"}}}}}}"#),
        r#"{"$group": {"_id": null, "n": {"$addToSet": "$a"}}}, {"$unwind": "$n"}, {"$unwind": "$n"}, {"$count": "n"}"#.to_owned(),
        format!(r#"{unwind}, {{"$bucketAuto": {{"groupBy": "$a", "buckets": 10}}}}"#),
        format!(r#"{unwind}, {{"$sortByCount": "$a"}}"#),
        format!(r#"{{"$facet": {{"x": [{unwind}, {{"$count": "n"}}], "y": [{unwind}, {{"$sort": {{"a": 1}}}}, {{"$limit": 5}}]}}}}"#),
        r#"{"$lookup": {"from": "c", "as": "x", "pipeline": [{"$lookup": {"from": "c", "as": "y", "pipeline": [{"$project": {"g": 1}}]}}]}}, {"$count": "n"}"#.to_owned(),
        r#"{"$lookup": {"from": "c", "as": "x", "localField": "a", "foreignField": "a"}}, {"$count": "n"}"#.to_owned(),
        r#"{"$graphLookup": {"from": "c", "as": "x", "startWith": "$a", "connectFromField": "a", "connectToField": "a"}}, {"$count": "n"}"#.to_owned(),
        format!(r#"{{"$unionWith": {{"coll": "c", "pipeline": [{unwind}]}}}}, {{"$unionWith": {{"coll": "c", "pipeline": [{unwind}]}}}}, {{"$count": "n"}}"#),
        format!(r#"{unwind}, {{"$redact": {{"$cond": [{{"$gt": ["$a", 5]}}, "$$KEEP", "$$PRUNE"]}}}}, {{"$count": "n"}}"#),
        format!(r#"{unwind}, {{"$match": {{"a": {{"$gt": 5}}}}}}, {{"$sample": {{"size": 5}}}}"#),
        r#"{"$match": {"$expr": {"$gt": [{"$size": {"$filter": {"input": {"$range": [0, 1000000]}, "cond": {"$gt": ["$$this", "$g"]}}}}, 5]}}}"#.to_owned(),
        format!(r#"{unwind}, {{"$project": {{"_id": {{"$concat": [{{"$toString": "$_id"}}, "-", {{"$toString": "$a"}}]}}}}}}, {{"$out": "made"}}"#),
        format!(r#"{unwind}, {{"$project": {{"_id": {{"$concat": [{{"$toString": "$_id"}}, "-", {{"$toString": "$a"}}]}}}}}}, {{"$merge": "merged"}}"#),
    ]
    .iter()
    .map(|stages| pipeline(stages))
    .collect();
    check(&commands.iter().map(String::as_str).collect::<Vec<_>>(), true);
}

#[test]
fn filters_and_updates_end_when_they_are_killed() {
    let many: Vec<String> =
        (0..3000).map(|at| format!(r#"{{"a": {{"$gt": {}}}}}"#, 1_000_000 + at)).collect();
    let many = many.join(",");
    let regexes: Vec<String> =
        (0..300).map(|at| format!(r#"{{"s": {{"$regex": "^(?=(a+)+{at}$)"}}}}"#)).collect();
    let regexes = regexes.join(",");
    let list: Vec<String> = (0..100_000).map(|at| (at * 3).to_string()).collect();
    let list = list.join(",");
    let elements: Vec<String> = (0..3000).map(|at| format!(r#"{{"x.b": {}}}"#, 1_000_000 + at)).collect();
    let elements = elements.join(",");
    let pulled: Vec<String> = (0..3000).map(|at| format!(r#"{{"b": {}}}"#, 1_000_000 + at)).collect();
    let pulled = pulled.join(",");
    let update = |change: &str, more: &str| {
        format!(r#"{{"update": "c", "updates": [{{"q": {{}}, "u": {change}, "multi": true{more}}}]}}"#)
    };
    let commands = [
        format!(r#"{{"find": "c", "filter": {{"$or": [{many}]}}}}"#),
        format!(r#"{{"count": "c", "query": {{"$nor": [{many}]}}}}"#),
        format!(r#"{{"distinct": "c", "key": "g", "query": {{"$or": [{many}]}}}}"#),
        format!(r#"{{"find": "c", "filter": {{"$or": [{regexes}]}}}}"#),
        format!(r#"{{"find": "c", "filter": {{"o": {{"$elemMatch": {{"$or": [{pulled}]}}}}}}}}"#),
        format!(r#"{{"delete": "c", "deletes": [{{"q": {{"$or": [{many}]}}, "limit": 0}}]}}"#),
        update(&format!(r#"{{"$addToSet": {{"a": {{"$each": [{list}]}}}}}}"#), ""),
        update(&format!(r#"{{"$pullAll": {{"a": [{list}]}}}}"#), ""),
        update(&format!(r#"{{"$pull": {{"o": {{"$or": [{pulled}]}}}}}}"#), ""),
        update(r#"{"$push": {"a": {"$each": [1], "$sort": -1}}}"#, ""),
        update(r#"{"$set": {"o.$[x].t": "y"}}"#, &format!(r#", "arrayFilters": [{{"$or": [{elements}]}}]"#)),
        update(
            r#"[{"$set": {"r": {"$size": {"$filter": {"input": {"$range": [0, 1000000]}, "cond": {"$gt": ["$$this", "$g"]}}}}}}]"#,
            "",
        ),
    ];
    check(&commands.iter().map(String::as_str).collect::<Vec<_>>(), true);
}

#[test]
fn a_time_limit_ends_what_doubles_itself() {
    let engine = engine();
    ask(&engine, &parse(r#"{"insert": "d", "documents": [{"_id": 1, "d": "x"}]}"#));
    let stage = r#"{"$set": {"d": {"a": "$d", "b": "$d"}}}"#;
    let stages = vec![stage; 28].join(",");
    let began = Instant::now();
    let reply = ask(
        &engine,
        &parse(&format!(
            r#"{{"aggregate": "d", "pipeline": [{stages}], "cursor": {{}}, "maxTimeMS": 5000}}"#
        )),
    );
    assert!(matches!(code(&reply), 13548 | 50), "{reply:?}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    engine.close().unwrap();
}

#[test]
fn an_expression_holds_no_more_than_its_share_of_memory() {
    let engine = engine();
    ask(&engine, &parse(r#"{"insert": "d", "documents": [{"_id": 1}]}"#));
    let variables: Vec<String> =
        (0..40).map(|at| format!(r#""v{at}": {{"$range": [{at}, 1000000]}}"#)).collect();
    let command = format!(
        r#"{{"aggregate": "d", "pipeline": [{{"$project": {{"r": {{"$let": {{"vars": {{{}}}, "in": {{"$size": "$$v0"}}}}}}}}}}], "cursor": {{}}}}"#,
        variables.join(",")
    );
    assert_eq!(code(&ask(&engine, &parse(&command))), 146);
    engine.close().unwrap();
}
