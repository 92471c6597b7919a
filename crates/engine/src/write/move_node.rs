//! `moveNode`: gives a node of a tree another parent, or another place among its siblings.

use std::borrow::Cow;
use std::sync::Arc;

use kilim_bson::{Document, Path, RawDocument, RawValue, Value};
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::{Position, with_value};
use kilim_query::filter::{Comparison, Filter, Predicate};

use super::done::answered;
use super::door;
use super::update::{Candidates, UpdateOutcome, change_record, matching};
use crate::change::Change;
use crate::namespace::Namespace;
use crate::patterns::Pattern;
use crate::unit::Unit;

pub struct MoveRequest<'a> {
    /// The pattern that keeps the tree.
    pub pattern: &'a Pattern,
    pub id: Value,
    /// The new parent, null for none; none where it keeps the one it has.
    pub to: Option<Value>,
    pub position: Position,
    pub statement: i32,
}

/// Moves a node; nothing matches where there is no such node.
pub fn move_node(
    unit: &mut Unit<'_>,
    namespace: &Namespace,
    request: &MoveRequest<'_>,
) -> Result<UpdateOutcome> {
    if let Some(done) = answered(unit, request.statement) {
        return done.as_update();
    }
    let Some(tree) = request.pattern.kind().tree() else {
        return Err(Error::bug("a node of a pattern without a tree is moved"));
    };
    let predicate = Predicate::Compare(Comparison::Eq, request.id.clone().into());
    let filter = Arc::new(Filter::Field { path: Path::parse("_id"), predicate });
    let mut outcome = UpdateOutcome::default();
    let read = matching(&filter, None, None, &None);
    let Some(mut candidates) = Candidates::find(unit, namespace, read)? else { return Ok(outcome) };
    let Some(found) = candidates.next(unit)? else { return Ok(outcome) };
    let row = found.row;
    let moved = change_record(unit, namespace, found, &filter, |unit, collection, before, _| {
        let after = match &request.to {
            Some(to) => {
                check_way(before.seen, tree.parent_path())?;
                with_value(before.seen, tree.parent_path(), Some(to.as_raw()))
            }
            None => before.seen.to_document(),
        };
        unit.position = Some((request.pattern.id, request.position.clone()));
        let change = Change::update(collection, row, before, after.as_raw(), unit.cause);
        let written = door::write(unit, change, &|_| false);
        unit.position = None;
        written.map(drop)
    })?;
    if moved.is_some() {
        (outcome.matched, outcome.modified) = (1, 1);
        unit.record_statement(request.statement, || Cow::Owned(outcome.encode()));
        unit.written()?;
    }
    Ok(outcome)
}

/// Refuses where the path of the parent leads through something that is no document, as `$set` does.
fn check_way(document: RawDocument<'_>, path: &str) -> Result<()> {
    let Some((first, rest)) = path.split_once('.') else { return Ok(()) };
    match document.get(first) {
        None => Ok(()),
        Some(RawValue::Document(nested)) => check_way(nested, rest),
        Some(value) => {
            let mut element = Document::new();
            element.push(first, value);
            let (name, _) = rest.split_once('.').unwrap_or((rest, ""));
            let element = kilim_query::text::document(element.as_raw());
            let message = format!("Cannot create field '{name}' in element {element}");
            Err(Error::user(ErrorCode::PathNotViable, message))
        }
    }
}
