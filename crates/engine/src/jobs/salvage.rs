//! A new database from what can be read of a damaged one.
//!
//! Records and the catalog are taken from the remains of the store (`kilim_storage::salvage`) as they are. Indexes are
//! not: their entries follow from the records, so every index is made anew, and counts with them. Records of a
//! collection that the catalog no longer names come back as a collection of the database `salvaged`. Where two records
//! claim one key of a unique index, which can only be if a deletion was lost, the younger one stays. Records come first, all
//! of them: what an index holds of a long array lies in another collection (`salvage_pages`).
//!
//! The change log is left out. A log has every commit after the one that it begins with, and nobody can say of a damaged one
//! that it has; without it, streams that come back are told that their history is lost.
//!
//! Invariant: in the new database, indexes and counts agree with the records.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use kilim_bson::{Document, RawDocument};
use kilim_error::Result;
use kilim_storage::rebuild::{self, Filling};
use kilim_storage::salvage::Remains;
use kilim_storage::{Bytes, Durability, Environment, Options, Snapshot, Space, Store};

use super::salvage_pages::{self, Settled};
use crate::catalog::{Catalog, Collection, Ids, Shared};
use crate::engine::new_uuid;
use crate::ids::{CollectionId, RecordId};
use crate::index::{Index, IndexSpec, KeySet, Multikey, Sorter, Usage, index_entry, keys_of_row};
use crate::namespace::Namespace;
use crate::records::{Home, RecordRemains, Shape};
use crate::upkeep::{load, put_buckets_in_force, put_pages_in_force, put_versions_in_force};
use crate::{layout, records};

/// Where collections go whose names are lost.
const LOST_DATABASE: &str = "salvaged";

/// What came over, and what did not.
#[derive(Debug, Default)]
pub struct Salvaged {
    pub collections: Vec<SalvagedCollection>,
    /// What could not be read and concerns no collection, a sentence each.
    pub losses: Vec<String>,
    pub notes: Vec<String>,
}

#[derive(Debug, Default)]
pub struct SalvagedCollection {
    pub namespace: String,
    pub records: u64,
    pub losses: Vec<String>,
    pub notes: Vec<String>,
}

impl Salvaged {
    /// Whether nothing was lost.
    pub fn is_whole(&self) -> bool {
        self.losses.is_empty() && self.collections.iter().all(|each| each.losses.is_empty())
    }
}

/// Copies all that can be read from one directory, which no server may use, to a new one.
pub fn salvage_directory(dir: &Path, out: &Path) -> Result<Salvaged> {
    rebuild::check_out(out)?;
    let remains = Remains::open(dir)?;
    rebuild::rebuild(out, Options::default(), remains.commit_time(), |filling| {
        Salvage { remains: &remains, filling, store: filling.store(), salvaged: Salvaged::default() }.run()
    })
}

struct Salvage<'s> {
    remains: &'s Remains,
    filling: &'s Filling,
    store: &'s Store,
    salvaged: Salvaged,
}

impl Salvage<'_> {
    fn run(mut self) -> Result<Salvaged> {
        self.filling.load(Space::Meta, self.remains.rows(Space::Meta, 0).map(Ok))?;
        let snapshot = self.store.snapshot();
        let mut collections = self.read_catalog(&snapshot)?;
        let mut ids = Ids::load(&snapshot)?;
        drop(snapshot);
        let records = RecordRemains(self.remains);
        let of_catalog = collections.values().flat_map(|collection| collection.indexes.iter());
        let indexes = of_catalog.map(|index| index.id.0).chain(self.remains.trees(Space::Index)).max();
        let last = records.trees().iter().chain(collections.keys()).copied().max();
        ids.give_out_after(last.unwrap_or(0), indexes.unwrap_or(0));
        for id in records.collections() {
            if let Entry::Vacant(unnamed) = collections.entry(id) {
                unnamed.insert(lost_collection(id, &mut ids));
                self.salvaged.notes.push(format!(
                    "the catalog does not name a collection any more: it is {LOST_DATABASE}.collection_{id}"
                ));
            }
        }
        // Definitions first: they may say how the records of others are to be read.
        self.collections(&mut collections, true)?;
        self.give_shapes(&mut collections, &mut ids);
        self.collections(&mut collections, false)?;
        let mut transaction = self.store.begin();
        ids.save(&mut transaction);
        transaction.commit(Durability::Durable)?;
        self.tell_losses(&collections);
        if !self.remains.trees(Space::Log).is_empty() {
            self.salvaged.notes.push(
                "the change log was left out: a change stream that resumes behind an earlier event is refused with \
                 ChangeStreamHistoryLost (286) and has to begin anew"
                    .to_owned(),
            );
        }
        Ok(self.salvaged)
    }

    /// Takes over the collections that hold definitions, or all others.
    fn collections(&mut self, collections: &mut BTreeMap<u32, Collection>, defines: bool) -> Result<()> {
        let is_meant = |collection: &Collection| collection.namespace.holds_definitions() == defines;
        let mut told = BTreeMap::new();
        for (id, collection) in collections.iter().filter(|(_, collection)| is_meant(collection)) {
            told.insert(*id, self.take_over(CollectionId(*id), collection)?);
        }
        for (id, collection) in collections.iter().filter(|(_, collection)| is_meant(collection)) {
            if let Some(told) = told.get_mut(id) {
                self.leave_older_out(collection, told)?;
            }
        }
        for (id, collection) in collections.iter().filter(|(_, collection)| is_meant(collection)) {
            let Some(paged) = collection.shape.paged() else { continue };
            let Settled { removed, of_documents, of_pages } =
                salvage_pages::settle(self.store, &collection.home(), paged)?;
            if let Some(told) = told.get_mut(id) {
                told.losses.extend(of_documents);
            }
            if let Some(told) = told.get_mut(&paged.overflow.0) {
                told.records -= removed;
                told.losses.extend(of_pages);
            }
        }
        for (id, mut told) in told {
            if let Some(collection) = collections.get_mut(&id) {
                self.index(CollectionId(id), collection, &mut told)?;
            }
            self.salvaged.collections.push(told);
        }
        Ok(())
    }

    /// Gives collections the shapes that patterns declare. Definitions that cannot be read declare none.
    fn give_shapes(&mut self, collections: &mut BTreeMap<u32, Collection>, ids: &mut Ids) {
        let mut catalog = Catalog::default();
        collections.values().for_each(|collection| catalog.insert(Arc::new(collection.clone())));
        let Ok(patterns) = load(&self.store.snapshot(), &catalog, ids) else { return };
        put_pages_in_force(&mut catalog, &patterns, 0);
        put_buckets_in_force(&mut catalog, &patterns);
        if put_versions_in_force(&mut catalog, &patterns).is_err() {
            return;
        }
        for (id, collection) in collections.iter_mut() {
            if let Some(found) = catalog.get(&collection.namespace) {
                collection.shape = found.shape.clone();
            }
            let of = collection.namespace.of_array();
            if of.is_some_and(|of| catalog.get(&of).is_none() && patterns.paging_of(&of).is_some()) {
                let before = std::mem::replace(&mut collection.namespace, lost_namespace(*id));
                self.salvaged.notes.push(format!(
                    "the catalog does not name the collection any more whose pages were in {before}: they are in {}",
                    collection.namespace
                ));
            }
        }
    }

    /// The collections whose entries can be read.
    fn read_catalog(&mut self, snapshot: &Snapshot) -> Result<BTreeMap<u32, Collection>> {
        let mut collections = BTreeMap::new();
        for entry in layout::entries_of(snapshot, layout::COLLECTION_TAG) {
            let (key, value) = entry?;
            let Ok(id) = key[1..].try_into().map(u32::from_be_bytes) else { continue };
            let document = RawDocument::parse(&value).ok();
            match document.and_then(|document| Collection::decode(CollectionId(id), document, 0)) {
                Some(collection) => drop(collections.insert(id, collection)),
                None => self
                    .salvaged
                    .losses
                    .push(format!("the catalog's entry of collection {id} makes no sense")),
            }
        }
        Ok(collections)
    }

    /// Takes a collection's records over.
    fn take_over(&self, id: CollectionId, collection: &Collection) -> Result<SalvagedCollection> {
        let mut told =
            SalvagedCollection { namespace: collection.namespace.to_string(), ..Default::default() };
        let senseless;
        (told.records, senseless) = RecordRemains(self.remains).take_over(id.0, self.filling)?;
        if senseless > 0 {
            told.losses.push(format!("{senseless} records are not valid BSON"));
        }
        let (lost, packed) = records::unpack_remains(self.store, id)?;
        told.records -= lost + packed;
        if lost > 0 {
            told.losses.push(format!("{lost} measurements lay in buckets that cannot be read"));
        }
        Ok(told)
    }

    /// Takes away the records that share a key of a unique index with a younger one.
    fn leave_older_out(&self, collection: &Collection, told: &mut SalvagedCollection) -> Result<()> {
        let losers = losers(&self.store.snapshot(), collection)?;
        if losers.is_empty() {
            return Ok(());
        }
        told.records -= losers.len() as u64;
        told.notes.push(format!(
            "{} older records were left out, because younger ones have their keys in a unique index",
            losers.len()
        ));
        let mut transaction = self.store.begin();
        for loser in losers {
            records::remove(&mut transaction, &collection.home(), loser.into());
        }
        transaction.commit(Durability::Durable)?;
        Ok(())
    }

    /// Makes a collection's indexes and counts anew.
    fn index(
        &self,
        id: CollectionId,
        collection: &mut Collection,
        told: &mut SalvagedCollection,
    ) -> Result<()> {
        let snapshot = self.store.snapshot();
        let mut indexes = Vec::new();
        for index in collection.indexes.iter() {
            let mut index = (**index).clone();
            index.ready_since = 0;
            self.build(&snapshot, &collection.home(), &mut index, told)?;
            indexes.push(Arc::new(index));
        }
        collection.indexes = indexes.into();
        self.save(&snapshot, id, collection)
    }

    /// Makes an index of the records.
    fn build(
        &self,
        snapshot: &Snapshot,
        home: &Home,
        index: &mut Index,
        told: &mut SalvagedCollection,
    ) -> Result<()> {
        let mut sorter = Sorter::new();
        let mut keys = KeySet::default();
        for inspected in records::inspect(home.clone(), snapshot) {
            let inspected = inspected?;
            let record = inspected.record;
            for (row, image) in inspected.rows().unwrap_or_default().into_iter().flatten() {
                let Ok(seen) = keys_of_row(&index.spec, home, snapshot, row, &image, &mut keys) else {
                    told.notes.push(format!("index {} cannot hold record {}", index.spec.name, record.0));
                    continue;
                };
                if !index.multikey.covers(&seen) {
                    index.multikey = index.multikey.union(&seen);
                }
                for (key, type_bits) in keys.iter() {
                    let (entry, value) = index_entry(index, key, type_bits, record);
                    sorter.push(&entry, &value)?;
                }
            }
        }
        let mut merge = sorter.finish()?;
        self.filling.load(
            Space::Index,
            std::iter::from_fn(|| merge.next_entry().transpose())
                .map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec()))),
        )?;
        Ok(())
    }

    /// Writes the catalog's entry and the counts.
    fn save(&self, snapshot: &Snapshot, id: CollectionId, collection: &Collection) -> Result<()> {
        let (mut count, mut bytes) = (0, 0);
        for inspected in records::inspect(collection.home(), snapshot) {
            let inspected = inspected?;
            let rows = inspected.rows().map_or(1, |rows| rows.into_iter().flatten().count());
            count += rows as i64;
            bytes += inspected.bytes() as i64;
        }
        let mut transaction = self.store.begin();
        transaction.reset_counter(&layout::counter_key(id));
        transaction.add(&layout::counter_key(id), count, bytes);
        let entry = collection.encode().as_raw().as_bytes().to_vec();
        transaction.put(Space::Meta, layout::collection_meta_key(id).to_vec(), entry);
        transaction.commit(Durability::Durable)?;
        Ok(())
    }

    /// Says what could not be read, by collection.
    fn tell_losses(&mut self, collections: &BTreeMap<u32, Collection>) {
        for loss in self.remains.losses() {
            let (owner, what) = match records::lost_records(&loss) {
                Some((id, range)) => (collections.get(&id), format!("{range}: {}", loss.what)),
                None => (None, loss.what.clone()),
            };
            let owner = owner.map(|collection| collection.namespace.to_string());
            let told = owner
                .and_then(|name| self.salvaged.collections.iter_mut().find(|each| each.namespace == name));
            match told {
                Some(told) => told.losses.push(what),
                None => self.salvaged.losses.push(what),
            }
        }
        self.salvaged.notes.extend(self.remains.notes().iter().cloned());
    }
}

/// Records that share a key of a unique index with a younger one.
fn losers(snapshot: &Snapshot, collection: &Collection) -> Result<BTreeSet<RecordId>> {
    let mut losers = BTreeSet::new();
    for index in collection.indexes.iter().filter(|index| index.spec.unique) {
        let mut sorter = Sorter::new();
        let mut keys = KeySet::default();
        let home = collection.home();
        for inspected in records::inspect(home.clone(), snapshot) {
            let inspected = inspected?;
            let record = inspected.record;
            if losers.contains(&record) {
                continue;
            }
            for (row, image) in inspected.rows().unwrap_or_default().into_iter().flatten() {
                if keys_of_row(&index.spec, &home, snapshot, row, &image, &mut keys).is_err() {
                    continue;
                }
                for (key, type_bits) in keys.iter() {
                    let mut age = image.commit_time().to_be_bytes().to_vec();
                    age.extend_from_slice(&record.0.to_be_bytes());
                    sorter.push(&index_entry(index, key, type_bits, record).0, &age)?;
                }
            }
        }
        let mut merge = sorter.finish()?;
        let mut last: Option<(Bytes, Bytes)> = None;
        while let Some((entry, age)) = merge.next_entry()? {
            // Of equal entries the youngest comes last.
            if let Some((before, older)) = &last
                && *before == entry
            {
                losers.insert(layout::record_id_of(older));
            }
            last = Some((entry, age));
        }
    }
    Ok(losers)
}

fn lost_namespace(id: u32) -> Namespace {
    Namespace { database: LOST_DATABASE.to_owned(), collection: format!("collection_{id}") }
}

/// A collection of which only the records are left.
fn lost_collection(id: u32, ids: &mut Ids) -> Collection {
    let index = Index {
        id: ids.next_index(),
        spec: IndexSpec::id(None),
        multikey: Multikey::default(),
        usage: Usage::default(),
        ready_since: 0,
    };
    Collection {
        id: CollectionId(id),
        uuid: new_uuid(&Environment::default()),
        namespace: lost_namespace(id),
        options: Document::new(),
        collation: None,
        validation: None,
        clustered: false,
        temporary: false,
        capped: None,
        time_series: None,
        indexes: Arc::from([Arc::new(index)]),
        building: Arc::from([]),
        shape: Shape::Plain,
        alias: None,
        shared: Arc::new(Shared::new(0)),
    }
}
