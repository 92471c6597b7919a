//! `$count`: a `$group` over everything that counts, and a `$project` that leaves nothing but the number.

use std::sync::Arc;

use kilim_bson::{RawValue, Value, doc};
use kilim_error::{Error, Result};

use super::project::Project;
use super::{Context, Group, Stage};
use crate::accumulator::Accumulator;
use crate::expression::Expression;

pub(super) fn parse(
    stage: &str,
    value: RawValue<'_>,
    context: &Context<'_>,
    out: &mut Vec<Stage>,
) -> Result<()> {
    let RawValue::String(name) = value else {
        return Err(Error::location(40156, "the count field must be a non-empty string"));
    };
    if name.is_empty() {
        return Err(Error::location(40157, "the count field must be a non-empty string"));
    }
    if name.starts_with('$') {
        return Err(Error::location(40158, "the count field cannot be a $-prefixed path"));
    }
    if name.contains('\0') {
        return Err(Error::location(40159, "the count field cannot contain a null byte"));
    }
    if name.contains('.') {
        return Err(Error::location(40160, "the count field cannot contain '.'"));
    }
    if name == "_id" {
        return Err(Error::location(15948, "a group's _id may only be specified once"));
    }
    let id = Expression::Constant(Value::Null);
    let fields = vec![(name.into(), Accumulator::count())];
    out.push(Stage::Group(Arc::new(Group { id, fields, collation: None })));
    let mut only = doc! {"_id": 0};
    only.push(name, 1);
    out.push(Stage::Project(Project::parse(stage, only.as_raw(), context)?));
    Ok(())
}
