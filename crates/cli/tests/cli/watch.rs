//! `kilim watch`, and a server with change streams that is killed.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::Duration;

use kilim_bson::{Document, RawValue, Value, array, doc, parse_extended_json};
use kilim_client::{Client, Fault};

use crate::running::{Running, kilim, output};

fn insert(client: &mut Client, id: i32) {
    client.run("shop", doc! {"insert": "orders", "documents": [{"_id": id, "n": 0}]}).unwrap();
}

#[test]
fn changes_are_lines_of_json_in_a_pipe_and_go_on_behind_a_token() {
    let server = Running::start(&["serve", "--ephemeral", "--port", "0"]);
    let mut client = Client::connect(&*server.address).unwrap();
    insert(&mut client, 0);
    // A token from before, so that nothing depends on when the command has opened its stream.
    let stages = array![{"$changeStream": {}}];
    let reply = client.run("shop", doc! {"aggregate": 1, "pipeline": stages, "cursor": {}}).unwrap();
    let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap();
    let token = cursor.get("postBatchResumeToken").and_then(RawValue::as_document).unwrap();
    let token = token.get("_data").and_then(RawValue::as_str).unwrap().to_owned();
    for id in 1..4 {
        insert(&mut client, id);
    }
    let uri = format!("mongodb://{}", server.address);
    let watch = |token: &str, count: usize| {
        let mut child = kilim(&["watch", "shop.orders", "--uri", &uri, "--resume", token])
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let events: Vec<Document> =
            lines.take(count).map(|line| parse_extended_json(&line.unwrap()).unwrap()).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        events
    };
    let keys = |events: &[Document]| -> Vec<i32> {
        let key = |event: &Document| match event.get("documentKey").unwrap().as_document().unwrap().get("_id")
        {
            Some(RawValue::Int32(id)) => id,
            other => panic!("{other:?}"),
        };
        events.iter().map(key).collect()
    };
    let events = watch(&token, 3);
    assert_eq!(keys(&events), [1, 2, 3]);
    let seen = events[0].get("_id").and_then(RawValue::as_document).unwrap();
    assert_eq!(keys(&watch(seen.get("_data").and_then(RawValue::as_str).unwrap(), 2)), [2, 3]);
}

#[test]
fn watch_ends_with_its_collection_and_says_what_is_wrong() {
    let server = Running::start(&["serve", "--ephemeral", "--port", "0"]);
    let uri = format!("mongodb://{}", server.address);
    let mut client = Client::connect(&*server.address).unwrap();
    insert(&mut client, 0);
    let stages = array![{"$changeStream": {}}];
    let reply = client.run("shop", doc! {"aggregate": 1, "pipeline": stages, "cursor": {}}).unwrap();
    let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap();
    let token = cursor.get("postBatchResumeToken").and_then(RawValue::as_document).unwrap();
    let token = token.get("_data").and_then(RawValue::as_str).unwrap().to_owned();
    client.run("shop", doc! {"drop": "orders"}).unwrap();
    let pipeline = "[{$project: {operationType: 1}}]";
    let arguments = ["watch", "shop.orders", "--uri", &uri, "--resume", &token, "--pipeline", pipeline];
    let (code, shown, _) = output(&arguments);
    assert_eq!(code, Some(0));
    let types: Vec<String> = shown
        .lines()
        .map(|line| {
            parse_extended_json(line).unwrap().get("operationType").unwrap().as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(types, ["drop", "invalidate"]);
    let (code, _, message) = output(&["watch", "shop.orders", "--uri", &uri, "--resume", "zz"]);
    assert_eq!(code, Some(1));
    assert!(message.contains("not a valid hex string"), "{message}");
    assert!(!message.contains("to go on"), "a token that is wrong is no advice: {message}");
    let (code, _, message) = output(&["watch", "shop.orders", "--uri", &uri, "--pipeline", "[1]"]);
    assert_eq!(code, Some(1));
    assert!(message.contains("--pipeline takes stages"), "{message}");
    let off = Running::start(&["serve", "--ephemeral", "--port", "0", "--change-log-hours", "0"]);
    let (code, _, message) = output(&["watch", "--uri", &format!("mongodb://{}", off.address)]);
    assert_eq!(code, Some(1));
    assert!(message.contains("--change-log-hours"), "{message}");
}

/// The digits of a token from which on everything is new.
fn token_of_now(client: &mut Client) -> String {
    let stages = array![{"$changeStream": {}}];
    let reply = client.run("shop", doc! {"aggregate": 1, "pipeline": stages, "cursor": {}}).unwrap();
    let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap();
    let token = cursor.get("postBatchResumeToken").and_then(RawValue::as_document).unwrap();
    token.get("_data").and_then(RawValue::as_str).unwrap().to_owned()
}

/// Type, database and collection of so many lines.
fn told(lines: impl Iterator<Item = std::io::Result<String>>, count: usize) -> Vec<String> {
    let name = |event: &Document| {
        let ns = event.get("ns").and_then(RawValue::as_document).unwrap();
        let [kind, db, coll] = [event.get("operationType"), ns.get("db"), ns.get("coll")]
            .map(|part| part.and_then(RawValue::as_str).unwrap_or_default().to_owned());
        format!("{kind} {db}.{coll}")
    };
    lines.take(count).map(|line| name(&parse_extended_json(&line.unwrap()).unwrap())).collect()
}

#[test]
fn all_databases_or_one_are_watched_and_more_is_shown_where_that_is_asked_for() {
    let server = Running::start(&["serve", "--ephemeral", "--port", "0"]);
    let uri = format!("mongodb://{}", server.address);
    let mut client = Client::connect(&*server.address).unwrap();
    let token = token_of_now(&mut client);
    insert(&mut client, 1);
    client.run("other", doc! {"insert": "notes", "documents": [{"_id": 1}]}).unwrap();
    let updates = array![{"q": {"_id": 1}, "u": {"$inc": {"n": 1}}}];
    client.run("shop", doc! {"update": "orders", "updates": updates}).unwrap();
    let watch = |arguments: &[&str], count: usize| {
        let always = ["--uri", &uri, "--resume", &token];
        let command = [&["watch"], arguments, &always].concat();
        let mut child = kilim(&command).stderr(Stdio::inherit()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let lines: Vec<String> = lines.take(count).map(|line| line.unwrap()).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        lines
    };
    let names = |lines: &[String]| told(lines.iter().cloned().map(Ok), lines.len());
    let (orders, notes, update) = ("insert shop.orders", "insert other.notes", "update shop.orders");
    assert_eq!(names(&watch(&[], 3)), [orders, notes, update]);
    assert_eq!(names(&watch(&["shop"], 2)), [orders, update]);
    let expanded = watch(&["--expanded"], 5);
    let (made, other) = ("create shop.orders", "create other.notes");
    assert_eq!(names(&expanded), [made, orders, other, notes, update]);
    let document_of = |line: &String| {
        let event = parse_extended_json(line).unwrap();
        event.get("fullDocument").and_then(RawValue::as_document).map(|found| found.to_document())
    };
    assert_eq!(document_of(&watch(&["shop"], 2)[1]), None);
    assert_eq!(document_of(&watch(&["shop", "--full-document"], 2)[1]), Some(doc! {"_id": 1, "n": 1}));
}

#[test]
fn a_watch_goes_on_where_it_was_when_its_server_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap().to_owned();
    let start = |port: &str| Running::start(&["serve", "--data", &data, "--port", port]);
    let server = start("0");
    let port = server.address.rsplit_once(':').unwrap().1.to_owned();
    let uri = format!("mongodb://{}", server.address);
    let mut client = Client::connect(&*server.address).unwrap();
    let token = token_of_now(&mut client);
    insert(&mut client, 1);
    let mut child = kilim(&["watch", "--uri", &uri, "--resume", &token]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ids = |count: usize| -> Vec<i64> {
        let of = |line: std::io::Result<String>| {
            let event = parse_extended_json(&line.unwrap()).unwrap();
            let key = event.get("documentKey").and_then(RawValue::as_document).unwrap();
            kilim_client::whole(key.get("_id")).unwrap()
        };
        lines.by_ref().take(count).map(of).collect()
    };
    assert_eq!(ids(1), [1]);
    insert(&mut client, 2);
    assert_eq!(ids(1), [2]);
    server.end(libc::SIGKILL);
    let server = start(&port);
    let mut client = Client::connect(&*server.address).unwrap();
    insert(&mut client, 3);
    assert_eq!(ids(1), [3]);
    child.kill().unwrap();
    child.wait().unwrap();
    let complaints = crate::running::read(child.stderr.take());
    assert!(complaints.contains("going on"), "{complaints}");
}

#[test]
fn the_size_of_the_log_is_said_at_the_start_and_shown_with_its_ends() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let arguments = ["serve", "--ephemeral", "--port", "0", "--change-log-size", "3MB"];
    let server = Running::start(&[&arguments[..], &["--metrics-port", &port.to_string()]].concat());
    let mut client = Client::connect(&*server.address).unwrap();
    insert(&mut client, 1);
    let status = client.run("admin", doc! {"serverStatus": 1}).unwrap();
    let log = status.get("changeLog").and_then(RawValue::as_document).unwrap();
    assert_eq!(kilim_client::whole(log.get("maxBytes")), Some(3 << 20));
    for name in ["beginsAfter", "last"] {
        assert!(matches!(log.get(name), Some(RawValue::Timestamp(_))), "{log:?}");
    }
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let page = crate::running::read(Some(socket));
    let figure = |name: &str| -> f64 {
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} in {page}")).parse().unwrap()
    };
    let newest = match log.get("last") {
        Some(RawValue::Timestamp(time)) => time.seconds,
        other => panic!("{other:?}"),
    };
    assert!(figure("kilim_change_log_newest_seconds") >= newest.into());
    assert!(figure("kilim_change_log_begins_seconds") <= newest.into());
    assert!(figure("kilim_change_log_bytes") > 0.0);
}

/// A generator of numbers that a seed repeats.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// What a listener knows that loses its stream again and again.
struct Follower {
    /// Behind what it has seen.
    token: Document,
    /// The tokens of all events that it has seen.
    seen: Vec<Document>,
    /// What they make of an empty collection.
    state: BTreeMap<i64, Document>,
    dice: Dice,
}

impl Follower {
    fn from(token: &Document, seed: u64) -> Follower {
        let (token, seen, state) = (token.clone(), Vec::new(), BTreeMap::new());
        Follower { token, seen, state, dice: Dice(seed) }
    }

    fn take(&mut self, event: &Document) {
        let kind = event.get("operationType").and_then(RawValue::as_str).unwrap();
        let key = event.get("documentKey").and_then(RawValue::as_document).unwrap();
        let id = kilim_client::whole(key.get("_id")).unwrap();
        let full = || event.get("fullDocument").and_then(RawValue::as_document).unwrap().to_document();
        let was = match kind {
            "insert" | "replace" | "update" => self.state.insert(id, full()),
            "delete" => self.state.remove(&id),
            other => panic!("{other}"),
        };
        assert_eq!(was.is_some(), kind != "insert", "{event:?}");
        self.token = event.get("_id").and_then(RawValue::as_document).unwrap().to_document();
        self.seen.push(self.token.clone());
    }

    /// Follows until the server has gone, or `is_over` and there is nothing more. Of a batch it may lose the end and, with
    /// it, its stream.
    fn follow(&mut self, address: &str, is_over: bool) {
        while let Ok(mut client) = Client::connect(address) {
            match self.follow_once(&mut client, is_over) {
                Ok(true) | Err(Fault::Lost(_)) => return,
                Ok(false) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    /// Whether there is nothing more.
    fn follow_once(&mut self, client: &mut Client, is_over: bool) -> Result<bool, Fault> {
        let options = doc! {"resumeAfter": self.token.clone(), "fullDocument": "required"};
        let stages = array![{"$changeStream": options}];
        let command = doc! {"aggregate": "orders", "pipeline": stages, "cursor": {}};
        let mut reply = client.run("shop", command)?;
        let mut batch = "firstBatch";
        loop {
            let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap();
            let events: Vec<Document> = cursor
                .get(batch)
                .and_then(RawValue::as_array)
                .unwrap()
                .iter()
                .map(|event| event.as_document().unwrap().to_document())
                .collect();
            if is_over && events.is_empty() && batch == "nextBatch" {
                return Ok(true);
            }
            if self.dice.roll(8) == 0 {
                let kept = self.dice.roll(events.len() as u64 + 1) as usize;
                events.iter().take(kept).for_each(|event| self.take(event));
                return Ok(false);
            }
            events.iter().for_each(|event| self.take(event));
            self.token =
                cursor.get("postBatchResumeToken").and_then(RawValue::as_document).unwrap().to_document();
            let more = doc! {"getMore": cursor.get("id").unwrap().to_value(), "collection": "orders", "maxTimeMS": 100};
            (reply, batch) = (client.run("shop", more)?, "nextBatch");
        }
    }
}

/// Writes at random until the server has gone: statements, transactions, and schema changes beside them.
fn write_until_lost(address: &str, seed: u64) {
    let mut client = Client::connect(address).unwrap();
    let mut dice = Dice(seed);
    let session = Value::Binary { subtype: 4, bytes: (0..16).map(|_| dice.roll(256) as u8).collect() };
    let change = |id: i64| {
        let update = doc! {"q": {"_id": id}, "u": {"$inc": {"n": 1}}, "upsert": true};
        doc! {"update": "orders", "updates": [update]}
    };
    for number in 1i64.. {
        let id = dice.roll(40) as i64;
        let in_transaction = |mut command: Document, start: bool| {
            command.push("lsid", doc! {"id": session.clone()});
            command.push("txnNumber", number);
            command.push("autocommit", false);
            if start {
                command.push("startTransaction", true);
            }
            command
        };
        let commands = match dice.roll(12) {
            0..3 => vec![("shop", doc! {"delete": "orders", "deletes": [{"q": {"_id": id}, "limit": 1}]})],
            3..5 => vec![("shop", doc! {"insert": "orders", "documents": [{"_id": id, "n": 0}]})],
            5..8 => {
                let mut relaxed = change(id);
                relaxed.push("writeConcern", doc! {"w": 1, "j": false});
                vec![("shop", relaxed)]
            }
            8 | 9 => {
                let end = if dice.roll(4) == 0 { "abortTransaction" } else { "commitTransaction" };
                let end: Document = [(end, Value::Int32(1))].into_iter().collect();
                vec![
                    ("shop", in_transaction(change(id), true)),
                    ("shop", in_transaction(change((id + 1) % 40), false)),
                    ("admin", in_transaction(end, false)),
                ]
            }
            10 => vec![("shop", doc! {"create": "beside"}), ("shop", doc! {"drop": "beside"})],
            _ => {
                let indexes = array![{"key": {"n": 1}, "name": "n_1"}];
                vec![
                    ("shop", doc! {"createIndexes": "orders", "indexes": indexes}),
                    ("shop", doc! {"dropIndexes": "orders", "index": "n_1"}),
                ]
            }
        };
        for (database, command) in commands {
            if let Err(Fault::Lost(_)) = client.run(database, command) {
                return;
            }
        }
    }
}

/// A real server is killed again and again while it is written to. Listeners that lose their streams and resume behind what they
/// saw are shown every event once, in one order: replayed, they are the documents. `KILIM_KILLS` says how often.
#[test]
fn after_kills_listeners_that_resume_have_the_documents_that_are_there() {
    let kills = std::env::var("KILIM_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap().to_owned();
    let start = || Running::start(&["serve", "--data", &data, "--port", "0", "--checkpoint-bytes", "64KB"]);
    let mut server = start();
    let mut client = Client::connect(&*server.address).unwrap();
    let images = doc! {"enabled": true};
    client.run("shop", doc! {"create": "orders", "changeStreamPreAndPostImages": images}).unwrap();
    let stages = array![{"$changeStream": {}}];
    let reply = client.run("shop", doc! {"aggregate": "orders", "pipeline": stages, "cursor": {}}).unwrap();
    let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap();
    let begin = cursor.get("postBatchResumeToken").and_then(RawValue::as_document).unwrap().to_document();
    let mut followers = [1, 2].map(|seed| Follower::from(&begin, seed));
    for round in 0..kills {
        let address = &*server.address;
        std::thread::scope(|scope| {
            for writer in 0..3 {
                scope.spawn(move || write_until_lost(address, round * 31 + writer));
            }
            for follower in &mut followers {
                scope.spawn(move || follower.follow(address, false));
            }
            std::thread::sleep(Duration::from_millis(300 + 70 * (round % 5)));
            server.send(libc::SIGKILL);
        });
        let (_, log) = server.end(libc::SIGKILL);
        assert!(!log.contains("panicked"), "{log}");
        server = start();
    }
    let mut client = Client::connect(&*server.address).unwrap();
    let stored: BTreeMap<i64, Document> = client
        .all("shop", doc! {"find": "orders"})
        .unwrap()
        .into_iter()
        .map(|document| (kilim_client::whole(document.get("_id")).unwrap(), document))
        .collect();
    // One that was not there before has the order of the log itself.
    let mut last = Follower::from(&begin, 3);
    last.follow(&server.address, true);
    println!("{kills} kills, {} events", last.seen.len());
    for follower in &mut followers {
        follower.follow(&server.address, true);
        assert_eq!(follower.state, stored, "after {kills} kills and {} events", follower.seen.len());
        assert!(follower.seen == last.seen, "each event once, in one order for all");
    }
    let status = client.run("admin", doc! {"serverStatus": 1}).unwrap();
    let log = status.get("changeLog").and_then(RawValue::as_document).unwrap();
    assert_eq!(log.get("enabled").and_then(RawValue::as_bool), Some(true));
    assert_eq!(server.end(libc::SIGTERM).0, Some(0));
}

/// There is a log unless the option says otherwise, and only the word for it drops one.
#[test]
fn a_start_without_the_option_has_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap().to_owned();
    let start = |more: &[&str]| Running::start(&[&["serve", "--data", &data, "--port", "0"], more].concat());
    let server = start(&[]);
    let mut client = Client::connect(&*server.address).unwrap();
    let watch = |options: Document| {
        let stages = array![{"$changeStream": options}];
        doc! {"aggregate": "orders", "pipeline": stages, "cursor": {}}
    };
    let reply = client.run("shop", watch(doc! {})).unwrap();
    let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap();
    let token = cursor.get("postBatchResumeToken").and_then(RawValue::as_document).unwrap().to_document();
    insert(&mut client, 1);
    server.end(libc::SIGTERM);
    let resume = watch(doc! {"resumeAfter": token});
    let (code, _, _) = output(&["check", &data]);
    assert_eq!(code, Some(0));
    let server = start(&["--change-log-hours", "5"]);
    let mut client = Client::connect(&*server.address).unwrap();
    let events = client.run("shop", resume.clone()).unwrap();
    let batch = events.get("cursor").and_then(RawValue::as_document).unwrap();
    assert_eq!(batch.get("firstBatch").and_then(RawValue::as_array).unwrap().iter().count(), 1);
    server.end(libc::SIGTERM);
    let server = start(&["--change-log-hours", "0"]);
    let mut client = Client::connect(&*server.address).unwrap();
    assert_eq!(client.run("shop", resume.clone()).unwrap_err().code(), Some(20));
    server.end(libc::SIGTERM);
    let server = start(&[]);
    let mut client = Client::connect(&*server.address).unwrap();
    assert_eq!(client.run("shop", resume).unwrap_err().code(), Some(286));
    assert_eq!(server.end(libc::SIGTERM).0, Some(0));
}
