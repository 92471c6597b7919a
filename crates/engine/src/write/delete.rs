//! `delete`: removes documents that match.

use std::sync::Arc;

use kilim_collation::Collation;
use kilim_error::{Error, Result};
use kilim_query::filter::Filter;

use super::done::{answered, deleted};
use super::door;
use super::update::{Candidates, change_record, matching};
use crate::change::Change;
use crate::namespace::Namespace;
use crate::plan::Hint;
use crate::unit::Unit;

pub struct DeleteRequest {
    pub filter: Arc<Filter>,
    /// Only the first that matches.
    pub one: bool,
    pub hint: Option<Hint>,
    /// How texts compare in the filter.
    pub collation: Option<Collation>,
    pub statement: i32,
}

/// Gives back how many were removed.
pub fn delete(unit: &mut Unit<'_>, namespace: &Namespace, request: &DeleteRequest) -> Result<u64> {
    delete_those_that_can(unit, namespace, request, Err)
}

/// Deletes, and asks `refused` about each document that may not be deleted: whether to go on without it.
pub(crate) fn delete_those_that_can(
    unit: &mut Unit<'_>,
    namespace: &Namespace,
    request: &DeleteRequest,
    mut refused: impl FnMut(Error) -> Result<()>,
) -> Result<u64> {
    if let Some(done) = answered(unit, request.statement) {
        return Ok(done.as_delete());
    }
    let read = matching(&request.filter, None, request.hint.as_ref(), &request.collation);
    let Some(mut candidates) = Candidates::find(unit, namespace, read)? else { return Ok(0) };
    let mut removed = 0;
    while let Some(found) = candidates.next(unit)? {
        let row = found.row;
        let done =
            change_record(unit, namespace, found, &candidates.filter, |unit, collection, before, _| {
                door::write(unit, Change::delete(collection, row, before, unit.cause), &|_| false)
            });
        match done {
            Ok(Some(_)) => {}
            Ok(None) => continue,
            Err(error) => {
                refused(error)?;
                continue;
            }
        }
        removed += 1;
        if request.one {
            unit.record_statement(request.statement, deleted);
        }
        if request.one {
            unit.written()?;
            break;
        }
        unit.streamed()?;
    }
    Ok(removed)
}
