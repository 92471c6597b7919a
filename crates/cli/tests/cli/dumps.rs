//! Dumps that are whole or not there: names that lead elsewhere, servers that die, interruptions, second dumps.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kilim_bson::{Array, Document, RawValue, Value, doc};
use kilim_client::Client;

use crate::fake;
use kilim_testkit::eventually;

use crate::running::{Running, kilim, output, wait};

/// All files below a folder, by their names from it.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).into_iter().flatten() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false => found.push(path.strip_prefix(folder).unwrap().display().to_string()),
            }
        }
    }
    found.sort();
    found
}

/// A server with one database, one collection and one document. `more` answers what is asked for the rest.
fn one_collection(
    database: &'static str,
    collection: &'static str,
    more: impl Fn() -> Option<Document> + Send + Sync + 'static,
) -> String {
    let cursor = |id: i64, batch: Vec<Document>| {
        let batch: Array = batch.into_iter().map(Value::from).collect();
        doc! {"ok": 1.0, "cursor": {"id": id, "ns": "d.c", "firstBatch": batch}}
    };
    fake::serve(move |command| {
        let name = command.iter().next().map(|(name, _)| name.to_owned()).unwrap_or_default();
        Some(match &*name {
            "listDatabases" => doc! {"ok": 1.0, "databases": [{"name": database}]},
            "listCollections" => {
                cursor(0, vec![doc! {"name": collection, "type": "collection", "options": {}}])
            }
            "listIndexes" => cursor(0, Vec::new()),
            "startSession" => doc! {"ok": 1.0, "id": {"id": 1}},
            "find" => cursor(7, vec![doc! {"_id": 1}]),
            "getMore" => return more(),
            _ => doc! {"ok": 1.0, "n": 1},
        })
    })
}

fn the_end() -> Option<Document> {
    Some(doc! {"ok": 1.0, "cursor": {"id": 0_i64, "ns": "d.c", "nextBatch": []}})
}

#[test]
fn a_name_from_a_server_does_not_lead_out_of_the_folder() {
    let place = tempfile::tempdir().unwrap();
    let absolute: &'static str = Box::leak(place.path().join("abs").display().to_string().into_boxed_str());
    for name in ["../up", "..", ".", "", "a/b", absolute] {
        let uri = one_collection(name, "c", the_end);
        let folder = place.path().join("in/dump");
        let (code, _, message) = output(&["dump", "--uri", &uri, "--out", folder.to_str().unwrap()]);
        assert_eq!(code, Some(1), "{name}");
        assert!(message.contains(&format!("{name:?}")), "{message}");
        assert_eq!(files(place.path()), [""; 0], "{name}");
    }
    for name in ["../up", "../../up", "..", absolute] {
        let uri = one_collection("shop", name, the_end);
        let folder = place.path().join("in/dump");
        let (code, _, message) = output(&["dump", "--uri", &uri, "--out", folder.to_str().unwrap()]);
        assert_eq!(code, Some(0), "{name}: {message}");
        let written = files(place.path());
        assert_eq!(written.len(), 3, "{written:?}");
        assert!(written.iter().all(|file| file.starts_with("in/dump/")), "{written:?}");
        fs::remove_dir_all(folder).unwrap();
    }
}

#[test]
fn a_link_in_the_folder_does_not_lead_out_of_it() {
    let place = tempfile::tempdir().unwrap();
    let (elsewhere, folder) = (place.path().join("elsewhere"), place.path().join("dump"));
    fs::create_dir_all(&elsewhere).unwrap();
    fs::create_dir_all(&folder).unwrap();
    fs::write(elsewhere.join("c.bson"), "precious").unwrap();
    std::os::unix::fs::symlink(&elsewhere, folder.join("shop")).unwrap();
    for more in [&[][..], &["--replace"]] {
        let uri = one_collection("shop", "c", the_end);
        let arguments = [&["dump", "--uri", &uri, "--out", folder.to_str().unwrap()], more].concat();
        let (code, _, message) = output(&arguments);
        assert!(code == Some(1) && message.contains("is a link"), "{message}");
        assert_eq!(fs::read_to_string(elsewhere.join("c.bson")).unwrap(), "precious");
    }
}

#[test]
fn a_server_that_dies_leaves_no_dump() {
    let place = tempfile::tempdir().unwrap();
    let uri = one_collection("shop", "c", || None);
    let folder = place.path().join("a/dump");
    let (code, _, message) = output(&["dump", "--uri", &uri, "--out", folder.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(message.contains("connection lost"), "{message}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "{:?}", files(place.path()));
}

#[test]
fn an_interrupted_dump_or_export_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).display().to_string();
    let hang = || {
        std::thread::sleep(Duration::from_secs(60));
        None
    };
    fs::write(path("kept.json"), "old").unwrap();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        for arguments in [
            &["dump", "--out", &path("dump")][..],
            &["export", "--db", "shop", "--collection", "c", "--out", &path("new.json")],
            &["export", "--db", "shop", "--collection", "c", "--out", &path("kept.json")],
        ] {
            let uri = one_collection("shop", "c", hang);
            let mut child = kilim(&[arguments, &["--uri", &uri]].concat()).spawn().unwrap();
            eventually("an unfinished file is there", || {
                assert!(child.try_wait().unwrap().is_none(), "{arguments:?}");
                files(place.path()).iter().any(|file| file.contains("unfinished"))
            });
            // SAFETY: the process is our child and not yet waited for, so the id is its own.
            unsafe { libc::kill(child.id() as i32, signal) };
            wait(&mut child);
            assert_eq!(child.wait().unwrap().signal(), Some(signal), "{arguments:?}");
            assert_eq!(files(place.path()), ["kept.json"], "{arguments:?}");
            assert!(!place.path().join("dump").exists());
        }
    }
    assert_eq!(fs::read_to_string(path("kept.json")).unwrap(), "old");
}

#[test]
fn a_dump_that_is_being_written_is_not_replaced() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("dump").display().to_string();
    let slow = || {
        std::thread::sleep(Duration::from_secs(60));
        None
    };
    let dump = |uri: &str| kilim(&["dump", "--replace", "--out", &folder, "--uri", uri]).spawn().unwrap();
    let mut first = dump(&one_collection("shop", "c", slow));
    eventually("the dump is being written", || {
        assert!(first.try_wait().unwrap().is_none());
        files(place.path()).iter().any(|file| file.ends_with("c.bson"))
    });
    let quick = one_collection("shop", "c", the_end);
    let mut second = dump(&quick);
    assert_eq!(wait(&mut second), Some(1));
    let message = crate::running::read(second.stderr.take());
    assert!(message.contains("another process is writing"), "{message}");
    // One that was killed holds nothing.
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(wait(&mut dump(&quick)), Some(0));
    let written = files(place.path());
    assert_eq!(written, ["dump/kilim-dump.json", "dump/shop/c.bson", "dump/shop/c.metadata.json"]);
}

struct Shop {
    _server: Running,
    uri: String,
    client: Client,
    place: tempfile::TempDir,
}

impl Shop {
    fn open() -> Shop {
        let server = Running::start(&["serve", "--ephemeral", "--port", "0"]);
        let mut client = Client::connect(&*server.address).unwrap();
        for collection in ["a", "b"] {
            client.run("shop", doc! {"insert": collection, "documents": [{"_id": 1}, {"_id": 2}]}).unwrap();
        }
        let uri = format!("mongodb://{}/shop", server.address);
        Shop { _server: server, uri, client, place: tempfile::tempdir().unwrap() }
    }

    fn folder(&self) -> PathBuf {
        self.place.path().join("dump")
    }

    fn kilim(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let (code, _, message) = output(&[arguments, &["--uri", &self.uri]].concat());
        (code, message)
    }

    fn dump(&self, more: &[&str]) -> (Option<i32>, String) {
        let folder = self.folder();
        self.kilim(&[&["dump", "--out", folder.to_str().unwrap()], more].concat())
    }

    fn restore(&self) -> (Option<i32>, String) {
        let folder = self.folder();
        self.kilim(&["restore", folder.to_str().unwrap(), "--drop"])
    }
}

#[test]
fn a_dump_that_is_not_as_it_was_written_restores_nothing() {
    let mut shop = Shop::open();
    let (code, message) = shop.dump(&[]);
    assert_eq!(code, Some(0), "{message}");
    let file = shop.folder().join("shop/b.bson");
    let whole = fs::read(&file).unwrap();
    shop.client.run("shop", doc! {"drop": "a"}).unwrap();
    let mut other = whole.clone();
    other[10] ^= 1;
    // At the end of a document a cut file looks like a shorter one.
    for (content, expected) in
        [(&whole[..whole.len() / 2], "bytes instead of"), (&[], "0 bytes"), (&other, "checksum")]
    {
        fs::write(&file, content).unwrap();
        let (code, message) = shop.restore();
        assert_eq!(code, Some(1), "{expected}");
        assert!(message.contains("shop/b.bson") && message.contains(expected), "{message}");
    }
    fs::remove_file(&file).unwrap();
    let (code, message) = shop.restore();
    assert!(code == Some(1) && message.contains("is missing"), "{message}");
    let there = shop.client.all("shop", doc! {"listCollections": 1, "filter": {"name": "a"}}).unwrap();
    assert!(there.is_empty(), "nothing was restored");
    // The rest of it can be asked for.
    let folder = shop.folder().display().to_string();
    let (code, message) = shop.kilim(&["restore", &folder, "--collection", "a"]);
    assert_eq!(code, Some(0), "{message}");

    fs::write(&file, &whole).unwrap();
    fs::write(shop.folder().join("shop/stray.bson"), &whole).unwrap();
    let (code, message) = shop.restore();
    assert!(code == Some(0) && message.contains("shop/stray.bson"), "{message}");
    let there = shop.client.all("shop", doc! {"listCollections": 1, "filter": {"name": "stray"}}).unwrap();
    assert!(there.is_empty(), "what is not listed is no part of the dump");
}

#[test]
fn a_dump_without_a_manifest_is_restored_as_mongodumps() {
    let mut shop = Shop::open();
    assert_eq!(shop.dump(&["--gzip"]).0, Some(0));
    fs::remove_file(shop.folder().join("kilim-dump.json")).unwrap();
    for collection in ["a", "b"] {
        shop.client.run("shop", doc! {"drop": collection}).unwrap();
    }
    let (code, message) = shop.restore();
    assert_eq!(code, Some(0), "{message}");
    assert_eq!(shop.client.all("shop", doc! {"find": "b"}).unwrap().len(), 2);
    // One that was killed half way has left its folder.
    fs::create_dir(shop.folder().join("kilim-dump.unfinished")).unwrap();
    let (code, message) = shop.restore();
    assert!(code == Some(1) && message.contains("was not finished"), "{message}");
}

#[test]
fn a_second_dump_replaces_the_first_whole_or_not_at_all() {
    let mut shop = Shop::open();
    assert_eq!(shop.dump(&[]).0, Some(0));
    let first = files(&shop.folder());
    shop.client.run("shop", doc! {"drop": "a"}).unwrap();
    let (code, message) = shop.dump(&[]);
    assert_eq!(code, Some(1));
    assert!(message.contains("--replace") && message.contains("kilim-dump.json"), "{message}");
    assert_eq!(files(&shop.folder()), first);
    // A replacement that fails leaves the old one.
    let (code, message) = shop.dump(&["--replace", "--db", "shpo"]);
    assert_eq!(code, Some(1), "{message}");
    assert_eq!(files(&shop.folder()), first);
    // What is not of the dump stays.
    fs::write(shop.folder().join("shop/notes.txt"), "").unwrap();
    let (code, message) = shop.dump(&["--replace", "--gzip"]);
    assert_eq!(code, Some(0), "{message}");
    assert_eq!(
        files(&shop.folder()),
        ["kilim-dump.json", "shop/b.bson.gz", "shop/b.metadata.json.gz", "shop/notes.txt"]
    );
    let manifest = fs::read_to_string(shop.folder().join("kilim-dump.json")).unwrap();
    let manifest = kilim_bson::parse_extended_json(&manifest).unwrap();
    let listed = manifest.get("collections").and_then(RawValue::as_array).unwrap();
    let listed = listed.get(0).and_then(RawValue::as_document).unwrap();
    assert_eq!(kilim_client::whole(listed.get("documents")), Some(2));
    // The same for a dump that has no manifest, and for one that was never finished.
    fs::remove_file(shop.folder().join("kilim-dump.json")).unwrap();
    assert_eq!(shop.dump(&[]).0, Some(1));
    fs::remove_dir_all(shop.folder().join("shop")).unwrap();
    fs::create_dir_all(shop.folder().join("kilim-dump.unfinished/shop")).unwrap();
    let (code, message) = shop.dump(&[]);
    assert!(code == Some(1) && message.contains("was not finished"), "{message}");
    let (code, message) = shop.dump(&["--replace"]);
    assert_eq!(code, Some(0), "{message}");
    assert_eq!(files(&shop.folder()), ["kilim-dump.json", "shop/b.bson", "shop/b.metadata.json"]);
}

#[test]
fn an_export_that_fails_keeps_the_file_that_was_there() {
    let shop = Shop::open();
    let path = shop.place.path().join("out.json");
    fs::write(&path, "old").unwrap();
    let out = path.to_str().unwrap();
    let (code, _) = shop.kilim(&["export", "--collection", "a", "--query", "{$no: 1}", "--out", out]);
    assert_eq!((code, fs::read_to_string(&path).unwrap()), (Some(1), "old".to_owned()));
    let (code, message) = shop.kilim(&["export", "--collection", "a", "--out", out]);
    assert_eq!(code, Some(0), "{message}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\"_id\":1}\n{\"_id\":2}\n");
    assert_eq!(files(shop.place.path()), ["out.json"]);
    let (code, message) = shop.kilim(&["export", "--collection", "a", "--out", "/dev/full"]);
    assert!(code == Some(1) && message.contains("/dev/full"), "{message}");
}

#[test]
fn a_pipe_in_a_dump_is_refused_instead_of_waited_for() {
    let shop = Shop::open();
    assert_eq!(shop.dump(&[]).0, Some(0));
    let data = shop.folder().join("shop/a.bson");
    for pipe in [data, shop.folder().join("kilim-dump.json")] {
        std::fs::remove_file(&pipe).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let (code, message) = shop.restore();
        assert_eq!(code, Some(1), "{message}");
        assert!(message.contains("no regular file"), "{message}");
    }
}
