//! What the head of a pipeline becomes: one read of the collection.

use std::sync::Arc;

use kilim_query::filter::Filter;
use kilim_query::sort::Sort;
use kilim_query::stage::Stage;

use crate::planner::ReadRequest;

/// The read that does the work of the first stages, and how many those are. A read filters, then sorts,
/// then skips, then limits; the head ends where the stages leave that order.
pub(super) fn absorb(stages: &[Stage]) -> (ReadRequest, usize) {
    let mut filters = Vec::new();
    let mut sort = None::<Arc<Sort>>;
    let (mut skip, mut limit) = (0u64, None::<u64>);
    let mut absorbed = 0;
    for stage in stages {
        let windowed = skip > 0 || limit.is_some();
        match stage {
            Stage::Match(stage) if sort.is_none() && !windowed => filters.push(stage.filter.clone()),
            Stage::Sort(stage) if sort.is_none() && !windowed => {
                sort = Some(stage.sort.clone());
                limit = stage.limit;
            }
            Stage::Skip(more) => {
                skip = skip.saturating_add(more.0);
                limit = limit.map(|limit| limit.saturating_sub(more.0));
            }
            Stage::Limit(most) => limit = Some(limit.map_or(most.0, |limit| limit.min(most.0))),
            _ => break,
        }
        absorbed += 1;
    }
    let filter = match filters.len() {
        // A limit of which nothing is left is not the planner's "no limit".
        _ if limit == Some(0) => Arc::new(Filter::False),
        0 => Arc::new(Filter::True),
        1 => filters.remove(0),
        _ => Arc::new(Filter::And(filters.iter().map(|filter| (**filter).clone()).collect())),
    };
    let sort = sort.map(|sort| (*sort).clone());
    (ReadRequest { sort, skip, limit, ..ReadRequest::new(filter) }, absorbed)
}
