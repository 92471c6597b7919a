//! The plan that a read followed, as slow-query lines and profiles tell of it.
//!
//! A running plan keeps what it was made from; texts are made of it only where somebody wants to read them.

use std::sync::Arc;

use super::{Node, Purpose, QueryShape, ReadRequest};
use crate::index::Index;
use kilim_query::text::document as shell_text;

/// A plan that runs, and what it answers.
#[derive(Debug)]
pub struct Followed {
    pub root: Arc<Node>,
    request: ReadRequest,
    indexes: Arc<[Arc<Index>]>,
    /// It won against others just now, instead of being the only one, or remembered.
    pub from_trial: bool,
}

impl Followed {
    pub(crate) fn new(
        root: Arc<Node>,
        request: ReadRequest,
        indexes: Arc<[Arc<Index>]>,
        from_trial: bool,
    ) -> Followed {
        Followed { root, request, indexes, from_trial }
    }

    /// The ways into the data, as `IXSCAN { a: 1 }` or `COLLSCAN`.
    pub fn summary(&self) -> String {
        let mut ways = Vec::new();
        push_ways(&self.root, &mut ways);
        ways.join(", ")
    }

    pub fn has_sort(&self) -> bool {
        self.root.any(&|node| matches!(node, Node::Sort { .. }))
    }

    /// Whether it goes from one value of an index to the next, which no query's shape tells.
    pub fn is_distinct_scan(&self) -> bool {
        self.root.any(&|node| matches!(node, Node::IndexScan(scan) if scan.skipping.is_some()))
    }

    /// `queryHash`; none where no query was asked.
    pub fn query_hash(&self) -> Option<String> {
        let asks_nothing = self.root.any(&|node| matches!(node, Node::Eof | Node::RecordCount { .. }));
        (!asks_nothing && !self.is_distinct_scan()).then(|| self.shape().hash())
    }

    /// `planCacheKey`; none where the plan is not one that would be remembered.
    pub fn plan_cache_key(&self) -> Option<String> {
        let request = &self.request;
        let asks_for_all = request.filter.is_trivial() && request.sort.is_none();
        if request.hint.is_some() || request.range.is_some() || asks_for_all || self.is_by_id() {
            return None;
        }
        self.query_hash()?;
        Some(self.shape().key(self.indexes.iter().map(|index| index.id.0)))
    }

    /// Whether it finds one document by its `_id`.
    pub fn is_by_id(&self) -> bool {
        self.root.any(&|node| matches!(node, Node::IdLookup { .. }))
    }

    /// The shape that the same question has in any command.
    fn shape(&self) -> QueryShape {
        match self.request.purpose {
            Purpose::Documents => QueryShape::of(&self.request),
            Purpose::Count => {
                QueryShape::of(&ReadRequest { purpose: Purpose::Documents, ..self.request.clone() })
            }
        }
    }
}

fn push_ways(node: &Node, ways: &mut Vec<String>) {
    let of_index =
        |name: &str, index: &Index| format!("{name} {}", shell_text(index.spec.key_document.as_raw()));
    match node {
        Node::Eof => ways.push("EOF".to_owned()),
        Node::RecordCount { .. } => ways.push("RECORD_STORE_FAST_COUNT".to_owned()),
        Node::IdLookup { .. } => ways.push("IDHACK".to_owned()),
        Node::CollectionScan { .. } => ways.push("COLLSCAN".to_owned()),
        Node::IndexScan(scan) if scan.skipping.is_some() => {
            ways.push(of_index("DISTINCT_SCAN", &scan.index));
        }
        Node::IndexScan(scan) => ways.push(of_index("IXSCAN", &scan.index)),
        Node::Near(scan) => ways.push(of_index("GEO_NEAR", &scan.index)),
        Node::CountScan(scan) => ways.push(of_index("COUNT_SCAN", &scan.index)),
        node => node.children().iter().for_each(|child| push_ways(child, ways)),
    }
}
