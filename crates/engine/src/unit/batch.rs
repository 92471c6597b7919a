//! The batch of a unit outside a transaction, and how it goes to the commit queue: handed in, then waited for.

use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::{Durability, Ticket, Transaction};

use super::collections::Held;
use super::{Caused, Unit, Writes};
use crate::catalog::Moving;
use crate::limits;

/// Documents that were written since the last batch was handed in, and the batches that are not durable yet.
#[derive(Default)]
pub(super) struct Batch {
    /// None until something is locked or written.
    pub(super) transaction: Option<Transaction>,
    /// Documents written.
    pub(super) documents: usize,
    /// Collections written to. Schema changes wait for them.
    pub(super) collections: Vec<Held>,
    pub(super) holding: Holding,
    /// Measurements that it has moved to other buckets.
    moves: Vec<Moving>,
    pub(super) commits: Commits,
    /// Something was read through the commit queue since the last batch was handed in. It may not be durable yet.
    read_unpublished: bool,
    /// Batches that were handed in and are not known to be durable. The last ticket implies the others. They are kept
    /// all the same: a ticket that is dropped asks another thread to see its batch through, at once and by itself.
    tickets: Vec<Ticket>,
    /// Bytes handed in since the unit last waited for its tickets.
    bytes_queued: usize,
}

/// What a batch holds besides documents that it has written, which decides whether it may wait for another writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Holding {
    /// Intents on the document at hand, or nothing. All writers take those in one order, so the batch may wait for the
    /// next one.
    #[default]
    Intents,
    /// Keys that maintenance relies on, or a capped collection's counter, until the batch is handed in. These have no
    /// order that all writers keep, and commits of transactions stand in line for them. So the batch waits for nobody.
    UntilCommit,
    /// The same, and one of the keys is the one that ended the last attempt. The unit has waited for it with nothing
    /// else held, and keeps it for the next attempt.
    Contended,
}

/// When a batch is handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Commits {
    /// As soon as it is large enough, or would have to wait.
    #[default]
    Often,
    /// When the command ends: all of its documents are written, or none.
    Once,
}

impl Batch {
    /// Whether it has written something.
    pub(super) fn has_written(&self) -> bool {
        self.documents > 0 || self.transaction.as_ref().is_some_and(|open| !open.is_empty())
    }

    /// Whether no other writer can be waiting for it.
    pub(super) fn has_empty_hands(&self) -> bool {
        self.documents == 0 && self.transaction.as_ref().is_none_or(Transaction::holds_nothing)
    }

    /// Gives back all intents and keys. Nothing was written under them.
    pub(super) fn let_go(&mut self) {
        self.transaction = None;
        self.holding = Holding::Intents;
    }

    /// Notes that it holds a key until it is handed in.
    pub(super) fn hold_until_commit(&mut self) {
        if self.holding == Holding::Intents {
            self.holding = Holding::UntilCommit;
        }
    }
}

impl Unit<'_> {
    /// All of its documents go in one commit, or none.
    pub(crate) fn commit_once(&mut self) {
        if let Writes::Batch(batch) = &mut self.writes {
            batch.commits = Commits::Once;
        }
    }

    /// Counts a document that a statement of one document wrote. The next statement must read it, so batches are large,
    /// and the unit waits until a batch that is handed in is published.
    pub(crate) fn written(&mut self) -> Result<()> {
        if matches!(&self.writes, Writes::Batch(Batch { commits: Commits::Once, .. })) {
            return self.check_fits_one_commit();
        }
        if self.count_written(limits::STATEMENT_BATCH_DOCUMENTS)? {
            self.settle()?;
        }
        Ok(())
    }

    /// Refuses more than one commit may hold, since it is gathered in memory.
    fn check_fits_one_commit(&mut self) -> Result<()> {
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

    /// Counts a document of a statement that writes many and reads none of them again. Batches are small, because a small
    /// overlay costs less, and several of them are waited for together.
    pub(crate) fn streamed(&mut self) -> Result<()> {
        if self.count_written(limits::STREAM_BATCH_DOCUMENTS)? {
            self.enqueue()?;
            if let Writes::Batch(batch) = &self.writes
                && batch.bytes_queued >= limits::STREAM_BYTES_ON_THE_WAY
            {
                self.wait()?;
            }
        }
        Ok(())
    }

    /// Counts a document; whether the batch is now large enough to be handed in.
    fn count_written(&mut self, documents_max: usize) -> Result<bool> {
        match &mut self.writes {
            Writes::Batch(Batch { transaction: Some(transaction), documents, .. }) => {
                *documents += 1;
                let heavy = transaction.overlay_bytes() >= limits::STATEMENT_BATCH_BYTES;
                Ok(heavy || *documents >= documents_max)
            }
            Writes::Batch(_) => Ok(false),
            Writes::Transaction { active, .. } => {
                let lifetime = self.engine.settings.transaction_lifetime();
                active.check_limits(&self.engine.sessions.transaction_bytes, lifetime).map(|()| false)
            }
        }
    }

    /// Publishes the unit's own writes before a statement reads. The open batch is handed in too: it began before
    /// the others were published, so its snapshot lacks them.
    pub(crate) fn see_own_writes(&mut self) -> Result<()> {
        match &self.writes {
            Writes::Batch(batch) if !batch.tickets.is_empty() => self.settle(),
            _ => Ok(()),
        }
    }

    /// Whether to try a document again after this error. If so, the batch has been handed in, and the unit has waited for
    /// what was contended.
    ///
    /// The batch held earlier documents, so it could not wait. Handed in, it holds nothing and can. A batch that
    /// is one commit cannot be handed in early: its caller begins anew as a whole.
    pub(crate) fn can_retry(&mut self, error: &Error) -> Result<bool> {
        let Error::Conflict(_) = error else { return Ok(false) };
        if !matches!(&self.writes, Writes::Batch(Batch { commits: Commits::Often, .. })) {
            return Ok(false);
        }
        self.engine.metrics.write_conflicts.add(1);
        self.operation.check()?;
        // Published, not only queued: the next try reads from a snapshot that has these writes.
        self.settle()?;
        self.await_contended()?;
        Ok(true)
    }

    /// Forgets what it has written and not handed in, and gives back what it holds for that.
    pub(crate) fn forget(&mut self) {
        self.caused = Caused::default();
        if let Writes::Batch(batch) = &mut self.writes {
            batch.let_go();
            batch.documents = 0;
            batch.collections.clear();
            batch.moves.clear();
        }
    }

    /// Notes that the batch moves measurements from one bucket to another, until it is handed in.
    pub(crate) fn move_measurements(&mut self, moving: Moving) {
        if let Writes::Batch(batch) = &mut self.writes {
            batch.moves.push(moving);
        }
    }

    /// Ends the command's writes: when it returns, they are as durable as was asked.
    pub fn settle(&mut self) -> Result<()> {
        self.enqueue()?;
        self.wait()
    }

    /// Ends the writes so far, and waits until everything queued by anybody is published. A write may be refused because
    /// of a commit that writers see and readers do not see yet.
    pub(crate) fn settle_and_see_all(&mut self) -> Result<()> {
        self.settle()?;
        self.engine.store.settle(self.durability)
    }

    fn enqueue(&mut self) -> Result<()> {
        if std::mem::take(&mut self.unrecorded)
            && let Some(retry) = self.retry.take()
        {
            let user = self.operation.user().cloned();
            retry.save(self.transaction(), user.as_ref());
            self.retry = Some(retry);
        }
        if let Writes::Batch(batch) = &mut self.writes {
            batch.holding = Holding::Intents;
            batch.documents = 0;
            if let Some(transaction) = batch.transaction.take()
                && !transaction.is_empty()
            {
                batch.bytes_queued += transaction.overlay_bytes();
                batch.tickets.push(transaction.enqueue(self.durability)?);
                batch.read_unpublished = false;
            }
            batch.collections.clear();
            batch.moves.clear();
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        if let Writes::Batch(batch) = &mut self.writes {
            let last = batch.tickets.pop();
            let wrote = last.is_some();
            if let Some(last) = last {
                batch.bytes_queued = 0;
                self.committed = last.wait()?;
                batch.tickets.clear();
            }
            // A refusal, or a statement that changed nothing, may rest on a commit that a crash would still undo: one that
            // is not published yet, or one whose writer did not ask for a sync.
            if std::mem::take(&mut batch.read_unpublished) {
                self.engine.store.settle(self.durability)?;
            } else if !wrote && self.durability == Durability::Durable {
                self.engine.store.sync_published()?;
            }
        }
        Ok(())
    }

    /// Notes that something was read that may not be durable yet.
    pub(super) fn note_read_unpublished(&mut self) {
        if let Writes::Batch(batch) = &mut self.writes {
            batch.read_unpublished = true;
        }
    }
}
