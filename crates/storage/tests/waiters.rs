//! Waiting for a commit: nobody looks in between.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kilim_storage::{Durability, Options, Space, Store};

fn commit(store: &Store, key: &[u8]) {
    let mut transaction = store.begin();
    transaction.put(Space::Meta, key, b"value".as_slice());
    transaction.commit(Durability::Relaxed).unwrap();
}

fn far_away() -> Instant {
    Instant::now() + Duration::from_secs(600)
}

#[test]
fn a_thousand_waiters_look_once_and_then_only_after_a_commit() {
    let store = Store::in_memory(Options::default());
    let (looks, waiters) = (AtomicUsize::new(0), 1000);
    let seen = store.last_commit_time();
    thread::scope(|scope| {
        for _ in 0..waiters {
            let wait = || {
                store.wait_past(seen, far_away(), &|| {
                    looks.fetch_add(1, Ordering::Relaxed);
                    false
                });
                assert!(store.last_commit_time() > seen);
            };
            thread::Builder::new().stack_size(64 * 1024).spawn_scoped(scope, wait).unwrap();
        }
        while looks.load(Ordering::Relaxed) < waiters {
            thread::yield_now();
        }
        // Whoever looked at intervals would look again by now.
        thread::sleep(Duration::from_millis(50));
        assert_eq!(looks.load(Ordering::Relaxed), waiters);
        commit(&store, b"key");
    });
    assert_eq!(looks.load(Ordering::Relaxed), waiters, "a commit ends the wait by itself");
}

#[test]
fn a_commit_before_the_wait_is_not_missed() {
    let store = Store::in_memory(Options::default());
    let seen = store.last_commit_time();
    commit(&store, b"key");
    store.wait_past(seen, far_away(), &|| false);
}

#[test]
fn a_wait_ends_at_its_time_and_when_it_is_told_to() {
    let store = Store::in_memory(Options::default());
    let seen = store.last_commit_time();
    store.wait_past(seen, Instant::now() + Duration::from_millis(1), &|| false);
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| store.wait_past(seen, far_away(), &|| ended.load(Ordering::Relaxed)));
        ended.store(true, Ordering::Relaxed);
        store.waiters().wake();
    });
    assert_eq!(store.last_commit_time(), seen);
}

#[test]
fn no_commit_is_missed_between_a_look_and_the_sleep() {
    let store = Store::in_memory(Options::default());
    for _ in 0..500 {
        let seen = store.last_commit_time();
        thread::scope(|scope| {
            scope.spawn(|| store.wait_past(seen, far_away(), &|| false));
            commit(&store, b"key");
        });
    }
}
