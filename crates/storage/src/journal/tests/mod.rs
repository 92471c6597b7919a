//! What the tests of the journal share: small segments, and a way to read a journal back.

mod appending;
mod damage;
mod power;
mod recovering;

use std::sync::Arc;

use kilim_error::{Error, Result, StorageError};

use super::{Journal, Keep, Recovered, Sizes, Start, StoreId};
use crate::disk::memory::MemoryDisk;

const STORE: StoreId = *b"sixteen bytes id";
const SMALL: Sizes = Sizes { first: 8192, largest: 32768 };

fn created(disk: &MemoryDisk) -> (Journal, Start) {
    use crate::disk::Disk;
    let made = Journal::create_sized(Arc::new(disk.clone()), STORE, SMALL).unwrap();
    disk.sync_directory().unwrap();
    made
}

/// The payload of a batch, of a length that follows from its sequence.
fn payload(sequence: u64) -> Vec<u8> {
    vec![sequence as u8; (sequence * 37 % 300) as usize]
}

fn append(journal: &Journal, sequence: u64, sync: bool) -> u64 {
    journal.append(sequence, 1000 + sequence, &[&payload(sequence)], sync).unwrap()
}

fn append_all(journal: &Journal, sequences: std::ops::RangeInclusive<u64>, sync: bool) {
    for sequence in sequences {
        append(journal, sequence, sync);
    }
}

/// Recovers, finds that the disk was left alone and that each batch is the one that was appended, and returns
/// what was recovered with the number of batches.
fn recovered(disk: &MemoryDisk, start: Start) -> Result<(Recovered, u64)> {
    let before = disk.changes();
    let mut next = start.sequence;
    let outcome = Journal::recover_sized(
        Arc::new(disk.clone()),
        STORE,
        start,
        &mut |sequence, commit_time, bytes| {
            assert_eq!(sequence, next);
            assert_eq!(commit_time, 1000 + sequence);
            assert_eq!(bytes, payload(sequence));
            next += 1;
            Ok(())
        },
        SMALL,
    );
    assert_eq!(disk.changes(), before, "a recovery changed the disk");
    let recovered = outcome?;
    assert_eq!(recovered.next_sequence, next);
    assert_eq!(recovered.commit_time, (next > start.sequence).then(|| 1000 + next - 1));
    Ok((recovered, next - start.sequence))
}

/// The message of a refusal.
fn refusal(disk: &MemoryDisk, start: Start) -> String {
    match recovered(disk, start) {
        Err(Error::Storage(StorageError::Corrupt(message))) => message,
        Err(other) => panic!("another error: {other}"),
        Ok((_, batches)) => panic!("{batches} batches were recovered"),
    }
}
