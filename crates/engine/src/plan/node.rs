//! A plan as a tree of nodes: what explain shows and what operators are made from.

use std::sync::Arc;

use kilim_bson::{Document, Value};
use kilim_query::filter::{Filter, Near};
use kilim_query::projection::Projection;
use kilim_query::sort::Sort;

use crate::bounds::IntervalList;
use crate::ids::RecordId;
use crate::index::{BoundSearch, Holds, Index};

#[derive(Debug, Clone)]
pub enum Node {
    /// Nothing: the collection does not exist.
    Eof,
    /// The number of records, which the collection knows.
    RecordCount {
        skip: u64,
        limit: Option<u64>,
    },
    /// One document by `_id`: one index read, one record read.
    IdLookup {
        index: Arc<Index>,
        id: Value,
    },
    CollectionScan {
        /// Before this record there is none.
        from: RecordId,
        filter: Option<Arc<Filter>>,
        backward: bool,
        /// The order of insertion was asked for.
        is_natural: bool,
        /// The index whose order is the collection's own, where that is not insertion.
        ordered_by: Option<Arc<Index>>,
    },
    IndexScan(Arc<IndexScan>),
    /// Documents in the order of their distance from a point.
    Near(Arc<NearScan>),
    /// Counts the keys of one range without handing them on.
    CountScan(Arc<IndexScan>),
    Fetch {
        filter: Option<Arc<Filter>>,
        input: Box<Node>,
    },
    Or {
        inputs: Vec<Node>,
    },
    /// The records that two index scans have in common. Each gives its records in the order of their ids: see
    /// [`IndexScan::is_in_record_order`].
    Intersection {
        inputs: Box<[Node; 2]>,
    },
    /// The records that scans of search terms have, each once, with the sum of its scores.
    TextOr {
        search: Arc<BoundSearch>,
        inputs: Vec<Node>,
        /// What explain shows of the predicates that the scans test on keys.
        filter: Option<Arc<Filter>>,
        /// Rows have their record; without, the sort above reads the records of those that it keeps.
        fetches: bool,
    },
    /// Those of a search's candidates that have its phrases, and nothing that is negated.
    TextMatch {
        search: Arc<BoundSearch>,
        input: Box<Node>,
        /// See [`Node::TextOr`].
        fetches: bool,
    },
    /// Inputs that are each in the sort's order, merged.
    SortMerge {
        inputs: Vec<Node>,
        sort: Arc<Sort>,
        /// No two inputs have a record in common.
        apart: bool,
    },
    Sort {
        sort: Arc<Sort>,
        limit: Option<u64>,
        input: Box<Node>,
    },
    Skip {
        count: u64,
        input: Box<Node>,
    },
    Limit {
        count: u64,
        input: Box<Node>,
    },
    Project(Project),
    /// Index keys in place of documents.
    ReturnKey {
        /// Fields for the values that rows were sorted by.
        sort_keys: Vec<String>,
        sort: Option<Arc<Sort>>,
        input: Box<Node>,
    },
    /// Where the values that rows are sorted by are made, as MongoDB shows.
    SortKeys {
        input: Box<Node>,
    },
    /// Swallows rows and remembers how many.
    Count {
        skip: u64,
        limit: Option<u64>,
        input: Box<Node>,
    },
    /// The branches of a top-level `$or` were planned one by one.
    Subplan {
        input: Box<Node>,
    },
}

/// Bounds over an index, in the index's own order.
#[derive(Debug, Clone)]
pub struct IndexScan {
    pub index: Arc<Index>,
    pub bounds: Vec<IntervalList>,
    pub backward: bool,
    pub on_key: Vec<KeyTest>,
    /// What explain shows for `on_key`.
    pub shown: Option<Filter>,
    /// All that a match must satisfy. Keys that were too long to store whole are decided by the record.
    pub recheck: Arc<Filter>,
    /// Not every key: see [`Skipping`].
    pub skipping: Option<Skipping>,
    /// Rows keep the key.
    pub tells_key: bool,
    /// In place of bounds: a range of keys as the client gave it.
    pub range: Option<Box<KeyRange>>,
}

/// `$near`, by an index of places.
#[derive(Debug, Clone)]
pub struct NearScan {
    pub index: Arc<Index>,
    /// Which part of the key holds the places.
    pub part: usize,
    pub near: Near,
    /// Of all parts; those of the places are narrowed further, ring by ring.
    pub bounds: Vec<IntervalList>,
    /// As in [`IndexScan`].
    pub recheck: Arc<Filter>,
}

/// `min` and `max` of a find: the first key that counts, and the first that no longer does.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KeyRange {
    pub min: Option<Document>,
    pub max: Option<Document>,
}

/// One key for each value of a part, given what stands before it.
#[derive(Debug, Clone, Copy)]
pub struct Skipping {
    pub part: usize,
    /// Null stands for nothing too: all of its keys are given, and a projection reads the records.
    pub nulls_apart: bool,
}

/// A predicate tested on one part of a key.
#[derive(Debug, Clone)]
pub struct KeyTest {
    pub part: usize,
    /// On a path of one component, for which the key's value stands.
    pub filter: Filter,
}

#[derive(Debug, Clone)]
pub struct Project {
    pub kind: ProjectKind,
    /// For a covered projection: the key parts to take, with their names.
    pub cover: Vec<(usize, String)>,
    pub projection: Arc<Projection>,
    /// Rows that have their record may pass as they are: nobody looks at the other fields.
    pub narrowing: bool,
    /// What the positional operator refers to.
    pub filter: Arc<Filter>,
    pub input: Box<Node>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectKind {
    /// Whole top-level fields.
    Simple,
    /// Anything else.
    Default,
    /// From the index key, without the record.
    Covered,
}

impl Node {
    /// Whether it goes on with rows that nodes below it have found, and looks for none itself.
    pub fn takes_found_rows(&self) -> bool {
        matches!(
            self,
            Node::Sort { .. }
                | Node::Skip { .. }
                | Node::Limit { .. }
                | Node::Project(_)
                | Node::Count { .. }
                | Node::ReturnKey { .. }
                | Node::Subplan { .. }
                | Node::SortKeys { .. }
        )
    }

    pub fn children(&self) -> &[Node] {
        match self {
            Node::Eof
            | Node::RecordCount { .. }
            | Node::IdLookup { .. }
            | Node::CollectionScan { .. }
            | Node::IndexScan(_)
            | Node::Near(_)
            | Node::CountScan(_) => &[],
            Node::Or { inputs } | Node::TextOr { inputs, .. } | Node::SortMerge { inputs, .. } => inputs,
            Node::Intersection { inputs } => &inputs[..],
            Node::Fetch { input, .. }
            | Node::TextMatch { input, .. }
            | Node::Sort { input, .. }
            | Node::Skip { input, .. }
            | Node::Limit { input, .. }
            | Node::Project(Project { input, .. })
            | Node::ReturnKey { input, .. }
            | Node::SortKeys { input }
            | Node::Count { input, .. }
            | Node::Subplan { input } => std::slice::from_ref(input),
        }
    }

    /// Whether some node of the tree satisfies `test`.
    pub fn any(&self, test: &impl Fn(&Node) -> bool) -> bool {
        test(self) || self.children().iter().any(|child| child.any(test))
    }
}

impl IndexScan {
    /// A record may have several keys within the bounds.
    pub fn repeats_records(&self) -> bool {
        self.index.may_repeat_records(&self.bounds)
            || (self.index.multikey.is_multikey() && !self.is_of_one_term())
    }

    /// It has the entries of one term in a text index, of which a record has one.
    pub fn is_of_one_term(&self) -> bool {
        let parts = self.index.spec.key.iter().zip(&self.bounds);
        parts.into_iter().any(|(part, bounds)| part.holds == Holds::Term && bounds.is_point())
    }

    /// All of the keys are equal, so that only the record ids behind them are left to order the entries. A unique
    /// index has no ids there, and no more than one entry.
    pub fn is_in_record_order(&self) -> bool {
        self.range.is_none()
            && !self.backward
            && !self.index.spec.unique
            && !self.index.multikey.has_long_keys()
            && self.bounds.iter().all(IntervalList::is_point)
    }

    /// One range of keys: points, then one interval, then parts without bounds.
    pub fn is_single_range(&self) -> bool {
        if self.range.is_some() {
            return false;
        }
        let mut parts = self.bounds.iter().skip_while(|list| list.is_point());
        match parts.next() {
            Some(list) => list.intervals().len() == 1 && parts.all(IntervalList::is_full),
            None => true,
        }
    }
}
