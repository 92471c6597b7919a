//! Sealing: open measurements are packed into buckets.
//!
//! It packs open measurements of one place into a bucket and puts slips in the place of their records, in one commit, while it
//! holds them. It changes no row, so there are no index keys, no events, nothing for patterns. A measurement that somebody else
//! holds stays open, and is tried again.
//!
//! Measurements of many places come in turn, so those of one place lie far apart, and their places become due at about the
//! same time. Such places are sealed together: their records are read and written in the order in which they lie.
//!
//! Invariant: each measurement is one record at every commit. So a crash leaves it exactly once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kilim_bson::{Document, RawDocument};
use kilim_error::Result;
use kilim_patterns::{Bucketing, Packed, Place};
use kilim_storage::Durability;

use super::buckets::open_bucket;
use crate::catalog::{Collection, LEAST, Which};
use crate::engine::Engine;
use crate::ids::RecordId;
use crate::limits;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::patterns::PatternState;
use crate::records::{self, Image, Opened, RowId, Slip};
use crate::unit::Unit;

/// A bucket is opened when this part of it is not in use any more: one in so many.
const WORN_SHARE: usize = 4;

impl Engine {
    /// Whether measurements of a collection may be sealed now.
    fn may_seal(&self, namespace: &Namespace) -> bool {
        let registry = self.patterns();
        let states =
            [PatternState::Active, PatternState::Building, PatternState::Verifying, PatternState::Suspect];
        registry.bucketing_of(namespace).is_some_and(|(pattern, _)| states.contains(&pattern.state))
    }

    /// Begins to seal what is due. Returns at once.
    pub(crate) fn seal_if_due(&self) {
        let now = self.now_millis();
        let is_due = |collection: &&Arc<Collection>| {
            let bucketing = collection.shape.bucketing();
            bucketing.is_some_and(|bucketing| collection.shared.open_rows.begin_pass(bucketing, now))
        };
        let due: Vec<Namespace> =
            self.catalog().iter().filter(is_due).map(|collection| collection.namespace.clone()).collect();
        if due.is_empty() || !self.sealing.begin() {
            return;
        }
        let begun = self.spawn_job(move |engine| {
            let operation = engine.operations.start(0);
            for namespace in &due {
                // A failure is the next pass's to mend: it finds the same measurements again.
                if let Err(error) = engine.seal(&operation, namespace, Which::Due(now)) {
                    tracing::warn!(%error, ns = %namespace, "measurements could not be packed");
                }
            }
            engine.sealing.end();
        });
        if !begun {
            self.sealing.end();
        }
    }

    /// Seals all open measurements of a collection that have a time, and repacks buckets of which much is not in use any
    /// more. Gives how many were sealed.
    pub fn seal_all(&self, operation: &Arc<Operation>, namespace: &Namespace) -> Result<u64> {
        self.seal(operation, namespace, Which::All)
    }

    fn seal(&self, operation: &Arc<Operation>, namespace: &Namespace, which: Which) -> Result<u64> {
        let Some(collection) = self.collection(namespace) else { return Ok(0) };
        let Some(bucketing) = collection.shape.bucketing().filter(|_| self.may_seal(namespace)) else {
            return Ok(0);
        };
        let sealer = Sealer { engine: self, operation, collection: &collection, bucketing };
        let sealed = sealer.run(which);
        if sealed.is_err() {
            collection.shared.open_rows.note_failure();
        }
        sealed
    }
}

/// Packs the open measurements of a collection.
struct Sealer<'s> {
    engine: &'s Engine,
    operation: &'s Arc<Operation>,
    collection: &'s Arc<Collection>,
    bucketing: &'s Arc<Bucketing>,
}

/// Measurements of one place that go into buckets in one commit.
struct Portion<'w> {
    place: &'w Place,
    /// Each with how often it was looked for and not found.
    rows: &'w [(RecordId, u8)],
    /// Those that do not fill a bucket are packed too, if they are at least so many.
    rest: Option<usize>,
}

/// Portions whose measurements are packed in one commit.
#[derive(Default)]
struct Load<'w> {
    portions: Vec<Portion<'w>>,
    rows: usize,
    bytes: usize,
}

impl Load<'_> {
    fn is_full(&self) -> bool {
        self.rows >= limits::SEALED_AT_ONCE || self.bytes >= limits::SEALED_AT_ONCE_BYTES
    }
}

impl Sealer<'_> {
    fn run(&self, which: Which) -> Result<u64> {
        let open_rows = &self.collection.shared.open_rows;
        if open_rows.begin_looking() {
            self.look()?;
        }
        self.repack(open_rows.take_worn())?;
        let mut taken = open_rows.take(self.bucketing, which);
        for (_, waiting) in &mut taken {
            waiting.rows.sort_unstable();
            waiting.rows.dedup_by_key(|(record, _)| *record);
        }
        let mut sealed = 0;
        let mut load = Load::default();
        for (place, waiting) in &taken {
            let mut portions = waiting.rows.chunks(self.bucketing.max_count).peekable();
            while let Some(rows) = portions.next() {
                // Among those of an earlier portion, what does not fill a bucket waits for the last one.
                let rest = waiting.rest.filter(|_| which == Which::All || portions.peek().is_none());
                load.rows += rows.len();
                load.bytes += waiting.bytes * rows.len() / waiting.rows.len();
                load.portions.push(Portion { place, rows, rest });
                if load.is_full() {
                    sealed += self.seal(std::mem::take(&mut load))?;
                }
            }
        }
        sealed += self.seal(load)?;
        self.engine.sealing.sealed.add(sealed);
        Ok(sealed)
    }

    /// Finds what is open.
    fn look(&self) -> Result<()> {
        let snapshot = self.engine.store.snapshot();
        for (at, row) in records::slips(&snapshot, self.collection.id, RecordId(0)).enumerate() {
            if at % 1024 == 0 {
                self.operation.check()?;
            }
            let (record, row) = row?;
            if let Ok(image) = row {
                let document = image.document();
                let place = self.bucketing.place(document);
                self.collection.shared.open_rows.note(&place, record, document.as_bytes().len());
            }
        }
        Ok(())
    }

    /// Opens buckets of which much is not in use any more, and removes those of which nothing is.
    fn repack(&self, worn: BTreeSet<u64>) -> Result<()> {
        for number in worn {
            self.operation.check()?;
            let snapshot = self.engine.store.snapshot();
            let found =
                records::buckets(&self.collection.home(), &snapshot, Some(number)).next().transpose()?;
            let Some(bucket) = found else { continue };
            if bucket.holes.len() * WORN_SHARE >= bucket.count() {
                open_bucket(self.engine, self.operation, self.collection, &bucket)?;
            }
        }
        Ok(())
    }

    /// Seals what was loaded, in one commit.
    fn seal(&self, load: Load<'_>) -> Result<u64> {
        self.operation.check()?;
        let mut unit = Unit::new(self.engine, self.operation.clone(), Durability::Relaxed);
        let entered = unit.enter(&self.collection.namespace)?.filter(|now| now.id == self.collection.id);
        let is_same =
            |now: &Arc<Collection>| now.shape.bucketing().is_some_and(|it| Arc::ptr_eq(it, self.bucketing));
        // Another declaration is in force. Whoever put it there has forgotten what was known.
        let Some(collection) = entered.filter(is_same) else { return Ok(0) };
        let found = self.hold(&mut unit, &collection, &load)?;
        let mut slips = Vec::with_capacity(load.rows);
        for (portion, rows) in load.portions.iter().zip(found) {
            self.pack(&mut unit, &collection, portion, rows, &mut slips)?;
        }
        let sealed = slips.len() as u64;
        records::put_slips(unit.transaction(), &collection.home(), slips);
        unit.settle()?;
        Ok(sealed)
    }

    /// Holds the measurements of portions that nobody else holds, and reads those that are open and belong there still.
    fn hold(
        &self,
        unit: &mut Unit<'_>,
        collection: &Collection,
        load: &Load<'_>,
    ) -> Result<Vec<Vec<(RecordId, Image)>>> {
        let open_rows = &collection.shared.open_rows;
        let home = collection.home();
        let of_portion = |(at, portion): (usize, &Portion<'_>)| {
            portion.rows.iter().map(move |(record, tries)| (*record, *tries, at)).collect::<Vec<_>>()
        };
        let mut rows: Vec<(RecordId, u8, usize)> =
            load.portions.iter().enumerate().flat_map(of_portion).collect();
        rows.sort_unstable();
        let mut found: Vec<Vec<(RecordId, Image)>> =
            load.portions.iter().map(|portion| Vec::with_capacity(portion.rows.len())).collect();
        let mut now = Place::default();
        for (record, tries, at) in rows {
            let (row, place): (RowId, _) = (record.into(), load.portions[at].place);
            let again = |tries| open_rows.note_again(place, record, 0, tries);
            if !unit.try_lock(collection, row)? {
                again(tries);
                continue;
            }
            match records::open_row(unit.transaction(), &home, row)? {
                Opened::Sealed => {}
                Opened::Gone => again(tries + 1),
                Opened::Row(image) => {
                    self.bucketing.find_place(image.document(), &mut now);
                    match now == *place {
                        true => found[at].push((record, image)),
                        false => open_rows.note(&now, record, image.document().as_bytes().len()),
                    }
                }
            }
        }
        Ok(found)
    }

    /// Packs measurements of one place into as many buckets as they fill, and notes where each of them lies.
    fn pack(
        &self,
        unit: &mut Unit<'_>,
        collection: &Collection,
        portion: &Portion<'_>,
        mut rows: Vec<(RecordId, Image)>,
        slips: &mut Vec<(RecordId, Slip)>,
    ) -> Result<()> {
        self.bucketing.sort(&mut rows, |(record, image)| (record.0, image.document()));
        let mut left = &rows[..];
        while !left.is_empty() {
            let count = self.bucketing.portion(left.iter().map(|(_, image)| image.document()));
            let (packed, behind) = left.split_at(count);
            let is_full = !behind.is_empty() || count == self.bucketing.max_count;
            let least = if is_full { Some(LEAST) } else { portion.rest };
            match least.is_some_and(|least| count >= least) {
                true => {
                    let rows: Vec<(u64, RawDocument<'_>)> =
                        packed.iter().map(|(record, image)| (record.0, image.document())).collect();
                    let bucket = self.bucketing.bucket(portion.place, &rows)?;
                    // Nothing takes the place of a measurement that does not give it back byte for byte.
                    if is_faithful(&bucket, &rows) {
                        let number = collection.shared.next_bucket.fetch_add(1, Ordering::Relaxed);
                        records::put_bucket(unit.transaction(), &collection.home(), number, &bucket);
                        let slip = |position| Slip { bucket: number, position };
                        slips.extend(packed.iter().enumerate().map(|(at, (record, _))| (*record, slip(at))));
                    } else {
                        tracing::warn!(ns = %collection.namespace, "measurements cannot be packed and stay open");
                    }
                }
                // One that fills a bucket by itself stays as it is, and is not tried again.
                false if is_full => {}
                false => {
                    for (record, image) in packed {
                        let bytes = image.document().as_bytes().len();
                        collection.shared.open_rows.note(portion.place, *record, bytes);
                    }
                }
            }
            left = behind;
        }
        Ok(())
    }
}

/// Whether all of these measurements come out of a bucket as they went in.
fn is_faithful(bucket: &Document, rows: &[(u64, RawDocument<'_>)]) -> bool {
    let packed = RawDocument::parse(bucket.as_bytes()).ok().and_then(Packed::of);
    let mut out = Vec::new();
    packed.filter(|packed| packed.is_whole()).is_some_and(|packed| {
        rows.iter().enumerate().all(|(at, (_, row))| {
            out.clear();
            packed.row(at, &mut out).is_some() && out == row.as_bytes()
        })
    })
}
