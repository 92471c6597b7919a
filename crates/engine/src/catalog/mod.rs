//! Which collections and indexes there are.
//!
//! The catalog is an immutable value behind one lock: readers take it whole and keep it as long as
//! they like, a schema change makes a new one. On disk, each collection is one document in `meta`,
//! written in the same commit as the change.
//!
//! Order matters twice. A reader opens its snapshot before it takes the catalog, so a dropped
//! collection is still in the snapshot; an index newer than the snapshot is not used
//! ([`Index::ready_since`]). A schema change swaps the catalog after its commit is durable.

mod alias;
mod capped;
mod moves;
mod old_pages;
mod open_buckets;
mod open_rows;
mod stored;
mod time_series;
mod validation;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use crate::ids::{CollectionId, RecordId};
pub use alias::Alias;
pub(crate) use alias::differs;
pub use capped::Capped;
use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_collation::Collation;
use kilim_error::{Error, ErrorCode, Result, StorageError};
use kilim_query::time_series::TimeSeries;
use kilim_storage::{CommitTime, Direction, Snapshot};
pub(crate) use moves::{Moves, Moving, Still};
use old_pages::OldPages;
pub(crate) use open_buckets::{Open, OpenBuckets, TIERS, Tiers};
pub(crate) use open_rows::{LEAST, OpenRows, Which};
use parking_lot::{ArcRwLockWriteGuard, Mutex, RawRwLock, RwLock};
pub use stored::Ids;
pub(crate) use stored::{forget, save};
pub use time_series::bucket_options;
pub(crate) use time_series::of as time_series_of;
pub use validation::{Validation, Verdict};
pub use view::{DEPTH_MAX, SYSTEM_VIEWS, View};

use crate::ids::IndexId;
use crate::index::{BuildingIndex, Index, IndexSpec, Multikey, Usage, collation_of};
use crate::layout;
use crate::metrics::Counter;
use crate::namespace::Namespace;
use crate::plan::{Hint, Node, PlanCache};
use crate::records::{self, Home, Members, Shape};

/// One collection at one moment.
#[derive(Debug, Clone)]
pub struct Collection {
    pub id: CollectionId,
    pub uuid: [u8; 16],
    pub namespace: Namespace,
    /// It is being filled and will be renamed. The next start drops it.
    pub temporary: bool,
    /// What `create` was given, as listCollections shows it.
    pub options: Document,
    /// How its texts compare where nobody says otherwise. `None` is the simple collation.
    pub collation: Option<Collation>,
    /// What the options ask of documents.
    pub validation: Option<Arc<Validation>>,
    /// Its documents come in the order of `_id`, not of insertion.
    pub clustered: bool,
    /// How much it holds, where that is bounded.
    pub capped: Option<Capped>,
    /// What its documents are buckets of, where they are.
    pub time_series: Option<Arc<TimeSeries>>,
    /// `_id` first, then in order of creation.
    pub indexes: Arc<[Arc<Index>]>,
    /// Indexes being built: writers log their key changes for them.
    pub building: Arc<[Arc<BuildingIndex>]>,
    pub shape: Shape,
    /// What it shows, where this is the name of an older version of another collection's documents.
    pub alias: Option<Arc<Alias>>,
    pub shared: Arc<Shared>,
}

/// A collection that no writer is inside of.
pub(crate) type Held = ArcRwLockWriteGuard<RawRwLock, ()>;

/// What all versions of a collection's description have in common.
#[derive(Debug)]
pub struct Shared {
    /// Writers hold it shared for as long as their transaction lives; a schema change holds it whole.
    pub lock: Arc<RwLock<()>>,
    /// Statements that look for documents to change share it from their first look to their last change. Whoever changes the
    /// version in which documents are seen holds it whole, so that no statement sees two.
    pub statements: Arc<RwLock<()>>,
    pub next_record: AtomicU64,
    /// The number that the next bucket of the pattern `bucket` gets.
    pub(crate) next_bucket: AtomicU64,
    /// Measurements that wait to be sealed.
    pub(crate) open_rows: OpenRows,
    /// How arrays were divided in earlier states.
    pub(crate) old_pages: OldPages,
    oldest: Mutex<Oldest>,
    pub plan_cache: PlanCache,
    pub scans: Scans,
    /// Into which buckets measurements go.
    pub(crate) open_buckets: OpenBuckets,
    /// Whether measurements may move to other buckets.
    pub(crate) moves: Arc<Moves>,
}

/// No record of a capped collection before this one is left in states from a time on, nor ever will be: whoever reads
/// from the first need not pass all that have gone.
#[derive(Debug, Clone, Copy, Default)]
struct Oldest {
    record: u64,
    since: CommitTime,
}

/// How often all records were read, one after the other.
#[derive(Debug, Default)]
pub struct Scans {
    pub total: Counter,
    /// Those that wait for more records.
    pub tailed: Counter,
}

impl Scans {
    /// Notes those of a plan that is run.
    pub fn note(&self, plan: &Node) {
        match plan {
            Node::CollectionScan { .. } => self.total.add(1),
            other => other.children().iter().for_each(|child| self.note(child)),
        }
    }
}

/// All collections and views at one moment.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    collections: BTreeMap<Namespace, Arc<Collection>>,
    views: BTreeMap<Namespace, Arc<View>>,
    /// Older versions of collections, under names of their own.
    aliases: BTreeMap<Namespace, Arc<Collection>>,
    /// Views of the buckets of collections. They follow from patterns and are listed nowhere.
    buckets: BTreeMap<Namespace, Arc<View>>,
}

impl Catalog {
    pub fn get(&self, namespace: &Namespace) -> Option<&Arc<Collection>> {
        self.collections.get(namespace)
    }

    /// The collection that documents are read from and written to under this name: one of its own, or an older version of
    /// another.
    pub fn documents(&self, namespace: &Namespace) -> Option<&Arc<Collection>> {
        self.get(namespace).or_else(|| self.aliases.get(namespace))
    }

    /// What an older version is shown as, where a name is that of one.
    pub fn alias(&self, namespace: &Namespace) -> Option<&Arc<Alias>> {
        self.aliases.get(namespace)?.alias.as_ref()
    }

    /// What a collection is called and looks like by now.
    pub fn by_id(&self, id: CollectionId) -> Option<&Arc<Collection>> {
        self.iter().find(|collection| collection.id == id)
    }

    /// The collections of one database, by name.
    pub fn database<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Arc<Collection>> {
        of_database(&self.collections, name)
    }

    /// Whether a collection or view is in the database, by whatever name an earlier version accepted.
    pub fn has_database(&self, name: &str) -> bool {
        self.database(name).next().is_some() || self.database_views(name).next().is_some()
    }

    /// The views of one database, by name.
    pub fn database_views<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Arc<View>> {
        of_database(&self.views, name)
    }

    pub fn view(&self, namespace: &Namespace) -> Option<&Arc<View>> {
        self.views.get(namespace).or_else(|| self.buckets.get(namespace))
    }

    pub fn views(&self) -> impl Iterator<Item = &Arc<View>> {
        self.views.values()
    }

    pub fn insert_view(&mut self, view: Arc<View>) {
        self.views.insert(view.namespace.clone(), view);
    }

    pub fn remove_view(&mut self, namespace: &Namespace) -> Option<Arc<View>> {
        self.views.remove(namespace)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Collection>> {
        self.collections.values()
    }

    pub fn database_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for namespace in self.collections.keys().chain(self.views.keys()) {
            if names.last() != Some(&namespace.database) {
                names.push(namespace.database.clone());
            }
        }
        if !self.views.is_empty() {
            names.sort_unstable();
            names.dedup();
        }
        names
    }

    /// A database that differs from `name` in case only: MongoDB allows one of them.
    pub fn database_of_other_case(&self, name: &str) -> Option<String> {
        self.database_names().into_iter().find(|other| other != name && other.eq_ignore_ascii_case(name))
    }

    pub fn insert(&mut self, collection: Arc<Collection>) {
        self.forget_aliases(collection.id);
        // One that it takes the place of goes with its older versions.
        if let Some(displaced) = self.get(&collection.namespace).map(|displaced| displaced.id) {
            self.forget_aliases(displaced);
        }
        if let Some(view) = View::of_buckets(&collection) {
            self.insert_view(Arc::new(view));
        }
        let buckets = collection.namespace.of_packed();
        match View::of_packed(&collection) {
            Some(view) => drop(self.buckets.insert(buckets, Arc::new(view))),
            None => drop(self.buckets.remove(&buckets)),
        }
        let aliases = collection.aliases().into_iter();
        self.aliases.extend(aliases.map(|alias| (alias.namespace.clone(), Arc::new(alias))));
        self.collections.insert(collection.namespace.clone(), collection);
    }

    pub fn remove(&mut self, namespace: &Namespace) -> Option<Arc<Collection>> {
        let removed = self.collections.remove(namespace)?;
        self.forget_aliases(removed.id);
        self.buckets.remove(&namespace.of_packed());
        if removed.time_series.is_some() {
            removed.namespace.of_measurements().and_then(|namespace| self.remove_view(&namespace));
        }
        Some(removed)
    }

    fn forget_aliases(&mut self, id: CollectionId) {
        self.aliases.retain(|_, alias| alias.id != id);
    }

    /// Reads the catalog as a snapshot has it.
    pub fn load(snapshot: &Snapshot) -> Result<Catalog> {
        let mut catalog = Catalog::default();
        for entry in layout::entries_of(snapshot, layout::COLLECTION_TAG) {
            let (key, value) = entry?;
            let id = CollectionId(u32::from_be_bytes(
                key[1..].try_into().map_err(|_| corrupt("a collection's key has a wrong length"))?,
            ));
            let document =
                RawDocument::parse(&value).map_err(|_| corrupt("a collection's entry is not BSON"))?;
            check_collation_data(document)?;
            let last_record = last_record_id(snapshot, id)?;
            let collection = Collection::decode(id, document, last_record)
                .ok_or_else(|| corrupt("a collection's entry lacks a field"))?;
            // Where the end cannot be read, no number that may have been given out is given out again.
            let last_bucket = records::last_bucket(snapshot, id).unwrap_or(BUCKET_UNKNOWN);
            collection.shared.next_bucket.store(last_bucket + 1, Ordering::Relaxed);
            catalog.insert(Arc::new(collection));
        }
        for entry in layout::entries_of(snapshot, layout::VIEW_TAG) {
            let (_, value) = entry?;
            let document = RawDocument::parse(&value).map_err(|_| corrupt("a view's entry is not BSON"))?;
            let view = View::decode(document).ok_or_else(|| corrupt("a view's entry cannot be read"))?;
            catalog.insert_view(Arc::new(view));
        }
        Ok(catalog)
    }
}

/// With which data the keys of an index with a collation were made. On disk.
const COLLATION_DATA: &str = "collationData";

/// Refuses indexes whose keys other data made: where texts are in such an index is not where they would be looked
/// for, and a unique one might hold what is one key now.
fn check_collation_data(collection: RawDocument<'_>) -> Result<()> {
    let indexes = collection.get("indexes").and_then(RawValue::as_array);
    for index in indexes.into_iter().flat_map(|indexes| indexes.iter()).filter_map(RawValue::as_document) {
        let Some(RawValue::Document(spec)) = index.get("spec") else { continue };
        let made_with = index.get(COLLATION_DATA).and_then(RawValue::as_str);
        if spec.get("collation").is_some() && made_with != Some(kilim_collation::DATA_VERSION) {
            let text = |document: RawDocument<'_>, name| {
                document.get(name).and_then(RawValue::as_str).unwrap_or_default().to_owned()
            };
            return Err(Error::user(
                ErrorCode::IncompatibleCollationVersion,
                format!(
                    "index '{}' of {}.{} was made with the collation data {}, and this program has {}: dump the data \
                     with the program that made it, and restore the dump with this one",
                    text(spec, "name"),
                    text(collection, "db"),
                    text(collection, "collection"),
                    made_with.unwrap_or("of an unknown version"),
                    kilim_collation::DATA_VERSION
                ),
            ));
        }
    }
    Ok(())
}

fn of_database<'a, T>(
    all: &'a BTreeMap<Namespace, Arc<T>>,
    name: &'a str,
) -> impl Iterator<Item = &'a Arc<T>> {
    let first = Namespace { database: name.to_owned(), collection: String::new() };
    all.range((Bound::Included(first), Bound::Unbounded))
        .take_while(move |(namespace, _)| namespace.database == name)
        .map(|(_, entry)| entry)
}

fn corrupt(what: &str) -> Error {
    Error::Storage(StorageError::Corrupt(what.to_owned()))
}

/// The largest record id in use, so that numbering goes on behind it.
/// Stands for the last record's id of a collection where it cannot be read: more than any that was ever given out, so
/// that no record is overwritten.
const RECORD_ID_UNKNOWN: u64 = 1 << 62;
const BUCKET_UNKNOWN: u64 = 1 << 38;

fn last_record_id(snapshot: &Snapshot, id: CollectionId) -> Result<u64> {
    match records::ids(snapshot, id, .., Direction::Backward).next() {
        Some(Ok(last)) => Ok(last.0),
        // Such a collection can still be dropped, and the others be used.
        Some(Err(Error::Storage(error @ StorageError::Corrupt(_)))) => {
            tracing::error!(collection = id.0, %error, "a collection is damaged: kilim salvage copies what can be read");
            Ok(RECORD_ID_UNKNOWN)
        }
        Some(Err(error)) => Err(error),
        None => Ok(0),
    }
}

impl Shared {
    pub fn new(last_record: u64) -> Shared {
        Shared {
            lock: Arc::new(RwLock::new(())),
            statements: Arc::new(RwLock::new(())),
            next_record: AtomicU64::new(last_record + 1),
            next_bucket: AtomicU64::new(1),
            open_rows: OpenRows::default(),
            old_pages: OldPages::default(),
            oldest: Mutex::default(),
            plan_cache: PlanCache::default(),
            scans: Scans::default(),
            open_buckets: OpenBuckets::default(),
            moves: Arc::default(),
        }
    }
}

/// The name of the index that every collection has.
const ID_INDEX: &str = "_id_";

impl Collection {
    /// Where its records lie.
    pub fn home(&self) -> Home {
        self.home_as(&self.shape)
    }

    fn home_as(&self, shape: &Shape) -> Home {
        let shape = match shape {
            Shape::Paged(paged, _) => Shape::Paged(paged.clone(), self.members(&paged.paging.field)),
            shape => shape.clone(),
        };
        Home { collection: self.id, shape }
    }

    /// What is asked of its documents as they are stored: where an array continues in pages, its count is asked for its size.
    pub(crate) fn validation(&self) -> Result<Option<Arc<Validation>>> {
        match (&self.validation, self.shape.paged()) {
            (Some(validation), Some(paged)) => {
                validation.counting(&paged.paging.field, &paged.paging.count).map(Some)
            }
            (validation, _) => Ok(validation.clone()),
        }
    }

    /// Refuses a validator that asks more of an array which continues in pages than its size: it would be asked about the
    /// inline part.
    pub(crate) fn check_validator(&self, field: &str) -> Result<()> {
        match self.validation.as_ref().is_some_and(|validation| validation.mentions_beyond_size(field)) {
            false => Ok(()),
            true => Err(Error::user(
                ErrorCode::PatternFieldConflict,
                format!(
                    "the validator of {} names '{field}', which continues in pages: ask for its $size, or name the field that has the count",
                    self.namespace
                ),
            )),
        }
    }

    /// The index that says whether a value is an element of an array.
    fn members(&self, field: &str) -> Option<Members> {
        let is_of_elements = |index: &&Arc<Index>| {
            let spec = &index.spec;
            matches!(&spec.key[..], [part] if part.path.as_str() == field && !part.descending)
                && spec.has_plain_keys()
                && !spec.unique
                && !spec.prepare_unique
                && !spec.sparse
                && spec.partial.is_none()
        };
        let index = self.indexes.iter().find(is_of_elements)?;
        Some(Members { index: index.id, since: index.ready_since })
    }

    pub fn index_named(&self, name: &str) -> Option<&Arc<Index>> {
        let name = self.own_index_name(name)?;
        self.indexes.iter().find(|index| index.spec.name == name)
    }

    /// Notes the first record that a capped collection has in a published state.
    pub(crate) fn note_oldest(&self, record: RecordId, since: CommitTime) {
        let mut oldest = self.shared.oldest.lock();
        if record.0 > oldest.record {
            *oldest = Oldest { record: record.0, since };
        }
    }

    /// Before this record there is none in a state.
    pub(crate) fn oldest_in(&self, snapshot: &Snapshot) -> RecordId {
        if self.capped.is_none() {
            return RecordId(0);
        }
        let oldest = *self.shared.oldest.lock();
        RecordId(if snapshot.commit_time() >= oldest.since { oldest.record } else { 0 })
    }

    /// Ends the builds of a collection that is gone: nobody will see what they make.
    pub(crate) fn end_builds(&self) {
        self.building.iter().for_each(|building| building.build.abort());
    }

    /// What users call the order of a clustered collection.
    pub fn clustered_name(&self) -> Option<&str> {
        let spec = self.options.get("clusteredIndex")?.as_document()?;
        spec.get("name").and_then(RawValue::as_str)
    }

    /// An index's name in the catalog, where the order of a clustered collection is always `_id_`. None where users
    /// call that otherwise, and nothing `_id_`.
    fn own_index_name<'n>(&self, name: &'n str) -> Option<&'n str> {
        match self.clustered_name() {
            Some(order) if order == name => Some(ID_INDEX),
            Some(_) if name == ID_INDEX => None,
            _ => Some(name),
        }
    }

    /// A hint in the catalog's names.
    pub(crate) fn own_hint(&self, hint: Option<Hint>) -> Option<Hint> {
        match hint {
            // Where there is none of that name, the hint is of nothing that exists.
            Some(Hint::Name(name)) if self.clustered => {
                Some(Hint::Name(self.own_index_name(&name).unwrap_or_default().to_owned()))
            }
            // Users of a time-series collection know the keys of its measurements.
            Some(Hint::Key(key)) if let Some(series) = &self.time_series => {
                let in_buckets = series.key_in_buckets(key.as_raw()).ok();
                Some(Hint::Key(in_buckets.unwrap_or(key)))
            }
            other => other,
        }
    }

    /// Widens what is known of an index's arrays.
    pub(crate) fn widen_multikey(&mut self, id: IndexId, seen: &Multikey) {
        self.indexes = (self.indexes.iter())
            .map(|each| {
                if each.id != id || each.multikey.covers(seen) {
                    return each.clone();
                }
                Arc::new(Index { multikey: each.multikey.union(seen), ..(**each).clone() })
            })
            .collect();
    }

    /// Changes what an index is, without a change of its entries.
    pub(crate) fn change_index(&mut self, id: IndexId, change: &dyn Fn(&mut IndexSpec)) {
        self.indexes = (self.indexes.iter())
            .map(|each| {
                if each.id != id {
                    return each.clone();
                }
                // As on MongoDB: what is counted of it begins anew.
                let mut index = Index { usage: Usage::default(), ..(**each).clone() };
                change(&mut index.spec);
                Arc::new(index)
            })
            .collect();
    }

    /// Gives it other options, and what follows from them.
    pub(crate) fn set_options(&mut self, options: Document) -> Result<()> {
        self.validation = Validation::of(options.as_raw())?;
        self.capped = Capped::of(options.as_raw());
        self.time_series = time_series::of(options.as_raw());
        self.options = options;
        Ok(())
    }

    pub fn id_index(&self) -> &Arc<Index> {
        &self.indexes[0]
    }

    /// The document that `meta` holds for this collection.
    pub fn encode(&self) -> Document {
        let indexes: Vec<Document> = self
            .indexes
            .iter()
            .map(|index| {
                let bits = index.multikey.bits.iter().map(|&bits| Value::Int64(bits as i64));
                let mut document = doc! {
                    "id": i64::from(index.id.0),
                    "spec": index.spec.to_document(),
                    "multikey": bits.collect::<Vec<_>>(),
                    "readySince": index.ready_since as i64,
                };
                if index.spec.collation.is_some() {
                    document.push(COLLATION_DATA, kilim_collation::DATA_VERSION);
                }
                if index.multikey.paths().next().is_some() {
                    let paths = index.multikey.paths().map(Value::from);
                    document.push("arrayPaths", paths.collect::<Vec<_>>());
                }
                document
            })
            .collect();
        let mut document = doc! {
            "db": &self.namespace.database,
            "collection": &self.namespace.collection,
        };
        document.push("uuid", Value::Binary { subtype: 4, bytes: self.uuid.to_vec() });
        document.push("options", self.options.clone());
        document.push("indexes", indexes);
        if self.temporary {
            document.push("temporary", true);
        }
        document
    }

    pub(crate) fn decode(
        id: CollectionId,
        document: RawDocument<'_>,
        last_record: u64,
    ) -> Option<Collection> {
        let RawValue::Binary { bytes, .. } = document.get("uuid")? else { return None };
        let namespace = Namespace {
            database: document.get("db")?.as_str()?.to_owned(),
            collection: document.get("collection")?.as_str()?.to_owned(),
        };
        let mut indexes = Vec::new();
        for index in document.get("indexes")?.as_array()?.iter() {
            indexes.push(Arc::new(decode_index(index.as_document()?)?));
        }
        let options = document.get("options")?.as_document()?.to_document();
        Some(Collection {
            id,
            uuid: bytes.try_into().ok()?,
            namespace,
            temporary: matches!(document.get("temporary"), Some(RawValue::Bool(true))),
            collation: collation_of(options.as_raw()).ok()?,
            validation: Validation::of(options.as_raw()).ok()?,
            capped: Capped::of(options.as_raw()),
            clustered: options.get("clusteredIndex").is_some(),
            time_series: time_series::of(options.as_raw()),
            options,
            indexes: indexes.into(),
            building: Arc::from([]),
            shape: Shape::Plain,
            alias: None,
            shared: Arc::new(Shared::new(last_record)),
        })
    }
}

fn decode_index(document: RawDocument<'_>) -> Option<Index> {
    let RawValue::Int64(id) = document.get("id")? else { return None };
    let RawValue::Int64(ready_since) = document.get("readySince")? else { return None };
    let bits = document.get("multikey")?.as_array()?.iter().map(|bits| match bits {
        RawValue::Int64(bits) => Some(bits as u64),
        _ => None,
    });
    let paths = match document.get("arrayPaths") {
        Some(paths) => paths.as_array()?.iter().map(|path| path.as_str().map(Box::from)).collect(),
        None => Some(BTreeSet::new()),
    };
    Some(Index {
        id: IndexId(id as u32),
        spec: IndexSpec::decode(document.get("spec")?.as_document()?)?,
        multikey: Multikey::with_paths(bits.collect::<Option<Vec<u64>>>()?, paths?),
        usage: Usage::default(),
        ready_since: ready_since as u64,
    })
}

pub(crate) fn not_found(namespace: &Namespace) -> Error {
    Error::user(ErrorCode::NamespaceNotFound, format!("ns not found: {namespace}"))
}
