//! What writes answer.

use bson::Bson;
use kilim_bson::{RawDocument, RawValue};

use crate::Result;
use crate::error::{Error, WriteError};

#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct InsertOneResult {
    pub inserted_id: Bson,
}

#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct InsertManyResult {
    /// In the order of the documents.
    pub inserted_ids: Vec<Bson>,
}

#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct UpdateResult {
    pub matched_count: u64,
    /// Those that are other than before.
    pub modified_count: u64,
    /// The `_id` of the document that an upsert inserted.
    pub upserted_id: Option<Bson>,
}

#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DeleteResult {
    pub deleted_count: u64,
}

impl UpdateResult {
    pub(crate) fn of(reply: RawDocument<'_>) -> Result<UpdateResult> {
        check_writes(reply)?;
        let upserted = reply.get("upserted").and_then(RawValue::as_array).and_then(|list| list.get(0));
        let upserted_id = match upserted.and_then(RawValue::as_document) {
            Some(upserted) => Some(field(upserted, "_id")?),
            None => None,
        };
        let n = count(reply, "n");
        Ok(UpdateResult {
            // An inserted document was not matched.
            matched_count: n - u64::from(upserted_id.is_some()),
            modified_count: count(reply, "nModified"),
            upserted_id,
        })
    }
}

impl DeleteResult {
    pub(crate) fn of(reply: RawDocument<'_>) -> Result<DeleteResult> {
        check_writes(reply)?;
        Ok(DeleteResult { deleted_count: count(reply, "n") })
    }
}

/// Refused writes make an error.
pub(crate) fn check_writes(reply: RawDocument<'_>) -> Result<()> {
    let Some(errors) = reply.get("writeErrors").and_then(RawValue::as_array) else { return Ok(()) };
    let errors = errors.iter().filter_map(RawValue::as_document).map(WriteError::of);
    Err(Error::Writes(errors.collect()))
}

pub(crate) fn count(reply: RawDocument<'_>, name: &str) -> u64 {
    match reply.get(name) {
        Some(RawValue::Int32(count)) => count.try_into().unwrap_or(0),
        Some(RawValue::Int64(count)) => count.try_into().unwrap_or(0),
        _ => 0,
    }
}

/// One field of a document, decoded.
pub(crate) fn field(document: RawDocument<'_>, name: &str) -> Result<Bson> {
    let alone: kilim_bson::Document =
        document.iter().filter(|(own, _)| *own == name).map(|(_, value)| ("v", value.to_value())).collect();
    let mut alone: bson::Document = bson::deserialize_from_slice(alone.as_bytes())?;
    Ok(alone.remove("v").unwrap_or(Bson::Null))
}
