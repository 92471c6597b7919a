//! A unit of work: where a command's writes gather on their way to the commit queue.
//!
//! Outside a transaction a unit holds a batch of documents, each written as a whole or not at all. A
//! batch that would have to wait for another writer is handed in first, so a unit never waits while it
//! holds more than the document at hand; within a document, intents are taken in one order (the
//! record, then unique keys by their bytes). So no two units wait for each other.
//!
//! Inside a transaction nothing waits: whoever comes second gets a conflict.

use std::ops::Bound;
use std::sync::Arc;

use kilim_bson::Document;
use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::{Bytes, CommitTime, Direction, Durability, Snapshot, Space, Ticket, Transaction, Wait};
use parking_lot::{ArcRwLockReadGuard, RawRwLock};

use crate::catalog::{Collection, CollectionId, RecordId};
use crate::engine::Engine;
use crate::figures::Figures;
use crate::index::{IndexId, Multikey};
use crate::layout;
use crate::limits;
use crate::maintenance::{Caused, Contended, Deferred};
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::session::{ActiveTransaction, Retry};

pub struct Unit<'e> {
    pub engine: &'e Engine,
    pub operation: Arc<Operation>,
    durability: Durability,
    work: Work,
    /// Remembers statements for their retry, in the commit that makes them true.
    pub retry: Option<Retry>,
    /// Statements were answered that the session's record does not tell of yet.
    unrecorded: bool,
    /// Statements that a retry found done already.
    retried: Vec<i32>,
    /// What it reads instead of the newest state.
    pub read_at: Option<Snapshot>,
    /// The newest commit this unit has seen through, for operationTime.
    committed: CommitTime,
    /// What maintenance could not have in its last attempt.
    pub(crate) contended: Option<Contended>,
    /// It was waited for, and is held for the next attempt.
    pub(crate) keeps: bool,
    /// The batch holds keys for maintenance, which commits stand in line for: it waits for nobody.
    pub(crate) maintains: bool,
    /// `bypassDocumentValidation`: validators are not asked.
    pub bypass_validation: bool,
    /// A transaction's commit has begun: what maintenance still writes is as of the newest commit.
    pub(crate) commits: bool,
    /// Collections that whoever runs this holds whole: it need not hold them itself.
    lent: Vec<CollectionId>,
    /// All of it goes in one commit, or none.
    pub(crate) is_one: bool,
    /// What its writes caused, for the reply.
    pub caused: Caused,
    /// What it did, for whoever wants to know why it took so long.
    pub figures: Figures,
}

enum Work {
    Batch {
        transaction: Option<Transaction>,
        documents: usize,
        /// Collections written to since the batch began; schema changes wait for them.
        held: Vec<(CollectionId, ArcRwLockReadGuard<RawRwLock, ()>)>,
        /// Something was read through the commit queue since the last batch was handed in.
        looked: bool,
        /// Handed in, not yet known to be durable. The last implies the others, which are kept all the same: a
        /// ticket that is dropped asks somebody else to see it through, at once and by itself.
        tickets: Vec<Ticket>,
        /// Bytes handed in since that was last waited for.
        on_the_way: usize,
    },
    Transaction(Box<ActiveTransaction>),
}

impl<'e> Unit<'e> {
    pub fn new(engine: &'e Engine, operation: Arc<Operation>, durability: Durability) -> Unit<'e> {
        let work = Work::Batch {
            transaction: None,
            documents: 0,
            held: Vec::new(),
            looked: false,
            tickets: Vec::new(),
            on_the_way: 0,
        };
        Unit::of(engine, operation, durability, work)
    }

    fn of(engine: &'e Engine, operation: Arc<Operation>, durability: Durability, work: Work) -> Unit<'e> {
        Unit {
            engine,
            operation,
            durability,
            work,
            retry: None,
            unrecorded: false,
            retried: Vec::new(),
            read_at: None,
            committed: 0,
            contended: None,
            keeps: false,
            maintains: false,
            bypass_validation: false,
            commits: false,
            lent: Vec::new(),
            is_one: false,
            caused: Caused::default(),
            figures: Figures::default(),
        }
    }

    pub fn in_transaction(
        engine: &'e Engine,
        operation: Arc<Operation>,
        transaction: Box<ActiveTransaction>,
    ) -> Unit<'e> {
        Unit::of(engine, operation, Durability::Durable, Work::Transaction(transaction))
    }

    pub fn is_transaction(&self) -> bool {
        matches!(self.work, Work::Transaction(_))
    }

    /// The open transaction back, after the command.
    pub fn into_transaction(self) -> Option<Box<ActiveTransaction>> {
        match self.work {
            Work::Transaction(transaction) => Some(transaction),
            Work::Batch { .. } => None,
        }
    }

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
            Work::Transaction(transaction) => transaction.collection(self.engine, namespace),
            Work::Batch { .. } => Ok(self.engine.collection(namespace)),
        }
    }

    /// What this unit's statements read: the newest published state with the unit's own writes.
    pub fn snapshot(&self) -> Snapshot {
        if let Some(snapshot) = &self.read_at {
            return snapshot.clone();
        }
        match &self.work {
            Work::Batch { transaction: None, .. } => self.engine.store.snapshot(),
            Work::Batch { transaction: Some(transaction), .. } => transaction.snapshot(),
            Work::Transaction(transaction) => transaction.storage.snapshot(),
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
        loop {
            let Some(collection) = self.engine.collection(namespace) else {
                self.engine.check_no_view(namespace)?;
                return Ok(None);
            };
            if self.lent.contains(&collection.id) || held.iter().any(|(id, _)| *id == collection.id) {
                return Ok(Some(collection));
            }
            let guard = loop {
                match collection.shared.lock.try_read_arc_for(std::time::Duration::from_millis(10)) {
                    Some(guard) => break guard,
                    None => self.operation.check()?,
                }
                // Whoever changes the schema may wait for somebody who waits for the key that was kept.
                let written = *documents > 0 || transaction.as_ref().is_some_and(|open| !open.is_empty());
                if !written && std::mem::take(&mut self.keeps) {
                    *transaction = None;
                    self.maintains = false;
                }
            };
            // A schema change may have ended while we waited: look again by name.
            match self.engine.collection(namespace) {
                Some(now) if now.id == collection.id => {
                    held.push((now.id, guard));
                    return Ok(Some(now));
                }
                _ => continue,
            }
        }
    }

    /// As [`Unit::enter`] for a further collection of the document at hand: what is held for it stays held. Whoever
    /// waits to change its schema may wait for us to leave the first, so we do not wait for him.
    pub(crate) fn join(&mut self, namespace: &Namespace) -> Result<Option<Arc<Collection>>> {
        let Work::Batch { held, .. } = &mut self.work else { return self.collection(namespace) };
        loop {
            let Some(collection) = self.engine.collection(namespace) else { return Ok(None) };
            if self.lent.contains(&collection.id) || held.iter().any(|(id, _)| *id == collection.id) {
                return Ok(Some(collection));
            }
            let Some(guard) = collection.shared.lock.try_read_arc_for(limits::TRANSACTION_LOCK_WAIT) else {
                return Err(Error::Conflict("the schema of a pattern's collection is being changed"));
            };
            // A schema change may have ended while we waited: look again by name.
            match self.engine.collection(namespace) {
                Some(now) if now.id == collection.id => {
                    held.push((now.id, guard));
                    return Ok(Some(now));
                }
                _ => continue,
            }
        }
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

    /// Whether it holds no key and no document, so that it may wait for somebody.
    pub(crate) fn has_empty_hands(&self) -> bool {
        match &self.work {
            Work::Batch { transaction, documents, .. } => {
                *documents == 0 && transaction.as_ref().is_none_or(Transaction::holds_nothing)
            }
            Work::Transaction(_) => false,
        }
    }

    /// Something was read that may not be durable yet.
    pub(crate) fn note_looked(&mut self) {
        if let Work::Batch { looked, .. } = &mut self.work {
            *looked = true;
        }
    }

    /// Everything that was queued until now, published, with the unit's own writes.
    pub(crate) fn newest_snapshot(&mut self) -> Result<Snapshot> {
        self.engine.store.settle(Durability::Relaxed)?;
        Ok(self.transaction().newest_snapshot())
    }

    /// Leaves work for the transaction's commit.
    pub(crate) fn defer(&mut self, deferred: Deferred) {
        if let Work::Transaction(transaction) = &mut self.work {
            transaction.deferred.push(deferred);
        }
    }

    /// How much is left for the commit.
    pub(crate) fn deferred(&self) -> usize {
        match &self.work {
            Work::Transaction(transaction) => transaction.deferred.len(),
            Work::Batch { .. } => 0,
        }
    }

    /// Takes back what a change left that then failed.
    pub(crate) fn undo_deferred(&mut self, before: usize) {
        if let Work::Transaction(transaction) = &mut self.work {
            transaction.deferred.truncate(before);
        }
    }

    pub(crate) fn take_deferred(&mut self) -> Vec<Deferred> {
        match &mut self.work {
            Work::Transaction(transaction) => std::mem::take(&mut transaction.deferred),
            Work::Batch { .. } => Vec::new(),
        }
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
        crate::ddl::save(&mut transaction.storage, created);
        true
    }

    /// Widens what is known of an index's arrays, where this unit's collections are described: a collection
    /// that its transaction made is not in the catalog yet.
    pub(super) fn widen_multikey(&mut self, id: CollectionId, index: IndexId, seen: &Multikey) -> Result<()> {
        if let Work::Transaction(transaction) = &mut self.work
            && let Some(created) = transaction.created.iter_mut().find(|collection| collection.id == id)
        {
            Arc::make_mut(created).widen_multikey(index, seen);
            crate::ddl::save(&mut transaction.storage, created);
            return Ok(());
        }
        self.engine.widen_multikey(id, index, seen)
    }

    pub(crate) fn transaction(&mut self) -> &mut Transaction {
        match &mut self.work {
            Work::Batch { transaction, .. } => transaction.get_or_insert_with(|| self.engine.store.begin()),
            Work::Transaction(transaction) => &mut transaction.storage,
        }
    }

    /// Takes the intent on a record and reads its newest version, commit time included. `None`: gone.
    pub(crate) fn lock_record(
        &mut self,
        collection: CollectionId,
        record: RecordId,
    ) -> Result<Option<Bytes>> {
        let key = layout::record_key(collection, record);
        self.lock(Space::Records, &key)?;
        let in_transaction = self.is_transaction();
        let transaction = self.transaction();
        if in_transaction {
            transaction.check_unchanged(Space::Records, &key)?;
            return transaction.get(Space::Records, &key);
        }
        transaction.latest(Space::Records, &key)
    }

    /// Takes a key that this unit keeps until its batch is handed in. From here on it waits for nobody.
    pub(crate) fn hold_for_batch(&mut self, space: Space, key: &[u8]) -> Result<()> {
        self.lock(space, key)?;
        self.maintains = true;
        Ok(())
    }

    /// Takes the intent on a unique key and says who holds the key, if anyone.
    pub(super) fn lock_unique(&mut self, entry: &[u8]) -> Result<Option<RecordId>> {
        self.lock(Space::Index, entry)?;
        let in_transaction = self.is_transaction() && !self.commits;
        let transaction = self.transaction();
        let seen = match in_transaction {
            true => transaction.get(Space::Index, entry)?,
            false => transaction.latest(Space::Index, entry)?,
        };
        if in_transaction && seen.is_none() && transaction.latest(Space::Index, entry)?.is_some() {
            return Err(Error::Conflict("a document with that unique key was inserted meanwhile"));
        }
        Ok(seen.map(|value| layout::record_id_of(&value[..8])))
    }

    /// Takes the intent on a key of an index that is to become unique, and says whether another record has the
    /// key. Its entries end in their records, so they are scanned for; whoever held the intent before has queued
    /// his, and the queue is seen through first.
    pub(super) fn lock_prepared(&mut self, entry: &[u8], record: RecordId) -> Result<bool> {
        self.lock(Space::Index, entry)?;
        self.engine.store.sync()?;
        let in_transaction = self.is_transaction() && !self.commits;
        let transaction = self.transaction();
        let newest = has_other_entry(&transaction.newest_snapshot(), entry, record)?;
        if in_transaction && newest && !has_other_entry(&transaction.snapshot(), entry, record)? {
            return Err(Error::Conflict("a document with that unique key was inserted meanwhile"));
        }
        Ok(newest)
    }

    fn lock(&mut self, space: Space, key: &[u8]) -> Result<()> {
        let operation = self.operation.clone();
        let interrupt = || operation.check().err();
        let alone = matches!(self.work, Work::Batch { documents: 0, .. }) && !self.maintains;
        let wait = match alone {
            true => Wait::Until { deadline: operation.deadline(), interrupt: &interrupt },
            false => Wait::No,
        };
        let locked = self.transaction().lock(space, key, wait);
        if self.maintains && matches!(locked, Err(Error::Conflict(_))) {
            self.contended = Some(Contended::new(space, key));
        }
        locked?;
        if let Work::Batch { looked, .. } = &mut self.work {
            *looked = true;
        }
        Ok(())
    }

    /// Counts a document that a statement of one document wrote. The next statement must read it, so
    /// batches are large, and are seen through.
    pub(crate) fn written(&mut self) -> Result<()> {
        if self.is_one {
            return self.check_one();
        }
        if self.count_written(limits::STATEMENT_BATCH_DOCUMENTS)? {
            self.settle()?;
        }
        Ok(())
    }

    /// What goes in one commit has to fit into memory.
    fn check_one(&mut self) -> Result<()> {
        match self.transaction().overlay_bytes() <= limits::TRANSACTION_BYTES_MAX {
            true => Ok(()),
            false => Err(Error::user(
                ErrorCode::TransactionTooLarge,
                format!(
                    "this would be one commit of more than {} bytes, because patterns concern the collection: write by \
                     $merge, which takes documents one by one",
                    limits::TRANSACTION_BYTES_MAX
                ),
            )),
        }
    }

    /// Forgets what it has written and not handed in, and what it holds for that.
    pub(crate) fn forget(&mut self) {
        self.keeps = false;
        self.maintains = false;
        self.caused = Caused::default();
        if let Work::Batch { transaction, documents, held, .. } = &mut self.work {
            (*transaction, *documents) = (None, 0);
            held.clear();
        }
    }

    /// Counts a document of a statement that writes many and reads none of them again: batches are
    /// small, because a small overlay costs less, and they are waited for together.
    pub(super) fn streamed(&mut self) -> Result<()> {
        if self.count_written(limits::STREAM_BATCH_DOCUMENTS)? {
            self.enqueue()?;
            if let Work::Batch { on_the_way, .. } = &self.work
                && *on_the_way >= limits::STREAM_BYTES_ON_THE_WAY
            {
                self.wait()?;
            }
        }
        Ok(())
    }

    /// Whether the batch is large enough to be handed in.
    fn count_written(&mut self, documents_max: usize) -> Result<bool> {
        match &mut self.work {
            Work::Batch { transaction: Some(transaction), documents, .. } => {
                *documents += 1;
                let heavy = transaction.overlay_bytes() >= limits::STATEMENT_BATCH_BYTES;
                Ok(heavy || *documents >= documents_max)
            }
            Work::Batch { .. } => Ok(false),
            Work::Transaction(transaction) => transaction.check_limits().map(|()| false),
        }
    }

    /// Sees through what was handed in, before a statement reads. The open batch too: it began before those
    /// were published, so its snapshot lacks them.
    pub(super) fn see_own_writes(&mut self) -> Result<()> {
        match &self.work {
            Work::Batch { tickets, .. } if !tickets.is_empty() => self.settle(),
            _ => Ok(()),
        }
    }

    /// What a statement answered, if this is its retry.
    pub(super) fn answered(&mut self, statement: i32) -> Option<Document> {
        let done = self.retry.as_ref()?.result_of(statement)?.clone();
        self.retried.push(statement);
        Some(done)
    }

    /// Statements that were not run because a retry found them done.
    pub fn retried(&self) -> &[i32] {
        &self.retried
    }

    /// Remembers a statement's answer; the batch of its writes takes it along.
    pub(super) fn record_statement(&mut self, statement: i32, result: Document) {
        if let Some(retry) = &mut self.retry {
            retry.record(statement, result);
            self.unrecorded = true;
        }
    }

    /// Whether a conflict can be solved by handing in and trying again; if so, it has been handed in.
    ///
    /// The batch was holding earlier documents, so it could not wait. Afterwards it holds nothing, and
    /// can.
    pub(crate) fn can_retry(&mut self, error: &Error) -> Result<bool> {
        let Error::Conflict(_) = error else { return Ok(false) };
        if self.is_transaction() {
            return Ok(false);
        }
        self.engine.metrics.write_conflicts.add(1);
        self.operation.check()?;
        // Seen through, not only queued: the next try reads from a snapshot that has these writes.
        self.settle()?;
        self.await_contended()?;
        Ok(true)
    }

    fn enqueue(&mut self) -> Result<()> {
        self.keeps = false;
        self.maintains = false;
        if std::mem::take(&mut self.unrecorded)
            && let Some(retry) = self.retry.take()
        {
            retry.save(self.transaction());
            self.retry = Some(retry);
        }
        if let Work::Batch { transaction, documents, held, looked, tickets, on_the_way } = &mut self.work {
            *documents = 0;
            if let Some(batch) = transaction.take()
                && !batch.is_empty()
            {
                *on_the_way += batch.overlay_bytes();
                tickets.push(batch.enqueue(self.durability)?);
                *looked = false;
            }
            held.clear();
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        if let Work::Batch { looked, tickets, on_the_way, .. } = &mut self.work {
            if let Some(last) = tickets.pop() {
                *on_the_way = 0;
                self.committed = last.wait()?;
                tickets.clear();
            }
            // A refusal or a no-op may rest on a commit that a crash would still take away.
            if std::mem::take(looked) {
                self.engine.store.settle(self.durability)?;
            }
        }
        Ok(())
    }

    /// Ends the command's writes: when it returns, they are as durable as was asked.
    pub fn settle(&mut self) -> Result<()> {
        self.enqueue()?;
        self.wait()
    }

    /// Ends the writes so far and waits until everything queued is published: what refused a write may be
    /// known to writers and not yet to readers.
    pub(super) fn settle_and_see_all(&mut self) -> Result<()> {
        self.settle()?;
        self.engine.store.settle(self.durability)
    }

    /// The newest commit of this unit, 0 if there was none.
    pub fn committed(&self) -> CommitTime {
        self.committed
    }

    /// A transaction's bounds, checked after each statement.
    pub fn check_transaction_limits(&self) -> Result<()> {
        match &self.work {
            Work::Transaction(transaction) => transaction.check_limits(),
            Work::Batch { .. } => Ok(()),
        }
    }
}

/// What MongoDB refuses to do inside a transaction.
pub fn not_in_transaction(command: &str) -> Error {
    Error::user(
        ErrorCode::OperationNotSupportedInTransaction,
        format!("Cannot run '{command}' in a multi-document transaction."),
    )
}

/// Whether an index that is not unique has this key for a record other than `record`.
fn has_other_entry(snapshot: &Snapshot, entry: &[u8], record: RecordId) -> Result<bool> {
    let mut upper = entry.to_vec();
    upper.extend_from_slice(&[0xFF; 9]);
    let found =
        snapshot.scan(Space::Index, Bound::Included(entry), Bound::Excluded(&upper[..]), Direction::Forward);
    for found in found {
        let (key, _) = found?;
        if key.len() == entry.len() + 8 && key.starts_with(entry) && layout::record_id_of(&key) != record {
            return Ok(true);
        }
    }
    Ok(false)
}
