//! `kilim check` and `kilim salvage` on directories that a server left.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use kilim_bson::{Document, RawValue, Value, array, doc, parse_extended_json};
use kilim_client::{Client, Fault, whole};

use crate::running::{Running, kilim, output, wait};

fn serve(dir: &Path) -> (Running, Client) {
    let server = Running::start(&["serve", "--port", "0", "--data", dir.to_str().unwrap()]);
    let client = Client::connect(&*server.address).unwrap();
    (server, client)
}

/// Two collections, one of them with indexes and a pattern.
fn fill(dir: &Path) {
    let (server, mut client) = serve(dir);
    for name in ["orders", "customers"] {
        for from in (0..3000).step_by(1000) {
            let documents = (from..from + 1000).map(|id: i32| {
                let noise: Vec<Value> = (0..20)
                    .map(|at| Value::Int32((id * 31 + at).wrapping_mul(0x9e37_79b1u32 as i32)))
                    .collect();
                Value::Document(
                    doc! {"_id": id, "customerId": id % 50, "name": format!("n{id}"), "noise": noise},
                )
            });
            client
                .run("shop", doc! {"insert": name, "documents": Value::Array(documents.collect())})
                .unwrap();
        }
    }
    let indexes = doc! {"createIndexes": "orders", "indexes": [
        {"key": {"customerId": 1}, "name": "by_customer"},
        {"key": {"noise": 1}, "name": "by_noise"},
        {"key": {"name": 1}, "name": "by_name", "unique": true},
    ]};
    client.run("shop", indexes).unwrap();
    let pattern = doc! {"createPattern": "orders", "name": "card", "extendedReference": {
    "from": "customers", "localField": "customerId", "as": "customer", "fields": {"name": 1}}};
    client.run("shop", pattern).unwrap();
    client.run("shop", doc! {"waitPattern": "orders", "name": "card"}).unwrap();
    for name in ["orders", "customers"] {
        // What was written goes to the trees.
        client.run("shop", doc! {"compact": name}).unwrap();
    }
    server.end(libc::SIGTERM);
}

fn check_json(dir: &Path) -> (Option<i32>, Document) {
    let (code, out, err) = output(&["check", dir.to_str().unwrap(), "--format", "json"]);
    let document = parse_extended_json(&out).unwrap_or_else(|error| panic!("{error}: {out} {err}"));
    (code, document)
}

/// Where the pages of a tree begin: records are space 1, index entries space 2.
fn pages(bytes: &[u8], level: u8, space: u8, prefix: u32) -> Vec<usize> {
    let is_wanted = |&at: &usize| {
        bytes[at + 8..at + 12] == *b"KPag"
            && bytes[at + 12] == level
            && bytes[at + 14] == space
            && bytes[at + 16..at + 20] == prefix.to_le_bytes()
    };
    (2..bytes.len() / 4096).map(|block| block * 4096).filter(is_wanted).collect()
}

fn collection(checked: &Document, ns: &str) -> Document {
    let all = checked.get("collections").and_then(RawValue::as_array).unwrap();
    let mut found = all.iter().filter_map(RawValue::as_document);
    let found = found.find(|each| each.get("ns").and_then(RawValue::as_str) == Some(ns));
    found.unwrap_or_else(|| panic!("{ns} in {checked:?}")).to_document()
}

fn count(document: &Document, name: &str) -> usize {
    document.get(name).and_then(RawValue::as_array).unwrap().iter().count()
}

#[test]
fn data_of_a_server_is_checked_and_salvaged() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("data");
    fill(&dir);
    let (code, checked) = check_json(&dir);
    assert_eq!(code, Some(0), "{checked:?}");
    let orders = collection(&checked, "shop.orders");
    assert_eq!(whole(orders.get("records")), Some(3000));
    assert_eq!(whole(orders.get("patterns")), Some(1));
    let (code, out, _) = output(&["check", dir.to_str().unwrap()]);
    assert_eq!(code, Some(0));
    assert!(out.contains("shop.orders") && out.contains("Nothing is wrong."), "{out}");

    // A byte of a leaf, and one of an inner page of the other collection, whose leaves are still there.
    let path = dir.join("kilim.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let trees: Vec<u32> = (1..20).filter(|tree| pages(&bytes, 0, 1, *tree).len() > 5).collect();
    assert_eq!(trees.len(), 2, "{trees:?}");
    let leaf = pages(&bytes, 0, 1, trees[0])[3];
    bytes[leaf + 99] ^= 1;
    for inner in pages(&bytes, 1, 1, trees[1]) {
        bytes[inner + 60] ^= 1;
    }
    std::fs::write(&path, &bytes).unwrap();
    let (code, checked) = check_json(&dir);
    assert_eq!(code, Some(1), "{checked:?}");
    let damaged: Vec<_> = ["shop.orders", "shop.customers"].map(|ns| collection(&checked, ns)).to_vec();
    assert!(damaged.iter().all(|each| count(each, "problems") > 0), "{checked:?}");

    let out = place.path().join("new");
    let arguments = ["salvage", dir.to_str().unwrap(), "--out", out.to_str().unwrap(), "--format", "json"];
    let (code, text, err) = output(&arguments);
    assert_eq!(code, Some(1), "{text} {err}");
    let salvaged = parse_extended_json(&text).unwrap();
    let found: Vec<i64> = ["shop.orders", "shop.customers"]
        .map(|ns| whole(collection(&salvaged, ns).get("records")).unwrap())
        .to_vec();
    // One leaf is lost, and nothing of the collection whose inner page was damaged.
    assert!(found.contains(&3000) && found.iter().all(|&records| records > 2500), "{found:?} {text}");
    assert!(found.iter().sum::<i64>() < 6000, "{found:?}");
    let (code, checked) = check_json(&out);
    let problems = ["shop.orders", "shop.customers"].map(|ns| collection(&checked, ns)).map(|each| {
        each.get("problems")
            .and_then(RawValue::as_array)
            .unwrap()
            .iter()
            .filter(|problem| !problem.as_str().unwrap_or_default().starts_with("pattern"))
            .count()
    });
    assert_eq!(problems, [0, 0], "{code:?} {checked:?}");

    let (server, mut client) = serve(&out);
    for (ns, records) in [("orders", found[0]), ("customers", found[1])] {
        let reply = client.run("shop", doc! {"count": ns}).unwrap();
        assert_eq!(whole(reply.get("n")), Some(records));
        let reply = client.run("shop", doc! {"validate": ns, "full": true}).unwrap();
        assert!(matches!(reply.get("valid"), Some(RawValue::Bool(true))), "{reply:?}");
    }
    client.run("shop", doc! {"insert": "orders", "documents": [{"_id": 90_000, "name": "new"}]}).unwrap();
    drop(server);
    // A second salvage does not write over the first.
    let (code, _, err) = output(&arguments);
    assert_eq!(code, Some(2));
    assert!(err.contains("holds a database"), "{err}");
}

/// A change stream over a database that begins now or behind a token, and the token behind which it goes on.
fn watch(client: &mut Client, options: Document) -> Result<Document, Fault> {
    let stages = array![{"$changeStream": options}];
    let reply = client.run("shop", doc! {"aggregate": 1, "pipeline": stages, "cursor": {}})?;
    let cursor = reply.get("cursor").and_then(RawValue::as_document).unwrap();
    let events = cursor.get("firstBatch").and_then(RawValue::as_array).unwrap().iter();
    let last = events.filter_map(|event| event.as_document()?.get("_id")).last();
    let token = last.or_else(|| cursor.get("postBatchResumeToken")).and_then(RawValue::as_document);
    Ok(token.unwrap().to_document())
}

#[test]
fn a_whole_directory_is_salvaged_wholly_but_for_the_change_log() {
    let place = tempfile::tempdir().unwrap();
    let (dir, out) = (place.path().join("data"), place.path().join("new"));
    fill(&dir);
    let (server, mut client) = serve(&dir);
    let mark = watch(&mut client, doc! {}).unwrap();
    client.run("shop", doc! {"insert": "customers", "documents": [{"_id": 5000}]}).unwrap();
    let event = watch(&mut client, doc! {"resumeAfter": mark.clone()}).unwrap();
    assert_ne!(event, mark);
    server.end(libc::SIGTERM);
    let (code, text, err) = output(&["salvage", dir.to_str().unwrap(), "--out", out.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{text} {err}");
    assert!(text.contains("Everything was copied"), "{text}");
    assert!(text.contains("the change log was left out"), "{text}");
    let (server, mut client) = serve(&out);
    for token in [mark, event] {
        let refused = watch(&mut client, doc! {"resumeAfter": token}).unwrap_err();
        assert_eq!(refused.code(), Some(286), "{refused}");
    }
    let begun = watch(&mut client, doc! {}).unwrap();
    client.run("shop", doc! {"insert": "customers", "documents": [{"_id": 5001}]}).unwrap();
    assert_ne!(watch(&mut client, doc! {"resumeAfter": begun.clone()}).unwrap(), begun);
    server.end(libc::SIGTERM);
    let (code, checked) = check_json(&out);
    assert_eq!(code, Some(0), "{checked:?}");
}

#[test]
fn what_cannot_be_checked_has_an_exit_code_of_its_own() {
    let place = tempfile::tempdir().unwrap();
    let (code, _, err) = output(&["check", place.path().join("nothing").to_str().unwrap()]);
    assert_eq!(code, Some(2), "{err}");
    let dir = place.path().join("data");
    let (_server, _) = serve(&dir);
    let (code, _, err) = output(&["check", dir.to_str().unwrap()]);
    assert_eq!(code, Some(2));
    assert!(err.contains("in use"), "{err}");
    let (code, _, err) =
        output(&["migrate", dir.to_str().unwrap(), "--out", place.path().join("x").to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(err.contains("no directory of an earlier Kilim"), "{err}");
}

#[test]
fn an_interrupted_salvage_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let (dir, out) = (place.path().join("data"), place.path().join("new"));
    let unfinished = place.path().join("new.unfinished");
    fill(&dir);
    let arguments = ["salvage", dir.to_str().unwrap(), "--out", out.to_str().unwrap()];
    // The last one cannot be caught: what it leaves is replaced by the next run.
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGKILL] {
        let mut child = kilim(&arguments).spawn().unwrap();
        // SAFETY: the process is our child and not yet waited for, so the id is its own.
        let send = |signal: i32| unsafe { libc::kill(child.id() as i32, signal) };
        // Its marker is there before anything that would have to be removed.
        while !unfinished.join(".unfinished").exists() {
            assert!(!out.exists());
            std::thread::yield_now();
        }
        send(libc::SIGSTOP);
        assert!(unfinished.exists(), "it was too quick");
        send(signal);
        send(libc::SIGCONT);
        wait(&mut child);
        assert_eq!(child.wait().unwrap().signal(), Some(signal));
        let left = std::fs::read_dir(place.path()).unwrap().count();
        assert_eq!(left, if signal == libc::SIGKILL { 2 } else { 1 }, "signal {signal}");
    }
    let (code, text, err) = output(&arguments);
    assert_eq!(code, Some(0), "{text} {err}");
    assert!(out.exists() && !unfinished.exists());
}

#[test]
fn names_of_others_are_shown_and_not_obeyed() {
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("data");
    let (server, mut client) = serve(&dir);
    let name = "a\x1b[2J\nshop.fake  9";
    client.run("shop", doc! {"insert": name, "documents": [{"_id": 1}]}).unwrap();
    client.run("admin", doc! {"createUser": "u\x1b[31m\ny", "pwd": "x", "roles": []}).unwrap();
    let (code, users, err) = output(&["user", "list", "--uri", &format!("mongodb://{}", server.address)]);
    assert_eq!(code, Some(0), "{err}");
    server.end(libc::SIGTERM);
    let (code, checked, err) = output(&["check", dir.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{err}");
    for (text, expected) in [(users, "\nu\\u001b[31m\\ny "), (checked, "\nshop.a\\u001b[2J\\nshop.fake  9 ")]
    {
        assert!(text.contains(expected) && !text.contains('\x1b'), "{text}");
    }
}
