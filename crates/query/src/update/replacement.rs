//! Replacement: the whole document becomes another, its `_id` stays and comes first.

use std::cmp::Ordering;

use kilim_bson::{Document, RawDocument, RawValue, Timestamp, Writer, compare};
use kilim_error::{Error, ErrorCode, Result};

use super::{Context, change, storage, text};

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
    let after = replace(replacement, before.get("_id"), context)?;
    change::check_size(after.as_raw())?;
    Ok(Some(after))
}

/// The replacement with the given `_id`, which it may repeat but not change.
pub(super) fn replace(
    replacement: RawDocument<'_>,
    fixed_id: Option<RawValue<'_>>,
    context: &Context,
) -> Result<Document> {
    let own_id = replacement.get("_id");
    let mut writer = Writer::with_capacity(replacement.as_bytes().len() + 32);
    if let Some(id) = own_id.or(fixed_id) {
        storage::check_id(id)?;
        writer.append("_id", id);
    }
    let mut elements = replacement.iter();
    while let Some((name, value, bytes)) = elements.next_with_bytes() {
        if name == "_id" {
            continue;
        }
        storage::check_top_level_name(name)?;
        storage::check_depth(value, 1)?;
        match value {
            // The empty timestamp asks the server for the present one.
            RawValue::Timestamp(Timestamp { seconds: 0, increment: 0 }) => {
                writer.append(name, RawValue::Timestamp(context.timestamp));
            }
            _ => writer.append_elements(bytes),
        }
    }
    if let (Some(own), Some(fixed)) = (own_id, fixed_id)
        && compare(own, fixed) != Ordering::Equal
    {
        let element = text::element("_id", own);
        let message = format!(
            "After applying the update, the (immutable) field '_id' was found to have been altered to {element}"
        );
        return Err(Error::user(ErrorCode::ImmutableField, message));
    }
    Ok(writer.finish())
}
