//! Updates: refused or applied; what they make is valid, and an update of nothing changes nothing.
#![no_main]

use std::sync::LazyLock;

use kilim_bson::{Document, RawDocument, RawValue, Timestamp};
use kilim_query::filter::Filter;
use kilim_query::update::{Context, Update};
use libfuzzer_sys::fuzz_target;

static SUBJECTS: LazyLock<Vec<Document>> = LazyLock::new(kilim_fuzz::subjects);

fuzz_target!(|input: &[u8]| {
    let Some(statement) = kilim_fuzz::document(input) else { return };
    let Some(update) = statement.get("u") else { return };
    let filters = statement.get("arrayFilters").and_then(RawValue::as_array);
    let Ok(update) = Update::parse(update, filters, false) else { return };
    let context = Context {
        inserting: false,
        position: Some(0),
        now_millis: 0,
        timestamp: Timestamp::from_bits(1),
    };
    for subject in SUBJECTS.iter() {
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
});
