//! Measurements that are packed into buckets: put in force, opened, checked and unpacked.
//!
//! A measurement that is not packed yet is read and written as any other, so a declaration is in force at once. `seal` packs
//! those that wait.
//!
//! A bucket of which much is not in use any more is opened: its measurements become records of their own, and are sealed
//! again with others. The same is done with all buckets that another declaration has packed, by the job that fills the
//! pattern, and with all buckets at all when the pattern is dropped.
//!
//! Invariant: each measurement is one record at every commit. So a crash leaves it exactly once.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument};
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::{Bucketing, Packed};
use kilim_storage::{Durability, Snapshot};

use crate::catalog::{Catalog, Collection};
use crate::engine::Engine;
use crate::ids::RecordId;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::patterns::{Pattern, PatternState, Registry};
use crate::records::{self, Bucketed, FoundBucket, Home, Image, RowId, Shape};
use crate::unit::Unit;

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
