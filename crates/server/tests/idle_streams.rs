//! What a change stream holds that waits: no thread, and little of the heap. In a program of its own, since the heap is
//! counted for the whole process.

use std::alloc::System;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use kilim_bson::{Document, RawValue, doc};
use kilim_client::{Client, message, whole};
use kilim_engine::{Durability, Engine, EngineOptions, StorageOptions};
use kilim_server::{Commands, Limits, Listener, Protection};

#[global_allocator]
static ALLOCATOR: kilim_memory::Counting<System> = kilim_memory::Counting(System);

const STREAMS: usize = 400;

/// The input buffer has 4 KB of it. Where a stream held more, a thousand of them would soon hold more than threads did.
const HEAP_BYTES_MAX: usize = 12_000;

fn exchange(socket: &mut TcpStream, command: Document) -> Document {
    socket.write_all(&message(&command)).unwrap();
    let mut length = [0; 4];
    socket.read_exact(&mut length).unwrap();
    let mut rest = vec![0; u32::from_le_bytes(length) as usize - 4];
    socket.read_exact(&mut rest).unwrap();
    // Behind the header and the flags of a message lie the kind of its body and the body.
    Document::parse(rest[17..].to_vec()).unwrap()
}

/// A connection whose stream awaits data.
fn waiting(address: SocketAddr) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    let pipeline = vec![doc! {"$changeStream": {}}];
    let open = doc! {"aggregate": "c", "pipeline": pipeline, "cursor": {}, "$db": "d"};
    let reply = exchange(&mut socket, open);
    let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap();
    let id = whole(cursor.get("id")).unwrap();
    let more = doc! {"getMore": id, "collection": "c", "maxTimeMS": 120_000, "$db": "d"};
    socket.write_all(&message(&more)).unwrap();
    socket
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Threads of this process that serve connections, or are free to.
#[cfg(target_os = "linux")]
fn threads() -> usize {
    let names = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path().join("comm"));
    names.filter_map(|name| fs::read_to_string(name).ok()).filter(|name| name.starts_with("conn-")).count()
}

#[cfg(target_os = "linux")]
#[test]
fn a_stream_that_waits_holds_no_thread_and_little_memory() {
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
    let mut writer = Client::connect(server.address()).unwrap();
    writer.run("d", doc! {"create": "c"}).unwrap();
    let wait = |count: usize, all: &mut Vec<TcpStream>| {
        all.extend((0..count).map(|_| waiting(server.address())));
        let waits = || engine.operations.list().iter().filter(|one| one.kind() == "getmore").count();
        eventually("all wait", || waits() == all.len());
        eventually("one thread serves the writer, the others end", || threads() == 1);
    };
    let mut all = Vec::new();
    // What the first ones make for all.
    wait(20, &mut all);
    let before = kilim_memory::process_bytes();
    wait(STREAMS, &mut all);
    let each = kilim_memory::process_bytes().saturating_sub(before) / STREAMS;
    assert!((4_000..HEAP_BYTES_MAX).contains(&each), "{each} bytes a stream");
    // They are served all the same.
    writer.run("d", doc! {"insert": "c", "documents": [{"_id": 1}]}).unwrap();
    for socket in &mut all {
        let mut length = [0; 4];
        socket.read_exact(&mut length).unwrap();
    }
}
