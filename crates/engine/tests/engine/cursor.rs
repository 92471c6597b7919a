//! Cursors: what they show, who may have them, when they end.

use std::time::{Duration, Instant};

use kilim_bson::{Document, RawDocument, Writer, doc};
use kilim_engine::cursor::{Batch, Cursor, CursorSource, Cursors, PutBack};
use kilim_engine::ids::SessionId;
use kilim_engine::limits;
use kilim_engine::operator::ExecContext;
use kilim_engine::plan::ReadRequest;
use kilim_engine::read;
use kilim_engine::unit::Unit;
use kilim_error::{ErrorCode, Result};

use crate::support::{Db, everywhere, filter, ns, numbered, spec};

fn open(unit: &mut Unit<'_>, collection: &str, matching: Document) -> Result<Cursor> {
    let reading = read::plan(unit, &ns(collection), ReadRequest::new(filter(matching)))?;
    let id = reading.collection.as_ref().map(|collection| collection.id);
    let mut cursor = Cursor::new(ns(collection), CursorSource::Executor(Box::new(reading.execute())));
    cursor.collection = id;
    Ok(cursor)
}

/// How many documents a batch has, and whether it was the last.
fn batch(cursor: &mut Cursor, batch: Batch) -> (usize, bool) {
    let mut writer = Writer::new();
    writer.open_array("batch");
    let exhausted = cursor.fill(&mut writer, batch, &mut ExecContext::new(&|| Ok(()))).unwrap();
    writer.close();
    let bytes = writer.finish_bytes();
    let document = RawDocument::parse(&bytes).unwrap();
    (document.get("batch").unwrap().as_array().unwrap().len(), exhausted)
}

#[test]
fn a_cursor_shows_the_moment_it_was_opened() {
    everywhere(|db| {
        db.insert("c", &numbered(0..300, |id| doc! {"a": id}));
        db.build("c", vec![spec(doc! {"a": 1})]).unwrap();
        for matching in [doc! {}, doc! {"a": {"$gte": 0}}] {
            let mut cursor = db.run(|unit| open(unit, "c", matching)).unwrap();
            assert_eq!(batch(&mut cursor, Batch::first(None)), (101, false));
            db.delete("c", doc! {"_id": {"$gte": 200}}).unwrap();
            db.update_many("c", doc! {}, doc! {"$inc": {"a": 1000}}).unwrap();
            assert_eq!(batch(&mut cursor, Batch::next(Some(100))), (100, false));
            let (rest, _) = batch(&mut cursor, Batch::next(None));
            assert_eq!(rest, 99);
            db.update_many("c", doc! {}, doc! {"$inc": {"a": -1000}}).unwrap();
            db.insert("c", &numbered(200..300, |id| doc! {"a": id}));
        }
        db.check();
    });
}

#[test]
fn a_dropped_collection_takes_its_cursors_along() {
    everywhere(|db| {
        for in_use in [false, true] {
            db.insert("c", &numbered(0..300, |_| doc! {}));
            db.insert("other", &[doc! {}]);
            let cursor = db.run(|unit| open(unit, "c", doc! {})).unwrap();
            let other = db.run(|unit| open(unit, "other", doc! {})).unwrap();
            let (id, kept) =
                (db.engine.cursors.open(cursor).unwrap(), db.engine.cursors.open(other).unwrap());
            let taken = in_use.then(|| db.engine.cursors.take(id).unwrap());
            db.drop_collection("c").unwrap();
            if let Some(cursor) = taken {
                db.engine.cursors.put_back(id, cursor);
            }
            assert_eq!(db.engine.cursors.take(id).err().unwrap().code(), ErrorCode::CursorNotFound);
            assert!(db.engine.cursors.kill(kept));
            assert_eq!(db.engine.cursors.count(), 0);
        }
    });
}

#[test]
fn a_cursor_in_use_is_nobody_elses_and_can_be_killed() {
    let db = Db::memory();
    db.insert("c", &numbered(0..300, |_| doc! {}));
    let cursors = &db.engine.cursors;
    let id = cursors.open(db.run(|unit| open(unit, "c", doc! {})).unwrap()).unwrap();
    let taken = cursors.take(id).unwrap();
    assert_eq!(cursors.take(id).err().unwrap().code(), ErrorCode::CursorInUse);
    assert!(!cursors.is_killed(id));
    assert!(cursors.kill(id));
    assert!(cursors.is_killed(id), "whoever waits with it is to see that");
    assert_eq!(cursors.put_back(id, taken), PutBack::Killed);
    assert_eq!(cursors.take(id).err().unwrap().code(), ErrorCode::CursorNotFound);
    assert!(!cursors.kill(id));
}

#[test]
fn idle_cursors_are_closed_unless_they_may_live() {
    let db = Db::memory();
    db.insert("c", &numbered(0..300, |_| doc! {}));
    let cursors = &db.engine.cursors;
    let idle = cursors.open(db.run(|unit| open(unit, "c", doc! {})).unwrap()).unwrap();
    let mut immortal = db.run(|unit| open(unit, "c", doc! {})).unwrap();
    immortal.immortal = true;
    let immortal = cursors.open(immortal).unwrap();
    let in_use = cursors.open(db.run(|unit| open(unit, "c", doc! {})).unwrap()).unwrap();
    let taken = cursors.take(in_use).unwrap();
    cursors.close_idle(Instant::now() + limits::CURSOR_IDLE - Duration::from_secs(5), limits::CURSOR_IDLE);
    assert_eq!(cursors.count(), 3);
    cursors.close_idle(Instant::now() + limits::CURSOR_IDLE + Duration::from_secs(5), limits::CURSOR_IDLE);
    assert_eq!(cursors.take(idle).err().unwrap().code(), ErrorCode::CursorNotFound);
    assert!(cursors.take(immortal).is_ok());
    cursors.put_back(in_use, taken);
    assert!(cursors.take(in_use).is_ok(), "one that is read from is not idle");
}

#[test]
fn the_end_of_a_session_closes_its_cursors_in_use_or_not() {
    let db = Db::memory();
    db.insert("c", &numbered(0..300, |_| doc! {}));
    let cursors = &db.engine.cursors;
    let session = SessionId([3; 16]);
    let open_in = |session: Option<SessionId>| {
        let mut cursor = db.run(|unit| open(unit, "c", doc! {})).unwrap();
        cursor.session = session;
        cursors.open(cursor).unwrap()
    };
    let (idle, in_use, others, nobodys) =
        (open_in(Some(session)), open_in(Some(session)), open_in(Some(SessionId([4; 16]))), open_in(None));
    let taken = cursors.take(in_use).unwrap();
    db.engine.end_session(session);
    assert_eq!(cursors.put_back(in_use, taken), PutBack::Closed);
    for gone in [idle, in_use] {
        assert_eq!(cursors.take(gone).err().unwrap().code(), ErrorCode::CursorNotFound);
    }
    assert!(cursors.take(others).is_ok() && cursors.take(nobodys).is_ok());
}

#[test]
fn batches_are_bounded_by_bytes_and_never_empty() {
    let db = Db::memory();
    let text = "x".repeat(limits::DOCUMENT_BYTES_MAX - 64);
    for id in 0..3 {
        db.insert("c", &[doc! {"_id": id, "text": &text}]);
    }
    db.insert("c", &numbered(3..6, |_| doc! {"text": &text[..6 << 20]}));
    let mut cursor = db.run(|unit| open(unit, "c", doc! {})).unwrap();
    let mut sizes = Vec::new();
    loop {
        let (size, exhausted) = batch(&mut cursor, Batch::next(None));
        sizes.push(size);
        if exhausted {
            break;
        }
    }
    assert_eq!(sizes, [1, 1, 1, 2, 1]);
    assert_eq!(cursor.returned, 6);
}

#[test]
fn a_first_batch_of_none_loses_nothing() {
    let db = Db::memory();
    db.insert("c", &numbered(0..5, |_| doc! {}));
    let mut cursor = db.run(|unit| open(unit, "c", doc! {})).unwrap();
    assert_eq!(batch(&mut cursor, Batch::first(Some(0))), (0, false));
    assert_eq!(batch(&mut cursor, Batch::next(Some(0))).0, 5);
}

#[test]
fn a_cursor_in_a_transaction_shows_its_statements_moment() {
    everywhere(|db| {
        db.insert("c", &numbered(0..150, |id| doc! {"a": id}));
        let mut transaction = db.transaction(1, 1);
        transaction.insert("c", doc! {"_id": 1000, "a": 1000}).unwrap();
        let mut cursor = transaction.run(|unit| open(unit, "c", doc! {})).unwrap();
        assert_eq!(batch(&mut cursor, Batch::first(None)).0, 101);
        transaction.insert("c", doc! {"_id": 1001}).unwrap();
        transaction.update("c", doc! {"_id": 1000}, doc! {"$set": {"a": 0}}).unwrap();
        db.insert("c", &[doc! {"_id": 1002}]);
        assert_eq!(batch(&mut cursor, Batch::next(None)).0, 50, "151 in all");
        transaction.commit().unwrap();
        db.check();
    });
}

#[test]
fn one_client_with_many_cursors_does_not_end_the_reads_of_others() {
    let db = Db::memory();
    db.insert("c", &numbered(0..300, |_| doc! {}));
    let cursors = Cursors::with_limit(100);
    let open_by = |connection: u64| {
        let mut cursor = db.run(|unit| open(unit, "c", doc! {})).unwrap();
        cursor.connection = connection;
        cursors.open(cursor)
    };
    let others: Vec<i64> = (0..10).map(|_| open_by(1).unwrap()).collect();
    let many: Vec<i64> = (0..500).map(|_| open_by(2).unwrap()).collect();
    let late = open_by(3).unwrap();
    assert_eq!(cursors.count(), 100);
    for id in others.iter().chain([&late]) {
        assert!(cursors.take(*id).is_ok(), "a cursor of somebody else");
    }
    assert_eq!(cursors.take(many[0]).err().unwrap().code(), ErrorCode::CursorNotFound);
    assert!(cursors.take(many[499]).is_ok(), "the newest of the many");
}
