//! The collections that a unit writes to. They are held against schema changes until the batch is handed in.

use std::sync::Arc;
use std::time::Duration;

use kilim_bson::Document;
use kilim_error::{Error, ErrorCode, Result};
use parking_lot::{ArcRwLockReadGuard, RawRwLock};

use super::batch::{Batch, Holding};
use super::{Unit, Writes};
use crate::catalog::{Collection, save};
use crate::change_log::Kind;
use crate::engine::Engine;
use crate::ids::{CollectionId, IndexId};
use crate::index::Multikey;
use crate::limits;
use crate::namespace::Namespace;
use crate::session::ActiveTransaction;

/// A collection that a batch holds against schema changes.
pub(super) type Held = (CollectionId, Guard);
type Guard = ArcRwLockReadGuard<RawRwLock, ()>;

/// A statement that looks for documents of a collection and changes them.
pub(crate) struct Statement {
    _shared: Option<Guard>,
}

/// How often a unit that waits for a collection checks whether its operation was killed.
const LOOK: Duration = Duration::from_millis(10);

/// Who keeps schema changes away from the collections that a unit writes to.
pub(super) enum SchemaGuard {
    /// The unit itself shares each collection's lock.
    Unit,
    /// The caller holds these collections exclusively. The unit shares the locks of others.
    Caller(Vec<CollectionId>),
}

impl SchemaGuard {
    fn covers(&self, collection: CollectionId) -> bool {
        match self {
            SchemaGuard::Unit => false,
            SchemaGuard::Caller(held) => held.contains(&collection),
        }
    }
}

impl Unit<'_> {
    /// The caller holds these collections exclusively, and the unit writes to them.
    pub(crate) fn write_in_held(&mut self, collections: &[CollectionId]) {
        self.schema_guard = SchemaGuard::Caller(collections.to_vec());
    }

    /// Whether its caller keeps everybody else out of the collections that it writes to, jobs included.
    pub(crate) fn keeps_jobs_out(&self) -> bool {
        matches!(self.schema_guard, SchemaGuard::Caller(_))
    }

    /// The collection to read from, as this unit sees it.
    pub fn collection(&mut self, namespace: &Namespace) -> Result<Option<Arc<Collection>>> {
        let found = match &mut self.writes {
            Writes::Transaction { active, .. } => in_transaction(active, self.engine, namespace)?,
            Writes::Batch(_) => self.engine.documents(namespace),
        };
        self.engine.check_expected(&self.operation, namespace, found.as_deref())?;
        Ok(found)
    }

    /// Begins to write a document of a collection: holds the collection against schema changes until the batch is handed
    /// in.
    pub fn enter(&mut self, namespace: &Namespace) -> Result<Option<Arc<Collection>>> {
        let Writes::Batch(batch) = &mut self.writes else {
            self.engine.check_no_view(namespace)?;
            return self.collection(namespace);
        };
        // The document before was refused or no longer matched, and its intents are still held. Nothing was written under
        // them. They are given back, because the unit may wait for the next document.
        if batch.holding != Holding::Contended && batch.transaction.is_some() && !batch.has_written() {
            batch.let_go();
        }
        let operation = &self.operation;
        let found = hold(self.engine, &self.schema_guard, batch, namespace, |collection, batch| {
            loop {
                match collection.shared.lock.try_read_arc_for(LOOK) {
                    Some(guard) => return Ok(guard),
                    None => operation.check()?,
                }
                // A schema change holds the collection. It may wait for a writer that waits for the contended key which
                // this unit kept, so the key is given back.
                if batch.holding == Holding::Contended && !batch.has_written() {
                    batch.let_go();
                }
            }
        })?;
        if found.is_none() {
            self.engine.check_no_view(namespace)?;
        }
        self.engine.check_expected(&self.operation, namespace, found.as_deref())?;
        Ok(found)
    }

    /// Enters a collection, and keeps the version in which its documents are seen for as long as the guard lives: also between
    /// batches, when the collection is not held. A transaction holds it anyway.
    pub(crate) fn begin_statement(&mut self, namespace: &Namespace) -> Result<Option<Statement>> {
        loop {
            let Some(collection) = self.enter(namespace)? else { return Ok(None) };
            if self.is_transaction() || self.schema_guard.covers(collection.id) {
                return Ok(Some(Statement { _shared: None }));
            }
            match collection.shared.statements.try_read_arc_for(LOOK) {
                Some(guard) => return Ok(Some(Statement { _shared: Some(guard) })),
                None => self.operation.check()?,
            }
        }
    }

    /// Enters a collection, and makes it where it is missing.
    pub fn enter_or_create(&mut self, namespace: &Namespace) -> Result<Arc<Collection>> {
        loop {
            if let Some(collection) = self.enter(namespace)? {
                return Ok(collection);
            }
            self.create(namespace, Document::new())?;
        }
    }

    /// Enters a further collection for the document at hand, and keeps what is held for that document. A schema change of
    /// the further collection may wait for this unit to leave the first one, so the unit waits only briefly, and
    /// then ends the attempt with a conflict.
    pub(crate) fn join(&mut self, namespace: &Namespace) -> Result<Option<Arc<Collection>>> {
        let Writes::Batch(batch) = &mut self.writes else { return self.collection(namespace) };
        hold(self.engine, &self.schema_guard, batch, namespace, |collection, _| {
            let guard = collection.shared.lock.try_read_arc_for(limits::TRANSACTION_LOCK_WAIT);
            guard.ok_or(Error::Conflict("the schema of a pattern's collection is being changed"))
        })
    }

    /// Joins a collection, and makes it where it is missing.
    pub(crate) fn join_or_create(&mut self, namespace: &Namespace) -> Result<Arc<Collection>> {
        loop {
            if let Some(collection) = self.join(namespace)? {
                return Ok(collection);
            }
            self.create(namespace, Document::new())?;
        }
    }

    /// Makes a collection: at once outside a transaction, with the commit inside one.
    pub fn create(&mut self, namespace: &Namespace, options: Document) -> Result<()> {
        match &mut self.writes {
            Writes::Batch(_) => {
                self.engine.ensure_collection(namespace)?;
            }
            Writes::Transaction { active, .. } => {
                let collection =
                    self.engine.create_in_transaction(&mut active.storage, active.of, namespace, options)?;
                active.created.push(collection);
            }
        }
        Ok(())
    }

    /// Changes a collection that this unit's transaction made, if it made it. New indexes are behind those that were there.
    pub fn change_created(&mut self, namespace: &Namespace, change: impl FnOnce(&mut Collection)) -> bool {
        let Writes::Transaction { active, .. } = &mut self.writes else { return false };
        let Some(created) = active.created.iter_mut().find(|collection| collection.namespace == *namespace)
        else {
            return false;
        };
        let before = created.indexes.len();
        change(Arc::make_mut(created));
        save(&mut active.storage, created);
        for index in &created.indexes[before..] {
            let kind = Kind::CreateIndexes;
            self.engine.log_indexes(&mut active.storage, kind, created, &[&index.spec], Some(active.of));
        }
        true
    }

    /// Notes that an index met arrays on further paths. A collection that this unit's transaction made is not in the catalog
    /// yet, so it is noted in the transaction.
    pub(crate) fn widen_multikey(&mut self, id: CollectionId, index: IndexId, seen: &Multikey) -> Result<()> {
        if let Writes::Transaction { active, .. } = &mut self.writes
            && let Some(created) = active.created.iter_mut().find(|collection| collection.id == id)
        {
            Arc::make_mut(created).widen_multikey(index, seen);
            save(&mut active.storage, created);
            return Ok(());
        }
        self.engine.widen_multikey(id, index, seen)
    }
}

/// Holds the collection of a name, unless the caller or this batch holds it already.
fn hold(
    engine: &Engine,
    guard: &SchemaGuard,
    batch: &mut Batch,
    namespace: &Namespace,
    mut lock: impl FnMut(&Collection, &mut Batch) -> Result<Guard>,
) -> Result<Option<Arc<Collection>>> {
    loop {
        let Some(collection) = engine.documents(namespace) else { return Ok(None) };
        if guard.covers(collection.id) || batch.collections.iter().any(|(id, _)| *id == collection.id) {
            return Ok(Some(collection));
        }
        let guard = lock(&collection, batch)?;
        // A schema change may have ended while the unit waited: look again by name.
        if let Some(now) = engine.documents(namespace).filter(|now| now.id == collection.id) {
            batch.collections.push((now.id, guard));
            return Ok(Some(now));
        }
    }
}

/// The collection as this transaction sees it, held until it ends.
fn in_transaction(
    transaction: &mut ActiveTransaction,
    engine: &Engine,
    namespace: &Namespace,
) -> Result<Option<Arc<Collection>>> {
    if let Some(created) = transaction.created.iter().find(|collection| collection.namespace == *namespace) {
        return Ok(Some(created.clone()));
    }
    loop {
        let Some(collection) = engine.documents(namespace) else { return Ok(None) };
        if transaction.held.iter().any(|(id, _)| *id == collection.id) {
            return Ok(Some(collection));
        }
        let wait = engine.settings.transaction_lock_wait();
        let Some(guard) = collection.shared.lock.try_read_arc_for(wait) else {
            return Err(Error::user(
                ErrorCode::LockTimeout,
                format!("Unable to acquire a lock on '{namespace}' within {}ms.", wait.as_millis()),
            ));
        };
        // A schema change may have ended while the transaction waited: look again, and hold what is there now.
        if engine.documents(namespace).is_some_and(|now| now.id == collection.id) {
            transaction.held.push((collection.id, guard));
        }
    }
}
