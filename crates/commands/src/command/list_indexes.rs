//! `listIndexes`: the indexes of a collection.

use std::sync::Arc;

use kilim_bson::{Document, RawValue};
use kilim_engine::cursor::{Batch, Cursor, CursorSource};
use kilim_engine::index::Index;
use kilim_error::{Error, ErrorCode, Result};

use super::time_series;
use crate::argument::{Argument, arguments, nested};
use crate::cursor_reply;
use crate::dispatch::Call;

const NAME: &str = "listIndexes";

pub fn run(call: &mut Call<'_, '_>) -> Result<Document> {
    let namespace = call.collection()?;
    call.describe("command");
    let mut batch = Batch::first(Some(usize::MAX));
    for argument in arguments(NAME, call.body) {
        match argument.name {
            "cursor" => batch = cursor_batch(&argument)?,
            "includeBuildUUIDs" | "includeIndexBuildInfo" => argument.only_off()?,
            _ => return Err(argument.unknown()),
        }
    }
    let series = time_series::of(call, &namespace);
    if series.is_none() {
        call.engine.check_no_view(&namespace)?;
    }
    let Some(collection) = call.engine.collection(series.as_ref().map_or(&namespace, |view| &view.on)) else {
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
    // Buckets lie in the order of their `_id`, which is no index of users.
    let own = collection.indexes.iter().skip(usize::from(collection.time_series.is_some()));
    let documents = own.map(shown).chain(building);
    let documents: Vec<Document> = match series.as_ref().and_then(|view| view.time_series.as_deref()) {
        Some(series) => {
            documents.filter_map(|spec| time_series::index_of_measurements(series, spec)).collect()
        }
        None => documents.collect(),
    };
    let cursor = Cursor::new(namespace, CursorSource::List(documents.into_iter()));
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
