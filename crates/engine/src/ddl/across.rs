//! What the change log says of a rename across databases.
//!
//! mongod copies such a collection into one of a temporary name in the other database, which then gets the new name, and drops the
//! old one. Here only the catalog changes. The log says what mongod's says all the same: a listener of one database sees only what
//! concerns that database, and would miss the documents otherwise.
//!
//! The inserts are logged in commits of their own, ahead of that of the rename, so that memory is bounded. If the rename fails, the
//! log says that the copy was dropped.

use std::sync::Arc;

use kilim_bson::Document;
use kilim_error::Result;
use kilim_storage::Durability;

use crate::catalog::Collection;
use crate::change_log::{self, Kind, SchemaChange, is_logged};
use crate::engine::{Engine, new_uuid};
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::records::Records;

/// So many bytes of records are logged in one commit.
const COMMIT_BYTES: usize = 4 * 1024 * 1024;

/// A copy that the log tells of, and that never was.
pub(super) struct ToldCopy<'e> {
    engine: &'e Engine,
    collection: Collection,
    /// The log says that it got the new name.
    pub is_renamed: bool,
}

impl Engine {
    /// Tells the log of a copy of a collection in the database of its new name. Whoever calls this holds the collection.
    pub(super) fn tell_of_copy(
        &self,
        operation: &Arc<Operation>,
        collection: &Collection,
        to: &Namespace,
    ) -> Result<Option<ToldCopy<'_>>> {
        if !self.store.logs() || !is_logged(to) {
            return Ok(None);
        }
        let [one, two, three, ..] = new_uuid(self.environment());
        let name = format!("tmp{one:02x}{two:02x}{:x}.renameCollection", three >> 4);
        let namespace = Namespace { database: to.database.clone(), collection: name };
        let collection = Collection { namespace, ..collection.clone() };
        let told = ToldCopy { engine: self, collection, is_renamed: false };
        self.store.settle(Durability::Relaxed)?;
        let snapshot = self.store.snapshot();
        let mut transaction = self.store.begin();
        self.log_created(&mut transaction, &told.collection, None);
        let mut bytes = 0;
        for row in Records::new(told.collection.home(), &snapshot).all() {
            operation.check()?;
            let (_, image) = row?;
            let record = change_log::of_copied(&told.collection, image.document());
            bytes += record.len();
            transaction.log(record);
            if bytes >= COMMIT_BYTES {
                std::mem::replace(&mut transaction, self.store.begin()).commit(Durability::Relaxed)?;
                bytes = 0;
            }
        }
        transaction.commit(Durability::Relaxed)?;
        Ok(Some(told))
    }
}

impl ToldCopy<'_> {
    /// The name that the log gives it.
    pub fn namespace(&self) -> &Namespace {
        &self.collection.namespace
    }
}

impl Drop for ToldCopy<'_> {
    fn drop(&mut self) {
        if !self.is_renamed {
            let mut transaction = self.engine.store.begin();
            let dropped = SchemaChange::of(&self.collection, Kind::Drop, Document::new());
            self.engine.log(&mut transaction, &dropped);
            // The caller gets the error for which the rename failed.
            let _ = transaction.commit(Durability::Relaxed);
        }
    }
}
