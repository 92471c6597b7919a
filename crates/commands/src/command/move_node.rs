//! `moveNode`: give a node of a tree another parent, or another place among its siblings.

use std::sync::Arc;

use kilim_bson::{Document, RawValue, Value, doc};
use kilim_engine::Namespace;
use kilim_engine::patterns::Pattern;
use kilim_engine::write::{self, MoveRequest};
use kilim_error::{Error, ErrorCode, Result};
use kilim_patterns::Position;

use super::write_reply::{StatementIds, check_statement_ids, push_caused, required};
use crate::argument::{Argument, arguments};
use crate::dispatch::Call;

const NAME: &str = "moveNode";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.namespace()?;
    call.describe("command");
    // Null is an `_id` like another, and a parent that is none: not the same as no argument.
    let given = |name: &str| {
        let mut fields = call.body.iter().skip(1);
        fields.find(|(field, _)| *field == name).map(|(_, value)| value.to_value())
    };
    // Some drivers send `_id` first, where a command's name belongs.
    let (id, to) = (given("_id").or_else(|| given("node")), given("to"));
    let (mut position, mut name) = (Position::Last, None);
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "_id" | "node" | "to" => {}
            "position" => position = parse_position(&argument)?,
            "name" => name = Some(argument.string()?),
            _ => return Err(argument.unknown()),
        }
    }
    let id: Value = required(id, NAME, "_id")?;
    namespace.check_writable()?;
    check_statement_ids(call.body, 1)?;
    let pattern = tree_of(call, &namespace, name)?;
    let has_order = pattern.kind().tree().is_some_and(|tree| tree.has_order());
    if !matches!(position, Position::Last) && !has_order {
        return Err(Error::user(
            ErrorCode::BadValue,
            format!(
                "the tree '{}' keeps no order of siblings, so '{NAME}.position' can only be 'last': declare 'order' or \
                 'nestedSets'",
                pattern.declaration.name
            ),
        ));
    }
    let statement = StatementIds::of(call.body).at(0);
    let request = MoveRequest { pattern: &pattern, id, to, position, statement };
    let outcome = write::move_node(&mut call.unit, &namespace, &request)?;
    let mut reply = doc! {"n": outcome.matched as i32, "nModified": outcome.modified as i32};
    if let Some(&id) = call.unit.retried().first() {
        reply.push("retriedStmtId", id);
    }
    push_caused(&mut reply, &call.unit.caused);
    Ok(reply)
}

/// `"first"`, `"last"`, `{before: id}` or `{after: id}`.
fn parse_position(argument: &Argument<'_>) -> Result<Position> {
    let wrong = || {
        let message =
            format!("'{NAME}.position' must be \"first\", \"last\", {{before: id}} or {{after: id}}");
        Error::user(ErrorCode::BadValue, message)
    };
    match argument.value {
        RawValue::String("first") => Ok(Position::First),
        RawValue::String("last") => Ok(Position::Last),
        RawValue::Document(document) => {
            let mut fields = document.iter();
            match (fields.next(), fields.next()) {
                (Some(("before", id)), None) => Ok(Position::Before(id.to_value())),
                (Some(("after", id)), None) => Ok(Position::After(id.to_value())),
                _ => Err(wrong()),
            }
        }
        _ => Err(wrong()),
    }
}

/// The pattern that keeps the tree of a collection: the only one, or the one of that name.
pub fn tree_of(call: &Call<'_, '_>, namespace: &Namespace, name: Option<&str>) -> Result<Arc<Pattern>> {
    let registry = call.engine.patterns();
    let is_tree = |pattern: &&Arc<Pattern>| {
        pattern.target == *namespace
            && pattern.kind().tree().is_some()
            && pattern.is_maintained()
            && name.is_none_or(|name| *pattern.declaration.name == *name)
    };
    let trees: Vec<&Arc<Pattern>> = registry.of(&namespace.database).iter().filter(is_tree).collect();
    match trees[..] {
        [tree] => Ok(tree.clone()),
        [] => Err(Error::user(
            ErrorCode::PatternNotFound,
            format!(
                "{namespace} has no tree in force: createPattern declares one, resumePattern ends a pause"
            ),
        )),
        _ => Err(Error::user(
            ErrorCode::BadValue,
            format!("{namespace} has several trees: say which one by 'name'"),
        )),
    }
}
