//! `kilim backup` of a server that is written to meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};

use kilim_bson::{RawValue, Value, doc};
use kilim_client::{Client, whole};

use crate::running::{Running, output};

#[test]
fn a_backup_of_a_busy_server_can_be_served() {
    let place = tempfile::tempdir().unwrap();
    let (data, copy) = (place.path().join("data"), place.path().join("copy"));
    let server = Running::start(&["serve", "--port", "0", "--data", data.to_str().unwrap()]);
    let mut client = Client::connect(&*server.address).unwrap();
    let documents = |from: i32, count: i32| {
        Value::Array((from..from + count).map(|id| Value::Document(doc! {"_id": id, "a": id % 7})).collect())
    };
    client.run("d", doc! {"insert": "c", "documents": documents(0, 5000)}).unwrap();
    client.run("d", doc! {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}]}).unwrap();

    let stop = AtomicBool::new(false);
    let uri = format!("mongodb://{}", server.address);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut client = Client::connect(&*server.address).unwrap();
            let mut next = 5000;
            while !stop.load(Ordering::Relaxed) {
                client.run("d", doc! {"insert": "c", "documents": documents(next, 10)}).unwrap();
                next += 10;
            }
        });
        let (code, out, err) = output(&["backup", &uri, "--out", copy.to_str().unwrap()]);
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        assert_eq!(code, Some(0), "{out} {err}");
        assert!(out.contains("nothing is wrong"), "{out}");
    });
    let (code, _, err) = output(&["backup", &uri, "--out", copy.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(err.contains("holds a database"), "{err}");
    // Nothing is held any more.
    let reply = client.run("admin", doc! {"kilimBackup": 1, "read": 1, "offset": 0});
    assert_eq!(reply.unwrap_err().code(), Some(268));
    client.run("d", doc! {"drop": "c"}).unwrap();

    let served = Running::start(&["serve", "--port", "0", "--data", copy.to_str().unwrap()]);
    let mut client = Client::connect(&*served.address).unwrap();
    let count = whole(client.run("d", doc! {"count": "c"}).unwrap().get("n")).unwrap();
    assert!(count >= 5000 && count % 10 == 0, "{count}");
    let found = client.all("d", doc! {"find": "c", "sort": {"_id": 1}}).unwrap();
    assert!(found.iter().enumerate().all(|(at, each)| whole(each.get("_id")) == Some(at as i64)));
    let reply = client.run("d", doc! {"validate": "c", "full": true}).unwrap();
    assert!(matches!(reply.get("valid"), Some(RawValue::Bool(true))), "{reply:?}");
    client.run("d", doc! {"insert": "c", "documents": documents(1_000_000, 10)}).unwrap();
}

#[test]
fn nothing_is_written_into_the_directory_of_a_database() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let inside = data.join("copy");
    let (data, inside) = (data.to_str().unwrap(), inside.to_str().unwrap());
    for option in ["--log-file", "--audit"] {
        let (code, _, err) = output(&["serve", "--port", "0", "--data", data, option, inside]);
        assert_eq!(code, Some(1), "{option}");
        assert!(err.contains(option) && err.contains("outside"), "{err}");
        assert!(!std::path::Path::new(data).exists(), "{option}");
    }
    let server = Running::start(&["serve", "--port", "0", "--data", data]);
    let uri = format!("mongodb://{}", server.address);
    let files =
        || std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    let before = files();
    for arguments in [
        &["backup", &uri, "--out", inside][..],
        &["dump", "--uri", &uri, "--out", inside],
        &["export", "--uri", &uri, "--db", "d", "--collection", "c", "--out", inside],
        &["tls", "init", inside],
        &["salvage", place.path().to_str().unwrap(), "--out", inside],
        &["migrate", place.path().to_str().unwrap(), "--out", inside],
    ] {
        let (code, _, err) = output(arguments);
        assert!(code.is_some_and(|code| code > 0), "{arguments:?}");
        assert!(err.contains("lies in the database"), "{arguments:?}: {err}");
    }
    assert_eq!(files(), before);
}

#[test]
fn a_server_in_memory_has_nothing_to_copy() {
    let place = tempfile::tempdir().unwrap();
    let server = Running::start(&["serve", "--ephemeral", "--port", "0"]);
    let uri = format!("mongodb://{}", server.address);
    let out = place.path().join("copy");
    let (code, _, err) = output(&["backup", &uri, "--out", out.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(err.contains("in memory") && !out.exists(), "{err}");
}
