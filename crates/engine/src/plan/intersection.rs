//! Two indexes for one conjunction: the records that both find.
//!
//! An index that holds the predicates of both reads less than two of them do, so intersections are for predicates that
//! no index has together. Only scans whose records come in the order of their ids are paired, because those are merged
//! without remembering anything: one value for every part of the key. MongoDB has the same candidates, save that here
//! two paths of a wildcard index, or two `$elemMatch`es over one index, are pairs as well.
//!
//! What the record must still satisfy is what neither scan decides. Whether a pair is worth its second scan is
//! decided where candidates are tried.

use std::sync::Arc;

use super::access::Access;
use super::node::{IndexScan, Node};
use super::solution::{Solver, conjunction};
use crate::bounds::IntervalList;

/// Pairs beyond this number are not tried, as on MongoDB.
const INTERSECTIONS_MAX: usize = 3;

impl Solver<'_> {
    /// The plans of two accesses out of `ways`, each of which has a predicate that the other does not have.
    pub(super) fn intersections(&self, ways: &[Access]) -> Vec<Node> {
        let scans: Vec<(&Access, Arc<IndexScan>)> = ways
            .iter()
            .filter(|access| access.bounds.iter().all(IntervalList::is_point))
            .map(|access| (access, self.scan_of(access, false, self.conjuncts, self.request.filter.clone())))
            .filter(|(_, scan)| scan.is_in_record_order())
            .map(|(access, scan)| (access, Arc::new(scan)))
            .collect();
        let mut found: Vec<(u64, Node)> = Vec::new();
        for (at, (first, first_scan)) in scans.iter().enumerate() {
            for (second, second_scan) in &scans[at + 1..] {
                let both = first.leaves | second.leaves;
                let adds_nothing = both == first.leaves || both == second.leaves;
                let is_in_one = ways.iter().any(|access| access.leaves & both == both);
                let is_known = found.iter().any(|(known, _)| *known == both);
                if adds_nothing || is_in_one || is_known || found.len() == INTERSECTIONS_MAX {
                    continue;
                }
                let open = first.residual.iter().filter(|conjunct| second.residual.contains(conjunct));
                let residual = conjunction(open.map(|&conjunct| self.conjuncts[conjunct].clone()));
                let scans = [first_scan, second_scan].map(|scan| Node::IndexScan(scan.clone()));
                let node = Node::Intersection { inputs: Box::new(scans) };
                found.push((both, self.finish(node, residual, self.request.sort.is_none(), None)));
            }
        }
        found.into_iter().map(|(_, node)| node).collect()
    }
}
