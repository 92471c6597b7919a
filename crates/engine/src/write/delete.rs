//! `delete`: removes documents that match.

use std::sync::Arc;

use kilim_bson::{RawValue, doc};
use kilim_error::{Error, Result};
use kilim_query::filter::Filter;

use super::door;
use super::unit::Unit;
use super::update::{Candidates, change_record, matching};
use crate::namespace::Namespace;
use crate::planner::Hint;

pub struct DeleteRequest {
    pub filter: Arc<Filter>,
    /// Only the first that matches.
    pub one: bool,
    pub hint: Option<Hint>,
    pub statement: i32,
}

/// Gives back how many were removed.
pub fn delete(unit: &mut Unit<'_>, namespace: &Namespace, request: &DeleteRequest) -> Result<u64> {
    if let Some(done) = unit.answered(request.statement) {
        return match done.get("n") {
            Some(RawValue::Int64(removed)) => Ok(removed as u64),
            _ => Err(Error::bug("a remembered delete lacks n")),
        };
    }
    let Some(collection) = unit.enter(namespace)? else { return Ok(0) };
    let mut candidates = Candidates::find(unit, &collection, matching(&request.filter, None, request.hint.as_ref()))?;
    let mut removed = 0;
    while let Some(record) = candidates.next(unit)? {
        let done = change_record(unit, namespace, record, &request.filter, |unit, collection, before, _| {
            door::delete(unit, collection, record, before)
        })?;
        if done.is_none() {
            continue;
        }
        removed += 1;
        if request.one {
            unit.record_statement(request.statement, doc! {"n": 1i64});
        }
        unit.written()?;
        if request.one {
            break;
        }
    }
    Ok(removed)
}
