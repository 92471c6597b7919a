//! `listCollections`: the collections of a database.

use kilim_bson::{Document, RawDocument, Value, doc};
use kilim_engine::catalog::SYSTEM_VIEWS;
use kilim_engine::cursor::{Batch, Cursor, Source};
use kilim_engine::index::IndexSpec;
use kilim_engine::{Namespace, check_database};
use kilim_error::Result;
use kilim_query::filter::Filter;

use super::list_indexes::cursor_batch;
use crate::argument::arguments;
use crate::cursor_reply;
use crate::dispatch::Call;

const NAME: &str = "listCollections";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let database = call.generic.database;
    if !call.engine.catalog().has_database(database) {
        check_database(database)?;
    }
    let (mut filter, mut name_only, mut batch) =
        (RawDocument::empty(), false, Batch::first(Some(usize::MAX)));
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "filter" => filter = argument.document()?,
            "nameOnly" => name_only = argument.strict_boolean()?,
            "authorizedCollections" => drop(argument.strict_boolean()?),
            "cursor" => batch = cursor_batch(&argument)?,
            _ => return Err(argument.unknown()),
        }
    }
    let filter = Filter::parse(filter)?;
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
    let views = catalog.database_views(database).map(|view| {
        let mut document = doc! {"name": &view.namespace.collection, "type": "view"};
        if !name_only {
            document.push("options", view.options());
            document.push("info", doc! {"readOnly": true});
        }
        document
    });
    // Where there are views, there is the collection that lists them.
    let definitions = catalog.database_views(database).next().map(|_| {
        let mut document = doc! {"name": SYSTEM_VIEWS, "type": "collection"};
        if !name_only {
            document.push("options", Document::new());
            document.push("info", doc! {"readOnly": false});
            document.push("idIndex", IndexSpec::id(None).to_document());
        }
        document
    });
    let documents: Vec<Document> = collections
        .chain(views)
        .chain(definitions)
        .filter_map(|document| match filter.matches(document.as_raw()) {
            Ok(matched) => matched.then_some(Ok(document)),
            Err(error) => Some(Err(error)),
        })
        .collect::<Result<_>>()?;
    let namespace =
        Namespace { database: database.to_owned(), collection: "$cmd.listCollections".to_owned() };
    let cursor = Cursor::new(namespace, Source::List(documents.into_iter()));
    cursor_reply::first_batch(call, cursor, batch, false)
}
