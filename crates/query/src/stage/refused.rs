//! Stages that MongoDB has and Kilim has not: refused by name, not as unknown.

use kilim_bson::RawValue;
use kilim_error::{Error, ErrorCode, Result};

use super::{Context, Stage};

pub(super) fn parse(name: &str, _: RawValue<'_>, _: &Context<'_>, _: &mut Vec<Stage>) -> Result<()> {
    Err(Error::user(ErrorCode::NotImplemented, format!("the stage {name} is not supported by Kilim yet")))
}

/// A stage that a change stream takes for itself, before the others are parsed.
pub(super) fn outside_a_change_stream(
    name: &str,
    _: RawValue<'_>,
    _: &Context<'_>,
    _: &mut Vec<Stage>,
) -> Result<()> {
    let message = format!("{name} can only be used in a $changeStream pipeline");
    Err(Error::user(ErrorCode::IllegalOperation, message))
}
