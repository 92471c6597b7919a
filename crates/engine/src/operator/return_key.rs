//! `returnKey`: the keys of the indexes that were read in place of documents; an empty one where none was.

use std::sync::Arc;

use kilim_bson::{RawValue, Writer};
use kilim_error::Result;
use kilim_query::sort::Sort;
use kilim_storage::Snapshot;

use super::fetch::read_record;
use super::row::document_of;
use super::{ExecContext, Operator, RowData, Source, Work};
use crate::ids::CollectionId;
use crate::plan::Node;

pub(super) struct ReturnKey {
    pub(super) input: Box<Operator>,
    /// Fields for the values that rows were sorted by, and by what.
    sort_keys: Vec<String>,
    sort: Option<Arc<Sort>>,
    /// The rows were found by their `_id`, which is then the key.
    by_id: bool,
    collection: CollectionId,
    snapshot: Snapshot,
}

impl ReturnKey {
    pub(super) fn new(
        sort_keys: Vec<String>,
        sort: Option<Arc<Sort>>,
        below: &Node,
        input: Box<Operator>,
        source: &Source<'_>,
    ) -> ReturnKey {
        ReturnKey {
            input,
            sort_keys,
            sort,
            by_id: below.any(&|node| matches!(node, Node::IdLookup { .. })),
            collection: source.collection,
            snapshot: source.snapshot.clone(),
        }
    }

    pub(super) fn work(&mut self, context: &mut ExecContext<'_>) -> Result<Work> {
        let row = match self.input.work(context)? {
            Work::Row(row) => row,
            other => return Ok(other),
        };
        let mut out = Writer::new();
        match (&row.key, row.document().get("_id")) {
            (Some(key), _) => key.iter().for_each(|(name, value)| out.append(name, value)),
            (None, Some(id)) if self.by_id => out.append("_id", id),
            _ => {}
        }
        if let Some(sort) = &self.sort {
            let values = match &row.data {
                RowData::Key { .. } => {
                    let stored = read_record(&self.snapshot, self.collection, row.record)?;
                    sort.values_of(document_of(&stored))?
                }
                _ => sort.values_of(row.document())?,
            };
            self.sort_keys.iter().for_each(|name| out.append(name, RawValue::Array(values.as_raw())));
        }
        Ok(Work::Row(row.with(RowData::Document(out.finish()))))
    }
}
