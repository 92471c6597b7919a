//! The rules by which a journal is read back, one by one.

use super::*;
use crate::disk::Disk;
use crate::journal::batch;
use crate::journal::slot::SegmentHeader;

/// Where in the file the batch with this sequence lies, in a journal of one segment.
fn place(sequence: u64) -> usize {
    4096 + (1..sequence).map(|sequence| batch::size(payload(sequence).len())).sum::<u64>() as usize
}

fn flip(disk: &MemoryDisk, name: &str, at: usize) {
    disk.damage(name, |bytes| bytes[at] ^= 1);
}

/// Three segments: batches 1 to 3 in `journal.0`, 4 to 6 in `journal.1`, 7 to 9 in `journal.2`.
fn three_segments() -> (MemoryDisk, Start) {
    let disk = MemoryDisk::default();
    let (journal, start) = created(&disk);
    append_all(&journal, 1..=3, true);
    journal.roll().unwrap();
    append_all(&journal, 4..=6, true);
    journal.roll().unwrap();
    append_all(&journal, 7..=9, true);
    (disk, start)
}

#[test]
fn an_unclosed_journal_ends_behind_its_last_batch() {
    let disk = MemoryDisk::default();
    let (journal, start) = created(&disk);
    assert_eq!(recovered(&disk, start).unwrap().1, 0);
    append_all(&journal, 1..=5, false);
    let (found, batches) = recovered(&disk, start).unwrap();
    assert_eq!((batches, found.cut, found.closed), (5, None, false));
    assert_eq!(found.replayed_bytes, journal.appended());
    journal.close().unwrap();
    let (found, batches) = recovered(&disk, start).unwrap();
    assert_eq!((batches, found.cut, found.closed), (5, None, true));
}

#[test]
fn a_torn_last_batch_is_cut_and_what_follows_the_resumption_is_kept() {
    let disk = MemoryDisk::default();
    let (journal, start) = created(&disk);
    append_all(&journal, 1..=5, true);
    flip(&disk, "journal.0", place(5) + 60);
    let (found, batches) = recovered(&disk, start).unwrap();
    let cut = found.cut.unwrap();
    assert_eq!((batches, cut.batches, cut.file.as_str()), (4, 0, "journal.0"));
    assert_eq!((cut.position, cut.bytes), (place(5) as u64 - 4096, batch::size(payload(5).len())));
    found.journal.resume().unwrap();
    assert_eq!(found.journal.synced(), cut.position);
    append_all(&found.journal, 5..=7, true);
    // The damage goes away by itself, and the old batch 5 is whole again: it was cut all the same.
    flip(&disk, "journal.0", place(5) + 60);
    let (found, batches) = recovered(&disk, start).unwrap();
    assert_eq!((batches, found.cut), (7, None));
}

#[test]
fn a_hole_before_a_synced_position_refuses() {
    let disk = MemoryDisk::default();
    let (journal, start) = created(&disk);
    append_all(&journal, 1..=5, true);
    append_all(&journal, 6..=8, false);
    flip(&disk, "journal.0", place(3) + 60);
    let message = refusal(&disk, start);
    let position = place(3) - 4096;
    assert!(message.contains("memory/journal.0"), "{message}");
    assert!(message.contains(&format!("at position {position} (offset {})", place(3))), "{message}");
    assert!(message.contains("5 whole records"), "{message}");
    assert!(message.contains("commit times from 1004 to 1008"), "{message}");
}

#[test]
fn a_hole_before_batches_that_were_never_synced_is_cut() {
    let disk = MemoryDisk::default();
    let (journal, start) = created(&disk);
    append_all(&journal, 1..=5, true);
    append_all(&journal, 6..=8, false);
    flip(&disk, "journal.0", place(6) + 60);
    let (found, batches) = recovered(&disk, start).unwrap();
    assert_eq!((batches, found.cut.unwrap().batches), (5, 2));
}

#[test]
fn damage_before_a_close_refuses_and_a_lost_record_of_it_loses_nothing() {
    let disk = MemoryDisk::default();
    let (journal, start) = created(&disk);
    append_all(&journal, 1..=5, false);
    journal.close().unwrap();
    let damaged = disk.copy();
    flip(&damaged, "journal.0", place(5) + 60);
    refusal(&damaged, start);
    let damaged = disk.copy();
    flip(&damaged, "journal.0", place(6) + 9);
    let (found, batches) = recovered(&damaged, start).unwrap();
    assert_eq!((batches, found.closed), (5, false));
}

#[test]
fn a_batch_behind_a_close_refuses() {
    let disk = MemoryDisk::default();
    let (journal, start) = created(&disk);
    append_all(&journal, 1..=5, true);
    let bytes = disk.bytes("journal.0");
    let other = MemoryDisk::default();
    let (journal, _) = created(&other);
    append_all(&journal, 1..=4, true);
    journal.close().unwrap();
    let end = place(5) + batch::HEADER_SIZE;
    assert_eq!(recovered(&other, start).unwrap().1, 4);
    // A batch that stands at its own position right behind the record.
    let header = batch::Header {
        kind: batch::Kind::Data,
        position: end as u64 - 4096,
        sequence: 5,
        synced: 0,
        commit_time: 0,
    };
    let mut buffer = Vec::new();
    batch::encode_batch(&mut buffer, batch::seed(&STORE, 1), &header, &[b"x"], 1);
    other.damage("journal.0", |bytes| bytes[end..][..buffer.len()].copy_from_slice(&buffer));
    assert!(refusal(&other, start).contains("closed at position"));
    assert_eq!(bytes.len(), 8192);
}

#[test]
fn a_break_before_the_next_segment_refuses() {
    let (disk, start) = three_segments();
    assert_eq!(recovered(&disk, start).unwrap().1, 9);
    // Its last batch: nothing behind it in its own segment but the record.
    flip(&disk, "journal.0", place(3) + 20);
    assert!(refusal(&disk, start).contains("journal.0"));
}

#[test]
fn a_missing_segment_refuses_and_is_named() {
    for (slot, message) in
        [(0, "segment 1 is missing"), (1, "segment 2 is missing"), (2, "segment 3 behind position")]
    {
        let (disk, start) = three_segments();
        let damaged = disk.copy();
        disk.remove(&format!("journal.{slot}")).unwrap();
        let found = refusal(&disk, start);
        assert!(found.contains(message), "{found}");
        // A header that cannot be read is no better.
        flip(&damaged, &format!("journal.{slot}"), 100);
        let found = refusal(&damaged, start);
        assert!(found.contains(message), "{found}");
    }
}

#[test]
fn a_segment_without_its_last_record_is_whole() {
    let (disk, start) = three_segments();
    flip(&disk, "journal.0", place(4) + 20);
    assert_eq!(recovered(&disk, start).unwrap().1, 9);
}

#[test]
fn a_segment_in_two_slots_refuses_and_both_are_named() {
    let (disk, start) = three_segments();
    let bytes = disk.bytes("journal.1");
    disk.create("journal.7").unwrap().write_at(&bytes, 0).unwrap();
    let message = refusal(&disk, start);
    assert!(message.contains("journal.1") && message.contains("journal.7"), "{message}");
}

#[test]
fn a_slot_of_another_store_refuses() {
    let (disk, start) = three_segments();
    let header = SegmentHeader { store: [1; 16], segment: 0, base: 0, sequence: 0, size: 8192 };
    let file = disk.create("journal.9").unwrap();
    file.write_at(&header.encode(), 0).unwrap();
    let message = refusal(&disk, start);
    assert!(message.contains("journal.9") && message.contains("another store"), "{message}");
}

#[test]
fn unfinished_and_damaged_spares_are_harmless_and_go_away() {
    let (disk, start) = three_segments();
    disk.create("journal.3").unwrap();
    disk.create("journal.5").unwrap().write_at(&[0; 6000], 0).unwrap();
    disk.create("journal.6").unwrap().write_at(&[3; 6000], 0).unwrap();
    disk.create("journal.07").unwrap();
    let (found, batches) = recovered(&disk, start).unwrap();
    assert_eq!(batches, 9);
    found.journal.resume().unwrap();
    assert_eq!(disk.list().unwrap(), ["journal.0", "journal.07", "journal.1", "journal.2", "journal.4"]);
    assert_eq!(recovered(&disk, start).unwrap().1, 9);
}

#[test]
fn a_start_that_the_segment_does_not_have_refuses() {
    let (disk, start) = three_segments();
    let message = refusal(&disk, Start { position: 8, ..start });
    assert!(message.contains("the store needs position 8"), "{message}");
    refusal(&disk, Start { sequence: 2, ..start });
    refusal(&disk, Start { segment: 9, ..start });
}

#[test]
fn a_file_that_was_shortened_refuses() {
    let (disk, start) = three_segments();
    disk.damage("journal.2", |bytes| bytes.truncate(bytes.len() - 1));
    assert!(refusal(&disk, start).contains("journal.2"));
}

#[test]
fn a_length_that_lies_is_a_break_and_nothing_more() {
    let disk = MemoryDisk::default();
    let (journal, start) = created(&disk);
    append_all(&journal, 1..=5, true);
    disk.damage("journal.0", |bytes| bytes[place(5) + 12..][..4].fill(0xff));
    let (found, batches) = recovered(&disk, start).unwrap();
    assert_eq!((batches, found.cut.unwrap().bytes), (4, 8192 - place(5) as u64));
}

#[test]
fn a_replay_that_fails_ends_the_recovery() {
    let (disk, start) = three_segments();
    let fail = &mut |_: u64, _: u64, _: &[u8]| Err(Error::bug("no"));
    assert!(Journal::recover(std::sync::Arc::new(disk), STORE, start, fail).is_err());
}

#[test]
fn batches_of_an_earlier_segment_in_a_recycled_slot_are_never_valid() {
    let disk = MemoryDisk::default();
    let (journal, mut start) = created(&disk);
    let mut sequence = 1;
    for _ in 0..20 {
        // Sequences of equal length, so that old batches stand exactly where new ones would.
        append_all(&journal, sequence..=sequence + 2, true);
        sequence += 3;
        let (found, batches) = recovered(&disk, start).unwrap();
        assert_eq!((batches, found.cut), (3, None));
        start = journal.roll().unwrap();
        journal.release_before(&start, Keep::AsReleased).unwrap();
        let (found, batches) = recovered(&disk, start).unwrap();
        assert_eq!((batches, found.cut), (0, None));
    }
    assert_eq!(disk.list().unwrap().len(), 2);
}
