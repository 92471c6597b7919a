//! What the simulation has found, each as a short story of its own; and starts that are cut off at every change.

use super::super::TreeBackend;
use super::super::open::{Memory, TREES};
use super::model::{self, Rows};
use super::structure;
use crate::backend::Backend;
use crate::disk::memory::{Dice, MemoryDisk};
use crate::journal::Keep;
use crate::small::{self, Small};
use crate::space::{Bytes, Space, Write};
use kilim_error::{Error, StorageError};
use std::io;
use std::sync::Arc;

const MEMORY: Memory = Memory { cache_bytes: 0, tables_bytes_max: 64 << 10 };

const SMALL: Small = Small {
    leaf_bytes: 300,
    inner_bytes: 300,
    overflow_bytes_min: 500,
    portion_bytes_min: 1 << 20,
    slack_bytes: 16 << 20,
    journal_first: 8192,
    journal_largest: 65536,
};

fn open(disk: &MemoryDisk) -> kilim_error::Result<TreeBackend> {
    small::set(Some(SMALL));
    TreeBackend::open(Arc::new(disk.clone()), MEMORY, false, None)
}

fn key(tree: u8, number: u16) -> Vec<u8> {
    [&[0, 0, 0, tree][..], &number.to_be_bytes()].concat()
}

fn put(store: &TreeBackend, tree: u8, rows: std::ops::Range<u16>, byte: u8) {
    let writes: Vec<Write> = rows
        .map(|number| Write {
            space: Space::Records,
            key: Bytes::from(key(tree, number)),
            value: Some(Bytes::from(vec![byte; 30])),
        })
        .collect();
    store.apply(&mut writes.iter(), store.commit_time() + 1, true).unwrap();
}

fn checkpoint(store: &TreeBackend) -> kilim_error::Result<()> {
    store.checkpoint(&mut |step| step())
}

fn contents(store: &TreeBackend) -> Rows {
    model::contents(&store.view()).unwrap()
}

fn check_blocks(disk: &MemoryDisk, store: &TreeBackend) {
    let free = structure::check(disk).unwrap_or_else(|problems| panic!("{}", problems.join("\n")));
    let mut blocks = store.blocks.lock();
    blocks.shrink();
    assert!(blocks.free().iter().eq(free.iter()), "memory and disk differ in what is free");
}

#[test]
fn a_start_in_an_empty_directory_that_is_cut_off_anywhere_can_be_repeated() {
    for changes in 1..40 {
        for seed in 0..30 {
            let disk = MemoryDisk::default();
            disk.die_after(changes, seed * 1000);
            let opened = open(&disk).is_ok();
            let disk = disk.image().power_cut(&mut Dice(seed * 100 + changes));
            let store = open(&disk).unwrap_or_else(|error| panic!("after {changes} changes: {error}"));
            put(&store, 1, 0..5, 1);
            checkpoint(&store).unwrap();
            assert!(!opened || changes > 10, "a store is made in {changes} changes");
        }
    }
}

/// The process dies behind the renaming that makes a store and before the directory's sync. The next start finds the new name in
/// memory, and what it acknowledges must not go with that name.
#[test]
fn a_store_whose_first_start_was_killed_keeps_what_the_next_one_acknowledges() {
    for changes in 1..40 {
        let disk = MemoryDisk::default();
        disk.die_after(changes, 0);
        drop(open(&disk));
        let disk = disk.copy();
        let store = open(&disk).unwrap();
        put(&store, 1, 0..5, 1);
        for seed in 0..20 {
            let cut = disk.image().power_cut(&mut Dice(seed));
            let store = open(&cut).unwrap_or_else(|error| panic!("after {changes} changes: {error}"));
            assert_eq!(contents(&store).len(), 5, "after {changes} changes, seed {seed}");
        }
    }
}

#[test]
fn a_full_disk_keeps_a_store_from_being_made_and_nothing_else() {
    for room in (0..30_000).step_by(2048) {
        let disk = MemoryDisk::default();
        disk.set_room(Some(room));
        let made = open(&disk).is_ok();
        disk.set_room(None);
        let store = open(&disk).unwrap_or_else(|error| panic!("room {room}, made {made}: {error}"));
        put(&store, 1, 0..5, 1);
        checkpoint(&store).unwrap();
    }
}

#[test]
fn a_start_after_a_crash_that_is_cut_off_anywhere_loses_nothing() {
    let disk = MemoryDisk::default();
    let store = open(&disk).unwrap();
    put(&store, 1, 0..50, 1);
    checkpoint(&store).unwrap();
    put(&store, 1, 20..70, 2);
    let expected = contents(&store);
    drop(store);
    for changes in 1..20 {
        for seed in 0..30 {
            let second = disk.copy();
            second.die_after(changes, seed * 777);
            drop(open(&second));
            let third = second.image().power_cut(&mut Dice(seed * 100 + changes));
            let store = open(&third).unwrap_or_else(|error| panic!("after {changes} changes: {error}"));
            assert!(contents(&store) == expected, "after {changes} changes");
        }
    }
    for room in (0..80_000).step_by(4096) {
        let second = disk.copy();
        second.set_room(Some(room));
        drop(open(&second));
        second.set_room(None);
        assert!(contents(&open(&second).unwrap()) == expected, "with room for {room} bytes");
    }
}

/// The process dies between the superblock's write and its sync. The next start reads the superblock from memory.
#[test]
fn a_superblock_that_was_only_in_memory_is_on_disk_before_the_journal_behind_it_goes() {
    let disk = MemoryDisk::default();
    let store = open(&disk).unwrap();
    put(&store, 1, 0..50, 1);
    checkpoint(&store).unwrap();
    put(&store, 1, 0..50, 2);
    let expected = contents(&store);
    let mut is_written = false;
    disk.fail(move |operation, name, offset| {
        is_written |= operation == "write" && name == TREES && offset < 8192;
        match is_written && operation == "sync" {
            true => Err(io::Error::other("the process is dead")),
            false => Ok(()),
        }
    });
    assert!(checkpoint(&store).is_err());
    drop(store);
    for seed in 0..50 {
        let disk = disk.copy();
        let store = open(&disk).unwrap();
        put(&store, 2, 0..3, 3);
        drop(store);
        let store = open(&disk.image().power_cut(&mut Dice(seed))).unwrap();
        assert!(contents(&store).into_iter().filter(|((_, key), _)| key[3] == 1).eq(expected.clone()));
    }
}

/// A failed sync loses the file's new length, which the next process reads from memory. It would not extend the file for a last page
/// that does not fill its block, and a loss of power would leave a file that is shorter than its superblock says.
#[test]
fn a_length_that_a_failed_sync_has_lost_is_on_disk_after_the_next_start() {
    let disk = MemoryDisk::default();
    let store = open(&disk).unwrap();
    put(&store, 1, 0..50, 1);
    let failing = disk.clone();
    disk.fail(move |operation, name, _| match operation == "sync" && name == TREES {
        true => {
            failing.take_for_clean(TREES);
            Err(io::Error::other("a bad disk"))
        }
        false => Ok(()),
    });
    assert!(checkpoint(&store).is_err());
    drop(store);
    let disk = disk.copy();
    let length = disk.bytes(TREES).len();
    let expected = contents(&open(&disk).unwrap());
    let cut = disk.image().power_cut(&mut Dice(1));
    assert_eq!(cut.bytes(TREES).len(), length);
    assert_eq!(contents(&open(&cut).unwrap()), expected);
}

#[test]
fn a_load_fails_if_a_sync_of_its_file_has_failed_meanwhile() {
    let disk = MemoryDisk::default();
    let store = open(&disk).unwrap();
    put(&store, 1, 0..5, 1);
    let mut rows = (0..60).map(|number| {
        if number == 40 {
            let failing = disk.clone();
            disk.fail(move |operation, name, _| match operation == "sync" && name == TREES {
                true => {
                    failing.take_for_clean(TREES);
                    Err(io::Error::other("a bad disk"))
                }
                false => Ok(()),
            });
            assert!(checkpoint(&store).is_err());
            disk.heal();
        }
        Ok((key(9, number).into(), vec![1; 40].into()))
    });
    let loaded = store.ingest(Space::Index, &mut rows, &mut |step| step());
    assert!(matches!(loaded, Err(Error::Storage(StorageError::Poisoned(_)))), "{loaded:?}");
    drop(store);
    let store = open(&disk.image().power_cut(&mut Dice(1))).unwrap();
    assert_eq!(contents(&store).len(), 5);
}

#[test]
fn a_drop_behind_a_checkpoint_that_failed_leaves_no_row() {
    let disk = MemoryDisk::default();
    let store = open(&disk).unwrap();
    put(&store, 1, 0..50, 1);
    put(&store, 2, 0..5, 1);
    // Room for the journal's next segment, and not for pages.
    disk.set_room(Some(16384));
    assert!(checkpoint(&store).is_err());
    disk.set_room(None);
    put(&store, 1, 30..60, 2);
    store.drop_trees(&[(Space::Records, [0, 0, 0, 1])], &mut |step| step()).unwrap();
    assert_eq!(contents(&store).len(), 5);
    put(&store, 2, 5..6, 1);
    checkpoint(&store).unwrap();
    assert_eq!(contents(&store).len(), 6);
    check_blocks(&disk, &store);
    drop(store);
    assert_eq!(contents(&open(&disk).unwrap()).len(), 6);
}

#[test]
fn a_read_error_during_a_drop_loses_no_blocks() {
    let disk = MemoryDisk::default();
    let store = open(&disk).unwrap();
    put(&store, 1, 0..200, 1);
    checkpoint(&store).unwrap();
    let dropped = [(Space::Records, [0, 0, 0, 1])];
    let mut reads = 0;
    disk.fail_reads(move |_, _| {
        reads += 1;
        if reads == 2 { Err(io::Error::other("a bad sector")) } else { Ok(()) }
    });
    assert!(store.drop_trees(&dropped, &mut |step| step()).is_err());
    disk.heal();
    store.drop_trees(&dropped, &mut |step| step()).unwrap();
    assert!(contents(&store).is_empty());
    check_blocks(&disk, &store);
}

#[test]
fn a_first_checkpoint_on_a_full_disk_fails_and_a_later_one_succeeds() {
    for blocks in 0..12 {
        let disk = MemoryDisk::default();
        let store = open(&disk).unwrap();
        put(&store, 1, 0..20, 1);
        disk.set_room(Some(blocks * 4096));
        let failed = checkpoint(&store).is_err();
        disk.set_room(None);
        checkpoint(&store).unwrap_or_else(|error| panic!("{blocks} blocks, failed {failed}: {error}"));
        check_blocks(&disk, &store);
    }
}

#[test]
fn a_drop_makes_room_on_a_disk_that_has_none() {
    for frozen_before in [false, true] {
        let disk = MemoryDisk::default();
        let store = open(&disk).unwrap();
        put(&store, 2, 0..20, 1);
        checkpoint(&store).unwrap();
        for round in 0..10 {
            put(&store, 1, 100 * round..100 * round + 100, 1);
            checkpoint(&store).unwrap();
        }
        put(&store, 2, 0..30, 2);
        let before = disk.bytes(TREES).len();
        disk.set_room(Some(0));
        if frozen_before {
            assert!(checkpoint(&store).is_err(), "there is room");
        }
        let dropped = [(Space::Records, [0, 0, 0, 1])];
        // What the drop gives back is enough for a checkpoint of the rest.
        store.drop_trees(&dropped, &mut |step| step()).unwrap();
        assert!(disk.bytes(TREES).len() < before / 2, "{before} {}", disk.bytes(TREES).len());
        assert_eq!(contents(&store).len(), 30);
        check_blocks(&disk, &store);
        drop(store);
        assert_eq!(contents(&open(&disk).unwrap()).len(), 30);
    }
}

#[test]
fn a_load_whose_rows_fail_gives_its_blocks_back() {
    let disk = MemoryDisk::default();
    let store = open(&disk).unwrap();
    put(&store, 5, 0..5, 1);
    checkpoint(&store).unwrap();
    for failing_tree in [1, 5] {
        let rows = (0..50).map(|number| Ok((key(1, number).into(), vec![1; 40].into())));
        let failure = std::iter::once(Err(Error::bug("the rows end here")));
        let mut rows = match failing_tree {
            1 => rows.chain(failure).collect::<Vec<_>>().into_iter(),
            _ => rows
                .chain([Ok((key(5, 100).into(), vec![1].into()))])
                .chain(failure)
                .collect::<Vec<_>>()
                .into_iter(),
        };
        assert!(store.ingest(Space::Records, &mut rows, &mut |step| step()).is_err());
        assert_eq!(contents(&store).len(), 5);
        check_blocks(&disk, &store);
    }
}

#[test]
fn upkeep_makes_a_checkpoint_although_there_is_no_room_for_a_larger_spare() {
    let disk = MemoryDisk::default();
    let store = open(&disk).unwrap();
    // A small spare is kept while nothing is written; then the segment fills up, and the next should be larger.
    put(&store, 1, 0..60, 1);
    put(&store, 1, 0..60, 2);
    checkpoint(&store).unwrap();
    store.journal.keep_spares(Keep::Small).unwrap();
    let before = store.turn.lock().durable.epoch;
    put(&store, 1, 0..150, 3);
    let due = (0..20).any(|round| {
        put(&store, 1, 150 * round..150 * round + 150, 4);
        store.is_due()
    });
    assert!(due);
    let probe = disk.clone();
    disk.fail(move |operation, name, offset| {
        let grows = || name != TREES && offset >= probe.bytes(name).len() as u64;
        match operation == "create" || (operation == "write" && grows()) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    });
    assert!(store.journal.prepare_spare().is_err(), "there is room for a spare");
    let kept = store.maintain(&mut |step| step());
    disk.heal();
    assert!(kept.is_err() && store.turn.lock().durable.epoch > before, "{kept:?}");
}

#[test]
fn a_store_that_falls_quiet_has_a_small_journal() {
    let disk = MemoryDisk::default();
    let store = open(&disk).unwrap();
    (0..40).for_each(|round| put(&store, 1, 100 * round..100 * round + 100, 1));
    assert!(store.journal.bytes_on_disk() > 2 * SMALL.journal_largest);
    store.shrink_journal(&mut |step| step()).unwrap();
    assert!(store.journal.bytes_on_disk() > 2 * SMALL.journal_largest, "rows in memory need it");
    checkpoint(&store).unwrap();
    store.shrink_journal(&mut |step| step()).unwrap();
    store.journal.keep_spares(Keep::Small).unwrap();
    assert!(store.journal.bytes_on_disk() <= 2 * SMALL.journal_first);
    put(&store, 2, 0..3, 2);
    let expected = contents(&store);
    drop(store);
    assert_eq!(contents(&open(&disk).unwrap()), expected);
}

#[test]
fn a_journal_that_is_made_smaller_can_be_cut_off_anywhere() {
    for changes in 1..16 {
        for seed in 0..6 {
            let disk = MemoryDisk::default();
            let store = open(&disk).unwrap();
            (0..8).for_each(|round| put(&store, 1, 50 * round..50 * round + 50, 1));
            checkpoint(&store).unwrap();
            let expected = contents(&store);
            disk.die_after(changes, seed * 1000);
            let _ = store.shrink_journal(&mut |step| step());
            drop(store);
            let disk = disk.image().power_cut(&mut Dice(seed * 100 + changes));
            let store = open(&disk).unwrap_or_else(|error| panic!("after {changes} changes: {error}"));
            assert_eq!(contents(&store), expected);
            put(&store, 1, 0..5, 2);
            checkpoint(&store).unwrap();
            check_blocks(&disk, &store);
        }
    }
}

/// The process dies in a checkpoint, and the next one writes the same pages anew. One of them lands in the place of another, or
/// nowhere, so that in its own place is one that says the same of itself but for its birth; or it is in both places.
#[test]
fn a_page_that_landed_elsewhere_is_missed_and_is_not_taken_for_another() {
    let disk = MemoryDisk::default();
    let store = open(&disk).unwrap();
    put(&store, 1, 0..50, 1);
    checkpoint(&store).unwrap();
    put(&store, 1, 0..50, 2);
    disk.fail(|operation, name, offset| match operation == "write" && name == TREES && offset < 8192 {
        true => Err(io::Error::other("the process is dead")),
        false => Ok(()),
    });
    assert!(checkpoint(&store).is_err());
    drop(store);
    let written = |lands: Option<(u64, u64)>, also_there: bool| {
        let disk = disk.copy();
        let store = open(&disk).unwrap();
        put(&store, 1, 0..50, 3);
        let expected = contents(&store);
        let places = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let seen = Arc::clone(&places);
        disk.misdirect(move |name, offset| {
            if name != TREES || offset < 8192 {
                return None;
            }
            seen.lock().push(offset);
            let lands = lands.filter(|(from, _)| *from == offset && !also_there);
            lands.map(|(_, to)| (name.to_owned(), to))
        });
        checkpoint(&store).unwrap();
        drop(store);
        if let Some((from, to)) = lands.filter(|_| also_there) {
            disk.damage(TREES, |bytes| bytes.copy_within(from as usize..from as usize + 4096, to as usize));
        }
        let found = open(&disk).and_then(|store| model::contents(&store.view()));
        assert!(found.is_err() || found.is_ok_and(|found| found == expected), "{lands:?} gives other rows");
        std::mem::take(&mut *places.lock())
    };
    let places = written(None, false);
    assert!(places.len() > 5, "{places:?}");
    for from in &places {
        written(Some((*from, 1 << 20)), false);
        for to in &places {
            written(Some((*from, *to)), false);
            written(Some((*from, *to)), true);
        }
    }
}
