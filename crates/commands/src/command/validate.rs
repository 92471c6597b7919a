//! `validate`: recompute and compare a collection's indexes.

use kilim_bson::{Document, Value, doc};
use kilim_engine::validate::validate;
use kilim_error::{Error, ErrorCode, Result};

use super::coll_stats::number;
use crate::argument::arguments;
use crate::dispatch::Call;

const NAME: &str = "validate";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.namespace()?;
    call.describe("command");
    for argument in arguments(NAME, call.body) {
        match argument.name {
            // It is always full, and always beside writers.
            "full" | "background" | "checkBSONConformance" | "scandata" => drop(argument.boolean()?),
            "repair" | "metadata" | "enforceFastCount" => argument.only_off()?,
            _ => return Err(argument.unknown()),
        }
    }
    let (snapshot, catalog) = call.engine.reading();
    if catalog.view(&namespace).is_some() {
        return Err(Error::user(ErrorCode::CommandNotSupportedOnView, "Cannot validate a view"));
    }
    let Some(collection) = catalog.get(&namespace) else {
        return Err(Error::user(
            ErrorCode::NamespaceNotFound,
            format!("Collection '{namespace}' does not exist to validate."),
        ));
    };
    let found = validate(collection, &snapshot, &call.operation)?;
    let mut keys = Document::new();
    let mut details = Document::new();
    for (index, &entries) in collection.indexes.iter().zip(&found.entries) {
        keys.push(&index.spec.name, number(entries as i64));
        details.push(&index.spec.name, doc! {"valid": found.is_valid()});
    }
    let errors: Vec<Value> = found.errors.iter().map(|error| Value::from(error.as_str())).collect();
    Ok(doc! {
        "ns": namespace.to_string(),
        "nInvalidDocuments": number(found.invalid_records as i64),
        "nNonCompliantDocuments": 0,
        "nrecords": number(found.records as i64),
        "nIndexes": collection.indexes.len() as i32,
        "keysPerIndex": keys,
        "indexDetails": details,
        "valid": found.is_valid(),
        "repaired": false,
        "warnings": [],
        "errors": errors,
        "extraIndexEntries": [],
        "missingIndexEntries": [],
        "corruptRecords": [],
    })
}
