//! Projections: of records, or straight from index keys.

use std::sync::Arc;

use kilim_bson::{Document, KeyDecoder, RawDocument, Value, Writer};
use kilim_error::{Error, Result};
use kilim_query::expression::{Bindings, Env};
use kilim_query::filter::Filter;
use kilim_query::projection::Projection;
use kilim_query::stage::check_nesting;

use super::index_scan::{Entry, corrupt};
use super::{ExecContext, Operator, ReadContext, Row, RowData, Worked};
use crate::index::Index;
use crate::plan::{IndexScan, Node, Project};
use crate::records::Records;

pub(super) struct Projector {
    pub(super) input: Box<Operator>,
    projection: Arc<Projection>,
    filter: Arc<Filter>,
    records: Records,
    covered: Option<Covered>,
}

struct Covered {
    /// Null in a key may stand for nothing, and the difference is wanted.
    nulls_apart: bool,
    index: Arc<Index>,
    /// Key parts to take, ascending, with the names they get.
    parts: Vec<(usize, String)>,
}

impl Projector {
    pub(super) fn new(node: &Project, input: Box<Operator>, source: &ReadContext) -> Projector {
        let covered = scan_below(&node.input).filter(|_| !node.cover.is_empty()).map(|scan| Covered {
            nulls_apart: scan.skipping.is_some_and(|skipping| skipping.nulls_apart),
            index: scan.index.clone(),
            parts: node.cover.clone(),
        });
        Projector {
            input,
            projection: node.projection.clone(),
            filter: node.filter.clone(),
            records: source.records.clone(),
            covered,
        }
    }

    pub(super) fn work(&mut self, context: &mut ExecContext<'_>) -> Result<Worked> {
        let row = match self.input.work(context)? {
            Worked::Row(row) => row,
            other => return Ok(other),
        };
        let data = match &row.data {
            RowData::Record(image) => self.apply(&row, image.document())?,
            RowData::Key { entry, value } => {
                let Some(covered) = &self.covered else {
                    return Err(Error::bug("a projection was given a key"));
                };
                let parts = Entry::split(&covered.index, entry, value)?;
                let made = if parts.is_long { None } else { covered.document(&parts)? };
                match made {
                    Some(document) => RowData::Document(document),
                    // The key does not say all, the record does.
                    None => self.apply(&row, self.records.fetch_stored(row.id)?.document())?,
                }
            }
            RowData::Document(_) | RowData::Shared(_) => {
                return Err(Error::bug("a document was projected twice"));
            }
        };
        Ok(Worked::Row(row.with(data)))
    }

    fn apply(&self, row: &Row, document: RawDocument<'_>) -> Result<RowData> {
        let position = self.projection.position(&self.filter, document)?;
        let mut out = Writer::new();
        let mut env = Env::new(document, Bindings::none());
        row.describe(&mut env);
        self.projection.apply_in(&env, position, &mut out)?;
        let made = out.finish();
        check_nesting(made.as_raw())?;
        Ok(RowData::Document(made))
    }
}

impl Covered {
    /// Fields come in the order of the key, as on MongoDB, those of one document side by side. None
    /// where the key leaves a doubt.
    fn document(&self, entry: &Entry<'_>) -> Result<Option<Document>> {
        let mut decoder = KeyDecoder::new(entry.key, entry.type_bits).map_err(|_| corrupt(&self.index))?;
        let mut out = Writer::new();
        let mut open: Vec<&str> = Vec::new();
        let mut wanted = self.parts.iter().peekable();
        for (at, part) in self.index.spec.key.iter().enumerate() {
            let Some((next, name)) = wanted.peek() else { break };
            let value = decoder
                .next_of(part.descending, self.index.spec.is_collated(at))
                .map_err(|_| corrupt(&self.index))?;
            if *next == at {
                if self.nulls_apart && matches!(value, Value::Null | Value::Undefined) {
                    return Ok(None);
                }
                let last = open_parents(&mut out, &mut open, name);
                out.append(last, value.as_raw());
                wanted.next();
            }
        }
        open.iter().for_each(|_| out.close());
        Ok(Some(out.finish()))
    }
}

/// Opens the documents that lead to a dotted name, as far as they are not open from the name before, and closes
/// the others. The last component is left.
fn open_parents<'p>(out: &mut Writer, open: &mut Vec<&'p str>, name: &'p str) -> &'p str {
    let Some((parents, last)) = name.rsplit_once('.') else {
        open.drain(..).for_each(|_| out.close());
        return name;
    };
    let shared = open.iter().zip(parents.split('.')).take_while(|(ours, theirs)| **ours == *theirs).count();
    open.drain(shared..).for_each(|_| out.close());
    for parent in parents.split('.').skip(shared) {
        out.open_document(parent);
        open.push(parent);
    }
    last
}

fn scan_below(node: &Node) -> Option<&IndexScan> {
    match node {
        Node::IndexScan(scan) => Some(scan),
        Node::Skip { input, .. } => scan_below(input),
        _ => None,
    }
}
