//! Disk that is not needed any more is given back, without a restart and without anybody's asking.

use std::path::Path;
use std::time::Duration;

use kilim::Database;
use kilim::bson::{Document, doc};
use kilim_testkit::eventually;
use kilim_testkit::subject::disk_bytes;

fn open(dir: &Path) -> Database {
    // The change log has what was inserted, too, and a bound of its own.
    let hour = Duration::from_secs(3600);
    Database::options().cache_bytes(16 << 20).change_log(hour, Some(1 << 20)).open(dir).unwrap()
}

/// A kilobyte that does not compress.
fn document(id: i32) -> Document {
    let mut state = (id as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let text: String = (0..1000)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            char::from(b'!' + (state % 90) as u8)
        })
        .collect();
    doc! {"_id": id, "text": text}
}

#[test]
fn what_was_deleted_leaves_the_disk_while_the_database_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let database = open(dir.path());
    let empty = disk_bytes(dir.path()).unwrap();
    assert!(empty < 4 << 20, "an empty database takes {empty} bytes");
    let notes = database.collection::<Document>("notes");
    for from in (0..30_000).step_by(3000) {
        notes.insert_many((from..from + 3000).map(document)).run().unwrap();
    }
    database.run_command(doc! {"compact": "notes"}).unwrap();
    let full = disk_bytes(dir.path()).unwrap();
    assert!(full > 28 << 20, "{full}");
    notes.delete_many(doc! {"_id": {"$gte": 100}}).run().unwrap();
    // Up to 16 MB of free blocks are kept for what comes next, and some journal.
    eventually("the disk is given back", || disk_bytes(dir.path()).unwrap() < 20 << 20);
    assert_eq!(notes.count_documents(doc! {}).run().unwrap(), 100);
}
