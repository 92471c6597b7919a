//! Builds indexes while writers go on.
//!
//! 1. Under the collection's lock, held whole for a moment, the index joins the collection's `building`
//!    list: from now on every writer notes which records it touches.
//! 2. A snapshot taken then is scanned, the keys sorted and ingested under a fresh index id.
//! 3. Rounds of catching up: the records touched so far are compared between the last snapshot and a
//!    new one, and the difference of their keys is written.
//! 4. Under the lock again, the last round; the index becomes part of the collection in one commit.
//!
//! The build goes by the collection's id, so a rename does not disturb it. A mark in `meta` tells of its index
//! ids for as long as it runs: what a crash leaves is reclaimed at the next opening, and the ids stay used.
//!
//! Invariant: after each round the entries are exactly the keys of that round's snapshot, less those put off.
//!
//! In a unique index two records may hold one key for a moment, which nobody refuses while the index is not
//! there yet. Such a key is put off: it has no entry, and its records are looked at again in the next round. What
//! is still held twice in the last round is an error.

mod convert;
mod request;
mod switch;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::{Bytes, Durability, Snapshot, Space, Store, Transaction};
use parking_lot::Mutex;

pub use convert::{Conversion, Violations};
pub use request::{check_for_new_collection, check_index_count, new_specs};
pub(crate) use switch::{Put, Switch};

use crate::catalog::Collection;
use crate::change_log::Kind;
use crate::engine::Engine;
use crate::ids::{IndexId, RecordId};
use crate::index::{
    BuildProgress, BuildingIndex, Index, IndexSpec, KeySet, Multikey, OneEntry, Phase, PutOff, Sorter, Usage,
    duplicate_key, index_entry, keys_of_row,
};
use crate::layout;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::records::Records;

/// Records to catch up with while writers wait, at most.
const LAST_ROUND_RECORDS: usize = 1000;

/// Entries of keys held twice that a unique build puts off; with more, it fails at once.
const PUT_OFF_MAX: usize = 10_000;

/// How often the log tells how far a build is.
const TELL_EVERY: Duration = Duration::from_secs(3);

impl Engine {
    /// Builds indexes on a collection that exists, as far as it lacks them. They appear together, or none
    /// does. One that is being built for somebody else is waited for.
    pub fn build_indexes(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        specs: Vec<IndexSpec>,
    ) -> Result<Built> {
        self.patterns().check_new_indexes(namespace, &specs)?;
        loop {
            match Build::begin(self, operation, namespace, &specs, Vec::new(), None)? {
                Beginning::Elsewhere => self.environment().sleep(TURN),
                Beginning::Nothing { before } => return Ok(Built { before, added: 0 }),
                Beginning::Begun(build) => {
                    let built = Built { before: build.collection.indexes.len(), added: build.building.len() };
                    return build.run_to_end().map(|()| built);
                }
            }
        }
    }

    /// `dropIndexes` of these: the names are known to exist and `_id_` is not among them.
    pub fn drop_indexes(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        dropped: &[IndexId],
    ) -> Result<()> {
        let (_, _held) = self.hold(operation, namespace)?;
        let changed = self.replace_collection(namespace, |collection, transaction| {
            for gone in collection.indexes.iter().filter(|index| dropped.contains(&index.id)) {
                self.log_indexes(transaction, Kind::DropIndexes, collection, &[&gone.spec], None);
            }
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

    /// Ends builds of these indexes, if they are all that their builds make, and waits until they are gone. One
    /// that is through by then has become an index.
    pub fn abort_builds(&self, operation: &Operation, namespace: &Namespace, names: &[String]) -> Result<()> {
        loop {
            let Some(collection) = self.collection(namespace) else { return Ok(()) };
            let meant = |building: &&Arc<BuildingIndex>| names.contains(&building.index.spec.name);
            let mut building = collection.building.iter().filter(meant).peekable();
            if building.peek().is_none() {
                return Ok(());
            }
            for building in building {
                if building.build.names.iter().any(|name| !names.contains(name)) {
                    return Err(Error::user(
                        ErrorCode::IndexNotFound,
                        format!("can't drop unfinished index with name: {}", building.index.spec.name),
                    ));
                }
                building.build.abort();
            }
            operation.check()?;
            self.environment().sleep(TURN);
        }
    }
}

/// How many indexes there were, and how many are new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Built {
    pub before: usize,
    pub added: usize,
}

/// How long one waits for somebody else's build before one looks again.
const TURN: Duration = Duration::from_millis(5);

pub(super) enum Beginning<'e> {
    Begun(Box<Build<'e>>),
    /// An index of that name is being built.
    Elsewhere,
    /// All are there.
    Nothing {
        before: usize,
    },
}

pub(super) struct Build<'e> {
    engine: &'e Engine,
    operation: &'e Operation,
    namespace: &'e Namespace,
    collection: Arc<Collection>,
    building: Vec<Arc<BuildingIndex>>,
    progress: Arc<BuildProgress>,
    /// The indexes whose places those that are built take, one by one; none where they are new.
    replaced: Vec<IndexId>,
    /// What the collection becomes together with its indexes.
    switch: Option<Switch<'e>>,
    /// What the entries correspond to.
    reached: Snapshot,
}

impl<'e> Build<'e> {
    pub(super) fn begin(
        engine: &'e Engine,
        operation: &'e Operation,
        namespace: &'e Namespace,
        specs: &[IndexSpec],
        replaced: Vec<IndexId>,
        switch: Option<Switch<'e>>,
    ) -> Result<Beginning<'e>> {
        let (collection, held) = engine.hold(operation, namespace)?;
        let elsewhere = |spec: &IndexSpec| {
            collection
                .building
                .iter()
                .any(|building| building.index.spec.name == spec.name || building.index.spec.key == spec.key)
        };
        if specs.iter().any(elsewhere) {
            operation.check()?;
            return Ok(Beginning::Elsewhere);
        }
        let specs = match replaced.is_empty() {
            false => specs.to_vec(),
            true => new_specs(&collection, specs.to_vec())?,
        };
        let gone = |id: &IndexId| collection.indexes.iter().all(|index| index.id != *id);
        if specs.is_empty() || replaced.iter().any(gone) {
            return Ok(Beginning::Nothing { before: collection.indexes.len() });
        }
        if replaced.is_empty() {
            check_index_count(&collection, &specs)?;
        }
        let progress = Arc::new(BuildProgress::new(
            specs.iter().map(|spec| spec.name.clone()).collect(),
            engine.environment().now(),
        ));
        let building: Vec<Arc<BuildingIndex>> = {
            let mut ids = engine.ids.lock();
            let building = |spec: IndexSpec| {
                Arc::new(BuildingIndex {
                    index: Index {
                        id: ids.next_index(),
                        spec,
                        multikey: Multikey::default(),
                        usage: Usage::default(),
                        ready_since: 0,
                    },
                    build: progress.clone(),
                    touched: Mutex::default(),
                    versions: switch.as_ref().map(|switch| switch.versions.clone()),
                })
            };
            let building: Vec<_> = specs.into_iter().map(building).collect();
            // Before the first entry: ids that were given out stay used, whatever happens.
            let mut transaction = engine.store.begin();
            for building in &building {
                let mark = layout::building_key(building.index.id);
                transaction.put(Space::Meta, mark.to_vec(), Vec::new());
            }
            ids.save(&mut transaction);
            transaction.commit(Durability::Durable)?;
            building
        };
        engine.replace_in_memory(collection.id, |collection| {
            collection.building = collection.building.iter().chain(&building).cloned().collect();
        });
        let reached = engine.store.snapshot();
        let mut build = Box::new(Build {
            engine,
            operation,
            namespace,
            collection,
            building,
            progress,
            replaced,
            switch,
            reached,
        });
        if let Err(error) = build.see_published() {
            // Otherwise others would wait for ever for a build that nobody runs.
            build.give_up();
            return Err(error);
        }
        drop(held);
        Ok(Beginning::Begun(build))
    }

    /// Writes that were queued before the collection was held are not in the lists of what is built: they are to be
    /// published before the snapshot is taken.
    fn see_published(&mut self) -> Result<()> {
        self.reached = published(self.engine)?;
        let now = self.engine.collection(self.namespace);
        self.collection = now.ok_or_else(|| crate::catalog::not_found(self.namespace))?;
        Ok(())
    }

    /// Builds, and leaves nothing behind where that fails. The log tells of both.
    pub(super) fn run_to_end(mut self) -> Result<()> {
        let begun = self.engine.environment().now();
        let (namespace, indexes) = (self.namespace.to_string(), self.progress.names.clone());
        tracing::info!(namespace, ?indexes, "Index build: starting");
        let result = self.run();
        let millis = self.engine.environment().since(begun).as_millis() as u64;
        match &result {
            Ok(()) => tracing::info!(namespace, ?indexes, millis, "Index build: completed successfully"),
            Err(error) => {
                self.give_up();
                tracing::info!(namespace, ?indexes, millis, %error, "Index build: failed");
            }
        }
        result
    }

    /// Whether the build may go on.
    fn check(&self) -> Result<()> {
        if self.progress.is_aborted() {
            return Err(Error::user(
                ErrorCode::IndexBuildAborted,
                "Index build failed: the index or its collection was dropped during the index build",
            ));
        }
        self.operation.check()
    }

    /// Tells the log how far it is, now and then.
    fn tell(&self, told: &mut Instant) {
        if self.engine.environment().since(*told) >= TELL_EVERY {
            *told = self.engine.environment().now();
            let (phase, done, total) = self.progress.now();
            let namespace = self.namespace.to_string();
            tracing::info!(namespace, ?phase, done, total, "Index build: in progress");
        }
    }

    fn run(&mut self) -> Result<()> {
        let mut multikeys = Vec::with_capacity(self.building.len());
        for building in self.building.clone() {
            multikeys.push(self.ingest(&building)?);
        }
        self.progress.begin(Phase::CatchingUp, 0);
        let behind = |building: &Arc<BuildingIndex>| building.touched_count() > LAST_ROUND_RECORDS;
        while self.building.iter().any(behind) {
            self.check()?;
            let (_, held) = self.hold()?;
            let reached = published(self.engine)?;
            let touched: Vec<_> = self.building.iter().map(|building| building.take_touched().0).collect();
            drop(held);
            for (building, touched) in self.building.iter().zip(touched) {
                self.catch_up(building, touched, &reached, false)?;
            }
            self.reached = reached;
        }
        self.finish(multikeys)
    }

    /// Scans the snapshot, sorts its keys and loads them.
    fn ingest(&self, building: &BuildingIndex) -> Result<Multikey> {
        let index = &building.index;
        let records = self.collection.home().counts(&self.reached)?.count;
        self.progress.begin(Phase::Scanning, records.max(0) as u64);
        let (mut told, mut number) = (self.engine.environment().now(), 0u64);
        let mut sorter = Sorter::new();
        let mut multikey = Multikey::default();
        let (mut keys, mut entry) = (KeySet::default(), OneEntry::default());
        let records = self.records_in(&self.reached);
        for row in records.all() {
            let (id, image) = row?;
            let seen = keys_of_row(&index.spec, records.home(), &self.reached, id, &image, &mut keys)?;
            if !multikey.covers(&seen) {
                multikey = multikey.union(&seen);
            }
            for (key, type_bits) in keys.iter() {
                entry.set(index, key, type_bits, id.record);
                sorter.push(&entry.key, &entry.value)?;
                number += 1;
                if number.is_multiple_of(1024) {
                    self.check()?;
                }
            }
            if self.progress.step().is_multiple_of(1024) {
                self.check()?;
                self.tell(&mut told);
            }
        }
        self.progress.begin(Phase::Loading, number);

        let mut merge = sorter.finish()?;
        let mut following = merge.next_entry()?;
        let mut put_off = 0;
        let mut next = || -> Result<Option<(Bytes, Bytes)>> {
            while let Some((entry, value)) = following.take() {
                if self.progress.step().is_multiple_of(1024) {
                    self.check()?;
                    self.tell(&mut told);
                }
                following = merge.next_entry()?;
                let mut alone = true;
                while index.spec.unique
                    && let Some((_, other)) = following.take_if(|(following, _)| *following == entry)
                {
                    alone = false;
                    put_off += 1;
                    if put_off > PUT_OFF_MAX {
                        return Err(duplicate_key(self.namespace, index, &entry[4..], &other[8..]));
                    }
                    building.put_off(&entry, &other);
                    following = merge.next_entry()?;
                }
                if alone {
                    return Ok(Some((entry, value)));
                }
                building.put_off(&entry, &value);
            }
            Ok(None)
        };
        let mut failure = None;
        let sorted = std::iter::from_fn(|| {
            next().unwrap_or_else(|error| {
                failure = Some(error);
                None
            })
        });
        self.engine.store.ingest_shared(Space::Index, sorted)?;
        match failure {
            Some(error) => Err(error),
            None => Ok(multikey),
        }
    }

    /// Brings the entries of touched records from the last snapshot to a newer one. A key that two records hold is
    /// put off, unless this is the last round.
    fn catch_up(
        &self,
        building: &BuildingIndex,
        mut touched: BTreeSet<RecordId>,
        to: &Snapshot,
        last: bool,
    ) -> Result<()> {
        let index = &building.index;
        let mut transaction = self.engine.store.begin();
        let mut additions = Vec::new();
        let mut put_off = std::mem::take(&mut building.touched.lock().put_off);
        touched.append(&mut put_off.records);
        let is_put_off = |key: &[u8]| {
            !put_off.entries.is_empty() && put_off.entries.contains(&layout::unique_entry(index.id, key))
        };
        let (reached, current) = (self.records_in(&self.reached), self.records_in(to));
        for record in touched {
            let (mut old, mut new) = (KeySet::default(), KeySet::default());
            if let Some(image) = reached.get(record.into())? {
                keys_of_row(&index.spec, reached.home(), &self.reached, record.into(), &image, &mut old)?;
            }
            if let Some(image) = current.get(record.into())? {
                keys_of_row(&index.spec, current.home(), to, record.into(), &image, &mut new)?;
            }
            for (key, type_bits) in old.iter().filter(|(key, bits)| !new.contains_with_bits(key, bits)) {
                transaction.delete(Space::Index, &index_entry(index, key, type_bits, record).0);
            }
            let added = |key: &[u8], bits: &[u8]| !old.contains_with_bits(key, bits) || is_put_off(key);
            for (key, type_bits) in new.iter().filter(|(key, bits)| added(key, bits)) {
                additions.push((key.to_vec(), type_bits.to_vec(), record));
            }
        }
        // Removals first: a unique key may have moved from one record to another. By key, so that of several
        // duplicates the first is told.
        additions.sort_unstable();
        let mut again = PutOff::default();
        for (key, type_bits, record) in additions {
            let (entry, value) = index_entry(index, &key, &type_bits, record);
            let holder = match index.spec.unique {
                true if again.entries.contains(&entry) => {
                    again.add(&entry, record);
                    continue;
                }
                true => transaction.latest(Space::Index, &entry)?,
                false => None,
            };
            match holder {
                None => transaction.put(Space::Index, entry, value),
                Some(_) if last || again.records.len() > PUT_OFF_MAX => {
                    return Err(duplicate_key(self.namespace, index, &key, &type_bits));
                }
                Some(holder) => {
                    again.add(&entry, layout::record_id_of(&holder[..8]));
                    again.add(&entry, record);
                    transaction.delete(Space::Index, &entry);
                }
            }
        }
        building.touched.lock().put_off = again;
        if !transaction.is_empty() {
            transaction.commit(Durability::Durable)?;
        }
        Ok(())
    }

    /// The last round and the switch, with no writer inside.
    fn finish(&mut self, multikeys: Vec<Multikey>) -> Result<()> {
        let _held = match &self.switch {
            Some(_) => Vec::from(self.engine.hold_between_statements(self.operation, &self.collection)?),
            None => vec![self.engine.hold_whole(self.operation, &self.collection)?],
        };
        let current = self.current()?;
        self.check()?;
        let last = published(self.engine)?;
        let mut finished = Vec::new();
        for (building, scanned) in self.building.iter().zip(multikeys) {
            let (touched, seen) = building.take_touched();
            self.catch_up(building, touched, &last, true)?;
            let multikey = scanned.union(&seen);
            finished.push(Index { multikey, ready_since: u64::MAX, ..building.index.clone() });
        }
        // Whoever reads the new catalog with a snapshot from before this moment must not use them. The next
        // commit's time, not the last one's: a bulk load is published under the time of the commit before it,
        // so a snapshot of that time may be from before the load.
        let ready_since = published(self.engine)?.commit_time() + 1;
        let (building, replaced, engine) = (&self.building, &self.replaced, self.engine);
        // As on MongoDB: indexes of an empty collection have an event each.
        let is_empty = current.home().counts(&last)?.count == 0;
        let put = |collection: &mut Collection, transaction: &mut Transaction| {
            if replaced.is_empty() {
                let specs: Vec<&IndexSpec> = finished.iter().map(|index| &index.spec).collect();
                for together in specs.chunks(if is_empty { 1 } else { specs.len() }) {
                    engine.log_indexes(transaction, Kind::CreateIndexes, collection, together, None);
                }
            }
            for building in building {
                transaction.delete(Space::Meta, &layout::building_key(building.index.id));
            }
            let mut finished = finished.drain(..).map(|index| Arc::new(Index { ready_since, ..index }));
            let mut indexes: Vec<Arc<Index>> = collection.indexes.to_vec();
            for (place, index) in replaced.iter().zip(&mut finished) {
                if let Some(place) = indexes.iter_mut().find(|index| index.id == *place) {
                    transaction.reclaim(Space::Index, &layout::index_prefix(place.id));
                    *place = index;
                }
            }
            collection.indexes = indexes.into_iter().chain(finished).collect();
            collection.building = without(&collection.building, building);
        };
        let changed = match self.switch.take() {
            None => engine.replace_collection(&current.namespace, put)?,
            Some(switch) => switch.commit(&current, building, replaced, put)?,
        };
        changed.shared.plan_cache.clear();
        if !replaced.is_empty() {
            self.engine.cursors.close_of_collection(changed.id);
        }
        Ok(())
    }

    /// Keeps writers out of the collection, whatever it is called by now.
    fn hold(&self) -> Result<(Arc<Collection>, crate::catalog::Held)> {
        let held = self.engine.hold_whole(self.operation, &self.collection)?;
        Ok((self.current()?, held))
    }

    fn current(&self) -> Result<Arc<Collection>> {
        self.engine.catalog().by_id(self.collection.id).cloned().ok_or_else(|| {
            Error::user(ErrorCode::IndexBuildAborted, "the collection was dropped during the index build")
        })
    }

    fn give_up(&mut self) {
        let building = &self.building;
        self.engine.replace_in_memory(self.collection.id, |collection| {
            collection.building = without(&collection.building, building);
        });
        let mut transaction = self.engine.store.begin();
        for building in building {
            reclaim(&mut transaction, building.index.id);
        }
        if let Err(error) = transaction.commit(Durability::Relaxed) {
            tracing::warn!(%error, "could not give back the space of a failed index build");
        }
    }

    fn records_in(&self, snapshot: &Snapshot) -> Records {
        let mut home = self.collection.home();
        if let Some(switch) = &self.switch {
            home.shape = home.shape.with_versions(Some(switch.versions.clone()), None);
        }
        Records::new(home, snapshot)
    }
}

fn without(all: &[Arc<BuildingIndex>], gone: &[Arc<BuildingIndex>]) -> Arc<[Arc<BuildingIndex>]> {
    all.iter().filter(|each| !gone.iter().any(|other| Arc::ptr_eq(each, other))).cloned().collect()
}

/// Gives back what an unfinished build has written.
fn reclaim(transaction: &mut Transaction, id: IndexId) {
    transaction.delete(Space::Meta, &layout::building_key(id));
    transaction.reclaim(Space::Index, &layout::index_prefix(id));
}

/// Gives back what builds had written when the process ended.
pub(crate) fn reclaim_unfinished(store: &Store) -> Result<()> {
    let mut transaction = store.begin();
    for mark in layout::entries_of(&store.snapshot(), layout::BUILDING_TAG) {
        let (key, _) = mark?;
        if let Ok(id) = key[1..].try_into() {
            reclaim(&mut transaction, IndexId(u32::from_be_bytes(id)));
        }
    }
    if !transaction.is_empty() {
        transaction.commit(Durability::Durable)?;
    }
    Ok(())
}

/// A snapshot that has everything that was queued before this call.
fn published(engine: &Engine) -> Result<Snapshot> {
    engine.store.sync()?;
    Ok(engine.store.snapshot())
}
