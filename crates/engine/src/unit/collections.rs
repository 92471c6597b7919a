//! The collections that a unit writes to. They are held against schema changes until the batch is handed in.

use std::sync::Arc;
use std::time::Duration;

use kilim_bson::Document;
use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::Transaction;
use parking_lot::{ArcRwLockReadGuard, RawRwLock};

use super::{Unit, Work};
use crate::catalog::{Collection, save};
use crate::engine::Engine;
use crate::ids::{CollectionId, IndexId};
use crate::index::Multikey;
use crate::limits;
use crate::namespace::Namespace;
use crate::session::ActiveTransaction;

/// A collection that is held.
pub(super) type Held = (CollectionId, Guard);
type Guard = ArcRwLockReadGuard<RawRwLock, ()>;

/// How often somebody who waits for a collection looks whether he is to go on.
const LOOK: Duration = Duration::from_millis(10);

impl Unit<'_> {
    /// Writes to collections that the caller holds whole.
    pub(crate) fn lend(&mut self, collections: &[CollectionId]) {
        self.lent = collections.to_vec();
    }

    /// Whether it writes to collections that are held whole.
    pub(crate) fn has_lent(&self) -> bool {
        !self.lent.is_empty()
    }

    /// The collection to read from, as this unit sees it.
    pub fn collection(&mut self, namespace: &Namespace) -> Result<Option<Arc<Collection>>> {
        match &mut self.work {
            Work::Transaction(transaction) => in_transaction(transaction, self.engine, namespace),
            Work::Batch { .. } => Ok(self.engine.collection(namespace)),
        }
    }

    /// Takes up writing to a collection: holds it against schema changes until the batch is handed in.
    pub fn enter(&mut self, namespace: &Namespace) -> Result<Option<Arc<Collection>>> {
        let Work::Batch { held, transaction, documents, .. } = &mut self.work else {
            self.engine.check_no_view(namespace)?;
            return self.collection(namespace);
        };
        // A document that was refused or no longer matched has left its intents. Nothing was written under
        // them, and whoever takes up the next document may wait, so must not hold them.
        if *documents == 0 && !self.keeps && transaction.as_ref().is_some_and(Transaction::is_empty) {
            *transaction = None;
            self.maintains = false;
        }
        let found = hold(self.engine, &self.lent, held, namespace, |collection| {
            loop {
                match collection.shared.lock.try_read_arc_for(LOOK) {
                    Some(guard) => return Ok(guard),
                    None => self.operation.check()?,
                }
                // Whoever changes the schema may wait for somebody who waits for the key that was kept.
                let written = *documents > 0 || transaction.as_ref().is_some_and(|open| !open.is_empty());
                if !written && std::mem::take(&mut self.keeps) {
                    *transaction = None;
                    self.maintains = false;
                }
            }
        })?;
        if found.is_none() {
            self.engine.check_no_view(namespace)?;
        }
        Ok(found)
    }

    /// As [`Unit::enter`], and makes the collection where it is missing.
    pub fn enter_or_create(&mut self, namespace: &Namespace) -> Result<Arc<Collection>> {
        loop {
            if let Some(collection) = self.enter(namespace)? {
                return Ok(collection);
            }
            self.create(namespace, Document::new())?;
        }
    }

    /// As [`Unit::enter`] for a further collection of the document at hand: what is held for it stays held. Whoever
    /// waits to change its schema may wait for us to leave the first, so we do not wait for him.
    pub(crate) fn join(&mut self, namespace: &Namespace) -> Result<Option<Arc<Collection>>> {
        let Work::Batch { held, .. } = &mut self.work else { return self.collection(namespace) };
        hold(self.engine, &self.lent, held, namespace, |collection| {
            let guard = collection.shared.lock.try_read_arc_for(limits::TRANSACTION_LOCK_WAIT);
            guard.ok_or(Error::Conflict("the schema of a pattern's collection is being changed"))
        })
    }

    /// The same, and makes the collection where it is missing.
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
        match &mut self.work {
            Work::Batch { .. } => {
                self.engine.ensure_collection(namespace)?;
            }
            Work::Transaction(transaction) => {
                let collection =
                    self.engine.create_in_transaction(&mut transaction.storage, namespace, options)?;
                transaction.created.push(collection);
            }
        }
        Ok(())
    }

    /// Changes a collection that this unit's transaction made, if it made it.
    pub fn change_created(&mut self, namespace: &Namespace, change: impl FnOnce(&mut Collection)) -> bool {
        let Work::Transaction(transaction) = &mut self.work else { return false };
        let Some(created) =
            transaction.created.iter_mut().find(|collection| collection.namespace == *namespace)
        else {
            return false;
        };
        change(Arc::make_mut(created));
        save(&mut transaction.storage, created);
        true
    }

    /// Widens what is known of an index's arrays, where this unit's collections are described: a collection
    /// that its transaction made is not in the catalog yet.
    pub(crate) fn widen_multikey(&mut self, id: CollectionId, index: IndexId, seen: &Multikey) -> Result<()> {
        if let Work::Transaction(transaction) = &mut self.work
            && let Some(created) = transaction.created.iter_mut().find(|collection| collection.id == id)
        {
            Arc::make_mut(created).widen_multikey(index, seen);
            save(&mut transaction.storage, created);
            return Ok(());
        }
        self.engine.widen_multikey(id, index, seen)
    }
}

/// Holds the collection of a name, unless it is held already, by whoever lent it or in this batch.
fn hold(
    engine: &Engine,
    lent: &[CollectionId],
    held: &mut Vec<Held>,
    namespace: &Namespace,
    mut lock: impl FnMut(&Collection) -> Result<Guard>,
) -> Result<Option<Arc<Collection>>> {
    loop {
        let Some(collection) = engine.collection(namespace) else { return Ok(None) };
        if lent.contains(&collection.id) || held.iter().any(|(id, _)| *id == collection.id) {
            return Ok(Some(collection));
        }
        let guard = lock(&collection)?;
        // A schema change may have ended while we waited: look again by name.
        if let Some(now) = engine.collection(namespace).filter(|now| now.id == collection.id) {
            held.push((now.id, guard));
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
        let Some(collection) = engine.collection(namespace) else { return Ok(None) };
        if transaction.held.iter().any(|(id, _)| *id == collection.id) {
            return Ok(Some(collection));
        }
        let Some(guard) = collection.shared.lock.try_read_arc_for(limits::TRANSACTION_LOCK_WAIT) else {
            return Err(Error::user(
                ErrorCode::LockTimeout,
                format!(
                    "Unable to acquire a lock on '{namespace}' within {}ms.",
                    limits::TRANSACTION_LOCK_WAIT.as_millis()
                ),
            ));
        };
        // A schema change may have ended while we waited: look again, and hold what is there now.
        if engine.collection(namespace).is_some_and(|now| now.id == collection.id) {
            transaction.held.push((collection.id, guard));
        }
    }
}
