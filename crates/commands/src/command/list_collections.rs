//! `listCollections`: the collections of a database.

use std::sync::Arc;

use kilim_bson::{Document, RawDocument, RawValue, Value, doc};
use kilim_engine::catalog::{SYSTEM_VIEWS, View};
use kilim_engine::cursor::{Batch, Cursor, CursorSource};
use kilim_engine::index::IndexSpec;
use kilim_engine::{Namespace, check_database};
use kilim_error::Result;
use kilim_query::filter::Filter;

use super::list_indexes::cursor_batch;
use crate::access;
use crate::argument::arguments;
use crate::cursor_reply;
use crate::dispatch::Call;

const NAME: &str = "listCollections";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let database = call.generic.database;
    if !call.engine.catalog().has_database(database) {
        check_database(database)?;
    }
    let (mut filter, mut name_only, mut own, mut batch) =
        (RawDocument::empty(), false, false, Batch::first(Some(usize::MAX)));
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "filter" => filter = argument.document()?,
            "nameOnly" => name_only = argument.strict_boolean()?,
            "authorizedCollections" => own = argument.strict_boolean()?,
            "cursor" => batch = cursor_batch(&argument)?,
            _ => return Err(argument.unknown()),
        }
    }
    let filter = Filter::parse(filter)?;
    let only_own = own && call.client.access.is_enforced();
    let rights = access::rights(call.client);
    let catalog = call.engine.catalog();
    let patterns = call.engine.patterns();
    let collections = catalog.database(database).map(|collection| {
        let mut document = doc! {"name": &collection.namespace.collection, "type": "collection"};
        if !name_only {
            document.push("options", collection.options.clone());
            let uuid = Value::Binary { subtype: 4, bytes: collection.uuid.to_vec() };
            let mut info = doc! {"readOnly": false, "uuid": uuid};
            let own = patterns.of(database).iter().filter(|one| one.target == collection.namespace);
            let own: Vec<Value> = own.map(|pattern| Value::Document(pattern.summary())).collect();
            if !own.is_empty() {
                info.push("patterns", own);
            }
            document.push("info", info);
            if !collection.clustered {
                document.push("idIndex", collection.id_index().spec.to_document());
            }
        }
        document
    });
    let shown = |view: &Arc<View>| {
        let buckets = view.time_series.as_ref().and_then(|_| catalog.get(&view.on));
        let kind = if buckets.is_some() { "timeseries" } else { "view" };
        let mut document = doc! {"name": &view.namespace.collection, "type": kind};
        if !name_only {
            let options = buckets.map_or_else(|| view.options(), |buckets| buckets.measurement_options());
            document.push("options", options);
            document.push("info", doc! {"readOnly": buckets.is_none()});
        }
        document
    };
    let (series, views): (Vec<_>, Vec<_>) =
        catalog.database_views(database).partition(|view| view.time_series.is_some());
    // Where there are views, there is the collection that lists them.
    let definitions = catalog.database_views(database).next().map(|_| {
        let mut document = doc! {"name": SYSTEM_VIEWS, "type": "collection"};
        if !name_only {
            document.push("options", Document::new());
            let mut info = doc! {"readOnly": false};
            if let Some(uuid) = catalog.views_uuid(database) {
                info.push("uuid", Value::Binary { subtype: 4, bytes: uuid.into() });
            }
            document.push("info", info);
            document.push("idIndex", IndexSpec::id(None).to_document());
        }
        document
    });
    let documents: Vec<Document> = (series.into_iter().map(shown))
        .chain(collections)
        .chain(views.into_iter().map(shown))
        .chain(definitions)
        .filter(|document| {
            let name = document.get("name").and_then(RawValue::as_str).unwrap_or_default();
            !only_own || rights.reaches_collection(database, name)
        })
        .filter_map(|document| match filter.matches(document.as_raw()) {
            Ok(matched) => matched.then_some(Ok(document)),
            Err(error) => Some(Err(error)),
        })
        .collect::<Result<_>>()?;
    let namespace =
        Namespace { database: database.to_owned(), collection: "$cmd.listCollections".to_owned() };
    let cursor = Cursor::new(namespace, CursorSource::List(documents.into_iter()));
    cursor_reply::first_batch(call, cursor, batch, false)
}
