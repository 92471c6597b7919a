//! Inputs that are each in the sort's order, merged into one: scans of one index behind different fixed parts,
//! or the branches of an `$or`, each by its own index.
//!
//! A row's place is its sort key, taken from the index key where the row still has it: the parts of the key that
//! the sort names, turned around where the index has them the other way. That is what [`Sort::key_of`] gives for
//! the record, so inputs of both kinds can be merged.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashSet};
use std::sync::Arc;

use kilim_bson::component_length;
use kilim_error::{Error, Result};
use kilim_query::sort::Sort;

use super::index_scan::{Entry, corrupt};
use super::{ExecContext, Operator, Row, RowData, Stats, Worked};
use crate::index::Index;
use crate::plan::Node;
use crate::records::RowId;

pub(super) struct SortMerge {
    pub(super) inputs: Vec<Operator>,
    sort: Arc<Sort>,
    /// For each input, where its keys have what the sort names.
    places: Vec<Option<Places>>,
    /// The next row of each input that has one, least first.
    heads: BinaryHeap<Reverse<Head>>,
    /// The inputs whose next row has yet to be read.
    pending: Vec<usize>,
    /// Records given so far, where inputs may have them in common.
    seen: Option<HashSet<RowId>>,
    /// Rows read so far.
    read: u64,
}

/// The key part of each field of the sort, and whether it runs the other way.
struct Places {
    index: Arc<Index>,
    parts: Vec<(usize, bool)>,
}

struct Head {
    key: Vec<u8>,
    /// Of equals the one that was read first comes first, as on MongoDB.
    number: u64,
    input: usize,
    row: Row,
}

impl Ord for Head {
    fn cmp(&self, other: &Head) -> Ordering {
        self.key.cmp(&other.key).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}

impl Places {
    fn of(node: &Node, sort: &Sort) -> Option<Places> {
        let Node::IndexScan(scan) = node else { return None };
        let place = |wanted: &kilim_query::sort::SortPart| {
            let key = &scan.index.spec.key;
            let at = key.iter().position(|part| part.path == wanted.path)?;
            Some((at, key[at].descending != wanted.descending))
        };
        let parts = sort.parts().iter().map(place).collect::<Option<Vec<_>>>()?;
        Some(Places { index: scan.index.clone(), parts })
    }

    fn key(&self, entry: &[u8], value: &[u8]) -> Result<Vec<u8>> {
        let parts = Entry::split(&self.index, entry, value)?;
        let mut components: Vec<&[u8]> = Vec::with_capacity(self.index.spec.key.len());
        let mut rest = parts.visible();
        for part in &self.index.spec.key {
            let length = component_length(rest, part.descending).map_err(|_| corrupt(&self.index))?;
            components.push(&rest[..length]);
            rest = &rest[length..];
        }
        let mut key = Vec::with_capacity(entry.len());
        for &(at, inverted) in &self.parts {
            match inverted {
                false => key.extend_from_slice(components[at]),
                true => key.extend(components[at].iter().map(|byte| !byte)),
            }
        }
        Ok(key)
    }
}

impl SortMerge {
    pub(super) fn new(nodes: &[Node], inputs: Vec<Operator>, sort: Arc<Sort>, apart: bool) -> SortMerge {
        SortMerge {
            places: nodes.iter().map(|node| Places::of(node, &sort)).collect(),
            sort,
            heads: BinaryHeap::with_capacity(inputs.len()),
            pending: (0..inputs.len()).rev().collect(),
            seen: (!apart).then(HashSet::new),
            read: 0,
            inputs,
        }
    }

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Worked> {
        if let Some(&input) = self.pending.last() {
            match self.inputs[input].work(context)? {
                Worked::Row(row) => {
                    stats.dups_tested += 1;
                    if let Some(seen) = &mut self.seen
                        && !seen.insert(row.id)
                    {
                        stats.dups_dropped += 1;
                        return Ok(Worked::NeedTime);
                    }
                    self.pending.pop();
                    let key = self.order_key(input, &row)?;
                    self.heads.push(Reverse(Head { key, number: self.read, input, row }));
                    self.read += 1;
                }
                Worked::NeedTime => {}
                Worked::Eof => {
                    self.pending.pop();
                }
            }
            return Ok(Worked::NeedTime);
        }
        match self.heads.pop() {
            Some(Reverse(head)) => {
                self.pending.push(head.input);
                Ok(Worked::Row(head.row))
            }
            None => Ok(Worked::Eof),
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.pending.is_empty() && self.heads.is_empty()
    }

    fn order_key(&self, input: usize, row: &Row) -> Result<Vec<u8>> {
        match (&row.data, &self.places[input]) {
            (RowData::Key { entry, value }, Some(places)) => places.key(entry, value),
            (RowData::Record(image), _) => {
                let mut key = Vec::with_capacity(32);
                self.sort.key_of(image.document(), &mut key)?;
                Ok(key)
            }
            _ => Err(Error::bug("only index scans and records are merged")),
        }
    }
}
