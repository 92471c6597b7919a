//! Schema changes: create, drop and rename collections.
//!
//! Every change follows one order: the collection's lock, held whole so that no writer is inside;
//! then `ids`, so that changes of the catalog follow each other; then one durable commit; then the
//! new catalog. Writers take the locks in the same order, so neither waits for the other for ever.

use std::sync::Arc;
use std::time::Duration;

use kilim_bson::{Document, RawDocument};
use kilim_error::{Error, ErrorCode, Result, StorageError};
use kilim_storage::{CommitTime, Durability, Snapshot, Space, Transaction};
use parking_lot::{ArcRwLockWriteGuard, RawRwLock};

use crate::capped::Capped;
use crate::catalog::{Collection, CollectionId, Shared, default_collation};
use crate::engine::Engine;
use crate::index::{Index, IndexId, IndexSpec, Multikey, Usage};
use crate::layout;
use crate::maintenance::{PatternId, ending_with, put_changes};
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::shape::Shape;
use crate::validation::Validation;
use crate::write::Unit;

/// The next free ids. They are never given out twice, so what a dropped collection left behind can
/// never be taken for another's.
#[derive(Debug)]
pub struct Ids {
    collection: u32,
    index: u32,
}

impl Ids {
    pub(crate) fn load(snapshot: &Snapshot) -> Result<Ids> {
        match snapshot.get(Space::Meta, layout::NEXT_IDS_KEY)? {
            None => Ok(Ids { collection: 1, index: 1 }),
            Some(bytes) if bytes.len() == 8 => Ok(Ids {
                collection: u32::from_be_bytes(bytes[..4].try_into().expect("four bytes")),
                index: u32::from_be_bytes(bytes[4..].try_into().expect("four bytes")),
            }),
            Some(_) => Err(StorageError::Corrupt("the next ids are unreadable".to_owned()).into()),
        }
    }

    pub(crate) fn save(&self, transaction: &mut Transaction) {
        let mut bytes = self.collection.to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.index.to_be_bytes());
        transaction.put(Space::Meta, layout::NEXT_IDS_KEY.to_vec(), bytes);
    }

    /// Ids up to these are taken, whatever was read.
    pub(crate) fn give_out_after(&mut self, collection: u32, index: u32) {
        self.collection = self.collection.max(collection + 1);
        self.index = self.index.max(index + 1);
    }

    fn next_collection(&mut self) -> CollectionId {
        self.collection += 1;
        CollectionId(self.collection - 1)
    }

    pub(crate) fn next_index(&mut self) -> IndexId {
        self.index += 1;
        IndexId(self.index - 1)
    }
}

/// A collection that no writer is inside of.
pub(crate) type Held = ArcRwLockWriteGuard<RawRwLock, ()>;

impl Engine {
    /// `create`: fails where the collection exists, unless with the same options.
    pub fn create_collection(&self, namespace: &Namespace, options: Document) -> Result<CommitTime> {
        let mut ids = self.ids.lock();
        if self.view(namespace).is_some() {
            return Err(Error::user(
                ErrorCode::NamespaceExists,
                format!("A view already exists. NS: {namespace}"),
            ));
        }
        if let Some(existing) = self.collection(namespace) {
            if existing.options == options {
                return Ok(self.store.last_commit_time());
            }
            return Err(exists(namespace));
        }
        let mut transaction = self.store.begin();
        let collection = self.new_collection(&mut ids, namespace, options)?;
        save(&mut transaction, &collection);
        ids.save(&mut transaction);
        let time = transaction.commit(Durability::Durable)?;
        self.publish(|catalog| catalog.insert(Arc::new(collection)));
        Ok(time)
    }

    /// Makes a collection that is filled before it is renamed. It is marked in the catalog, so that the next start
    /// drops it if that never happens.
    pub(crate) fn create_temporary(&self, namespace: &Namespace, options: Document) -> Result<()> {
        let mut ids = self.ids.lock();
        if self.collection(namespace).is_some() {
            return Err(exists(namespace));
        }
        let mut transaction = self.store.begin();
        let collection = Collection { temporary: true, ..self.new_collection(&mut ids, namespace, options)? };
        save(&mut transaction, &collection);
        ids.save(&mut transaction);
        transaction.commit(Durability::Durable)?;
        self.publish(|catalog| catalog.insert(Arc::new(collection)));
        Ok(())
    }

    /// The collection, made where it is missing, for the first write into it.
    ///
    /// Its commit is only queued: the write that follows is queued behind it, so it is durable no later
    /// than that write, which alone is waited for.
    pub(crate) fn ensure_collection(&self, namespace: &Namespace) -> Result<Arc<Collection>> {
        if let Some(collection) = self.collection(namespace) {
            return Ok(collection);
        }
        let mut ids = self.ids.lock();
        if let Some(collection) = self.collection(namespace) {
            return Ok(collection);
        }
        let collection = Arc::new(self.new_collection(&mut ids, namespace, Document::new())?);
        let mut transaction = self.store.begin();
        save(&mut transaction, &collection);
        ids.save(&mut transaction);
        let _queued = transaction.enqueue(Durability::Durable)?;
        self.publish(|catalog| catalog.insert(collection.clone()));
        Ok(collection)
    }

    /// A collection made inside a transaction: known to it alone until it commits.
    pub(crate) fn create_in_transaction(
        &self,
        transaction: &mut Transaction,
        namespace: &Namespace,
        options: Document,
    ) -> Result<Arc<Collection>> {
        let collection = Arc::new(self.new_collection(&mut self.ids.lock(), namespace, options)?);
        save(transaction, &collection);
        Ok(collection)
    }

    /// Commits a transaction that made collections.
    pub(crate) fn commit_created(
        &self,
        mut transaction: Transaction,
        created: Vec<Arc<Collection>>,
        durability: Durability,
    ) -> Result<CommitTime> {
        let ids = self.ids.lock();
        let taken = |name: &Namespace| self.collection(name).is_some() || self.view(name).is_some();
        if created.iter().any(|collection| taken(&collection.namespace)) {
            return Err(Error::Conflict("a collection of that name was made meanwhile"));
        }
        ids.save(&mut transaction);
        let time = transaction.commit(durability)?;
        self.publish(|catalog| created.into_iter().for_each(|collection| catalog.insert(collection)));
        Ok(time)
    }

    fn new_collection(&self, ids: &mut Ids, namespace: &Namespace, options: Document) -> Result<Collection> {
        namespace.check_creatable()?;
        self.check_case(&namespace.database)?;
        self.check_no_view(namespace)?;
        let collation = default_collation(options.as_raw())?;
        if collation.is_some() {
            self.check_no_patterns(namespace)?;
        }
        let specs =
            [IndexSpec::id(collation.clone())].into_iter().chain(self.indexes_for_patterns(namespace));
        let indexes = specs.map(|spec| {
            Arc::new(Index {
                id: ids.next_index(),
                spec,
                multikey: Multikey::default(),
                usage: Usage::default(),
                ready_since: 0,
            })
        });
        let indexes: Vec<Arc<Index>> = indexes.collect();
        let validation = Validation::of(options.as_raw())?;
        Ok(Collection {
            id: ids.next_collection(),
            uuid: new_uuid(),
            namespace: namespace.clone(),
            temporary: false,
            capped: Capped::of(options.as_raw()),
            clustered: options.get("clusteredIndex").is_some(),
            options,
            collation,
            validation,
            indexes: indexes.into(),
            building: Arc::from([]),
            shape: Shape::Plain,
            shared: Arc::new(Shared::new(0)),
        })
    }

    /// Refuses a database that differs from another in case only.
    pub(crate) fn check_case(&self, database: &str) -> Result<()> {
        match self.catalog().database_of_other_case(database) {
            Some(other) => Err(Error::location(
                13297,
                format!(
                    "db already exists with different case already have: [{other}] trying to create [{database}]"
                ),
            )),
            None => Ok(()),
        }
    }

    /// `drop`: gives back the collection that was dropped.
    pub fn drop_collection(
        &self,
        operation: &Arc<Operation>,
        namespace: &Namespace,
    ) -> Result<Arc<Collection>> {
        let _turn = self.take_turn(operation, &namespace.database)?;
        let (collection, _held) = loop {
            if namespace.holds_definitions() {
                // Their fields stay, so they must be true.
                for pattern in self.patterns().of(&namespace.database) {
                    self.finish_pending(operation, pattern)?;
                }
                self.drop_all_patterns(operation, &namespace.database)?;
            }
            let (collection, held) = self.hold(operation, namespace)?;
            // Nobody can insert a definition now.
            if !self.holds_patterns(namespace) {
                break (collection, held);
            }
        };
        self.leave_patterns(operation, &collection, &[collection.id])?;
        let mut unit = match namespace.holds_definitions() {
            true => Unit::new(self, operation.clone(), Durability::Durable),
            false => self.definitions_unit(operation, &namespace.database)?,
        };
        let ids = self.ids.lock();
        let before = self.patterns();
        let ended = ending_with(&before, namespace);
        let after = before.without(&ended)?;
        put_changes(&mut unit, &before, &after, &|namespace| self.collection(namespace))?;
        forget(unit.transaction(), &collection);
        unit.settle()?;
        self.publish_patterns(after);
        self.publish(|catalog| {
            catalog.remove(namespace);
        });
        drop(ids);
        ended.iter().for_each(|id| self.kill_jobs_of(*id));
        self.cursors.close_of_collection(collection.id);
        collection.end_builds();
        Ok(collection)
    }

    /// `dropDatabase`: collections and views go in one commit, so that a crash leaves all of them or none. Patterns go
    /// in a commit before. Collections that are made meanwhile stay: otherwise writers could keep this from ending.
    pub fn drop_database(&self, operation: &Arc<Operation>, name: &str) -> Result<()> {
        loop {
            self.drop_all_patterns(operation, name)?;
            let mut all: Vec<Arc<Collection>> = self.catalog().database(name).cloned().collect();
            // By id, as everybody does who holds several.
            all.sort_unstable_by_key(|collection| collection.id);
            let _held = self.hold_together(operation, &all)?;
            let ids = self.ids.lock();
            if !self.patterns().of(name).is_empty() {
                // Declared while we waited.
                continue;
            }
            // What was dropped, renamed or given an index while we waited is taken as it is now.
            let catalog = self.catalog();
            let now = all.iter().filter_map(|seen| catalog.by_id(seen.id));
            let gone: Vec<Arc<Collection>> =
                now.filter(|collection| collection.namespace.database == name).cloned().collect();
            let views: Vec<Namespace> =
                catalog.database_views(name).map(|view| view.namespace.clone()).collect();
            let mut transaction = self.store.begin();
            gone.iter().for_each(|collection| forget(&mut transaction, collection));
            for view in &views {
                transaction.delete(Space::Meta, &layout::view_meta_key(view));
            }
            transaction.commit(Durability::Durable)?;
            self.publish(|catalog| {
                for collection in &gone {
                    catalog.remove(&collection.namespace);
                }
                for view in &views {
                    catalog.remove_view(view);
                }
            });
            drop(ids);
            for collection in gone {
                self.cursors.close_of_collection(collection.id);
                collection.end_builds();
            }
            return Ok(());
        }
    }

    /// `renameCollection`: ids stay, so nothing but the catalog changes, across databases too. A target that
    /// is dropped goes in the same commit.
    pub fn rename_collection(
        &self,
        operation: &Arc<Operation>,
        from: &Namespace,
        to: &Namespace,
        drop_target: bool,
    ) -> Result<()> {
        to.check_creatable()?;
        if self.view(from).is_some() {
            return Err(Error::user(
                ErrorCode::CommandNotSupportedOnView,
                format!("cannot rename view: {from}"),
            ));
        }
        if self.view(to).is_some() {
            return Err(Error::user(
                ErrorCode::NamespaceExists,
                format!("a view already exists with that name: {to}"),
            ));
        }
        let _turn = self.take_turn(operation, &from.database)?;
        loop {
            let collection = self.collection(from).ok_or_else(|| not_found(from))?;
            if from == to {
                return Err(Error::user(ErrorCode::IllegalOperation, "Can't rename a collection to itself"));
            }
            let target = self.collection(to);
            if target.is_some() && !drop_target {
                return Err(Error::user(ErrorCode::NamespaceExists, "target namespace exists"));
            }
            if collection.collation.is_some() {
                self.check_no_patterns(to)?;
            }
            // Patterns follow, so nobody may be on his way from one of their collections to another.
            let related = self.related_collections([from, to]);
            let others = related.iter().filter_map(|namespace| self.collection(namespace));
            let mut all: Vec<Arc<Collection>> =
                [collection.clone()].into_iter().chain(target.clone()).chain(others).collect();
            // By id, so that renames onto each other do not wait for each other.
            all.sort_unstable_by_key(|collection| collection.id);
            all.dedup_by_key(|collection| collection.id);
            let _held = self.hold_together(operation, &all)?;
            let lent: Vec<CollectionId> = all.iter().map(|each| each.id).collect();
            if from.database != to.database || from.holds_definitions() || to.holds_definitions() {
                // Refused before anything is done.
                self.patterns_renamed(&self.patterns(), from, to, &mut || PatternId(0))?;
            }
            if let Some(target) = &target
                && self.collection(to).is_some_and(|now| now.id == target.id)
            {
                self.leave_patterns(operation, target, &lent)?;
            }
            let mut unit = self.definitions_unit(operation, &from.database)?;
            let mut ids = self.ids.lock();
            // Dropped, renamed or made while we waited: look again by name.
            let (current, displaced) = match (self.collection(from), self.collection(to)) {
                (Some(current), displaced)
                    if current.id == collection.id
                        && displaced.as_ref().map(|now| now.id) == target.as_ref().map(|seen| seen.id) =>
                {
                    (current, displaced)
                }
                _ => continue,
            };
            if self.related_collections([from, to]) != related {
                continue;
            }
            self.check_case(&to.database)?;
            let renamed =
                Arc::new(Collection { namespace: to.clone(), temporary: false, ..(*current).clone() });
            let before = self.patterns();
            let ended = ending_with(&before, to);
            let mut next = || PatternId(ids.next_index().0);
            let (after, filled) = self.patterns_renamed(&before, from, to, &mut next)?;
            let by_then = |namespace: &Namespace| match namespace == to {
                true => Some(renamed.clone()),
                false => self.collection(namespace),
            };
            put_changes(&mut unit, &before, &after, &by_then)?;
            if let Some(displaced) = &displaced {
                forget(unit.transaction(), displaced);
            }
            save(unit.transaction(), &renamed);
            ids.save(unit.transaction());
            unit.settle()?;
            self.publish_renamed(after, |catalog| {
                catalog.remove(from);
                catalog.insert(renamed);
            });
            drop(ids);
            displaced.iter().for_each(|displaced| displaced.end_builds());
            ended.iter().for_each(|id| self.kill_jobs_of(*id));
            for pattern in self.patterns().iter().filter(|pattern| filled.contains(&pattern.id)) {
                self.begin_filling(pattern);
            }
            self.resume_pending()?;
            for closed in [Some(current), displaced].into_iter().flatten() {
                self.cursors.close_of_collection(closed.id);
            }
            return Ok(());
        }
    }

    /// Takes a collection's lock whole: waits until no writer and no open transaction is inside.
    pub(crate) fn hold(
        &self,
        operation: &Operation,
        namespace: &Namespace,
    ) -> Result<(Arc<Collection>, Held)> {
        loop {
            let collection = self.collection(namespace).ok_or_else(|| not_found(namespace))?;
            let held = self.hold_whole(operation, &collection)?;
            // Dropped or renamed while we waited: look again by name.
            match self.collection(namespace) {
                Some(now) if now.id == collection.id => return Ok((now, held)),
                Some(_) => {}
                None => return Err(not_found(namespace)),
            }
        }
    }

    /// As [`Engine::hold`], of a collection whose description may be old by then.
    pub(crate) fn hold_whole(&self, operation: &Operation, collection: &Collection) -> Result<Held> {
        loop {
            // Short turns: while one waits here, new writers wait behind it.
            match collection.shared.lock.try_write_arc_for(Duration::from_millis(10)) {
                Some(held) => return Ok(held),
                None => operation.check()?,
            }
        }
    }

    /// Replaces a collection's description, on disk and in memory. The caller holds the collection.
    pub(crate) fn replace_collection(
        &self,
        namespace: &Namespace,
        change: impl FnOnce(&mut Collection, &mut Transaction),
    ) -> Result<Arc<Collection>> {
        let ids = self.ids.lock();
        let current = self.collection(namespace).ok_or_else(|| not_found(namespace))?;
        let mut changed = (*current).clone();
        let mut transaction = self.store.begin();
        change(&mut changed, &mut transaction);
        save(&mut transaction, &changed);
        ids.save(&mut transaction);
        transaction.commit(Durability::Durable)?;
        let changed = Arc::new(changed);
        self.publish(|catalog| catalog.insert(changed.clone()));
        Ok(changed)
    }

    /// Gives a collection other options: those that `change` makes of what it has.
    pub fn change_options(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        change: impl FnOnce(RawDocument<'_>) -> Document,
    ) -> Result<()> {
        let (collection, _held) = self.hold(operation, namespace)?;
        let options = change(collection.options.as_raw());
        if options == collection.options {
            return Ok(());
        }
        let mut changed = (*collection).clone();
        changed.set_options(options)?;
        self.replace_collection(namespace, |collection, _| {
            collection.options = changed.options;
            collection.validation = changed.validation;
            collection.capped = changed.capped;
        })?;
        Ok(())
    }

    /// Replaces a collection's description in memory alone, for what does not outlive the process.
    pub(crate) fn replace_in_memory(&self, id: CollectionId, change: impl FnOnce(&mut Collection)) {
        let _ids = self.ids.lock();
        let catalog = self.catalog();
        let Some(current) = catalog.by_id(id) else { return };
        let mut changed = (**current).clone();
        change(&mut changed);
        self.publish(|catalog| catalog.insert(Arc::new(changed)));
    }

    /// Widens what is known of an index's arrays before the keys that need it are written.
    ///
    /// Queued ahead of those keys, so it is durable no later than they are. A wider set than the keys
    /// need is harmless: the planner is only more careful.
    pub(crate) fn widen_multikey(&self, id: CollectionId, index: IndexId, seen: &Multikey) -> Result<()> {
        let _ids = self.ids.lock();
        let catalog = self.catalog();
        let Some(current) = catalog.by_id(id) else { return Ok(()) };
        let mut changed = (**current).clone();
        changed.widen_multikey(index, seen);
        let mut transaction = self.store.begin();
        save(&mut transaction, &changed);
        let _queued = transaction.enqueue(Durability::Durable)?;
        self.publish(|catalog| catalog.insert(Arc::new(changed)));
        Ok(())
    }
}

pub(crate) fn save(transaction: &mut Transaction, collection: &Collection) {
    let key = layout::collection_meta_key(collection.id);
    transaction.put(Space::Meta, key.to_vec(), collection.encode().into_bytes());
}

/// Removes a collection from `meta`, and gives back its space once nobody reads it any more.
pub(crate) fn forget(transaction: &mut Transaction, collection: &Collection) {
    transaction.delete(Space::Meta, &layout::collection_meta_key(collection.id));
    transaction.reset_counter(&layout::counter_key(collection.id));
    transaction.reclaim(Space::Records, &collection.id.0.to_be_bytes());
    for index in collection.indexes.iter() {
        transaction.reclaim(Space::Index, &layout::index_prefix(index.id));
    }
}

pub(crate) fn not_found(namespace: &Namespace) -> Error {
    Error::user(ErrorCode::NamespaceNotFound, format!("ns not found: {namespace}"))
}

fn exists(namespace: &Namespace) -> Error {
    Error::user(ErrorCode::NamespaceExists, format!("Collection already exists. NS: {namespace}"))
}

/// A random UUID (version 4).
pub fn new_uuid() -> [u8; 16] {
    let mut bytes: [u8; 16] = rand::random();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}
