//! Replacement: the whole document becomes another, its `_id` stays and comes first.

use std::cmp::Ordering;

use kilim_bson::{Document, RawDocument, RawValue, Timestamp, Writer, compare};
use kilim_error::{Error, ErrorCode, Result};

use super::{Context, change, storage};
use crate::text;

/// The document after, or none where nothing changed. mongod compares what the client sent, so a
/// replacement without `_id` always counts as a change.
pub(super) fn apply(
    replacement: RawDocument<'_>,
    before: RawDocument<'_>,
    context: &Context,
) -> Result<Option<Document>> {
    if replacement.as_bytes() == before.as_bytes() {
        return Ok(None);
    }
    for (name, value) in replacement {
        if name == "_id" {
            storage::check_id(value)?;
        }
        storage::check_top_level_name(name)?;
    }
    let id = before.get("_id");
    let after = build(replacement, id, context)?;
    check_id_kept(replacement, id)?;
    change::check_size(after.as_raw())?;
    Ok(Some(after))
}

/// The document to insert, with the `_id` that the filter demands. Like an insert, it may hold names with a
/// dollar.
pub(super) fn insert(
    replacement: RawDocument<'_>,
    id: Option<RawValue<'_>>,
    context: &Context,
) -> Result<Document> {
    if let Some(RawValue::Array(_)) = replacement.get("_id").or(id) {
        return Err(storage::array_as_id("(immutable) field"));
    }
    check_id_kept(replacement, id)?;
    build(replacement, id, context)
}

/// The replacement as it is stored: `_id` first, its own or the one given.
fn build(replacement: RawDocument<'_>, id: Option<RawValue<'_>>, context: &Context) -> Result<Document> {
    let own_id = replacement.get("_id");
    let mut writer = Writer::with_capacity(replacement.as_bytes().len() + 32);
    if let Some(id) = own_id.or(id) {
        writer.append("_id", id);
    }
    let mut elements = replacement.iter();
    while let Some((name, value, bytes)) = elements.next_with_bytes() {
        if name == "_id" {
            continue;
        }
        storage::check_depth(value, 1)?;
        match value {
            // The empty timestamp asks the server for the present one.
            RawValue::Timestamp(Timestamp { seconds: 0, increment: 0 }) => {
                writer.append(name, RawValue::Timestamp(context.timestamp));
            }
            _ => writer.append_elements(bytes),
        }
    }
    Ok(writer.finish())
}

/// A replacement may repeat the `_id`, even as another numeric type, but not change it.
fn check_id_kept(replacement: RawDocument<'_>, id: Option<RawValue<'_>>) -> Result<()> {
    match (replacement.get("_id"), id) {
        (Some(own), Some(id)) if compare(own, id) != Ordering::Equal => {
            let message = format!(
                "After applying the update, the (immutable) field '_id' was found to have been altered to {}",
                text::element("_id", own)
            );
            Err(Error::user(ErrorCode::ImmutableField, message))
        }
        _ => Ok(()),
    }
}
