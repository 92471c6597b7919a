//! Stages that MongoDB has and Kilim has not: refused by name, not as unknown.

use kilim_bson::{Document, RawValue};
use kilim_error::{Error, ErrorCode, Result};

use super::{Context, Owner, Stage};

pub(super) fn parse(name: &str, _: RawValue<'_>, _: &Context<'_>, _: &mut Vec<Stage>) -> Result<()> {
    Err(Error::user(ErrorCode::NotImplemented, format!("the stage {name} is not supported by Kilim yet")))
}

/// `$changeStream` where it is not the first stage of a command.
pub(super) fn misplaced_change_stream(
    _: &str,
    spec: RawValue<'_>,
    context: &Context<'_>,
    _: &mut Vec<Stage>,
) -> Result<()> {
    let RawValue::Document(_) = spec else { return Err(no_change_stream(spec)) };
    // MongoDB puts several stages in its place, and names the first of them.
    const NAME: &str = "$_internalChangeStreamOplogMatch";
    let (code, how) = match context.owner {
        Owner::Facet => (40600, "is not allowed to be used within a $facet stage"),
        Owner::Lookup => (51047, "is not allowed within a $lookup's sub-pipeline"),
        Owner::UnionWith => (31441, "is not allowed within a $unionWith's sub-pipeline"),
        Owner::Update => (72, "is not allowed to be used within an update"),
        Owner::Collection | Owner::Database | Owner::View => {
            (40602, "is only valid as the first stage in a pipeline")
        }
    };
    Err(Error::location(code, format!("{NAME} {how}")))
}

/// The refusal of a `$changeStream` that is given no document.
pub fn no_change_stream(spec: RawValue<'_>) -> Error {
    let mut shown = Document::new();
    shown.push("$changeStream", spec);
    let shown = crate::text::document(shown.as_raw());
    let shown = shown.trim_start_matches("{ ").trim_end_matches(" }");
    Error::location(6188500, format!("$changeStream must take a nested object but found: {shown}"))
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
