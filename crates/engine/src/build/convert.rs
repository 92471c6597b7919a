//! An index becomes unique: `collMod` with `unique: true`.
//!
//! The index refuses new duplicates already (`prepareUnique`). What it holds is looked through for old ones; if
//! there are none, a unique index is built in its place, since unique indexes keep their entries in another form.
//! The old one serves until the new one takes over, in one commit.

use std::ops::Bound;

use kilim_bson::{Document, RawValue, Value};
use kilim_error::{Error, ErrorCode, Result, UserError};
use kilim_storage::{Direction, Snapshot, Space};

use super::{Beginning, Build};
use crate::catalog::Collection;
use crate::engine::Engine;
use crate::ids::RecordId;
use crate::index::{Index, IndexSpec};
use crate::layout;
use crate::namespace::Namespace;
use crate::operation::Operation;
use crate::records::Records;

/// Documents that are told at most; the reply must stay a document.
const VIOLATIONS_MAX: usize = 10_000;

/// Whether an index is changed, or only looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversion {
    Real,
    DryRun,
}

/// The `_id`s of documents that share a key, for each such key.
#[derive(Debug, Default)]
pub struct Violations(pub Vec<Vec<Value>>);

impl Engine {
    /// Makes an index unique, or tells which documents stand in the way.
    pub fn make_unique(
        &self,
        operation: &Operation,
        namespace: &Namespace,
        index: &Index,
        conversion: Conversion,
    ) -> Result<()> {
        let (snapshot, catalog) = self.reading();
        if let Some(collection) = catalog.get(namespace) {
            Violations::find(collection, index, &snapshot, operation)?.refuse()?;
        }
        drop(snapshot);
        if conversion == Conversion::DryRun {
            return Ok(());
        }
        let spec = IndexSpec { unique: true, prepare_unique: false, ..index.spec.clone() };
        self.patterns().check_new_indexes(namespace, std::slice::from_ref(&spec))?;
        match Build::begin(self, operation, namespace, &[spec], vec![index.id], None)? {
            Beginning::Begun(build) => build.run_to_end(),
            Beginning::Elsewhere | Beginning::Nothing { .. } => Err(Error::user(
                ErrorCode::ConflictingOperationInProgress,
                "the index was changed or dropped meanwhile",
            )),
        }
    }
}

impl Violations {
    fn find(
        collection: &Collection,
        index: &Index,
        snapshot: &Snapshot,
        operation: &Operation,
    ) -> Result<Violations> {
        let lower = layout::index_prefix(index.id);
        let upper = (index.id.0 + 1).to_be_bytes();
        let entries =
            snapshot.scan(Space::Index, Bound::Included(&lower), Bound::Excluded(&upper), Direction::Forward);
        let mut found = Violations::default();
        let mut number = 0;
        let mut group: (Vec<u8>, Vec<RecordId>) = Default::default();
        for (at, entry) in entries.enumerate() {
            let (entry, _) = entry?;
            if at % 1024 == 0 {
                operation.check()?;
            }
            let (key, record) = entry.split_at(entry.len() - 8);
            if key != group.0 {
                number += found.add(collection, snapshot, &group.1)?;
                group = (key.to_vec(), Vec::new());
                if number > VIOLATIONS_MAX {
                    return Ok(found);
                }
            }
            group.1.push(layout::record_id_of(record));
        }
        found.add(collection, snapshot, &group.1)?;
        Ok(found)
    }

    /// Adds the records of a key where there are several; how many documents that are.
    fn add(&mut self, collection: &Collection, snapshot: &Snapshot, records: &[RecordId]) -> Result<usize> {
        if records.len() < 2 {
            return Ok(0);
        }
        let all = Records::new(collection.home(), snapshot);
        let mut ids = Vec::with_capacity(records.len());
        for &record in records.iter().take(VIOLATIONS_MAX) {
            if let Some(image) = all.get(record.into())? {
                let id = image.document().get("_id");
                ids.push(id.map_or(Value::Null, RawValue::to_value));
            }
        }
        self.0.push(ids);
        Ok(records.len())
    }

    fn refuse(self) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let group = |ids: Vec<Value>| {
            let mut group = Document::new();
            group.push("ids", ids);
            group
        };
        let violations: Vec<Document> = self.0.into_iter().map(group).collect();
        let mut details = Document::new();
        details.push("violations", violations);
        Err(Error::User(Box::new(UserError {
            code: ErrorCode::CannotConvertIndexToUnique,
            message:
                "Cannot convert the index to unique. Please resolve conflicting documents before running \
                      collMod again."
                    .to_owned(),
            details: Some(details.into_bytes().into()),
        })))
    }
}
