//! `listDatabases`: all databases.

use kilim_auth::Action;
use kilim_bson::{Document, RawDocument, doc};
use kilim_error::Result;
use kilim_query::filter::Filter;

use crate::access;
use crate::argument::arguments;
use crate::dispatch::Call;

const NAME: &str = "listDatabases";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let (mut filter, mut name_only, mut own) = (RawDocument::empty(), false, None);
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "filter" => filter = argument.document()?,
            "nameOnly" => name_only = argument.boolean()?,
            "authorizedDatabases" => own = Some(argument.strict_boolean()?),
            _ => return Err(argument.unknown()),
        }
    }
    let filter = Filter::parse(filter)?;
    let may_list = access::may_on_cluster(call.client, Action::named("listDatabases"));
    if own == Some(false) && !may_list {
        return Err(access::unauthorized(call.spec, call.generic.database, call.body));
    }
    // Without the privilege one sees the databases in which one may do something.
    let only_own = call.client.access.is_enforced() && own.unwrap_or(!may_list);
    let rights = access::rights(call.client);
    let (snapshot, catalog) = call.engine.reading();
    let mut databases = Vec::new();
    let mut total = 0;
    for name in catalog.database_names() {
        if only_own && !rights.reaches_database(&name) {
            continue;
        }
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
