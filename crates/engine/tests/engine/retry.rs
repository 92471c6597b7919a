//! Retryable writes: told again, done once.

use std::time::{Duration, Instant};

use kilim_bson::doc;
use kilim_engine::ids::SessionId;
use kilim_engine::unit::Unit;
use kilim_engine::{layout, limits};
use kilim_error::{ErrorCode, Result};
use kilim_storage::Space;

use crate::support::{
    Db, Updating, delete, everywhere, find_and_modify, insert, number, numbered, update_statement,
};

const SESSION: SessionId = SessionId([7; 16]);

fn increment(unit: &mut Unit<'_>, statements: std::ops::Range<i32>) -> Result<Vec<(u64, u64)>> {
    statements
        .map(|statement| {
            let (matching, inc) = (doc! {"_id": statement}, doc! {"$inc": {"n": 1}});
            let outcome = update_statement(unit, "c", matching, inc, Updating::One, statement)?;
            Ok((outcome.matched, outcome.modified))
        })
        .collect()
}

#[test]
fn a_statement_told_twice_is_done_once() {
    everywhere(|db| {
        db.insert("c", &numbered(0..5, |_| doc! {"n": 0}));
        for told in 0..2 {
            let outcomes = db.run_numbered(SESSION, 1, |unit| increment(unit, 0..5)).unwrap();
            assert_eq!(outcomes, [(1, 1); 5], "told {told}");
            assert_eq!(db.count("c", doc! {"n": 1}), 5);
        }
        for told in 0..2 {
            let removed = db.run_numbered(SESSION, 2, |unit| delete(unit, "c", doc! {"n": 1}, true)).unwrap();
            assert_eq!(removed, 1, "told {told}");
            assert_eq!(db.count("c", doc! {}), 4);
        }
        let modify = |unit: &mut Unit<'_>| {
            find_and_modify(unit, "c", doc! {}, doc! {"$inc": {"n": 10}}, Some(doc! {"_id": -1}))
        };
        let values = [1, 2].map(|_| db.run_numbered(SESSION, 3, modify).unwrap().value.unwrap());
        assert_eq!(values[0], values[1]);
        assert_eq!(number(&values[0], "n"), 11);
        let upsert = |unit: &mut Unit<'_>| {
            update_statement(unit, "c", doc! {"k": 1}, doc! {"$set": {"x": 1}}, Updating::Upsert, 0)
        };
        let ids =
            [1, 2].map(|_| format!("{:?}", db.run_numbered(SESSION, 4, upsert).unwrap().upserted.unwrap()));
        assert_eq!(ids[0], ids[1]);
        assert_eq!(db.count("c", doc! {"k": 1}), 1);
        let error = db.run_numbered(SESSION, 3, modify).unwrap_err();
        assert_eq!(error.code(), ErrorCode::TransactionTooOld);
        db.check();
    });
}

#[test]
fn a_restart_does_not_forget_what_was_done() {
    let mut db = Db::disk();
    db.insert("c", &numbered(0..300, |_| doc! {"n": 0}));
    db.run_numbered(SESSION, 1, |unit| increment(unit, 0..300)).unwrap();
    db.reopen();
    let outcomes = db.run_numbered(SESSION, 1, |unit| increment(unit, 0..300)).unwrap();
    assert_eq!(outcomes, [(1, 1); 300]);
    assert_eq!(db.count("c", doc! {"n": 1}), 300);

    let mut transaction = db.transaction(7, 2);
    transaction.update("c", doc! {}, doc! {"$inc": {"n": 1}}).unwrap();
    transaction.commit().unwrap();
    db.reopen();
    // The answer to the commit was lost: asked again, it says the same.
    db.transaction(7, 2).commit().unwrap();
    assert_eq!(db.transaction(7, 1).find("c", doc! {}).unwrap_err().code(), ErrorCode::TransactionTooOld);
    assert_eq!(db.count("c", doc! {"n": 2}), 300);
    db.check();
}

#[test]
fn the_rest_of_a_batch_is_done_by_its_retry() {
    let mut db = Db::disk();
    db.insert("c", &numbered(0..500, |_| doc! {"n": 0}));
    db.run_numbered(SESSION, 1, |unit| increment(unit, 0..200)).unwrap();
    db.reopen();
    let outcomes = db.run_numbered(SESSION, 1, |unit| increment(unit, 0..500)).unwrap();
    assert_eq!(outcomes, [(1, 1); 500]);
    assert_eq!(db.count("c", doc! {"n": 1}), 500);
    db.check();
}

#[test]
fn a_batch_cut_off_by_its_time_goes_on_where_it_was() {
    everywhere(|db| {
        let batch = numbered(0..1000, |_| doc! {});
        // Somebody holds one of the ids, so the batch gets as far as there.
        let mut transaction = db.transaction(1, 1);
        transaction.insert("held", doc! {"_id": 0}).unwrap();
        transaction.abort().unwrap();
        db.insert("c", &[doc! {"_id": -1}]);
        let mut transaction = db.transaction(1, 2);
        transaction.insert("c", doc! {"_id": 700}).unwrap();
        let error = db
            .run_numbered(SESSION, 1, |unit| {
                unit.operation.set_time_limit(Some(Duration::from_millis(400)));
                insert(unit, "c", &batch, true)
            })
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::MaxTimeMSExpired);
        transaction.abort().unwrap();
        let done = db.count("c", doc! {"_id": {"$gte": 0}});
        assert!(done <= 700);
        let outcome = db.run_numbered(SESSION, 1, |unit| insert(unit, "c", &batch, true)).unwrap();
        assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
        assert_eq!(outcome.inserted, 1000);
        assert_eq!(db.count("c", doc! {"_id": {"$gte": 0}}), 1000);
        db.check();
    });
}

#[test]
fn the_end_of_a_session_in_memory_does_not_forget_its_writes() {
    everywhere(|db| {
        db.insert("c", &numbered(0..3, |_| doc! {"n": 0}));
        db.run_numbered(SESSION, 1, |unit| increment(unit, 0..3)).unwrap();
        db.engine.end_session(SESSION);
        assert!(db.engine.sessions.list().is_empty());
        db.run_numbered(SESSION, 1, |unit| increment(unit, 0..3)).unwrap();
        assert_eq!(db.count("c", doc! {"n": 1}), 3);
    });
}

#[test]
fn a_session_in_use_is_not_idle_and_not_doubled() {
    let db = Db::memory();
    let session = db.engine.sessions.get(&db.engine.store, SESSION).unwrap();
    let running = session.check_out();
    let later = Instant::now() + limits::SESSION_IDLE + Duration::from_secs(1);
    // Returns at once although an operation of the session runs.
    db.engine.forget_idle_sessions(later);
    assert_eq!(db.engine.sessions.list(), [SESSION]);
    std::thread::scope(|scope| {
        let ending = scope.spawn(|| db.engine.end_session(SESSION));
        std::thread::sleep(Duration::from_millis(20));
        let again = db.engine.sessions.get(&db.engine.store, SESSION).unwrap();
        assert!(std::sync::Arc::ptr_eq(&session, &again), "a retry must wait for what it retries");
        drop(running);
        ending.join().unwrap();
    });
    drop(session);
    db.engine.forget_idle_sessions(later);
    assert!(db.engine.sessions.list().is_empty());
}

#[test]
fn sessions_of_a_former_run_are_forgotten_in_time() {
    let mut db = Db::disk();
    db.insert("c", &numbered(0..3, |_| doc! {"n": 0}));
    let back = SessionId([8; 16]);
    for session in [SESSION, back] {
        db.run_numbered(session, 1, |unit| increment(unit, 0..3)).unwrap();
    }
    db.reopen();
    let records = |db: &Db| {
        let snapshot = db.engine.store.snapshot();
        let key = |id: SessionId| [&[layout::SESSION_TAG][..], &id.0].concat();
        [SESSION, back].map(|id| snapshot.get(Space::Meta, &key(id)).unwrap().is_some())
    };
    let later = Instant::now() + limits::SESSION_IDLE + Duration::from_secs(1);
    db.engine.forget_idle_sessions(Instant::now());
    assert_eq!(records(&db), [true, true]);
    let in_use = db.engine.sessions.get(&db.engine.store, back).unwrap();
    let _running = in_use.check_out();
    db.engine.forget_idle_sessions(later);
    assert_eq!(records(&db), [false, true]);
}

#[test]
fn an_update_that_changes_nothing_is_remembered_and_holds_nothing() {
    let db = Db::memory();
    db.insert("c", &numbered(0..2, |_| doc! {"n": 5}));
    let nothing = |unit: &mut Unit<'_>| {
        update_statement(unit, "c", doc! {"_id": 0}, doc! {"$set": {"n": 5}}, Updating::One, 0)
    };
    let outcome = db.run_numbered(SESSION, 1, nothing).unwrap();
    assert_eq!((outcome.matched, outcome.modified), (1, 0));
    db.update("c", doc! {"_id": 0}, doc! {"$set": {"n": 6}}).unwrap();
    let outcome = db.run_numbered(SESSION, 1, nothing).unwrap();
    assert_eq!((outcome.matched, outcome.modified), (1, 0));
    assert_eq!(db.count("c", doc! {"n": 6}), 1);
}

#[test]
fn a_number_reused_for_another_kind_of_write_is_answered_or_refused_as_mongod_does() {
    everywhere(|db| {
        db.insert("c", &numbered(0..5, |_| doc! {"n": 0}));
        let update = |unit: &mut Unit<'_>| {
            update_statement(unit, "c", doc! {"_id": 3}, doc! {"$inc": {"n": 1}}, Updating::One, 0)
        };
        let remove = |unit: &mut Unit<'_>| delete(unit, "c", doc! {"_id": 4}, true);
        let modify =
            |unit: &mut Unit<'_>| find_and_modify(unit, "c", doc! {"_id": 2}, doc! {"$inc": {"n": 1}}, None);
        let add = |unit: &mut Unit<'_>| insert(unit, "c", &[doc! {"_id": 100}], true);

        db.run_numbered(SESSION, 1, add).unwrap();
        assert_eq!(db.run_numbered(SESSION, 1, update).unwrap_err().code().0, 40_638);
        assert_eq!(db.run_numbered(SESSION, 1, modify).unwrap_err().code().0, 40_608);
        assert_eq!(db.run_numbered(SESSION, 1, remove).unwrap(), 1);

        db.run_numbered(SESSION, 2, remove).unwrap();
        assert_eq!(db.run_numbered(SESSION, 2, update).unwrap_err().code().0, 40_638);
        assert_eq!(db.run_numbered(SESSION, 2, modify).unwrap_err().code().0, 40_606);

        db.run_numbered(SESSION, 3, update).unwrap();
        assert_eq!(db.run_numbered(SESSION, 3, modify).unwrap_err().code().0, 40_611);

        db.run_numbered(SESSION, 4, modify).unwrap();
        let outcome = db.run_numbered(SESSION, 4, update).unwrap();
        assert_eq!((outcome.matched, outcome.modified), (1, 1));
        assert_eq!(db.count("c", doc! {"n": 1}), 2, "nothing was done twice");
        db.check();
    });
}
