//! `returnKey`: the keys of the indexes that were read in place of documents; an empty one where none was.

use std::sync::Arc;

use kilim_bson::{RawValue, Writer};
use kilim_error::Result;
use kilim_query::sort::Sort;

use super::{ExecContext, Operator, ReadContext, RowData, Worked};
use crate::plan::Node;
use crate::records::Records;

pub(super) struct ReturnKey {
    pub(super) input: Box<Operator>,
    /// Fields for the values that rows were sorted by, and by what.
    sort_keys: Vec<String>,
    sort: Option<Arc<Sort>>,
    /// The rows were found by their `_id`, which is then the key.
    by_id: bool,
    records: Records,
}

impl ReturnKey {
    pub(super) fn new(
        sort_keys: Vec<String>,
        sort: Option<Arc<Sort>>,
        below: &Node,
        input: Box<Operator>,
        source: &ReadContext,
    ) -> ReturnKey {
        ReturnKey {
            input,
            sort_keys,
            sort,
            by_id: below.any(&|node| matches!(node, Node::IdLookup { .. })),
            records: source.records.clone(),
        }
    }

    pub(super) fn work(&mut self, context: &mut ExecContext<'_>) -> Result<Worked> {
        let row = match self.input.work(context)? {
            Worked::Row(row) => row,
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
                RowData::Key { .. } => sort.values_of(self.records.fetch_stored(row.id)?.document())?,
                _ => sort.values_of(row.document())?,
            };
            self.sort_keys.iter().for_each(|name| out.append(name, RawValue::Array(values.as_raw())));
        }
        Ok(Worked::Row(row.with(RowData::Document(out.finish()))))
    }
}
