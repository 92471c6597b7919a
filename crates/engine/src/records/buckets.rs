//! Buckets: records that hold many measurements each.
//!
//! A measurement keeps the number of its record for life. Its record is the measurement itself as long as it is open. Once
//! it is sealed, its record is a slip: which bucket has it, and at which position. Buckets lie behind all other records of
//! their collection, so whatever goes over a collection's records does not meet them. A bucket is written once, with the
//! slips of its measurements, and never changed. When a measurement is changed or deleted, its own record is written, and a
//! hole beside the bucket tells that the position is not in use any more. So two writers meet only if they change the same
//! measurement.
//!
//! On disk: the record of bucket `n` has the number `2^63 + n * 2^24`, and the hole of its position `p` the number
//! `2^63 + n * 2^24 + p + 1`. A slip is the document `{"": <number of that hole>}`, which no user can store: each of theirs
//! has an `_id`. A hole is an empty document.
//!
//! Invariant: a record is a slip exactly if its position in the bucket has no hole. All records of one bucket are held while
//! it is made, so its slips have the bucket's commit time.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue};
use kilim_error::{Error, Result, StorageError};
use kilim_patterns::{Bucketing, Packed};
use kilim_storage::{Bytes, Direction, Durability, Snapshot, Space, Store, Transaction};
use parking_lot::Mutex;

use super::home::record_key;
use super::pages::{Newest, Source};
use super::scan::{open, open_all};
use super::write::put_document;
use super::{Home, Image, RowId, Shape};
use crate::ids::{CollectionId, RecordId};
use crate::layout::{self, STAMP_BYTES};
use crate::limits::BUCKET_CACHE_BYTES;

/// Records from this number on are buckets and their holes.
pub(super) const FIRST_BUCKET: u64 = 1 << 63;
const POSITION_BITS: u32 = 24;
const SLIP_BYTES: usize = 15;
const SLIP_HEAD: [u8; 6] = [SLIP_BYTES as u8, 0, 0, 0, 0x12, 0];

/// How the measurements of a collection are packed.
#[derive(Debug)]
pub struct Bucketed {
    /// None where nothing is packed any more. States from before can still be read: by transactions and cursors that began
    /// then. The next start forgets it.
    pub bucketing: Option<Arc<Bucketing>>,
    /// Buckets that were read lately. No number is given out twice while the server runs, and no bucket is changed, so they
    /// are the same in all states that have them.
    read: Mutex<Cache>,
}

impl Bucketed {
    pub(crate) fn new(bucketing: Option<Arc<Bucketing>>) -> Bucketed {
        Bucketed { bucketing, read: Mutex::default() }
    }
}

#[derive(Debug, Default)]
struct Cache {
    buckets: HashMap<u64, Image>,
    /// From the oldest on.
    order: VecDeque<u64>,
    bytes: usize,
}

impl Cache {
    fn add(&mut self, number: u64, bucket: &Image) {
        if self.buckets.insert(number, bucket.clone()).is_some() {
            return;
        }
        self.bytes += bucket.as_bytes().len();
        self.order.push_back(number);
        while self.bytes > BUCKET_CACHE_BYTES && self.order.len() > 1 {
            let oldest = self.order.pop_front().and_then(|oldest| self.buckets.remove(&oldest));
            self.bytes -= oldest.map_or(0, |oldest| oldest.as_bytes().len());
        }
    }
}

/// Where a sealed measurement lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slip {
    pub bucket: u64,
    pub position: usize,
}

impl Slip {
    /// None where a stored record is no slip.
    pub(super) fn of(stored: &[u8]) -> Option<Slip> {
        let slip = stored.get(STAMP_BYTES..).filter(|slip| slip.len() == SLIP_BYTES)?;
        let hole = slip.strip_prefix(&SLIP_HEAD)?.first_chunk::<8>()?;
        Slip::of_hole(RecordId(u64::from_le_bytes(*hole)))
    }

    fn of_hole(record: RecordId) -> Option<Slip> {
        let inner = record.0.checked_sub(FIRST_BUCKET)?;
        let position = (inner & ((1 << POSITION_BITS) - 1)).checked_sub(1)?;
        Some(Slip { bucket: inner >> POSITION_BITS, position: position as usize })
    }

    /// Whether it lies right behind another, or right before.
    pub(super) fn is_next_to(self, other: Slip) -> bool {
        self.bucket == other.bucket && self.position.abs_diff(other.position) == 1
    }

    fn hole(self) -> RecordId {
        RecordId(bucket_record(self.bucket).0 + self.position as u64 + 1)
    }

    fn document(self) -> Document {
        let mut slip = Document::new();
        slip.push("", RawValue::Int64(self.hole().0 as i64));
        slip
    }
}

fn bucket_record(number: u64) -> RecordId {
    RecordId(FIRST_BUCKET + (number << POSITION_BITS))
}

/// The number of the last bucket of a collection; 0 where there is none.
pub(crate) fn last_bucket(snapshot: &Snapshot, collection: CollectionId) -> Result<u64> {
    let mut behind = open_all(snapshot, collection, Direction::Backward);
    match behind.next().transpose()? {
        Some((key, _)) => Ok(layout::record_id_of(&key).0.saturating_sub(FIRST_BUCKET) >> POSITION_BITS),
        None => Ok(0),
    }
}

impl Home {
    /// The row of a stored slip.
    pub(super) fn sealed_row<S: Source>(
        &self,
        bucketed: &Bucketed,
        slip: Slip,
        stored: &[u8],
        source: &S,
    ) -> Result<Image> {
        let bucket = self.bucket(bucketed, slip.bucket, source)?;
        let mut row = Vec::with_capacity(256);
        row.extend_from_slice(&stored[..STAMP_BYTES]);
        Packed::of(bucket.document())
            .and_then(|packed| packed.row(slip.position, &mut row))
            .ok_or_else(|| self.broken(slip.bucket, &format!("has no measurement at {}", slip.position)))?;
        // SAFETY: what comes out of a bucket is what the write door stored, byte for byte.
        Ok(unsafe { Image::from_bytes(Bytes::from(row)) })
    }

    fn bucket<S: Source>(&self, bucketed: &Bucketed, number: u64, source: &S) -> Result<Image> {
        if let Some(bucket) = bucketed.read.lock().buckets.get(&number) {
            return Ok(bucket.clone());
        }
        let key = record_key(self.collection, bucket_record(number));
        let stored = source.get(Space::Records, &key)?.ok_or_else(|| self.broken(number, "is missing"))?;
        let bucket = self.checked_bucket(number, stored)?;
        bucketed.read.lock().add(number, &bucket);
        Ok(bucket)
    }

    fn checked_bucket(&self, number: u64, stored: Bytes) -> Result<Image> {
        let is_document = stored.get(STAMP_BYTES..).is_some_and(|bytes| RawDocument::parse(bytes).is_ok());
        if !is_document {
            return Err(self.broken(number, "is not valid BSON"));
        }
        // SAFETY: the bytes have just been looked at.
        Ok(unsafe { Image::from_bytes(stored) })
    }

    pub(super) fn broken(&self, number: u64, what: &str) -> Error {
        StorageError::Corrupt(format!("bucket {number} of collection {} {what}", self.collection.0)).into()
    }
}

/// What a record of a collection with buckets is.
pub(crate) enum Opened {
    Row(Image),
    Sealed,
    Gone,
}

/// A row that is a record of its own, as of the newest commit. The caller holds it.
pub(crate) fn open_row(transaction: &Transaction, home: &Home, row: RowId) -> Result<Opened> {
    Ok(match transaction.latest(Space::Records, &home.key(row.record))? {
        None => Opened::Gone,
        Some(stored) if Slip::of(&stored).is_some() => Opened::Sealed,
        // SAFETY: the bytes come from the store, where only this module puts records.
        Some(stored) => Opened::Row(unsafe { Image::from_bytes(stored) }),
    })
}

/// Stores a bucket under a number that no other has had.
pub(crate) fn put_bucket(transaction: &mut Transaction, home: &Home, number: u64, bucket: &Document) {
    put_document(transaction, home, bucket_record(number), bucket.as_raw());
}

/// Stores slips in the place of rows that the same commit puts into buckets. The caller holds these. No row changes.
pub(crate) fn put_slips(transaction: &mut Transaction, home: &Home, mut slips: Vec<(RecordId, Slip)>) {
    // In their order they go side by side into what holds the transaction's writes, and into the tables behind it.
    slips.sort_unstable_by_key(|(record, _)| *record);
    for (record, slip) in slips {
        put_document(transaction, home, record, slip.document().as_raw());
    }
}

/// Notes that a sealed row is about to be changed or deleted, as of the newest commit. The caller holds it. Gives the bucket
/// that it lay in.
pub(crate) fn leave_bucket(transaction: &mut Transaction, home: &Home, row: RowId) -> Result<Option<u64>> {
    let Shape::Bucketed(_) = home.shape else { return Ok(None) };
    let stored = transaction.latest(Space::Records, &home.key(row.record))?;
    let Some(slip) = stored.and_then(|stored| Slip::of(&stored)) else { return Ok(None) };
    put_document(transaction, home, slip.hole(), RawDocument::empty());
    Ok(Some(slip.bucket))
}

/// Makes a sealed row a record of its own again, if `when` says so of its bucket. The row stays as it is. The caller holds
/// it. Gives the row and the bucket that it lay in.
pub(crate) fn unseal(
    transaction: &mut Transaction,
    home: &Home,
    row: RowId,
    when: impl Fn(Packed<'_>) -> bool,
) -> Result<Option<(Image, u64)>> {
    unseal_if(transaction, home, row, |_| true, when)
}

/// Makes a row that lies in a certain bucket a record of its own again. Gives the row.
pub(crate) fn unseal_from(
    transaction: &mut Transaction,
    home: &Home,
    row: RowId,
    bucket: u64,
) -> Result<Option<Image>> {
    let unsealed = unseal_if(transaction, home, row, |slip| slip.bucket == bucket, |_| true)?;
    Ok(unsealed.map(|(image, _)| image))
}

fn unseal_if(
    transaction: &mut Transaction,
    home: &Home,
    row: RowId,
    lies: impl Fn(Slip) -> bool,
    when: impl Fn(Packed<'_>) -> bool,
) -> Result<Option<(Image, u64)>> {
    let Shape::Bucketed(bucketed) = &home.shape else { return Ok(None) };
    let Some(stored) = transaction.latest(Space::Records, &home.key(row.record))? else { return Ok(None) };
    let Some(slip) = Slip::of(&stored).filter(|slip| lies(*slip)) else { return Ok(None) };
    let source = Newest { transaction, in_snapshot: false };
    let bucket = home.bucket(bucketed, slip.bucket, &source)?;
    if !Packed::of(bucket.document()).is_some_and(when) {
        return Ok(None);
    }
    let image = home.sealed_row(bucketed, slip, &stored, &source)?;
    leave_bucket(transaction, home, row)?;
    put_document(transaction, home, row.record, image.document());
    Ok(Some((image, slip.bucket)))
}

/// Removes a bucket that was made of so many rows, of which none lies in it any more.
pub(crate) fn remove_bucket(transaction: &mut Transaction, home: &Home, number: u64, count: usize) {
    transaction.delete(Space::Records, &home.key(bucket_record(number)));
    for position in 0..count {
        let hole = Slip { bucket: number, position }.hole();
        transaction.delete(Space::Records, &home.key(hole));
    }
}

/// A bucket, and which of its positions are not in use any more.
pub(crate) struct FoundBucket {
    pub number: u64,
    pub image: Image,
    /// In order.
    pub holes: Vec<usize>,
}

impl FoundBucket {
    pub fn packed(&self) -> Option<Packed<'_>> {
        Packed::of(self.image.document())
    }

    /// How many rows were packed into it.
    pub fn count(&self) -> usize {
        self.packed().and_then(Packed::count).unwrap_or(0)
    }

    /// The positions in use, and the records of their rows.
    pub fn live(&self) -> Vec<(usize, RecordId)> {
        let records = self.packed().and_then(Packed::records).unwrap_or_default();
        let all = records.into_iter().enumerate();
        all.filter(|(at, _)| self.is_in_use(*at)).map(|(at, record)| (at, RecordId(record))).collect()
    }

    /// The positions in use.
    pub fn in_use(&self) -> impl Iterator<Item = usize> {
        (0..self.count()).filter(|at| self.is_in_use(*at))
    }

    /// Whether the row of a position lies in the bucket still.
    pub fn is_in_use(&self, position: usize) -> bool {
        self.holes.binary_search(&position).is_err()
    }

    /// The row at a position, as a document.
    pub fn row(&self, position: usize) -> Option<Document> {
        let mut bytes = Vec::new();
        self.packed()?.row(position, &mut bytes)?;
        Some(RawDocument::parse(&bytes).ok()?.to_document())
    }
}

/// The buckets of a collection, in the order of their numbers.
pub(crate) struct Buckets {
    home: Home,
    scan: kilim_storage::Scan,
    next: Option<FoundBucket>,
}

/// All buckets of a collection, or one.
pub(crate) fn buckets(home: &Home, snapshot: &Snapshot, only: Option<u64>) -> Buckets {
    let (from, to) = match only {
        Some(number) => (bucket_record(number), RecordId(bucket_record(number + 1).0 - 1)),
        None => (RecordId(FIRST_BUCKET), RecordId(u64::MAX)),
    };
    Buckets {
        home: home.clone(),
        scan: open(snapshot, home.collection, from..=to, Direction::Forward),
        next: None,
    }
}

impl Iterator for Buckets {
    type Item = Result<FoundBucket>;

    fn next(&mut self) -> Option<Result<FoundBucket>> {
        loop {
            let (key, stored) = match self.scan.next() {
                Some(Ok(entry)) => entry,
                Some(Err(error)) => return Some(Err(error)),
                None => return self.next.take().map(Ok),
            };
            let record = layout::record_id_of(&key);
            match (Slip::of_hole(record), &mut self.next) {
                (Some(hole), Some(bucket)) if bucket.number == hole.bucket => {
                    bucket.holes.push(hole.position)
                }
                // A hole of a bucket that is missing. Nothing refers to it.
                (Some(_), _) => {}
                (None, _) => {
                    let number = (record.0 - FIRST_BUCKET) >> POSITION_BITS;
                    let found = self.home.checked_bucket(number, stored);
                    let found = found.map(|image| FoundBucket { number, image, holes: Vec::new() });
                    match found {
                        Ok(found) => {
                            if let Some(complete) = self.next.replace(found) {
                                return Some(Ok(complete));
                            }
                        }
                        Err(error) => return Some(Err(error)),
                    }
                }
            }
        }
    }
}

/// The records of a collection with buckets: open rows, or where sealed ones lie.
pub(crate) struct SlipScan {
    scan: kilim_storage::Scan,
    is_ended: bool,
}

/// The records of a collection with buckets, from one on.
pub(crate) fn slips(snapshot: &Snapshot, collection: CollectionId, from: RecordId) -> SlipScan {
    SlipScan { scan: open(snapshot, collection, from.., Direction::Forward), is_ended: false }
}

impl SlipScan {
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }
}

impl Iterator for SlipScan {
    type Item = Result<(RecordId, Result<Image, Slip>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let Some(entry) = self.scan.next() else {
            self.is_ended = true;
            return None;
        };
        Some(entry.map(|(key, stored)| {
            let record = layout::record_id_of(&key);
            match Slip::of(&stored) {
                Some(slip) => (record, Err(slip)),
                // SAFETY: the bytes come from the store, where only this module puts records.
                None => (record, Ok(unsafe { Image::from_bytes(stored) })),
            }
        }))
    }
}

/// Puts the hole of a position where it must be, as its row's own record tells as of the newest commit. The caller holds
/// that record.
pub(crate) fn mend_hole(
    transaction: &mut Transaction,
    home: &Home,
    bucket: u64,
    position: usize,
    record: RecordId,
) -> Result<()> {
    let slip = Slip { bucket, position };
    let stored = transaction.latest(Space::Records, &home.key(record))?;
    match stored.and_then(|stored| Slip::of(&stored)) == Some(slip) {
        true => transaction.delete(Space::Records, &home.key(slip.hole())),
        false => put_document(transaction, home, slip.hole(), RawDocument::empty()),
    }
    Ok(())
}

/// Makes records of their own of all measurements that are packed in what is left of a store, whether or not a pattern says
/// so. Gives how many measurements are lost with their buckets, and how many records were no measurements.
pub(crate) fn unpack_remains(store: &Store, collection: CollectionId) -> Result<(u64, u64)> {
    const BATCH: usize = 1000;
    let snapshot = store.snapshot();
    let bucketed = Arc::new(Bucketed::new(None));
    let home = Home { collection, shape: Shape::Bucketed(bucketed.clone()) };
    let (mut lost, mut others, mut written) = (0, 0, 0);
    let mut transaction = store.begin();
    let mut commit = |transaction: &mut Transaction| -> Result<()> {
        written += 1;
        if written % BATCH == 0 {
            std::mem::replace(transaction, store.begin()).commit(Durability::Relaxed)?;
        }
        Ok(())
    };
    for entry in open(&snapshot, collection, .., Direction::Forward) {
        let (key, stored) = entry?;
        let Some(slip) = Slip::of(&stored) else { continue };
        let row = home.sealed_row(&bucketed, slip, &stored, &snapshot).ok();
        let row = row.filter(|row| RawDocument::parse(&row.as_bytes()[STAMP_BYTES..]).is_ok());
        match row {
            Some(row) => put_document(&mut transaction, &home, layout::record_id_of(&key), row.document()),
            None => {
                lost += 1;
                transaction.delete(Space::Records, &key);
            }
        }
        commit(&mut transaction)?;
    }
    let behind = RecordId(FIRST_BUCKET)..=RecordId(u64::MAX);
    for entry in open(&snapshot, collection, behind, Direction::Forward) {
        transaction.delete(Space::Records, &entry?.0);
        others += 1;
        commit(&mut transaction)?;
    }
    transaction.commit(Durability::Durable)?;
    Ok((lost, others))
}

/// The positions of a bucket that have a hole and are in use, or the other way round; and whether they are in use.
pub(crate) fn wrong_holes(
    home: &Home,
    snapshot: &Snapshot,
    bucket: &FoundBucket,
) -> Result<Vec<(usize, bool)>> {
    let records = bucket.packed().and_then(Packed::records).unwrap_or_default();
    let mut wrong = Vec::new();
    for (position, record) in records.into_iter().enumerate() {
        let stored = snapshot.get(Space::Records, &home.key(RecordId(record)))?;
        let slip = Slip { bucket: bucket.number, position };
        let is_in_use = stored.and_then(|stored| Slip::of(&stored)) == Some(slip);
        let has_hole = bucket.holes.binary_search(&position).is_ok();
        if is_in_use == has_hole {
            wrong.push((position, is_in_use));
        }
    }
    Ok(wrong)
}
