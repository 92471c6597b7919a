//! `listIndexes`: the indexes of a collection.

use std::sync::Arc;

use kilim_bson::{Document, RawValue};
use kilim_engine::cursor::{Batch, Cursor, Source};
use kilim_engine::index::Index;
use kilim_error::{Error, ErrorCode, Result};

use crate::argument::{Argument, arguments, nested};
use crate::cursor_reply;
use crate::dispatch::Call;

const NAME: &str = "listIndexes";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.namespace()?;
    call.describe("command");
    let mut batch = Batch::first(Some(usize::MAX));
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "cursor" => batch = cursor_batch(&argument)?,
            "includeBuildUUIDs" | "includeIndexBuildInfo" => argument.only_off()?,
            _ => return Err(argument.unknown()),
        }
    }
    call.engine.check_no_view(&namespace)?;
    let Some(collection) = call.engine.collection(&namespace) else {
        return Err(Error::user(ErrorCode::NamespaceNotFound, format!("ns does not exist: {namespace}")));
    };
    let building = collection.building.iter().map(|building| building.index.spec.to_document());
    let shown = |index: &Arc<Index>| match collection.options.get("clusteredIndex") {
        Some(RawValue::Document(clustered)) if index.is_id() => {
            let mut document = clustered.to_document();
            if let Some(collation) = &index.spec.collation {
                document.push("collation", collation.to_document());
            }
            document.push("clustered", true);
            document
        }
        _ => index.spec.to_document(),
    };
    let documents: Vec<Document> = collection.indexes.iter().map(shown).chain(building).collect();
    let cursor = Cursor::new(namespace, Source::List(documents.into_iter()));
    cursor_reply::first_batch(call, cursor, batch, false)
}

/// The `cursor` option of listing commands: how many at once.
pub fn cursor_batch(argument: &Argument<'_>) -> Result<Batch> {
    let mut size = None;
    for option in nested("cursor", argument.document()?) {
        match (option.name, option.value) {
            ("batchSize", RawValue::Null) => {}
            ("batchSize", _) => size = Some(option.not_negative()? as usize),
            _ => return Err(option.unknown()),
        }
    }
    Ok(Batch::first(Some(size.unwrap_or(usize::MAX))))
}
