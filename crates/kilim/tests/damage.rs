//! A damaged page: what fails, what goes on, and how to get rid of it.

use std::path::Path;

use kilim::Database;
use kilim::bson::{Bson, Document, doc};
use kilim_testkit::eventually;

fn open(dir: &Path) -> Database {
    Database::options().cache_bytes(16 << 20).open(dir).unwrap()
}

/// Documents whose bytes do not compress, so that a collection has many pages.
fn document(id: i32) -> Document {
    let mut state = (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let text: String = (0..500)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            char::from(b'!' + (state % 90) as u8)
        })
        .collect();
    doc! {"_id": id, "group": id % 10, "text": text}
}

fn fill(database: &Database, name: &str) {
    let collection = database.collection::<Document>(name);
    collection.insert_many((0..2000).map(document)).run().unwrap();
    let indexes = doc! {"createIndexes": name, "indexes": [{"key": {"group": 1}, "name": "group_1"}]};
    database.run_command(indexes).unwrap();
    // What was written goes to the trees.
    database.run_command(doc! {"compact": name}).unwrap();
}

/// The places of a tree's leaves in the file's bytes: records are space 1, index entries space 2.
fn leaves(bytes: &[u8], space: u8, prefix: u32) -> Vec<usize> {
    let is_leaf = |&at: &usize| {
        bytes[at + 8..at + 13] == *b"KPag\0"
            && bytes[at + 14] == space
            && bytes[at + 16..at + 20] == prefix.to_le_bytes()
    };
    (2..bytes.len() / 4096).map(|block| block * 4096).filter(is_leaf).collect()
}

/// Damages a leaf of the first collection's records: the middle one, or the last.
fn damage(dir: &Path, last: bool) -> u64 {
    let path = dir.join("kilim.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let leaves = leaves(&bytes, 1, 1);
    assert!(leaves.len() > 10, "{}", leaves.len());
    // In the order of their places, which is the order of keys in a store that was filled once.
    let at = if last { leaves[leaves.len() - 1] } else { leaves[leaves.len() / 2] };
    bytes[at + 200] ^= 4;
    std::fs::write(&path, &bytes).unwrap();
    at as u64 / 4096
}

fn code(result: kilim::Result<Document>) -> i32 {
    result.unwrap_err().code().unwrap_or_else(|| panic!("an error without a code"))
}

/// Waits until a write succeeds, for as long as a background thread may take.
fn until_written(database: &Database, name: &str) {
    let collection = database.collection::<Document>(name);
    eventually("a write succeeds", || collection.insert_one(doc! {"late": 1}).run().is_ok());
}

fn texts(reply: &Document, name: &str) -> Vec<String> {
    let list = reply.get_array(name).unwrap();
    list.iter().map(|each| each.as_str().unwrap_or_default().to_owned()).collect()
}

fn a_damaged_collection_can_be_dropped(last: bool) {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    fill(&database, "bad");
    fill(&database, "good");
    drop(database);
    let block = damage(dir.path(), last);

    let database = open(dir.path());
    let scan =
        doc! {"aggregate": "bad", "pipeline": [{"$group": {"_id": "$text"}}, {"$count": "n"}], "cursor": {}};
    assert_eq!(code(database.run_command(scan.clone())), 301);
    assert_eq!(database.collection::<Document>("good").find(doc! {}).run().unwrap().count(), 2000);

    let reply = database.run_command(doc! {"validate": "bad"}).unwrap();
    assert_eq!(reply.get_bool("valid").ok(), Some(false), "{reply}");
    let errors = texts(&reply, "errors");
    assert!(errors.iter().any(|error| error.contains(&format!("at block {block} "))), "{errors:?}");
    let reply = database.run_command(doc! {"validate": "good", "full": true}).unwrap();
    assert_eq!(reply.get_bool("valid").ok(), Some(true), "{reply}");

    // A checkpoint cannot merge a change that belongs into the damaged leaf. From then on this collection takes no
    // writes, and all others do.
    let id = if last { 1_000_000 } else { 1000 };
    let change =
        doc! {"update": "bad", "updates": [{"q": {"_id": id}, "u": {"$set": {"x": 1}}, "upsert": true}]};
    let changed = database.run_command(change);
    if last {
        changed.unwrap();
        database.run_command(doc! {"compact": "good"}).unwrap();
        let refused = database.collection::<Document>("bad").insert_one(doc! {"a": 1}).run();
        assert_eq!(refused.unwrap_err().code(), Some(301));
        assert_eq!(database.collection::<Document>("good").find(doc! {}).run().unwrap().count(), 2000);
    }

    database.run_command(doc! {"drop": "bad"}).unwrap();
    until_written(&database, "good");
    until_written(&database, "bad");
    assert_eq!(database.collection::<Document>("bad").find(doc! {}).run().unwrap().count(), 1);
    database.run_command(doc! {"compact": "good"}).unwrap();
    drop(database);

    let database = open(dir.path());
    assert_eq!(database.collection::<Document>("good").find(doc! {}).run().unwrap().count(), 2001);
    for name in ["good", "bad"] {
        let reply = database.run_command(doc! {"validate": name, "full": true}).unwrap();
        assert_eq!(reply.get_bool("valid").ok(), Some(true), "{reply}");
    }
}

#[test]
fn a_collection_with_a_damaged_leaf_can_be_dropped() {
    a_damaged_collection_can_be_dropped(false);
}

#[test]
fn a_collection_whose_last_record_cannot_be_read_can_be_dropped() {
    a_damaged_collection_can_be_dropped(true);
}

#[test]
fn a_full_validation_reads_pages_from_disk() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    fill(&database, "bad");
    drop(database);
    let database = open(dir.path());
    // Everything is in the cache now.
    assert_eq!(database.run_command(doc! {"validate": "bad"}).unwrap().get_bool("valid").ok(), Some(true));
    let block = damage(dir.path(), false);
    let reply = database.run_command(doc! {"validate": "bad", "full": true}).unwrap();
    assert_eq!(reply.get_bool("valid").ok(), Some(false), "{reply}");
    assert!(texts(&reply, "errors")[0].contains(&format!("at block {block} ")), "{reply}");
}

#[test]
fn compact_says_what_it_freed() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    let notes = database.collection::<Document>("notes");
    for from in (0..20_000).step_by(2000) {
        notes.insert_many((from..from + 2000).map(document)).run().unwrap();
    }
    // First what is in memory goes to the trees, so that what follows is about these.
    database.run_command(doc! {"compact": "notes"}).unwrap();
    notes.delete_many(doc! {"group": {"$ne": 3}}).run().unwrap();
    let reply = database.run_command(doc! {"compact": "notes"}).unwrap();
    let Some(Bson::Int32(freed)) = reply.get("bytesFreed") else { panic!("{reply}") };
    assert!(*freed > 5_000_000, "{reply}");
    assert_eq!(notes.find(doc! {}).run().unwrap().count(), 2000);
    let reply = database.run_command(doc! {"validate": "notes", "full": true}).unwrap();
    assert_eq!(reply.get_bool("valid").ok(), Some(true), "{reply}");
    assert!(database.run_command(doc! {"compact": "missing"}).is_err());
}
