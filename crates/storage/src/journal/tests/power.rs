//! Power loss at any moment: whatever the disk kept of what was not synced, the journal is recovered, with all
//! that was acknowledged, and can be gone on with.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::*;
use crate::disk::Disk;
use crate::disk::memory::{Dice, Image};
use crate::journal::slot;

/// The disk at one moment, and what the store's owner knew then.
struct Moment {
    image: Image,
    /// The start that the rest of the store has on disk.
    start: Start,
    /// The last batch that was acknowledged as synced, and the last that was handed to the journal.
    acknowledged: u64,
    handed: u64,
}

/// What the owner of the journal knows, kept beside it.
struct Owner {
    start: Mutex<Start>,
    acknowledged: AtomicU64,
    handed: AtomicU64,
}

fn watch(disk: &MemoryDisk, owner: &Arc<Owner>) -> Arc<Mutex<Vec<Moment>>> {
    let moments = Arc::new(Mutex::new(Vec::new()));
    let (seen, owner) = (Arc::clone(&moments), Arc::clone(owner));
    disk.watch(move |image| {
        seen.lock().push(Moment {
            image: image.clone(),
            start: *owner.start.lock(),
            acknowledged: owner.acknowledged.load(Ordering::SeqCst),
            handed: owner.handed.load(Ordering::SeqCst),
        });
    });
    moments
}

/// Does by dice what a store does with its journal.
fn live(journal: &Journal, owner: &Owner, dice: &mut Dice, steps: u64) {
    for _ in 0..steps {
        match dice.roll(12) {
            0 => {
                let start = journal.roll().unwrap();
                // All before it is in the tree, and what a roll returns is synced.
                owner.acknowledged.fetch_max(start.sequence - 1, Ordering::SeqCst);
                *owner.start.lock() = start;
                let keep = [Keep::AsReleased, Keep::One, Keep::Small][dice.roll(3) as usize];
                journal.release_before(&start, keep).unwrap();
            }
            1 => journal.prepare_spare().unwrap(),
            2 => {
                let appended = owner.handed.load(Ordering::SeqCst);
                journal.sync().unwrap();
                owner.acknowledged.store(appended, Ordering::SeqCst);
            }
            _ => {
                let sequence = owner.handed.fetch_add(1, Ordering::SeqCst) + 1;
                let sync = dice.roll(3) == 0;
                append(journal, sequence, sync);
                if sync {
                    owner.acknowledged.store(sequence, Ordering::SeqCst);
                }
            }
        }
    }
    if dice.roll(2) == 0 {
        journal.close().unwrap();
        owner.acknowledged.store(owner.handed.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

/// Cuts the power at each moment and finds that the journal keeps its promises, also if it is resumed, written
/// to and cut off again.
fn check_cuts(moments: &[Moment], dice: &mut Dice, depth: u64, seed: u64) {
    for (at, moment) in moments.iter().enumerate() {
        // Each moment of a first life, some of those after a resumption.
        if depth > 0 && dice.roll(4) > 0 {
            continue;
        }
        let disk = moment.image.power_cut(dice);
        let (found, _) = recovered(&disk, moment.start)
            .unwrap_or_else(|error| panic!("seed {seed}, depth {depth}, moment {at}: {error}"));
        let last = found.next_sequence - 1;
        assert!(
            (moment.acknowledged..=moment.handed).contains(&last),
            "seed {seed}, depth {depth}, moment {at}: {last} of {}..={}",
            moment.acknowledged,
            moment.handed
        );
        if depth == 2 || dice.roll(3) > 0 {
            continue;
        }
        // What was recovered is not promised to anybody before the resumption has returned.
        let owner = Arc::new(Owner {
            start: Mutex::new(moment.start),
            acknowledged: AtomicU64::new(moment.acknowledged),
            handed: AtomicU64::new(last),
        });
        let later = watch(&disk, &owner);
        found.journal.resume().unwrap();
        owner.acknowledged.store(last, Ordering::SeqCst);
        let steps = dice.roll(12);
        live(&found.journal, &owner, dice, steps);
        let later = std::mem::take(&mut *later.lock());
        check_cuts(&later, dice, depth + 1, seed);
    }
}

#[test]
fn a_power_cut_at_any_moment_keeps_all_that_was_acknowledged() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let disk = MemoryDisk::default();
        let (journal, start) = created(&disk);
        let owner = Arc::new(Owner {
            start: Mutex::new(start),
            acknowledged: AtomicU64::new(0),
            handed: AtomicU64::new(0),
        });
        let moments = watch(&disk, &owner);
        live(&journal, &owner, &mut dice, 60);
        let moments = std::mem::take(&mut *moments.lock());
        check_cuts(&moments, &mut dice, 0, seed);
    }
}

#[test]
fn a_block_that_is_torn_when_it_is_written_again_keeps_the_batches_before() {
    let disk = MemoryDisk::default();
    let (journal, start) = created(&disk);
    // The block that a segment begins in is known from its first batch on.
    append(&journal, 1, true);
    let (mut torn, mut written_again) = (0, 0);
    for sequence in 2..=14 {
        let images = Arc::new(Mutex::new(Vec::<Image>::new()));
        let seen = Arc::clone(&images);
        disk.watch(move |image| seen.lock().push(image.clone()));
        let place = (slot::BLOCK + journal.appended()) as usize;
        append(&journal, sequence, true);
        let written = images.lock().remove(0);
        let [range] = &written.unsynced_writes("journal.0")[..] else { panic!("{sequence} is one write") };
        assert!(range.start % 4096 == 0 && range.end % 4096 == 0, "{range:?} is not of whole blocks");
        written_again += place - range.start;
        for seed in 0..60 {
            let (found, batches) = recovered(&written.power_cut(&mut Dice(seed)), start)
                .unwrap_or_else(|error| panic!("seed {seed}, batch {sequence}: {error}"));
            assert!((sequence - 1..=sequence).contains(&batches), "seed {seed}: {batches} of {sequence}");
            torn += u64::from(found.cut.is_some());
        }
    }
    assert!(torn > 20 && written_again > 10_000, "{torn} torn, {written_again} bytes written again");
}

#[test]
fn a_power_cut_while_it_is_created_lets_it_be_created_again() {
    let disk = MemoryDisk::default();
    let images = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&images);
    disk.watch(move |image| seen.lock().push(image.clone()));
    created(&disk);
    let mut dice = Dice(5);
    for image in images.lock().iter() {
        for _ in 0..20 {
            let disk = image.power_cut(&mut dice);
            let (journal, start) = created(&disk);
            append(&journal, 1, true);
            assert_eq!(recovered(&disk, start).unwrap().1, 1);
        }
    }
}

#[test]
fn a_process_that_dies_without_a_power_cut_loses_nothing_that_was_appended() {
    let disk = MemoryDisk::default();
    let (journal, start) = created(&disk);
    append_all(&journal, 1..=8, false);
    drop(journal);
    let (found, batches) = recovered(&disk, start).unwrap();
    assert_eq!(batches, 8);
    let owner = Arc::new(Owner {
        start: Mutex::new(start),
        acknowledged: AtomicU64::new(0),
        handed: AtomicU64::new(8),
    });
    let moments = watch(&disk, &owner);
    found.journal.resume().unwrap();
    // From here on it is promised, so a power cut must keep it; before, it must not lead to a refusal.
    owner.acknowledged.store(8, Ordering::SeqCst);
    append(&found.journal, owner.handed.fetch_add(1, Ordering::SeqCst) + 1, true);
    let moments = std::mem::take(&mut *moments.lock());
    for round in 0..20 {
        check_cuts(&moments, &mut Dice(round), 0, round);
    }
}

#[test]
fn what_a_failed_sync_kept_from_the_disk_is_written_again() {
    let disk = MemoryDisk::default();
    let (journal, start) = created(&disk);
    append_all(&journal, 1..=3, true);
    append_all(&journal, 4..=5, false);
    disk.fail(|operation, _, _| match operation {
        "sync" => Err(std::io::Error::other("a bad disk")),
        _ => Ok(()),
    });
    assert!(journal.sync().is_err() && journal.is_poisoned());
    disk.heal();
    disk.take_for_clean("journal.0");
    let (found, batches) = recovered(&disk, start).unwrap();
    assert_eq!(batches, 5);
    found.journal.resume().unwrap();
    assert_eq!(recovered(&disk.image().power_cut(&mut Dice(1)), start).unwrap().1, 5);
}

/// The disk loses a segment's header, of which it has said that it is on disk, and not its batch. The next segment has the same
/// number and may lie in the same slot.
#[test]
fn a_batch_whose_segment_a_lying_disk_has_lost_does_not_come_back() {
    let disk = MemoryDisk::default();
    let (journal, _) = created(&disk);
    append(&journal, 1, true);
    let start = journal.roll().unwrap();
    journal.release_before(&start, Keep::AsReleased).unwrap();
    append(&journal, 2, true);
    let (header, before) = (disk.bytes("journal.0"), disk.bytes("journal.1"));
    journal.roll().unwrap();
    append(&journal, 3, true);
    disk.damage("journal.0", |bytes| bytes[..4096].copy_from_slice(&header[..4096]));
    disk.damage("journal.1", |bytes| *bytes = before);
    let (found, batches) = recovered(&disk, start).unwrap();
    assert_eq!(batches, 1);
    found.journal.resume().unwrap();
    assert_eq!(recovered(&disk, start).unwrap().1, 1);
    append(&found.journal, 3, true);
    assert_eq!(recovered(&disk, start).unwrap().1, 2);
}

#[test]
fn the_record_that_ends_a_segment_and_that_of_a_close_are_on_disk_when_the_call_returns() {
    let disk = MemoryDisk::default();
    let (journal, start) = created(&disk);
    append(&journal, 1, false);
    journal.roll().unwrap();
    for seed in 0..20 {
        let cut = disk.image().power_cut(&mut Dice(seed));
        cut.remove("journal.1").unwrap();
        assert!(refusal(&cut, start).contains("segment 2"));
    }
    append(&journal, 2, false);
    journal.close().unwrap();
    for seed in 0..20 {
        assert!(recovered(&disk.image().power_cut(&mut Dice(seed)), start).unwrap().0.closed);
    }
}
