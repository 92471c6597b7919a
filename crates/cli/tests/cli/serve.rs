//! `kilim serve` as a user starts and ends it.

use std::net::TcpStream;
use std::path::Path;

use kilim_bson::{Document, RawValue, doc};
use kilim_client::{Client, whole};

use crate::running::{Running, output, read, wait};

#[test]
fn the_ready_line_names_where_to_connect_and_both_signals_end_in_order() {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let server = Running::start(&["serve", "--ephemeral", "--port", "0", "--log-format", "json"]);
        let client = TcpStream::connect(&server.address).unwrap();
        let (code, log) = server.end(signal);
        assert_eq!(code, Some(0), "{log}");
        assert!(log.lines().all(|line| line.starts_with('{') && line.ends_with('}')), "{log}");
        assert!(log.contains("stopped"), "{log}");
        drop(client);
    }
}

#[test]
fn a_taken_port_ends_with_advice() {
    let server = Running::start(&["serve", "--ephemeral", "--port", "0"]);
    let port = server.address.rsplit(':').next().unwrap();
    let (code, _, message) = output(&["serve", "--ephemeral", "--port", port]);
    assert_eq!(code, Some(1));
    assert!(message.contains(&format!("port {port}")) && message.contains("--port 0"), "{message}");
}

#[test]
fn a_data_directory_has_one_server() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    let server = Running::start(&["serve", "--data", data, "--port", "0"]);
    let (code, _, message) = output(&["serve", "--data", data, "--port", "0"]);
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains(data) && message.contains("another process"), "{message}");
    let (code, log) = server.end(libc::SIGTERM);
    assert_eq!(code, Some(0), "{log}");
    // And it is free again.
    let (code, log) = Running::start(&["serve", "--data", data, "--port", "0"]).end(libc::SIGTERM);
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn arguments_that_do_not_go_together_are_refused() {
    for (arguments, expected) in [
        (&["serve", "--bind", "0.0.0.0", "--ephemeral", "--port", "0"][..], "--insecure"),
        (&["serve", "--ephemeral", "--data", "x"], "--data"),
        (&["serve", "--ephemeral", "--durability", "relaxed"], "--durability"),
        (&["serve", "--cache-bytes", "5 parsecs"], "parsecs"),
        (&["serve", "--cache-bytes", "1KB"], "8MB"),
        (&["serve", "--cache-bytes", "900TB"], "of memory"),
        (&["serve", "--port", "70000"], "70000"),
        (&["serve", "--ephemeral", "--port", "0", "--tls-cert", "x"], "--tls require"),
        (&["serve", "--tls", "require"], "--tls-cert"),
        (&["serve", "--tls", "require", "--tls-cert", "x", "--tls-clients", "allow"], "--tls-ca"),
        (&["serve", "--ephemeral", "--port", "0", "--tls", "require", "--tls-cert", "/nowhere"], "/nowhere"),
        (&["sevre"], "serve"),
    ] {
        let (code, _, message) = output(arguments);
        assert!(code.is_some_and(|code| code != 0), "{arguments:?}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn help_shows_examples_and_the_version_is_told() {
    let (code, version, _) = output(&["--version"]);
    assert_eq!((code, version.trim()), (Some(0), concat!("kilim ", env!("CARGO_PKG_VERSION"))));
    for arguments in [&["--help"][..], &["serve", "--help"]] {
        let (code, help, _) = output(arguments);
        assert_eq!(code, Some(0));
        assert!(help.contains("Examples:") && help.contains("kilim serve --ephemeral --port 0"), "{help}");
    }
}

#[test]
fn help_lists_a_commands_own_options_apart_from_those_of_encryption() {
    for command in ["backup", "dump", "restore", "import", "export"] {
        let (code, help, _) = output(&[command, "--help"]);
        assert_eq!(code, Some(0));
        let (own, encryption) = help.split_once("Encryption:").unwrap();
        let encryption = encryption.split("Examples:").next().unwrap();
        assert!(encryption.contains("--tls-ca"), "{help}");
        for option in ["--out", "--collection", "--drop"] {
            assert!(!encryption.contains(option), "{command}: {help}");
        }
        assert!(own.contains("--out") || own.contains("--collection"), "{help}");
    }
}

fn ask_for_metrics(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    let mut page = String::new();
    std::io::Read::read_to_string(&mut stream, &mut page).unwrap();
    page
}

fn time(document: &Document, name: &str) -> u64 {
    match document.get(name) {
        Some(RawValue::Timestamp(time)) => time.to_bits(),
        other => panic!("{name} is {other:?}"),
    }
}

#[test]
fn the_change_log_has_the_size_that_was_asked_for_and_says_how_far_it_reaches() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let running = Running::start(
        &[
            &["serve", "--ephemeral", "--port", "0", "--metrics-port", &port.to_string()][..],
            &["--change-log-size", "3MB", "--change-log-hours", "5"],
        ]
        .concat(),
    );
    let mut client = Client::connect(running.address.as_str()).unwrap();
    let mut insert = |id: i32| {
        let command =
            doc! {"insert": "orders", "documents": [{"_id": id}], "writeConcern": {"w": 1, "j": true}};
        let reply = client.run("shop", command).unwrap();
        let status = client.run("admin", doc! {"serverStatus": 1}).unwrap();
        let log = status.get("changeLog").and_then(RawValue::as_document).unwrap().to_document();
        (time(&reply, "operationTime"), log)
    };
    let (first, before) = insert(1);
    let (second, log) = insert(2);
    assert_eq!(whole(log.get("maxBytes")), Some(3 << 20));
    assert_eq!(whole(log.get("maxHours")), Some(5));
    assert_eq!((time(&before, "last"), time(&log, "last")), (first, second));
    let begins = time(&log, "beginsAfter");
    assert!(begins == time(&before, "beginsAfter") && begins <= first, "{log:?}");
    let page = ask_for_metrics(port, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    for (name, time) in [("begins", begins), ("newest", second)] {
        let line = format!("kilim_change_log_{name}_seconds ");
        let found = page.lines().find_map(|each| each.strip_prefix(&line));
        assert_eq!(found.and_then(|found| found.parse::<f64>().ok()), Some((time >> 32) as f64), "{page}");
    }
    assert_eq!(running.end(libc::SIGTERM).0, Some(0));
}

/// The newest commit in the trees, as the newer superblock says (docs/format.md).
fn commit_time_of_trees(dir: &Path) -> u64 {
    let bytes = std::fs::read(dir.join("kilim.db")).unwrap();
    let number = |block: usize, at: usize| {
        u64::from_le_bytes(bytes[4096 * block + at..][..8].try_into().expect("eight bytes"))
    };
    (0..2).map(|block| (number(block, 40), number(block, 128))).max().unwrap().1
}

#[test]
fn a_stop_has_the_time_that_it_was_given() {
    for (seconds, is_replayed) in [("60", false), ("0", true)] {
        let place = tempfile::tempdir().unwrap();
        let data = place.path().to_str().unwrap();
        let start = || Running::start(&["serve", "--port", "0", "--data", data, "--stop-within", seconds]);
        let running = start();
        let mut client = Client::connect(running.address.as_str()).unwrap();
        let reply = client.run("shop", doc! {"insert": "orders", "documents": [{"_id": 1}]}).unwrap();
        let time = time(&reply, "operationTime");
        assert_eq!(running.end(libc::SIGTERM).0, Some(0));
        let in_trees = commit_time_of_trees(place.path());
        assert_eq!(in_trees < time, is_replayed, "{in_trees} of {time}");
        let running = start();
        let mut client = Client::connect(running.address.as_str()).unwrap();
        assert_eq!(client.all("shop", doc! {"find": "orders"}).unwrap().len(), 1);
        assert_eq!(running.end(libc::SIGTERM).0, Some(0));
    }
}

#[test]
fn metrics_are_served_on_a_port_of_their_own() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let running =
        Running::start(&["serve", "--ephemeral", "--port", "0", "--metrics-port", &port.to_string()]);
    let mut client = kilim_client::Client::connect(running.address.as_str()).unwrap();
    client.run("shop", kilim_bson::doc! {"insert": "orders", "documents": [{"_id": 1}, {"_id": 2}]}).unwrap();
    let ask = |request: &str| ask_for_metrics(port, request);
    let page = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(page.contains("kilim_documents_total{what=\"inserted\"} 2\n"), "{page}");
    assert!(page.contains("kilim_commands_total{command=\"insert\"} 1\n"), "{page}");
    assert!(ask("GET /metrics?from=a HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
    assert!(ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    let (code, _) = running.end(libc::SIGTERM);
    assert_eq!(code, Some(0));
}

#[test]
fn server_status_tells_of_this_server() {
    let running = Running::start(&["serve", "--ephemeral", "--port", "0", "--max-connections", "10"]);
    let mut client = kilim_client::Client::connect(running.address.as_str()).unwrap();
    let mut status = || client.run("admin", kilim_bson::doc! {"serverStatus": 1}).unwrap();
    let figure = |status: &kilim_bson::Document, path: &[&str]| {
        let (last, parents) = path.split_last().unwrap();
        let mut at = status.as_raw();
        for name in parents {
            at = at.get(name).and_then(|inner| inner.as_document()).unwrap_or_else(|| panic!("{path:?}"));
        }
        kilim_client::whole(at.get(last)).unwrap_or_else(|| panic!("{path:?}"))
    };
    let before = status();
    let port = running.address.rsplit_once(':').unwrap().1;
    let host = before.get("host").and_then(|host| host.as_str()).unwrap();
    assert!(host.ends_with(&format!(":{port}")), "{host}");
    let connections = |name| figure(&before, &["connections", name]);
    assert_eq!(connections("current") + connections("available"), 10);
    let mut client = kilim_client::Client::connect(running.address.as_str()).unwrap();
    let mut run = |command| client.run("shop", command).unwrap();
    run(kilim_bson::doc! {"insert": "c", "documents": [{"_id": 1}, {"_id": 2}, {"_id": 3}]});
    run(kilim_bson::doc! {"find": "c", "filter": {"a": 1}, "sort": {"b": 1}});
    run(kilim_bson::doc! {"find": "c", "filter": {"_id": {"$gte": 2}}});
    let after = status();
    let grown = |path: &[&str]| figure(&after, path) - figure(&before, path);
    assert_eq!(grown(&["opcounters", "insert"]), 3);
    assert_eq!(grown(&["opcounters", "query"]), 2);
    // What has a counter of its own is not counted twice: this is serverStatus and the driver's greeting.
    assert!(grown(&["opcounters", "command"]) <= 2);
    assert_eq!(grown(&["metrics", "queryExecutor", "scanned"]), 2);
    assert_eq!(grown(&["metrics", "queryExecutor", "scannedObjects"]), 5);
    assert_eq!(grown(&["metrics", "operation", "scanAndOrder"]), 1);
    assert_eq!(grown(&["catalogStats", "collections"]), 1);
    assert!(figure(&after, &["extra_info", "page_reclaims"]) > 0);
}

#[test]
fn a_server_has_room_for_a_connection() {
    let (code, _, message) = output(&["serve", "--ephemeral", "--port", "0", "--max-connections", "0"]);
    assert_eq!(code, Some(2));
    assert!(message.contains("room for one connection"), "{message}");
}

#[test]
fn slow_commands_are_told_with_mongods_keys() {
    let options = ["serve", "--ephemeral", "--port", "0", "--slow-ms", "0", "--log-format", "mongod"];
    let running = Running::start(&options);
    let mut client = kilim_client::Client::connect(running.address.as_str()).unwrap();
    client.run("shop", kilim_bson::doc! {"find": "orders", "filter": {"secret": 42}}).unwrap();
    let (_, log) = running.end(libc::SIGTERM);
    let line = log.lines().find(|line| line.contains("Slow query")).unwrap_or_else(|| panic!("{log}"));
    let line = kilim_bson::parse_extended_json(line).unwrap();
    let names: Vec<&str> = line.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["t", "s", "c", "id", "ctx", "msg", "attr"]);
    let attributes = line.get("attr").and_then(|attributes| attributes.as_document()).unwrap();
    assert_eq!(attributes.get("ns").and_then(|ns| ns.as_str()), Some("shop.orders"));
    // What tools of mongod's logs look for.
    assert_eq!(kilim_client::whole(line.get("id")), Some(51803));
    assert_eq!(attributes.get("type").and_then(|kind| kind.as_str()), Some("command"));
    let command = attributes.get("command").and_then(|command| command.as_document()).unwrap();
    assert_eq!(command.get("find").and_then(|collection| collection.as_str()), Some("orders"));
    assert!(!log.contains("secret"), "the log must not tell what is asked for: {log}");
}

#[test]
fn the_library_and_the_server_open_a_directory_one_after_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    {
        let database = kilim::Database::open(data).unwrap().named("shop");
        let orders = database.collection::<kilim::bson::Document>("orders");
        orders.insert_one(kilim::bson::doc! {"_id": 1, "from": "library"}).run().unwrap();
    }
    let running = Running::start(&["serve", "--data", data, "--port", "0"]);
    assert!(kilim::Database::open(data).is_err(), "one program at a time");
    let mut client = kilim_client::Client::connect(running.address.as_str()).unwrap();
    client
        .run("shop", kilim_bson::doc! {"insert": "orders", "documents": [{"_id": 2, "from": "server"}]})
        .unwrap();
    let found = client.all("shop", kilim_bson::doc! {"find": "orders"}).unwrap();
    assert_eq!(found.len(), 2);
    running.end(libc::SIGTERM);
    let database = kilim::Database::open(data).unwrap().named("shop");
    let orders = database.collection::<kilim::bson::Document>("orders");
    assert_eq!(orders.count_documents(kilim::bson::doc! {}).run().unwrap(), 2);
}

#[test]
fn a_directory_with_something_else_in_it_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("thesis.tex"), "").unwrap();
    let data = directory.path().to_str().unwrap();
    let (code, _, message) = output(&["serve", "--data", data, "--port", "0"]);
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains(data) && message.contains("thesis.tex"), "{message}");
    assert_eq!(std::fs::read_dir(data).unwrap().count(), 1, "nothing was made in it");
    let (code, _, message) = output(&["serve", "--data", &format!("{data}/thesis.tex"), "--port", "0"]);
    assert!(code == Some(1) && message.contains("is a file"), "{message}");
}

#[test]
fn a_closed_terminal_and_a_log_rotation_do_not_end_the_server() {
    let mut server = Running::start(&["serve", "--ephemeral", "--port", "0"]);
    let mut client = kilim_client::Client::connect(&*server.address).unwrap();
    for (signal, name) in [(libc::SIGHUP, "SIGHUP"), (libc::SIGUSR1, "SIGUSR1"), (libc::SIGUSR2, "SIGUSR2")] {
        server.send(signal);
        server.read_log_until(name);
        client.hello().unwrap();
    }
    let (code, log) = server.end(libc::SIGTERM);
    assert_eq!(code, Some(0), "{log}");
}

#[test]
fn a_bound_on_the_size_of_files_is_told_like_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let mut bounded = std::process::Command::new("sh");
    bounded.args(["-c", "ulimit -f 8; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_kilim")]);
    bounded.args(["serve", "--port", "0", "--data"]).arg(folder.path().join("data"));
    let mut child = bounded.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let code = wait(&mut child);
    let message = read(child.stderr.take());
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("File too large"), "{message}");
}
