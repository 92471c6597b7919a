//! `validate`: recomputes what every index must hold and compares.
//!
//! Reads one snapshot, so it runs beside writers. Each record must be valid BSON, have exactly the
//! entries its keys ask for, and nothing else may be in the indexes; the stored count and size must be
//! the real ones. A damaged page ends the comparison of its tree and is an error in the report, not of the command.

use std::ops::Bound;

use kilim_bson::RawDocument;
use kilim_collation::collator;
use kilim_error::{Error, Result, StorageError};
use kilim_query::time_series::Bucket;
use kilim_storage::{Direction, Snapshot, Space};

use super::compact::trees_of;
use crate::catalog::{Collection, Validation};
use crate::engine::Engine;
use crate::index::{Index, KeySet, index_entry, keys_of_row};
use crate::layout;
use crate::operation::Operation;
use crate::records::{Home, Image, RowId, Shape, buckets, inspect};
use crate::upkeep::faults_of;

#[derive(Debug, Default)]
pub struct Validated {
    pub records: u64,
    pub bytes: u64,
    pub invalid_records: u64,
    /// Documents that the collection's validator would not let pass.
    pub non_compliant: u64,
    /// Entries found, by index, in the collection's order.
    pub entries: Vec<u64>,
    pub errors: Vec<String>,
    pub warnings: Vec<String>,
    /// Some page could not be read, so the figures are not the whole.
    pub damaged: bool,
}

impl Validated {
    pub fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }
}

/// Whether the collection's validator lets a document pass, with what patterns maintain in it or without.
fn complies(
    engine: &Engine,
    collection: &Collection,
    validation: &Validation,
    document: RawDocument<'_>,
) -> Result<bool> {
    if validation.complies(document, || engine.now())? {
        return Ok(true);
    }
    match engine.patterns().without_maintained(&collection.namespace, document)? {
        Some(bare) => validation.complies(bare.as_raw(), || engine.now()),
        None => Ok(false),
    }
}

/// How many errors are told; beyond that, more of them say nothing new.
const ERRORS_MAX: usize = 100;

pub fn validate(
    engine: &Engine,
    collection: &Collection,
    snapshot: &Snapshot,
    operation: &Operation,
) -> Result<Validated> {
    let mut found = Validated::default();
    let indexes: Vec<&Index> = (collection.indexes.iter())
        .filter(|index| index.ready_since <= snapshot.commit_time())
        .map(|index| &**index)
        .collect();
    // Entries that records ask for; none once a page of the index could not be read.
    let mut expected = vec![Some(0); indexes.len()];
    let mut keys = KeySet::default();
    let home = collection.home();
    let mut sealed = 0;
    let validation = collection.validation()?;
    for inspected in inspect(home.clone(), snapshot) {
        let Some(inspected) = found.unless_damaged(inspected)? else {
            expected.fill(None);
            break;
        };
        let record = inspected.record;
        found.records += 1;
        if found.records % 1024 == 0 {
            operation.check()?;
        }
        let rows = match inspected.rows() {
            Ok(rows) => rows,
            Err(error) => {
                found.invalid_records += 1;
                found.note(format!("record {} cannot be read in its collection's shape: {error}", record.0));
                continue;
            }
        };
        let Some(rows) = rows else {
            found.invalid_records += 1;
            found.note(format!("record {} is not valid BSON", record.0));
            continue;
        };
        found.bytes += inspected.bytes();
        sealed += u64::from(inspected.is_sealed());
        for (row, image) in rows {
            let document = image.document();
            if let Some(validation) = &validation
                && !validation.is_off()
                && !complies(engine, collection, validation, document)?
            {
                found.non_compliant += 1;
            }
            if let Some(series) = &collection.time_series
                && !Bucket::is_sound(series, document, collator(&collection.collation))
            {
                found.note(format!("record {} is no bucket whose bounds hold its measurements", record.0));
            }
            for (index, expected) in indexes.iter().zip(&mut expected) {
                let Some(so_far) = *expected else { continue };
                let entries = found.check_entries_of(&home, row, &image, index, &mut keys, snapshot);
                *expected = found.unless_damaged(entries)?.map(|entries| so_far + entries);
            }
        }
    }
    for (index, expected) in indexes.iter().zip(expected) {
        found.check_entries_in(index, expected, snapshot, operation)?;
    }
    if let Shape::Bucketed(_) = home.shape {
        found.check_buckets(collection, &home, snapshot, operation, sealed)?;
    }
    found.check_compliance(collection);
    found.check_counts(collection, snapshot)?;
    Ok(found)
}

impl Validated {
    /// Whether a record has its entries in an index; how many they are.
    fn check_entries_of(
        &mut self,
        home: &Home,
        row: RowId,
        image: &Image,
        index: &Index,
        keys: &mut KeySet,
        snapshot: &Snapshot,
    ) -> Result<u64> {
        let name = &index.spec.name;
        let record = row.record;
        let Ok(seen) = keys_of_row(&index.spec, home, snapshot, row, image, keys) else {
            self.note(format!("index {name} cannot hold record {}", record.0));
            return Ok(0);
        };
        if !index.multikey.covers(&seen) {
            self.note(format!("index {name} is not marked multikey for record {}", record.0));
        }
        let mut entries = 0;
        for (key, type_bits) in keys.iter() {
            entries += 1;
            let (entry, value) = index_entry(index, key, type_bits, record);
            match snapshot.get(Space::Index, &entry)? {
                Some(stored) if *stored == value[..] => {}
                // Of equal elements in several pages, any may have given its types.
                Some(_) if home.shape.paged().is_some() => {}
                Some(_) => self.note(format!("an entry of index {name} differs for record {}", record.0)),
                None => self.note(format!("index {name} lacks an entry of record {}", record.0)),
            }
        }
        Ok(entries)
    }

    /// Whether an index has no entries but those that records have in it.
    fn check_entries_in(
        &mut self,
        index: &Index,
        expected: Option<u64>,
        snapshot: &Snapshot,
        operation: &Operation,
    ) -> Result<()> {
        let lower = layout::index_prefix(index.id);
        let upper = (index.id.0 + 1).to_be_bytes();
        let entries =
            snapshot.scan(Space::Index, Bound::Included(&lower), Bound::Excluded(&upper), Direction::Forward);
        let mut count = 0;
        for entry in entries {
            if self.unless_damaged(entry)?.is_none() {
                self.entries.push(count);
                return Ok(());
            }
            count += 1;
            if count % 4096 == 0 {
                operation.check()?;
            }
        }
        if let Some(expected) = expected
            && count != expected
        {
            self.note(format!("index {} has {count} entries, {expected} expected", index.spec.name));
        }
        self.entries.push(count);
        Ok(())
    }

    /// Whether buckets are true, and hold as many measurements as say that they lie in one.
    fn check_buckets(
        &mut self,
        collection: &Collection,
        home: &Home,
        snapshot: &Snapshot,
        operation: &Operation,
        sealed: u64,
    ) -> Result<()> {
        let bucketing = collection.shape.bucketing().map(|bucketing| &**bucketing);
        let mut in_use = 0;
        for bucket in buckets(home, snapshot, None) {
            operation.check()?;
            let Some(bucket) = self.unless_damaged(bucket)? else { return Ok(()) };
            in_use += bucket.live().len() as u64;
            let faults = faults_of(bucketing, home, snapshot, &bucket);
            for fault in self.unless_damaged(faults)?.unwrap_or_default() {
                self.note(format!("bucket {}: {fault}", bucket.number));
            }
        }
        if in_use != sealed && !self.damaged && self.invalid_records == 0 {
            self.note(format!("{sealed} records say that they lie in buckets, which have {in_use} in use"));
        }
        Ok(())
    }

    fn check_compliance(&mut self, collection: &Collection) {
        if self.non_compliant > 0 {
            let told =
                "Detected one or more documents not compliant with the collection's schema.".to_owned();
            match collection.validation.as_ref().is_some_and(|validation| validation.warns()) {
                true => self.warnings.push(told),
                false => self.note(told),
            }
        }
    }

    fn check_counts(&mut self, collection: &Collection, snapshot: &Snapshot) -> Result<()> {
        if self.damaged {
            return Ok(());
        }
        let counted = collection.home().counts(snapshot);
        let Some(counted) = self.unless_damaged(counted)? else { return Ok(()) };
        if counted.count != self.records as i64 {
            self.note(format!("the stored count is {}, there are {} records", counted.count, self.records));
        }
        if counted.bytes != self.bytes as i64 && self.invalid_records == 0 {
            self.note(format!("the stored size is {}, the records have {} bytes", counted.bytes, self.bytes));
        }
        Ok(())
    }

    /// Reads every page of a collection and its indexes from disk; names those that are damaged.
    pub fn check_pages(
        &mut self,
        engine: &Engine,
        collection: &Collection,
        operation: &Operation,
    ) -> Result<()> {
        for (space, prefix) in trees_of(collection) {
            let problems =
                engine.store.check_tree(space, u32::from_be_bytes(prefix), &mut |_| operation.check())?;
            for problem in problems {
                self.damaged = true;
                if !self.errors.contains(&problem) {
                    self.note(problem);
                }
            }
        }
        Ok(())
    }

    /// What was read, or nothing where a page is damaged, which is noted.
    fn unless_damaged<T>(&mut self, read: Result<T>) -> Result<Option<T>> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(Error::Storage(StorageError::Corrupt(what))) => {
                self.damaged = true;
                if !self.errors.contains(&what) {
                    self.note(what);
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn note(&mut self, error: String) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(error);
        }
    }
}
