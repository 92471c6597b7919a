//! Projections: of records, or straight from index keys.

use std::sync::Arc;

use kilim_bson::{KeyDecoder, Writer};
use kilim_error::{Error, Result};
use kilim_query::filter::Filter;
use kilim_query::projection::Projection;
use kilim_storage::Snapshot;

use super::fetch::read_record;
use super::index_scan::{Entry, corrupt};
use super::row::document_of;
use super::{ExecContext, Operator, Row, RowData, Source, Work};
use crate::catalog::CollectionId;
use crate::index::Index;
use crate::planner::{Node, Project};

pub(super) struct Projector {
    pub(super) input: Box<Operator>,
    projection: Arc<Projection>,
    filter: Arc<Filter>,
    collection: CollectionId,
    snapshot: Snapshot,
    covered: Option<Covered>,
}

struct Covered {
    index: Arc<Index>,
    /// Key parts to take, ascending, with the names they get.
    parts: Vec<(usize, String)>,
}

impl Projector {
    pub(super) fn new(node: &Project, input: Box<Operator>, source: &Source<'_>) -> Projector {
        let covered = scanned_index(&node.input)
            .filter(|_| !node.cover.is_empty())
            .map(|index| Covered { index, parts: node.cover.clone() });
        Projector {
            input,
            projection: node.projection.clone(),
            filter: node.filter.clone(),
            collection: source.collection,
            snapshot: source.snapshot.clone(),
            covered,
        }
    }

    pub(super) fn work(&mut self, context: &mut ExecContext<'_>) -> Result<Work> {
        let row = match self.input.work(context)? {
            Work::Row(row) => row,
            other => return Ok(other),
        };
        let data = match &row.data {
            RowData::Record(stored) => self.apply(stored)?,
            RowData::Key { entry, value } => {
                let Some(covered) = &self.covered else {
                    return Err(Error::bug("a projection was given a key"));
                };
                let parts = Entry::split(&covered.index, entry, value)?;
                if parts.is_long {
                    // The key is not whole, the record is.
                    self.apply(&read_record(&self.snapshot, self.collection, row.record)?)?
                } else {
                    covered.document(&parts)?
                }
            }
            RowData::Document(_) => return Err(Error::bug("a document was projected twice")),
        };
        Ok(Work::Row(Row { record: row.record, data }))
    }

    fn apply(&self, stored: &[u8]) -> Result<RowData> {
        let document = document_of(stored);
        let position = self.projection.position(&self.filter, document);
        let mut out = Writer::new();
        self.projection.apply(document, position, &mut out)?;
        Ok(RowData::Document(out.finish()))
    }
}

impl Covered {
    /// Fields come in the order of the key, as on MongoDB.
    fn document(&self, entry: &Entry<'_>) -> Result<RowData> {
        let mut decoder = KeyDecoder::new(entry.key, entry.type_bits).map_err(|_| corrupt(&self.index))?;
        let mut out = Writer::new();
        let mut wanted = self.parts.iter().peekable();
        for (at, part) in self.index.spec.key.iter().enumerate() {
            let Some((next, name)) = wanted.peek() else { break };
            let value = decoder.next(part.descending).map_err(|_| corrupt(&self.index))?;
            if *next == at {
                out.append(name, value.as_raw());
                wanted.next();
            }
        }
        Ok(RowData::Document(out.finish()))
    }
}

fn scanned_index(node: &Node) -> Option<Arc<Index>> {
    match node {
        Node::IndexScan(scan) => Some(scan.index.clone()),
        Node::Skip { input, .. } => scanned_index(input),
        _ => None,
    }
}
