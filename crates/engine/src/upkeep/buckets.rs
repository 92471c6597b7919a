//! Measurements that are packed into buckets: put in force, sealed, repacked, checked and unpacked.
//!
//! A measurement that is not packed yet is read and written as any other, so a declaration is in force at once. Sealing packs
//! open measurements of one place into a bucket and puts slips in the place of their records, in one commit, while it holds
//! them. It changes no row, so there are no index keys, no events, nothing for patterns. A measurement that somebody else
//! holds stays open, and is tried again.
//!
//! A bucket of which much is not in use any more is opened: its measurements become records of their own, and are sealed
//! again with others. The same is done with all buckets that another declaration has packed, by the job that fills the
//! pattern, and with all buckets at all when the pattern is dropped.
//!
//! Invariant: each measurement is one record at every commit. So a crash leaves it exactly once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kilim_bson::{Document, RawDocument};
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::{Bucketing, Packed, Place};
use kilim_storage::{Durability, Snapshot};

use crate::catalog::{Catalog, Collection, LEAST, Waiting, Which};
use crate::engine::Engine;
use crate::ids::RecordId;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::patterns::{Pattern, PatternState, Registry};
use crate::records::{self, Bucketed, FoundBucket, Home, Image, Opened, RowId, Shape};
use crate::unit::Unit;

/// A bucket is opened when this part of it is not in use any more: one in so many.
const WORN_SHARE: usize = 4;

impl Registry {
    /// The pattern in force that packs the measurements of a collection.
    pub(crate) fn bucketing_of(&self, namespace: &Namespace) -> Option<(&Arc<Pattern>, &Arc<Bucketing>)> {
        let own = |it: &&Arc<Pattern>| it.target == *namespace && it.state != PatternState::Unverified;
        let mut patterns = self.of(&namespace.database).iter().filter(own);
        patterns.find_map(|pattern| Some((pattern, pattern.kind().bucketing()?)))
    }
}

/// Gives the collections of a catalog the shapes that patterns with buckets declare, and no others.
pub(crate) fn put_buckets_in_force(catalog: &mut Catalog, registry: &Registry) {
    let mut shaped: Vec<Collection> = Vec::new();
    for collection in catalog.iter() {
        let wanted = registry.bucketing_of(&collection.namespace).map(|(_, bucketing)| bucketing);
        let bucketing = match (&collection.shape, wanted) {
            (Shape::Bucketed(now), wanted) => {
                let is_same = match (&now.bucketing, wanted) {
                    (Some(now), Some(wanted)) => Arc::ptr_eq(now, wanted),
                    (now, wanted) => now.is_none() && wanted.is_none(),
                };
                if is_same {
                    continue;
                }
                wanted.cloned()
            }
            (Shape::Plain, Some(wanted)) => Some(wanted.clone()),
            _ => continue,
        };
        let shape = Shape::Bucketed(Arc::new(Bucketed::new(bucketing)));
        // What is open belongs elsewhere now.
        collection.shared.open_rows.forget();
        shaped.push(Collection { shape, ..(**collection).clone() });
    }
    shaped.into_iter().for_each(|collection| catalog.insert(Arc::new(collection)));
}

/// Refuses for a pattern with buckets what is not done to such patterns.
pub(crate) fn check_no_buckets(pattern: &Pattern, what: &str) -> Result<()> {
    if pattern.kind().bucketing().is_none() || pattern.state == PatternState::Unverified {
        return Ok(());
    }
    Err(pattern.refusal(
        ErrorCode::PatternNotReady,
        None,
        format!("bucket '{}' of {} cannot be {what}", pattern.declaration.name, pattern.target),
    ))
}

impl Engine {
    /// Checks a pattern against measurements that are packed: its own, or those of another pattern.
    pub(crate) fn check_buckets(&self, pattern: &Pattern) -> Result<()> {
        let (registry, target) = (self.patterns(), &pattern.target);
        let collection = self.collection(target);
        let refuse = |message: String| Err(pattern.refusal(ErrorCode::PatternFieldConflict, None, message));
        if pattern.kind().bucketing().is_none() {
            let is_shape = pattern.kind().version_step().is_some() || pattern.kind().paging().is_some();
            if let (true, Some((other, _))) = (is_shape, registry.bucketing_of(target)) {
                return refuse(format!(
                    "the measurements of {target} are packed by bucket '{}': they have neither versions nor pages",
                    other.declaration.name
                ));
            }
            if is_shape && collection.is_some_and(|it| matches!(it.shape, Shape::Bucketed(_))) {
                return Err(pattern.refusal(
                    ErrorCode::PatternNotReady,
                    None,
                    format!(
                        "the measurements of {target} were packed a while ago, and a transaction may still read them so: \
                         declare this after the next start of the server"
                    ),
                ));
            }
            return Ok(());
        }
        if let Some((other, _)) = registry.bucketing_of(target)
            && other.declaration.name != pattern.declaration.name
        {
            return refuse(format!(
                "the measurements of {target} are packed by bucket '{}' already",
                other.declaration.name
            ));
        }
        let buckets = target.of_packed();
        buckets.check_creatable()?;
        let catalog = self.catalog();
        let is_other_view = catalog.view(&buckets).is_some_and(|view| !view.shows_packed);
        if catalog.documents(&buckets).is_some() || is_other_view {
            return Err(Error::user(
                ErrorCode::NamespaceExists,
                format!("buckets would be shown as {buckets}, which exists: rename or drop it"),
            ));
        }
        let Some(collection) = collection else { return Ok(()) };
        let other_shape = !matches!(collection.shape, Shape::Plain | Shape::Bucketed(_));
        if collection.capped.is_some() || collection.clustered || other_shape {
            return Err(Error::user(
                ErrorCode::BadValue,
                format!(
                    "{target} is capped or clustered, has versions or pages, or holds pages, so its documents cannot be packed"
                ),
            ));
        }
        if !collection.building.is_empty() && collection.shape.bucketing().is_none() {
            return Err(pattern.refusal(
                ErrorCode::PatternNotReady,
                None,
                format!("an index of {target} is being built: declare the pattern when it is ready"),
            ));
        }
        Ok(())
    }

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

    /// Makes all measurements records of their own, for a pattern that ends. The caller holds the collection.
    pub(crate) fn unpack_buckets(&self, operation: &Arc<Operation>, pattern: &Pattern) -> Result<()> {
        let Some(collection) = self.collection(&pattern.target) else { return Ok(()) };
        if pattern.kind().bucketing().is_none() || collection.shape.bucketing().is_none() {
            return Ok(());
        }
        self.store.settle(Durability::Relaxed)?;
        let (snapshot, home) = (self.store.snapshot(), collection.home());
        let mut unit = Unit::new(self, operation.clone(), Durability::Durable);
        unit.write_in_held(&[collection.id]);
        for bucket in records::buckets(&home, &snapshot, None) {
            let bucket = bucket?;
            operation.check()?;
            for (_, record) in bucket.live() {
                let row: RowId = record.into();
                unit.lock_record(&collection, row)?;
                records::unseal(unit.transaction(), &home, row, |_| true)?;
                unit.written()?;
            }
            records::remove_bucket(unit.transaction(), &home, bucket.number, bucket.count());
            unit.written()?;
        }
        unit.settle()?;
        // The definition says how slips are read, so it may not go before them.
        for (at, row) in records::slips(&self.store.snapshot(), collection.id, RecordId(0)).enumerate() {
            if at % 1024 == 0 {
                operation.check()?;
            }
            let (record, row) = row?;
            if row.is_err() {
                return Err(Error::bug(format!("record {} of {} is still packed", record.0, pattern.target)));
            }
        }
        Ok(())
    }
}

/// Makes a measurement a record of its own if another declaration has packed it. None if its collection is gone, false if
/// there is nothing to do.
pub(crate) fn rebucket(unit: &mut Unit<'_>, namespace: &Namespace, record: RecordId) -> Result<Option<bool>> {
    loop {
        unit.operation.check()?;
        let Some(collection) = unit.enter(namespace)? else { return Ok(None) };
        let Some(bucketing) = collection.shape.bucketing() else { return Ok(Some(false)) };
        let row: RowId = record.into();
        let home = collection.home();
        let is_outdated = |packed: Packed<'_>| packed.fingerprint() != Some(bucketing.fingerprint);
        let unsealed = unit
            .lock_record(&collection, row)
            .and_then(|_| records::unseal(unit.transaction(), &home, row, is_outdated));
        match unsealed {
            Ok(Some((image, bucket))) => {
                note(&collection, bucketing, record, &image, bucket);
                return unit.written().map(|()| Some(true));
            }
            Ok(None) => return unit.written().map(|()| Some(false)),
            Err(error) if unit.can_retry(&error)? => {}
            Err(error) => return Err(error),
        }
    }
}

/// Notes a measurement that was taken out of its bucket.
fn note(collection: &Collection, bucketing: &Bucketing, record: RecordId, image: &Image, bucket: u64) {
    let document = image.document();
    let open_rows = &collection.shared.open_rows;
    open_rows.note(&bucketing.place(document), record, document.as_bytes().len());
    open_rows.note_worn(bucket);
}

/// Makes all measurements of a bucket records of their own. Those that somebody else holds stay where they are.
pub(crate) fn open_bucket(
    engine: &Engine,
    operation: &Arc<Operation>,
    collection: &Arc<Collection>,
    bucket: &FoundBucket,
) -> Result<()> {
    let mut unit = Unit::new(engine, operation.clone(), Durability::Relaxed);
    let Some(now) = unit.enter(&collection.namespace)?.filter(|now| now.id == collection.id) else {
        return Ok(());
    };
    let Some(bucketing) = now.shape.bucketing() else { return Ok(()) };
    let home = now.home();
    let mut are_all_out = true;
    for (_, record) in bucket.live() {
        let row: RowId = record.into();
        if !unit.try_lock(&now, row)? {
            are_all_out = false;
            now.shared.open_rows.note_worn(bucket.number);
            continue;
        }
        if let Some(image) = records::unseal_from(unit.transaction(), &home, row, bucket.number)? {
            let document = image.document();
            now.shared.open_rows.note(&bucketing.place(document), record, document.as_bytes().len());
        }
    }
    // Whatever was in use is held, and is not in use any more.
    if are_all_out {
        records::remove_bucket(unit.transaction(), &home, bucket.number, bucket.count());
    }
    unit.settle()
}

/// What is wrong with a bucket of a snapshot, a few words each.
pub(crate) fn faults_of(
    bucketing: Option<&Bucketing>,
    home: &Home,
    snapshot: &Snapshot,
    bucket: &FoundBucket,
) -> Result<Vec<String>> {
    let Some(packed) = bucket.packed().filter(|packed| packed.is_whole()) else {
        return Ok(vec!["it does not hold what it says".to_owned()]);
    };
    let mut faults = Vec::new();
    for (position, is_in_use) in records::wrong_holes(home, snapshot, bucket)? {
        faults.push(match is_in_use {
            true => format!("position {position} is in use and has a hole"),
            false => format!("position {position} is not in use and has no hole"),
        });
    }
    let rows: Option<Vec<Document>> = (0..bucket.count()).map(|at| bucket.row(at)).collect();
    let Some(rows) = rows else {
        faults.push("a measurement cannot be taken out of it".to_owned());
        return Ok(faults);
    };
    let Some(bucketing) = bucketing.filter(|it| packed.fingerprint() == Some(it.fingerprint)) else {
        return Ok(faults);
    };
    let raw: Vec<RawDocument<'_>> = rows.iter().map(Document::as_raw).collect();
    let Some(place) = raw.first().map(|first| bucketing.place(*first)) else { return Ok(faults) };
    if raw.iter().any(|row| bucketing.place(*row) != place) {
        faults.push("its measurements belong to several places".to_owned());
    } else if packed.told().map(RawDocument::as_bytes) != Some(bucketing.told(&place, &raw)?.as_bytes()) {
        faults.push("its bounds, its count or its stats are not those of its measurements".to_owned());
    }
    Ok(faults)
}

/// Puts a bucket right: holes as the records tell, and its measurements are packed anew.
pub(crate) fn mend_bucket(
    engine: &Engine,
    operation: &Arc<Operation>,
    collection: &Arc<Collection>,
    bucket: &FoundBucket,
) -> Result<()> {
    let mut unit = Unit::new(engine, operation.clone(), engine.options.durability);
    let home = collection.home();
    for (position, _) in records::wrong_holes(&home, &engine.store.snapshot(), bucket)? {
        let records = bucket.packed().and_then(Packed::records).unwrap_or_default();
        let Some(record) = records.get(position).map(|record| RecordId(*record)) else { continue };
        loop {
            if unit.enter(&collection.namespace)?.is_none_or(|now| now.id != collection.id) {
                return Ok(());
            }
            let mended = unit.lock_record_unread(collection, record.into()).and_then(|()| {
                records::mend_hole(unit.transaction(), &home, bucket.number, position, record)
            });
            match mended {
                Ok(()) => break unit.written()?,
                Err(error) if unit.can_retry(&error)? => {}
                Err(error) => return Err(error),
            }
        }
    }
    unit.settle()?;
    let found = records::buckets(&home, &engine.store.snapshot(), Some(bucket.number)).next().transpose()?;
    match found {
        Some(bucket) => open_bucket(engine, operation, collection, &bucket),
        None => Ok(()),
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

/// Packs the open measurements of a collection.
struct Sealer<'s> {
    engine: &'s Engine,
    operation: &'s Arc<Operation>,
    collection: &'s Arc<Collection>,
    bucketing: &'s Arc<Bucketing>,
}

impl Sealer<'_> {
    fn run(&self, which: Which) -> Result<u64> {
        let open_rows = &self.collection.shared.open_rows;
        if open_rows.begin_looking() {
            self.look()?;
        }
        self.repack(open_rows.take_worn())?;
        let mut sealed = 0;
        for (place, waiting) in open_rows.take(self.bucketing, which) {
            sealed += self.seal_place(&place, waiting, which)?;
        }
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

    fn seal_place(&self, place: &Place, waiting: Waiting, which: Which) -> Result<u64> {
        let mut rows = waiting.rows;
        rows.sort_unstable();
        rows.dedup_by_key(|(record, _)| *record);
        let mut sealed = 0;
        let mut portions = rows.chunks(self.bucketing.max_count).peekable();
        while let Some(portion) = portions.next() {
            self.operation.check()?;
            // Among those of an earlier portion, what does not fill a bucket waits for the last one.
            let rest = waiting.rest.filter(|_| which == Which::All || portions.peek().is_none());
            sealed += self.seal_rows(place, portion, rest)?;
        }
        Ok(sealed)
    }

    /// Seals measurements of one place, in one commit. `rest`: those that do not fill a bucket are packed too, if they are at
    /// least so many.
    fn seal_rows(&self, place: &Place, portion: &[(RecordId, u8)], rest: Option<usize>) -> Result<u64> {
        let open_rows = &self.collection.shared.open_rows;
        let mut unit = Unit::new(self.engine, self.operation.clone(), Durability::Relaxed);
        let entered = unit.enter(&self.collection.namespace)?.filter(|now| now.id == self.collection.id);
        let is_same =
            |now: &Arc<Collection>| now.shape.bucketing().is_some_and(|it| Arc::ptr_eq(it, self.bucketing));
        // Another declaration is in force. Whoever put it there has forgotten what was known.
        let Some(collection) = entered.filter(is_same) else { return Ok(0) };
        let home = collection.home();
        let mut rows: Vec<(RecordId, Image)> = Vec::with_capacity(portion.len());
        let mut now = Place::default();
        for (record, tries) in portion {
            let row: RowId = (*record).into();
            let again = |tries| open_rows.note_again(place, *record, 0, tries);
            if !unit.try_lock(&collection, row)? {
                again(*tries);
                continue;
            }
            match records::open_row(unit.transaction(), &home, row)? {
                Opened::Sealed => {}
                Opened::Gone => again(tries + 1),
                Opened::Row(image) => {
                    self.bucketing.find_place(image.document(), &mut now);
                    match now == *place {
                        true => rows.push((*record, image)),
                        false => open_rows.note(&now, *record, image.document().as_bytes().len()),
                    }
                }
            }
        }
        self.bucketing.sort(&mut rows, |(record, image)| (record.0, image.document()));
        let mut left = &rows[..];
        let mut sealed = 0;
        while !left.is_empty() {
            let count = self.bucketing.portion(left.iter().map(|(_, image)| image.document()));
            let (packed, behind) = left.split_at(count);
            let is_full = !behind.is_empty() || count == self.bucketing.max_count;
            let least = if is_full { Some(LEAST) } else { rest };
            match least.is_some_and(|least| count >= least) {
                true => {
                    let number = collection.shared.next_bucket.fetch_add(1, Ordering::Relaxed);
                    let rows: Vec<(u64, RawDocument<'_>)> =
                        packed.iter().map(|(record, image)| (record.0, image.document())).collect();
                    let bucket = self.bucketing.bucket(place, &rows)?;
                    // Nothing takes the place of a measurement that does not give it back byte for byte.
                    if is_faithful(&bucket, &rows) {
                        let records = packed.iter().map(|(record, _)| *record);
                        records::seal(unit.transaction(), &home, number, &bucket, records);
                        sealed += count as u64;
                    } else {
                        tracing::warn!(ns = %collection.namespace, "measurements cannot be packed and stay open");
                    }
                }
                // One that fills a bucket by itself stays as it is, and is not tried again.
                false if is_full => {}
                false => {
                    for (record, image) in packed {
                        open_rows.note(place, *record, image.document().as_bytes().len());
                    }
                }
            }
            left = behind;
        }
        unit.settle()?;
        Ok(sealed)
    }
}
