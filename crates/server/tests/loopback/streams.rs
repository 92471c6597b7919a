//! Change streams that wait: without threads of their own, and with everything that may end a wait.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use kilim_bson::{Document, RawValue, doc};
use kilim_client::{Client, Fault, message, whole};
use kilim_engine::{Durability, Engine, EngineOptions, StorageOptions};
use kilim_server::{Commands, Limits, Listener, Protection, Server};

const PATIENT_MS: i64 = 20_000;

fn serve() -> (Arc<Engine>, Server<Commands>) {
    let options = EngineOptions {
        data: None,
        durability: Durability::Relaxed,
        storage: StorageOptions::default(),
        test_commands: false,
    };
    let engine = Engine::open(options).unwrap();
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), Protection::default()).unwrap();
    let commands = Commands { engine: engine.clone(), access: Arc::default() };
    let server = listener.serve(commands, Limits::default()).unwrap();
    Client::connect(server.address()).unwrap().run("d", doc! {"create": "c"}).unwrap();
    (engine, server)
}

fn open(client: &mut Client) -> i64 {
    open_with(client, vec![doc! {"$changeStream": {}}])
}

fn open_with(client: &mut Client, stages: Vec<Document>) -> i64 {
    let reply = client.run("d", doc! {"aggregate": "c", "pipeline": stages, "cursor": {}}).unwrap();
    whole(reply.get("cursor").and_then(RawValue::as_document).unwrap().get("id")).unwrap()
}

fn get_more(cursor: i64, waits_ms: i64) -> Document {
    doc! {"getMore": cursor, "collection": "c", "maxTimeMS": waits_ms}
}

fn insert(client: &mut Client, id: i32) {
    client.run("d", doc! {"insert": "c", "documents": [{"_id": id}]}).unwrap();
}

/// The `_id`s of the documents that a batch tells of.
fn ids(reply: &Document) -> Vec<i64> {
    let batch = reply.get("cursor").and_then(RawValue::as_document).unwrap().get("nextBatch").unwrap();
    let id = |event: RawValue<'_>| whole(event.as_document()?.get("documentKey")?.as_document()?.get("_id"));
    batch.as_array().unwrap().iter().map(|event| id(event).unwrap()).collect()
}

fn code(fault: Fault) -> i32 {
    match fault {
        Fault::Refused(failure) => failure.code,
        other => panic!("{other}"),
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// How many requests for more wait.
fn waiting(engine: &Engine) -> usize {
    engine.operations.list().iter().filter(|operation| operation.kind() == "getmore").count()
}

#[test]
fn every_stream_hears_of_every_event_once_and_in_order() {
    const STREAMS: usize = 40;
    const EVENTS: i32 = 60;
    let (engine, server) = serve();
    let address = server.address();
    let listeners: Vec<_> = (0..STREAMS)
        .map(|_| {
            let mut client = Client::connect(address).unwrap();
            let cursor = open(&mut client);
            thread::spawn(move || {
                let mut heard = Vec::new();
                while heard.len() < EVENTS as usize {
                    heard.extend(ids(&client.run("d", get_more(cursor, PATIENT_MS)).unwrap()));
                }
                heard
            })
        })
        .collect();
    eventually("all wait", || waiting(&engine) == STREAMS);
    let mut writer = Client::connect(address).unwrap();
    for id in 0..EVENTS {
        insert(&mut writer, id);
        if id % 20 == 0 {
            thread::sleep(Duration::from_millis(20));
        }
    }
    for listener in listeners {
        assert_eq!(listener.join().unwrap(), (0..i64::from(EVENTS)).collect::<Vec<_>>());
    }
    eventually("no request is left", || waiting(&engine) == 0);
}

#[test]
fn a_connection_that_has_waited_is_asked_other_things() {
    let (_engine, server) = serve();
    let mut client = Client::connect(server.address()).unwrap();
    let mut writer = Client::connect(server.address()).unwrap();
    let cursor = open(&mut client);
    for id in 0..20 {
        let begun = Instant::now();
        assert_eq!(ids(&client.run("d", get_more(cursor, 15)).unwrap()), []);
        assert!(begun.elapsed() >= Duration::from_millis(15), "nothing came, and it waited");
        client.run("d", doc! {"ping": 1}).unwrap();
        insert(&mut writer, id);
        assert_eq!(ids(&client.run("d", get_more(cursor, PATIENT_MS)).unwrap()), [i64::from(id)]);
        assert_eq!(whole(client.run("d", doc! {"count": "c"}).unwrap().get("n")), Some(i64::from(id) + 1));
    }
    // Another cursor's batches are not for the room.
    let find = doc! {"find": "c", "batchSize": 1};
    let reply = client.run("d", find).unwrap();
    let other = whole(reply.get("cursor").and_then(RawValue::as_document).unwrap().get("id")).unwrap();
    client.run("d", doc! {"getMore": other, "collection": "c"}).unwrap();
}

#[test]
fn a_wait_ends_by_its_cursor_its_operation_and_its_client() {
    let (engine, server) = serve();
    let mut other = Client::connect(server.address()).unwrap();
    let wait = || {
        let mut client = Client::connect(server.address()).unwrap();
        let cursor = open(&mut client);
        let waits = thread::spawn(move || client.run("d", get_more(cursor, PATIENT_MS)));
        eventually("it waits", || waiting(&engine) == 1);
        (cursor, waits)
    };
    let (cursor, waits) = wait();
    other.run("d", doc! {"killCursors": "c", "cursors": [cursor]}).unwrap();
    assert_eq!(code(waits.join().unwrap().unwrap_err()), 237);

    let (_, waits) = wait();
    let shown = other.run("admin", doc! {"currentOp": 1, "command.getMore": {"$exists": true}}).unwrap();
    let shown = shown.get("inprog").and_then(RawValue::as_array).unwrap();
    let named = shown.iter().filter_map(|shown| shown.as_document()?.get("ns")?.as_str());
    assert_eq!(named.collect::<Vec<_>>(), ["d.c"]);
    let running = engine.operations.list();
    let operation = running.iter().find(|operation| operation.kind() == "getmore").unwrap();
    other.run("admin", doc! {"killOp": 1, "op": operation.id}).unwrap();
    assert_eq!(code(waits.join().unwrap().unwrap_err()), 11601);

    eventually("neither cursor is left", || engine.cursors.count() == 0);
    let mut client = TcpStream::connect(server.address()).unwrap();
    let mut asks = Client::connect(server.address()).unwrap();
    let cursor = open(&mut asks);
    let mut request = get_more(cursor, PATIENT_MS);
    request.push("$db", "d");
    client.write_all(&message(&request)).unwrap();
    eventually("it waits", || waiting(&engine) == 1);
    drop(client);
    eventually("nobody is there to read the answer", || waiting(&engine) == 0 && engine.cursors.count() == 0);
}

#[test]
fn requests_that_arrive_together_are_answered_in_turn() {
    let (_engine, server) = serve();
    let mut writer = Client::connect(server.address()).unwrap();
    let cursor = open(&mut writer);
    let mut socket = TcpStream::connect(server.address()).unwrap();
    let with_database = |mut command: Document| {
        command.push("$db", "d");
        message(&command)
    };
    let more = with_database(get_more(cursor, PATIENT_MS));
    let ping = with_database(doc! {"ping": 1});
    socket.write_all(&[&more[..], &more, &ping, &more].concat()).unwrap();
    let mut reply = || {
        let mut length = [0; 4];
        socket.read_exact(&mut length).unwrap();
        let mut rest = vec![0; u32::from_le_bytes(length) as usize - 4];
        socket.read_exact(&mut rest).unwrap();
        // Behind the header and the flags of a message lie the kind of its body and the body.
        Document::parse(rest[17..].to_vec()).unwrap()
    };
    insert(&mut writer, 1);
    assert_eq!(ids(&reply()), [1]);
    thread::sleep(Duration::from_millis(30));
    insert(&mut writer, 2);
    assert_eq!(ids(&reply()), [2]);
    assert!(reply().get("cursor").is_none(), "of the ping");
    insert(&mut writer, 3);
    assert_eq!(ids(&reply()), [3]);
}

#[test]
fn a_client_that_reads_nothing_keeps_nobody_from_hearing() {
    const EVENTS: i32 = 300;
    let (_engine, server) = serve();
    let mut writer = Client::connect(server.address()).unwrap();
    let (slow, quick) = (open(&mut writer), open(&mut writer));
    let mut socket = TcpStream::connect(server.address()).unwrap();
    let mut more = get_more(slow, PATIENT_MS);
    more.push("$db", "d");
    // It asks again and again, and reads no answer.
    socket.write_all(&message(&more).repeat(EVENTS as usize)).unwrap();
    let mut listener = Client::connect(server.address()).unwrap();
    let mut heard = 0;
    for id in 0..EVENTS {
        let large = "x".repeat(50_000);
        writer.run("d", doc! {"insert": "c", "documents": [{"_id": id, "large": large}]}).unwrap();
        while heard <= id {
            heard += ids(&listener.run("d", get_more(quick, PATIENT_MS)).unwrap()).len() as i32;
        }
    }
    // What was kept from it is there once it reads.
    let mut length = [0; 4];
    let mut total = 0;
    while total < EVENTS as usize {
        socket.read_exact(&mut length).unwrap();
        let mut rest = vec![0; u32::from_le_bytes(length) as usize - 4];
        socket.read_exact(&mut rest).unwrap();
        total += ids(&Document::parse(rest[17..].to_vec()).unwrap()).len();
    }
}

#[test]
fn a_server_that_stops_lets_its_streams_go() {
    let (engine, mut server) = serve();
    let mut waits = Vec::new();
    for _ in 0..10 {
        let mut client = Client::connect(server.address()).unwrap();
        let cursor = open(&mut client);
        waits.push(thread::spawn(move || client.run("d", get_more(cursor, PATIENT_MS))));
    }
    eventually("all wait", || waiting(&engine) == 10);
    let begun = Instant::now();
    server.stop();
    assert!(begun.elapsed() < Duration::from_secs(5));
    for wait in waits {
        assert_eq!(ids(&wait.join().unwrap().unwrap()), []);
    }
    assert_eq!(server.connections(), 0);
}

#[test]
fn an_expensive_stream_keeps_nobody_waiting() {
    let (engine, server) = serve();
    let mut writer = Client::connect(server.address()).unwrap();
    // Both have waited, so that they are in the room.
    let (mut light, mut idle) =
        (Client::connect(server.address()).unwrap(), Client::connect(server.address()).unwrap());
    let (cursor, other) = (open(&mut light), open(&mut idle));
    light.run("d", get_more(cursor, 15)).unwrap();
    idle.run("d", get_more(other, 15)).unwrap();
    // More than anybody computes in the time of a test.
    let inner = doc! {"$reduce": {"input": {"$range": [0, 1_000_000]}, "initialValue": 0, "in": "$$this"}};
    let steps = doc! {"$reduce": {"input": {"$range": [0, 1_000_000]}, "initialValue": 0, "in": inner}};
    let stages = vec![doc! {"$changeStream": {}}, doc! {"$match": {"$expr": {"$gte": [steps, 0]}}}];
    let mut heavy = Client::connect(server.address()).unwrap();
    let expensive = open_with(&mut heavy, stages);
    let waits = thread::spawn(move || heavy.run("d", get_more(expensive, PATIENT_MS)));
    eventually("it waits", || waiting(&engine) == 1);
    for id in 0..5 {
        let begun = Instant::now();
        insert(&mut writer, id);
        assert_eq!(ids(&light.run("d", get_more(cursor, PATIENT_MS)).unwrap()), [i64::from(id)]);
        idle.run("d", doc! {"ping": 1}).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(5), "{id}");
    }
    let running = engine.operations.list();
    let operation = running.iter().find(|operation| operation.kind() == "getmore").unwrap();
    writer.run("admin", doc! {"killOp": 1, "op": operation.id}).unwrap();
    assert_eq!(code(waits.join().unwrap().unwrap_err()), 11601);
}

#[test]
fn a_stream_that_waits_keeps_no_large_buffer() {
    let (engine, server) = serve();
    let mut client = Client::connect(server.address()).unwrap();
    let cursor = open(&mut client);
    client.run("d", doc! {"ping": 1, "comment": "x".repeat(12 << 20)}).unwrap();
    let waits = thread::spawn(move || client.run("d", get_more(cursor, PATIENT_MS)));
    eventually("it waits", || waiting(&engine) == 1);
    eventually("others have the room", || server.message_bytes() == 0);
    insert(&mut Client::connect(server.address()).unwrap(), 1);
    assert_eq!(ids(&waits.join().unwrap().unwrap()), [1]);
}

#[test]
fn waiting_is_no_latency_and_its_end_says_how_far_the_stream_has_looked() {
    let (_engine, server) = serve();
    let (mut client, mut writer) =
        (Client::connect(server.address()).unwrap(), Client::connect(server.address()).unwrap());
    let cursor = open(&mut client);
    let latency = |client: &mut Client| {
        let status = client.run("admin", doc! {"serverStatus": 1}).unwrap();
        let reads = status.get("opLatencies").and_then(RawValue::as_document).unwrap().get("reads");
        whole(reads.and_then(RawValue::as_document).unwrap().get("latency")).unwrap()
    };
    let token = |reply: &Document| {
        let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap();
        let token = cursor.get("postBatchResumeToken").and_then(RawValue::as_document).unwrap();
        token.get("_data").and_then(RawValue::as_str).unwrap().to_owned()
    };
    let before = latency(&mut writer);
    let first = token(&client.run("d", get_more(cursor, 20)).unwrap());
    let waits = thread::spawn(move || client.run("d", get_more(cursor, 600)).unwrap());
    thread::sleep(Duration::from_millis(100));
    let other = writer.run("d", doc! {"insert": "other", "documents": [{"_id": 1}]}).unwrap();
    let Some(RawValue::Timestamp(written)) = other.get("operationTime") else { panic!("{other:?}") };
    let last = token(&waits.join().unwrap());
    assert!(last > first);
    let seconds = u32::from_str_radix(&last[2..10], 16).unwrap();
    let increment = u32::from_str_radix(&last[10..18], 16).unwrap();
    assert!((seconds, increment) >= (written.seconds, written.increment), "{last}");
    assert!(latency(&mut writer) - before < 400_000, "in microseconds");
}

#[test]
fn a_stream_that_waits_is_shown_with_its_cursor_and_ends_in_its_words() {
    let (engine, server) = serve();
    let mut other = Client::connect(server.address()).unwrap();
    let mut client = Client::connect(server.address()).unwrap();
    let cursor = open(&mut client);
    let waits = thread::spawn(move || client.run("d", get_more(cursor, PATIENT_MS)));
    eventually("it waits", || waiting(&engine) == 1);
    let status = other.run("admin", doc! {"serverStatus": 1}).unwrap();
    let metrics = status.get("metrics").and_then(RawValue::as_document).unwrap();
    let cursors = metrics.get("cursor").and_then(RawValue::as_document).unwrap();
    let open = cursors.get("open").and_then(RawValue::as_document).unwrap().to_document();
    assert_eq!(open, doc! {"noTimeout": 0i64, "pinned": 1i64, "total": 1i64});
    let shown = other.run("admin", doc! {"currentOp": 1, "op": "getmore"}).unwrap();
    let shown = shown.get("inprog").and_then(RawValue::as_array).unwrap();
    let operation = shown.iter().next().and_then(RawValue::as_document).unwrap();
    let told = operation.get("cursor").and_then(RawValue::as_document).unwrap();
    let id = whole(operation.get("opid")).unwrap();
    assert_eq!(whole(told.get("cursorId")), Some(cursor));
    assert_eq!(whole(told.get("operationUsingCursorId")), Some(id));
    assert_eq!(whole(told.get("nBatchesReturned")), Some(1));
    for name in ["tailable", "awaitData"] {
        assert_eq!(told.get(name).and_then(RawValue::as_bool), Some(true), "{name}");
    }
    let originating = told.get("originatingCommand").and_then(RawValue::as_document).unwrap();
    assert_eq!(originating.get("aggregate").and_then(RawValue::as_str), Some("c"));
    other.run("admin", doc! {"killOp": 1, "op": id}).unwrap();
    let Err(Fault::Refused(failure)) = waits.join().unwrap() else { panic!("it was killed") };
    assert_eq!(failure.code, 11601);
    assert_eq!(failure.message, "Executor error during getMore :: caused by :: operation was interrupted");
}
