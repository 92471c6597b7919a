//! `listDatabases`: all databases.

use kilim_bson::{Document, RawDocument, doc};
use kilim_error::Result;
use kilim_query::filter::Filter;

use crate::argument::arguments;
use crate::dispatch::Call;

const NAME: &str = "listDatabases";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let (mut filter, mut name_only) = (RawDocument::empty(), false);
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "filter" => filter = argument.document()?,
            "nameOnly" => name_only = argument.boolean()?,
            "authorizedDatabases" => drop(argument.boolean()?),
            _ => return Err(argument.unknown()),
        }
    }
    let filter = Filter::parse(filter)?;
    let (snapshot, catalog) = call.engine.reading();
    let mut databases = Vec::new();
    let mut total = 0;
    for name in catalog.database_names() {
        let mut document = doc! {"name": &name};
        if !name_only {
            let mut size = 0;
            for collection in catalog.database(&name) {
                size += collection.home().counts(&snapshot)?.bytes;
            }
            total += size;
            document.push("sizeOnDisk", size);
            document.push("empty", false);
        }
        if filter.matches(document.as_raw())? {
            databases.push(document);
        }
    }
    let mut reply = doc! {"databases": databases};
    if !name_only {
        reply.push("totalSize", total);
        reply.push("totalSizeMb", total / (1024 * 1024));
    }
    Ok(reply)
}
