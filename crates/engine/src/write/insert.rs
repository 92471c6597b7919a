//! `insert`: new documents.

use std::borrow::Cow;

use kilim_bson::{Document, ObjectId, RawDocument, RawValue, Timestamp, Writer};
use kilim_error::{Error, ErrorCode, Result};
use kilim_query::update::check_id;

use super::admit::check_not_blocked;
use super::done::inserted;
use super::door;
use crate::change::Change;
use crate::limits;
use crate::namespace::Namespace;
use crate::unit::Unit;

#[derive(Debug, Default)]
pub struct InsertOutcome {
    pub inserted: usize,
    /// By position in the command.
    pub errors: Vec<(usize, Error)>,
}

/// Inserts documents one by one; `statements` are their ids for a retry. An error of one document is
/// reported with its position; an error of the store or the operation ends the command.
pub fn insert(
    unit: &mut Unit<'_>,
    namespace: &Namespace,
    documents: &[RawDocument<'_>],
    ordered: bool,
    statements: impl Fn(usize) -> i32,
) -> Result<InsertOutcome> {
    let mut outcome = InsertOutcome::default();
    for (position, &document) in documents.iter().enumerate() {
        let statement = statements(position);
        if unit.answered(statement).is_some() {
            outcome.inserted += 1;
            continue;
        }
        match insert_one(unit, namespace, document, statement) {
            Ok(()) => outcome.inserted += 1,
            Err(error @ Error::User(_)) if super::is_statement_error(&error) => {
                outcome.errors.push((position, error));
                if ordered || unit.is_transaction() {
                    break;
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(outcome)
}

fn insert_one(
    unit: &mut Unit<'_>,
    namespace: &Namespace,
    document: RawDocument<'_>,
    statement: i32,
) -> Result<()> {
    unit.operation.check()?;
    if unit.cause.is_of_user() {
        check_not_blocked(unit, namespace)?;
    }
    let size = document.as_bytes().len();
    if size > limits::DOCUMENT_BYTES_MAX {
        return Err(Error::user(
            ErrorCode::BadValue,
            format!(
                "object to insert too large. size in bytes: {size}, max size: {}",
                limits::DOCUMENT_BYTES_MAX
            ),
        ));
    }
    let document = prepare_insert(document, &mut || unit.engine.stamp())?;
    // SAFETY: `prepare_insert` gives back the validated document or one made by `Writer`.
    let document = unsafe { RawDocument::from_validated(&document) };
    let capped = loop {
        let collection = unit.enter_or_create(namespace)?;
        match door::write(unit, Change::insert(&collection, document, unit.cause), &|_| false) {
            Ok(_) => break collection.capped.is_some(),
            Err(error) if unit.can_retry(&error)? => {}
            Err(error) => return Err(error),
        }
    };
    unit.record_statement(statement, inserted);
    match capped {
        false => unit.streamed(),
        // Each insert into a capped collection reads the oldest records from what is published, so it waits for the batch
        // before. Batches are few and large.
        true => unit.written(),
    }
}

/// The document as it will be stored: `_id` first, made where it is missing; an empty timestamp at the
/// top level becomes a current one, each another.
pub fn prepare_insert<'d>(
    document: RawDocument<'d>,
    stamp: &mut dyn FnMut() -> Timestamp,
) -> Result<Cow<'d, [u8]>> {
    let empty_timestamp =
        |value: RawValue<'_>| matches!(value, RawValue::Timestamp(Timestamp { seconds: 0, increment: 0 }));
    let (mut id, mut id_is_first, mut has_empty_timestamp) = (None, false, false);
    for (at, (name, value)) in document.iter().enumerate() {
        match name {
            "_id" => {
                id_is_first |= at == 0;
                id = id.or(Some(value));
            }
            _ => has_empty_timestamp |= empty_timestamp(value),
        }
    }
    if let Some(id) = id {
        check_id(id)?;
    }
    if id_is_first && !has_empty_timestamp {
        return Ok(Cow::Borrowed(document.as_bytes()));
    }
    let mut writer = Writer::with_capacity(document.as_bytes().len() + 32);
    writer.append("_id", id.unwrap_or_else(|| RawValue::ObjectId(ObjectId::new())));
    let mut fields = document.iter();
    while let Some((name, value, bytes)) = fields.next_with_bytes() {
        if name == "_id" {
            continue;
        }
        match empty_timestamp(value) {
            true => writer.append(name, RawValue::Timestamp(stamp())),
            false => writer.append_elements(bytes),
        }
    }
    Ok(Cow::Owned(Document::into_bytes(writer.finish())))
}
