//! What a unit takes for itself before it writes a document: the record and its unique keys.

use std::ops::Bound;

use kilim_error::{Error, Result};
use kilim_storage::{Direction, Snapshot, Space};

use super::batch::Holding;
use super::locks::{Contended, Hold, MayWait};
use super::{Unit, Writes};
use crate::catalog::Collection;
use crate::ids::RecordId;
use crate::layout;
use crate::records::{self, Image, RowId};

impl Unit<'_> {
    /// Takes the intent on a row's record and reads its newest version. `None`: gone.
    pub(crate) fn lock_record(&mut self, collection: &Collection, row: RowId) -> Result<Option<Image>> {
        let home = collection.home();
        let (space, key) = records::lock_key(collection.id, row);
        self.lock(space, &key)?;
        let in_transaction = self.is_transaction();
        let transaction = self.transaction();
        match in_transaction {
            true => records::unchanged_in(transaction, &home, row),
            false => records::newest(transaction, &home, row),
        }
    }

    /// Takes the intent on a row's record, whatever it holds.
    pub(crate) fn lock_record_unread(&mut self, collection: &Collection, row: RowId) -> Result<()> {
        let (space, key) = records::lock_key(collection.id, row);
        self.lock(space, &key)
    }

    /// Takes the intent on a row's record if nobody else holds it. Says whether it has it.
    pub(crate) fn try_lock(&mut self, collection: &Collection, row: RowId) -> Result<bool> {
        let (space, key) = records::lock_key(collection.id, row);
        match self.acquire(Hold::Alone, space, &key, None) {
            Ok(()) => {
                self.note_read_unpublished();
                Ok(true)
            }
            Err(Error::Conflict(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes the intent on a unique key. Gives the record that has the key, if one has it.
    pub(crate) fn lock_unique(&mut self, entry: &[u8]) -> Result<Option<RecordId>> {
        self.lock(Space::Index, entry)?;
        let in_snapshot = self.reads_transaction_snapshot();
        let transaction = self.transaction();
        let seen = match in_snapshot {
            true => transaction.get(Space::Index, entry)?,
            false => transaction.latest(Space::Index, entry)?,
        };
        if in_snapshot && seen.is_none() && transaction.latest(Space::Index, entry)?.is_some() {
            return Err(Error::Conflict("a document with that unique key was inserted meanwhile"));
        }
        Ok(seen.map(|value| layout::record_id_of(&value[..8])))
    }

    /// Takes the intent on a key of an index that is to become unique, and says whether another record has the key.
    ///
    /// The entries of such an index end in record ids, so they are scanned for. A writer that held the intent before
    /// has queued its entry, so the queue is published first.
    pub(crate) fn lock_prepared(&mut self, entry: &[u8], record: RecordId) -> Result<bool> {
        self.lock(Space::Index, entry)?;
        self.engine.store.sync()?;
        let in_snapshot = self.reads_transaction_snapshot();
        let transaction = self.transaction();
        let newest = has_other_entry(&transaction.newest_snapshot(), entry, record)?;
        if in_snapshot && newest && !has_other_entry(&transaction.snapshot(), entry, record)? {
            return Err(Error::Conflict("a document with that unique key was inserted meanwhile"));
        }
        Ok(newest)
    }

    /// Takes a key that this unit holds until its batch is handed in. From here on it waits for nobody.
    pub(crate) fn hold_for_batch(&mut self, space: Space, key: &[u8]) -> Result<()> {
        self.lock(space, key)?;
        self.note_held_until_commit();
        Ok(())
    }

    fn lock(&mut self, space: Space, key: &[u8]) -> Result<()> {
        let locked = self.acquire(Hold::Alone, space, key, self.may_wait_for_intent());
        if let Writes::Batch(batch) = &self.writes
            && batch.holding != Holding::Intents
            && matches!(locked, Err(Error::Conflict(_)))
        {
            self.contended = Some(Contended::new(space, key));
        }
        locked?;
        self.note_read_unpublished();
        Ok(())
    }

    /// Whether it may wait for the next intent of the document at hand: only if that document is all it holds.
    fn may_wait_for_intent(&self) -> Option<MayWait> {
        match &self.writes {
            Writes::Batch(batch) if batch.documents == 0 && batch.holding == Holding::Intents => {
                Some(MayWait::OneDocument)
            }
            _ => None,
        }
    }
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
