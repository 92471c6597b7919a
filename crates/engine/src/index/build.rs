//! Builds indexes while writers go on.
//!
//! 1. Under the collection's lock, held whole for a moment, the index joins the collection's `building`
//!    list: from now on every writer notes which records it touches.
//! 2. A snapshot taken then is scanned, the keys sorted and ingested under a fresh index id.
//! 3. Rounds of catching up: the records touched so far are compared between the last snapshot and a
//!    new one, and the difference of their keys is written.
//! 4. Under the lock again, the last round; the index becomes part of the collection in one commit.
//!
//! Invariant: after each round the entries are exactly the keys of that round's snapshot.
//!
//! A unique index catches up in the last round only: between snapshots two records may hold one key for
//! a moment, which nobody refuses while the index is not there yet.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kilim_bson::RawDocument;
use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::{Direction, Durability, Snapshot, Space};
use parking_lot::Mutex;

use super::sorter::Sorter;
use super::{Index, IndexId, IndexSpec, KeySet, Multikey, keys_of};
use crate::catalog::{Collection, RecordId};
use crate::engine::Engine;
use crate::layout;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::write::{duplicate_key, index_entry};

/// Records to catch up with while writers wait, at most.
const LAST_ROUND_RECORDS: usize = 1000;

/// An index under construction.
#[derive(Debug)]
pub struct BuildingIndex {
    pub index: Index,
    touched: Mutex<Touched>,
    /// Records scanned so far, for currentOp.
    pub progress: AtomicU64,
}

#[derive(Debug, Default)]
struct Touched {
    records: BTreeSet<RecordId>,
    multikey: Multikey,
}

impl BuildingIndex {
    /// A writer is about to change this record. Refuses a document that the index could not hold.
    pub(crate) fn touch(
        &self,
        record: RecordId,
        before: Option<RawDocument<'_>>,
        after: Option<RawDocument<'_>>,
    ) -> Result<()> {
        let mut keys = KeySet::default();
        let mut multikey = Multikey::default();
        for document in [before, after].into_iter().flatten() {
            multikey = multikey.union(&keys_of(&self.index.spec, document, &mut keys)?);
            keys.clear();
        }
        let mut touched = self.touched.lock();
        touched.records.insert(record);
        touched.multikey = touched.multikey.union(&multikey);
        Ok(())
    }

    fn take_touched(&self) -> (BTreeSet<RecordId>, Multikey) {
        let mut touched = self.touched.lock();
        (std::mem::take(&mut touched.records), touched.multikey.clone())
    }

    fn touched_count(&self) -> usize {
        self.touched.lock().records.len()
    }
}

impl Engine {
    /// Builds indexes on a collection that exists. They appear together, or none does.
    pub fn build_indexes(&self, operation: &Operation, namespace: &Namespace, specs: Vec<IndexSpec>) -> Result<()> {
        let mut build = Build::begin(self, operation, namespace, specs)?;
        let result = build.run();
        if result.is_err() {
            build.give_up();
        }
        result
    }

    /// `dropIndexes` of these: the names are known to exist and `_id_` is not among them.
    pub fn drop_indexes(&self, operation: &Operation, namespace: &Namespace, dropped: &[IndexId]) -> Result<()> {
        let (_, _held) = self.hold(operation, namespace)?;
        let changed = self.replace_collection(namespace, |collection, transaction| {
            collection.indexes =
                collection.indexes.iter().filter(|index| !dropped.contains(&index.id)).cloned().collect();
            for id in dropped {
                transaction.reclaim(Space::Index, &layout::index_prefix(*id));
            }
        })?;
        changed.shared.plan_cache.clear();
        self.cursors.close_of_collection(changed.id);
        Ok(())
    }

    /// Shows or hides an index from the planner.
    pub fn set_index_hidden(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        id: IndexId,
        hidden: bool,
    ) -> Result<()> {
        let (_, _held) = self.hold(operation, namespace)?;
        let changed = self.replace_collection(namespace, |collection, _| {
            collection.indexes = (collection.indexes.iter())
                .map(|index| match index.id == id {
                    true => Arc::new(Index { spec: IndexSpec { hidden, ..index.spec.clone() }, ..(**index).clone() }),
                    false => index.clone(),
                })
                .collect();
        })?;
        changed.shared.plan_cache.clear();
        Ok(())
    }
}

struct Build<'e> {
    engine: &'e Engine,
    operation: &'e Operation,
    namespace: &'e Namespace,
    collection: Arc<Collection>,
    building: Vec<Arc<BuildingIndex>>,
    /// What the entries correspond to.
    reached: Snapshot,
}

impl<'e> Build<'e> {
    fn begin(
        engine: &'e Engine,
        operation: &'e Operation,
        namespace: &'e Namespace,
        specs: Vec<IndexSpec>,
    ) -> Result<Build<'e>> {
        let (_, held) = engine.hold(operation, namespace)?;
        let building: Vec<Arc<BuildingIndex>> = {
            let mut ids = engine.ids.lock();
            let building = |spec: IndexSpec| {
                Arc::new(BuildingIndex {
                    index: Index { id: ids.next_index(), spec, multikey: Multikey::default(), ready_since: 0 },
                    touched: Mutex::default(),
                    progress: AtomicU64::new(0),
                })
            };
            specs.into_iter().map(building).collect()
        };
        engine.replace_in_memory(namespace, |collection| {
            collection.building = collection.building.iter().chain(&building).cloned().collect();
        });
        // Writes that were queued before we held the collection are not in `building`'s lists: see
        // them published before the snapshot is taken.
        let reached = published(engine)?;
        let collection = engine.collection(namespace).ok_or_else(|| crate::ddl::not_found(namespace))?;
        drop(held);
        Ok(Build { engine, operation, namespace, collection, building, reached })
    }

    fn run(&mut self) -> Result<()> {
        let mut multikeys = Vec::with_capacity(self.building.len());
        for building in self.building.clone() {
            multikeys.push(self.ingest(&building)?);
        }
        let behind = |building: &Arc<BuildingIndex>| building.touched_count() > LAST_ROUND_RECORDS;
        let in_rounds = self.building.iter().all(|building| !building.index.spec.unique);
        while in_rounds && self.building.iter().any(behind) {
            let held = self.hold()?;
            let reached = published(self.engine)?;
            let touched: Vec<_> = self.building.iter().map(|building| building.take_touched().0).collect();
            drop(held);
            for (building, touched) in self.building.iter().zip(touched) {
                self.catch_up(building, &touched, &reached)?;
            }
            self.reached = reached;
        }
        self.finish(multikeys)
    }

    /// Scans the snapshot, sorts its keys and loads them.
    fn ingest(&self, building: &BuildingIndex) -> Result<Multikey> {
        let index = &building.index;
        let lower = layout::record_key(self.collection.id, RecordId(0));
        let upper = layout::record_key(self.collection.id, RecordId(u64::MAX));
        let scan = self.reached.scan(
            Space::Records,
            Bound::Included(&lower[..]),
            Bound::Included(&upper[..]),
            Direction::Forward,
        );
        let mut sorter = Sorter::new();
        let mut multikey = Multikey::default();
        let mut keys = KeySet::default();
        for entry in scan {
            let (record_key, stored) = entry?;
            let record = layout::record_id_of(&record_key);
            keys.clear();
            let seen = keys_of(&index.spec, self.logical(&stored), &mut keys)?;
            if !multikey.covers(&seen) {
                multikey = multikey.union(&seen);
            }
            for (key, type_bits) in keys.iter() {
                let (entry, value) = index_entry(index, key, type_bits, record);
                sorter.push(entry, value)?;
            }
            if building.progress.fetch_add(1, Ordering::Relaxed) % 1024 == 0 {
                self.operation.check()?;
            }
        }

        let mut merge = sorter.finish()?;
        let mut failure = None;
        let mut previous: Option<Vec<u8>> = None;
        let sorted = std::iter::from_fn(|| match merge.next_entry() {
            Ok(Some((entry, value))) => {
                if index.spec.unique && previous.as_ref() == Some(&entry) {
                    failure = Some(duplicate_key(self.namespace, index, &entry[4..], &value[8..]));
                    return None;
                }
                if index.spec.unique {
                    previous = Some(entry.clone());
                }
                Some((entry, value))
            }
            Ok(None) => None,
            Err(error) => {
                failure = Some(error);
                None
            }
        });
        self.engine.store.ingest(Space::Index, sorted)?;
        match failure {
            Some(error) => Err(error),
            None => Ok(multikey),
        }
    }

    /// Brings the entries of touched records from the last snapshot to a newer one.
    fn catch_up(&self, building: &BuildingIndex, touched: &BTreeSet<RecordId>, to: &Snapshot) -> Result<()> {
        let index = &building.index;
        let mut transaction = self.engine.store.begin();
        let mut additions = Vec::new();
        for &record in touched {
            let (mut old, mut new) = (KeySet::default(), KeySet::default());
            let key = layout::record_key(self.collection.id, record);
            if let Some(stored) = self.reached.get(Space::Records, &key)? {
                keys_of(&index.spec, self.logical(&stored), &mut old)?;
            }
            if let Some(stored) = to.get(Space::Records, &key)? {
                keys_of(&index.spec, self.logical(&stored), &mut new)?;
            }
            for (key, type_bits) in old.iter().filter(|(key, bits)| !new.contains_with_bits(key, bits)) {
                transaction.delete(Space::Index, &index_entry(index, key, type_bits, record).0);
            }
            for (key, type_bits) in new.iter().filter(|(key, bits)| !old.contains_with_bits(key, bits)) {
                additions.push((key.to_vec(), type_bits.to_vec(), record));
            }
        }
        // Removals first: a unique key may have moved from one record to another.
        for (key, type_bits, record) in additions {
            let (entry, value) = index_entry(index, &key, &type_bits, record);
            if index.spec.unique && transaction.latest(Space::Index, &entry)?.is_some() {
                return Err(duplicate_key(self.namespace, index, &key, &type_bits));
            }
            transaction.put(Space::Index, entry, value);
        }
        if !transaction.is_empty() {
            transaction.commit(Durability::Durable)?;
        }
        Ok(())
    }

    /// The last round and the switch, with no writer inside.
    fn finish(&mut self, multikeys: Vec<Multikey>) -> Result<()> {
        let _held = self.hold()?;
        let last = published(self.engine)?;
        let mut finished = Vec::new();
        for (building, scanned) in self.building.iter().zip(multikeys) {
            let (touched, seen) = building.take_touched();
            self.catch_up(building, &touched, &last)?;
            let multikey = scanned.union(&seen);
            finished.push(Index { multikey, ready_since: u64::MAX, ..building.index.clone() });
        }
        // Whoever reads the new catalog with a snapshot from before this moment must not use them.
        let ready_since = published(self.engine)?.commit_time();
        let building = &self.building;
        let changed = self.engine.replace_collection(self.namespace, |collection, _| {
            let finished = finished.drain(..).map(|index| Arc::new(Index { ready_since, ..index }));
            collection.indexes = collection.indexes.iter().cloned().chain(finished).collect();
            collection.building = without(&collection.building, building);
        })?;
        changed.shared.plan_cache.clear();
        Ok(())
    }

    /// Keeps writers out, if it is still the collection that the build began on.
    fn hold(&self) -> Result<crate::ddl::Held> {
        let (collection, held) = self.engine.hold(self.operation, self.namespace)?;
        if collection.id != self.collection.id {
            return Err(Error::user(ErrorCode::IndexBuildAborted, "the collection was dropped during the index build"));
        }
        Ok(held)
    }

    fn give_up(&mut self) {
        let building = &self.building;
        self.engine.replace_in_memory(self.namespace, |collection| {
            collection.building = without(&collection.building, building);
        });
        let mut transaction = self.engine.store.begin();
        for building in building {
            transaction.reclaim(Space::Index, &layout::index_prefix(building.index.id));
        }
        if let Err(error) = transaction.commit(Durability::Relaxed) {
            tracing::warn!(%error, "could not give back the space of a failed index build");
        }
    }

    fn logical<'a>(&self, stored: &'a [u8]) -> RawDocument<'a> {
        // SAFETY: records hold documents that passed validation.
        let stored = unsafe { RawDocument::from_validated(&stored[layout::STAMP_BYTES..]) };
        self.collection.shape.to_logical(stored)
    }
}

fn without(all: &[Arc<BuildingIndex>], gone: &[Arc<BuildingIndex>]) -> Arc<[Arc<BuildingIndex>]> {
    all.iter().filter(|each| !gone.iter().any(|other| Arc::ptr_eq(each, other))).cloned().collect()
}

/// A snapshot that has everything that was queued before this call.
fn published(engine: &Engine) -> Result<Snapshot> {
    engine.store.sync()?;
    Ok(engine.store.snapshot())
}

/// Refuses specs beyond what one collection may have.
pub fn check_index_count(collection: &Collection, added: usize) -> Result<()> {
    let count = collection.indexes.len() + collection.building.len() + added;
    if count > crate::limits::INDEXES_MAX {
        return Err(Error::user(
            ErrorCode::CannotCreateIndex,
            format!("add index fails, too many indexes for {}", collection.namespace),
        ));
    }
    Ok(())
}
