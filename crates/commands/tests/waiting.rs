//! Commands that wait sleep until what they wait for happens, or they are to end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use kilim_bson::{Document, RawValue, doc};
use kilim_commands::{Client, Request, run};
use kilim_engine::{Durability, Engine, EngineOptions, StorageOptions};

const CONNECTION: u64 = 77;

fn engine() -> Arc<Engine> {
    let options = EngineOptions {
        data: None,
        durability: Durability::Relaxed,
        storage: StorageOptions { cache_bytes: 16 << 20, ..Default::default() },
        test_commands: false,
    };
    Engine::open(options).unwrap()
}

fn ask(engine: &Arc<Engine>, command: &Document) -> Document {
    let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let mut client = Client::new(engine.clone(), CONNECTION, address, address);
    let sequences = Vec::new();
    let request = Request { body: command.as_raw(), sequences, exhaust_allowed: false, legacy_hello: false };
    run(&mut client, request).document
}

/// A pattern that is building for as long as the engine runs.
fn build_for_ever(engine: &Arc<Engine>) {
    build(engine, 60_000);
}

/// A pattern that rests for so long between documents while it is building.
fn build(engine: &Arc<Engine>, throttle_millis: i32) {
    ask(engine, &doc! {"insert": "c", "documents": [{"_id": 1}, {"_id": 2}, {"_id": 3}], "$db": "test"});
    let pattern = doc! {
        "createPattern": "c", "name": "p", "computed": {"set": {"a": 1}},
        "backfill": {"batch": 1, "throttleMs": throttle_millis}, "$db": "test",
    };
    let reply = ask(engine, &pattern);
    assert!(reply.get("code").is_none(), "{reply:?}");
}

/// A `hello` that waits for so long for a change of the topology.
fn hello(engine: &Arc<Engine>, millis: i64) -> Document {
    let first = ask(engine, &doc! {"hello": 1, "$db": "admin"});
    let seen = first.get("topologyVersion").unwrap().to_value();
    let mut hello = doc! {"hello": 1, "maxAwaitTimeMS": millis, "$db": "admin"};
    hello.push("topologyVersion", seen);
    hello
}

/// How often this thread has gone to sleep.
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
    line.split_whitespace().last().unwrap().parse().unwrap()
}

#[test]
fn nobody_looks_again_and_again_at_what_has_not_happened() {
    let engine = engine();
    build_for_ever(&engine);
    let commands =
        [hello(&engine, 900), doc! {"waitPattern": "c", "name": "p", "timeoutMS": 900, "$db": "test"}];
    for command in &commands {
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let before = sleeps();
                let reply = ask(&engine, command);
                (sleeps() - before, reply)
            });
            // What is committed meanwhile concerns neither of them.
            for id in 100..300 {
                ask(&engine, &doc! {"insert": "other", "documents": [{"_id": id}], "$db": "test"});
            }
            let (slept, reply) = waiting.join().unwrap();
            assert!(slept < 12, "{slept} times: {command:?}, {reply:?}");
        });
    }
    engine.close().unwrap();
}

#[test]
fn whoever_waits_ends_with_the_operation_the_client_and_the_server() {
    let engine = engine();
    build_for_ever(&engine);
    let own = || engine.operations.list().into_iter().filter(|operation| operation.connection == CONNECTION);
    let kill = || own().for_each(|operation| operation.kill());
    let abandon = || engine.operations.abandon(CONNECTION);
    let ends: [&(dyn Fn() + Sync); 2] = [&kill, &abandon];
    for command in [hello(&engine, 10_000), doc! {"waitPattern": "c", "name": "p", "$db": "test"}] {
        for end in ends {
            thread::scope(|scope| {
                let name = command.iter().next().unwrap().0.to_owned();
                let waiting = scope.spawn(|| (ask(&engine, &command), Instant::now()));
                let is_it = |command: &Document| command.get(&name).is_some();
                let runs = || {
                    let list = engine.operations.list();
                    list.iter().any(|operation| operation.command().is_some_and(is_it))
                };
                while !runs() && !waiting.is_finished() {
                    thread::yield_now();
                }
                thread::sleep(Duration::from_millis(20));
                while !waiting.is_finished() {
                    end();
                    thread::yield_now();
                }
                waiting.join().unwrap();
            });
        }
    }
    engine.close().unwrap();
}

#[test]
fn a_pattern_that_is_filled_wakes_those_who_wait_for_it() {
    let engine = engine();
    build(&engine, 50);
    let reply = ask(&engine, &doc! {"waitPattern": "c", "name": "p", "$db": "test"});
    assert!(matches!(reply.get("state"), Some(RawValue::String("active"))), "{reply:?}");
    engine.close().unwrap();
}
