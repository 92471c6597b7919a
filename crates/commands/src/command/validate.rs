//! `validate`: recompute and compare a collection's indexes.

use kilim_bson::{Document, Value, doc};
use kilim_engine::index::NESTED;
use kilim_engine::jobs::validate;
use kilim_error::{Error, ErrorCode, Result};

use super::coll_stats::number;
use crate::argument::arguments;
use crate::dispatch::Call;

const NAME: &str = "validate";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.collection()?;
    call.describe("command");
    let (mut full, mut background) = (false, false);
    for argument in arguments(NAME, call.body) {
        match argument.name {
            // It is always full, and always beside writers.
            // Anything but false, zero and null is true, as on MongoDB.
            "full" => full = argument.boolean().unwrap_or(true),
            "background" => background = argument.boolean().unwrap_or(true),
            "checkBSONConformance" | "scandata" => drop(argument.boolean()?),
            "repair" | "metadata" | "enforceFastCount" => argument.only_off()?,
            _ => return Err(argument.unknown()),
        }
    }
    if full && background {
        return Err(Error::user(
            ErrorCode::InvalidOptions,
            "Running the validate command with both { background: true } and { full: true } is not supported.",
        ));
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
    let mut found = validate(call.engine, collection, &snapshot, &call.operation)?;
    if full || found.damaged {
        found.check_pages(call.engine, collection, &call.operation)?;
    }
    // As on mongod, which looks no further once documents do not comply.
    // And the order of a clustered collection is no index of it.
    let from = match found.non_compliant > 0 && !found.is_valid() {
        true => collection.indexes.len(),
        false => usize::from(collection.clustered),
    };
    let indexes = &collection.indexes[from..];
    let mut keys = Document::new();
    let mut details = Document::new();
    let mut by_name: Vec<_> = indexes.iter().zip(&found.entries[from.min(found.entries.len())..]).collect();
    by_name.sort_by(|(a, _), (b, _)| a.spec.name.cmp(&b.spec.name));
    for (index, &entries) in by_name {
        // mongod keeps the paths to arrays among a wildcard index's keys, and counts them.
        let paths = index.multikey.paths().filter(|path| !path.ends_with(NESTED)).count();
        keys.push(&index.spec.name, number(entries as i64 + paths as i64));
        details.push(&index.spec.name, doc! {"valid": found.is_valid()});
    }
    let texts = |list: &[String]| list.iter().map(|text| Value::from(text.as_str())).collect::<Vec<_>>();
    let (errors, warnings) = (texts(&found.errors), texts(&found.warnings));
    let mut reply = doc! {
        "ns": namespace.to_string(),
        "nInvalidDocuments": number(found.invalid_records as i64),
        "nNonCompliantDocuments": number(found.non_compliant as i64),
        "nrecords": number(found.records as i64),
        "nIndexes": indexes.len() as i32,
        "keysPerIndex": keys,
        "indexDetails": details,
        "valid": found.is_valid(),
        "repaired": false,
        "warnings": warnings,
        "errors": errors,
        "extraIndexEntries": [],
        "missingIndexEntries": [],
        "corruptRecords": [],
    };
    if !found.is_valid() {
        reply.push(
            "advice",
            match found.damaged {
                true => "pages on disk are damaged: 'kilim salvage' copies what can be read",
                false => {
                    "what was found is in 'errors'; documents that do not comply can be changed or removed"
                }
            },
        );
    }
    Ok(reply)
}
