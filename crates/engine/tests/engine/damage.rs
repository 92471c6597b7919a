//! The background check of pages, and how far a compaction tells it is.

use kilim_bson::doc;

use crate::support::{Db, ns};

fn filled() -> Db {
    let db = Db::disk();
    for from in (0..3000).step_by(500) {
        let documents: Vec<_> =
            (from..from + 500).map(|id| doc! {"_id": id, "text": "some text ".repeat(20)}).collect();
        db.insert("c", &documents);
    }
    db.engine.store.checkpoint().unwrap();
    db
}

#[test]
fn a_pass_over_the_pages_counts_what_is_damaged() {
    let db = filled();
    let running = db.engine.operations.start(0);
    assert_eq!(db.engine.scrub_pages(&running, u64::MAX).unwrap(), 0);
    assert!(db.engine.page_scrub.bytes.get() > 10_000);

    let path = db.engine.options.data.clone().unwrap().join("kilim.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let leaf = (2..bytes.len() / 4096)
        .map(|block| block * 4096)
        .find(|&at| bytes[at + 8..at + 13] == *b"KPag\0" && bytes[at + 14] == 1)
        .unwrap();
    bytes[leaf + 70] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(db.engine.scrub_pages(&running, u64::MAX).unwrap(), 1);
    let scrub = &db.engine.page_scrub;
    assert_eq!((scrub.passes.get(), scrub.damaged_pages.get()), (2, 1));

    // A bounded rate takes its time, and an operation that is ended need not wait for it.
    running.kill();
    assert!(db.engine.scrub_pages(&running, 1).is_err());
}

#[test]
fn a_compaction_tells_how_far_it_is_and_can_be_ended() {
    let db = filled();
    let running = db.engine.operations.start(0);
    let collection = db.engine.collection(&ns("c")).unwrap();
    db.engine.compact(&collection, &running).unwrap();
    let progress = running.progress().unwrap();
    assert!(progress.total > 0 && progress.done == progress.total, "{progress:?}");
    running.kill();
    assert!(db.engine.compact(&collection, &running).is_err());
    db.check();
}
