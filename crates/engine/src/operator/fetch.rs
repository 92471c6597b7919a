//! From index entries to records, and the predicates that the index could not decide.

use std::sync::Arc;

use kilim_error::{Result, StorageError};
use kilim_query::filter::Filter;
use kilim_storage::{Bytes, Snapshot, Space};

use super::row::document_of;
use super::{ExecContext, Operator, Row, RowData, Source, Stats, Work, seen};
use crate::ids::{CollectionId, RecordId};
use crate::layout;
use crate::maintenance::Patches;

pub(super) struct Fetch {
    pub(super) input: Box<Operator>,
    collection: CollectionId,
    snapshot: Snapshot,
    filter: Option<Arc<Filter>>,
    behind: Option<Arc<Patches>>,
}

impl Fetch {
    pub(super) fn new(filter: Option<Arc<Filter>>, input: Box<Operator>, source: &Source<'_>) -> Fetch {
        Fetch {
            input,
            collection: source.collection,
            snapshot: source.snapshot.clone(),
            filter,
            behind: source.behind.cloned(),
        }
    }

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Work> {
        if self.input.is_finished() {
            return Ok(Work::Eof);
        }
        let row = match self.input.work(context)? {
            Work::Row(row) => row,
            other => return Ok(other),
        };
        let Row { record, data, key } = row;
        let stored = match data {
            RowData::Record(stored) => {
                stats.already_had_document += 1;
                stored
            }
            _ => {
                stats.docs_examined += 1;
                context.figures.docs_examined += 1;
                let stored = read_record(&self.snapshot, self.collection, record)?;
                match seen(self.behind.as_ref(), stored)? {
                    Some(stored) => stored,
                    None => return Ok(Work::NeedTime),
                }
            }
        };
        if let Some(filter) = &self.filter
            && !filter.matches(document_of(&stored))?
        {
            return Ok(Work::NeedTime);
        }
        Ok(Work::Row(Row { record, data: RowData::Record(stored), key }))
    }
}

/// The record that an index entry of the same snapshot points to.
pub(crate) fn read_record(snapshot: &Snapshot, collection: CollectionId, record: RecordId) -> Result<Bytes> {
    let key = layout::record_key(collection, record);
    match snapshot.get(Space::Records, &key)? {
        Some(stored) => Ok(stored),
        None => Err(StorageError::Corrupt(format!(
            "an index of collection {} points to record {}, which does not exist",
            collection.0, record.0
        ))
        .into()),
    }
}
