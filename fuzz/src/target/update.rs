//! Updates: refused or applied; what they make is valid, and an update of nothing changes nothing.

use kilim_bson::{RawDocument, RawValue, Timestamp};
use kilim_query::filter::Filter;
use kilim_query::update::{Context, Update};

/// Takes a statement of an update command.
pub fn check(input: &[u8]) {
    crate::patient(|| check_statement(input));
}

fn check_statement(input: &[u8]) {
    let Some(statement) = crate::document(input) else { return };
    let Some(update) = statement.get("u") else { return };
    let filters = statement.get("arrayFilters").and_then(RawValue::as_array);
    let Ok(update) = Update::parse(update, filters, false) else { return };
    let context =
        Context { inserting: false, position: Some(0), now_millis: 0, timestamp: Timestamp::from_bits(1) };
    for subject in crate::subjects() {
        let Ok(applied) = update.apply(subject.as_raw(), &context) else { continue };
        if let Some(after) = applied.after {
            RawDocument::parse(after.as_bytes()).expect("an update makes valid documents");
        }
    }
    let query = statement.get("q").and_then(RawValue::as_document);
    if let Some(Ok(filter)) = query.map(Filter::parse)
        && let Ok(inserted) = update.document_for_upsert(&filter, &context)
    {
        RawDocument::parse(inserted.as_bytes()).expect("an upsert makes valid documents");
    }
}
