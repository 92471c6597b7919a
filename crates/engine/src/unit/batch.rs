//! How what a unit wrote goes to the commit queue: in batches, each handed in and then waited for.

use kilim_error::{Error, ErrorCode, Result};
use kilim_storage::Transaction;

use super::{Caused, Unit, Work};
use crate::limits;

impl Unit<'_> {
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

    /// Counts a document of a statement that writes many and reads none of them again: batches are
    /// small, because a small overlay costs less, and they are waited for together.
    pub(crate) fn streamed(&mut self) -> Result<()> {
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
            Work::Transaction(transaction) => {
                transaction.check_limits(&self.engine.sessions.transaction_bytes).map(|()| false)
            }
        }
    }

    /// Sees through what was handed in, before a statement reads. The open batch too: it began before those
    /// were published, so its snapshot lacks them.
    pub(crate) fn see_own_writes(&mut self) -> Result<()> {
        match &self.work {
            Work::Batch { tickets, .. } if !tickets.is_empty() => self.settle(),
            _ => Ok(()),
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

    /// Ends the command's writes: when it returns, they are as durable as was asked.
    pub fn settle(&mut self) -> Result<()> {
        self.enqueue()?;
        self.wait()
    }

    /// Ends the writes so far and waits until everything queued is published: what refused a write may be
    /// known to writers and not yet to readers.
    pub(crate) fn settle_and_see_all(&mut self) -> Result<()> {
        self.settle()?;
        self.engine.store.settle(self.durability)
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
}
