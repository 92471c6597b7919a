//! Scans of one index, each in order behind its fixed first parts, merged into one order.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

use kilim_bson::component_length;
use kilim_error::{Error, Result};

use super::index_scan::{Entry, corrupt};
use super::{ExecContext, Operator, Row, RowData, Stats, Work};
use crate::index::Index;
use crate::planner::Node;

pub(super) struct SortMerge {
    pub(super) inputs: Vec<Operator>,
    index: Option<Arc<Index>>,
    backward: bool,
    /// Key parts that are the same within an input.
    fixed: usize,
    /// The next row of each input that has one, least first.
    heads: BinaryHeap<Reverse<Head>>,
    /// The inputs whose next row has yet to be read.
    pending: Vec<usize>,
}

struct Head {
    key: Vec<u8>,
    backward: bool,
    input: usize,
    row: Row,
}

impl Ord for Head {
    fn cmp(&self, other: &Head) -> Ordering {
        let order = self.key.cmp(&other.key);
        let order = if self.backward { order.reverse() } else { order };
        order.then(self.input.cmp(&other.input))
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

impl SortMerge {
    pub(super) fn new(nodes: &[Node], inputs: Vec<Operator>, fixed: usize) -> SortMerge {
        let scan = nodes.first().and_then(|node| match node {
            Node::IndexScan(scan) => Some(scan),
            _ => None,
        });
        SortMerge {
            index: scan.map(|scan| scan.index.clone()),
            backward: scan.is_some_and(|scan| scan.backward),
            fixed,
            heads: BinaryHeap::with_capacity(inputs.len()),
            pending: (0..inputs.len()).rev().collect(),
            inputs,
        }
    }

    pub(super) fn work(&mut self, stats: &mut Stats, context: &mut ExecContext<'_>) -> Result<Work> {
        if let Some(&input) = self.pending.last() {
            match self.inputs[input].work(context)? {
                Work::Row(row) => {
                    stats.dups_tested += 1;
                    self.pending.pop();
                    let key = self.order_key(&row)?;
                    self.heads.push(Reverse(Head { key, backward: self.backward, input, row }));
                }
                Work::NeedTime => {}
                Work::Eof => {
                    self.pending.pop();
                }
            }
            return Ok(Work::NeedTime);
        }
        match self.heads.pop() {
            Some(Reverse(head)) => {
                self.pending.push(head.input);
                Ok(Work::Row(head.row))
            }
            None => Ok(Work::Eof),
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.pending.is_empty() && self.heads.is_empty()
    }

    /// The key behind the fixed parts.
    fn order_key(&self, row: &Row) -> Result<Vec<u8>> {
        let (Some(index), RowData::Key { entry, value }) = (&self.index, &row.data) else {
            return Err(Error::bug("only index scans are merged"));
        };
        let parts = Entry::split(index, entry, value)?;
        let mut key = parts.visible();
        for part in &index.spec.key[..self.fixed] {
            match component_length(key, part.descending) {
                Ok(length) => key = &key[length..],
                Err(_) if parts.is_long => return Ok(Vec::new()),
                Err(_) => return Err(corrupt(index)),
            }
        }
        Ok(key.to_vec())
    }
}
