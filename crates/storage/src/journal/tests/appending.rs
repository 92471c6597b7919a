//! Writing: segments, spares, failures of the disk, several threads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::*;
use crate::disk::{Disk, directory::Directory};

#[test]
fn segments_double_while_they_fill_up_and_their_slots_are_recycled() {
    let disk = MemoryDisk::default();
    let (journal, start) = created(&disk);
    let mut sequence = 1;
    while journal.state.lock().segments.len() < 5 {
        append(&journal, sequence, false);
        sequence += 1;
    }
    let sizes: Vec<u64> = journal.state.lock().segments.iter().map(|segment| segment.slot.size).collect();
    assert_eq!(sizes, [8192, 16384, 32768, 32768, 32768]);
    assert_eq!(journal.bytes_on_disk(), sizes.iter().sum::<u64>());
    let (_, batches) = recovered(&disk, start).unwrap();
    assert_eq!(batches, sequence - 1);

    let start = journal.roll().unwrap();
    assert_eq!((start.sequence, start.position), (sequence, journal.appended()));
    journal.release_before(&start, Keep::One).unwrap();
    // One spare, and the active segment, made smaller because the one before was ended almost empty.
    assert_eq!(disk.list().unwrap().len(), 2);
    assert_eq!(journal.bytes_on_disk(), 32768 + 16384);
    let slots = disk.list().unwrap();
    append_all(&journal, sequence..=sequence + 150, false);
    assert_eq!(disk.list().unwrap(), slots, "the spare was used");
    assert_eq!(journal.state.lock().segments.len(), 2);
    assert_eq!(recovered(&disk, start).unwrap().1, 151);

    let start = journal.roll().unwrap();
    journal.release_before(&start, Keep::Small).unwrap();
    assert_eq!(disk.list().unwrap().len(), 1, "an idle store keeps no large spare");
}

#[test]
fn a_store_that_goes_on_writing_makes_no_more_slots() {
    let disk = MemoryDisk::default();
    let (journal, _) = created(&disk);
    let mut sequence = 1;
    let mut write = |journal: &Journal| {
        append_all(journal, sequence..=sequence + 999, false);
        sequence += 1000;
        let start = journal.roll().unwrap();
        journal.release_before(&start, Keep::AsReleased).unwrap();
    };
    (0..3).for_each(|_| write(&journal));
    let (slots, bytes) = (disk.list().unwrap(), journal.bytes_on_disk());
    assert!(slots.len() > 3);
    let created = Arc::new(AtomicBool::new(false));
    let seen = created.clone();
    disk.fail(move |operation, _, _| {
        seen.fetch_or(operation == "create", Ordering::SeqCst);
        Ok(())
    });
    (0..20).for_each(|_| write(&journal));
    assert!(!created.load(Ordering::SeqCst), "each slot is used again");
    assert_eq!((disk.list().unwrap(), journal.bytes_on_disk()), (slots, bytes));
    journal.keep_spares(Keep::Small).unwrap();
    assert_eq!(disk.list().unwrap().len(), 1, "an idle store keeps no large spare");
}

#[test]
fn a_roll_without_a_batch_changes_nothing() {
    let disk = MemoryDisk::default();
    let (journal, start) = created(&disk);
    let changes = disk.changes();
    assert_eq!(journal.roll().unwrap(), start);
    assert_eq!(disk.changes(), changes);
    append(&journal, 1, true);
    let next = journal.roll().unwrap();
    assert_eq!((next.segment, next.sequence), (2, 2));
    assert_eq!(journal.roll().unwrap(), next);
}

#[test]
fn a_batch_larger_than_a_segment_gets_one_of_its_own_size() {
    let disk = MemoryDisk::default();
    let (journal, start) = created(&disk);
    append(&journal, 1, true);
    let large = vec![7; 100_000];
    journal.append(2, 0, &[&large, b"end"], true).unwrap();
    append(&journal, 3, true);
    let mut lengths = Vec::new();
    let replay = &mut |_: u64, _: u64, bytes: &[u8]| {
        lengths.push(bytes.len());
        Ok(())
    };
    Journal::recover(Arc::new(disk.copy()), STORE, start, replay).unwrap();
    assert_eq!(lengths, [37, 100_003, 111]);
    let start = journal.roll().unwrap();
    journal.release_before(&start, Keep::AsReleased).unwrap();
    assert!(journal.bytes_on_disk() <= 65536, "a slot of unusual size is no spare");
}

#[test]
fn a_spare_is_prepared_once_the_active_segment_is_half_full() {
    let disk = MemoryDisk::default();
    let (journal, start) = created(&disk);
    let mut sequence = 1;
    // Half of what the header leaves of the first segment.
    while journal.appended() <= 2048 {
        journal.prepare_spare().unwrap();
        assert_eq!(disk.list().unwrap(), ["journal.0"]);
        append(&journal, sequence, false);
        sequence += 1;
    }
    journal.prepare_spare().unwrap();
    assert_eq!(journal.state.lock().spares[0].size, 16384);
    let changes = disk.changes();
    journal.prepare_spare().unwrap();
    assert_eq!(disk.changes(), changes, "one spare is enough");
    let (found, batches) = recovered(&disk, start).unwrap();
    assert_eq!(batches, sequence - 1);
    assert_eq!(found.journal.state.lock().spares.len(), 1, "a recovery finds the spare");
    journal.roll().unwrap();
    assert_eq!(disk.list().unwrap(), ["journal.0", "journal.1"], "the roll used the spare");
}

#[test]
fn a_spare_that_is_too_small_is_extended_or_stays_as_it_was() {
    let disk = MemoryDisk::default();
    let (journal, start) = created(&disk);
    append(&journal, 1, false);
    let next = journal.roll().unwrap();
    journal.release_before(&next, Keep::AsReleased).unwrap();
    let mut sequence = 2;
    while journal.appended() - next.position <= 2048 {
        append(&journal, sequence, false);
        sequence += 1;
    }
    disk.fail(|operation, _, _| match operation {
        "write" => Err(io::Error::from(io::ErrorKind::StorageFull)),
        _ => Ok(()),
    });
    assert!(journal.prepare_spare().is_err());
    assert_eq!(journal.state.lock().spares[0].size, 8192);
    disk.heal();
    journal.prepare_spare().unwrap();
    assert_eq!(journal.state.lock().spares[0].size, 16384);
    assert_eq!(disk.list().unwrap().len(), 2);
    append_all(&journal, sequence..=sequence + 30, true);
    assert_eq!(recovered(&disk, next).unwrap().1, sequence + 30 - 1);
    assert!(recovered(&disk, start).is_err());
}

#[test]
fn a_full_disk_fails_an_append_that_needs_a_segment_and_a_smaller_one_goes_on() {
    let disk = MemoryDisk::default();
    let (journal, start) = created(&disk);
    append_all(&journal, 1..=3, true);
    for failing in ["create", "write", "sync", "sync_directory"] {
        disk.fail(move |operation, name, _| match operation == failing && name != "journal.0" {
            true => Err(io::Error::from(io::ErrorKind::StorageFull)),
            false => Ok(()),
        });
        let (position, synced) = (journal.appended(), journal.synced());
        let error = journal.append(4, 0, &[&[1; 20_000]], true).unwrap_err();
        assert!(!error.is_poisoning(), "{failing}: {error}");
        assert_eq!((journal.appended(), journal.synced()), (position, synced));
        assert_eq!(disk.list().unwrap(), ["journal.0"], "{failing}");
        assert!(journal.roll().is_err() && !journal.is_poisoned());
    }
    append(&journal, 4, true);
    disk.heal();
    journal.append(5, 0, &[&[1; 20_000]], true).unwrap();
    let mut count = 0;
    let count_all = &mut |_: u64, _: u64, _: &[u8]| {
        count += 1;
        Ok(())
    };
    Journal::recover(Arc::new(disk), STORE, start, count_all).unwrap();
    assert_eq!(count, 5);
}

#[test]
fn a_failed_write_or_sync_of_a_batch_poisons_for_good() {
    for (failing, sync) in [("write", false), ("sync", true)] {
        let disk = MemoryDisk::default();
        let (journal, start) = created(&disk);
        append_all(&journal, 1..=3, true);
        disk.fail(move |operation, _, _| match operation == failing {
            true => Err(io::Error::other("a bad disk")),
            false => Ok(()),
        });
        let error = journal.append(4, 1004, &[&payload(4)], sync).unwrap_err();
        assert!(error.is_poisoning());
        assert!(error.to_string().contains("journal.0"), "{error}");
        disk.heal();
        let error = journal.append(4, 1004, &[&payload(4)], sync).unwrap_err();
        assert!(error.is_poisoning() && error.to_string().contains("a bad disk"), "{error}");
        assert!(journal.roll().is_err() && journal.close().is_err());
        assert!(recovered(&disk, start).unwrap().1 >= 3);
    }
}

#[test]
fn a_failure_at_the_header_of_the_next_segment_poisons() {
    for failing in ["write", "sync"] {
        let disk = MemoryDisk::default();
        let (journal, start) = created(&disk);
        append(&journal, 1, true);
        let start_two = journal.roll().unwrap();
        journal.release_before(&start_two, Keep::AsReleased).unwrap();
        append(&journal, 2, true);
        disk.fail(move |operation, name, _| match operation == failing && name == "journal.0" {
            true => Err(io::Error::other("a bad disk")),
            false => Ok(()),
        });
        assert!(journal.roll().is_err());
        assert!(journal.is_poisoned());
        disk.heal();
        let (again, batches) = recovered(&disk, start_two).unwrap();
        assert_eq!(batches, 1);
        again.journal.resume().unwrap();
        append(&again.journal, 3, true);
        assert_eq!(recovered(&disk, start_two).unwrap().1, 2);
        assert!(recovered(&disk, start).is_err());
    }
}

#[test]
fn a_sequence_that_is_not_due_and_a_journal_that_is_not_open_refuse() {
    let disk = MemoryDisk::default();
    let (journal, start) = created(&disk);
    assert!(journal.append(2, 0, &[], true).is_err());
    append(&journal, 1, true);
    journal.close().unwrap();
    assert!(!journal.append(2, 0, &[], true).unwrap_err().is_poisoning());
    let (found, _) = recovered(&disk, start).unwrap();
    assert!(found.closed);
    assert!(!found.journal.append(2, 0, &[], true).unwrap_err().is_poisoning());
    let changes = disk.changes();
    found.journal.close().unwrap();
    assert_eq!(disk.changes(), changes, "a journal that was only read is left alone");
    found.journal.resume().unwrap();
    assert!(found.journal.resume().is_err());
    append(&found.journal, 2, true);
}

#[test]
fn a_creation_replaces_what_an_interrupted_one_left_and_refuses_a_journal() {
    let disk = MemoryDisk::default();
    disk.create("journal.3").unwrap().write_at(&[0; 5000], 0).unwrap();
    disk.create("other").unwrap();
    created(&disk);
    let (journal, _) = created(&disk);
    assert_eq!(disk.list().unwrap(), ["journal.0", "other"]);
    append(&journal, 1, true);
    assert!(Journal::create_sized(Arc::new(disk.clone()), STORE, SMALL).is_err());
    assert_eq!(disk.list().unwrap(), ["journal.0", "other"]);
}

#[test]
fn threads_that_append_and_sync_at_once_lose_nothing() {
    let place = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(Directory::open(place.path()).unwrap());
    let (journal, start) = Journal::create_sized(Arc::clone(&disk), STORE, SMALL).unwrap();
    let next = Mutex::new(1_u64);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let background = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                journal.prepare_spare().unwrap();
                std::thread::yield_now();
            }
        });
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (journal, next) = (&journal, &next);
                scope.spawn(move || {
                    for round in 0..200 {
                        let end = {
                            let mut next = next.lock();
                            let end = append(journal, *next, false);
                            *next += 1;
                            end
                        };
                        if (round + writer) % 3 == 0 {
                            journal.sync().unwrap();
                            assert!(journal.synced() >= end);
                        }
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
        background.join().unwrap();
    });
    journal.close().unwrap();
    assert_eq!(journal.synced(), journal.appended());
    let mut count = 0;
    let replay = &mut |sequence: u64, _: u64, bytes: &[u8]| {
        count += 1;
        assert_eq!((sequence, bytes), (count, &payload(count)[..]));
        Ok(())
    };
    assert!(Journal::recover(disk, STORE, start, replay).unwrap().closed);
    assert_eq!(count, 800);
}
